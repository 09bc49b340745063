"""The summands of a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import torch

from gradir.explanations.model import Term
from gradir.frontends.pytorch.explaining.words import called, lines_of
from gradir.frontends.pytorch.recording.flow import Flow, is_number
from gradir.frontends.pytorch.recording.operands import SCALES, SUMS, plain_name
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value

__all__ = ["numbers_of", "terms_of", "told_terms"]

Number: TypeAlias = "float | Literal['nan', 'inf', '-inf']"


def terms_of(flow: Flow, values: Iterable[Value]) -> Iterator[Value]:
    """What values are sums of, each once, in the order of the program; a value that is no sum is its own only term."""
    waiting = [*values][::-1]
    seen: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        step = None if value.maker == FROM_OUTSIDE else flow.steps[value.maker]
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
        step = None if value.maker == FROM_OUTSIDE else flow.steps[value.maker]
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
