"""Capture programs in which every rank does the same, and leave the bytes of each graph."""

from __future__ import annotations

import torch
from rank import Net, run
from torch import distributed, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn import functional as differentiable
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import gradir


class OnSequence(nn.Module):
    """Its blocks run on tensors that are spread over a mesh."""

    def __init__(self, mesh) -> None:
        super().__init__()
        self.mesh, self.h = mesh, Net().h
        for block in self.h:
            plan = {
                "norm": SequenceParallel(),
                "up": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
            }
            parallelize_module(block, mesh, plan)
            parallelize_module(block.up, mesh, ColwiseParallel())

    def forward(self, x):
        x = DTensor.from_local(x, self.mesh, [Shard(1)])
        for block in self.h:
            x = block(x)
        return x.sum().full_tensor()


class Communicating(nn.Module):
    """A layer, and what it makes sent to other ranks."""

    def __init__(self, send) -> None:
        super().__init__()
        self.send, self.layer = send, nn.Linear(4, 4)

    def forward(self, x):
        sent = self.send(self.layer(x))
        return sent.sum() if isinstance(sent, torch.Tensor) else sum(part.sum() for part in sent)


def tensor_parallel(mesh):
    model = Net()
    for block in model.h:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def shard(model, mesh):
    for block in model.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def storages(model, x) -> int:
    """How many bytes autograd keeps for its backward, by what it packs."""
    kept = {}

    def pack(tensor):
        storage = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        held = model(x)
    found = sum(storage.nbytes() for storage in kept.values())
    del held
    return found


def count_recorded(graph) -> int:
    """The same, by a graph."""
    sizes = {
        slot.storage or f"{node.id}.{slot.slot}": slot.bytes for node in graph.nodes.values() for slot in node.saved
    }
    return sum(size for size in sizes.values() if size is not None)


def main(rank: int, world: int) -> object:
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
    tensors, data = mesh["tp"], mesh["dp"]
    pair = [distributed.new_group([0, 1]), distributed.new_group([2, 3])][rank // 2]
    first = rank // 2 * 2
    line, sequence = torch.ones(4, 4), torch.ones(2, 2, 4)
    programs = {
        "all_reduce": (Communicating(lambda t: functional.all_reduce(t, "sum", tensors)), line),
        "all_gather": (Communicating(lambda t: functional.all_gather_tensor_autograd(t, 0, pair)), line),
        "reduce_scatter": (
            Communicating(lambda t: functional.reduce_scatter_tensor_autograd(t, "avg", 0, mesh["dp"])),
            line,
        ),
        "all_to_all": (
            Communicating(lambda t: functional.all_to_all_single_autograd(t, [2, 2], [2, 2], tensors)),
            line,
        ),
        "nn all_reduce": (Communicating(differentiable.all_reduce), line),
        "nn broadcast": (Communicating(lambda t: differentiable.broadcast(t, first, pair)), line),
        "nn reduce": (Communicating(lambda t: differentiable.reduce(t, first, group=pair)), line),
        "ddp": (nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True), line),
        "fsdp": (shard(Net(), data), line),
        "tp": (tensor_parallel(tensors), line),
        "sequence": (OnSequence(tensors), sequence),
        "tp, fsdp": (shard(tensor_parallel(tensors), data), line),
    }
    results = {}
    for name, (model, x) in programs.items():
        graph = gradir.capture(model, x)
        kept = [count_recorded(graph), storages(model, x)]
        results[name] = [gradir.dumps(graph).decode(), kept]
    return results


if __name__ == "__main__":
    run(main)
