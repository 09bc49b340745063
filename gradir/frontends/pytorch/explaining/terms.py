"""The summands of a loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import torch

from gradir.frontends.pytorch.recording.flow import FROM_OUTSIDE, Flow, Step, Value, is_number
from gradir.frontends.pytorch.recording.operands import SCALES, SUMS, plain_name

__all__ = ["numbers_of", "terms_of"]


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


def numbers_of(
    flow: Flow, terms: Iterable[Value], captured: Iterable[torch.Tensor]
) -> dict[Value, float | Literal["nan", "inf", "-inf"]]:
    """The terms that are one number each, as far as it is known."""
    known = {flow.value_of(tensor): tensor for tensor in captured if is_number(tensor)}
    known.update(flow.numbers)
    return {value: _number(float(known[value].detach())) for value in terms if value in known}


def _number(value: float) -> float | Literal["nan", "inf", "-inf"]:
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _is_sum(step: Step) -> bool:
    name = plain_name(step.func)
    return name in SUMS or (name in SCALES and len(step.inputs) == 1)
