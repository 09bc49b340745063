"""Make a graph of the flow of a recorded forward."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch import nn

from gradir.frontends.pytorch.private import READS_A_NUMBER
from gradir.frontends.pytorch.reading.attributes import MetadataReader, Symbols, plain_value
from gradir.frontends.pytorch.reading.tensors import NamedTensors
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.initial import Initialisation
from gradir.frontends.pytorch.recording.modes import CompiledPart
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Exit, Read, Step, Value
from gradir.frontends.pytorch.recording.timelines import Frame
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import join_paths
from gradir.ir import Node, Ref, TensorMeta
from gradir.ir.ids import IdAllocator
from gradir.ir.marks import FAILED

_ScopeOf: TypeAlias = Callable[[Frame | None], str]
# Calls that detach for the program; torch detaches other tensors to save them.
_ASKED_FOR: Final = frozenset({"data", "detach", "detach_"})
# Functions that read a tensor, which may be an output of the program all the same.
_NUMBERS: Final = frozenset({"__complex__", "__float__", "__format__", "__int__", "item"})


def forward_nodes(
    flows: Iterable[Flow], named: NamedTensors, scope_of: _ScopeOf, returned: Sequence[torch.Tensor]
) -> list[Node]:
    """Return a node for each operation in order, and one for each tensor from outside before its first use."""
    allocator = IdAllocator()
    return [node for flow in flows for node in _Forward(flow, named, scope_of, allocator).nodes(returned)]


class _Forward:
    def __init__(self, flow: Flow, named: NamedTensors, scope_of: _ScopeOf, allocator: IdAllocator) -> None:
        self._flow, self._named, self._scope_of = flow, named, scope_of
        self._allocator, self._lines = allocator, ShownLines()
        self._symbols = Symbols()
        self._ids: dict[int, str] = {}
        self._tensor_ids: dict[Value, str] = {}
        self._made_parameters = flow.find_made_parameters()
        self._initial = Initialisation(flow, named.owned.values(), scope_of)
        self._metadata = MetadataReader()
        self._nodes: list[Node] = []

    def nodes(self, returned: Sequence[torch.Tensor]) -> list[Node]:
        flow = self._flow
        ends = [read for read in map(flow.read_again, returned) if read is not None]
        used, skipped = self._find_used_and_skipped(ends)
        exits = deque(found for found in flow.exits if not self._initial.is_of_initialising(found))
        for index, step in enumerate(flow.steps):
            while exits and exits[0].before <= index:
                found = exits.popleft()
                # The function may run this step to read a number.
                if found.before < index or not _is_number_read(step) or step.inputs != found.reads:
                    self._add(found, found.called, found.called, found.reads)
            if index in skipped:
                continue
            self._add_step(index, step)
            # An update of a parameter, or of a storage from outside, is no output.
            is_own = all(self._is_made(read.value) for read in step.inputs_of_kind("inplace"))
            if is_own and step.inputs and step.called not in _NUMBERS:
                ends.extend(Read(value, False, False) for value in self._find_results(index) if value not in used)
        for found in (*exits, *self._failures()):
            self._add(found, found.called, found.called, found.reads)
        refs = [*dict.fromkeys(map(self._read, ends))]
        made = {node.id: node.outputs for node in self._nodes}
        for place, ref in enumerate(refs):
            node_id = self._allocator.output(str(place) if len(refs) > 1 else "")
            self._nodes.append(Node(node_id, "output", inputs=(ref,), outputs=(made[ref.id][ref.output_nr],)))
        return self._nodes

    def _failures(self) -> list[Exit]:
        """Return the failed function or the error that ended the recording, unless the last operation failed."""
        flow = self._flow
        found = [end for end in (flow.failure, flow.end) if end is not None and end.before == len(flow.steps)]
        return [] if flow.steps and flow.steps[-1].failed else found[:1]

    def _find_results(self, index: int) -> list[Value]:
        """Return the values that a step returned to the program and that no step overwrote."""
        made = self._flow.values_of_step(index)
        # Further outputs of a kernel, such as indices, are for its backward.
        results = [value for value in made if value in self._flow.given] or made[:1]
        return [value for value in results if not (self._initial.is_overwritten(value) and self._is_made(value))]

    def _find_used_and_skipped(self, ends: Iterable[Read]) -> tuple[set[Value], set[int]]:
        """Return the values that other steps or functions use, and the steps that are no part of the forward."""
        flow = self._flow
        used, initial = {entry.value for failure in self._failures() for entry in failure.reads}, set[Value]()
        # An output of the program stays one even if functions read its values.
        shown = {value for entry in ends for value in self._find_values(entry)}
        for found in flow.exits:
            reads = [entry.value for entry in found.reads]
            is_initial = self._initial.is_of_initialising(found)
            into = initial if is_initial else shown if found.called in _NUMBERS else used
            into.update(reads, map(self._initial.resolve, reads))
        # Moving or casting a module allocates its parameters anew.
        initial.update(entry.value for found in flow.exchanges for entry in found.reads)
        # The use of a parameter belongs to the forward, but not its construction.
        used.update(other.shared for other in flow.outside if other.shared is not None and other.role != "parameter")
        used -= self._initial.lazy.keys()
        skipped: set[int] = set()
        for index in range(len(flow.steps) - 1, -1, -1):
            step, made = flow.steps[index], flow.values_of_step(index)
            if used.isdisjoint(made) and shown.isdisjoint(made) and not step.failed:
                # A step may read a number to initialise a tensor.
                asks = _is_number_read(step) or not step.outputs
                asks = asks and self._initial.is_of_initialising(Exit("", step.inputs, None, index))
                is_initial = (
                    index in self._initial.checks
                    or self._initial.initialises(index)
                    or (index in self._initial.steps and (asks or not initial.isdisjoint(made)))
                )
                is_for_saving = _operation(step.func) == "detach" and step.called not in _ASKED_FOR
                # A step without outputs that reads no value asks for a fact such as the device.
                is_data_free = torch.Tag.data_dependent_output not in getattr(step.func, "tags", ())
                gives_nothing = not step.outputs and is_data_free
                if is_initial or is_for_saving or gives_nothing or self._is_bookkeeping(step):
                    skipped.add(index)
                    if is_initial:
                        initial.update(self._initial.resolve(entry.value) for entry in step.inputs)
                    continue
            into = shown if step.called in _NUMBERS else used
            into.update(value for entry in step.inputs for value in self._find_values(entry))
        return used, skipped

    def _find_values(self, read: Read) -> tuple[Value, ...]:
        """Return the values of a tensor, or none for the first value of a parameter or buffer."""
        value = read.value
        return () if self._initial.find_made(value) is not None else (value, self._initial.resolve(value))

    def _is_bookkeeping(self, step: Step) -> bool:
        """Return whether a step with an unused result only makes a constant tensor, or increments a counter."""
        if not step.outputs or not all(kind == "inplace" for kind in step.kinds) or len(step.kinds) < len(step.inputs):
            return False
        values = [read.value for read in step.inputs]
        return all(self._initial.role_of(value) == "input" and not self._is_made(value) for value in values)

    def _is_made(self, value: Value) -> bool:
        """Return whether an operation allocated the storage of a value, and not for a parameter or buffer."""
        while value.maker != FROM_OUTSIDE and not self._initial.is_of_made(value):
            lenders = self._flow.steps[value.maker].lenders()
            if not lenders:
                return True
            value = lenders[0]
        if self._initial.is_of_made(value):
            return False
        outside = self._flow.outside[value.number]
        return outside.shared is not None and outside.role != "parameter"

    def _add_step(self, index: int, step: Step) -> None:
        attrs = {name: plain_value(value, self._symbols) for name, value in step.constants}
        if step.values is not None:
            attrs["values"] = plain_value(step.values)
        variables = map(self._flow.variables.get, self._flow.values_of_step(index))
        self._ids[index] = self._add(
            step,
            _operation(step.func),
            str(step.func),
            step.inputs,
            names=tuple(dict.fromkeys(plain_text(name) for name in variables if name is not None)),
            kinds=step.kinds,
            outputs=step.outputs,
            attrs=attrs,
            opaque=isinstance(step.func, CompiledPart),
        )

    def _add(self, found: Step | Exit, op: str, native: str, reads: Iterable[Read], **fields: Any) -> str:
        """Add the node of an operation or another function, and return its id."""
        scope, place = self._scope_of(found.call), found.place
        node_id = self._allocator.function(scope, op)
        inputs = tuple(map(self._read, reads))
        source = None if place is None else self._lines(place.code, place.instruction)
        ext = {FAILED: plain_text(found.failed)} if found.failed else {}
        node = Node(node_id, op=op, native=native, scope=scope, inputs=inputs, source=source, ext=ext, **fields)
        self._nodes.append(node)
        return node_id

    def _read(self, read: Read) -> Ref:
        value = read.value
        made = self._initial.find_made(value)
        if made is not None:
            tensor = made.tensor
            meta = self._flow.meta_of(made.value) if tensor is None else self._metadata.read_tensor(tensor)
            return self._tensor(made.value, tensor, made.role, meta)
        tensor = self._made_parameters.get(value) if read.is_leaf else None
        if tensor is None:
            return self._ref(value)
        return self._tensor(value, tensor, "parameter", self._flow.meta_of(value), shared=value)

    def _ref(self, value: Value) -> Ref:
        if value.maker == FROM_OUTSIDE:
            outside = self._flow.outside[value.number]
            if outside.shared is None or outside.role != "input":
                known, meta, role, _, shared, owner, *_ = outside
                return self._tensor(value, known(), role, meta, shared=shared, owner=owner)
            # A second object for the same tensor.
            value = outside.shared
        return Ref(self._ids[value.maker], value.number)

    def _tensor(
        self,
        key: Value,
        tensor: torch.Tensor | None,
        role: str,
        meta: TensorMeta,
        *,
        shared: Value | None = None,
        owner: tuple[nn.Module, str] | None = None,
    ) -> Ref:
        """Return the output of the tensor's node, which the first use adds."""
        if key in self._tensor_ids:
            return Ref(self._tensor_ids[key], 0)
        _, names, scope, is_registered = (None, (), "", False) if tensor is None else self._named.of(tensor)
        if not names and owner is not None:
            module, name = owner
            scope = self._scope_of(Frame(module, None, ()))
            names = (plain_text(join_paths(scope, name)),)
        if role != "parameter" and tensor is not None and id(tensor) in self._named.owned_ids:
            role = "parameter" if is_registered else "buffer"
        node_id = self._allocator.tensor(names[0]) if names else self._allocator.function("", role)
        self._tensor_ids[key] = node_id
        inputs, kinds = ((self._ref(shared),), ("view",)) if shared is not None else ((), ())
        self._nodes.append(Node(node_id, role, scope=scope, names=names, inputs=inputs, outputs=(meta,), kinds=kinds))
        return Ref(node_id, 0)


def _operation(func: Any) -> str:
    return plain_text(str(getattr(func, "__name__", type(func).__name__)).partition(".")[0])


def _is_number_read(step: Step) -> bool:
    return _operation(step.func) == READS_A_NUMBER
