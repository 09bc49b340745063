"""What torch says of tensors and grad_fns, as plain values."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from types import NoneType
from typing import Any, Final, cast

import torch
from msgspec.structs import replace

from gradir.frontends.pytorch.private import output_metadata
from gradir.frontends.pytorch.reading.distributed import Groups
from gradir.frontends.texts import plain_float, plain_int, plain_text
from gradir.ir import AttrValue, TensorMeta
from gradir.ir.frozen import NOTHING, FrozenDict, frozen
from gradir.ir.model import AttrScalar

_SMALL = range(-(2**31), 2**31)
_INTEGERS = {int}
_AS_IS = frozenset({bool, type(None)})
_NUMBERS = frozenset({bool, int, float})
# Booleans, integers and floats: spans of time are not, and have a unit.
_NUMPY_NUMBERS = "biuf"
_SEQUENCES: Final[tuple[type[Any], ...]] = (tuple, list)
_MAX_ITEMS = 10_000

_NAMED = (torch.dtype, torch.layout, torch.memory_format, torch.SymFloat, torch.SymBool, complex)

# Equal values of these types are the same value.
_KNOWN_BY_VALUE: Final = frozenset(
    {int, bool, NoneType, str, torch.dtype, torch.device, torch.layout, torch.memory_format}
)


class AttributeReader:
    """Reads the attributes of the grad_fns of one type; what was met before is not converted again."""

    def __init__(self, attributes: Mapping[str, str], symbols: Callable[[object], str] = str) -> None:
        """``attributes`` has, by name in the IR, the names on the grad_fn; ``symbols`` names symbolic sizes."""
        self._symbols = symbols
        self._names = tuple(attributes)
        # With the class beside it, a lone attribute comes as a tuple too.
        self._read = attrgetter(*attributes.values(), "__class__")
        self._known: dict[tuple[Any, ...], FrozenDict[str, AttrValue]] = {}

    def __call__(self, fn: object) -> Mapping[str, AttrValue]:
        """Return the attributes by name, sorted."""
        values = self._read(fn)
        try:
            # 1, 1.0 and True are equal, and have to stay apart.
            return self._known[(values, *map(type, values))]
        except (KeyError, TypeError):
            named = zip(self._names, values, strict=False)
            plain = frozen({name: plain_value(to_signed(value), self._symbols) for name, value in named})
        if all(map(_is_known_by_value, values[:-1])):
            self._known[(values, *map(type, values))] = plain
        return plain


def to_signed(value: Any) -> Any:
    """Undo that torch shows a negative int64 as its two's complement."""
    if value.__class__ is int:
        return value - 2**64 if value >= 2**63 else value
    if value.__class__ is tuple and not _are_small(value):
        return tuple(map(to_signed, value))
    return value


def _is_known_by_value(value: object) -> bool:
    if type(value) is float:
        # 0.0 equals -0.0, and no nan equals any.
        return value != 0 and math.isfinite(value)
    if type(value) is tuple:
        return all(type(item) is int for item in value)
    return type(value) in _KNOWN_BY_VALUE


class PythonAttributeReader:
    """Reads the attributes of custom Functions, those that their code set among them."""

    def __init__(self, attributes: Mapping[str, str], groups: Groups, symbols: Callable[[object], str] = str) -> None:
        """``attributes`` has, by name in the IR, the names that torch gives every such grad_fn."""
        self._groups = groups
        self._symbols = symbols
        self._attributes = attributes

    def __call__(self, fn: Any) -> Mapping[str, AttrValue]:
        """Return the attributes by name, sorted."""
        values = {
            name: plain_value(getattr(fn, attribute), self._symbols) for name, attribute in self._attributes.items()
        }
        for name, value in self._groups.in_words(fn):
            if not (name.startswith("_") or issubclass(type(value), torch.Tensor)):
                values[plain_text(name)] = plain_value(value, self._symbols)
        values["needs_input_grad"] = plain_value(fn.needs_input_grad)
        return dict(sorted(values.items()))


def plain_value(value: object, symbols: Callable[[object], str] = str) -> AttrValue:
    """Return an attribute of a grad_fn as a value of the IR, whatever its class; else as text without addresses.

    >>> plain_value(2**64), plain_value(torch.float16), plain_value((1, float("inf")))
    ('18446744073709551616', 'float16', (1, NonFinite(float='inf')))
    """
    if type(value) in _AS_IS or (type(value) is int and value in _SMALL):
        return cast("AttrValue", value)
    if type(value) is tuple and _are_small(value):
        return cast("AttrValue", value)
    items = _items(value)
    return _plain_scalar(value, symbols) if items is None else tuple([_plain_row(item, symbols) for item in items])


def _items(value: object) -> Iterator[object] | None:
    """Return the entries of a short tuple or list; a class derived from these may iterate otherwise."""
    for kind in _SEQUENCES:
        if issubclass(type(value), kind):
            sequence = cast("list[object]", value)
            return kind.__iter__(sequence) if kind.__len__(sequence) <= _MAX_ITEMS else None
    return None


def _are_small(values: object) -> bool:
    # By far the most frequent attributes are sizes and strides.
    items = cast("tuple[int, ...]", values)
    return {*map(type, items)} == _INTEGERS and max(items) < 2**31 and min(items) >= -(2**31)


def _plain_row(value: object, symbols: Callable[[object], str]) -> AttrScalar | tuple[AttrScalar, ...]:
    items = _items(value)
    return _plain_scalar(value, symbols) if items is None else tuple([_plain_scalar(item, symbols) for item in items])


def _plain_scalar(value: object, symbols: Callable[[object], str]) -> AttrScalar:
    # What a class says of itself in __str__, __int__ or __class__ differs from what it inherits.
    kind = type(value)
    if value is None or kind is bool:
        return cast("bool | None", value)
    if issubclass(kind, int):
        return plain_int(int.__index__(cast("int", value)))
    if issubclass(kind, float):
        return plain_float(float.__float__(cast("float", value)))
    number = _number_of_numpy(value)
    return _plain_name(value, symbols) if number is None else _plain_scalar(number, symbols)


def _number_of_numpy(value: object) -> bool | int | float | None:
    # Nobody has a scalar of numpy's without numpy being imported. A class of a user's own may well look like a number,
    # but asking it for its value would run its code.
    scalar = getattr(sys.modules.get("numpy"), "generic", None)
    if scalar is None or not issubclass(type(value), scalar):
        return None
    if scalar.dtype.__get__(value).kind not in _NUMPY_NUMBERS:
        return None
    number = scalar.item(value)
    # A long double has no Python type of its own.
    return number if type(number) in _NUMBERS else None


def _plain_name(value: object, symbols: Callable[[object], str]) -> str:
    kind = type(value)
    if issubclass(kind, str):
        return plain_text(cast("str", value))
    if issubclass(kind, torch.SymInt):
        return symbols(value)
    if issubclass(kind, torch.device):
        return device_name(cast("torch.device", value))
    if issubclass(kind, _NAMED):
        return str(value).removeprefix("torch.")
    return plain_text(f"<{kind.__name__}>")


def device_name(device: torch.device) -> str:
    """Return the kind of a device, without its number, which differs between equal processes."""
    return plain_text(device.type)


_JAGGED: Final = "jagged"

_of_tensor: Final = attrgetter("dtype", "shape", "device", "layout")

# torch numbers the sizes of jagged tensors through the whole process; there may be a factor, as in ``2*j1``.
_RAGGED: Final = re.compile(r"\bj\d+\b")


def bare_name(kind: torch.dtype | torch.layout) -> str:
    """Return the name of a dtype or a layout, without ``torch.``."""
    return plain_text(str(kind).removeprefix("torch."))


def shape_of(owner: Any, symbols: Callable[[object], str] = str) -> tuple[int | str, ...] | None:
    """Return the shape of a tensor or of input metadata: symbolic sizes as text, ``None`` where torch knows none."""
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
        """Return the metadata of a grad_fn's forward outputs, which have no layout but strided or jagged."""
        entries = output_metadata(fn)
        if len(entries) == 1:
            (entry,) = entries
            try:
                return self._of_outputs[(entry.dtype, entry.device, *entry.shape)]
            except (KeyError, RuntimeError, TypeError):
                return (self._of_output(entry),)
        return tuple([self._of_output(entry) for entry in entries])

    def of_tensor(self, tensor: torch.Tensor) -> TensorMeta:
        """Return the metadata of a live tensor."""
        try:
            key = _of_tensor(tensor)
            return self._of_tensors[key]
        except KeyError:
            meta = self._of_tensors[key] = self._describe(tensor, bare_name(tensor.layout))
            return meta
        except (RuntimeError, TypeError, ValueError):
            return self._describe(tensor, bare_name(tensor.layout))

    def of_owned(self, tensor: torch.Tensor) -> TensorMeta:
        """Return the metadata of a live tensor that a module has, with its placements."""
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
        return TensorMeta(bare_name(owner.dtype), shape_of(owner, self._symbols), device_name(owner.device), layout)


def _layout_of_output(entry: Any) -> str:
    return _JAGGED if entry.is_nested_tensor and not entry.is_cpp_nested_tensor else "strided"


class Symbols:
    """Numbers the ragged sizes of one graph from 1, in the order in which they are met."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, size: object) -> str:
        """Return the text of a symbolic size.

        >>> symbols = Symbols()
        >>> symbols("j7"), symbols("2*j3"), symbols("j7"), symbols("s0")
        ('j1', '2*j2', 'j1', 's0')
        """
        known = self._known
        return _RAGGED.sub(lambda match: known.setdefault(match[0], f"j{len(known) + 1}"), str(size))
