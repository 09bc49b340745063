"""What the programs of this folder share: torchrun starts each as several ranks, and each rank leaves a file."""

from __future__ import annotations

import gc
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed, nn

__all__ = ["Block", "Net", "as_before", "descend", "equal", "gradients", "run"]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(width, width)
        self.h = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, width)

    def forward(self, x):
        x = self.embed(x)
        for block in self.h:
            x = block(x)
        return self.head(x)


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def gradients(parameters):
    """A copy of each gradient that this rank holds."""
    return [None if p.grad is None else local(p.grad).clone() for p in parameters]


def descend(model: nn.Module) -> None:
    """Change the parameters, so that a wrong gradient has consequences."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(0.01 * parameter.grad)


def equal(some, others) -> bool:
    """Whether lists of gradients are the same to the last bit."""
    return len(some) == len(others) and all(
        (a is None) == (b is None) and (a is None or torch.equal(a, b)) for a, b in zip(some, others, strict=True)
    )


def as_before(parameters, verify) -> bool:
    """Whether every gradient is the same object with the same values behind a verification."""
    parameters = list(parameters)
    objects, values = [p.grad for p in parameters], gradients(parameters)
    verify()
    return all(p.grad is kept for p, kept in zip(parameters, objects, strict=True)) and equal(
        values, gradients(parameters)
    )


def run(main: Callable[[int, int], object]) -> None:
    """Write what ``main`` returns for this rank and this many."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # What is imported need not be searched for tensors by each verification.
    gc.freeze()
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    result = main(rank, distributed.get_world_size())
    Path(os.environ["RANK_RESULTS"], f"{rank}.json").write_text(json.dumps(result))
    distributed.barrier()
    # A thread of torch that lets go of a Python object while the interpreter ends aborts the process.
    os._exit(0)
