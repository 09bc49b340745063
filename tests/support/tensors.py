"""Tensors that need no thought. For test modules that know that torch is there."""

from __future__ import annotations

import pytest
import torch


def since(release: str, reason: str) -> pytest.MarkDecorator:
    """What a test needs that torch has from a release on."""
    return pytest.mark.skipif(torch.__version__ < torch.torch_version.TorchVersion(release), reason=reason)


shows_saved = since("2.12", "this torch does not show hooks")
"""Tests of the hooks that packed what was saved, which torch shows from 2.12 on."""


def leaf(*shape: int) -> torch.Tensor:
    """A tensor of ones that requires a gradient."""
    return torch.ones(shape, requires_grad=True)


def leaf_of(*values: float) -> torch.Tensor:
    """A tensor of some values, 1, 2 and 3 where none are given, that requires a gradient."""
    return torch.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)
