"""What the grad_fns of each type are called and have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.private import GENERATED
from gradir.frontends.pytorch.reading.attributes import AttributeReader, PythonAttributeReader
from gradir.frontends.pytorch.reading.distributed import Groups
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.texts import plain_text
from gradir.ir import AttrValue

_SUFFIX = re.compile(r"Backwards?\d*$")

_GENERATED = re.compile(rf"{GENERATED}(.+)Backward\d*")

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=[A-Z][a-z])")


class Slot(NamedTuple):
    """A saved slot: its name, and the attributes with the packed and with the unpacked tensor."""

    name: str
    packed: str
    unpacked: str


@dataclass(frozen=True, slots=True)
class Anatomy:
    """What the grad_fns of one type are called and have.

    ``attributes`` reads the attributes that are no tensors, if there are any; ``packed`` gives what is in each of the
    ``slots``. The node that adds to a leaf's ``.grad`` ``accumulates``; ``opaque`` stands for nodes that autograd
    hides.
    """

    native: str
    op: str
    attributes: Callable[[GradFn], Mapping[str, AttrValue]] | None
    slots: tuple[Slot, ...]
    packed: Callable[[GradFn], tuple[Any, ...]]
    accumulates: bool
    opaque: bool


class Anatomies:
    """Inspects each type of grad_fn once; ``by_type`` has those whose name tells what they are."""

    def __init__(self, symbols: Callable[[object], str] = str, groups: Groups | None = None) -> None:
        self._symbols = symbols
        self._groups = Groups() if groups is None else groups
        self.by_type: dict[type, Anatomy] = {}
        self._by_name: dict[str, Anatomy] = {}

    def of(self, fn: GradFn) -> Anatomy:
        """Return the anatomy of a grad_fn."""
        kind = type(fn)
        found = self.by_type.get(kind)
        if found is not None:
            return found
        if kind.__name__ != private.UNTYPED_NODE:
            found = self.by_type[kind] = _inspect(kind, plain_text(kind.__name__), self._symbols, self._groups)
            return found
        # C++ nodes without a Python type of their own share one, and differ by name only.
        name = fn.name()
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = _inspect(kind, plain_text(native_name(name)), self._symbols, self._groups)
        return found


def _inspect(kind: type, native: str, symbols: Callable[[object], str], groups: Groups) -> Anatomy:
    attributes = [name for name in dir(kind) if name.startswith((private.SAVED, private.PACKED, "needs_input_grad"))]
    slots = tuple(_slots(attributes))
    accumulates = kind.__name__ == private.ACCUMULATOR
    op = neutral_name(registered_name(native, private.registered_operators))
    if op == _ACCUMULATE_OP and not accumulates:
        # A custom Function of this name would have the ids of leaves.
        op = f"{op}_function"
    tensors = {slot.unpacked for slot in slots}
    own = sorted(name for name in attributes if name.startswith(private.SAVED) and name not in tensors)
    named = {name.removeprefix(private.SAVED): name for name in own}
    reader: Callable[[GradFn], Mapping[str, AttrValue]] | None = AttributeReader(named, symbols) if named else None
    if "needs_input_grad" in attributes:
        # Only a custom Function says which of its inputs need a gradient.
        reader = PythonAttributeReader(named, groups, symbols)
    return Anatomy(
        native,
        op,
        reader,
        slots,
        # With the class beside it, a lone attribute comes as a tuple too.
        attrgetter(*(slot.packed for slot in slots), "__class__"),
        accumulates=accumulates,
        opaque=native in private.OPAQUE,
    )


def _slots(attributes: list[str]) -> Iterator[Slot]:
    for packed in sorted(name for name in attributes if name.startswith(private.PACKED)):
        name = packed.removeprefix(private.PACKED)
        # A custom Function has its saved tensors under a name of their own.
        yield Slot(name, packed, "saved_tensors" if name == "tensors" else private.SAVED + name)


@lru_cache(maxsize=4096)
def neutral_name(native: str) -> str:
    """Return the snake_case name of the operation that a grad_fn differentiates.

    >>> [neutral_name(n) for n in ("AddmmBackward0", "MaxPool2DWithIndicesBackward0", "TanhBackwardBackward0")]
    ['addmm', 'max_pool2d_with_indices', 'tanh_backward']
    """
    stem = _SUFFIX.sub("", native) or native
    return _WORDS.sub("_", stem).lower()


_ACCUMULATE_OP: Final = neutral_name(private.ACCUMULATOR)


def native_name(qualified: str) -> str:
    """Return a C++ node's own name, without namespaces, template arguments and torch's wrapper class.

    >>> native_name("torch::autograd::CppNode<my::Op<float>>"), native_name("struct torch::autograd::AccumulateGrad")
    ('Op', 'AccumulateGrad')
    """
    wrapper, _, wrapped = qualified.partition("<")
    stem = wrapped.partition("<")[0].rstrip(">") if _own_name(wrapper) == "CppNode" else wrapper
    return _own_name(stem) or qualified


def _own_name(qualified: str) -> str:
    return qualified.removeprefix("struct ").removeprefix("class ").rpartition("::")[2]


def registered_name(native: str, operators: Callable[[], Iterable[str]]) -> str:
    """Return the registered operator behind a generated grad_fn, or else ``native``.

    >>> registered_name("GeneratedBackwardFor_my_lib_scale_defaultBackward", lambda: ["aten::scale", "my_lib::scale"])
    'scale'
    """
    generated = _GENERATED.fullmatch(native)
    if generated is None:
        return native
    found = []
    for operator in operators():
        namespace, _, rest = operator.partition("::")
        name, _, overload = rest.partition(".")
        if f"{namespace}_{name}_{overload or 'default'}" == generated[1]:
            found.append(name)
    return min(found, default=native)
