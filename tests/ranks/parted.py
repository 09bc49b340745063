"""Capture programs in which one rank does something else, with what they exchange; nothing is sent in backward."""

from __future__ import annotations

import torch
from rank import Block, Net, run
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

import gradir
from gradir import CaptureRequest, registry


class Checkpointed(nn.Module):
    """Blocks on a mesh, checkpointed where it is asked for."""

    def __init__(self, mesh, again: bool) -> None:
        super().__init__()
        self.again = again
        self.h = nn.ModuleList(Block(4) for _ in range(2))
        for block in self.h:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})

    def forward(self, x):
        return checkpoint(self.blocks, x, use_reentrant=False) if self.again else self.blocks(x)

    def blocks(self, x):
        for block in self.h:
            x = block(x)
        return x


class Heads(nn.Module):
    """A trunk and two heads of different sizes, one of which is run."""

    def __init__(self, mesh) -> None:
        super().__init__()
        self.trunk, self.small, self.large = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 8)
        fully_shard(self.small, mesh=mesh)
        fully_shard(self.large, mesh=mesh)
        fully_shard(self, mesh=mesh)

    def forward(self, x, large: bool):
        x = self.trunk(x)
        return (self.large if large else self.small)(x)


class Routed(nn.Module):
    """Values of a parameter, of which each rank has a part, decide which module runs."""

    def __init__(self, mesh) -> None:
        super().__init__()
        self.gate, self.one, self.other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4), nn.Linear(4, 4)
        with torch.no_grad():
            self.gate.weight.zero_()[2] = 1
        fully_shard(self.other, mesh=mesh)
        fully_shard(self, mesh=mesh)

    def forward(self, x, parts: bool):
        chosen = self.gate(x)[0].argmax().item() == 2
        return (self.other if parts or not chosen else self.one)(x)


def shard(mesh, reshard):
    model = Net()
    for block in model.h:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    return fully_shard(model, mesh=mesh)


def capture(model, *args, dry=False):
    request = CaptureRequest(target=lambda: (model, model(*args).sum()), is_program=True, collectives=True, dry=dry)
    return registry.frontend("torch").capture(request).graph


def main(rank: int, world: int) -> object:
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("all",))
    x = torch.ones(2, 4)
    graphs = {
        "checkpoint": capture(Checkpointed(mesh, rank != 1), x),
        "resharded": capture(shard(mesh, True), x),
        "resharded to 2": capture(shard(mesh, 2), x),
        "kept": capture(shard(mesh, False), x),
    }
    # The heads that are run differ on one rank: gathered whole before, so that the forward does not wait.
    model = Heads(mesh)
    for part in (model, model.small, model.large):
        part.set_reshard_after_forward(False)
        part.unshard()
    graphs["heads"] = capture(model, x, rank == 1)
    # A forward in which ranks part would wait, if it sent anything.
    graphs["dry"] = capture(Heads(mesh), x, rank == 1, dry=True)
    graphs["routed"] = capture(Routed(mesh), x, False, dry=True)
    graphs["routed, one parts"] = capture(Routed(mesh), x, rank == 1, dry=True)
    return {name: gradir.dumps(graph).decode() for name, graph in graphs.items()}


if __name__ == "__main__":
    run(main)
