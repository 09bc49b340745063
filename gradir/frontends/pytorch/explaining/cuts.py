"""Where values that carry a gradient go on without it, on the way to what was captured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import torch

from gradir.frontends.pytorch.recording.flow import FROM_OUTSIDE, Exit, Flow, Read, Step, Value

__all__ = ["EXPLICIT", "Flowing", "Leaving", "Stop"]

EXPLICIT: Final = frozenset({"data", "detach", "inference_mode", "new_leaf", "no_grad", "rebuilt", "sample"})
"""Kinds that a program asks for; the others follow from what its operations are."""

_DERIVING: Final = frozenset({"backward", "grad"})
_OF_SHAPE_ALONE: Final = ("empty", "full", "new_", "ones", "rand", "zeros")
"""How the names of operations begin that take the shape and the type of a tensor alone."""


class Stop(NamedTuple):
    """A value that carries no gradient although what it is made of does.

    ``step`` is the operation, or the first that takes the value where none made it; ``leaves`` are those behind it.
    """

    kind: str
    value: Value
    step: Step
    leaves: tuple[Value, ...]


class Leaving(NamedTuple):
    """A function that read the numbers of tensors, with the leaves that these were computed of."""

    exit: Exit
    leaves: tuple[Value, ...]


class Flowing:
    """How the captured tensors are computed of the leaves, with and without gradient.

    Every value is looked at a few times, whatever the number of leaves and stops.
    """

    def __init__(self, flow: Flow, captured: Iterable[torch.Tensor]) -> None:
        self._flow = flow
        self._roots: dict[Value, Value] = {}
        ends = [flow.read(tensor) for tensor in captured]
        self.ends = frozenset(read.value for read in ends)
        self.carrying = {read.value for read in self._reads(ends) if read.carries and not _is_fresh(read)}
        self._fresh = {read.value for read in self._reads(ends) if _is_fresh(read)}
        self.wanted = self._all_behind(ends)
        self.stops: list[Stop] = []
        self.exits: list[Leaving] = []
        self._leaves = _LeafSets()
        self._arriving: dict[Value, int] = {}
        self._find()

    def root(self, leaf: Value) -> Value:
        """What a leaf was before it was first updated."""
        passed = []
        while leaf not in self._roots and leaf.maker != FROM_OUTSIDE:
            step = self._flow.steps[leaf.maker]
            if not _updates_leaf(step):
                break
            passed.append(leaf)
            leaf = next(read.value for kind, read in zip(step.kinds, step.inputs, strict=False) if kind == "inplace")
        leaf = self._roots.get(leaf, leaf)
        self._roots.update(dict.fromkeys(passed, leaf))
        return leaf

    def leaves_behind(self, value: Value) -> tuple[Value, ...]:
        """The leaves that get a gradient through a value."""
        return self._leaves.members(self._arriving.get(value, 0))

    def _reads(self, ends: Iterable[Read]) -> Iterator[Read]:
        for step in self._flow.steps:
            yield from step.inputs
        for found in self._flow.exits:
            yield from found.reads
        yield from ends

    def sources(self, value: Value) -> tuple[Read, ...]:
        """What a value is computed of."""
        if value.maker != FROM_OUTSIDE:
            step = self._flow.steps[value.maker]
            return () if _takes_shape_alone(step) or _updates_leaf(step) else step.inputs
        outside = self._flow.outside[value.number]
        if outside.shared is not None:
            return (Read(outside.shared, outside.shared in self.carrying, is_leaf=False),)
        return outside.copied

    def _all_behind(self, ends: Iterable[Read]) -> set[Value]:
        found: set[Value] = set()
        waiting = [read.value for read in ends]
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                waiting.extend(read.value for read in self.sources(value))
        return found

    def _find(self) -> None:
        """Find every stop among what is wanted, and every exit, in the order of the program."""
        leaves = self._leaves
        # Of each value the leaves whose gradient would arrive through it, and those that it is computed of at all.
        behind = self._arriving
        origins: dict[Value, int] = {}
        for step_number, step in enumerate(self._flow.steps):
            for read in step.inputs:
                if read.value.maker == FROM_OUTSIDE and read.value not in behind:
                    self._add(read.value, step, behind, origins, leaves)
            for number in range(len(step.outputs)):
                self._add(Value(step_number, number), step, behind, origins, leaves)
        for found in self._flow.exits:
            left = 0
            for read in found.reads:
                left |= origins.get(read.value, 0) | self._behind(read, behind, leaves)
            if left:
                self.exits.append(Leaving(found, leaves.members(left)))

    def _add(
        self, value: Value, step: Step, behind: dict[Value, int], origins: dict[Value, int], leaves: _LeafSets
    ) -> None:
        arriving = computed = 0
        for read in self.sources(value):
            arriving |= self._behind(read, behind, leaves)
            computed |= origins.get(read.value, 0)
        computed |= arriving
        if arriving and value in self.wanted and value not in self.carrying and not step.inside:
            self.stops.append(Stop(self._kind_at(value, step), value, step, leaves.members(arriving)))
        behind[value] = arriving if value in self.carrying else 0
        origins[value] = computed

    def _kind_at(self, value: Value, step: Step) -> str:
        if value.maker != FROM_OUTSIDE:
            return _kind(step)
        return "rebuilt" if self._flow.outside[value.number].copied else "new_leaf"

    def _behind(self, read: Read, behind: dict[Value, int], leaves: _LeafSets) -> int:
        """The leaves whose gradient would arrive through a value, as a set of bits."""
        if not read.carries:
            return 0
        return leaves.of(self.root(read.value)) if read.is_leaf else behind.get(read.value, 0)


class _LeafSets:
    """Sets of leaves as the bits of integers, which are united at once."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}

    def of(self, leaf: Value) -> int:
        return 1 << self._numbers.setdefault(leaf, len(self._numbers))

    def members(self, bits: int) -> tuple[Value, ...]:
        return tuple(leaf for leaf, number in self._numbers.items() if bits >> number & 1)


def _is_fresh(read: Read) -> bool:
    """Whether a value was made of others and has no graph of its own, as behind ``detach().requires_grad_()``."""
    return read.is_leaf and read.value.maker != FROM_OUTSIDE


def _takes_shape_alone(step: Step) -> bool:
    name: str = step.func.__name__
    return name.startswith(_OF_SHAPE_ALONE) or name.partition(".")[0].endswith("_like")


def _updates_leaf(step: Step) -> bool:
    """Whether a leaf is written to, as an optimizer does; it stays the leaf that it was."""
    return any(kind == "inplace" and read.is_leaf for kind, read in zip(step.kinds, step.inputs, strict=False))


def _kind(step: Step) -> str:
    if torch.Tag.nondeterministic_seeded in step.func.tags:
        return "sample"
    if step.mode != "grad":
        return "no_create_graph" if step.called in _DERIVING else step.mode
    if step.func.__name__.startswith("detach"):
        return "data" if step.called == "data" else "detach"
    return "nondifferentiable"
