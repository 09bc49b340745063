"""The summands of a loss, and what is computed of the parameters and was never added to one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import torch

from gradir.explanations.model import Cause, Level, Term
from gradir.frontends.pytorch.explaining.words import Words, called, lines_of
from gradir.frontends.pytorch.recording.flow import Flow, is_number
from gradir.frontends.pytorch.recording.operands import SCALES, SUMS, plain_name
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Read, Step, Value

if TYPE_CHECKING:
    from gradir.frontends.pytorch.explaining.cuts import Flowing

__all__ = ["numbers_of", "of_unused", "terms_of", "told_terms"]

Number: TypeAlias = "float | Literal['nan', 'inf', '-inf']"

_MOST_TOLD: Final = 3

_FEWEST_COPIED: Final = 2
"""How many parameters have to have a counterpart each to be called copied."""

_MOST_KEPT: Final = _MOST_TOLD + 1
"""How many ends are kept of each value: one more than are told, so that it is known whether there are others."""


def terms_of(flow: Flow, values: Iterable[Value]) -> Iterator[Value]:
    """What values are sums of, each once, in the order of the program; a value that is no sum is its own only term."""
    waiting = [*values][::-1]
    seen: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        step = flow.step_of(value)
        if step is None or not _is_sum(step):
            yield value
        else:
            waiting.extend(read.value for read in reversed(step.inputs))


def told_terms(
    flow: Flow,
    terms: Iterable[Value],
    numbers: Mapping[Value, Number],
    names_behind: Callable[[Value], tuple[str, ...]],
    lines: ShownLines,
) -> Iterator[Term]:
    """The terms as an explanation has them."""
    for value in terms:
        step = flow.step_of(value)
        yield Term(
            names_behind(value),
            flow.variables.get(value, ""),
            "" if step is None else called(step),
            None if step is None else lines_of(step.place, lines)[0],
            numbers.get(value),
        )


def numbers_of(flow: Flow, terms: Iterable[Value], captured: Iterable[torch.Tensor]) -> dict[Value, Number]:
    """The terms that are one number each, as far as it is known."""
    known = {flow.value_of(tensor): tensor for tensor in captured if is_number(tensor)}
    known.update(flow.numbers)
    return {value: _number(float(known[value].detach())) for value in terms if value in known}


def _number(value: float) -> Number:
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _is_sum(step: Step) -> bool:
    name = plain_name(step.func)
    return name in SUMS or (name in SCALES and len(step.inputs) == 1)


def of_unused(words: Words, flowing: Flowing, level: Level, leaves: Mapping[str, Value]) -> Iterator[Cause]:
    """Why nothing that was captured is computed of ``leaves``, a cause for those that the same is computed of."""
    ends = loose_ends(words.flow, flowing) if leaves else {}
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, leaf in leaves.items():
        groups.setdefault(ends.get(leaf, ()), []).append(name)
    read = {taken.value for taken in _taken(words.flow, flowing)} if any(groups) else set[Value]()
    for numbers, names in groups.items():
        place = words.flow.steps[numbers[0]].place if numbers else None
        kind = "copied" if not numbers and _has_copies(words, flowing, [leaves[name] for name in names]) else "unused"
        yield words.cause(kind, level, "", names, place, detail=_told(words, numbers, read))


def _has_copies(words: Words, flowing: Flowing, leaves: Sequence[Value]) -> bool:
    """Whether the loss is computed of parameters without a name that have the shapes of these, one for each."""
    others = {flowing.root(value) for value in flowing.wanted} - words.names.keys()
    shapes = Counter[object](
        words.flow.meta_of(value).shape
        for value in others
        if value.maker == FROM_OUTSIDE and words.flow.outside[value.number].role == "parameter"
    )
    tensors = map(words.flow.tensor_of, leaves)
    wanted = Counter[object](None if tensor is None else tuple(tensor.shape) for tensor in tensors)
    return len(leaves) >= _FEWEST_COPIED and not wanted - shapes


def _told(words: Words, numbers: tuple[int, ...], read: Set[Value]) -> str:
    """What the last steps made, as the detail of a cause; of ``read`` the numbers go on."""
    if not numbers:
        return ""
    made = [*dict.fromkeys(words.made_as(_first_named(words.flow, number)) for number in numbers[:_MOST_TOLD])]
    others = " and others" if len(numbers) > _MOST_TOLD else ""
    is_one = len(made) == 1 and not others
    listed = f"{', '.join(made)}{others} {'is' if is_one else 'are'}"
    if any(value in read for number in numbers for value in words.flow.made_by(number)):
        return f"{listed}, and {'its' if is_one else 'their'} numbers go on without a gradient"
    return f"{listed}, and {'goes' if is_one else 'go'} no further"


def loose_ends(flow: Flow, flowing: Flowing) -> dict[Value, tuple[int, ...]]:
    """By leaf, the newest of the last steps that a gradient would come from, if anything captured were made of them.

    A step is the last where nothing that carries a gradient takes what it made. Those are left out of which what was
    captured is made.
    """
    ends: dict[Value, tuple[int, ...]] = {}
    for number in range(len(flow.steps) - 1, -1, -1):
        outputs = flow.made_by(number)
        after = {end for output in outputs for end in ends.pop(output, ())}
        carries = any(output in flowing.carrying or flowing.should_carry(output) for output in outputs)
        # What torch keeps for the derivative of an operation is no result of the program.
        if not carries or outputs[0] in flowing.saved or not flowing.wanted.isdisjoint(outputs):
            continue
        newest = tuple(sorted(after or {number}, reverse=True)[:_MOST_KEPT])
        for read in (read for read in flowing.sources(outputs[0]) if read.carries):
            taken = flowing.root(read.value) if read.is_leaf else read.value
            known = ends.get(taken, ())
            ends[taken] = newest if not known else tuple(sorted({*known, *newest}, reverse=True)[:_MOST_KEPT])
    return ends


def _first_named(flow: Flow, number: int) -> Value:
    """The first result of a step that was in a variable, or else its first."""
    values = flow.made_by(number)
    return next((value for value in values if value in flow.variables), values[0])


def _taken(flow: Flow, flowing: Flowing) -> Iterator[Read]:
    """What operations take, what functions turn into numbers, and what is assigned to a ``.data``."""
    for number, step in enumerate(flow.steps):
        if Value(number, 0) not in flowing.saved:
            yield from step.inputs
    for found in (*flow.exits, *flow.exchanges):
        yield from found.reads
