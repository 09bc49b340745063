"""A program that updates its parameters by itself, without an optimizer of torch's."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from gradir.frontends.pytorch.private import ACCUMULATOR
from gradir.frontends.pytorch.reading.outputs import flatten
from gradir.frontends.pytorch.reading.walk import walk


class ByHand(Optimizer):
    """Stands for what such a program updates: the leaves behind its last backward."""

    def __init__(self) -> None:
        # It is none of the program's, and never steps by itself.
        self.param_groups = [{"params": []}]

    def take(self, tensors: object) -> bool:
        """Take the leaves behind a backward; return whether they can be the same parameters as before."""
        before, leaves = self.param_groups[0]["params"], _leaves_behind(tensors)
        self.param_groups[0]["params"] = leaves
        kept = {leaf is each for leaf, each in zip(before, leaves, strict=False)}
        return len(kept) == 1 and [leaf.shape for leaf in before] == [leaf.shape for leaf in leaves]


def _leaves_behind(tensors: object) -> list[torch.Tensor]:
    fns = (fn for fn in walk(flatten(tensors)).order if type(fn).__name__ == ACCUMULATOR)
    leaves: list[torch.Tensor] = [fn.variable for fn in fns if not isinstance(fn, int)]
    # Beside parameters, other leaves are inputs.
    return [leaf for leaf in leaves if isinstance(leaf, nn.Parameter)] or leaves
