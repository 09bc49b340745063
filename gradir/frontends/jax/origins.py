"""In which operations gradients become zero, infinite or NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from gradir.frontends.jax.reading.jaxprs import is_inexact
from gradir.frontends.jax.reading.values import Record, Value
from gradir.frontends.jax.replay import Cell, Replay, Step
from gradir.vocabulary.jax import VOCABULARY

__all__ = ["Origins", "broken", "is_zero", "origins", "passed_by", "rooted"]

Origins: TypeAlias = "Mapping[Record, Step]"
"""The operations in which a gradient changes, each with the first of its runs in which it does."""

_VIEWS: Final = VOCABULARY.shape_operations | VOCABULARY.casts
_MOST: Final = 32
"""So many operations are told of one leaf."""


def broken(number: Any) -> Any:
    """Where a number is infinite or NaN."""
    if not (isinstance(number, (float, complex)) or is_inexact(number)):
        return np.zeros(np.shape(number), bool)
    return ~np.isfinite(np.asarray(number))


def is_zero(number: Any) -> bool:
    """Whether a number is zero throughout."""
    return not np.asarray(number).any()


def rooted(cell: Cell) -> Cell:
    """What a cell is a view of, or the same in another type."""
    while cell.maker is not None and cell.maker.record.native in _VIEWS and cell.maker.taken:
        cell = cell.maker.taken[0]
    return cell


def origins(replay: Replay, status: Literal["zero", "nonfinite"]) -> Mapping[int, Origins | None]:
    """By identity of a cell the operations in which the gradient that comes to it becomes so.

    Where gradients that are not zero add up to zero, it is the operation that made the cell to which they come; it is
    ``None`` for that cell.
    """
    is_bad = is_zero if status == "zero" else lambda number: bool(broken(number).any())
    found: dict[int, dict[Record, Step] | None] = {}
    for step in reversed(replay.steps):
        if not step.sent:
            continue
        bad = [cell for cell in step.live if is_bad(cell.arriving)]
        # A zero for one output says nothing of a zero that is made of several.
        arises = len(bad) < len(step.live) if status == "zero" else not bad
        cancels = not arises and any(found.get(id(cell), {}) is None for cell in bad)
        behind = (
            {step.record: step} if arises or cancels else reduce(_merged, (found.get(id(cell), {}) for cell in bad))
        )
        for place, sent in step.sent.items():
            cell = step.taken[place]
            if not is_bad(sent):
                if status == "zero":
                    found[id(cell)] = None
            elif not (arises and not step.slots):
                found[id(cell)] = _merged(found.get(id(cell), {}), behind)
    return found


def passed_by(records: Sequence[Record], leaf: Value) -> Record | None:
    """The first conditional that a leaf's gradient goes through by branches alone, of which none is taken."""
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
    return known if len(known) >= _MOST or known is more else {**known, **more}
