"""Find the steps of a recording that only initialised parameters and buffers, which are no part of the forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

import torch

from gradir.frontends.pytorch.reading.tensors import Owned
from gradir.frontends.pytorch.recording.flow import MADE_OF_NUMBERS, Flow
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, INPLACE, Exit, Read, Step, Value, plain_name
from gradir.frontends.pytorch.recording.timelines import Frame, calls_from
from gradir.ir.memo import group_by_key


class Made(NamedTuple):
    """A parameter or buffer that the recorded program made of a ``value``; the tensor is ``None`` if it is dead."""

    tensor: torch.Tensor | None
    role: str
    value: Value


class Initialisation:
    """The first values of parameters and buffers, and the steps that only lead to these.

    Initialisation ends when a module, or an operation with gradient, first uses the tensor. A module that builds others
    initialises its own parameters and their buffers. The check when a parametrization is registered is no use.
    """

    def __init__(self, flow: Flow, owned: Iterable[Owned], scope_of: Callable[[Frame | None], str]) -> None:
        self._flow = flow
        owned = list(owned)
        # The storages that parameters and buffers of lazy modules get, by their former values.
        self.lazy: dict[Value, Value] = {}
        for read, new in (found.reads for found in flow.exchanges):
            before = flow.outside[read.value.number] if read.value.maker == FROM_OUTSIDE else None
            if before is not None and before.meta.shape is None:
                self.lazy[before.shared or read.value] = new.value
        self._roots: dict[Value, Value] = {**self.lazy}
        # The call in which each step ran, without the checks of parametrizations.
        calls = ((call for call in calls_from(step.call) if not call.checks) for step in flow.steps)
        self._calls = [next(around, None) for around in calls]
        made_later = (value for value in self.lazy.values() if value.maker != FROM_OUTSIDE)
        self._call_of = {value: self._calls[value.maker] for value in made_later}
        self._written_at: dict[Value, int] = {}
        numbers = (step.inputs for step in flow.steps if step.func is MADE_OF_NUMBERS)
        self._numbers = {read.value for reads in numbers for read in reads}
        for index, step in enumerate(flow.steps):
            if lenders := step.lenders():
                self._roots.update(dict.fromkeys(flow.values_of_step(index), self._root(lenders[0])))
            self._written_at.update((self._root(read.value), index) for read in step.inputs_of_kind(INPLACE))
            for value in (*flow.values_of_step(index), *(read.value for read in step.inputs)):
                self._call_of.setdefault(self._root(value), self._calls[index])
        self._made = self._find_all_made(owned)
        scopes = {id(entry.tensor): entry.scope for entry in owned}
        # The child of the call that has the parameter or buffer, by storage.
        self._below = {
            root: _child_of(scope_of(call), scopes.get(id(made.tensor)))
            for root, made in self._made.items()
            if (call := self._call_of.get(root)) is not None
        }
        self._drop_computed_buffers()
        self._carrying = self._find_carrying()
        # The steps that initialise, and those of them that read such a tensor or a result of such a read.
        self.steps: set[int] = set()
        self._touching: set[int] = set()
        # The initialising steps that check a parametrization.
        self.checks: set[int] = set()
        self._first = {root: [root] for root in self._made if root.maker == FROM_OUTSIDE}
        self._used_at: dict[Value, int] = {}
        for index, step in enumerate(flow.steps):
            self._classify(index, step)
        self._made = {root: self._made[root] for root in self._first}
        found = group_by_key((value, self._made[root]) for root, values in self._first.items() for value in values)
        self._by_first_value = {value: several[0] for value, several in found.items() if len(several) == 1}

    def find_made(self, value: Value) -> Made | None:
        """Return the parameter or buffer whose first value this is."""
        value = self.resolve(value)
        return self._by_first_value.get(self.lazy.get(value, value))

    def resolve(self, value: Value) -> Value:
        """Return a value, or the value of the step that made the tensor if this is a second object for it."""
        return value if value.maker != FROM_OUTSIDE else self._flow.outside[value.number].shared or value

    def is_of_made(self, value: Value) -> bool:
        """Return whether a value shares the storage of such a parameter or buffer."""
        return self._root(value) in self._made

    def role_of(self, value: Value) -> str:
        """Return the role of the tensor with the storage of a value, or an empty string for other new storages."""
        root = self._root(value)
        if root in self._made:
            return self._made[root].role
        is_made = root.maker != FROM_OUTSIDE or root in self._numbers
        return "" if is_made else self._flow.outside[root.number].role

    def is_overwritten(self, value: Value) -> bool:
        """Return whether a later step writes to the storage of a value."""
        return self._written_at.get(self._root(value), value.maker) > value.maker

    def initialises(self, index: int) -> bool:
        """Return whether a step allocates or writes to the storage of such a tensor before its first use."""
        return index in self.steps and any(map(self.is_of_made, self._flow.values_of_step(index)))

    def is_of_initialising(self, found: Exit) -> bool:
        """Return whether a function reads only values that serve an initialisation."""

        def is_initialising(value: Value) -> bool:
            root, before = self._root(value), found.before
            if value.maker in self._touching or self._is_made_of_numbers(root):
                return True
            return root in self._made and before <= self._used_at.get(root, before)

        others = [read.value for read in found.reads if not is_initialising(read.value)]
        return len(others) < len(found.reads) and self.steps.issuperset(value.maker for value in others)

    def _find_carrying(self) -> set[int]:
        """Return the steps that pass a gradient on, without the checks of parametrizations."""
        flow = self._flow
        carrying, carried = set[int](), set[Value]()
        used = {read.value for step in flow.steps for read in step.inputs}
        for index in range(len(flow.steps) - 1, -1, -1):
            step, outputs = flow.steps[index], flow.values_of_step(index)
            if step.mode != "grad" or step.call is not self._calls[index] or plain_name(step.func) == "detach":
                continue
            # A step that only uses the shape of a tensor passes nothing on.
            if not (used.issuperset(outputs) and carried.isdisjoint(outputs)):
                carried.update(read.value for read in step.inputs if read.carries)
                carrying.add(index)
        return carrying

    def _find_all_made(self, owned: Iterable[Owned]) -> dict[Value, Made]:
        """Return the tensors that share their storage with no other one, by the first value of the storage."""
        found: dict[Value, dict[int, Made]] = {}
        for made in self._candidates(owned):
            root = self._root(made.value)
            if root.maker != FROM_OUTSIDE or self._is_made_of_numbers(root):
                key = id(made) if made.tensor is None else id(made.tensor)
                found.setdefault(root, {}).setdefault(key, made)
        alone: dict[Value, Made] = {}
        for root, several in found.items():
            # A parametrization replaces a parameter by a new one with the same storage.
            living = [made for made in several.values() if made.tensor is not None] or [*several.values()]
            if len(living) == 1:
                alone[root] = living[0]
        return alone

    def _drop_computed_buffers(self) -> None:
        """Drop the buffers that a call made, except those of lazy modules and of modules that the call built."""
        built = {self._below.get(root) for root, made in self._made.items() if made.role == "parameter"} - {None}
        lazy = {*self.lazy.values()}
        for root, child in self._below.items():
            if self._made[root].role != "parameter" and root not in lazy and child not in built:
                del self._made[root]

    def _candidates(self, owned: Iterable[Owned]) -> Iterator[Made]:
        flow = self._flow
        for number, outside in enumerate(flow.outside):
            if outside.role == "parameter" and not outside.copied:
                yield Made(outside.tensor(), "parameter", outside.shared or Value(FROM_OUTSIDE, number))
        for value, tensor in flow.find_made_parameters().items():
            yield Made(tensor, "parameter", value)
        for entry in owned:
            last = flow.find_value(entry.tensor) or flow.newest_in(entry.tensor)
            if last is not None:
                yield Made(entry.tensor, "input", last)

    def _classify(self, index: int, step: Step) -> None:
        outputs, call = self._flow.values_of_step(index), self._calls[index]
        is_check = not step.failed and step.call is not call
        # The results of checks pass no gradient on.
        carried = {read.value.maker for read in step.inputs if read.carries}
        carries = index in self._carrying and not carried <= self.checks
        is_free = is_check or not (step.failed or step.called == "step" or carries)
        written = {self._root(read.value) for read in step.inputs_of_kind(INPLACE)}
        is_write = bool(written) and all(self._is_unused(root) and self._call_of[root] is call for root in written)
        if is_free and not is_check and not (is_write and call is None):
            is_free = all(map(self._is_initial, step.inputs, step.kinds or repeat("data"), repeat(call), repeat(index)))
        if not is_free:
            for value in (*outputs, *(read.value for read in step.inputs)):
                self._used_at.setdefault(self._root(value), index)
            return
        self.steps.add(index)
        if is_check or any(read.value.maker in self.checks for read in step.inputs):
            self.checks.add(index)
        if any(self.is_of_made(read.value) or read.value.maker in self._touching for read in step.inputs):
            self._touching.add(index)
        if is_write:
            self._first.update((root, outputs[:1]) for root in written)
            return
        for value in outputs:
            root = self._root(value)
            if self._is_unused(root) and value in {root, self._made[root].value}:
                # The write determines the value, even if the tensor is made of a view.
                self._first[root] = [known for known in self._first.get(root, ()) if known != root] + [value]

    def _is_unused(self, root: Value) -> bool:
        return root in self._made and root not in self._used_at

    def _is_initial(self, read: Read, kind: str, call: Frame | None, index: int) -> bool:
        """Return whether an input of an operation is being initialised in the same call, or outside all calls."""
        value, root = read.value, self._root(read.value)
        if index < self.lazy.get(self.resolve(value), value).maker:
            # The lazy tensor is not materialized yet.
            return True
        if root in self._made:
            # A running module may write to its own tensor, but a read counts as a use.
            is_its_own = kind == "data" and self._below.get(root, "") is None
            return self._is_unused(root) and self._call_of[root] is call and not is_its_own
        if value.maker in self.steps:
            return self._calls[value.maker] is call
        return self._is_made_of_numbers(self._root(value)) or (call is None and self.role_of(value) == "parameter")

    def _is_made_of_numbers(self, value: Value) -> bool:
        return value in self._numbers and value.maker == FROM_OUTSIDE and not self._flow.outside[value.number].copied

    def _root(self, value: Value) -> Value:
        value = self.resolve(value)
        return self._roots.get(value, value)


def _child_of(running: str, scope: str | None) -> str | None:
    """Return the path of the running module's child that contains a scope, or ``None``."""
    if scope is None:
        return ""
    start = f"{running}." if running else ""
    if scope == running or not scope.startswith(start):
        return None
    return start + scope[len(start) :].partition(".")[0]
