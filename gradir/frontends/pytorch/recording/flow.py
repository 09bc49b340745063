"""Every operation of a forward, those that autograd does not note among them, and which tensor went where.

Nothing of it keeps a tensor alive. A tensor is known by the object that stands for it as long as that lives, and what
is written in place is a new value of every tensor that shares the memory. Memory is known by a weak reference to it,
so that no other takes its place.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from gradir.frontends.pytorch.private import (
    MODULE_CALL,
    StorageWeakRef,
    next_sequence_number,
    runs_a_function,
)
from gradir.frontends.pytorch.reading.metadata import MetadataReader
from gradir.frontends.pytorch.reading.tensors import held_by, storage_of
from gradir.frontends.pytorch.recording.operands import DATA, INPLACE, named, signature_of, tensors_in
from gradir.frontends.pytorch.recording.paths import is_installed
from gradir.frontends.pytorch.recording.results import SURE, UNKNOWN, fates
from gradir.frontends.pytorch.recording.sources import is_internal
from gradir.frontends.pytorch.recording.timelines import Frame, Timeline
from gradir.ir import TensorMeta

__all__ = ["FROM_OUTSIDE", "Exit", "Flow", "Outside", "Place", "Read", "Step", "Value"]

FROM_OUTSIDE: Final = -1

_GRAD: Final = "grad"
_INTERNAL: Final = 1
_LIBRARY: Final = 2
_USER: Final = 3

_COPYING: Final = frozenset({"as_tensor", "asarray", "tensor"})
"""Functions that make a tensor of numbers that they read."""


class Value(NamedTuple):
    """What a tensor holds: output ``number`` of the step ``maker``.

    Of a tensor that no step made the maker is `FROM_OUTSIDE`, and ``number`` its place among `Flow.outside`.
    """

    maker: int
    number: int


class Read(NamedTuple):
    """A value as an operation takes it: whether it requires grad then, and whether it is a leaf of the graph."""

    value: Value
    carries: bool
    is_leaf: bool


class Place(NamedTuple):
    """An instruction of a program; ``caller`` is the user's own that led to it, where it is one of a library."""

    code: CodeType
    instruction: int
    caller: Place | None = None


class Step(NamedTuple):
    """One operation, in the order in which they ran.

    ``kinds`` tells of each input whether it is only read (``data``), lends an output its memory (``view``) or is
    written to (``inplace``); it is empty where all are only read. ``constants`` are the other arguments. ``mode`` is
    ``grad``, ``no_grad`` or ``inference_mode``, ``inside`` tells whether a custom Function ran it, and ``failed`` what
    it raised. ``number`` is the autograd sequence number that came next, ``call`` the running module and
    ``called`` what the program called.
    """

    func: Any
    inputs: tuple[Read, ...]
    kinds: tuple[str, ...]
    constants: tuple[tuple[str, object], ...]
    outputs: tuple[TensorMeta, ...]
    mode: str
    inside: bool
    number: int
    call: Frame | None
    called: str
    place: Place | None
    failed: str


class Exit(NamedTuple):
    """A function that read the numbers of tensors, when ``before`` steps had run; ``failed`` is what it raised."""

    called: str
    reads: tuple[Read, ...]
    place: Place | None
    before: int
    failed: str = ""


class Outside(NamedTuple):
    """A tensor that no step made, as it was when it was first taken.

    ``role`` is ``parameter``, ``leaf`` or ``input``. ``copied`` are the tensors whose numbers the running function had
    read, and ``shared`` is the value of a tensor that has the same memory.
    """

    tensor: weakref.ref[torch.Tensor]
    meta: TensorMeta
    role: str
    copied: tuple[Read, ...] = ()
    shared: Value | None = None


class Flow:
    """What one thread computed while the modes of `gradir.frontends.pytorch.recording.modes` were entered."""

    def __init__(self, timeline: Timeline) -> None:
        self.steps: list[Step] = []
        self.exits: list[Exit] = []
        self.outside: list[Outside] = []
        self.variables: dict[Value, str] = {}
        self.failure: Exit | None = None
        self.exchanges: list[Exit] = []
        # While compiled code runs, which is noted as a whole.
        self.is_paused = False
        self._timeline = timeline
        self._metadata = MetadataReader()
        # By id(): another tensor may take the place of one that is gone, which the reference tells.
        self._values: dict[int, tuple[weakref.ref[torch.Tensor], Value]] = {}
        # By memory, whose place stays its own while it is in `_memories`.
        self._memories: dict[int, StorageWeakRef] = {}
        self._newest_over: dict[int, Value] = {}
        self._newest_write: dict[int, int] = {}
        # By identity, since code takes long to hash; the list keeps it in memory.
        self._kinds: dict[int, int] = {}
        self._codes: list[CodeType] = []

    def value_of(self, tensor: torch.Tensor, copied: tuple[Read, ...] = ()) -> Value:
        """What a tensor holds now; one that no step made is noted, with what its numbers are ``copied`` from."""
        storage = storage_of(tensor)
        known = self._values.get(id(tensor))
        if known is not None and known[0]() is tensor:
            value = known[1]
        else:
            value = Value(FROM_OUTSIDE, len(self.outside))
            shared = None if storage is None else self._newest_over.get(storage)
            meta, role = self._metadata.of_tensor(tensor), _role(tensor)
            self.outside.append(Outside(weakref.ref(tensor), meta, role, copied, shared))
            self._set(tensor, value)
        written = FROM_OUTSIDE if storage is None else self._newest_write.get(storage, FROM_OUTSIDE)
        if written > value.maker:
            value = Value(written, 0)
            self._set(tensor, value)
        return value

    def read(self, tensor: torch.Tensor, copied: tuple[Read, ...] = ()) -> Read:
        """What a tensor holds, and whether it requires grad."""
        carries = tensor.requires_grad
        return Read(self.value_of(tensor, copied), carries, carries and tensor.is_leaf)

    def tensor_of(self, value: Value) -> torch.Tensor | None:
        """The tensor from outside that a value is of, while it lives."""
        return self.outside[value.number].tensor() if value.maker == FROM_OUTSIDE else None

    def made_parameters(self) -> dict[Value, torch.Tensor]:
        """By what they hold now, the living parameters that are the very objects which a step gave."""
        others = {id(outside.tensor()) for outside in self.outside}
        living = ((known(), value) for key, (known, value) in self._values.items() if key not in others)
        return {value: tensor for tensor, value in living if tensor is not None and _role(tensor) == "parameter"}

    def last_write(self, storage: int) -> int | None:
        """The number of the last step that wrote to a memory which still is what it was."""
        return self._newest_write.get(storage)

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], called: str) -> Any:
        """Run an operation and note it.

        Raises:
            Exception: whatever the operation raises; it is noted as failed.
        """
        signature = signature_of(func)
        inputs, kinds, constants = list[torch.Tensor](), list[str](), list[tuple[str, object]]()
        for name, value in named(signature.names, args, kwargs):
            tensors = tensors_in(value)
            if not tensors:
                constants.append((name, tuple(value) if type(value) is list else value))
                continue
            inputs.extend(tensors)
            kinds.extend([signature.kinds.get(name, DATA)] * len(tensors))
        copied = (
            self.exits[-1].reads if called in _COPYING and self.exits[-1:] and self.exits[-1].called == called else ()
        )
        reads = tuple([self.read(tensor, copied) for tensor in inputs])
        mode, number = _mode(), next_sequence_number()
        frame, call = sys._getframe(2), self._timeline.current
        outputs: tuple[torch.Tensor, ...] = ()
        written = [tensor for tensor, kind in zip(inputs, kinds, strict=True) if kind == INPLACE]
        failed = ""
        try:
            result = func(*args, **kwargs)
            outputs = tensors_in(result) or tuple(written)
        except BaseException as error:
            failed = _told(error)
            raise
        finally:
            self.steps.append(
                Step(
                    func,
                    reads,
                    tuple(kinds) if signature.kinds else (),
                    tuple(constants),
                    tuple(map(self._metadata.of_tensor, outputs)),
                    mode,
                    # A Function runs without gradients, and the call of a module knows whether one runs it.
                    mode != _GRAD and ((call is not None and call.inside) or _is_in_function(frame)),
                    number,
                    call,
                    called,
                    self._place(frame),
                    failed,
                )
            )
        self._note_outputs(outputs, written)
        return result

    def note_whole(
        self,
        func: Any,
        reads: Sequence[Read],
        kinds: Sequence[str],
        outputs: Sequence[torch.Tensor],
        *,
        written: Sequence[torch.Tensor],
        frame: FrameType,
    ) -> None:
        """Note what a frame called as one operation, of the inside of which nothing is known."""
        metas = tuple(map(self._metadata.of_tensor, outputs))
        number, call, place = next_sequence_number(), self._timeline.current, self._place(frame)
        self.steps.append(
            Step(
                func,
                tuple(reads),
                tuple(kinds),
                (),
                metas,
                _mode(),
                inside=False,
                number=number,
                call=call,
                called="",
                place=place,
                failed="",
            )
        )
        self._note_outputs(outputs, written)

    def note_exit(self, called: str, args: object, kwargs: object, frame: FrameType) -> None:
        """Note that a frame calls a function that reads the numbers of tensors."""
        tensors = (*tensors_in(args), *tensors_in(kwargs))
        if tensors:
            self.exits.append(Exit(called, tuple(map(self.read, tensors)), self._place(frame), len(self.steps)))

    def note_exchange(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Note that a frame assigns other numbers to ``tensor.data``."""
        self.exchanges.append(Exit("data", (self.read(tensor),), self._place(frame), len(self.steps)))

    def note_failure(self, called: str, args: object, kwargs: object, frame: FrameType, error: BaseException) -> None:
        """Note that a function which a frame calls raised."""
        tensors = (*tensors_in(args), *tensors_in(kwargs))
        reads = tuple(map(self.read, tensors))
        self.failure = Exit(called, reads, self._place(frame), len(self.steps), _told(error))

    def note_variable(self, result: object, frame: FrameType) -> None:
        """Note where a frame stores the tensor that a function returned to it."""
        known = self._values.get(id(result))
        if (
            known is None
            or known[0]() is not result
            or known[1].maker == FROM_OUTSIDE
            or self._kind(frame) == _INTERNAL
        ):
            return
        fate = fates(frame.f_code).get(frame.f_lasti, UNKNOWN)
        if fate.variable is not None and fate.direct == SURE:
            self.variables.setdefault(known[1], fate.variable)

    def _note_outputs(self, outputs: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> None:
        index = len(self.steps) - 1
        for number, tensor in enumerate(outputs):
            value = Value(index, number)
            self._set(tensor, value)
            storage = self._memory_of(tensor)
            if storage is not None:
                self._newest_over[storage] = value
        for tensor in written:
            storage = self._memory_of(tensor)
            if storage is not None:
                self._newest_write[storage] = index

    def _memory_of(self, tensor: torch.Tensor) -> int | None:
        """What tells a memory from all others, for as long as the flow is there."""
        storage = storage_of(tensor)
        if storage is not None and storage not in self._memories:
            self._memories[storage] = StorageWeakRef(held_by(tensor).untyped_storage())
        return storage

    def _set(self, tensor: torch.Tensor, value: Value) -> None:
        self._values[id(tensor)] = weakref.ref(tensor), value

    def _place(self, frame: FrameType | None) -> Place | None:
        """The innermost instruction, from a frame outwards, that is neither torch's nor gradir's."""
        while frame is not None and self._kind(frame) == _INTERNAL:
            frame = frame.f_back
        if frame is None:
            return None
        code, instruction = frame.f_code, frame.f_lasti
        outer: FrameType | None = frame
        while outer is not None and self._kind(outer) != _USER:
            outer = outer.f_back
        caller = None if outer is None or outer is frame else Place(outer.f_code, outer.f_lasti)
        return Place(code, instruction, caller)

    def _kind(self, frame: FrameType) -> int:
        code = frame.f_code
        kind = self._kinds.get(id(code))
        if kind is None:
            self._codes.append(code)
            kind = _INTERNAL if is_internal(code) else _LIBRARY if is_installed(code.co_filename) else _USER
            self._kinds[id(code)] = kind
        return kind


def _role(tensor: torch.Tensor) -> str:
    if isinstance(tensor, nn.Parameter):
        return "parameter"
    return "leaf" if tensor.requires_grad and tensor.is_leaf else "input"


def _told(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _mode() -> str:
    if torch.is_grad_enabled():
        return _GRAD
    return "inference_mode" if torch.is_inference_mode_enabled() else "no_grad"


def _is_in_function(frame: FrameType | None) -> bool:
    """Whether a custom Function runs between a frame and the call of a module around it."""
    while frame is not None and frame.f_code is not MODULE_CALL:
        if runs_a_function(frame.f_code):
            return True
        frame = frame.f_back
    return False
