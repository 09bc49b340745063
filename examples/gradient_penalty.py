"""Double backward: the gradient of a network as part of its loss.

The penalty asks that the slope of the critic be 1 everywhere. It needs ``create_graph=True``, so the first backward
pass leaves a graph of its own behind, which runs on into the graph of the forward pass. One parameter is in neither:
the last bias moves the critic up and down, and no slope depends on that.

    gradir capture examples/gradient_penalty.py:penalty -o penalty.gir
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def penalty() -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    critic = mlp()
    x = torch.randn(4, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return critic, ((slope.norm(dim=1) - 1) ** 2).mean()
