"""The summands of a loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gradir.frontends.pytorch.recording.flow import FROM_OUTSIDE, Flow, Step, Value

__all__ = ["terms_of"]

_SUMS: Final = frozenset({"add", "sub"})
_SCALES: Final = frozenset({"div", "mul", "neg", "view", "squeeze", "unsqueeze", "to_copy"})
"""Operations of one tensor that leave a sum a sum."""


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


def _is_sum(step: Step) -> bool:
    # Without the signs of what works in place and of what is torch's own.
    name = str(step.func.__name__).partition(".")[0].strip("_")
    return name in _SUMS or (name in _SCALES and len(step.inputs) == 1)
