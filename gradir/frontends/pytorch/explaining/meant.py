"""Stops that belong to a pattern which wants them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from gradir.frontends.pytorch.explaining.cuts import Flowing, Stop
from gradir.frontends.pytorch.private import SPECTRAL_NORM
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value

__all__ = ["Meant", "is_own_of_torch"]

_ASKED_FOR: Final = frozenset({"data", "detach", "no_grad"})
_ADDING: Final = frozenset({"add", "add_"})
_SUBTRACTING: Final = frozenset({"sub", "sub_"})
_LARGEST: Final = frozenset({"amax", "max"})
_SAME_NUMBERS: Final = frozenset({"alias", "detach", "expand", "squeeze", "unsqueeze", "view"})


_SAMPLING: Final = "gumbel_softmax"


class _Use(NamedTuple):
    step: int
    slot: int


class Meant:
    """Recognises patterns by the values themselves: what takes a value, and what else it takes.

    Whoever reads the value otherwise, and what was captured depends on that, makes it none of them.
    """

    def __init__(self, flow: Flow, flowing: Flowing) -> None:
        self._flow = flow
        self._flowing = flowing
        self._uses: dict[Value, list[_Use]] = {}
        self._originals: dict[Value, Value] = {}
        # A view of a leaf, taken under no_grad, counts as a leaf too.
        self._owners: dict[Value, Value] = {}
        for index, step in enumerate(flow.steps):
            if _name(step) in _SAME_NUMBERS and len(step.inputs) == 1:
                self._originals[Value(index, 0)] = self._original(step.inputs[0].value)
            if "view" in step.kinds:
                viewed = flowing.root(step.of_kind("view")[0].value)
                self._owners[Value(index, 0)] = self._owners.get(viewed, viewed)
            if not flowing.wanted.isdisjoint(flow.made_by(index)):
                for slot, read in enumerate(step.inputs):
                    self._uses.setdefault(read.value, []).append(_Use(index, slot))
        self._averages = set(self._moved_averages())

    def pattern(self, stop: Stop) -> str:
        """The name of the pattern that a stop belongs to, or nothing."""
        if stop.kind not in _ASKED_FOR or stop.value.maker == FROM_OUTSIDE or stop.value in self._flowing.ends:
            return ""
        if (
            stop.kind == "no_grad"
            and stop.leaves
            and all(self._owners.get(leaf, leaf) in self._averages for leaf in self._flowing.members(stop.leaves))
        ):
            return "target network"
        if self._is_largest(stop):
            return "subtracted maximum"
        if stop.kind == "no_grad":
            return ""
        source = self._flowing.sources(stop.value)[0]
        if self._is_added_back(stop.value, source.value) or self._is_taken_out(stop.value, source.value):
            return "straight-through"
        return "stop-gradient" if self._is_only_less(stop.value, source.value) else ""

    def _is_added_back(self, value: Value, source: Value) -> bool:
        """``x + (q - x).detach()``, or ``x - (x - q).detach()``."""
        made = self._flow.step_of(source)
        if made is None or not _is(made, _SUBTRACTING):
            return False
        left, right = (read.value for read in made.inputs)
        return self._all_used(value, lambda use: self._other(use, _ADDING) == right) or self._all_used(
            value, lambda use: use.slot == 1 and self._other(use, _SUBTRACTING) == left
        )

    def _is_taken_out(self, value: Value, source: Value) -> bool:
        """``q - x.detach() + x``."""

        def adds_it(use: _Use) -> bool:
            return self._other(use, _ADDING) == source

        def takes_it_out(use: _Use) -> bool:
            step = self._flow.steps[use.step]
            is_other = use.slot == 1 and _is(step, _SUBTRACTING) and step.inputs[0].value != source
            return is_other and self._all_used(Value(use.step, 0), adds_it)

        return self._all_used(value, takes_it_out)

    def _is_only_less(self, value: Value, source: Value) -> bool:
        """``a - a.detach()``, which is zero and has the gradient of ``a``."""
        return self._all_used(value, lambda use: self._other(use, _SUBTRACTING) == source)

    def _is_largest(self, stop: Stop) -> bool:
        """``x - x.amax().detach()``, the maximum of detached numbers or under no_grad."""
        value, whose = stop.value, self._original(stop.value)
        made = self._flow.step_of(whose)
        if made is not None and _name(made) in _LARGEST and len(made.inputs) == 1 and whose.number == 0:
            return self._is_subtracted(value, self._original(made.inputs[0].value))
        uses = self._uses.get(value, ())
        return bool(uses) and all(
            _name(self._flow.steps[use.step]) in _LARGEST
            and len(self._flow.steps[use.step].inputs) == 1
            and self._is_subtracted(Value(use.step, 0), whose)
            for use in uses
        )

    def _is_subtracted(self, value: Value, source: Value) -> bool:
        waiting, found = [value], False
        while waiting:
            value = waiting.pop()
            for use in self._uses.get(value, ()):
                step = self._flow.steps[use.step]
                if _name(step) in _SAME_NUMBERS and len(step.inputs) == 1:
                    waiting.append(Value(use.step, 0))
                    continue
                other = self._other(use, _SUBTRACTING)
                if use.slot != 1 or other is None or self._original(other) != source:
                    return False
                found = True
        return found

    def _original(self, value: Value) -> Value:
        """The value whose numbers a value has."""
        return self._originals.get(value, value)

    def _all_used(self, value: Value, fits: Callable[[_Use], bool]) -> bool:
        """Whether something takes a value, and nothing that does not fit."""
        uses = self._uses.get(value, ())
        return bool(uses) and value not in self._flowing.ends and all(map(fits, uses))

    def _other(self, use: _Use, names: Collection[str]) -> Value | None:
        """What an operation of two operands adds or subtracts beside the one used, if that carries a gradient."""
        step = self._flow.steps[use.step]
        if not _is(step, names):
            return None
        read = step.inputs[1 - use.slot]
        return read.value if read.carries and step.mode == "grad" else None

    def _moved_averages(self) -> Iterator[Value]:
        """Leaves that are written to from other leaves under no_grad, and that nothing captured has a gradient for."""
        written: dict[Value, None] = {}
        trained: set[Value] = set()
        for index, step in enumerate(self._flow.steps):
            leaves = [self._flowing.root(read.value) if read.is_leaf else None for read in step.inputs]
            wanted = not self._flowing.wanted.isdisjoint(self._flow.made_by(index))
            if step.mode == "grad" and wanted:
                trained.update(leaf for leaf in leaves if leaf is not None)
            elif step.mode == "no_grad" and "inplace" in step.kinds:
                target = leaves[step.kinds.index("inplace")]
                if target is not None and any(leaf not in (None, target) for leaf in leaves):
                    written[target] = None
        return (leaf for leaf in written if leaf not in trained)


def is_own_of_torch(stop: Stop) -> bool:
    """Whether torch cuts for a function of its own, which has its gradient another way, or copies a parameter."""
    if stop.kind == "data":
        return stop.step.place is not None and stop.step.place.code is copy.deepcopy.__code__
    if stop.kind == "detach":
        # A program's own has that name.
        return stop.step.called == _SAMPLING
    call = stop.step.call
    return stop.kind == "no_grad" and call is not None and type(call.module).__name__ == SPECTRAL_NORM


def _name(step: Step) -> str:
    return str(step.func.__name__).partition(".")[0]


def _is(step: Step, names: Collection[str]) -> bool:
    """Whether a step adds or subtracts two tensors as they are."""
    return _name(step) in names and len(step.inputs) == 2 and dict(step.constants).get("alpha", 1) == 1
