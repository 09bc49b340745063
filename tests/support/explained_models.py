"""A model to explain, and what is told of it. For test modules that know that torch is there."""

from __future__ import annotations

import torch
from torch import nn

import gradir


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(x).relu())


def name_causes(found: gradir.Explanation) -> list[tuple[str, str, tuple[str, ...]]]:
    """The kind, level and names of each cause."""
    return [(cause.kind, cause.level, cause.names) for cause in found.causes]
