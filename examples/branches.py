"""Two branches from one value, ``h = softmax(2x + 3) + 5(2x + 3)``, and the same with one branch detached.

In ``joined`` the node of ``2x + 3`` has two consumers; in ``detached`` the softmax branch is gone, and the sum keeps an
empty slot in its place.

    gradir capture examples/branches.py:joined -o joined.gir
    gradir capture examples/branches.py:detached -o detached.gir
    gradir diff joined.gir detached.gir

To see the tensors under their names:

    python examples/branches.py
"""

from __future__ import annotations

import torch
from torch import Tensor


def leaf() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(5, requires_grad=True)


def join(x: Tensor) -> Tensor:
    y = 2 * x + 3
    return torch.softmax(y, dim=-1) + 5 * y


def join_detached(x: Tensor) -> Tensor:
    y = 2 * x + 3
    return torch.softmax(y, dim=-1).detach() + 5 * y


def joined() -> Tensor:
    return join(leaf())


def detached() -> Tensor:
    return join_detached(leaf())


if __name__ == "__main__":
    import gradir

    x = leaf()
    for branches in (join, join_detached):
        h = branches(x)
        print(gradir.capture(h, params={"x": x, "h": h}).to("tree"))
