"""Read the metadata of tensors, and the names and attributes of grad_fns, as plain values."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias, cast

import torch
from msgspec.structs import replace

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.private import GENERATED, output_metadata
from gradir.frontends.pytorch.reading.distributed import Groups
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.texts import plain_float, plain_int, plain_text
from gradir.ir import AttrValue, TensorMeta
from gradir.ir.frozen import NOTHING, FrozenDict, freeze
from gradir.ir.model import AttrScalar, NonFinite

# Returns the text of a symbolic size.
_TextOf: TypeAlias = Callable[[object], str]
_SMALL = range(-(2**31), 2**31)
_INTEGERS = {int}
_SEQUENCES: Final[tuple[type[Any], ...]] = (tuple, list)
# A longer sequence is data, which does not belong in a graph.
_MAX_ITEMS = 10_000

_NAMED = (torch.dtype, torch.layout, torch.memory_format, torch.SymFloat, torch.SymBool, complex)

# Equal values of these types are the same value.
_KNOWN_BY_VALUE: Final = {int, bool, NoneType, str, torch.dtype, torch.device, torch.layout, torch.memory_format}


class AttributeReader:
    """Reads the attributes of the grad_fns of one type, and converts equal values once."""

    def __init__(self, attributes: Mapping[str, str], symbols: _TextOf = str) -> None:
        """``attributes`` maps names in the IR to names on the grad_fn; ``symbols`` names symbolic sizes."""
        self._symbols = symbols
        self._names = tuple(attributes)
        # The class makes the result a tuple, even for a single attribute.
        self._read = attrgetter(*attributes.values(), "__class__")
        self._known: dict[tuple[Any, ...], FrozenDict[str, AttrValue]] = {}

    def __call__(self, fn: object) -> Mapping[str, AttrValue]:
        """Return the attributes by name, sorted."""
        values = self._read(fn)
        try:
            # 1, 1.0 and True are equal, but differ in the graph.
            return self._known[(values, *map(type, values))]
        except (KeyError, TypeError):
            named = zip(self._names, values, strict=False)
            plain = freeze({name: plain_value(to_signed(value), self._symbols) for name, value in named})
        if all(map(_is_known_by_value, values[:-1])):
            self._known[(values, *map(type, values))] = plain
        return plain


def to_signed(value: Any) -> Any:
    """Return the int64 of which torch shows the two's complement."""
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


def _read_custom(attributes: Mapping[str, str], groups: Groups, symbols: _TextOf, fn: Any) -> Mapping[str, AttrValue]:
    """Return the attributes of a custom Function's grad_fn, sorted: those of torch and those that its code set."""
    values = {name: plain_value(getattr(fn, attribute), symbols) for name, attribute in attributes.items()}
    for name, value in groups.describe_attributes(fn):
        if not (name.startswith("_") or issubclass(type(value), torch.Tensor)):
            values[plain_text(name)] = plain_value(value, symbols)
    values["needs_input_grad"] = plain_value(fn.needs_input_grad)
    return dict(sorted(values.items()))


def plain_value(value: object, symbols: _TextOf = str) -> AttrValue:
    """Return an attribute of a grad_fn as a value of the IR; values of other classes become text without addresses.

    >>> plain_value(2**64), plain_value(torch.float16), plain_value((1, float("inf")))
    ('18446744073709551616', 'float16', (1, NonFinite(float='inf')))
    """
    if value is None or type(value) is bool or (type(value) is int and value in _SMALL):
        return cast("AttrValue", value)
    if type(value) is tuple and _are_small(value):
        return cast("AttrValue", value)
    items = _items(value)
    return _plain_scalar(value, symbols) if items is None else tuple([_plain_row(item, symbols) for item in items])


def _items(value: object) -> Iterator[object] | None:
    """Return the entries of a short tuple or list, by the base class: a derived class may iterate differently."""
    for kind in _SEQUENCES:
        if issubclass(type(value), kind):
            sequence = cast("list[object]", value)
            return kind.__iter__(sequence) if kind.__len__(sequence) <= _MAX_ITEMS else None
    return None


def _are_small(values: object) -> bool:
    # Most attributes are sizes and strides.
    items = cast("tuple[int, ...]", values)
    return {*map(type, items)} == _INTEGERS and max(items) < 2**31 and min(items) >= -(2**31)


def _plain_row(value: object, symbols: _TextOf) -> AttrScalar | tuple[AttrScalar, ...]:
    items = _items(value)
    return _plain_scalar(value, symbols) if items is None else tuple([_plain_scalar(item, symbols) for item in items])


def _plain_scalar(value: object, symbols: _TextOf) -> AttrScalar:
    # By the base class's methods: a derived class may override __str__, __int__ or __class__.
    kind = type(value)
    if value is None or kind in (bool, NonFinite):
        return cast("AttrScalar", value)
    if issubclass(kind, int):
        return plain_int(int.__index__(cast("int", value)))
    if issubclass(kind, float):
        return plain_float(float.__float__(cast("float", value)))
    number = _number_of_numpy(value)
    return _plain_name(value, symbols) if number is None else _plain_scalar(number, symbols)


def _number_of_numpy(value: object) -> bool | int | float | None:
    # A program with a NumPy scalar has imported NumPy. Other number classes would run the user's code.
    scalar = getattr(sys.modules.get("numpy"), "generic", None)
    # Booleans, integers and floats, but not durations, which have a unit.
    if scalar is None or not issubclass(type(value), scalar) or scalar.dtype.__get__(value).kind not in "biuf":
        return None
    number = scalar.item(value)
    # A long double has no Python equivalent.
    return number if type(number) in {bool, int, float} else None


def _plain_name(value: object, symbols: _TextOf) -> str:
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
    """Return the type of a device, without its index, which differs between equal processes."""
    return plain_text(device.type)


_of_tensor: Final = attrgetter("dtype", "shape", "device", "layout")

# torch numbers the sizes of jagged tensors per process; there may be a factor, as in ``2*j1``.
_RAGGED: Final = re.compile(r"\bj\d+\b")


def bare_name(kind: torch.dtype | torch.layout) -> str:
    """Return the name of a dtype or a layout, without ``torch.``."""
    return plain_text(str(kind).removeprefix("torch."))


def shape_of(owner: Any, symbols: _TextOf = str) -> tuple[int | str, ...] | None:
    """Return the shape of a tensor or of input metadata: symbolic sizes as text, ``None`` where torch knows none."""
    try:
        # A tensor subclass of the user may return any shape.
        return tuple(size if type(size) is int and size >= 0 else plain_text(symbols(size)) for size in owner.shape)
    except (RuntimeError, ValueError):
        # A strided nested tensor has no single shape, and a lazy module's parameter none yet.
        return None


class MetadataReader:
    """Reads `TensorMeta`, one object for equal metadata."""

    def __init__(self, symbols: _TextOf = str, placements: Mapping[int, tuple[str, ...]] = NOTHING) -> None:
        """``symbols`` returns the text of a symbolic size; ``placements`` are those of distributed tensors, by id()."""
        self._symbols, self._placements = symbols, placements
        self._of_outputs: dict[tuple[Any, ...], tuple[TensorMeta]] = {}
        self._of_tensors: dict[tuple[Any, ...], TensorMeta] = {}

    def read_outputs(self, fn: Any) -> tuple[TensorMeta, ...]:
        """Return the metadata of a grad_fn's forward outputs, with layout strided or jagged."""
        entries = output_metadata(fn)
        if len(entries) == 1:
            return self._read_output(entries[0])
        return tuple([meta for entry in entries for meta in self._read_output(entry)])

    def read_tensor(self, tensor: torch.Tensor) -> TensorMeta:
        """Return the metadata of a live tensor."""
        try:
            key = _of_tensor(tensor)
            return self._of_tensors[key]
        except KeyError:
            meta = self._of_tensors[key] = self._describe(tensor, bare_name(tensor.layout))
            return meta
        except (RuntimeError, TypeError, ValueError):
            return self._describe(tensor, bare_name(tensor.layout))

    def read_owned(self, tensor: torch.Tensor) -> TensorMeta:
        """Return the metadata of a module's live tensor, with its placements."""
        meta, words = self.read_tensor(tensor), self._placements.get(id(tensor))
        return meta if words is None else replace(meta, placements=words)

    def _read_output(self, entry: Any) -> tuple[TensorMeta]:
        try:
            key = (entry.dtype, entry.device, *entry.shape)
            return self._of_outputs[key]
        except KeyError:
            made = self._of_outputs[key] = (self._describe(entry, _layout_of_output(entry)),)
            return made
        except (RuntimeError, TypeError):
            # There is no shape, or a symbolic size, which cannot be hashed.
            return (self._describe(entry, _layout_of_output(entry)),)

    def _describe(self, owner: Any, layout: str) -> TensorMeta:
        return TensorMeta(bare_name(owner.dtype), shape_of(owner, self._symbols), device_name(owner.device), layout)


def _layout_of_output(entry: Any) -> str:
    return "jagged" if entry.is_nested_tensor and not entry.is_cpp_nested_tensor else "strided"


class Symbols:
    """Numbers the ragged sizes of one graph from 1, in the order of their first use."""

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


_SUFFIX = re.compile(r"Backwards?\d*$")
_GENERATED = re.compile(rf"{GENERATED}(.+)Backward\d*")
# The start of a word in a name in camel case.
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=[A-Z][a-z])")


class Slot(NamedTuple):
    """A saved slot: its name, and the names of the attributes with the packed and the unpacked tensor."""

    name: str
    packed: str
    unpacked: str


@dataclass(frozen=True, slots=True)
class NodeType:
    """The names, saved slots and attributes of the grad_fns of one type.

    ``packed`` reads the packed tensors of the ``slots``, and ``attributes`` reads other values. A node that adds to a
    leaf's ``.grad`` ``accumulates``. An ``opaque`` node stands for nodes that autograd hides.
    """

    native: str
    op: str
    attributes: Callable[[GradFn], Mapping[str, AttrValue]] | None
    slots: tuple[Slot, ...]
    packed: Callable[[GradFn], tuple[Any, ...]]
    accumulates: bool
    opaque: bool


class NodeTypes:
    """Inspects each type of grad_fn once; ``by_type`` has a name in place of a type for several operations."""

    def __init__(self, symbols: _TextOf = str, groups: Groups | None = None) -> None:
        self._symbols = symbols
        self._groups = Groups() if groups is None else groups
        self.by_type: dict[type | str, NodeType] = {}

    def of(self, fn: GradFn) -> NodeType:
        """Return the type of a grad_fn."""
        kind = type(fn)
        # C++ nodes without their own Python type share one, and differ by name only.
        key = fn.name() if kind.__name__ == private.UNTYPED_NODE else kind
        if key not in self.by_type:
            native = native_name(key) if isinstance(key, str) else kind.__name__
            self.by_type[key] = _inspect(kind, plain_text(native), self._symbols, self._groups)
        return self.by_type[key]


def _inspect(kind: type, native: str, symbols: _TextOf, groups: Groups) -> NodeType:
    attributes = [name for name in dir(kind) if name.startswith((private.SAVED, private.PACKED, "needs_input_grad"))]
    slots = []
    for packed in sorted(name for name in attributes if name.startswith(private.PACKED)):
        name = packed.removeprefix(private.PACKED)
        # A custom Function keeps its saved tensors in `saved_tensors`.
        slots.append(Slot(name, packed, "saved_tensors" if name == "tensors" else private.SAVED + name))
    accumulates = kind.__name__ == private.ACCUMULATOR
    op = neutral_name(find_operator_name(native))
    if op == _ACCUMULATE_OP and not accumulates:
        # A custom Function of this name would get the ids of leaves.
        op = f"{op}_function"
    tensors = {slot.unpacked for slot in slots}
    own = sorted(name for name in attributes if name.startswith(private.SAVED) and name not in tensors)
    named = {name.removeprefix(private.SAVED): name for name in own}
    reader: Callable[[GradFn], Mapping[str, AttrValue]] | None = AttributeReader(named, symbols) if named else None
    if "needs_input_grad" in attributes:
        # Only custom Functions have this attribute.
        reader = partial(_read_custom, named, groups, symbols)
    return NodeType(
        native,
        op,
        reader,
        tuple(slots),
        # The class makes the result a tuple, even for a single slot.
        attrgetter(*(slot.packed for slot in slots), "__class__"),
        accumulates=accumulates,
        opaque=native in private.OPAQUE,
    )


@lru_cache(maxsize=4096)
def neutral_name(native: str) -> str:
    """Return the snake_case name of the operation that a grad_fn differentiates.

    >>> [neutral_name(n) for n in ("AddmmBackward0", "MaxPool2DWithIndicesBackward0", "TanhBackwardBackward0")]
    ['addmm', 'max_pool2d_with_indices', 'tanh_backward']
    """
    return _WORDS.sub("_", _SUFFIX.sub("", native) or native).lower()


_ACCUMULATE_OP: Final = neutral_name(private.ACCUMULATOR)


def native_name(qualified: str) -> str:
    """Return the bare name of a C++ node, such as ``Op`` of ``struct torch::autograd::CppNode<my::Op<float>>``."""
    wrapper, _, wrapped = qualified.partition("<")
    stem = wrapped.partition("<")[0].rstrip(">") if _own_name(wrapper) == "CppNode" else wrapper
    return _own_name(stem) or qualified


def _own_name(qualified: str) -> str:
    return qualified.removeprefix("struct ").removeprefix("class ").rpartition("::")[2]


def find_operator_name(native: str) -> str:
    """Return the name of the registered operator that a generated grad_fn differentiates, or else ``native``."""
    generated = _GENERATED.fullmatch(native)
    if generated is None:
        return native
    found = []
    # Names may contain underscores, so the generated name cannot be split.
    for operator in private.registered_operators():
        namespace, _, rest = operator.partition("::")
        name, _, overload = rest.partition(".")
        if f"{namespace}_{name}_{overload or 'default'}" == generated[1]:
            found.append(name)
    return min(found, default=native)
