"""Train under DistributedDataParallel and fully_shard with explanations between forward and backward, and without."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from rank import as_before, descend, equal, gradients, local, run
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import gradir

STEPS = 4


class Heads(nn.Module):
    """A trunk with two heads, one of which may not run; the trunk may be computed once more in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2)
        self.skips, self.again = False, False

    def forward(self, x):
        x = checkpoint(self.trunk, x, use_reentrant=False) if self.again else self.trunk(x)
        return {"one": self.one(x.tanh()), "other": None if self.skips else self.other(x)}


def both(found):
    return sum(output.square().sum() for output in found.values() if output is not None)


def only_one(found):
    return found["one"].square().sum()


def only_one_learns(found):
    return found["one"].square().sum() + found["other"].detach().square().sum()


class Training:
    """Some steps, with what an explanation tells of each and the gradients after it."""

    def __init__(self, make, loss=both, *, steps=STEPS, unsynced=(), skips=False, again=False) -> None:
        self.make, self.loss, self.steps, self.unsynced = make, loss, steps, unsynced
        self.skips, self.again = skips, again

    def run(self, explains):
        torch.manual_seed(0)
        heads = Heads()
        heads.skips, heads.again = self.skips, self.again
        model = self.make(heads)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        found, told = [], []
        for step in range(self.steps):
            with model.no_sync() if step in self.unsynced else nullcontext():
                x = torch.full((2, 4), 1.0 + distributed.get_rank() + step)
                if not explains:
                    self.loss(model(x)).backward()
                else:
                    with gradir.record(model, flow=True) as rec:
                        loss = self.loss(model(x))
                    told.append(self.explain(rec, loss, model, optimizer))
            found += gradients(model.parameters())
            if step not in self.unsynced:
                descend(model)
                model.zero_grad()
        return found, told

    def explain(self, rec, loss, model, optimizer):
        results = []
        kept = as_before(model.parameters(), lambda: results.append(rec.explain(loss, optimizer=optimizer)))
        before = dict(zip([name for name, _ in model.named_parameters()], gradients(model.parameters()), strict=True))
        loss.backward()
        arrived = {
            name for name, p in model.named_parameters() if p.grad is not None and is_changed(before[name], p.grad)
        }
        (result,) = results
        reached = {name for name, status in result.statuses.items() if status == "reached"}
        problems = [] if kept else ["a gradient was changed"]
        problems += [f"{name} is {result.status(name)}" for name in sorted(arrived ^ reached)]
        causes = [[cause.kind, cause.level, list(cause.names)] for cause in result.causes]
        return [problems, result.level, causes]


def is_changed(before, after) -> bool:
    return before is None or not torch.equal(before, local(after))


class Sharded(nn.Module):
    """Heads whose trunk is sharded on its own, as one that a wrapper has."""

    def __init__(self, heads, mesh) -> None:
        super().__init__()
        fully_shard(heads.trunk, mesh=mesh)
        self.heads = fully_shard(heads, mesh=mesh)

    def forward(self, x):
        return self.heads(x)


def main(rank: int, world: int) -> object:
    def ddp(**options):
        return lambda heads: DistributedDataParallel(heads, **options)

    unused, static = {"find_unused_parameters": True}, {"static_graph": True}
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    trainings = {
        "plain": Training(ddp()),
        "views": Training(ddp(gradient_as_bucket_view=True)),
        "unused": Training(ddp(**unused)),
        "static": Training(ddp(**static)),
        "no_sync": Training(ddp(), unsynced=(0, 2)),
        "no_sync, unused": Training(ddp(**unused), unsynced=(0, 2)),
        "checkpointed": Training(ddp(), again=True),
        "checkpointed, static": Training(ddp(**static), again=True),
        "fsdp": Training(lambda heads: Sharded(heads, mesh)),
        # torch refuses a further step where it waits for gradients that do not come.
        "left out": Training(ddp(), only_one, steps=1),
        "left out, unused": Training(ddp(**unused), only_one, steps=1),
        "left out, static": Training(ddp(**static), only_one, steps=1),
        "left out, fsdp": Training(lambda heads: Sharded(heads, mesh), only_one),
        "cut, unused": Training(ddp(**unused), only_one_learns, steps=1),
        "not run, unused": Training(ddp(**unused), skips=True),
        "not run, static": Training(ddp(**static), skips=True),
    }
    results = {}
    for name, training in trainings.items():
        without, _ = training.run(explains=False)
        explained, told = training.run(explains=True)
        results[name] = [equal(without, explained), told]
    return results


if __name__ == "__main__":
    run(main)
