"""From the flow of a recorded forward to a graph of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final

import torch

from gradir.frontends.pytorch.private import READS_A_NUMBER
from gradir.frontends.pytorch.reading.attributes import plain_value
from gradir.frontends.pytorch.reading.symbols import Symbols
from gradir.frontends.pytorch.reading.tensors import NamedTensors
from gradir.frontends.pytorch.recording.compiled import CompiledPart
from gradir.frontends.pytorch.recording.flow import MADE_OF_NUMBERS, Flow
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Exit, Outside, Read, Step, Value
from gradir.frontends.pytorch.recording.timelines import Frame
from gradir.frontends.texts import plain_text
from gradir.ir import Node, Ref, TensorMeta
from gradir.ir.ids import IdAllocator
from gradir.ir.marks import FAILED

__all__ = ["forward_nodes"]

_ASKED_FOR: Final = frozenset({"data", "detach", "detach_"})
"""What a program calls for a detach of its own; torch makes others to save tensors."""


def forward_nodes(flows: Iterable[Flow], named: NamedTensors, scope_of: Callable[[Frame | None], str]) -> list[Node]:
    """A node for each operation in the order in which they ran, and for each tensor from outside before its first use.

    ``scope_of`` gives the path of the module that a frame runs.
    """
    allocator, lines = IdAllocator(), ShownLines()
    return [node for flow in flows for node in _Forward(flow, named, scope_of, allocator, lines).nodes()]


class _Forward:
    """The state of one graph."""

    def __init__(
        self,
        flow: Flow,
        named: NamedTensors,
        scope_of: Callable[[Frame | None], str],
        allocator: IdAllocator,
        lines: ShownLines,
    ) -> None:
        self._flow = flow
        self._named = named
        self._scope_of = scope_of
        self._allocator = allocator
        self._lines = lines
        self._symbols = Symbols()
        self._ids: dict[int, str] = {}
        self._outside_ids: dict[int, str] = {}
        self._made = flow.made_parameters()
        self._made_ids: dict[Value, str] = {}
        self._nodes: list[Node] = []

    def nodes(self) -> list[Node]:
        flow = self._flow
        read, skipped = self._read_and_skipped()
        exits = iter(flow.exits)
        waiting = next(exits, None)
        ends: list[int] = []
        for index, step in enumerate(flow.steps):
            while waiting is not None and waiting.before <= index:
                if not (waiting.before == index and _is_of(waiting, step)):
                    self._add_exit(waiting)
                waiting = next(exits, None)
            if index in skipped:
                continue
            self._add_step(index, step)
            if step.outputs and not _is_among(read, index, step) and self._is_wanted(step):
                ends.append(index)
        while waiting is not None:
            self._add_exit(waiting)
            waiting = next(exits, None)
        # What a function of torch raised has mostly ended the recording too.
        failures = [found for found in (flow.failure, flow.end) if found and found.before == len(flow.steps)]
        if failures and not (flow.steps and flow.steps[-1].failed):
            self._add_exit(failures[0])
        self._add_outputs(ends)
        return self._nodes

    def _read_and_skipped(self) -> tuple[set[Value], set[int]]:
        """The values that something takes, and the steps that nobody asked for."""
        flow = self._flow
        newest = (flow.newest_in(entry.tensor) for entry in self._named.owned())
        kept = {value for value in newest if value is not None}
        read = {entry.value for exit_ in flow.exits for entry in exit_.reads}
        initial = self._initial(read)
        read.update(map(self._made_as, list(read)))
        # A parameter is of the forward where something takes it, and not where it is made.
        read.update(other.shared for other in flow.outside if other.shared is not None and other.role != "parameter")
        skipped: set[int] = set()
        for index in range(len(flow.steps) - 1, -1, -1):
            step = flow.steps[index]
            if not _is_among(read, index, step):
                if _is_for_saving(step) or _gives_nothing(step):
                    skipped.add(index)
                    continue
                if index in initial and _is_among(kept, index, step):
                    skipped.add(index)
                    kept.update(self._made_as(entry.value) for entry in step.inputs)
                    continue
            for entry in step.inputs:
                read.update((entry.value, self._made_as(entry.value)))
        return read, skipped

    def _made_as(self, value: Value) -> Value:
        """What a step made, also of a tensor that is another object for it."""
        shared = None if value.maker != FROM_OUTSIDE else self._flow.outside[value.number].shared
        return value if shared is None else shared

    def _initial(self, read: Set[Value]) -> set[int]:
        """The steps that make something of nothing, as an initialisation does, in no module and in memory of its own.

        ``read`` are the values that something else takes.
        """
        takers = Counter(self._made_as(entry.value) for step in self._flow.steps for entry in step.inputs)
        takers.update(map(self._made_as, read))
        found: set[int] = set()
        for index, step in enumerate(self._flow.steps):
            made = [self._made_as(entry.value) for entry in step.inputs]
            lent = [value for kind, value in zip(step.kinds, made, strict=False) if kind != "data"]
            is_own = all(takers[value] == 1 for value in lent)
            is_own &= all(value.maker in found or self._is_of_numbers(step, value) for value in made)
            if step.call is None and not step.failed and is_own:
                found.add(index)
        return found

    def _is_of_numbers(self, step: Step, value: Value) -> bool:
        """Whether a step takes a tensor that torch has made of the numbers of a program."""
        is_first = step.func is MADE_OF_NUMBERS and value.maker == FROM_OUTSIDE
        return is_first and not self._flow.outside[value.number].copied

    def _is_wanted(self, step: Step) -> bool:
        """Whether what nothing takes may be what all this was made for: no update of a parameter or from outside."""
        written = [read.value for kind, read in zip(step.kinds, step.inputs, strict=False) if kind == "inplace"]
        return bool(step.inputs) and all(self._is_made(value) for value in written)

    def _is_made(self, value: Value) -> bool:
        """Whether the memory that a value is in was made by an operation."""
        while value.maker != FROM_OUTSIDE:
            step = self._flow.steps[value.maker]
            lent = [read.value for kind, read in zip(step.kinds, step.inputs, strict=False) if kind != "data"]
            if not lent:
                return True
            value = lent[0]
        outside = self._flow.outside[value.number]
        return outside.shared is not None and outside.role != "parameter"

    def _add_step(self, index: int, step: Step) -> None:
        operation = _operation(step.func)
        scope = self._scope_of(step.call)
        node_id = self._ids[index] = self._allocator.function(scope, operation)
        attrs = {name: plain_value(value, self._symbols) for name, value in step.constants}
        variables = (self._flow.variables.get(Value(index, number)) for number in range(len(step.outputs)))
        self._nodes.append(
            Node(
                node_id,
                op=operation,
                native=str(step.func),
                scope=scope,
                names=tuple(dict.fromkeys(plain_text(name) for name in variables if name is not None)),
                inputs=tuple(map(self._read, step.inputs)),
                kinds=step.kinds,
                outputs=step.outputs,
                attrs=attrs,
                source=None if step.place is None else self._lines(step.place.code, step.place.instruction),
                opaque=isinstance(step.func, CompiledPart),
                ext=_failed(step.failed),
            )
        )

    def _add_exit(self, found: Exit) -> None:
        scope = self._scope_of(found.call)
        self._nodes.append(
            Node(
                self._allocator.function(scope, found.called),
                op=found.called,
                native=found.called,
                scope=scope,
                inputs=tuple(map(self._read, found.reads)),
                source=None if found.place is None else self._lines(found.place.code, found.place.instruction),
                ext=_failed(found.failed),
            )
        )

    def _read(self, read: Read) -> Ref:
        value = read.value
        tensor = self._made.get(value) if read.is_leaf else None
        if tensor is None:
            return self._ref(value)
        known = self._made_ids.get(value)
        if known is None:
            meta = self._flow.steps[value.maker].outputs[value.number]
            known = self._add_tensor(tensor, "parameter", meta, value)
            self._made_ids[value] = known
        return Ref(known, 0)

    def _ref(self, value: Value) -> Ref:
        if value.maker == FROM_OUTSIDE:
            outside = self._flow.outside[value.number]
            if outside.shared is None or outside.role != "input":
                known = self._outside_ids.get(value.number)
                if known is None:
                    known = self._outside_ids[value.number] = self._add_outside(outside)
                return Ref(known, 0)
            # Another object for the same tensor.
            value = outside.shared
        return Ref(self._ids[value.maker], value.number)

    def _add_outside(self, outside: Outside) -> str:
        return self._add_tensor(outside.tensor(), outside.role, outside.meta, outside.shared)

    def _add_tensor(self, tensor: torch.Tensor | None, role: str, meta: TensorMeta, shared: Value | None) -> str:
        _, names, scope, is_registered = (None, (), "", False) if tensor is None else self._named.of(tensor)
        if role != "parameter" and (names or scope):
            role = "parameter" if is_registered else "buffer"
        node_id = self._allocator.tensor(names[0]) if names else self._allocator.function("", role)
        inputs, kinds = ((self._ref(shared),), ("view",)) if shared is not None else ((), ())
        self._nodes.append(Node(node_id, role, scope=scope, names=names, inputs=inputs, outputs=(meta,), kinds=kinds))
        return node_id

    def _add_outputs(self, ends: Sequence[int]) -> None:
        for place, index in enumerate(ends):
            node_id = self._allocator.output(str(place) if len(ends) > 1 else "")
            outputs = self._flow.steps[index].outputs[:1]
            self._nodes.append(Node(node_id, "output", inputs=(Ref(self._ids[index], 0),), outputs=outputs))


def _failed(error: str) -> dict[str, str]:
    return {FAILED: plain_text(error)} if error else {}


def _operation(func: Any) -> str:
    """The name of an operation without its namespace and overload."""
    return plain_text(str(getattr(func, "__name__", type(func).__name__)).partition(".")[0])


def _is_among(read: Set[Value], index: int, step: Step) -> bool:
    return any(Value(index, number) in read for number in range(len(step.outputs)))


def _is_for_saving(step: Step) -> bool:
    return _operation(step.func) == "detach" and step.called not in _ASKED_FOR


def _gives_nothing(step: Step) -> bool:
    """Whether an operation only asks for what a tensor is, such as its device, and looks at no value."""
    return not (step.outputs or step.failed) and torch.Tag.data_dependent_output not in getattr(step.func, "tags", ())


def _is_of(found: Exit, step: Step) -> bool:
    """Whether a step is what a function that reads a number runs."""
    return _operation(step.func) == READS_A_NUMBER and step.inputs == found.reads
