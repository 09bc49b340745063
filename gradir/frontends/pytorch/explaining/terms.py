"""The summands of a loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradir.frontends.pytorch.recording.flow import FROM_OUTSIDE, SCALES, SUMS, Flow, Step, Value, plain_name

__all__ = ["terms_of"]


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
    name = plain_name(step.func)
    return name in SUMS or (name in SCALES and len(step.inputs) == 1)
