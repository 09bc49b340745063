"""A recurrent network over fifty steps: one cell, called fifty times, and its weights used as often.

gradir capture examples/recurrent.py:loss -o recurrent.gir
gradir view recurrent.gir
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)


class Reader(nn.Module):
    """Reads a sequence step by step and says one number about it."""

    def __init__(self, features: int = 4, hidden: int = 8) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(features, hidden)
        self.head = nn.Linear(hidden, 1)

    def forward(self, sequence: Tensor) -> Tensor:
        """One number for each sequence; the first dimension is time."""
        hidden = state = sequence.new_zeros(sequence.shape[1], self.cell.hidden_size)
        for step in sequence:
            hidden, state = self.cell(step, (hidden, state))
        return self.head(hidden)


def loss() -> tuple[Reader, Tensor]:
    torch.manual_seed(0)
    model = Reader()
    sequences, targets = torch.randn(50, 2, 4), torch.randn(2, 1)
    return model, F.mse_loss(model(sequences), targets)
