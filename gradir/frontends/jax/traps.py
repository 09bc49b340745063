"""Explain why an operation makes a gradient zero, infinite or NaN, from one run of the operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import jax.numpy as jnp
import numpy as np

from gradir.explanations.model import Level
from gradir.frontends.jax.reading.flatten import Record
from gradir.frontends.jax.reading.jaxprs import is_literal, params_of, place_text
from gradir.frontends.jax.replay import Cell, Replay, Step, find_nonfinite, is_zero, root_of
from gradir.frontends.walks import follow

_SATURATING: Final = frozenset({"erf", "logistic", "sigmoid", "tanh"})
_BOUNDED: Final = frozenset({"clamp", "hard_tanh", "max", "min", "relu", "relu6"})
_PRODUCTS: Final = frozenset({"conv_general_dilated", "dot_general", "mul"})
_MEASURES: Final = frozenset({"abs", "integer_pow", "square"})
# A zero that persists in every step is an error.
_LEVELS: Final[dict[str, Level]] = {
    "starting": "note",
    **dict.fromkeys(("lost", "one_entry", "saturated", "stuck", "underflow"), "error"),
}
# Limits of operations to visit: readers of a sum, makers of a value, later choices, and makers before a maximum.
_FARTHEST: Final = 4
_MOST_MAKERS: Final = 1_000
_MOST_CHOICES: Final = 20
_MOST_BACK: Final = 10
# The exponent of the smallest normal number in float32.
_LEAST_EXPONENT: Final = -126
_INFINITE: Final = ", where its derivative is infinite"


def operation_name(record: Record) -> str:
    """Return the name of an operation that users know: `jnp.where` calls `select_n`."""
    return "where" if record.native == "select_n" else record.op


class Why(NamedTuple):
    """The kind and level of a cause, its operation and step, and a text with details."""

    kind: str
    level: Level
    op: str
    step: Step
    detail: str = ""


def explain_zero(step: Step, *, is_lost: bool) -> Why:
    """Return why a gradient is zero; ``is_lost`` means that the loss is not finite."""
    kind, op = ("lost", "") if is_lost else _classify_zero(step)
    return Why(kind, _LEVELS.get(kind, "info"), op or operation_name(step.record), step)


def explain_nonfinite(replay: Replay, step: Step) -> Why:
    """Return why a gradient becomes infinite or NaN: by a value of the forward pass, or by a derivative."""
    maker, leaf = _find_first(step, _has_nan) or _find_first(step, _has_infinity) or (None, None)
    masking = None if maker is None else _find_full_mask(maker)
    if maker is not None and masking is not None:
        softmax = maker.record.context.function or "softmax"
        return Why("all_masked", "error", softmax, maker, f"{_place(masking)} leaves nothing in some row")
    choice = _find_choice(replay, step)
    if choice is not None:
        detail = _describe(step, f"{_place(choice)} takes another value there")
        return Why("where_trap", "error", operation_name(step.record), step, detail)
    if maker is None or (leaf is not None and id(leaf) not in replay.names):
        return Why("nonfinite", "error", operation_name(step.record), step, _describe(step))
    if leaf is not None:
        detail = f"`{replay.names[id(leaf)]}` contains NaN or infinity itself"
        return Why("born" if leaf.is_live else "nonfinite_input", "error", operation_name(maker.record), maker, detail)
    # If NaN comes from infinity, the origin is the operation that made infinity.
    larger, constant = _find_first(maker, _has_infinity) or (None, None)
    first = maker if larger is None or constant is not None else larger
    kind = "nonfinite" if first is step else "born"
    return Why(kind, "error", operation_name(first.record), first, _describe(first))


def _describe(step: Step, more: str = "") -> str:
    function = step.record.context.function
    caller = f"`{function}` calls it" if function and function != step.record.op else ""
    loop = "in which operation of a round is not known, since there are too many" if step.record.joins else ""
    trap = _TRAPS.get(step.record.native)
    return "; ".join(filter(None, ("" if trap is None else trap(step), more, caller, loop)))


def _place(step: Step) -> str:
    source = step.record.context.source
    return f"`{operation_name(step.record)}`{f' {place_text(source)}' if source is not None else ''}"


def _classify_zero(step: Step) -> tuple[str, str]:
    """Return the kind of a zero gradient, and the name of its operation if it differs from the step's."""
    record = step.record
    if all(is_zero(cell.arriving) for cell in step.live):
        # The arriving gradients are not zero, but their sum is.
        return _classify_sum(step)
    if _underflows(step):
        return "underflow", ""
    if record.native in _PRODUCTS:
        return _classify_product(step), ""
    if record.native in _MEASURES and params_of(record.eqn).get("y", 2) % 2 == 0:
        return "equal" if is_zero(step.inputs[0].number) else "zero", ""
    sent = step.pull_back([jnp.ones_like(cell.number) for cell in step.live])
    if not all(is_zero(sent[place]) for place, gradient in step.sent.items() if is_zero(gradient)):
        return "zero", ""
    return _classify_flat(record)


def _underflows(step: Step) -> bool:
    """Return whether a step that makes gradients of float16 zero would not do so if larger gradients arrived."""
    zeros = [place for place, sent in step.sent.items() if is_zero(sent) and sent.dtype == jnp.float16]
    largest = max(float(jnp.abs(cell.arriving).max()) for cell in step.live if np.size(cell.arriving))
    if not zeros or not np.isfinite(largest):
        return False
    # The backward is linear, and a power of 2 changes no rounding.
    scale = 2.0 ** max(math.floor(math.log2(largest)), _LEAST_EXPONENT)
    larger = step.pull_back([cell.arriving / scale for cell in step.live])
    return not all(is_zero(larger[place]) for place in zeros)


def _classify_flat(record: Record) -> tuple[str, str]:
    """Return the kind of an operation that makes every gradient zero, even one of ones."""
    if record.context.function == "clip":
        return "dead", "clip"
    if record.native in ("max", "min") and not any(map(is_literal, record.eqn.invars)):
        return "not_chosen", ""
    if record.native == "select_n":
        return "masked", ""
    names = {record.native, record.op}
    return "saturated" if names & _SATURATING else "dead" if names & _BOUNDED else "zero", ""


def _classify_sum(step: Step) -> tuple[str, str]:
    """Return the kind and name of a softmax or another normalization over one entry, whose result is constant."""
    natives, cells = {step.record.native}, [*step.live]
    for _ in range(_FARTHEST):
        readers = [reader for cell in cells for reader, _ in cell.readers]
        for reader in readers:
            axes = params_of(reader.record.eqn)["axes"] if reader.record.native == "reduce_sum" else ()
            if axes and all(np.shape(reader.inputs[0].number)[axis] == 1 for axis in axes):
                is_softmax = "exp" in natives | {each.record.native for each in readers}
                function = reader.record.context.function
                return "one_entry", function or ("softmax" if is_softmax else operation_name(reader.record))
        natives.update(reader.record.native for reader in readers)
        cells = [cell for reader in readers for cell in reader.live]
    return "zero", ""


def _classify_product(step: Step) -> str:
    for place, sent in step.sent.items():
        if not is_zero(sent):
            continue
        others = [*_other_factors(step, place)]
        if not all(_is_masked(step, number) for _, number in others):
            return "zero"
        leaves = [leaf for cell, _ in others if cell is not None and (leaf := _find_zero_leaf(cell)) is not None]
        if any(not is_zero(leaf.arriving) for leaf in leaves):
            return "starting"
        if leaves and _find_zero_leaf(step.inputs[place]) is not None:
            return "stuck"
    return "factor"


def _other_factors(step: Step, place: int) -> Iterator[tuple[Cell | None, Any]]:
    for slot in range(2):
        cell = next((cell for cell, each in zip(step.inputs, step.slots, strict=True) if each == slot), None)
        if cell is not step.inputs[place]:
            yield cell, step.input_value(slot)


def _is_masked(step: Step, factor: Any) -> bool:
    """Return whether a factor is zero wherever a gradient arrives."""
    if step.record.native != "mul":
        return is_zero(factor)
    return not (np.asarray(factor).astype(bool) & np.asarray(step.live[0].arriving).astype(bool)).any()


def _find_zero_leaf(cell: Cell) -> Cell | None:
    """Return a leaf of zeros that makes a cell zero, as a view of the leaf or a product with it."""
    maker = cell.maker
    factors = [cell] if maker is None or maker.record.native not in _PRODUCTS else [cell, *maker.inputs]
    roots = (root for each in factors if (root := root_of(each)).maker is None and root.is_live)
    return next((root for root in roots if is_zero(root.number)), None)


def _find_first(step: Step, is_bad: Callable[[Any], bool]) -> tuple[Step, Cell | None] | None:
    """Return the step that made the first bad value before a step, or that used a bad leaf, and the leaf."""
    found, leaf, waiting, seen = None, None, [step], {step.number}
    while waiting and len(seen) <= _MOST_MAKERS:
        current = waiting.pop()
        bad = [cell for cell in current.inputs if is_bad(cell.number)]
        if not bad and any(is_bad(cell.number) for cell in current.outputs):
            found = current
        for cell in bad:
            if cell.maker is None:
                leaf = current, cell
            elif cell.maker.number not in seen:
                seen.add(cell.maker.number)
                waiting.append(cell.maker)
    return leaf or (None if found is None else (found, None))


def _has_nan(number: Any) -> bool:
    bad = find_nonfinite(number)
    return bool(bad.any()) and bool((bad & np.not_equal(number, number)).any())


def _has_infinity(number: Any) -> bool:
    return bool(find_nonfinite(number).any()) and not _has_nan(number)


def _find_full_mask(step: Step) -> Step | None:
    """Return the step that fills a whole row with -inf, if a step is a softmax that makes NaN of it."""
    first = step.inputs[0] if step.inputs else None
    if first is None or not _has_minus_infinity(first.number):
        return None
    if step.record.native == "sub":
        # The maximum of a row is -inf only if every entry is -inf.
        if not (_has_minus_infinity(step.input_value(1)) and _descends_from(step.inputs[-1], "reduce_max")):
            return None
    elif "softmax" not in step.record.op:
        return None
    return root_of(first).maker


def _has_minus_infinity(number: Any) -> bool:
    return bool(find_nonfinite(number).any()) and bool(np.equal(number, -np.inf).any())


def _descends_from(cell: Cell, native: str) -> bool:
    def last_maker(step: Step) -> Step | None:
        return next((each.maker for each in reversed(step.inputs) if each.maker is not None), None)

    return any(maker.record.native == native for maker in islice(follow(cell.maker, last_maker), _MOST_BACK))


def _find_choice(replay: Replay, step: Step) -> Step | None:
    """Return the `where` that ignores the values for which a step sends back NaN or infinity."""
    places = [(cell, bad) for cell in step.live if (bad := _find_spoilt_places(step, cell)) is not None]
    choices = _list_choices(step) if places else ()
    return next((each for each in choices if any(_ignores(replay, step, each, *place) for place in places)), None)


def _find_spoilt_places(step: Step, output: Cell) -> Any:
    """Return a mask of the entries that get a zero gradient and send back NaN or infinity, ``None`` if unknown."""
    is_zeroed = np.asarray(output.arriving) == 0
    sent = [find_nonfinite(each) for each in step.sent.values()]
    same_shape = [each for each in sent if each.shape == is_zeroed.shape and each.any()]
    if not same_shape:
        return is_zeroed if is_zeroed.all() and any(each.any() for each in sent) else None
    # If an entry has a nonzero gradient, the operation itself is the origin.
    spoils = np.logical_or.reduce(same_shape)
    return is_zeroed & spoils if (is_zeroed | ~spoils).all() else None


def _list_choices(step: Step) -> Iterator[Step]:
    """Yield the first choices between values that use the results of a step."""
    waiting, seen, count = [*step.live], {id(cell) for cell in step.live}, 0
    while waiting and count < _MOST_CHOICES:
        for reader, _ in waiting.pop(0).readers:
            if reader.record.native == "select_n":
                count += 1
                yield reader
            for cell in reader.live:
                if id(cell) not in seen:
                    seen.add(id(cell))
                    waiting.append(cell)


def _ignores(replay: Replay, step: Step, choice: Step, output: Cell, bad: Any) -> bool:
    """Return whether the values that a choice ignores depend on the entries that send back NaN or infinity.

    A backward pass shows this, with ones in the entries to which the choice gives zeros.
    """
    which = np.asarray(choice.input_value(0)).astype(int)
    gradients: dict[int, Any] = {}
    for place, slot in enumerate(choice.slots):
        if place in choice.sent:
            cell = choice.inputs[place]
            left_out = np.broadcast_to(which != slot - 1, np.shape(cell.number))
            gradients[id(cell)] = left_out.astype(cell.number.dtype)
    for between in reversed(replay.steps[step.number + 1 : choice.number]):
        if not any(id(cell) in gradients for cell in between.live):
            continue
        coming = [gradients.get(id(cell), jnp.zeros_like(cell.number)) for cell in between.live]
        for place, sent in between.pull_back(coming).items():
            key = id(between.inputs[place])
            gradients[key] = gradients[key] + sent if key in gradients else sent
    found = gradients.get(id(output))
    return found is not None and bool((np.asarray(found) != 0)[bad].any())


def _inputs(step: Step) -> list[Any]:
    return [np.asarray(step.input_value(slot)) for slot in range(2)]


def _point_text(number: float, text: str, below: str = "") -> Callable[[Step], str]:
    def describe(step: Step) -> str:
        value = np.asarray(step.input_value(0))
        if (value == number).any():
            return text
        return below if below and not np.iscomplexobj(value) and (value < number).any() else ""

    return describe


def _describe_division(step: Step) -> str:
    numerator, denominator = _inputs(step)
    both = ((denominator == 0) & (numerator == 0)).any()
    return f"its divisor is 0 somewhere{' (0 / 0)' if both else ''}" if (denominator == 0).any() else ""


def _describe_power(step: Step) -> str:
    base, power = _inputs(step)
    if ((base == 0) & (power < 1) & (power != 0)).any():
        return "its base is 0 somewhere, where the derivative of a power below 1 is infinite"
    is_unreal = not np.iscomplexobj(base) and bool(((base < 0) & (power != np.round(power))).any())
    return "its base is below 0 somewhere, where only whole powers are real" if is_unreal else ""


def _describe_arc(step: Step) -> str:
    size = np.abs(np.asarray(step.input_value(0)))
    if (size == 1).any():
        return f"its input is 1 or -1 somewhere{_INFINITE}"
    return "its input is beyond 1 or -1 somewhere, where it is not defined" if (size > 1).any() else ""


def _describe_if(test: Callable[[Step], Any], text: str) -> Callable[[Step], str]:
    return lambda step: text if test(step) else ""


def _test_both(test: Callable[[Any], Any]) -> Callable[[Step], Any]:
    return lambda step: np.logical_and(*map(test, _inputs(step))).any()


_UNREAL: Final = "its input is below 0 somewhere, where it is NaN"
_TRAPS: Final[dict[str, Callable[[Step], str]]] = {
    **dict.fromkeys(("log", "sqrt"), _point_text(0.0, f"its input is 0 somewhere{_INFINITE}", _UNREAL)),
    "cbrt": _point_text(0.0, f"its input is 0 somewhere{_INFINITE}"),
    "rsqrt": _point_text(0.0, "its input, which it divides by, is 0 somewhere", _UNREAL),
    "log1p": _point_text(
        -1.0, f"its input is -1 somewhere{_INFINITE}", "its input is below -1 somewhere, where it is NaN"
    ),
    "acosh": _point_text(
        1.0, f"its input is 1 somewhere{_INFINITE}", "its input is below 1 somewhere, where it is NaN"
    ),
    **dict.fromkeys(("acos", "asin", "atanh", "erf_inv"), _describe_arc),
    "atan2": _describe_if(
        _test_both(lambda number: number == 0), "both of its inputs are 0 somewhere, where it has no derivative (0 / 0)"
    ),
    "div": _describe_division,
    "pow": _describe_power,
    "integer_pow": _describe_if(
        lambda step: step.record.eqn.params["y"] < 0 and (np.asarray(step.input_value(0)) == 0).any(),
        "its divisor is 0 somewhere",
    ),
    "sub": _describe_if(_test_both(find_nonfinite), "it subtracts infinity from infinity"),
    **dict.fromkeys(
        ("cosh", "exp", "exp2", "expm1", "sinh"),
        _describe_if(
            lambda step: any(np.isinf(np.asarray(cell.number)).any() for cell in step.outputs),
            "its result is too large for its dtype somewhere",
        ),
    ),
}
