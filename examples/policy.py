"""Two ways to choose an action: one lets the gradient through, the other does not.

``relaxed`` draws a one-hot action with the straight-through Gumbel-softmax, which a gradient passes. ``sampled`` draws
an index from a Categorical distribution: an integer, which has no gradient, so there is no graph to capture and
gradir says why.

    gradir capture examples/policy.py:relaxed -o policy.gir
    gradir capture examples/policy.py:sampled    # an error, on purpose
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional as F  # noqa: N812 (its usual name)


class Policy(nn.Module):
    """Logits over the actions."""

    def __init__(self, states: int = 4, actions: int = 3, hidden: int = 16) -> None:
        super().__init__()
        self.hidden = nn.Linear(states, hidden)
        self.head = nn.Linear(hidden, actions)

    def forward(self, state: Tensor) -> Tensor:
        """Unnormalised log-probabilities, of shape ``[batch, actions]``."""
        return self.head(torch.relu(self.hidden(state)))


def relaxed() -> tuple[Policy, Tensor]:
    torch.manual_seed(0)
    policy = Policy()
    return policy, F.gumbel_softmax(policy(torch.randn(2, 4)), tau=0.5, hard=True)


def sampled() -> tuple[Policy, Tensor]:
    torch.manual_seed(0)
    policy = Policy()
    return policy, Categorical(logits=policy(torch.randn(2, 4))).sample()
