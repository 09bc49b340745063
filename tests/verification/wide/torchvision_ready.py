"""torchvision beside a torch that its compiled operators were not built for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch

__all__ = ["make_ready"]

_kept: Final[list[Any]] = []
"""A library of operators is gone when its object is."""


def make_ready() -> None:
    """Let torchvision be imported, whose Python code asks for two of its operators by name as it is imported.

    Its only builds are for CUDA. Without their libraries the operators are not there, and no model that needs one runs.
    """
    if _kept:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    _kept.append(library)
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import_module("torchvision")
