"""Names and shapes of what torch reports about tensors, and names of symbolic sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

import torch
from msgspec.structs import replace

from gradir.frontends.pytorch.private import output_metadata
from gradir.frontends.pytorch.reading.attributes import device_name
from gradir.frontends.texts import plain_text
from gradir.ir import TensorMeta
from gradir.ir.frozen import NOTHING

__all__ = ["MetadataReader", "Symbols", "dtype_name", "layout_name", "shape_of"]

_JAGGED: Final = "jagged"

_of_tensor: Final = attrgetter("dtype", "shape", "device", "layout")

_RAGGED: Final = re.compile(r"\bj\d+\b")
"""A size of a jagged tensor, which torch numbers through the whole process; it may have a factor, as in ``2*j1``."""


def dtype_name(dtype: torch.dtype) -> str:
    """The neutral name of a dtype.

    >>> dtype_name(torch.bfloat16)
    'bfloat16'
    """
    return plain_text(str(dtype).removeprefix("torch."))


def layout_name(layout: torch.layout) -> str:
    """The neutral name of a layout.

    >>> layout_name(torch.sparse_coo)
    'sparse_coo'
    """
    return plain_text(str(layout).removeprefix("torch."))


def shape_of(owner: Any, symbols: Callable[[object], str] = str) -> tuple[int | str, ...] | None:
    """The shape of a tensor or of input metadata: symbolic sizes as text, ``None`` where torch knows none."""
    try:
        # A class of the user's may say of its tensors what no tensor has.
        return tuple(size if type(size) is int and size >= 0 else plain_text(symbols(size)) for size in owner.shape)
    except (RuntimeError, ValueError):
        # A strided nested tensor has no single shape, and a lazy module's parameter none yet.
        return None


class MetadataReader:
    """Reads `TensorMeta`, one object for equal metadata."""

    def __init__(
        self, symbols: Callable[[object], str] = str, placements: Mapping[int, tuple[str, ...]] = NOTHING
    ) -> None:
        """``symbols`` gives the text of a symbolic size, and ``placements``, by id(), how tensors are spread."""
        self._symbols = symbols
        self._placements = placements
        self._of_outputs: dict[tuple[Any, ...], tuple[TensorMeta, ...]] = {}
        self._of_tensors: dict[tuple[Any, ...], TensorMeta] = {}

    def of_node(self, fn: Any) -> tuple[TensorMeta, ...]:
        """The metadata of a grad_fn's forward outputs, by output number.

        torch does not keep their layout: it is strided unless they are jagged.
        """
        entries = output_metadata(fn)
        if len(entries) == 1:
            (entry,) = entries
            try:
                return self._of_outputs[(entry.dtype, entry.device, *entry.shape)]
            except (KeyError, RuntimeError, TypeError):
                return (self._of_output(entry),)
        return tuple([self._of_output(entry) for entry in entries])

    def of_tensor(self, tensor: torch.Tensor) -> TensorMeta:
        """The metadata of a live tensor."""
        try:
            key = _of_tensor(tensor)
            return self._of_tensors[key]
        except KeyError:
            meta = self._of_tensors[key] = self._describe(tensor, layout_name(tensor.layout))
            return meta
        except (RuntimeError, TypeError, ValueError):
            return self._describe(tensor, layout_name(tensor.layout))

    def of_owned(self, tensor: torch.Tensor) -> TensorMeta:
        """The metadata of a live tensor that a module has, with its placements."""
        meta, words = self.of_tensor(tensor), self._placements.get(id(tensor))
        return meta if words is None else replace(meta, placements=words)

    def _of_output(self, entry: Any) -> TensorMeta:
        try:
            key = (entry.dtype, entry.device, *entry.shape)
            (meta,) = self._of_outputs[key]
        except KeyError:
            meta = self._describe(entry, _layout_of_output(entry))
            self._of_outputs[key] = (meta,)
        except (RuntimeError, TypeError):
            # Without a shape, or with a symbolic and so unhashable one.
            meta = self._describe(entry, _layout_of_output(entry))
        return meta

    def _describe(self, owner: Any, layout: str) -> TensorMeta:
        return TensorMeta(dtype_name(owner.dtype), shape_of(owner, self._symbols), device_name(owner.device), layout)


def _layout_of_output(entry: Any) -> str:
    return _JAGGED if entry.is_nested_tensor and not entry.is_cpp_nested_tensor else "strided"


class Symbols:
    """Numbers the ragged sizes of one graph from 1, in the order in which they are met."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, size: object) -> str:
        """The text of a symbolic size.

        >>> symbols = Symbols()
        >>> symbols("j7"), symbols("2*j3"), symbols("j7"), symbols("s0")
        ('j1', '2*j2', 'j1', 's0')
        """
        return _RAGGED.sub(self._name, str(size))

    def _name(self, match: re.Match[str]) -> str:
        return self._known.setdefault(match[0], f"j{len(self._known) + 1}")
