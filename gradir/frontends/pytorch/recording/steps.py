"""What is noted of a forward: values, the steps that make them, what these take, and where values leave torch."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

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
    """What a tensor holds: output ``number`` of the step ``maker``, or the tensor of that number in `Flow.outside`."""

    maker: int
    number: int


class Read(NamedTuple):
    """A value as an operation takes it: whether it requires grad then, and whether it is a leaf of the graph."""

    value: Value
    carries: bool
    is_leaf: bool


class Within(NamedTuple):
    """The call of a custom Function that runs an operation, the outermost one: its class and the place."""

    called: str
    place: Place | None


class Step(NamedTuple):
    """One operation, in the order in which they ran.

    ``kinds`` tells of each input whether it is only read (``data``), lends an output its memory (``view``) or is
    written to (``inplace``); it is empty where all are only read. ``constants`` are the other arguments. ``mode`` is
    ``grad``, ``no_grad`` or ``inference_mode``, ``inside`` tells which custom Function ran it, and ``failed`` what
    it raised. ``number`` is the autograd sequence number that came next, ``call`` the running module and
    ``called`` what the program called: ``step`` for what an optimizer writes, where its step was called. ``block`` is
    the line that switched gradients off. ``values`` are the numbers of a short tensor that the program wrote out.
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

    def of_kind(self, *kinds: str) -> list[Read]:
        """Return the inputs that are of these kinds."""
        return [read for kind, read in zip(self.kinds, self.inputs, strict=False) if kind in kinds]

    def lenders(self) -> list[Value]:
        """Return the inputs whose memory an output has."""
        return [read.value for read in self.of_kind("view", "inplace")]


class Exit(NamedTuple):
    """A function that read tensors after so many steps, what it raised, and the module that was running."""

    called: str
    reads: tuple[Read, ...]
    place: Place | None
    before: int
    failed: str = ""
    call: Frame | None = None


class Outside(NamedTuple):
    """A tensor that no step made, as it was when it was first taken: a ``parameter``, ``leaf`` or ``input``.

    ``copied`` are the tensors whose numbers the running function had read, and ``shared`` is the value of a tensor that
    has the same memory. ``owner`` is the module that had it as this parameter while it ran, and not when it was called.
    By ``left`` the same numbers left before.
    """

    tensor: weakref.ref[torch.Tensor]
    meta: TensorMeta
    role: str
    copied: tuple[Read, ...] = ()
    shared: Value | None = None
    owner: tuple[nn.Module, str] | None = None
    left: Exit | None = None


def role_of(tensor: torch.Tensor) -> str:
    """Return a tensor's role."""
    if isinstance(tensor, nn.Parameter):
        return "parameter"
    return "leaf" if tensor.requires_grad and tensor.is_leaf else "input"


DATA: Final = "data"
VIEW: Final = "view"
INPLACE: Final = "inplace"

SUMS: Final = frozenset({"add", "sub"})
# Operations of one tensor that leave a sum a sum.
SCALES: Final = frozenset({"div", "mul", "neg", "view", "squeeze", "unsqueeze", "to_copy"})
# Operations that give numbers of their input and no others.
SHOWING: Final = VOCABULARY.shape_operations | {"clone", "contiguous", "select", "slice", "split", "to_copy", "unbind"}


class Signature(NamedTuple):
    """The names of an operation's arguments, the kinds of those that are not only read, and whether sums continue."""

    names: tuple[str, ...]
    kinds: Mapping[str, str]
    is_of_sums: bool = False

    def operands(self, args: Any, kwargs: Any) -> tuple[list[torch.Tensor], list[str], list[tuple[str, object]]]:
        """Return the tensors that a call takes, their kinds, and the other arguments with their names."""
        inputs, kinds, constants = list[torch.Tensor](), list[str](), list[tuple[str, object]]()
        for name, value in named(self.names, args, kwargs):
            tensors = tensors_in(value)
            if tensors:
                inputs.extend(tensors)
                kinds.extend([self.kinds.get(name, DATA)] * len(tensors))
                if type(value) is list and (empty := tuple(at for at, each in enumerate(value) if each is None)):
                    # Of an index, the dimensions that are taken whole.
                    constants.append((f"none_in_{name}", empty))
            else:
                constants.append((name, tuple(value) if type(value) is list else value))
        return inputs, kinds, constants


@lru_cache(maxsize=4096)
def signature_of(func: Any) -> Signature:
    """Return the facts of an operator's schema, none if it has no schema."""
    if not isinstance(func, Operator):
        # It takes functions, and has no schema.
        return Signature((), {})
    schema = schema_of(func)
    aliased = (entry for entry in schema.arguments if entry.alias_info is not None)
    kinds = {entry.name: INPLACE if entry.alias_info.is_write else VIEW for entry in aliased}
    return Signature(tuple(entry.name for entry in schema.arguments), kinds, plain_name(func) in SUMS | SCALES)


def plain_name(func: Any) -> str:
    """Return the name of an operation without the signs of what works in place and of what is torch's own."""
    return str(func.__name__).partition(".")[0].strip("_")


def named(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a call with their names; those beyond the names have their number."""
    for place, value in enumerate(args):
        yield names[place] if place < len(names) else str(place), value
    yield from kwargs.items()


def tensors_in(value: object) -> tuple[torch.Tensor, ...]:
    """Return the tensors of lists, tuples and dicts in each other, in order."""
    found: list[torch.Tensor] = []
    waiting = [value]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, torch.Tensor):
            found.append(entry)
        # As the base class has them: a class that is derived from it may iterate otherwise.
        elif isinstance(entry, dict):
            waiting += reversed(dict.values(entry))
        elif isinstance(entry, list):
            waiting += list.__reversed__(entry)
        elif isinstance(entry, tuple):
            waiting += tuple.__getitem__(entry, slice(None, None, -1))
    return tuple(found)


# Functions that give the memory of a tensor to what writes to it unseen.
ARRAYS: Final = frozenset({"__array__", "numpy"})
# How many bytes to keep of memory that was written over last.
_MOST_KEPT: Final = 2**27


class Held(NamedTuple):
    """The numbers of a part of a memory when ``before`` steps had run, and what then wrote to it, or may have."""

    memory: int
    numbers: torch.Tensor
    offset: int
    strides: tuple[int, ...]
    before: int
    called: str
    place: Place | None

    def part_of(self, storage: torch.UntypedStorage) -> torch.Tensor | None:
        """Return the same part of the memory as it is now; nothing where that has none."""
        steps = zip(self.numbers.shape, self.strides, strict=True)
        end = self.offset + 1 + sum((size - 1) * stride for size, stride in steps)
        if storage.nbytes() < end * self.numbers.itemsize or storage.device != self.numbers.device:
            return None
        part = torch.empty(0, dtype=self.numbers.dtype, device=storage.device)
        return part.set_(storage, self.offset, self.numbers.shape, self.strides)


class Overwritten:
    """Keeps what was there before a write through ``.data``, or before an array got the memory, the newest of it."""

    def __init__(self) -> None:
        self.held: deque[Held] = deque()
        # By memory, when something was last written over that is not kept.
        self.lost: dict[int, int] = {}
        self._kept = 0
        # By id(), as another tensor may take the place of one that is gone.
        self._uncounted: dict[int, weakref.ref[torch.Tensor]] = {}

    def is_uncounted(self, tensor: torch.Tensor) -> bool:
        """Return whether torch does not tell others that share the memory of a tensor when that is written to."""
        known = self._uncounted.get(id(tensor))
        return known is not None and known() is tensor

    def note_views(
        self, called: str, inputs: Sequence[torch.Tensor], kinds: Sequence[str], outputs: Iterable[torch.Tensor]
    ) -> None:
        """Note what an operation made that has the memory of its inputs."""
        pairs = zip(kinds, inputs, strict=True) if self._uncounted else ()
        if called == "data" or any(kind == VIEW and self.is_uncounted(tensor) for kind, tensor in pairs):
            self._uncounted.update((id(tensor), weakref.ref(tensor)) for tensor in outputs)

    def note(self, called: str, tensor: torch.Tensor, memory: int | None, before: int, place: Place | None) -> None:
        """Note what a tensor holds that is about to be written to."""
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
