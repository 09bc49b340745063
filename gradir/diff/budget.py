"""Conditions under which a difference is too much: ``params``, ``saved-bytes>5%``, ``nodes>10``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gradir.diff.model import Diff, Totals
from gradir.errors import GradirError

__all__ = ["Condition", "exceeded", "parsed"]

_METRICS: Final = {"nodes": "nodes", "edges": "edges", "params": "parameters", "saved-bytes": "saved_bytes"}
_UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_CONDITION: Final = re.compile(
    r"(?P<metric>[a-z-]+)(?:>(?P<limit>\d+(?:\.\d+)?)(?:(?P<percent>%)|(?P<unit>[kMG]?)B?))?"
)


class Condition(NamedTuple):
    """One condition: a metric, and by how much it may grow; without a limit it must not change at all."""

    text: str
    metric: str
    limit: float | None = None
    relative: bool = False


def parsed(text: str) -> tuple[Condition, ...]:
    """The conditions that a comma-separated list names.

    Raises:
        GradirError: one is not METRIC, METRIC>NUMBER or METRIC>NUMBER%.

    >>> parsed("params,saved-bytes>1.5kB")[1].limit
    1500.0
    """
    return tuple(_condition(word.strip()) for word in text.split(","))


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None or match["metric"] not in _METRICS:
        raise GradirError(
            f"{text!r} is no condition: write METRIC, METRIC>NUMBER or METRIC>NUMBER%, "
            f"where METRIC is one of {', '.join(_METRICS)}"
        )
    if match["limit"] is None:
        return Condition(text, match["metric"])
    if match["percent"]:
        return Condition(text, match["metric"], float(match["limit"]), relative=True)
    return Condition(text, match["metric"], float(match["limit"]) * _UNITS[match["unit"]])


def exceeded(diff: Diff, conditions: Sequence[Condition]) -> Iterator[str]:
    """A line for each condition that holds.

    >>> diff = Diff(Totals(parameters=100), Totals(parameters=120))
    >>> list(exceeded(diff, parsed("params>10%,nodes")))
    ['params>10%: 100 -> 120 (+20.0 %)']
    """
    for condition in conditions:
        before, after = (_value(condition, totals) for totals in (diff.before, diff.after))
        if _holds(condition, before, after):
            share = f" ({100 * (after - before) / before:+.1f} %)" if before else ""
            yield f"{condition.text}: {before:,} -> {after:,}{share}"


def _value(condition: Condition, totals: Totals) -> int:
    value: int = getattr(totals, _METRICS[condition.metric])
    return value


def _holds(condition: Condition, before: int, after: int) -> bool:
    if condition.limit is None:
        return before != after
    if condition.relative:
        return (after - before) * 100 > condition.limit * before
    return after - before > condition.limit
