"""Record every operation of a forward, with its inputs and outputs, without keeping a tensor alive.

A tensor object identifies itself while it lives. An in-place write makes a new value of every tensor that shares the
storage. A weak reference to the storage keeps its identity unique.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from traceback import walk_tb
from types import FrameType
from typing import Any, Final, TypeAlias

import torch
from torch import nn

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.attributes import MetadataReader
from gradir.frontends.pytorch.reading.outputs import OfEdge, start_of
from gradir.frontends.pytorch.reading.tensors import PLAIN, storage_of, unwrap_tensor
from gradir.frontends.pytorch.recording import steps
from gradir.frontends.pytorch.recording.places import Place, Places, Switches, Written
from gradir.frontends.pytorch.recording.results import SURE, UNKNOWN, CodeMemo, find_fates
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, INPLACE, Exit, Read, Step, Value, Within, tensors_in
from gradir.frontends.pytorch.recording.timelines import Frame, Timeline
from gradir.frontends.walks import frames_from
from gradir.ir import TensorMeta
from gradir.spec import describe_error

_GRAD: Final = "grad"
_NO_GRAD: Final = "no_grad"
_Tensors: TypeAlias = Sequence[torch.Tensor]
# Functions that make a tensor of values that they read.
COPYING: Final = frozenset({"as_tensor", "asarray", "new_tensor", "tensor"})
_DETACH: Final = torch.ops.aten.detach.default
_FROM_STORAGE: Final = torch.ops.aten.set_.source_Storage_storage_offset
# A forward ends with the loss, so the newest values are enough.
_MOST_NUMBERS: Final = 1000
# Function modes do not see a call of ``torch.Tensor``, only the reads of its arguments.
_CLASS: Final = "Tensor"
# A longer list is data.
_MOST_VALUES: Final = 16
# torch runs this on a tensor that it made of Python numbers.
MADE_OF_NUMBERS: Final = torch.ops.aten.lift_fresh.default


class Flow:
    """The computation of one thread while the modes of `gradir.frontends.pytorch.recording.modes` were entered."""

    def __init__(self, timeline: Timeline) -> None:
        self.steps: list[Step] = []
        self.exits: list[Exit] = []
        self.outside: list[steps.Outside] = []
        self.variables: dict[Value, str] = {}
        self.failure: Exit | None = None
        self.end: Exit | None = None
        self.exchanges: list[Exit] = []
        self.clearings: list[Exit] = []
        self.hooks: list[tuple[Value, Written]] = []
        self.freezings: dict[int, tuple[weakref.ref[torch.Tensor], Place | None]] = {}
        """The tensors, by id(), that the program told not to require grad, with the last line that did."""
        self.overwritten, self.departures = steps.Overwritten(), steps.Departures()
        self.given = set[Value]()
        """Results of operations with several outputs that the program received."""
        self.numbers: dict[Value, torch.Tensor] = {}
        """Copies of the newest scalars that were summed, so that the terms of a loss have values."""
        self.finite = steps.FiniteResults()
        # True while compiled code runs, which is recorded as one operation.
        self.is_paused = False
        self.called = ""
        """The function of torch that the program called, while it runs."""
        self._timeline = timeline
        self._metadata = MetadataReader()
        self._place = Places()
        self.switches = Switches(self._place)
        self._fates = CodeMemo(find_fates)
        # By id(), which a new tensor may inherit from a dead one: the reference shows that.
        self._values: dict[int, tuple[weakref.ref[torch.Tensor], Value]] = {}
        # By storage, whose identity is unique while `_memories` has it; the newest value also by its offset in it.
        self._memories: dict[int, private.StorageWeakRef] = {}
        self._newest_over: dict[object, Value] = {}
        self._writes: dict[int, list[int]] = {}
        # The number of steps searched so far for their grad_fns, and the step of each by sequence number.
        self._makers: tuple[int, dict[int, int]] = 0, {}

    def value_of(self, tensor: torch.Tensor, copied: tuple[Read, ...] = ()) -> Value:
        """Return the present value of a tensor, and add an unknown tensor with the tensors it was ``copied`` from."""
        known = self._values.get(id(tensor))
        if known is not None and known[0]() is tensor:
            value = known[1]
            if not self._writes:
                return value
            storage = storage_of(tensor)
        else:
            storage = storage_of(tensor)
            maker = self.maker_of(tensor.grad_fn) if isinstance(tensor, OfEdge) else FROM_OUTSIDE
            value = Value(maker, len(self.outside) if maker == FROM_OUTSIDE else start_of(tensor).output_nr)
            at = storage if storage is None else (storage, tensor.storage_offset())
            shared = self._newest_over.get(at, self._newest_over.get(storage))
            made_by = None if shared is None else self.step_of(shared)
            # Earlier writes were to the leaf that the graph of the shared value begins with.
            is_new_leaf = tensor.is_leaf and tensor.requires_grad and made_by is not None and made_by.has_graph
            since = len(self.steps) - 1 if is_new_leaf else FROM_OUTSIDE
            meta, role = self._metadata.read_tensor(tensor), steps.role_of(tensor)
            owner, left = self._owner_of(tensor) if role == "parameter" else None, self.departures.find(tensor)
            self.outside.append(steps.Outside(weakref.ref(tensor), meta, role, copied, shared, owner, left, since))
            self._values[id(tensor)] = weakref.ref(tensor), value
        writes = () if storage is None else self._writes.get(storage, ())
        if writes and writes[-1] > (self.outside[value.number].since if value.maker == FROM_OUTSIDE else value.maker):
            value = Value(writes[-1], 0)
            self._values[id(tensor)] = weakref.ref(tensor), value
        return value

    def _owner_of(self, parameter: torch.Tensor) -> tuple[nn.Module, str] | None:
        """Return the running module that got a parameter since its call began, and the parameter's name."""
        call = self._timeline.current
        if call is None or any(known is parameter for _, known in call.parameters):
            return None
        own = private.own_parameters(call.module).items()
        return next(((call.module, name) for name, known in own if known is parameter), None)

    def read(self, tensor: torch.Tensor, copied: tuple[Read, ...] = ()) -> Read:
        """Return the present value of a tensor, and whether it requires grad."""
        carries = tensor.requires_grad
        return Read(self.value_of(tensor, copied), carries, carries and tensor.is_leaf)

    def find_value(self, tensor: object) -> Value | None:
        """Return the value of a tensor when a step made it or first took it, or ``None`` for an unknown tensor."""
        known = self._values.get(id(tensor))
        return None if known is None or known[0]() is not tensor else known[1]

    def read_again(self, tensor: torch.Tensor) -> Read | None:
        """Return the present value of a tensor, if the flow knows its object or its storage."""
        if self.find_value(tensor) is not None:
            return self.read(tensor)
        newest, carries = self.newest_in(tensor), tensor.requires_grad
        return None if newest is None else Read(newest, carries, carries and tensor.is_leaf)

    def newest_in(self, tensor: torch.Tensor) -> Value | None:
        """Return the newest value in the storage of a tensor, without adding the tensor."""
        storage = storage_of(tensor)
        return None if storage is None else self._newest_over.get(storage)

    def tensor_of(self, value: Value) -> torch.Tensor | None:
        """Return the tensor from outside with this value, while it lives."""
        return self.outside[value.number].tensor() if value.maker == FROM_OUTSIDE else None

    def step_of(self, value: Value) -> Step | None:
        """Return the step that made a value."""
        return None if value.maker == FROM_OUTSIDE else self.steps[value.maker]

    def values_of_step(self, index: int) -> list[Value]:
        """Return the values that a step made."""
        return [Value(index, number) for number in range(len(self.steps[index].outputs))]

    def views(self, value: Value) -> Iterator[Step]:
        """Yield the steps that made a value as a view, the last first."""
        while (step := self.step_of(value)) is not None and "view" in step.kinds:
            yield step
            value = step.inputs_of_kind("view")[0].value

    def owner_of(self, value: Value) -> Value:
        """Return the value at the base of a chain of views."""
        for step in self.views(value):
            value = step.inputs_of_kind("view")[0].value
        return value

    def meta_of(self, value: Value) -> TensorMeta:
        """Return the type and shape of a value."""
        if value.maker == FROM_OUTSIDE:
            return self.outside[value.number].meta
        return self.steps[value.maker].outputs[value.number]

    def living_values(self) -> set[Value]:
        """Return the present values of all living tensors in the flow."""
        living = [known() for known, _ in [*self._values.values()]]
        return {self.value_of(tensor) for tensor in living if tensor is not None}

    def find_made_parameters(self) -> dict[Value, torch.Tensor]:
        """Return the living parameters that are result objects of steps, by their present values."""
        others = {id(outside.tensor()) for outside in self.outside}
        living = ((known(), value) for key, (known, value) in self._values.items() if key not in others)
        return {value: tensor for tensor, value in living if isinstance(tensor, nn.Parameter)}

    def maker_of(self, fn: Any) -> int:
        """Return the index of the step that made a grad_fn, or `FROM_OUTSIDE`."""
        known, found = self._makers
        if known < len(self.steps):
            for index, step in enumerate(self.steps[known:], known):
                if step.has_graph:
                    # autograd numbers the grad_fn before the operation runs.
                    found.setdefault(step.number - 1, index)
            self._makers = len(self.steps), found
        return found.get(private.sequence_number(fn), FROM_OUTSIDE)

    def writes(self, storage: int) -> Sequence[int]:
        """Return the indices of the steps that wrote to a storage."""
        return self._writes.get(storage, ())

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operation and record it, even if it raises."""
        is_detach = private.DETACHES_TWICE and func is _DETACH and self.steps and self.steps[-1].func is _DETACH
        if is_detach and (last := self.find_value(args[0])) == Value(len(self.steps) - 1, 0):
            result = func(*args, **kwargs)
            self._values[id(result)] = weakref.ref(result), last
            return result
        if func is _FROM_STORAGE and (last := self.find_value(args[0])) is not None and last.maker != FROM_OUTSIDE:
            # A loaded tensor: its values may have left torch before.
            del self._values[id(args[0])]
            return func(*args, **kwargs)
        signature, called = steps.signature_of(func), self.called
        inputs, kinds, constants = signature.operands(args, kwargs)
        mode, number = _mode(), private.next_sequence_number()
        # The frame that called the mode.
        frame, call = sys._getframe(2), self._timeline.current
        copied: tuple[Read, ...] = ()
        if called in COPYING and self.exits[-1:] and self.exits[-1].called == called:
            copied = self.exits[-1].reads
        elif func is MADE_OF_NUMBERS and not called:
            copied = self._just_read(self._place(frame))
            called = _CLASS if copied else called
        values: tuple[object, ...] | None = None
        if func is MADE_OF_NUMBERS and _is_short(inputs[0]):
            # A list in the program, such as an index: only its values show a change in a diff.
            with private.without_dispatch_modes(), private.without_overrides():
                values = tuple(inputs[0].flatten().tolist())
        reads = tuple([self.read(tensor, copied) for tensor in inputs])
        outputs: tuple[torch.Tensor, ...] = ()
        written = [tensor for tensor, kind in zip(inputs, kinds, strict=True) if kind == INPLACE]
        # The frame of an optimizer's step, to which all its kernels belong.
        around = frames_from(frame) if written and mode != _GRAD else ()
        stepping = next((each for each in around if each.f_code is private.OPTIMIZER_STEP), None)
        shown, place = (called if stepping is None else "step"), self._place(stepping or frame)
        # A custom Function runs without gradients, and a module's frame knows whether one called it.
        inside = None if mode == _GRAD else self._within(frame, is_inside=call is not None and call.inside)
        block = self.switches.locate_block(frame) if mode == _NO_GRAD else None
        failed = ""
        for tensor in filter(self.overwritten.is_uncounted, written):
            self.overwritten.save(called, tensor, self._memory_of(tensor), len(self.steps), self._place(frame))
        if signature.is_of_sums:
            self._record_numbers(inputs, reads)
        try:
            result = func(*args, **kwargs)
            outputs = tensors_in(result) or tuple(written)
        except BaseException as error:
            failed = describe_error(error)
            raise
        finally:
            arguments = (reads, tuple(kinds) if signature.kinds else (), tuple(constants))
            metas = tuple(map(self._metadata.read_tensor, outputs))
            step = Step(func, *arguments, metas, mode, inside, number, call, shown, place, failed, block, values)
            self.steps.append(step)
        self._record_outputs(outputs, written)
        is_of_data = mode == _GRAD and not any(tensor.requires_grad for tensor in inputs)
        self.finite.check(len(self.steps) - 1, outputs, is_of_data=is_of_data)
        if signature.kinds:
            self.overwritten.record_views(called, inputs, kinds, outputs)
        return result

    def _just_read(self, place: Place | None) -> tuple[Read, ...]:
        """Return the tensors whose values a place read since the last step, as in ``torch.Tensor([x, y])``."""
        found: list[Read] = []
        for exited in reversed(self.exits):
            if exited.before < len(self.steps) or exited.place != place:
                break
            found.extend(exited.reads)
        return tuple(dict.fromkeys(reversed(found)))

    def record_whole(
        self, func: Any, reads: list[Read], kinds: list[str], outputs: _Tensors, *, written: _Tensors, frame: FrameType
    ) -> None:
        """Record the call of a frame as one operation with unknown parts."""
        metas = tuple(map(self._metadata.read_tensor, outputs))
        number, call, place = private.next_sequence_number(), self._timeline.current, self._place(frame)
        self.steps.append(Step(func, tuple(reads), tuple(kinds), (), metas, _mode(), None, number, call, place=place))
        self._record_outputs(outputs, written)
        self.record_given(outputs)

    def exit_of(self, called: str, tensors: Iterable[torch.Tensor], frame: FrameType) -> Exit:
        """Return the record of a frame's call of a function that reads tensors and is no operation."""
        return Exit(called, tuple(map(self.read, tensors)), self._place(frame), len(self.steps))

    def record_exit(self, called: str, args: object, kwargs: object, frame: FrameType) -> None:
        """Record that a frame calls a function that reads the values of tensors."""
        if tensors := tensors_in((args, kwargs)):
            self.exits.append(self.exit_of(called, tensors, frame))
            if called in steps.ARRAYS:
                memory = self._memory_of(tensors[0])
                self.overwritten.save(called, tensors[0], memory, len(self.steps), self._place(frame))

    def record_failure(self, called: str, args: object, kwargs: object, frame: FrameType, error: BaseException) -> None:
        """Record that a function called by a frame raised."""
        failed = self.exit_of(called, tensors_in((args, kwargs)), frame)
        self.failure = failed._replace(failed=describe_error(error), call=self._timeline.current)

    def record_end(self, error: BaseException) -> None:
        """Record that an error ended the recording, perhaps raised by the program itself."""
        call: Frame | None = None
        # From the traceback, since the calls in the timeline have ended.
        for frame in [each for each, _ in walk_tb(error.__traceback__) if each.f_code is private.MODULE_CALL]:
            call = Frame(frame.f_locals["self"], call, ())
        place = self._place.locate_error(error.__traceback__)
        self.end = Exit("raise", (), place, len(self.steps), describe_error(error), call)

    def record_given(self, result: object) -> None:
        """Record that a function returned tensors to the program."""
        for tensor in tensors_in(result):
            value = self.find_value(tensor)
            if value is not None and value.maker != FROM_OUTSIDE and len(self.steps[value.maker].outputs) > 1:
                self.given.add(value)

    def record_variable(self, result: object, frame: FrameType) -> None:
        """Record the variable in which a frame stores the result of a function."""
        value = self.find_value(result)
        if value is None or value.maker == FROM_OUTSIDE or self._place.is_inside(frame):
            return
        fate = self._fates.of(frame.f_code).get(frame.f_lasti, UNKNOWN)
        if fate.variable is not None and fate.direct == SURE:
            self.variables.setdefault(value, fate.variable)

    def _record_numbers(self, inputs: Sequence[torch.Tensor], reads: Sequence[Read]) -> None:
        for tensor, read in zip(inputs, reads, strict=True):
            # A copy, since in-place writes make another value. `is_number` excludes subclasses without data.
            if is_number(tensor) and read.value not in self.numbers:
                self.numbers[read.value] = torch.ops.aten.clone.default(tensor)
                if len(self.numbers) > _MOST_NUMBERS:
                    del self.numbers[next(iter(self.numbers))]

    def _record_outputs(self, outputs: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> None:
        index = len(self.steps) - 1
        for number, tensor in enumerate(outputs):
            value = Value(index, number)
            self._values[id(tensor)] = weakref.ref(tensor), value
            if (storage := self._memory_of(tensor)) is not None:
                self._newest_over[storage] = self._newest_over[storage, tensor.storage_offset()] = value
        for tensor in written:
            if (storage := self._memory_of(tensor)) is not None:
                self._writes.setdefault(storage, []).append(index)

    def _memory_of(self, tensor: torch.Tensor) -> int | None:
        """Return the identity of a tensor's storage, and keep it unique while the flow lives."""
        storage = storage_of(tensor)
        if storage is not None and storage not in self._memories:
            self._memories[storage] = private.StorageWeakRef(unwrap_tensor(tensor).untyped_storage())
        return storage

    def _within(self, frame: FrameType | None, *, is_inside: bool) -> Within | None:
        """Return the outermost custom Function around a frame; ``is_inside`` if one runs the call of the module."""
        found = None
        while frame is not None and (is_inside or found or frame.f_code is not private.MODULE_CALL):
            if private.is_function_call(frame.f_code):
                found = frame
            frame = frame.f_back
        return None if found is None else Within(private.find_function_name(found), self._place(found.f_back))


def _is_short(tensor: torch.Tensor) -> bool:
    is_plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return is_plain and not tensor.is_complex() and tensor.numel() <= _MOST_VALUES


def _mode() -> str:
    if torch.is_inference_mode_enabled():
        # There enable_grad() changes nothing.
        return "inference_mode"
    return _GRAD if torch.is_grad_enabled() else _NO_GRAD


def is_number(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a single readable floating-point number."""
    return type(tensor) in PLAIN and tensor.numel() == 1 and tensor.is_floating_point() and not tensor.is_meta
