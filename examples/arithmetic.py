"""The smallest graph worth a look, ``d = (a + b) * a``, and what a detach takes away from it.

``whole`` is ``relu(d) + c``. In ``cut``, ``relu(d.detach()) + c``, nothing flows back through ``d``: its product is
gone, while ``a`` and ``b`` are still reached through ``c``.

    gradir capture examples/arithmetic.py:product -o product.gir
    gradir capture examples/arithmetic.py:whole -o whole.gir
    gradir capture examples/arithmetic.py:cut -o cut.gir
    gradir diff whole.gir cut.gir

Tensors get their names with ``params``, intermediate ones too:

    python examples/arithmetic.py
"""

from __future__ import annotations

import torch
from torch import Tensor


def tensors() -> dict[str, Tensor]:
    a = torch.tensor(2.0, requires_grad=True)
    b = torch.tensor(1.0, requires_grad=True)
    c = a + b
    d = c * a
    return {"a": a, "b": b, "c": c, "d": d}


def product() -> Tensor:
    return tensors()["d"]


def whole() -> Tensor:
    named = tensors()
    return torch.relu(named["d"]) + named["c"]


def cut() -> Tensor:
    named = tensors()
    return torch.relu(named["d"].detach()) + named["c"]


if __name__ == "__main__":
    import gradir

    named = tensors()
    print(gradir.capture(named["d"], params=named).to("tree"))
