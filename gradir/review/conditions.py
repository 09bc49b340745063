"""Conditions that fail a comparison: ``cuts``, ``params``, ``saved-bytes>5%``, ``nodes>10``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.errors import GradirError
from gradir.ir.model import INT64_MAX
from gradir.ir.text import amount
from gradir.review.kinds import TOTALS, share
from gradir.review.wording import unknown_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradir.diffs.changes import Diff, Finding

_CUTS: Final = "cuts"
# Findings of these kinds get a hint if no condition names them.
_NEW: Final = (_CUTS, "lost-inputs", "unowned")
# The kinds of findings that a condition may name.
METRICS: Final = (_CUTS, *TOTALS, *_NEW[1:])
_UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_CONDITION: Final = re.compile(
    r"(?P<metric>[a-z-]+)(?:>(?P<limit>\d+(?:\.\d+)?)(?:(?P<percent>%)|(?P<unit>[kMG]?)B?))?"
)


class Condition(NamedTuple):
    """One condition: a metric and its largest allowed growth; without a limit, it must not change.

    The metric ``cuts`` grows by each parameter that newly gets no gradient, even if another gets one again.
    """

    text: str
    metric: str
    limit: float | None = None
    relative: bool = False


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Return the conditions in a comma-separated list.

    Raises:
        GradirError: one is not METRIC, METRIC>NUMBER or METRIC>NUMBER%.
    """
    return tuple(_parse_condition(word.strip()) for word in text.split(","))


def _parse_condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None or match["metric"] not in METRICS:
        raise GradirError(
            f"{text!r} is not a condition; write METRIC, METRIC>NUMBER or METRIC>NUMBER%, "
            f"where METRIC is one of {', '.join(METRICS)}"
        )
    if match["limit"] is None:
        return Condition(text, match["metric"])
    if match["percent"]:
        return Condition(text, match["metric"], float(match["limit"]), relative=True)
    return Condition(text, match["metric"], float(match["limit"]) * _UNITS[match["unit"]])


class Outcome(NamedTuple):
    """The result of a condition: its line, and whether it fails."""

    text: str
    fails: bool


def judge_conditions(diff: Diff, conditions: Sequence[Condition]) -> Iterator[Outcome]:
    """Yield each condition that fails, or that may fail since a size is unknown."""
    # Slots of unknown size may have any size, so a condition on saved bytes fails if their number grows. A figure too
    # large to count on both sides fails if anything changed. New findings that no condition names only get a line.
    found = {finding.kind: finding for finding in diff.findings if finding.kind in METRICS}
    named = {condition.metric for condition in conditions}
    for kind in _NEW:
        if kind in found and kind not in named and found[kind].text:
            yield Outcome(f"{found[kind].text}; --fail-on {kind} fails on that", fails=False)
    for condition in sorted(conditions, key=lambda condition: condition.metric in TOTALS):
        if condition.metric in found:
            outcome = _judge_total if condition.metric in TOTALS else _judge_new
            yield from outcome(condition, found[condition.metric])


def _judge_new(condition: Condition, finding: Finding) -> Iterator[Outcome]:
    before = finding.before if finding.kind == _CUTS else 0
    if condition.limit is None or _is_exceeded(condition, before, before + finding.count):
        numbers = f"{finding.before:,} -> {finding.after:,}" if finding.kind == _CUTS else ""
        yield Outcome(f"{condition.text}: {', '.join(filter(None, (numbers, finding.text)))}", fails=True)


def _judge_total(condition: Condition, finding: Finding) -> Iterator[Outcome]:
    before, after = finding.before, finding.after
    slots = finding.details.get("unknown", (0, 0))
    # Without a limit, the number of slots of unknown size must not change.
    more_unknown = slots[0] != slots[1] if condition.limit is None else slots[1] > slots[0]
    fails = _is_exceeded(condition, before, after) or more_unknown or min(before, after) >= INT64_MAX
    unknown = unknown_sizes(*slots)
    if fails or unknown:
        figure = f"{condition.text}: {amount(before)} -> {amount(after)}{share(before, after)}"
        rest = unknown if fails or not unknown else f"{unknown}, which do not count"
        yield Outcome(", ".join(filter(None, (figure, rest))), fails)


def _is_exceeded(condition: Condition, before: int, after: int) -> bool:
    if condition.limit is None:
        return before != after
    if condition.relative:
        return (after - before) * 100 > condition.limit * before
    return after - before > condition.limit
