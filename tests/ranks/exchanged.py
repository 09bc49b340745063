"""Note what each rank exchanges, in a real backward and in one in which nothing is sent."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from msgspec.structs import replace
from rank import Net, run
from symmetric import Communicating, OnSequence, shard, tensor_parallel
from torch import distributed, nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.nn import functional as differentiable
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel

import gradir
from gradir import CaptureRequest, registry


class Implicit(nn.Module):
    """A product of tensors that lie in different ways, so that one of them has to be sent."""

    def __init__(self, mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.weight = nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]))

    def forward(self, x):
        return (distribute_tensor(x, self.mesh, [Shard(1)], src_data_rank=None) * self.weight).to_local()


class Branches(nn.Module):
    """Each rank but the last runs both branches."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        return y if distributed.get_rank() + 1 == distributed.get_world_size() else y + self.b(x)


def make_program(make, x):
    """A program of one model, as the command line runs it."""
    torch.manual_seed(0)
    model = make()
    return model, lambda: model(x).sum()


def really(make, x, within):
    """A graph with what a real backward exchanged."""
    model, loss_of = make_program(make, x)
    with within(model), gradir.record(model, collectives=True) as rec:
        loss = loss_of()
        graph = rec.capture(loss)
        loss.backward()
    return rec.with_collectives(graph)


def count_collectives(make, x, within) -> int:
    """How often torch itself says that a step communicates."""
    model, loss_of = make_program(make, x)
    with within(model), CommDebugMode() as mode:
        loss_of().backward()
    return mode.get_total_counts()


def dryly(make, x, within):
    model, loss_of = make_program(make, x)
    with within(model):
        request = CaptureRequest(target=lambda: (model, loss_of()), is_program=True, collectives=True)
        return registry.frontend("torch").capture(request).graph


def list_collectives(graph):
    return [
        [
            *(each.phase, each.op, each.group, each.peer, each.reduce, list(map(str, each.tensors))),
            *(each.splits, each.node or each.scope, each.source and f"{each.source.file.rpartition('/')[2]}"),
        ]
        for each in graph.collectives
    ]


def sends(mesh):
    """Each rank of a pair sends to the other, one after the other."""

    def send(x):
        group, place = mesh.get_group(), mesh.get_local_rank()
        other = distributed.get_global_rank(group, 1 - place)
        with torch.no_grad():
            received = torch.empty(2, 4)
            first, second = (distributed.send, distributed.recv) if place else (distributed.recv, distributed.send)
            for step in (first, second):
                step(x[:2].contiguous() if step is distributed.send else received, other, group=group)
        return x + received.sum()

    return send


def coalesce(x):
    with torch.no_grad(), distributed._coalescing_manager():
        distributed.all_reduce(x.detach())
    return x


def pipe(rank: int, world: int):
    """The graph of a stage, with what a schedule of four microbatches exchanges."""
    model = Net().h[0] if rank else Net(blocks=1)
    stage = PipelineStage(model, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda output, target: (output - target).square().mean())
    first, last = [torch.ones(8, 4)] if rank == 0 else [], {"target": torch.zeros(8, 4)} if rank + 1 == world else {}
    with gradir.record(model, collectives=True) as rec:
        schedule.step(*first, **last)
    return rec.with_collectives(gradir.capture(model, torch.ones(2, 4)))


def main(rank: int, world: int) -> object:
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
    tensors, data = mesh["tp"], mesh["dp"]
    line, sequence = torch.ones(4, 4), torch.ones(2, 2, 4)
    uneven = [[1, 3], [2, 2]][tensors.get_local_rank()]
    other = [[1, 2], [3, 2]][tensors.get_local_rank()]

    def reduced(x):
        distributed.all_reduce(x.detach().clone(), distributed.ReduceOp.MAX)
        distributed.broadcast(x.detach().clone(), 1)
        distributed.barrier()
        return x

    programs = {
        "ddp": (lambda: DistributedDataParallel(Net()), line),
        "ddp unused": (lambda: DistributedDataParallel(Net(), find_unused_parameters=True), line),
        "no_sync": (lambda: DistributedDataParallel(Net()), line),
        "fsdp": (lambda: shard(Net(), data), line),
        "hsdp": (lambda: shard(Net(), mesh), line),
        "tp": (lambda: tensor_parallel(tensors), line),
        "tp, fsdp": (lambda: shard(tensor_parallel(tensors), data), line),
        "sequence": (lambda: OnSequence(tensors), sequence),
        "implicit": (lambda: Implicit(tensors), line),
        "functional": (lambda: Communicating(lambda t: functional.all_reduce(t, "sum", tensors)), line),
        "all_to_all": (
            lambda: Communicating(lambda t: functional.all_to_all_single_autograd(t, other, uneven, tensors)),
            line,
        ),
        "nn": (lambda: Communicating(differentiable.all_reduce), line),
        "reduced": (lambda: Communicating(reduced), line),
        "sent": (lambda: Communicating(sends(tensors)), line),
        "coalesced": (lambda: Communicating(coalesce), line),
    }
    results = {}
    for name, (make, x) in programs.items():
        within = (lambda model: model.no_sync()) if name == "no_sync" else (lambda model: nullcontext())
        real, dry = really(make, x, within), dryly(make, x, within)
        model, loss_of = make_program(make, x)
        with within(model), gradir.record(model) as rec:
            bare = rec.capture(loss_of())
        results[name] = [
            dry == real,
            replace(real, rank=None, collectives=()) == bare,
            count_collectives(make, x, within),
            list_collectives(real),
            gradir.dumps(bare).decode(),
            gradir.dumps(real).decode(),
        ]
    results["pipeline"] = gradir.dumps(pipe(rank, world)).decode()
    # The last rank has no gradient for a branch: a real backward would wait for ever.
    apart = dryly(lambda: DistributedDataParallel(Branches(), bucket_cap_mb=1e-5), line, lambda model: nullcontext())
    results["apart"] = gradir.dumps(apart).decode()
    return results


if __name__ == "__main__":
    run(main)
