"""Conditions under which a difference is too much: ``params``, ``saved-bytes>5%``, ``nodes>10``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diff.report.headline import unknown_sizes
from gradir.errors import GradirError
from gradir.ir.totals import unknown_slots

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradir.diff.model import Diff, Totals
    from gradir.diff.report.places import Sides

__all__ = ["Condition", "Finding", "findings", "parsed"]

_SAVED: Final = "saved-bytes"
_METRICS: Final = {"nodes": "nodes", "edges": "edges", "params": "parameters", _SAVED: "saved_bytes"}
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


class Finding(NamedTuple):
    """What a condition comes to: a line that says it, and whether it fails."""

    text: str
    fails: bool


def findings(diff: Diff, sides: Sides, conditions: Sequence[Condition]) -> Iterator[Finding]:
    """Each condition that holds between two graphs, or that cannot be known not to.

    Saved bytes leave out the slots of unknown size. Where there are more of those than before, a condition on saved
    bytes fails, since they may hold any number; otherwise what is known decides, and a line says what it leaves out.

    >>> from gradir.diff.compare import compare
    >>> from gradir.ir import Graph, Node, Saved
    >>> slots = Saved("self", bytes=8), Saved("self", state="hooked")
    >>> a, b = (Graph.of([Node("x", saved=(slot,))]) for slot in slots)
    >>> list(findings(compare(a, b), (a, b), parsed("nodes,saved-bytes>5%")))
    [Finding(text='saved-bytes>5%: 8 -> 0 (-100.0 %), unknown for 1 slot', fails=True)]
    """
    slots = [unknown_slots(graph.nodes.values()) for graph in sides]
    for condition in conditions:
        before, after = (_value(condition, totals) for totals in (diff.before, diff.after))
        unknown = unknown_sizes(*slots) if condition.metric == _SAVED else ""
        fails = _holds(condition, before, after) or (bool(unknown) and _unknown_grew(condition, *slots))
        if fails or (unknown and diff.script):
            share = f" ({100 * (after - before) / before:+.1f} %)" if before else ""
            figure = f"{condition.text}: {before:,} -> {after:,}{share}"
            rest = unknown if fails or not unknown else f"{unknown}, which do not count"
            yield Finding(", ".join(filter(None, (figure, rest))), fails)


def _unknown_grew(condition: Condition, before: int, after: int) -> bool:
    """Whether slots of unknown size may hold more than they may; without a limit, whether their number changed."""
    return before != after if condition.limit is None else after > before


def _value(condition: Condition, totals: Totals) -> int:
    value: int = getattr(totals, _METRICS[condition.metric])
    return value


def _holds(condition: Condition, before: int, after: int) -> bool:
    if condition.limit is None:
        return before != after
    if condition.relative:
        return (after - before) * 100 > condition.limit * before
    return after - before > condition.limit
