"""Train under DistributedDataParallel with verifications between forward and backward, and without."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from rank import as_before, descend, equal, gradients, run
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import gradir

STEPS = 5


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x, skip: str = ""):
        x = self.a(x)
        x = x if "b" in skip else self.b(x).relu()
        return x if "c" in skip else x + self.c(x)


class TwoBackwards(torch.autograd.Function):
    """Adds to the parameters of a module by a backward of its own."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        ctx.save_for_backward(x)
        return module(x)

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            torch.autograd.backward(ctx.module(x), gradient)
        return x.grad, None


class OwnBackward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x, skip: str = ""):
        return TwoBackwards.apply(self.outer(x), self.inner)


def comm_hook(_, bucket):
    work = distributed.all_reduce(bucket.buffer().div_(3), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


class Training:
    """Some steps, with the gradients after each."""

    def __init__(self, options, make=Branches, skip=lambda step: "", unsynced=(), dropped=(), hook=None) -> None:
        self.options, self.make, self.skip = options, make, skip
        self.unsynced, self.dropped, self.hook = unsynced, dropped, hook

    def run(self, verifies):
        torch.manual_seed(0)
        model = DistributedDataParallel(self.make(), **self.options)
        if self.hook is not None:
            model.register_comm_hook(None, self.hook)
        found, problems = [], []
        for step in range(STEPS):
            with model.no_sync() if step in self.unsynced else nullcontext():
                with gradir.record(model) as rec:
                    loss = (
                        model(torch.full((2, 3), 1.0 + distributed.get_rank() + step), self.skip(step)).square().sum()
                    )
                if verifies(step):
                    problems += self.verify(model, rec, loss)
                if step in self.dropped:
                    continue
                loss.backward()
            found += gradients(model.parameters())
            if step not in self.unsynced:
                descend(model)
                model.zero_grad(set_to_none=step % 2 == 0 and "gradient_as_bucket_view" not in self.options)
        return found, problems

    def verify(self, model, rec, loss):
        results = []
        try:
            kept = as_before(model.parameters(), lambda: results.append(rec.verify(loss)))
        except gradir.CaptureError as error:
            return [str(error)]
        (result,) = results
        problems = list(result.mismatches)
        if result.executed != result.nodes:
            problems.append(f"{result.executed} of {result.nodes} nodes")
        return problems if kept else [*problems, "a gradient was changed"]


def main(rank: int, world: int) -> object:
    views, unused = {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}

    def apart(step):
        # What one rank uses another does not.
        return "b" if step % 2 == rank % 2 else "c"

    trainings = {
        "plain": Training({}),
        "small buckets": Training({"bucket_cap_mb": 1e-5}),
        "views": Training(views),
        "unused": Training(unused, skip=apart),
        "unused, views": Training({**unused, **views}, skip=apart),
        "static": Training({"static_graph": True}, skip=lambda step: "b"),
        "static, views": Training({"static_graph": True, **views}, skip=lambda step: "b"),
        "no_sync": Training({}, unsynced=(0, 2)),
        "no_sync, unused": Training(unused, skip=apart, unsynced=(0, 2, 3)),
        "no_sync, no backward": Training(
            unused, skip=lambda step: "b" if step == 2 else "bc", unsynced=(2,), dropped=(2,)
        ),
        "no backward": Training({}, dropped=(0, 2)),
        "hook": Training({}, hook=comm_hook),
        "own backward": Training({}, make=OwnBackward),
    }
    results = {}
    for name, training in trainings.items():
        without, _ = training.run(lambda step: False)
        everywhere, problems = training.run(lambda step: True)
        # Nothing is communicated, so it may be one rank that verifies.
        alone, further = training.run(lambda step: step == 1 and rank == 0)
        same = equal(without, everywhere) and equal(without, alone)
        results[name] = [same, sorted({*problems, *further})]
    return results


if __name__ == "__main__":
    run(main)
