"""A mixture of experts: a gate weighs what 24 experts say, and all of them get a gradient through it.

gradir capture examples/mixture.py:loss -o mixture.gir
gradir view mixture.gir
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)


class Mixture(nn.Module):
    """A trunk, experts that all read it, and a gate that weighs them."""

    def __init__(self, width: int = 16, classes: int = 4, experts: int = 24) -> None:
        super().__init__()
        self.trunk = nn.Linear(width, width)
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, classes) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        """The weighed sum of what the experts say."""
        x = torch.tanh(self.trunk(x))
        weights = self.gate(x).softmax(dim=-1)
        answers = [weight[:, None] * expert(x) for weight, expert in zip(weights.T, self.experts, strict=True)]
        return torch.stack(answers).sum(dim=0)


def loss() -> tuple[Mixture, Tensor]:
    torch.manual_seed(0)
    model = Mixture()
    features, labels = torch.randn(8, 16), torch.randint(4, (8,))
    return model, F.cross_entropy(model(features), labels)
