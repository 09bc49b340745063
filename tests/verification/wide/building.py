"""What the families share: how a model is built, run and summed, and why one could not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from real_models import RealModel
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["NotBuiltError", "Recipe", "reason", "total"]


class Recipe(NamedTuple):
    """How to build an architecture, to be called under the same seeds each time; ``choice`` finds it again."""

    choice: str
    build: Callable[[], RealModel]


class NotBuiltError(Exception):
    """An architecture cannot be built: ``word`` says why, ``detail`` what the package said."""

    def __init__(self, word: str, detail: str = "") -> None:
        super().__init__(word, detail)
        self.word = word
        self.detail = detail


def total(outputs: Any) -> Tensor:
    """The sum of everything that a model returned and that a gradient can flow from.

    Raises:
        NotBuiltError: there is nothing like that.
    """
    leaves = [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
    sums = [torch.view_as_real(leaf).sum() if leaf.is_complex() else leaf.sum() for leaf in leaves]
    if not sums:
        raise NotBuiltError("gradient", "nothing that it returns has a gradient")
    return torch.stack([part.float() for part in sums]).sum() if len(sums) > 1 else sums[0]


_WORDS: Final = (
    (MemoryError, "memory"),
    (ImportError, "package"),
    (OSError, "download"),
)


def reason(error: Exception, otherwise: str) -> NotBuiltError:
    """What an error says about why something cannot be built."""
    if isinstance(error, NotBuiltError):
        return error
    word = next((word for kind, word in _WORDS if isinstance(error, kind)), otherwise)
    if "allocate" in str(error) and "memory" in str(error):
        word = "memory"
    last = str(error).strip().rpartition("\n")[2].strip()
    return NotBuiltError(word, f"{type(error).__name__}: {last}"[:200])
