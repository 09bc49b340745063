"""One step of an LSTM, whose two outputs share most of their graph.

A dict of tensors is captured with its keys as the outputs' names.

    gradir capture examples/lstm_cell.py:step -o lstm.gir
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LSTMCell(nn.Module):
    """Long short-term memory, written out gate by gate."""

    def __init__(self, inputs: int = 4, hidden: int = 6) -> None:
        super().__init__()
        self.input_gates = nn.Linear(inputs, 4 * hidden)
        self.hidden_gates = nn.Linear(hidden, 4 * hidden)

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """The next hidden state and the next cell state."""
        gates = self.input_gates(x) + self.hidden_gates(hidden)
        i, f, g, o = gates.chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell


def step() -> tuple[LSTMCell, dict[str, Tensor]]:
    torch.manual_seed(0)
    lstm = LSTMCell()
    hidden, cell = lstm(torch.randn(2, 4), torch.randn(2, 6), torch.randn(2, 6))
    return lstm, {"hidden": hidden, "cell": cell}
