"""Tensors without data, except those few whose values a model looks at while it is built."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._mode_utils import no_dispatch

__all__ = ["LOOKED_AT", "Fakes", "is_fake"]

_MOST: Final = 1_000
"""The elements of the largest tensor with values: as many as a model has layers, not as one has channels."""

LOOKED_AT: Final = (DataDependentOutputException, DynamicOutputShapeException)
"""What torch raises where a program needs the values of a tensor that has none."""


class Fakes(FakeTensorMode):
    """While entered, tensors have no data, but small ones made of numbers alone know their values.

    So ``[rate.item() for rate in torch.linspace(0, 0.1, depth)]`` works, as models say how much each layer drops.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)  # type: ignore[no-untyped-call]

    def may_turn_const(self, t: torch.Tensor) -> bool:
        """Whether torch keeps the values of what it computed of values only."""
        return t.numel() <= _MOST and t.layout is torch.strided and type(t) is torch.Tensor and t.device.type == "cpu"

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation."""
        made = super().dispatch(func, types, args, kwargs or {})
        if type(made) is not FakeTensor or made.constant is not None or not _makes_of_numbers(func):
            return made
        if made.numel() > _MOST or made.device.type != "cpu" or made.layout is not torch.strided:
            return made
        with no_dispatch():
            values = func(*args, **(kwargs or {}))
        return self.fake_tensor_converter.from_real_tensor(self, values, make_constant=True)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data."""
    return isinstance(tensor, FakeTensor)


@lru_cache(maxsize=1024)
def _makes_of_numbers(func: object) -> bool:
    """Whether an operation makes a tensor of numbers alone, and the same each time."""
    if not isinstance(func, OpOverload) or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    schema = func._schema
    takes_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    # What is not initialised has no values to know.
    return not takes_tensors and not schema.name.startswith("aten::empty")
