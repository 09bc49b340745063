"""Why an operation makes a gradient zero, infinite or NaN, as far as one run of the operations proves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import jax.numpy as jnp
import numpy as np

from gradir.explanations.model import Level
from gradir.frontends.jax.reading.flatten import Record
from gradir.frontends.jax.reading.jaxprs import is_literal, params_of, place_text
from gradir.frontends.jax.replay import Cell, Replay, Step, is_zero, nonfinite_in, root_of
from gradir.frontends.walks import chain

_SATURATING: Final = frozenset({"erf", "logistic", "sigmoid", "tanh"})
_BOUNDED: Final = frozenset({"clamp", "hard_tanh", "max", "min", "relu", "relu6"})
_PRODUCTS: Final = frozenset({"conv_general_dilated", "dot_general", "mul"})
_MEASURES: Final = frozenset({"abs", "integer_pow", "square"})
# A zero that stays in every step is an alarm, and one that mends itself is none.
_LEVELS: Final[dict[str, Level]] = {
    "starting": "note",
    **dict.fromkeys(("lost", "one_entry", "saturated", "stuck"), "error"),
}
# How many operations to look at: readers of a sum, makers of a number, choices behind it, and what a maximum is of.
_FARTHEST: Final = 4
_MOST_MAKERS: Final = 1_000
_MOST_CHOICES: Final = 20
_MOST_BACK: Final = 10
_INFINITE: Final = ", where its derivative is infinite"


def shown_operation(record: Record) -> str:
    """Return the name of an operation that its user knows: `select_n` is what `jnp.where` calls."""
    return "where" if record.native == "select_n" else record.op


class Why(NamedTuple):
    """The kind and level of a cause, the operation and the step it is about, and what else is known in words."""

    kind: str
    level: Level
    op: str
    step: Step
    detail: str = ""


def why_zero(step: Step, *, is_lost: bool) -> Why:
    """Return why a gradient is zero; ``is_lost`` if the loss is no number."""
    kind, op = ("lost", "") if is_lost else _kind(step)
    return Why(kind, _LEVELS.get(kind, "info"), op or shown_operation(step.record), step)


def why_nonfinite(replay: Replay, step: Step) -> Why:
    """Return why a gradient becomes infinite or NaN in a step: the forward made what it takes so, or its derivative."""
    maker, given = _first(step, _has_nan) or _first(step, _has_infinity) or (None, None)
    masking = None if maker is None else _mask_of_all(maker)
    if maker is not None and masking is not None:
        softmax = maker.record.context.function or "softmax"
        return Why("all_masked", "error", softmax, maker, f"{_place(masking)} leaves nothing in some row")
    choice = _choice(replay, step)
    if choice is not None:
        told = _describe(step, f"{_place(choice)} takes another value there")
        return Why("where_trap", "error", shown_operation(step.record), step, told)
    if maker is None or (given is not None and id(given) not in replay.names):
        return Why("nonfinite", "error", shown_operation(step.record), step, _describe(step))
    if given is not None:
        told = f"`{replay.names[id(given)]}` holds NaN or infinity itself"
        return Why("born" if given.is_live else "nonfinite_input", "error", shown_operation(maker.record), maker, told)
    # NaN that is made of infinity is not to blame, but who made that of numbers.
    larger, constant = _first(maker, _has_infinity) or (None, None)
    first = maker if larger is None or constant is not None else larger
    kind = "nonfinite" if first is step else "born"
    return Why(kind, "error", shown_operation(first.record), first, _describe(first))


def _describe(step: Step, *more: str) -> str:
    function = step.record.context.function
    called = f"`{function}` calls it" if function and function != step.record.op else ""
    whole = "in which operation of a round is not known, since there are too many" if step.record.joins else ""
    trap = _TRAPS.get(step.record.native)
    return "; ".join(filter(None, ("" if trap is None else trap(step), *more, called, whole)))


def _place(step: Step) -> str:
    source = step.record.context.source
    return f"`{shown_operation(step.record)}`{f' {place_text(source)}' if source is not None else ''}"


def _kind(step: Step) -> tuple[str, str]:
    if all(is_zero(cell.arriving) for cell in step.live):
        # What comes to it is not zero on each way, and adds up to zero.
        return _of_sum(step)
    native = step.record.native
    if native in _PRODUCTS:
        return _of_product(step), ""
    if native in _MEASURES and params_of(step.record.eqn).get("y", 2) % 2 == 0:
        return "equal" if is_zero(step.taken[0].number) else "zero", ""
    zeros = [place for place, sent in step.sent.items() if is_zero(sent)]
    of_ones = step.pushed([jnp.ones_like(cell.number) for cell in step.live])
    # Any gradient would become zero here, and not only the one that comes.
    return _of_flat(step) if all(is_zero(of_ones[place]) for place in zeros) else ("zero", "")


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


def _of_sum(step: Step) -> tuple[str, str]:
    """Return the kind and name of a softmax or another normalisation over one entry, which has a constant result."""
    natives, cells = {step.record.native}, [*step.live]
    for _ in range(_FARTHEST):
        readers = [reader for cell in cells for reader, _ in cell.readers]
        for reader in readers:
            axes = params_of(reader.record.eqn)["axes"] if reader.record.native == "reduce_sum" else ()
            if axes and all(np.shape(reader.taken[0].number)[axis] == 1 for axis in axes):
                is_softmax = "exp" in natives | {each.record.native for each in readers}
                function = reader.record.context.function
                return "one_entry", function or ("softmax" if is_softmax else shown_operation(reader.record))
        natives.update(reader.record.native for reader in readers)
        cells = [cell for reader in readers for cell in reader.live]
    return "zero", ""


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
    """Return whether a factor is zero wherever a gradient comes."""
    if step.record.native != "mul":
        return is_zero(factor)
    return not (np.asarray(factor).astype(bool) & np.asarray(step.live[0].arriving).astype(bool)).any()


def _closed(cell: Cell) -> Cell | None:
    """Return the leaf of zeros by which a cell is zero: it is a view of it, or a product with it."""
    maker = cell.maker
    factors = [cell] if maker is None or maker.record.native not in _PRODUCTS else [cell, *maker.taken]
    roots = (root for each in factors if (root := root_of(each)).maker is None and root.is_live)
    return next((root for root in roots if is_zero(root.number)), None)


def _first(step: Step, is_bad: Callable[[Any], bool]) -> tuple[Step, Cell | None] | None:
    """Return the step that made the first bad number a step takes or makes, or took it as it was given, and that."""
    found, given, left, seen = None, None, [step], {step.number}
    while left and len(seen) <= _MOST_MAKERS:
        current = left.pop()
        bad = [cell for cell in current.taken if is_bad(cell.number)]
        if not bad and any(is_bad(cell.number) for cell in current.made):
            found = current
        for cell in bad:
            if cell.maker is None:
                given = current, cell
            elif cell.maker.number not in seen:
                seen.add(cell.maker.number)
                left.append(cell.maker)
    return given or (None if found is None else (found, None))


def _has_nan(number: Any) -> bool:
    return bool((nonfinite_in(number) & np.not_equal(number, number)).any()) if nonfinite_in(number).any() else False


def _has_infinity(number: Any) -> bool:
    return bool(nonfinite_in(number).any()) and not _has_nan(number)


def _mask_of_all(step: Step) -> Step | None:
    """Return the step that fills a whole row with -inf, if a step is a softmax that makes NaN of it."""
    first = step.taken[0] if step.taken else None
    if first is None or not _is_nothing(first.number).any():
        return None
    if step.record.native == "sub":
        second = step.given(1)
        # Nothing but the greatest of a row that is -inf throughout is -inf.
        if not (_is_nothing(second).any() and _descends_from(step.taken[-1], "reduce_max")):
            return None
    elif "softmax" not in step.record.op:
        return None
    return root_of(first).maker


def _is_nothing(number: Any) -> Any:
    return np.equal(number, -np.inf) if nonfinite_in(number).any() else np.zeros(np.shape(number), bool)


def _descends_from(cell: Cell, native: str) -> bool:
    def before(maker: Step) -> Step | None:
        return next((each.maker for each in reversed(maker.taken) if each.maker is not None), None)

    return any(maker.record.native == native for maker in islice(chain(cell.maker, before), _MOST_BACK))


def _choice(replay: Replay, step: Step) -> Step | None:
    """The `where` that takes no number where a step sends back what is not finite, and gives it a gradient of zero."""
    places = [(cell, bad) for cell in step.live if (bad := _spoilt_places(step, cell)) is not None]
    for choice in _choices(step) if places else ():
        if any(_is_blamed(replay, step, choice, cell, bad) for cell, bad in places):
            return choice
    return None


def _spoilt_places(step: Step, made: Cell) -> Any:
    """Return where a gradient of zero comes and NaN or infinity goes back, ``None`` if unknown."""
    unmoved = np.asarray(made.arriving) == 0
    sent = [nonfinite_in(each) for each in step.sent.values()]
    alike = [each for each in sent if each.shape == unmoved.shape and each.any()]
    if not alike:
        return unmoved if unmoved.all() and any(each.any() for each in sent) else None
    # Where a gradient comes that is not zero, the operation itself is to blame.
    spoils = np.logical_or.reduce(alike)
    return unmoved & spoils if (unmoved | ~spoils).all() else None


def _choices(step: Step) -> Iterator[Step]:
    """Yield the first choices between values that take what a step makes."""
    left, seen, count = [*step.live], {id(cell) for cell in step.live}, 0
    while left and count < _MOST_CHOICES:
        for reader, _ in left.pop(0).readers:
            if reader.record.native == "select_n":
                count += 1
                yield reader
            for cell in reader.live:
                if id(cell) not in seen:
                    seen.add(id(cell))
                    left.append(cell)


def _is_blamed(replay: Replay, step: Step, choice: Step, made: Cell, bad: Any) -> bool:
    """Return whether the values that a choice ignores come from where a step sends back NaN or infinity.

    The backward itself tells, run with ones where the choice gives zeros.
    """
    which = np.asarray(choice.given(0)).astype(int)
    gradients: dict[int, Any] = {}
    for place, slot in enumerate(choice.slots):
        if place in choice.sent:
            cell = choice.taken[place]
            left_out = np.broadcast_to(which != slot - 1, np.shape(cell.number))
            gradients[id(cell)] = left_out.astype(cell.number.dtype)
    for between in reversed(replay.steps[step.number + 1 : choice.number]):
        if not any(id(cell) in gradients for cell in between.live):
            continue
        coming = [gradients.get(id(cell), jnp.zeros_like(cell.number)) for cell in between.live]
        for place, sent in between.pushed(coming).items():
            key = id(between.taken[place])
            gradients[key] = gradients[key] + sent if key in gradients else sent
    found = gradients.get(id(made))
    return found is not None and bool((np.asarray(found) != 0)[bad].any())


def _at(number: float, words: str, below: str = "") -> Callable[[Step], str]:
    def describe(step: Step) -> str:
        taken = np.asarray(step.given(0))
        if (taken == number).any():
            return words
        return below if below and not np.iscomplexobj(taken) and (taken < number).any() else ""

    return describe


def _of_division(step: Step) -> str:
    zeros = np.asarray(step.given(1)) == 0
    both = (zeros & (np.asarray(step.given(0)) == 0)).any()
    return f"what it divides by is 0 somewhere{' (0 / 0)' if both else ''}" if zeros.any() else ""


def _of_power(step: Step) -> str:
    base, power = np.asarray(step.given(0)), np.asarray(step.given(1))
    if ((base == 0) & (power < 1) & (power != 0)).any():
        return "its base is 0 somewhere, where the derivative of a power below 1 is infinite"
    is_unreal = not np.iscomplexobj(base) and bool(((base < 0) & (power != np.round(power))).any())
    return "its base is below 0 somewhere, where only whole powers are real" if is_unreal else ""


def _of_arc(step: Step) -> str:
    taken = np.abs(np.asarray(step.given(0)))
    if (taken == 1).any():
        return f"its input is 1 or -1 somewhere{_INFINITE}"
    return "its input is beyond 1 or -1 somewhere, where it is not defined" if (taken > 1).any() else ""


def _if(holds: Callable[[Step], Any], words: str) -> Callable[[Step], str]:
    return lambda step: words if holds(step) else ""


def _both(are: Callable[[Any], Any]) -> Callable[[Step], Any]:
    return lambda step: (are(np.asarray(step.given(0))) & are(np.asarray(step.given(1)))).any()


_UNREAL: Final = "its input is below 0 somewhere, where it is NaN"
_TRAPS: Final[dict[str, Callable[[Step], str]]] = {
    **dict.fromkeys(("log", "sqrt"), _at(0.0, f"its input is 0 somewhere{_INFINITE}", _UNREAL)),
    "cbrt": _at(0.0, f"its input is 0 somewhere{_INFINITE}"),
    "rsqrt": _at(0.0, "its input, which it divides by, is 0 somewhere", _UNREAL),
    "log1p": _at(-1.0, f"its input is -1 somewhere{_INFINITE}", "its input is below -1 somewhere, where it is NaN"),
    "acosh": _at(1.0, f"its input is 1 somewhere{_INFINITE}", "its input is below 1 somewhere, where it is NaN"),
    **dict.fromkeys(("acos", "asin", "atanh", "erf_inv"), _of_arc),
    "atan2": _if(
        _both(lambda number: number == 0), "both of its inputs are 0 somewhere, where it has no derivative (0 / 0)"
    ),
    "div": _of_division,
    "pow": _of_power,
    "integer_pow": _if(
        lambda step: step.record.eqn.params["y"] < 0 and (np.asarray(step.given(0)) == 0).any(),
        "what it divides by is 0 somewhere",
    ),
    "sub": _if(_both(nonfinite_in), "it subtracts infinity from infinity"),
    **dict.fromkeys(
        ("cosh", "exp", "exp2", "expm1", "sinh"),
        _if(
            lambda step: any(np.isinf(np.asarray(cell.number)).any() for cell in step.made),
            "its result is too large for its dtype somewhere",
        ),
    ),
}
