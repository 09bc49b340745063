"""A critic that scores a state and an action: two hidden layers with Tanh, and a squeeze at the end.

The output of ``squeeze`` is a view, so the picture also has the tensor that it is a view of.

    gradir capture examples/mlp_critic.py:values -o critic.gir
    gradir capture examples/mlp_critic.py:Critic --input 'float32[4,3]' --input 'float32[4,2]' -o critic.gir
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Critic(nn.Module):
    """Q(state, action) as a multilayer perceptron."""

    def __init__(self, states: int = 3, actions: int = 2, hidden: int = 16) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(states + actions, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 1),
        )

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """One value per pair, of shape ``[batch]``."""
        return self.net(torch.cat([state, action], dim=-1)).squeeze(-1)


def values() -> tuple[Critic, Tensor]:
    torch.manual_seed(0)
    critic = Critic()
    return critic, critic(torch.randn(4, 3), torch.randn(4, 2))
