"""Find the values that lose their gradient on the way to the captured tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, reduce
from operator import or_
from types import CodeType
from typing import Final, NamedTuple, TypeAlias

import torch

from gradir.frontends.pytorch.explaining import bytecode, step_kinds
from gradir.frontends.pytorch.explaining.step_kinds import find_updated_leaves, kind_of
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.modes import CompiledPart
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Exit, Read, Step, Value, plain_name
from gradir.frontends.walks import compute_bottom_up, find_reachable
from gradir.ir.memo import group_by_key

At: TypeAlias = "tuple[str, Place | None]"
"""A name or a kind, and a place."""

_DIFFERENTIABLE: Final = ("bfloat", "complex", "float")
_CONDITION: Final = "__bool__"


class Stop(NamedTuple):
    """A value that carries no gradient although its sources do."""

    kind: str
    value: Value
    # The operation that made the value, or else the first that takes it.
    step: Step
    # The leaves that lose their gradient, as bits for `Flowing.members`.
    leaves: int
    # Whether the program reads it as a Python number.
    is_read: bool = False

    @property
    def place(self) -> Place | None:
        """Return the line of the cut, or of the block without gradients around it."""
        return (self.step.block if self.kind == "no_grad" else None) or self.step.place


class Leaving(NamedTuple):
    """A function that read numbers computed from leaves. It is unsure if a call, such as a logger's, got the number."""

    exit: Exit
    leaves: int
    is_sure: bool


class Flowing:
    """The computation of the captured tensors from the leaves, with and without gradient."""

    # Sets of leaves are the bits of an integer, so the union of two sets is one operation. The number of visits of a
    # value does not depend on the number of leaves and stops. Its set is dropped after the last use of the value.

    def __init__(self, flow: Flow, captured: Sequence[torch.Tensor]) -> None:
        self.flow = flow
        self._kinds = step_kinds.Kinds(flow.steps)
        self._data_of = step_kinds.find_data_leaves(flow)
        self._roots: dict[Value, Value] = {}
        self._places = dict(step_kinds.find_read_indices(flow))
        ends = [flow.read(tensor) for tensor in captured]
        self.ends = frozenset(read.value for read in ends)
        self._leaf_values = {read.value for read in self._reads(ends) if read.is_leaf}
        # torch restores the graph of a saved tensor when it computes a derivative.
        self.saved = frozenset(step_kinds.find_results_saved_by_torch(flow))
        self.carrying = {read.value for read in self._reads(ends) if read.carries and not self._is_fresh(read)}
        read = {read.value for read in self._reads(ends)}
        shared = (outside.shared for outside in flow.outside if outside.shared is not None)
        self.carrying.update(self.saved, (value for value in shared if value not in read and self.should_carry(value)))

        def find_sources(value: Value) -> list[Value]:
            # An updated leaf leads to its first value, and not to the sources of the update.
            return [self.root(value), *(read.value for read in self.sources(value))]

        self.wanted = set(find_reachable(self.ends, find_sources))
        self.unseen = set(step_kinds.find_unseen_ends(flow, captured))
        # No recorded step made these values or their storage, although they have a grad_fn.
        outside = (value for value in self.carrying & self.wanted - self._leaf_values if value.maker == FROM_OUTSIDE)
        self.unseen.update(value for value in outside if flow.outside[value.number].shared is None)
        self._left_functions = set(self._leaving_functions(ends))
        self.stops: list[Stop] = []
        # The first exit at each place with the leaves of all its runs, and the leaves whose values a leaf is set to.
        self.exits: dict[At, Leaving] = {}
        self.puttings: dict[At, int] = {}
        # Whether compiled parts compute wanted values, and the leaves that they are known to take.
        self.has_compiled, self.compiled = False, 0
        # Keyed by identity, since code takes long to hash.
        self._known_uses: dict[tuple[int, int], str] = {}
        self._first_made: dict[Value, Value | None] = {}
        self._of_leaves: dict[Value, bool] = {}
        self._leaves: dict[Value, int] = {}
        self._listed: list[Value] = []
        self.terms = list(step_kinds.find_terms(flow, [read.value for read in ends]))
        # The leaves whose gradient would arrive through each value, and all leaves that it is computed from.
        self._arriving: dict[Value, int] = {}
        self._origins: dict[Value, int] = {}
        self._find()

    @property
    def is_whole(self) -> bool:
        """Whether the recording has all sources of the captured tensors."""
        return not self.unseen

    def may_be_inside(self, leaf: Value) -> bool:
        """Return whether a compiled part, which may hide its leaves, may compute the captured tensors from a leaf."""
        return leaf in self.known_inside or (self.has_compiled and leaf not in self.taken)

    @cached_property
    def taken(self) -> set[Value]:
        """The inputs of all operations."""
        return {read.value for step in self.flow.steps for read in step.inputs}

    @cached_property
    def first_takers(self) -> dict[Value, int]:
        """The first step that takes each leaf and does not write to it, unlike an initialization."""
        found: dict[Value, int] = {}
        for index, step in enumerate(self.flow.steps):
            written = step.inputs_of_kind("inplace")
            for read in step.inputs:
                if read.is_leaf and read not in written:
                    found.setdefault(self.root(read.value), index)
        return found

    @cached_property
    def known_inside(self) -> set[Value]:
        """The leaves that compiled parts are known to take."""
        return set(self.members(self.compiled))

    def root(self, leaf: Value) -> Value:
        """Return the value of a leaf before its first update."""
        updates = []
        while leaf not in self._roots and (previous := self._find_previous(leaf)) is not None:
            updates.append(leaf)
            leaf = previous
        leaf = self._roots.get(leaf, leaf)
        self._roots.update(dict.fromkeys(updates, leaf))
        return leaf

    def _find_previous(self, leaf: Value) -> Value | None:
        """Return the value of a leaf before a step, if that step writes to it or to its ``.data``."""
        step = self.flow.step_of(leaf)
        if step is None or "inplace" not in step.kinds:
            return None
        read = step.inputs_of_kind("inplace")[0]
        if find_updated_leaves(step):
            return read.value
        return None if read.is_leaf else self._data_of.get(read.value.maker)

    def owner_of(self, value: Value) -> Value:
        """Return the base of a view, or of a leaf made by one, before its first update."""
        return self.root(self.flow.owner_of(value))

    def leaf_of(self, read: Read) -> Value | None:
        """Return the leaf that a value is, or the leaf whose storage it shares without a graph, if any."""
        if read.is_leaf:
            return self.root(read.value)
        leaf = self._data_of.get(read.value.maker)
        return None if leaf is None else self.root(leaf)

    def leaves_behind(self, term: Value) -> list[Value]:
        """Return the leaves that get a gradient through a term of the captured tensors."""
        return self.members(self._arriving.get(term, 0))

    def members(self, *sets: int) -> list[Value]:
        """Return the leaves whose bits are set in any of these."""
        leaves = reduce(or_, sets, 0)
        first = (leaves & -leaves).bit_length() - 1
        bits = reversed(f"{leaves >> first:b}") if leaves else ()
        return [self._listed[number] for number, bit in enumerate(bits, first) if bit == "1"]

    def leaves_cut_by(self, stops: Iterable[Stop]) -> list[Value]:
        """Return the leaves whose gradient some stops cut."""
        return self.members(*(stop.leaves for stop in stops))

    def stops_by_place(self) -> dict[At, list[Stop]]:
        """Return the stops of each kind and place, in the order of the program."""
        return group_by_key(((stop.kind, stop.place), stop) for stop in self.stops)

    def should_carry(self, value: Value) -> bool:
        """Return whether a value that no operation took, such as the source of a new parameter, had a graph."""
        if value.maker == FROM_OUTSIDE:
            return False
        step = self.flow.steps[value.maker]
        is_number = (step.outputs[value.number].dtype or "").startswith(_DIFFERENTIABLE)
        return is_number and kind_of(step) == "nondifferentiable" and any(read.carries for read in step.inputs)

    def _is_fresh(self, read: Read) -> bool:
        """Return whether a value is a leaf made from other values, as by ``detach().requires_grad_()``."""
        if not read.is_leaf or read.value.maker != FROM_OUTSIDE:
            return read.is_leaf
        outside = self.flow.outside[read.value.number]
        return outside.shared is not None or bool(outside.copied or outside.left)

    def _reads(self, ends: Iterable[Read]) -> Iterator[Read]:
        for step in self.flow.steps:
            yield from step.inputs
        exits = (outside.left for outside in self.flow.outside if outside.left is not None)
        for found in (*self.flow.exits, *exits):
            yield from found.reads
        yield from ends

    def sources(self, value: Value) -> tuple[Read, ...]:
        """Return the values that a value is computed from."""
        if value.maker != FROM_OUTSIDE:
            step = self.flow.steps[value.maker]
            is_update = value in self._leaf_values and self.root(value) != value
            if is_update or step_kinds.takes_shape_alone(step) or find_updated_leaves(step):
                return ()
            return (*step.inputs, *self._places.get(value.maker, ()))
        outside = self.flow.outside[value.number]
        if outside.shared is not None:
            return (Read(outside.shared, outside.shared in self.carrying, is_leaf=False),)
        return outside.copied or tuple(step_kinds.undo_detach(self.flow, outside.left))

    def exchanges(self) -> Iterator[Exit]:
        """Yield the assignments to ``.data`` of tensors that the loss uses, except to move or load a module first."""
        first: dict[Value, int] = {}
        for index, step in enumerate(self.flow.steps if self.flow.exchanges else ()):
            if not self.wanted.isdisjoint(self.flow.values_of_step(index)):
                written = step.inputs_of_kind("inplace")
                for read in (read for read in step.inputs if read not in written):
                    first.setdefault(self.root(read.value), index)
        for exchange in self.flow.exchanges:
            value = self.root(exchange.reads[0].value)
            if first.get(value, exchange.before) < exchange.before or step_kinds.is_computed(
                self.flow, self.root, exchange.reads[1].value, value
            ):
                yield exchange

    def _find(self) -> None:
        known: set[Value] = set()
        last_uses = self._last_uses()
        for step_number, step in enumerate(self.flow.steps):
            for read in step.inputs:
                if read.value.maker == FROM_OUTSIDE and read.value not in known:
                    known.add(read.value)
                    self._add(read.value, step)
            for value in self.flow.values_of_step(step_number):
                self._add(value, step)
            self._find_putting(step_number, step)
            for value in last_uses.pop(step_number, ()):
                self._arriving.pop(value, None)
                self._origins.pop(value, None)
        for exchange in self.flow.exchanges:
            target, given = exchange.reads
            if self.root(target.value) in self.wanted:
                self._add_putting("an assignment to .data", exchange.place, target.value, [given])
        self._find_exits()

    def _find_exits(self) -> None:
        entry = bytecode.find_last_entry(self.flow, self.ends, self.wanted)
        last = max((value.maker for value in self.ends), default=FROM_OUTSIDE)
        stopped = reduce(or_, (stop.leaves for stop in self.stops), 0)
        moved = step_kinds.find_last_updates(self.flow.steps[: last + 1], self.root)
        newest = lru_cache(lambda leaves: max((moved.get(leaf, -1) for leaf in self.members(leaves)), default=-1))
        for found in self.flow.exits:
            leaves = reduce(or_, map(self._all_leaves, found.reads), 0)
            use = self._find_use(found) if leaves else bytecode.SHOWN
            if use == bytecode.COMPARED:
                # A branch on parameters alone is constant until they are trained, and trains none of them.
                matters = found.before <= last and all(map(self._is_of_parameters, found.reads))
            else:
                # Later numbers are not part of the captured tensors.
                matters = found.before <= entry and use != bytecode.SHOWN
            # A number that was read before an optimizer updated these leaves belongs to an earlier step.
            matters = matters and found.before > newest(leaves)
            is_number = use not in (bytecode.COMPARED, bytecode.PASSED)
            # A leaf that another operation stops, such as the detach of a teacher, is reported there only.
            lost = leaves & ~stopped
            if matters and is_number and lost and (made := self._find_integer(found)) is not None:
                # Integers have no gradient, so it ends at the operation that made them.
                step = self.flow.steps[made.maker]
                self.stops.append(
                    Stop("nondifferentiable", made, step_kinds.replace_by_function_call(step), lost, is_read=True)
                )
            elif matters:
                at = found.called.strip("_"), found.place
                first = self.exits.setdefault(at, Leaving(found, leaves, is_sure=use != bytecode.PASSED))
                self.exits[at] = first._replace(leaves=first.leaves | leaves)

    def _find_integer(self, found: Exit) -> Value | None:
        """Return the integers, made from values with a gradient, that a function's number is computed from."""
        made = next(filter(None, (self._find_made(read.value) for read in found.reads)), None)
        if made is None:
            return None
        dtype = self.flow.steps[made.maker].outputs[made.number].dtype or ""
        is_integer = dtype != "" and not dtype.startswith(_DIFFERENTIABLE)
        return made if is_integer and self._kinds.of(made.maker) == "nondifferentiable" else None

    def _find_made(self, start: Value) -> Value | None:
        """Return the first value, among the sources of one without gradient, that is made from values with one."""

        def is_made(value: Value) -> bool:
            step = self.flow.step_of(value)
            return step is not None and any(read.carries for read in step.inputs)

        def find_sources(value: Value) -> list[Value]:
            is_end = value in self.carrying or is_made(value)
            return [] if is_end else [read.value for read in self.sources(value)]

        def find_first(value: Value) -> Value | None:
            return value if is_made(value) else next(filter(None, map(self._first_made.get, find_sources(value))), None)

        # The results are shared, since a loop may read a number in each round.
        return compute_bottom_up(start, self._first_made, find_sources, find_first)

    def _find_putting(self, number: int, step: Step) -> None:
        if "inplace" in step.kinds and step.called != "step":
            before = self._find_previous(Value(number, 0))
            if before is not None and self.root(before) in self.wanted:
                given = [read for kind, read in zip(step.kinds, step.inputs, strict=True) if kind == "data"]
                called = step.called.removeprefix("__setitem__") or plain_name(step.func)
                self._add_putting(called, step.place, before, given)

    def _add_putting(self, called: str, place: Place | None, target: Value, given: Sequence[Read]) -> None:
        # A copy of a leaf, such as a teacher's, does not count.
        others = (read for read in given if self.owner_of(read.value) not in self._leaves)
        leaves = reduce(or_, map(self._all_leaves, others), 0)
        leaves &= ~(1 << self._leaves.get(self.root(target), len(self._leaves)))
        if leaves:
            self.puttings[called, place] = self.puttings.get((called, place), 0) | leaves

    def _find_use(self, found: Exit) -> str:
        if found.called == _CONDITION or found.place is None:
            return bytecode.COMPARED if found.called == _CONDITION else ""
        key = id(found.place.code), found.place.instruction
        if key not in self._known_uses:
            self._known_uses[key] = bytecode.find_use(found.place)
        return self._known_uses[key]

    def _is_of_parameters(self, read: Read) -> bool:
        def find_sources(value: Value) -> list[Value]:
            return [] if value in self._leaves else [source.value for source in self.sources(value)]

        def is_of_leaves(value: Value) -> bool:
            # A value without sources may have other entries in the next step, as an input does.
            sources = find_sources(value)
            return value in self._leaves or (bool(sources) and all(map(self._of_leaves.__getitem__, sources)))

        return compute_bottom_up(read.value, self._of_leaves, find_sources, is_of_leaves)

    def _leaving_functions(self, ends: Iterable[Read]) -> Iterator[Value]:
        for inside, reads in (*((step.inside, step.inputs) for step in self.flow.steps), (None, ends)):
            for read in reads:
                maker = self.flow.step_of(read.value)
                if maker is not None and maker.inside is not None and maker.inside != inside:
                    yield read.value

    def _last_uses(self) -> dict[int, list[Value]]:
        last: dict[Value, int] = {}
        known: set[Value] = set()
        for step_number, step in enumerate(self.flow.steps):
            last.update(dict.fromkeys(self.flow.values_of_step(step_number), step_number))
            for read in (*step.inputs, *self._places.get(step_number, ())):
                last[read.value] = step_number
                if read.value.maker == FROM_OUTSIDE and read.value not in known:
                    known.add(read.value)
                    last.update((source.value, step_number) for source in self.sources(read.value))
        readers = (*self.flow.exits, *self.flow.exchanges)
        for value in (*self.terms, *(read.value for found in readers for read in found.reads)):
            last.pop(value, None)
        return group_by_key((step_number, value) for value, step_number in last.items())

    @cached_property
    def _codes(self) -> Collection[CodeType]:
        places = (step.place for step in self.flow.steps)
        return {id(place.code): place.code for place in places if place is not None}.values()

    def _add(self, value: Value, step: Step) -> None:
        arriving = computed = 0
        for read in self.sources(value):
            arriving |= self._leaves_through(read)
            computed |= self._origins.get(read.value, 0)
        computed |= arriving
        is_compiled = isinstance(step.func, CompiledPart) and value.maker != FROM_OUTSIDE
        if is_compiled and value in self.wanted:
            self.has_compiled = True
            self.compiled |= arriving
        passes = value in self.carrying or (step.inside is not None and value not in self._left_functions)
        # The inputs of each output of a compiled part are unknown, so another output may carry all gradients.
        others = self.flow.values_of_step(value.maker) if is_compiled else ()
        carries_otherwise = any(other in self.wanted and other in self.carrying for other in others)
        is_stop = value in self.wanted and not passes and not carries_otherwise
        if arriving and is_stop:
            shown = step_kinds.replace_by_function_call(step)
            if value.maker != FROM_OUTSIDE:
                kind = self._kinds.of(value.maker)
            elif self.flow.outside[value.number].copied:
                kind = "rebuilt"
            elif exit_ := self.flow.outside[value.number].left:
                kind, shown = "exit", shown._replace(called=exit_.called, place=exit_.place)
            else:
                kind, shared = "new_leaf", self.flow.outside[value.number].shared
                maker = None if shared is None else self.flow.step_of(shared)
                computed_at = None if maker is None else maker.place
                shown = shown._replace(place=bytecode.find_leaf_made(computed_at, shown.place, self._codes))
            self.stops.append(Stop(kind, value, shown, arriving))
        self._arriving[value] = arriving if passes else 0
        self._origins[value] = computed

    def _all_leaves(self, read: Read) -> int:
        """Return the leaves that a value is computed from."""
        return self._leaves_through(read) | self._origins.get(read.value, 0)

    def _leaves_through(self, read: Read) -> int:
        """Return the leaves whose gradient would arrive through a value."""
        is_inside = read.value.maker != FROM_OUTSIDE and self.flow.steps[read.value.maker].inside is not None
        # Autograd records nothing inside a custom Function, and a view of a leaf counts as a leaf.
        if is_inside and (passed := self._arriving.get(read.value, 0)):
            return passed
        if not read.carries and read.value not in self.saved:
            return 0
        if not read.is_leaf:
            return self._arriving.get(read.value, 0)
        leaf = self.root(read.value)
        if leaf not in self._leaves:
            self._leaves[leaf] = len(self._leaves)
            self._listed.append(leaf)
        return 1 << self._leaves[leaf]
