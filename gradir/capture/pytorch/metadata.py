"""Names and shapes of what torch reports about tensors."""

from __future__ import annotations

from typing import Any

import torch

from gradir.ir import TensorMeta

__all__ = ["MetadataReader", "dtype_name", "shape_of"]


def dtype_name(dtype: torch.dtype) -> str:
    """The neutral name of a dtype.

    >>> dtype_name(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def shape_of(owner: Any) -> tuple[int | str, ...] | None:
    """The shape of a tensor or of input metadata: symbolic sizes as text, ``None`` where torch knows none."""
    try:
        return tuple(size if type(size) is int else str(size) for size in owner.shape)
    except RuntimeError:
        # A strided nested tensor has no single shape.
        return None


class MetadataReader:
    """Reads `TensorMeta`, one object for equal metadata."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], TensorMeta] = {}

    def of_node(self, fn: Any) -> tuple[TensorMeta, ...]:
        """The metadata of a grad_fn's forward outputs, by output number."""
        entries = fn._input_metadata
        if len(entries) == 1:
            return (self._of(entries[0], torch.strided),)
        return tuple([self._of(entry, torch.strided) for entry in entries])

    def of_tensor(self, tensor: torch.Tensor) -> TensorMeta:
        """The metadata of a live tensor."""
        return self._of(tensor, tensor.layout)

    def _of(self, owner: Any, layout: torch.layout) -> TensorMeta:
        try:
            key = (owner.dtype, tuple(owner.shape), owner.device, layout)
            return self._known[key]
        except KeyError:
            meta = self._known[key] = _describe(owner, layout)
            return meta
        except (RuntimeError, TypeError):
            # Without one shape, or with a symbolic and so unhashable one.
            return _describe(owner, layout)


def _describe(owner: Any, layout: torch.layout) -> TensorMeta:
    return TensorMeta(dtype_name(owner.dtype), shape_of(owner), str(owner.device), str(layout).removeprefix("torch."))
