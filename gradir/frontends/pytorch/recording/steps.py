"""The records of a forward: values, the steps that make them, their inputs, and the exits of values from torch."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import nn

from gradir.frontends.pytorch.private import Operator, schema_of, without_dispatch_modes, without_overrides
from gradir.frontends.pytorch.reading.tensors import PLAIN
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.timelines import Frame
from gradir.ir import TensorMeta
from gradir.vocabulary.pytorch import VOCABULARY

FROM_OUTSIDE: Final = -1


class Value(NamedTuple):
    """The contents of a tensor: output ``number`` of the step ``maker``, or ``Flow.outside[number]``."""

    maker: int
    number: int


class Read(NamedTuple):
    """A value as an input of an operation: whether it requires grad at that time, and is a leaf of the graph."""

    value: Value
    carries: bool
    is_leaf: bool


class Within(NamedTuple):
    """The outermost call of a custom Function around an operation: the name of its class, and its place."""

    called: str
    place: Place | None


class Step(NamedTuple):
    """One operation that ran.

    ``kinds`` has ``data`` for an input that is only read, ``view`` if an output shares its storage, and ``inplace`` if
    it is written to. It is empty if all inputs are only read. ``constants`` are the other arguments. ``mode`` is
    ``grad``, ``no_grad`` or ``inference_mode``. ``inside`` is the custom Function that ran the operation, and
    ``failed`` its error. ``number`` is the next autograd sequence number, and ``call`` the running module. ``called``
    is the function that the program called, or ``step`` for writes of an optimizer. ``block`` is the line that switched
    gradients off. ``values`` are those of a short tensor that the program wrote out.
    """

    func: Any
    inputs: tuple[Read, ...]
    kinds: tuple[str, ...]
    constants: tuple[tuple[str, object], ...]
    outputs: tuple[TensorMeta, ...]
    mode: str
    inside: Within | None
    number: int
    call: Frame | None
    called: str = ""
    place: Place | None = None
    failed: str = ""
    block: Place | None = None
    values: tuple[object, ...] | None = None

    def inputs_of_kind(self, *kinds: str) -> list[Read]:
        """Return the inputs that are of these kinds."""
        return [read for kind, read in zip(self.kinds, self.inputs, strict=False) if kind in kinds]

    @property
    def has_graph(self) -> bool:
        """Whether autograd recorded the operation."""
        return self.mode == "grad" and any(read.carries for read in self.inputs)

    def lenders(self) -> list[Value]:
        """Return the inputs that share their storage with an output."""
        return [read.value for read in self.inputs_of_kind("view", "inplace")]


class Exit(NamedTuple):
    """A call that read tensors when ``before`` steps had run, with its error and the running module."""

    called: str
    reads: tuple[Read, ...]
    place: Place | None
    before: int
    failed: str = ""
    call: Frame | None = None


class Outside(NamedTuple):
    """A tensor that no step made, as it was at its first use: a ``parameter``, ``leaf`` or ``input``.

    ``copied`` are the tensors whose values the running function had read, and ``shared`` is the value of a tensor with
    the same storage. ``owner`` is the module, and the name in it, that got the tensor as a parameter during its call.
    ``left`` is the call by which the same values left torch before, and steps up to ``since`` wrote to other tensors.
    """

    tensor: weakref.ref[torch.Tensor]
    meta: TensorMeta
    role: str
    copied: tuple[Read, ...] = ()
    shared: Value | None = None
    owner: tuple[nn.Module, str] | None = None
    left: Exit | None = None
    since: int = FROM_OUTSIDE


def role_of(tensor: torch.Tensor) -> str:
    """Return a tensor's role."""
    if isinstance(tensor, nn.Parameter):
        return "parameter"
    return "leaf" if tensor.requires_grad and tensor.is_leaf else "input"


DATA: Final = "data"
VIEW: Final = "view"
INPLACE: Final = "inplace"

SUMS: Final = frozenset({"add", "sub"})
# Operations of one tensor that preserve sums.
SCALES: Final = frozenset({"div", "mul", "neg", "view", "squeeze", "unsqueeze", "to_copy"})
# Operations whose outputs contain only values of their input.
SHOWING: Final = VOCABULARY.shape_operations | {"clone", "contiguous", "select", "slice", "split", "to_copy", "unbind"}


class Signature(NamedTuple):
    """The names of an operation's arguments, the kinds of those not only read, and whether it is part of a sum."""

    names: tuple[str, ...]
    kinds: Mapping[str, str]
    is_of_sums: bool = False

    def operands(self, args: Any, kwargs: Any) -> tuple[list[torch.Tensor], list[str], list[tuple[str, object]]]:
        """Return the tensors in a call's arguments, their kinds, and the other arguments with their names."""
        inputs, kinds, constants = list[torch.Tensor](), list[str](), list[tuple[str, object]]()
        for name, value in name_arguments(self.names, args, kwargs):
            tensors = tensors_in(value)
            if tensors:
                inputs.extend(tensors)
                kinds.extend([self.kinds.get(name, DATA)] * len(tensors))
                if type(value) is list and (empty := tuple(at for at, each in enumerate(value) if each is None)):
                    # The dimensions that an index leaves whole.
                    constants.append((f"none_in_{name}", empty))
            else:
                constants.append((name, tuple(value) if type(value) is list else value))
        return inputs, kinds, constants


@lru_cache(maxsize=4096)
def signature_of(func: Any) -> Signature:
    """Return the signature of an operator; it is empty for a higher-order operator, which has no schema."""
    if not isinstance(func, Operator):
        return Signature((), {})
    schema = schema_of(func)
    aliased = (entry for entry in schema.arguments if entry.alias_info is not None)
    kinds = {entry.name: INPLACE if entry.alias_info.is_write else VIEW for entry in aliased}
    return Signature(tuple(entry.name for entry in schema.arguments), kinds, plain_name(func) in SUMS | SCALES)


def plain_name(func: Any) -> str:
    """Return the name of an operation without leading or trailing underscores."""
    return str(func.__name__).partition(".")[0].strip("_")


def name_arguments(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a call with their names, or with their position if there are too few names."""
    for place, value in enumerate(args):
        yield names[place] if place < len(names) else str(place), value
    yield from kwargs.items()


def tensors_in(value: object) -> tuple[torch.Tensor, ...]:
    """Return the tensors in nested lists, tuples and dicts, in order."""
    found: list[torch.Tensor] = []
    waiting = [value]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, torch.Tensor):
            found.append(entry)
        # By the methods of the base class: a derived class may iterate differently.
        elif isinstance(entry, dict):
            waiting += reversed(dict.values(entry))
        elif isinstance(entry, list):
            waiting += list.__reversed__(entry)
        elif isinstance(entry, tuple):
            waiting += tuple.__getitem__(entry, slice(None, None, -1))
    return tuple(found)


# Functions that share the storage of a tensor with NumPy, whose writes torch does not see.
ARRAYS: Final = frozenset({"__array__", "numpy"})
# The most bytes of overwritten values to keep.
_MOST_KEPT: Final = 2**27


class Held(NamedTuple):
    """The values in a part of a storage when ``before`` steps had run, and the call that may have overwritten them."""

    memory: int
    numbers: torch.Tensor
    offset: int
    strides: tuple[int, ...]
    before: int
    called: str
    place: Place | None

    def part_of(self, storage: torch.UntypedStorage) -> torch.Tensor | None:
        """Return the present tensor in the same part of the storage, or ``None`` if the storage is too small now."""
        steps = zip(self.numbers.shape, self.strides, strict=True)
        end = self.offset + 1 + sum((size - 1) * stride for size, stride in steps)
        if storage.nbytes() < end * self.numbers.itemsize or storage.device != self.numbers.device:
            return None
        part = torch.empty(0, dtype=self.numbers.dtype, device=storage.device)
        return part.set_(storage, self.offset, self.numbers.shape, self.strides)


class Overwritten:
    """Keeps the newest values from before writes through ``.data``, or before an array shared the storage."""

    def __init__(self) -> None:
        self.held: deque[Held] = deque()
        # The number of steps before the last overwritten values that were not kept, by storage.
        self.lost: dict[int, int] = {}
        self._kept = 0
        # By id(), which a new tensor may inherit from a dead one: the reference shows that.
        self._uncounted: dict[int, weakref.ref[torch.Tensor]] = {}

    def is_uncounted(self, tensor: torch.Tensor) -> bool:
        """Return whether writes to a tensor do not change the version of others that share its storage."""
        known = self._uncounted.get(id(tensor))
        return known is not None and known() is tensor

    def record_views(
        self, called: str, inputs: Sequence[torch.Tensor], kinds: Sequence[str], outputs: Iterable[torch.Tensor]
    ) -> None:
        """Record the outputs of an operation that share the storage of its inputs."""
        pairs = zip(kinds, inputs, strict=True) if self._uncounted else ()
        if called == "data" or any(kind == VIEW and self.is_uncounted(tensor) for kind, tensor in pairs):
            self._uncounted.update((id(tensor), weakref.ref(tensor)) for tensor in outputs)

    def save(self, called: str, tensor: torch.Tensor, memory: int | None, before: int, place: Place | None) -> None:
        """Record the values of a tensor before a write."""
        if memory is None or tensor.is_meta or not tensor.numel():
            return
        size = tensor.numel() * tensor.itemsize
        if type(tensor) not in PLAIN or tensor.layout is not torch.strided or size > _MOST_KEPT:
            self.lost[memory] = before
            return
        with torch.no_grad(), without_dispatch_modes(), without_overrides():
            numbers = tensor.detach().clone()
        offset = int(tensor.storage_offset())
        self.held.append(Held(memory, numbers, offset, tensor.stride(), before, called, place))
        self._kept += size
        while self._kept > _MOST_KEPT:
            oldest = self.held.popleft()
            self.lost[oldest.memory] = max(oldest.before, self.lost.get(oldest.memory, 0))
            self._kept -= oldest.numbers.numel() * oldest.numbers.itemsize


_Print: TypeAlias = "tuple[int, tuple[float, ...]]"

# Functions through which the values of a whole tensor leave torch, with the word for each in a report. Mostly pickle
# and safetensors call the last two, to save a tensor.
LEAVING: Final = {
    **{name: name for name in ("__array__", "numpy", "tolist")},
    **dict.fromkeys(("data_ptr", "untyped_storage"), "saving"),
}
# The number of values that are compared, besides the size, and the number of tensors that are remembered.
_FIRST: Final = 32
_MOST: Final = 1000


class Departures:
    """Tensors whose values left."""

    def __init__(self) -> None:
        self._left: dict[_Print, Exit] = {}

    def add(self, tensor: torch.Tensor, departure: Exit) -> None:
        """Record a departure."""
        found = _print_of(tensor)
        if found is not None:
            self._left.setdefault(found, departure)
            if len(self._left) > _MOST:
                del self._left[next(iter(self._left))]

    def find(self, tensor: torch.Tensor) -> Exit | None:
        """Return the departure of equal values, if any."""
        found = _print_of(tensor) if self._left and not isinstance(tensor, nn.Parameter) else None
        return None if found is None else self._left.get(found)


class FiniteResults:
    """Checks results of steps: in float16, of data, or all."""

    def __init__(self) -> None:
        # To check all results of a model would take too long.
        self.checks_all = False
        # Read later, since to wait for a device would slow the program down.
        self._found: list[tuple[Value, torch.Tensor]] = []

    def check(self, step: int, outputs: Iterable[torch.Tensor], *, is_of_data: bool) -> None:
        """Check the results of a step whose inputs have no gradient if ``is_of_data``."""
        for number, tensor in enumerate(outputs):
            is_checked = is_of_data or self.checks_all or tensor.dtype is torch.float16
            # Some tensors have no such operation, for instance nested ones or those in float8.
            with suppress(RuntimeError), without_dispatch_modes(), without_overrides():
                if is_checked and _has_readable_values(tensor):
                    self._found.append((Value(step, number), tensor.isfinite().all()))

    @property
    def broken(self) -> set[Value]:
        """The checked results that contain NaN or infinity."""
        return {value for value, is_finite in self._found if not is_finite}


def _has_readable_values(tensor: torch.Tensor) -> bool:
    """Return whether a plain tensor of floating-point numbers has values now."""
    is_known = type(tensor) in PLAIN and tensor.layout is torch.strided and not tensor.is_meta
    is_captured = tensor.is_cuda and torch.cuda.is_current_stream_capturing()
    return is_known and tensor.is_floating_point() and not is_captured


def _print_of(tensor: torch.Tensor) -> _Print | None:
    # A constant tensor, or one that is not plain, cannot be recognised.
    if not _has_readable_values(tensor):
        return None
    first: tuple[float, ...] = ()
    # Some tensors cannot be read, for instance in another layout or inside torch.func.vmap.
    with suppress(RuntimeError), without_dispatch_modes(), without_overrides(), torch.no_grad():
        first = tuple(tensor.view(-1)[:_FIRST].tolist()) if tensor.is_contiguous() else ()
    return (tensor.numel(), first) if len(set(first)) > 1 else None
