"""Where values that carry a gradient go on without it, on the way to what was captured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, reduce
from operator import or_
from typing import Final, NamedTuple, TypeAlias

import torch

from gradir.frontends.pytorch.explaining import bytecode, step_kinds
from gradir.frontends.pytorch.explaining.step_kinds import kind_of, updated_leaves
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.modes import CompiledPart
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Exit, Read, Step, Value, plain_name
from gradir.frontends.walks import folded, grouped, reached

At: TypeAlias = "tuple[str, Place | None]"
"""What something is called, or its kind, and where it is."""

_DIFFERENTIABLE: Final = ("bfloat", "complex", "float")
_CONDITION: Final = "__bool__"


class Stop(NamedTuple):
    """A value that carries no gradient although what it is made of does."""

    kind: str
    value: Value
    # The operation, or the first that takes the value where none made it.
    step: Step
    # Those behind it, as `Flowing.members` takes them.
    leaves: int
    # Whether the program reads it as numbers.
    is_read: bool = False

    @property
    def place(self) -> Place | None:
        """The line of the cut; for a block without gradients the line in the function that has the block."""
        return (self.step.block if self.kind == "no_grad" else None) or self.step.place


class Leaving(NamedTuple):
    """A function that read numbers computed of some leaves; unsure if a call, as of a logger, got the number."""

    exit: Exit
    leaves: int
    is_sure: bool


class Flowing:
    """How the captured tensors are computed of the leaves, with and without gradient."""

    # Sets of leaves are the bits of a number, which unites two at once. So each value is looked at a few times,
    # whatever the number of leaves and stops, and its set is kept until nothing more takes the value.

    def __init__(self, flow: Flow, captured: Sequence[torch.Tensor]) -> None:
        self.flow = flow
        self._kinds = step_kinds.Kinds(flow.steps)
        self._data_of = step_kinds.find_data_leaves(flow)
        self._roots: dict[Value, Value] = {}
        self._places = dict(step_kinds.find_read_indices(flow))
        ends = [flow.read(tensor) for tensor in captured]
        self.ends = frozenset(read.value for read in ends)
        self._held_by_leaves = {read.value for read in self._reads(ends) if read.is_leaf}
        # A derivative that is computed by them gets its graph back.
        self.saved = frozenset(step_kinds.saved_by_torch(flow))
        self.carrying = {read.value for read in self._reads(ends) if read.carries and not self._is_fresh(read)}
        self.carrying |= self.saved
        read = {read.value for read in self._reads(ends)}
        shared = (outside.shared for outside in flow.outside if outside.shared is not None)
        self.carrying.update(value for value in shared if value not in read and self.should_carry(value))

        def behind(value: Value) -> list[Value]:
            # An update of a leaf ends here, and what that was made of does not.
            return [self.root(value), *(read.value for read in self.sources(value))]

        self.wanted = set(reached(self.ends, behind))
        self.unseen = set(step_kinds.unseen_ends(flow, captured))
        # No step made these values, nor anything else in their memory, and yet they have a grad_fn.
        outside = (value for value in self.carrying & self.wanted - self._held_by_leaves if value.maker == FROM_OUTSIDE)
        self.unseen.update(value for value in outside if flow.outside[value.number].shared is None)
        self._left_functions = set(self._leaving_functions(ends))
        self.stops: list[Stop] = []
        # The first exit at each place, with the leaves of every time, and the leaves of what is put into another leaf.
        self.exits: dict[At, Leaving] = {}
        self.puttings: dict[At, int] = {}
        # Whether compiled parts compute what is wanted, and the leaves that they are known to take.
        self.has_compiled, self.compiled = False, 0
        # By identity, since code takes long to hash.
        self._known_uses: dict[tuple[int, int], str] = {}
        self._first_made: dict[Value, Value | None] = {}
        self._of_leaves: dict[Value, bool] = {}
        self._leaves: dict[Value, int] = {}
        self._listed: list[Value] = []
        self.terms = list(step_kinds.terms_of(flow, [read.value for read in ends]))
        # Of each value the leaves whose gradient would arrive through it, and those that it is computed of at all.
        self._arriving: dict[Value, int] = {}
        self._origins: dict[Value, int] = {}
        self._find()

    @property
    def is_whole(self) -> bool:
        """Whether the recording has seen all that the captured tensors are computed from."""
        return not self.unseen

    def may_be_inside(self, leaf: Value) -> bool:
        """Whether a compiled part may compute what was captured of a leaf; it may have leaves that nothing shows."""
        return leaf in self.known_inside or (self.has_compiled and leaf not in self.taken)

    @cached_property
    def taken(self) -> set[Value]:
        """All that operations took."""
        return {read.value for step in self.flow.steps for read in step.inputs}

    @cached_property
    def first_takers(self) -> dict[Value, int]:
        """By leaf the first step that takes it, and does not write to it as an initialization does."""
        found: dict[Value, int] = {}
        for index, step in enumerate(self.flow.steps):
            written = step.of_kind("inplace")
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
        passed = []
        while leaf not in self._roots:
            before = self._before_update(leaf)
            if before is None:
                break
            passed.append(leaf)
            leaf = before
        leaf = self._roots.get(leaf, leaf)
        self._roots.update(dict.fromkeys(passed, leaf))
        return leaf

    def _before_update(self, leaf: Value) -> Value | None:
        """Return the value of a leaf before a step, if that step writes to it or to its ``.data``."""
        step = self.flow.step_of(leaf)
        if step is None or "inplace" not in step.kinds:
            return None
        read = step.of_kind("inplace")[0]
        if updated_leaves(step):
            return read.value
        return None if read.is_leaf else self._data_of.get(read.value.maker)

    def owner_of(self, value: Value) -> Value:
        """Return what a value is a view of, before its first update: a view that no_grad makes counts as a leaf too."""
        return self.root(self.flow.owner_of(value))

    def leaf_of(self, read: Read) -> Value | None:
        """Return the leaf that a value is, or whose memory it is without a graph, if it is of one."""
        if read.is_leaf:
            return self.root(read.value)
        leaf = self._data_of.get(read.value.maker)
        return None if leaf is None else self.root(leaf)

    def leaves_behind(self, term: Value) -> list[Value]:
        """Return the leaves that get a gradient through a term of what was captured."""
        return self.members(self._arriving.get(term, 0))

    def members(self, *sets: int) -> list[Value]:
        """Return the leaves whose bits are set in any of these."""
        leaves = reduce(or_, sets, 0)
        first = (leaves & -leaves).bit_length() - 1
        bits = reversed(f"{leaves >> first:b}") if leaves else ()
        return [self._listed[number] for number, bit in enumerate(bits, first) if bit == "1"]

    def leaves_cut_by(self, stops: Iterable[Stop]) -> list[Value]:
        """Return the leaves behind some stops."""
        return self.members(*(stop.leaves for stop in stops))

    def stops_by_place(self) -> dict[At, list[Stop]]:
        """Return the stops of each kind and place, in the order of the program."""
        return grouped(((stop.kind, stop.place), stop) for stop in self.stops)

    def should_carry(self, value: Value) -> bool:
        """Return whether a value that no operation took, such as what a new parameter was made of, had a graph."""
        if value.maker == FROM_OUTSIDE:
            return False
        step = self.flow.steps[value.maker]
        is_number = (step.outputs[value.number].dtype or "").startswith(_DIFFERENTIABLE)
        return is_number and kind_of(step) == "nondifferentiable" and any(read.carries for read in step.inputs)

    def _is_fresh(self, read: Read) -> bool:
        """Whether a value was made of others and has no graph of its own, as behind ``detach().requires_grad_()``."""
        if not read.is_leaf or read.value.maker != FROM_OUTSIDE:
            return read.is_leaf
        outside = self.flow.outside[read.value.number]
        return outside.shared is not None or bool(outside.copied or outside.left)

    def _reads(self, ends: Iterable[Read]) -> Iterator[Read]:
        for step in self.flow.steps:
            yield from step.inputs
        left = (outside.left for outside in self.flow.outside if outside.left is not None)
        for found in (*self.flow.exits, *left):
            yield from found.reads
        yield from ends

    def sources(self, value: Value) -> tuple[Read, ...]:
        """Return the values that a value is computed of."""
        if value.maker != FROM_OUTSIDE:
            step = self.flow.steps[value.maker]
            is_update = value in self._held_by_leaves and self.root(value) != value
            if is_update or step_kinds.takes_shape_alone(step) or updated_leaves(step):
                return ()
            return (*step.inputs, *self._places.get(value.maker, ()))
        outside = self.flow.outside[value.number]
        if outside.shared is not None:
            return (Read(outside.shared, outside.shared in self.carrying, is_leaf=False),)
        return outside.copied or tuple(step_kinds.before_detach(self.flow, outside.left))

    def exchanges(self) -> Iterator[Exit]:
        """Yield the assignments to ``.data`` of tensors that the loss uses, except to move or load a module first."""
        first: dict[Value, int] = {}
        for index, step in enumerate(self.flow.steps if self.flow.exchanges else ()):
            if not self.wanted.isdisjoint(self.flow.made_by(index)):
                written = step.of_kind("inplace")
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
        let_go = self._last_uses()
        for step_number, step in enumerate(self.flow.steps):
            for read in step.inputs:
                if read.value.maker == FROM_OUTSIDE and read.value not in known:
                    known.add(read.value)
                    self._add(read.value, step)
            for value in self.flow.made_by(step_number):
                self._add(value, step)
            self._put(step_number, step)
            for value in let_go.pop(step_number, ()):
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
        stopped = 0
        for stop in self.stops:
            stopped |= stop.leaves
        moved = step_kinds.last_updates(self.flow.steps[: last + 1], self.root)
        newest = lru_cache(lambda leaves: max((moved.get(leaf, -1) for leaf in self.members(leaves)), default=-1))
        for found in self.flow.exits:
            left = 0
            for read in found.reads:
                left |= self._origins.get(read.value, 0) | self._behind(read)
            use = self._use(found) if left else bytecode.SHOWN
            if use == bytecode.COMPARED:
                # What parameters alone decide on is decided, and none of them learns by that.
                goes_on = found.before <= last and all(map(self._is_of_parameters, found.reads))
            else:
                # Else what comes of it is in nothing that was captured.
                goes_on = found.before <= entry and use != bytecode.SHOWN
            # What was read before an optimizer moved these leaves is of an earlier step.
            goes_on = goes_on and found.before > newest(left)
            is_number = use not in (bytecode.COMPARED, bytecode.HANDED)
            # What another operation stops, such as the detach of a teacher, is told there alone.
            lost = left & ~stopped
            if goes_on and is_number and lost and (made := self._made_integer(found)) is not None:
                # Integers had no gradient before they left: the operation that made them is where it ends.
                step = self.flow.steps[made.maker]
                self.stops.append(Stop("nondifferentiable", made, step_kinds.seen_outside(step), lost, is_read=True))
            elif goes_on:
                at = found.called.strip("_"), found.place
                first = self.exits.setdefault(at, Leaving(found, left, is_sure=use != bytecode.HANDED))
                self.exits[at] = first._replace(leaves=first.leaves | left)

    def _made_integer(self, found: Exit) -> Value | None:
        """Return the integers, made of values with a gradient, that what a function read is computed from."""
        made = next(filter(None, (self._made_behind(read.value) for read in found.reads)), None)
        if made is None:
            return None
        dtype = self.flow.steps[made.maker].outputs[made.number].dtype or ""
        is_integer = dtype != "" and not dtype.startswith(_DIFFERENTIABLE)
        return made if is_integer and self._kinds.of(made.maker) == "nondifferentiable" else None

    def _made_behind(self, start: Value) -> Value | None:
        """Return the first value, behind one without gradient or itself, that is made of values with a gradient."""

        def is_made(value: Value) -> bool:
            step = self.flow.step_of(value)
            return step is not None and any(read.carries for read in step.inputs)

        def behind(value: Value) -> list[Value]:
            is_end = value in self.carrying or is_made(value)
            return [] if is_end else [read.value for read in self.sources(value)]

        def first(value: Value) -> Value | None:
            return value if is_made(value) else next(filter(None, map(self._first_made.get, behind(value))), None)

        # A loop may read a number in each round.
        return folded(start, self._first_made, behind, first)

    def _put(self, number: int, step: Step) -> None:
        if "inplace" in step.kinds and step.called != "step":
            before = self._before_update(Value(number, 0))
            if before is not None and self.root(before) in self.wanted:
                given = [read for kind, read in zip(step.kinds, step.inputs, strict=True) if kind == "data"]
                called = step.called.removeprefix("__setitem__") or plain_name(step.func)
                self._add_putting(called, step.place, before, given)

    def _add_putting(self, called: str, place: Place | None, target: Value, given: Sequence[Read]) -> None:
        leaves = 0
        for read in given:
            # A copy of a leaf, as of a teacher, is not computed of it.
            if self.owner_of(read.value) not in self._leaves:
                leaves |= self._behind(read) | self._origins.get(read.value, 0)
        leaves &= ~(1 << self._leaves.get(self.root(target), len(self._leaves)))
        if leaves:
            self.puttings[called, place] = self.puttings.get((called, place), 0) | leaves

    def _use(self, found: Exit) -> str:
        if found.called == _CONDITION or found.place is None:
            return bytecode.COMPARED if found.called == _CONDITION else ""
        key = id(found.place.code), found.place.instruction
        if key not in self._known_uses:
            self._known_uses[key] = bytecode.use_of(found.place)
        return self._known_uses[key]

    def _is_of_parameters(self, read: Read) -> bool:
        def inside(value: Value) -> list[Value]:
            return [] if value in self._leaves else [source.value for source in self.sources(value)]

        def is_of_leaves(value: Value) -> bool:
            # What is made of nothing, as what comes from outside is, may be other numbers in the next step.
            behind = inside(value)
            return value in self._leaves or (bool(behind) and all(map(self._of_leaves.__getitem__, behind)))

        return folded(read.value, self._of_leaves, inside, is_of_leaves)

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
            last.update(dict.fromkeys(self.flow.made_by(step_number), step_number))
            for read in (*step.inputs, *self._places.get(step_number, ())):
                last[read.value] = step_number
                if read.value.maker == FROM_OUTSIDE and read.value not in known:
                    known.add(read.value)
                    last.update((source.value, step_number) for source in self.sources(read.value))
        left = (*self.flow.exits, *self.flow.exchanges)
        for value in (*self.terms, *(read.value for found in left for read in found.reads)):
            last.pop(value, None)
        return grouped((step_number, value) for value, step_number in last.items())

    def _add(self, value: Value, step: Step) -> None:
        arriving = computed = 0
        for read in self.sources(value):
            arriving |= self._behind(read)
            computed |= self._origins.get(read.value, 0)
        computed |= arriving
        is_compiled = isinstance(step.func, CompiledPart) and value.maker != FROM_OUTSIDE
        if is_compiled and value in self.wanted:
            self.has_compiled = True
            self.compiled |= arriving
        passes = value in self.carrying or (step.inside is not None and value not in self._left_functions)
        # Which of its inputs an output of a compiled part is made of is not known: another output may carry all.
        others = self.flow.made_by(value.maker) if is_compiled else ()
        carries_otherwise = any(other in self.wanted and other in self.carrying for other in others)
        is_stop = value in self.wanted and not passes and not carries_otherwise
        if arriving and is_stop:
            shown = step_kinds.seen_outside(step)
            if value.maker != FROM_OUTSIDE:
                kind = self._kinds.of(value.maker)
            elif self.flow.outside[value.number].copied:
                kind = "rebuilt"
            elif left := self.flow.outside[value.number].left:
                kind, shown = "exit", shown._replace(called=left.called, place=left.place)
            else:
                kind, shared = "new_leaf", self.flow.outside[value.number].shared
                maker = None if shared is None else self.flow.step_of(shared)
                computed_at = None if maker is None else maker.place
                shown = shown._replace(place=bytecode.find_leaf_made(computed_at, shown.place))
            self.stops.append(Stop(kind, value, shown, arriving))
        self._arriving[value] = arriving if passes else 0
        self._origins[value] = computed

    def _behind(self, read: Read) -> int:
        """Return the leaves whose gradient would arrive through a value."""
        if read.value.maker != FROM_OUTSIDE and self.flow.steps[read.value.maker].inside is not None:
            # There autograd notes nothing, and a view of a leaf counts as a leaf.
            passed = self._arriving.get(read.value, 0)
            if passed:
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
