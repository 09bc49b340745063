"""Train under fully_shard with verifications between forward and backward, and without."""

from __future__ import annotations

import torch
from rank import Net, as_before, descend, equal, gradients, run
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import gradir

STEPS = 4


class Training:
    """Some steps, with the gradients after each."""

    def __init__(self, mesh, unsynced=(), half_synced=(), dropped=(), **options) -> None:
        self.mesh, self.options = mesh, options
        self.unsynced, self.half_synced, self.dropped = unsynced, half_synced, dropped

    def model(self):
        torch.manual_seed(0)
        model = Net()
        for block in model.h:
            fully_shard(block, mesh=self.mesh, **self.options)
        return fully_shard(model, mesh=self.mesh, **self.options)

    def run(self, verifies):
        model = self.model()
        sharded = list(model.parameters())
        found, problems = [], []
        for step in range(STEPS):
            model.set_requires_gradient_sync(step not in self.unsynced)
            if step in self.half_synced:
                model.set_requires_all_reduce(False)
            with gradir.record(model) as rec:
                y = model(torch.full((2, 4), 1.0 + distributed.get_rank() + step))
            loss = y.float().square().sum()
            if verifies(step):
                problems += self.verify([*sharded, *model.parameters()], rec, loss)
            if step in self.dropped:
                continue
            loss.backward()
            if step in self.unsynced:
                continue
            found += gradients(model.parameters())
            descend(model)
            model.zero_grad()
        return found, problems

    def verify(self, parameters, rec, loss):
        results = []
        kept = as_before(parameters, lambda: results.append(rec.verify(loss)))
        (result,) = results
        problems = list(result.mismatches)
        if result.executed != result.nodes:
            problems.append(f"{result.executed} of {result.nodes} nodes")
        return problems if kept else [*problems, "a gradient was changed"]


def find_names(training) -> object:
    """The names of the parameters in a graph, of the leaves that have none, and of the cuts."""
    model = training.model()
    names = {name for name, _ in model.named_parameters()}
    graph = gradir.capture(model, torch.ones(2, 4))
    parameters = [node.names[0] for node in graph.nodes.values() if node.role == "parameter"]
    others = [node.id for node in graph.nodes.values() if node.role == "leaf"]
    return [set(parameters) == names, len(parameters), others, [cut.names for cut in graph.cuts]]


def main(rank: int, world: int) -> object:
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    both = init_device_mesh("cpu", (world, 1), mesh_dim_names=("copies", "parts"))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    trainings = {
        "plain": Training(mesh),
        "kept whole": Training(mesh, reshard_after_forward=False),
        "copies": Training(both),
        "no sync": Training(mesh, unsynced=(0, 2)),
        "no sync, half": Training(mesh, unsynced=(0, 2), mp_policy=half),
        "copies, no all-reduce": Training(both, half_synced=(0, 2)),
        "no backward": Training(mesh, dropped=(1,)),
    }
    results = {}
    for name, training in trainings.items():
        without, _ = training.run(lambda step: False)
        everywhere, problems = training.run(lambda step: True)
        results[name] = [equal(without, everywhere), sorted(set(problems)), find_names(training)]
    return results


if __name__ == "__main__":
    run(main)
