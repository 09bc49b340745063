"""Run a traced function again, operation by operation, and find where gradients change in its backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Final, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from gradir.frontends.jax.live import Trace
from gradir.frontends.jax.reading.flatten import Record, Value
from gradir.frontends.jax.reading.flow import is_on_path
from gradir.frontends.jax.reading.jaxprs import is_inexact, isolate, loop_counts, params_of, replace_at
from gradir.vocabulary.jax import VOCABULARY

# gradir does not run larger programs again, so their causes name no operation.
_MOST: Final = 4_000


@dataclass(eq=False, repr=False, slots=True)
class Cell:
    """An array with its maker and its gradient; ``readers`` are the steps that use it, each with the place."""

    number: Any
    is_live: bool = False
    maker: Step | None = None
    gradient: Any = None
    readers: list[tuple[Step, int]] = field(default_factory=list)

    @property
    def arriving(self) -> Any:
        """The gradient that arrives, which is zero if JAX has none."""
        return jnp.zeros_like(self.number) if self.gradient is None else self.gradient


@dataclass(eq=False, repr=False, slots=True)
class Step:
    """One run of an operation: its input and output cells, and the gradients that it sends back."""

    record: Record
    inputs: list[Cell]
    # The input slots of these cells. A step that only slices or stacks for a loop has none.
    slots: Sequence[int] = ()
    # The places that get a gradient.
    moved: list[int] = field(default_factory=list)
    outputs: list[Cell] = field(default_factory=list)
    sent: dict[int, Any] = field(default_factory=dict)
    pull: Callable[[list[Any]], tuple[Any, ...]] | None = None
    number: int = 0

    @property
    def live(self) -> list[Cell]:
        """The output cells that get a gradient."""
        return [cell for cell in self.outputs if cell.is_live]

    def input_value(self, slot: int) -> Any:
        """Return the value of an input slot, ``None`` if it is unknown."""
        atoms = self.record.eqn.invars
        for place, each in enumerate(self.slots):
            if each == slot or (slot < len(atoms) and atoms[each] is atoms[slot]):
                return self.inputs[place].number
        return self.record.inputs[slot].literal

    def pull_back(self, gradients: Sequence[Any]) -> dict[int, Any]:
        """Return by place the gradients that it sends back for the gradients of its live outputs."""
        return {} if self.pull is None else dict(zip(self.moved, self.pull([*gradients]), strict=True))


def replay_trace(trace: Trace) -> Replay | None:
    """Run a function once more; return ``None`` if it is too large or JAX cannot run an operation alone."""
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
    """The steps of a function in execution order."""

    def __init__(self, trace: Trace) -> None:
        self.steps: list[Step] = []
        self._records = trace.flat.records
        self._outputs = [value for _, value in trace.outputs]
        given, others = trace.arguments.values
        leaves = zip((*trace.differentiated, *trace.others), (*given, *others), strict=True)
        self._cells = {id(value): Cell(jnp.asarray(leaf), is_live=value.is_live) for value, leaf in leaves}
        self.names = {id(self._cells[id(value)]): value.name for value in (*trace.differentiated, *trace.others)}
        sizes = [math.prod(loop.length for loop in record.context.loops) for record in self._records]
        outside = sum(not record.context.loops for record in self._records)
        self._unrolls = sum(sizes) <= _MOST
        self.is_whole = outside <= _MOST

    def cell(self, value: Value) -> Cell:
        """Return the cell of a value; in a loop, the one of the last round."""
        if id(value) not in self._cells:
            self._cells[id(value)] = Cell(value.literal)
        return self._cells[id(value)]

    @property
    def lost(self) -> Cell | None:
        """An output that is infinite or NaN, so that every gradient is meaningless."""
        return next((cell for cell in map(self.cell, self._outputs) if is_lost(cell.number)), None)

    def run(self) -> None:
        """Run all steps, and their backward pass with ones as gradients of the outputs."""
        self._run(0, len(self._records))
        for value in self._outputs:
            if value.is_live:
                cell = self.cell(value)
                cell.gradient = cell.arriving + jnp.ones_like(cell.number)
        for step in reversed(self.steps):
            step.sent = step.pull_back([cell.arriving for cell in step.live])
            for place, gradient in step.sent.items():
                cell = step.inputs[place]
                cell.gradient = gradient if cell.gradient is None else cell.gradient + gradient

    def _run(self, start: int, stop: int) -> None:
        # The records of a body, without those in the bodies of inner loops and conditionals.
        own, number = list[Record](), stop
        while number > start:
            own.append(self._records[number - 1])
            number = own[-1].bodies[0][0] if own[-1].bodies else number - 1
        for record in reversed(own):
            if record.op == "cond" and record.joins is not None:
                self._run_branch(record)
            elif record.op == "scan" and record.joins is not None and self._unrolls:
                self._run_rounds(record)
            else:
                self._run_record(record)

    def _run_record(self, record: Record) -> None:
        single, is_exit = isolate(record.eqn), record.joins is not None
        inputs = record.operands if is_exit else record.inputs
        step = Step(record, [self.cell(inputs[slot]) for slot in single.firsts], single.firsts)
        numbers = [cell.number for cell in step.inputs]
        live = [value.is_live for value in record.outputs]
        live_slots = ((place, slot) for place, slot in enumerate(single.firsts) if step.inputs[place].is_live)
        step.moved = [place for place, slot in live_slots if is_exit or is_on_path(record, slot)]

        def primal(*moving: Any) -> tuple[list[Any], Sequence[Any]]:
            results = single.run(*replace_at(numbers, step.moved, moving))
            # The other outputs get no gradient at all, which differs from a gradient of zeros.
            return [each for each, is_live in zip(results, live, strict=True) if is_live], results

        if step.moved and any(live):
            _, step.pull, results = jax.vjp(primal, *(numbers[place] for place in step.moved), has_aux=True)
        else:
            results = single.run(*numbers)
        step.outputs = [Cell(each, is_live=is_live, maker=step) for each, is_live in zip(results, live, strict=True)]
        self._add(step)
        self._set_cells(record.outputs, step.outputs)

    def _set_cells(self, values: Iterable[Value], cells: Iterable[Cell]) -> None:
        self._cells.update((id(value), cell) for value, cell in zip(values, cells, strict=True))

    def _add(self, step: Step) -> None:
        for place, cell in enumerate(step.inputs):
            cell.readers.append((step, place))
        step.number = len(self.steps)
        self.steps.append(step)

    def _run_branch(self, record: Record) -> None:
        chosen = min(max(int(self.cell(record.inputs[0]).number), 0), len(record.bodies) - 1)
        self._run(*record.bodies[chosen])
        for output, joined in zip(record.outputs, record.joins or (), strict=True):
            self._cells[id(output)] = _share_cell(self.cell(record.inputs[joined[chosen]]), output)

    def _run_rounds(self, record: Record) -> None:
        params, (first, carried) = params_of(record.eqn), loop_counts(record.eqn)
        length, is_reverse = int(params["length"]), bool(params["reverse"])
        carries = [self.cell(value) for value in record.operands[first : first + carried]]
        arrays = zip(record.operands[first + carried :], record.slices, strict=True)
        slices = [self._slice(record, self.cell(array), value, length) for array, value in arrays]
        rows: list[list[Cell]] = [[] for _ in record.outputs[carried:]]
        for number in reversed(range(length)) if is_reverse else range(length):
            self._set_cells(record.carries, map(_share_cell, carries, record.carries))
            self._set_cells(record.slices, [each[number] for each in slices])
            self._run(*record.bodies[0])
            ends = [self.cell(value) for value in record.inputs]
            carries = ends[:carried]
            for row, end in zip(rows, ends[carried:], strict=True):
                row.append(end)
        self._set_cells(record.outputs[:carried], map(_share_cell, carries, record.outputs))
        for value, row in zip(record.outputs[carried:], rows, strict=True):
            self._cells[id(value)] = self._stack(record, row[::-1] if is_reverse else row, value)

    def _slice(self, record: Record, whole: Cell, value: Value, length: int) -> list[Cell]:
        step = Step(record, [whole])
        is_live = value.is_live and whole.is_live
        numbers = (jax.lax.index_in_dim(whole.number, place, keepdims=False) for place in range(length))
        step.outputs = [Cell(number, is_live=is_live, maker=step) for number in numbers]
        if is_live and length:
            step.moved, step.pull = [0], lambda gradients: (jnp.stack(gradients),)
        self._add(step)
        return step.outputs

    def _stack(self, record: Record, row: list[Cell], value: Value) -> Cell:
        step = Step(record, row)
        step.moved = [place for place, cell in enumerate(row) if cell.is_live] if value.is_live else []
        number = jnp.stack([cell.number for cell in row]) if row else jnp.zeros(value.aval.shape, value.aval.dtype)
        step.outputs = [Cell(number, is_live=bool(step.moved), maker=step)]
        if step.moved:
            take = partial(jax.lax.index_in_dim, keepdims=False)
            step.pull = lambda gradients: tuple(take(gradients[0], place) for place in step.moved)
        self._add(step)
        return _share_cell(step.outputs[0], value)


def _share_cell(cell: Cell, value: Value) -> Cell:
    """Return the cell of an equal value, or a live copy if only this value gets a gradient."""
    return cell if cell.is_live or not value.is_live else Cell(cell.number, is_live=True, maker=cell.maker)


Origins: TypeAlias = "Mapping[Record, Step]"
"""The operations that change a gradient, each with its first run that does."""

_VIEWS: Final = VOCABULARY.shape_operations | VOCABULARY.casts
_MOST_ORIGINS: Final = 32


def find_nonfinite(number: Any) -> Any:
    """Return a mask of infinite or NaN entries."""
    if not (isinstance(number, (float, complex)) or is_inexact(number)):
        return np.zeros(np.shape(number), bool)
    return ~np.isfinite(np.asarray(number))


def is_lost(loss: Any) -> bool:
    """Return whether a loss is infinite or NaN."""
    # The outputs of a model, such as masked logits, may be infinite on purpose.
    return bool((find_nonfinite(loss) if np.ndim(loss) == 0 else np.not_equal(loss, loss)).any())


def is_zero(number: Any) -> bool:
    """Return whether all entries are zero."""
    return not np.asarray(number).any()


def root_of(cell: Cell) -> Cell:
    """Return the cell behind views and casts."""
    while cell.maker is not None and cell.maker.record.native in _VIEWS and cell.maker.inputs:
        cell = cell.maker.inputs[0]
    return cell


def find_origins(replay: Replay, status: Literal["zero", "nonfinite"]) -> Mapping[int, Origins | None]:
    """Return by id() of a cell the operations that change its gradient to the status."""
    # None means that gradients of the cell add up to zero, so the operation that made the cell is the origin.
    is_bad = is_zero if status == "zero" else lambda number: bool(find_nonfinite(number).any())
    found: dict[int, dict[Record, Step] | None] = {}
    for step in reversed(replay.steps):
        if not step.sent:
            continue
        bad = [cell for cell in step.live if is_bad(cell.arriving)]
        # If only some outputs have zero gradients, the zero gradient of an input arises here.
        arises = len(bad) < len(step.live) if status == "zero" else not bad
        above = [found.get(id(cell), {}) for cell in bad]
        own = {step.record: step} if arises or None in above else reduce(_merge_origins, above)
        for place, sent in step.sent.items():
            cell = step.inputs[place]
            if not is_bad(sent):
                if status == "zero":
                    found[id(cell)] = None
            elif not (arises and not step.slots):
                found[id(cell)] = _merge_origins(found.get(id(cell), {}), own)
    return found


def find_untaken_conditional(records: Sequence[Record], leaf: Value) -> Record | None:
    """Return the first conditional whose branches use a leaf, if the gradient passes only through untaken branches."""
    read = {id(leaf)}
    for record in records:
        if any(id(value) in read for value in record.inputs):
            if record.op == "cond" and record.joins is not None:
                return record
            read.update(id(value) for value in record.outputs if value.is_live)
    return None


def _merge_origins(known: dict[Record, Step] | None, more: dict[Record, Step] | None) -> dict[Record, Step] | None:
    if known is None or more is None:
        return None
    if not known or not more:
        return known or more
    # The caller visits the steps backwards, so a step found later runs earlier.
    return known if len(known) >= _MOST_ORIGINS or known is more else {**known, **more}
