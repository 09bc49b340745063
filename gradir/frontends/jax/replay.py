"""Run a traced function again, operation by operation, and find where gradients change in its backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Final, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from gradir.frontends.jax.live import Trace
from gradir.frontends.jax.reading.flatten import Record, Value
from gradir.frontends.jax.reading.flow import takes
from gradir.frontends.jax.reading.jaxprs import fill, is_inexact, isolate, loop_counts, params_of
from gradir.vocabulary.jax import VOCABULARY

# Larger programs are not run again, so their causes name no operation.
_MOST: Final = 4_000


@dataclass(eq=False, repr=False, slots=True)
class Cell:
    """A number with its maker and its gradient; ``readers`` are the steps that take it, each with the place."""

    number: Any
    is_live: bool = False
    maker: Step | None = None
    gradient: Any = None
    readers: list[tuple[Step, int]] = field(default_factory=list)

    @property
    def arriving(self) -> Any:
        """The gradient that comes, which is zero where JAX hands on a zero."""
        return jnp.zeros_like(self.number) if self.gradient is None else self.gradient


@dataclass(eq=False, repr=False, slots=True)
class Step:
    """One run of an operation: the cells that it takes and makes, and the gradients that it sends back."""

    record: Record
    taken: list[Cell]
    # The input slots of these cells, none where a loop's input is only taken apart or its output put together.
    slots: Sequence[int] = ()
    # The places that get a gradient back.
    moved: list[int] = field(default_factory=list)
    made: list[Cell] = field(default_factory=list)
    sent: dict[int, Any] = field(default_factory=dict)
    pull: Callable[[list[Any]], tuple[Any, ...]] | None = None
    number: int = 0

    @property
    def live(self) -> list[Cell]:
        """The cells that it makes and that get a gradient."""
        return [cell for cell in self.made if cell.is_live]

    def given(self, slot: int) -> Any:
        """Return the number that an input slot takes; ``None`` where it is not known."""
        place = next((place for place, each in enumerate(self.slots) if each == slot), None)
        if place is not None:
            return self.taken[place].number
        atoms = self.record.eqn.invars
        same = (each for each in self.slots if slot < len(atoms) and atoms[each] is atoms[slot])
        first = next(same, None)
        return self.given(first) if first is not None else self.record.inputs[slot].literal

    def pushed(self, gradients: Sequence[Any]) -> dict[int, Any]:
        """By place, what it sends back of a gradient for each of its live outputs."""
        return {} if self.pull is None else dict(zip(self.moved, self.pull([*gradients]), strict=True))


def run_again(trace: Trace) -> Replay | None:
    """Return a function run once more; ``None`` where it is too large or JAX cannot run an operation alone."""
    try:
        with jax.debug_nans(False), jax.debug_infs(False):
            replay = Replay(trace)
            if not replay.is_whole:
                return None
            replay.run()
    except (ValueError, TypeError, NotImplementedError, RuntimeError, ArithmeticError):
        return None
    return replay


class Replay:
    """The steps of a function in the order in which they run."""

    def __init__(self, trace: Trace) -> None:
        self.steps: list[Step] = []
        self._records = trace.flat.records
        self._outputs = [value for _, value in trace.outputs]
        given, others = trace.arguments.given
        leaves = zip((*trace.differentiated, *trace.others), (*given, *others), strict=True)
        self._cells = {id(value): Cell(jnp.asarray(leaf), is_live=value.is_live) for value, leaf in leaves}
        self.names = {id(self._cells[id(value)]): value.name for value in (*trace.differentiated, *trace.others)}
        sizes = [math.prod(loop.length for loop in record.context.loops) for record in self._records]
        outside = sum(not record.context.loops for record in self._records)
        self._unrolls = sum(sizes) <= _MOST
        self.is_whole = outside <= _MOST

    def cell(self, value: Value) -> Cell:
        """Return the cell of a value; in a loop, of the last round."""
        if id(value) not in self._cells:
            self._cells[id(value)] = Cell(value.literal)
        return self._cells[id(value)]

    @property
    def is_lost(self) -> bool:
        """Whether an output is infinite or NaN, so that nothing moves it."""
        return any(not bool(jnp.isfinite(self.cell(value).number).all()) for value in self._outputs)

    def run(self) -> None:
        """Run all steps, and their backward from one for each output."""
        self._run(0, len(self._records))
        for value in self._outputs:
            if value.is_live:
                cell = self.cell(value)
                cell.gradient = cell.arriving + jnp.ones_like(cell.number)
        for step in reversed(self.steps):
            step.sent = step.pushed([cell.arriving for cell in step.live])
            for place, gradient in step.sent.items():
                cell = step.taken[place]
                cell.gradient = gradient if cell.gradient is None else cell.gradient + gradient

    def _run(self, start: int, stop: int) -> None:
        # The records of a body, without those in the bodies of its loops and conditionals.
        own, number = list[Record](), stop
        while number > start:
            own.append(self._records[number - 1])
            number = own[-1].bodies[0][0] if own[-1].bodies else number - 1
        for record in reversed(own):
            if record.op == "cond" and record.joins is not None:
                self._choose(record)
            elif record.op == "scan" and record.joins is not None and self._unrolls:
                # Round by round, unless there are too many: then the loop is one step.
                self._repeat(record)
            else:
                self._apply(record)

    def _apply(self, record: Record) -> None:
        single, is_exit = isolate(record.eqn), record.joins is not None
        taken = record.given if is_exit else record.inputs
        step = Step(record, [self.cell(taken[slot]) for slot in single.firsts], single.firsts)
        numbers = [cell.number for cell in step.taken]
        live = [value.is_live for value in record.outputs]
        live_slots = ((place, slot) for place, slot in enumerate(single.firsts) if step.taken[place].is_live)
        step.moved = [place for place, slot in live_slots if is_exit or takes(record, slot)]

        def primal(*moving: Any) -> tuple[list[Any], Sequence[Any]]:
            made = single.run(*fill(numbers, step.moved, moving))
            # Of the others JAX has no gradient at all, which is not the same as one of zeros.
            return [each for each, is_live in zip(made, live, strict=True) if is_live], made

        if step.moved and any(live):
            _, step.pull, made = jax.vjp(primal, *(numbers[place] for place in step.moved), has_aux=True)
        else:
            made = single.run(*numbers)
        step.made = [Cell(number, is_live=is_live, maker=step) for number, is_live in zip(made, live, strict=True)]
        self._add(step)
        self._cells.update((id(value), cell) for value, cell in zip(record.outputs, step.made, strict=True))

    def _add(self, step: Step) -> None:
        for place, cell in enumerate(step.taken):
            cell.readers.append((step, place))
        step.number = len(self.steps)
        self.steps.append(step)

    def _choose(self, record: Record) -> None:
        last = len(record.bodies) - 1
        chosen = min(max(int(self.cell(record.inputs[0]).number), 0), last)
        self._run(*record.bodies[chosen])
        for output, joined in zip(record.outputs, record.joins or (), strict=True):
            self._cells[id(output)] = _handed(self.cell(record.inputs[joined[chosen]]), output)

    def _repeat(self, record: Record) -> None:
        params, (first, carried) = params_of(record.eqn), loop_counts(record.eqn)
        length, is_reverse = int(params["length"]), bool(params["reverse"])
        carries = [self.cell(value) for value in record.given[first : first + carried]]
        wholes = zip(record.given[first + carried :], record.slices, strict=True)
        parts = [self._apart(record, self.cell(whole), value, length) for whole, value in wholes]
        rows: list[list[Cell]] = [[] for _ in record.outputs[carried:]]
        for number in reversed(range(length)) if is_reverse else range(length):
            for value, cell in zip(record.carries, carries, strict=True):
                self._cells[id(value)] = _handed(cell, value)
            self._cells.update((id(value), each[number]) for value, each in zip(record.slices, parts, strict=True))
            self._run(*record.bodies[0])
            ends = [self.cell(value) for value in record.inputs]
            carries = ends[:carried]
            for row, end in zip(rows, ends[carried:], strict=True):
                row.append(end)
        for value, carry in zip(record.outputs, carries, strict=False):
            self._cells[id(value)] = _handed(carry, value)
        for value, row in zip(record.outputs[carried:], rows, strict=True):
            self._cells[id(value)] = self._together(record, row[::-1] if is_reverse else row, value)

    def _apart(self, record: Record, whole: Cell, value: Value, length: int) -> list[Cell]:
        step = Step(record, [whole])
        is_live = value.is_live and whole.is_live
        numbers = (jax.lax.index_in_dim(whole.number, place, keepdims=False) for place in range(length))
        step.made = [Cell(number, is_live=is_live, maker=step) for number in numbers]
        if is_live and length:
            step.moved, step.pull = [0], lambda gradients: (jnp.stack(gradients),)
        self._add(step)
        return step.made

    def _together(self, record: Record, row: list[Cell], value: Value) -> Cell:
        step = Step(record, row)
        step.moved = [place for place, cell in enumerate(row) if cell.is_live] if value.is_live else []
        number = jnp.stack([cell.number for cell in row]) if row else jnp.zeros(value.aval.shape, value.aval.dtype)
        step.made = [Cell(number, is_live=bool(step.moved), maker=step)]
        if step.moved:
            take = partial(jax.lax.index_in_dim, keepdims=False)
            step.pull = lambda gradients: tuple(take(gradients[0], place) for place in step.moved)
        self._add(step)
        return _handed(step.made[0], value)


def _handed(cell: Cell, value: Value) -> Cell:
    """Return the cell of a value that is another's: gradient may come to it here, and go on elsewhere only."""
    return cell if cell.is_live or not value.is_live else Cell(cell.number, is_live=True, maker=cell.maker)


Origins: TypeAlias = "Mapping[Record, Step]"
"""The operations in which a gradient changes, each with the first of its runs in which it does."""

_VIEWS: Final = VOCABULARY.shape_operations | VOCABULARY.casts
_MOST_TOLD: Final = 32


def nonfinite_in(number: Any) -> Any:
    """Return where a number is infinite or NaN."""
    if not (isinstance(number, (float, complex)) or is_inexact(number)):
        return np.zeros(np.shape(number), bool)
    return ~np.isfinite(np.asarray(number))


def is_zero(number: Any) -> bool:
    """Return whether a number is zero throughout."""
    return not np.asarray(number).any()


def root_of(cell: Cell) -> Cell:
    """Return the cell that another one is a view of, or has in another dtype."""
    while cell.maker is not None and cell.maker.record.native in _VIEWS and cell.maker.taken:
        cell = cell.maker.taken[0]
    return cell


def origins(replay: Replay, status: Literal["zero", "nonfinite"]) -> Mapping[int, Origins | None]:
    """Return by identity of a cell the operations in which the gradient that comes to it changes."""
    # Gradients that add up to zero change in the operation that made the cell, which is marked by None.
    is_bad = is_zero if status == "zero" else lambda number: bool(nonfinite_in(number).any())
    found: dict[int, dict[Record, Step] | None] = {}
    for step in reversed(replay.steps):
        if not step.sent:
            continue
        bad = [cell for cell in step.live if is_bad(cell.arriving)]
        # A zero for one output says nothing of a zero that is made of several.
        arises = len(bad) < len(step.live) if status == "zero" else not bad
        cancels = not arises and any(found.get(id(cell), {}) is None for cell in bad)
        above = (found.get(id(cell), {}) for cell in bad)
        behind = {step.record: step} if arises or cancels else reduce(_merged, above)
        for place, sent in step.sent.items():
            cell = step.taken[place]
            if not is_bad(sent):
                if status == "zero":
                    found[id(cell)] = None
            elif not (arises and not step.slots):
                found[id(cell)] = _merged(found.get(id(cell), {}), behind)
    return found


def passed_by(records: Sequence[Record], leaf: Value) -> Record | None:
    """Return the first conditional that a leaf's gradient goes through by branches alone, of which none is taken."""
    read = {id(leaf)}
    for record in records:
        if any(id(value) in read for value in record.inputs):
            if record.op == "cond" and record.joins is not None:
                return record
            read.update(id(value) for value in record.outputs if value.is_live)
    return None


def _merged(known: dict[Record, Step] | None, more: dict[Record, Step] | None) -> dict[Record, Step] | None:
    if known is None or more is None:
        return None
    if not known or not more:
        return known or more
    # The steps are looked at from the last on, so what is found later stands earlier.
    return known if len(known) >= _MOST_TOLD or known is more else {**known, **more}
