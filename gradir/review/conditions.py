"""Conditions under which a difference is too much: ``cuts``, ``params``, ``saved-bytes>5%``, ``nodes>10``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.errors import GradirError
from gradir.ir.cuts import lacking_flow
from gradir.ir.model import MOST
from gradir.ir.text import amount, counted
from gradir.review.headline import new_cuts, new_places, unknown_sizes
from gradir.review.lost_inputs import lost_inputs_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradir.diffs.changes import Change
    from gradir.ir import Graph
    from gradir.review.comparison import Comparison

__all__ = ["METRICS", "Condition", "Finding", "findings", "parsed"]

_SAVED: Final = "saved-bytes"
_CUTS: Final = "cuts"
_TOTALS: Final = {"nodes": "nodes", "edges": "edges", "params": "parameters", _SAVED: "saved_bytes"}
_LOST: Final = "lost-inputs"
_UNOWNED: Final = "unowned"
METRICS: Final = (_CUTS, *_TOTALS, _LOST, _UNOWNED)
_MAY_BE_REACHED: Final = "hidden"
"""The kind of cut of a parameter that an opaque function may reach."""

_UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_CONDITION: Final = re.compile(
    r"(?P<metric>[a-z-]+)(?:>(?P<limit>\d+(?:\.\d+)?)(?:(?P<percent>%)|(?P<unit>[kMG]?)B?))?"
)


class Condition(NamedTuple):
    """One condition: a metric, and by how much it may grow; without a limit it must not change at all.

    The metric ``cuts`` is about single parameters, not their number: it grows by each that newly gets no gradient, even
    where another gets one again.
    """

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
    if match is None or match["metric"] not in METRICS:
        raise GradirError(
            f"{text!r} is no condition: write METRIC, METRIC>NUMBER or METRIC>NUMBER%, "
            f"where METRIC is one of {', '.join(METRICS)}"
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


def findings(comparison: Comparison, conditions: Sequence[Condition]) -> Iterator[Finding]:
    """Each condition that holds between two graphs, or that cannot be known not to.

    Saved bytes leave out the slots of unknown size. Where there are more of those than before, a condition on saved
    bytes fails, since they may hold any number; otherwise what is known decides, and a line says what it leaves out.
    A figure that is beyond counting on both sides may have grown by any number, and fails wherever anything changed.
    Where no condition names ``cuts``, ``lost-inputs`` or ``unowned``, new ones fail nothing, and a line says that there
    are any.

    >>> from gradir.ir import Graph, Node, Saved
    >>> from gradir.review.comparison import Comparison
    >>> slots = Saved("self", bytes=8), Saved("self", state="hooked")
    >>> a, b = (Graph.of([Node("x", saved=(slot,))]) for slot in slots)
    >>> list(findings(Comparison(a, b), parsed("nodes,saved-bytes>5%")))
    [Finding(text='saved-bytes>5%: 8 -> 0 (-100.0 %), unknown for 1 slot', fails=True)]
    """
    diff, slots = comparison.diff, comparison.unknown_slots
    yield from _cut_findings(comparison, conditions)
    for metric, (count, text) in {_LOST: _lost_inputs(comparison), _UNOWNED: _unowned(comparison)}.items():
        yield from _new_findings(metric, count, text, conditions)
    for condition in conditions:
        if condition.metric in {_CUTS, _LOST, _UNOWNED}:
            continue
        before, after = (getattr(totals, _TOTALS[condition.metric]) for totals in (diff.before, diff.after))
        unknown = unknown_sizes(*slots) if condition.metric == _SAVED else ""
        # Slots of unknown size may hold more than they may; without a limit, their number must not change.
        more_unknown = slots[0] != slots[1] if condition.limit is None else slots[1] > slots[0]
        fails = _holds(condition, before, after) or (bool(unknown) and more_unknown)
        fails = fails or (min(before, after) >= MOST and bool(diff.script))
        if fails or (unknown and diff.script):
            share = f" ({100 * (after - before) / before:+.1f} %)" if before else ""
            figure = f"{condition.text}: {amount(before)} -> {amount(after)}{share}"
            rest = unknown if fails or not unknown else f"{unknown}, which do not count"
            yield Finding(", ".join(filter(None, (figure, rest))), fails)


def _cut_findings(comparison: Comparison, conditions: Sequence[Condition]) -> Iterator[Finding]:
    """What the conditions on cuts come to; where there are none, that there are new cuts. What is meant is none."""
    changes = [change for change in comparison.diff.changes if change.subject == "cut"]
    parameters = [change for change in changes if change.cut is None]
    had_none = _without_gradient(comparison.before)
    new = [
        change
        for change in parameters
        if (change.kind == "added" and change.id not in had_none) or _is_sure_now(change)
    ]
    places = new_places(changes)
    said = ", ".join(filter(None, (_new_cuts_text(new), *new_cuts(places))))
    named = [condition for condition in conditions if condition.metric == _CUTS]
    if said and not named:
        yield Finding(f"{said}; --fail-on {_CUTS} fails on that", fails=False)
    # Places that one side alone was asked for are no growth.
    has_places = lacking_flow(*comparison.graphs) is None
    known = [[cut for cut in graph.cuts if has_places or not cut.is_place] for graph in comparison.graphs]
    before, after = (sum(not cut.meant for cut in cuts) for cuts in known)
    for condition in named:
        grown = max(len(new) + len(places), after - before)
        fails = bool(said or before != after) if condition.limit is None else _holds(condition, before, before + grown)
        if fails:
            yield Finding(", ".join(filter(None, (f"{condition.text}: {before:,} -> {after:,}", said))), fails)


def _without_gradient(graph: Graph) -> set[str]:
    """The parameters that places of a graph cut off for good, since they are not in it."""
    names = {name for cut in graph.cuts if cut.is_place for name in cut.names}
    return names.difference(*(node.names for node in graph.nodes.values())) if names else names


def _lost_inputs(comparison: Comparison) -> tuple[int, str]:
    lost = comparison.lost_inputs
    now = "input now gets" if len(lost) == 1 else "inputs now get"
    return len(lost), f"{len(lost):,} {now} no gradient: {lost_inputs_text(lost)}"


def _unowned(comparison: Comparison) -> tuple[int, str]:
    found = comparison.unowned
    return found.parameters, f"{counted(found.parameters, 'parameter')} not in the model: {found.text()}"


def _new_findings(metric: str, count: int, said: str, conditions: Sequence[Condition]) -> Iterator[Finding]:
    """What the conditions on something that only the second graph has come to; without any, that there is some."""
    named = [condition for condition in conditions if condition.metric == metric]
    if count and not named:
        yield Finding(f"{said}; --fail-on {metric} fails on that", fails=False)
    for condition in named:
        if _holds(condition, 0, count):
            yield Finding(f"{condition.text}: {said}", fails=True)


def _is_sure_now(change: Change) -> bool:
    """Whether a parameter that may have had a gradient, out of sight, surely has none now."""
    return any(field.path == ("kind",) for field in change.fields) and change.what != _MAY_BE_REACHED


def _new_cuts_text(new: Sequence[Change]) -> str:
    """How many parameters get no gradient any more, or may not."""
    unsure = sum(change.what == _MAY_BE_REACHED for change in new)
    texts = []
    for count, what in ((len(new) - unsure, "no gradient"), (unsure, "no gradient that can be seen")):
        if count:
            parameters = f"{count:,} parameter now gets" if count == 1 else f"{count:,} parameters now get"
            texts.append(f"{parameters} {what}")
    return ", ".join(texts)


def _holds(condition: Condition, before: int, after: int) -> bool:
    if condition.limit is None:
        return before != after
    if condition.relative:
        return (after - before) * 100 > condition.limit * before
    return after - before > condition.limit
