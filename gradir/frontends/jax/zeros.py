"""Why a gradient becomes zero in an operation, as far as one run of the operations proves it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from gradir.explanations.model import Level
from gradir.frontends.jax.origins import is_zero, rooted
from gradir.frontends.jax.reading.jaxprs import is_literal, params_of
from gradir.frontends.jax.replay import Cell, Step
from gradir.frontends.jax.traps import called

__all__ = ["zeroed"]

_SATURATING: Final = frozenset({"erf", "logistic", "sigmoid", "tanh"})
_BOUNDED: Final = frozenset({"clamp", "hard_tanh", "max", "min", "relu", "relu6"})
_PRODUCTS: Final = frozenset({"conv_general_dilated", "dot_general", "mul"})
_MEASURES: Final = frozenset({"abs", "integer_pow", "square"})
_LEVELS: Final[dict[str, Level]] = {
    "starting": "note",
    **dict.fromkeys(("lost", "one_entry", "saturated", "stuck"), "error"),
}
"""What stays so whatever comes in is an alarm, and what mends itself is none."""
_FARTHEST: Final = 4


def zeroed(step: Step, *, is_lost: bool) -> tuple[str, Level, str]:
    """The kind of cause by which a step gives a gradient of zero, how grave it is, and the name of the operation.

    ``is_lost`` is set where what is differentiated is no number.
    """
    kind, op = ("lost", "") if is_lost else _kind(step)
    return kind, _LEVELS.get(kind, "info"), op or called(step.record)


def _kind(step: Step) -> tuple[str, str]:
    if all(is_zero(cell.arriving) for cell in step.live):
        # What comes to it is not zero on each way, and adds up to zero.
        return _of_sum(step)
    native = step.record.native
    if native in _PRODUCTS:
        return _of_product(step), ""
    if native in _MEASURES and params_of(step.record.eqn).get("y", 2) % 2 == 0:
        return "equal" if is_zero(step.taken[0].number) else "zero", ""
    return _of_flat(step) if _is_flat(step) else ("zero", "")


def _of_flat(step: Step) -> tuple[str, str]:
    record = step.record
    if record.context.function == "clip":
        return "dead", "clip"
    if record.native in ("max", "min") and not any(map(is_literal, record.eqn.invars)):
        return "not_chosen", ""
    names = {record.native, record.op}
    if record.native == "select_n":
        return "masked", ""
    return "saturated" if names & _SATURATING else "dead" if names & _BOUNDED else "zero", ""


def _is_flat(step: Step) -> bool:
    """Whether any gradient would become zero here, and not only the one that comes."""
    zeros = [place for place, sent in step.sent.items() if is_zero(sent)]
    of_ones = step.pushed([jnp.ones_like(cell.number) for cell in step.live])
    return all(is_zero(of_ones[place]) for place in zeros)


def _of_sum(step: Step) -> tuple[str, str]:
    """A softmax, or what else is normalised, over one entry gives the same whatever comes in."""
    natives, cells = {step.record.native}, [*step.live]
    for _ in range(_FARTHEST):
        readers = [reader for cell in cells for reader, _ in cell.readers]
        for reader in readers:
            if reader.record.native == "reduce_sum" and _is_of_one(reader):
                is_softmax = "exp" in natives | {each.record.native for each in readers}
                function = reader.record.context.function
                return "one_entry", function or ("softmax" if is_softmax else called(reader.record))
        natives.update(reader.record.native for reader in readers)
        cells = [cell for reader in readers for cell in reader.live]
    return "zero", ""


def _is_of_one(step: Step) -> bool:
    axes, shape = params_of(step.record.eqn)["axes"], np.shape(step.taken[0].number)
    return bool(axes) and all(shape[axis] == 1 for axis in axes)


def _of_product(step: Step) -> str:
    for place, sent in step.sent.items():
        if not is_zero(sent):
            continue
        others = [*_others(step, place)]
        if not all(_is_missing(step, number) for _, number in others):
            return "zero"
        leaves = [leaf for cell, _ in others if cell is not None and (leaf := _closed(cell)) is not None]
        if any(not is_zero(leaf.arriving) for leaf in leaves):
            return "starting"
        if leaves and _closed(step.taken[place]) is not None:
            return "stuck"
    return "factor"


def _others(step: Step, place: int) -> Iterator[tuple[Cell | None, Any]]:
    for slot in range(2):
        cell = next((cell for cell, each in zip(step.taken, step.slots, strict=True) if each == slot), None)
        if cell is not step.taken[place]:
            yield cell, step.given(slot)


def _is_missing(step: Step, factor: Any) -> bool:
    """Whether a factor is zero wherever a gradient comes."""
    if step.record.native != "mul":
        return is_zero(factor)
    return not (np.asarray(factor).astype(bool) & np.asarray(step.live[0].arriving).astype(bool)).any()


def _closed(cell: Cell) -> Cell | None:
    """The leaf of zeros by which a cell is zero: it is a view of it, or a product with it."""
    maker = cell.maker
    factors = [cell] if maker is None or maker.record.native not in _PRODUCTS else [cell, *maker.taken]
    roots = (root for each in factors if (root := rooted(each)).maker is None and root.is_live)
    return next((root for root in roots if is_zero(root.number)), None)
