"""Linear regression with a squared loss, from raw tensors.

Only ``w`` and ``b`` require a gradient: the data ``X`` and ``y`` are no leaves of the graph, and the slots that they
took are empty.

    gradir capture examples/linear_regression.py:squared_loss -o regression.gir

To see the weights under their names:

    python examples/linear_regression.py
"""

from __future__ import annotations

import torch
from torch import Tensor


def weights() -> dict[str, Tensor]:
    return {"w": torch.zeros(3, 1, requires_grad=True), "b": torch.zeros(1, requires_grad=True)}


def loss(w: Tensor, b: Tensor) -> Tensor:
    torch.manual_seed(0)
    X = torch.randn(20, 3)  # noqa: N806 (a matrix has a capital)
    y = X @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.3
    return ((X @ w + b - y) ** 2).mean()


def squared_loss() -> Tensor:
    return loss(**weights())


if __name__ == "__main__":
    import gradir

    named = weights()
    print(gradir.capture(loss(**named), params=named).to("tree"))
