"""Count the graphs of earlier steps that are still alive during a training."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from statistics import median
from types import FrameType
from typing import Final, NamedTuple

import torch

from gradir.explanations.model import Cause, Level
from gradir.frontends.pytorch.private import ACCUMULATOR, PACKED, next_sequence_number, sequence_number
from gradir.frontends.pytorch.reading.reach import find_instances
from gradir.frontends.pytorch.reading.saved import is_stale, read_saved_tensor
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.watching.holders import Holder, Variables, find_holders, find_line, is_cut, is_kept
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import find_reachable
from gradir.ir import Source
from gradir.ir.text import pluralize
from gradir.watches.model import Finding

# A count takes long, so each step with a count is twice the last one.
_FIRST_COUNT: Final = 4
# This many counts with equal growth per step prove that the growth continues.
_ENOUGH: Final = 3
_LEAST_STEPS: Final = 4
_LEAST_RATIO: Final = 0.5
# More functions than this multiple of a step's functions belong to several steps.
_MANY: Final = 4
# The median over the last steps, at most this many, estimates the functions of one step.
_REMEMBERED: Final = 1_000
_MOST_FUNCTIONS: Final = 1_000
# gradir reports growing graphs at this step, when their holders are clear.
_REPORTED_AT: Final = 64
# From this step on gradir expects no backward pass for an old graph.
_WAITED_UNTIL: Final = 1024


class _Count(NamedTuple):
    step: int
    functions: int


class GraphCounter:
    """Counts the functions of live graphs at some steps, since a count visits all live objects."""

    def __init__(self) -> None:
        self._counts: list[_Count] = []
        self._next = _FIRST_COUNT
        self._began: deque[int] = deque(maxlen=_REMEMBERED)
        self.waiting: set[str] = set()
        """The holders among the last causes whose graphs have had no backward pass, but may still get one."""

    def note(self, step: int) -> int | None:
        """Count the live functions after a step, if this step needs a count."""
        self._began.append(next_sequence_number())
        if step < self._next:
            return None
        self._next = step * 2
        return self.count(step)

    def count(self, step: int) -> int:
        """Count the live functions now."""
        functions = len(_functions_behind(_tensors_with_graph()))
        if not self._counts or self._counts[-1].step < step:
            self._counts.append(_Count(step, functions))
        return functions

    @property
    def trend(self) -> str:
        """``grows`` if all last counts show an equal growth per step, else ``falls``, ``stays`` or an empty text."""
        counts = self._counts[-_ENOUGH:]
        pairs = pairwise(counts)
        rates = [(after.functions - before.functions) / (after.step - before.step) for before, after in pairs]
        is_long = len(counts) == _ENOUGH and counts[-1].step - counts[0].step >= _LEAST_STEPS
        if is_long and min(rates) >= max(1, _LEAST_RATIO * max(rates)):
            return "grows"
        return "" if not rates else "falls" if rates[-1] < 0 else "stays"

    def causes(self, variables: Variables, frame: FrameType | None) -> Iterator[Cause]:
        """Yield a cause for each variable that keeps graphs older than the last step."""
        before = self._began[-2] if len(self._began) > 1 else 0
        alive = _tensors_with_graph()
        oldest = _find_oldest(alive)
        old = {id(tensor): tensor for tensor in alive if oldest.get(tensor.grad_fn, before) < before}
        holders = sorted(find_holders(old, variables, frame), key=lambda holder: -len(holder.tensors))
        # Other variables are only computed from a carried value, or have the best of all steps.
        kept = [holder for holder in holders if is_kept(holder)]
        least = _MANY * median(after - before for before, after in pairwise([0, *self._began]))
        others = (holder for holder in holders if len(_functions_behind(holder.tensors)) > least)
        self.waiting = set()
        lines: set[tuple[Source | None, str]] = set()
        for holder in kept or others:
            cause = _describe_holder(holder)
            if cause.source is None or (cause.source, cause.kind) not in lines:
                lines.add((cause.source, cause.kind))
                self.waiting |= {cause.op} if _is_waiting(holder.tensors) else set()
                yield cause


class GrowingGraphs:
    """Reports the variables that keep the graphs of earlier steps, if these become more from step to step."""

    def __init__(
        self, variables: Variables, describe: Callable[[Cause], Finding], report: Callable[[Finding], None]
    ) -> None:
        self._variables, self._describe, self._report = variables, describe, report
        self.counter = GraphCounter()
        self._growing: list[Finding] = []

    def check(self, frame: FrameType | None, step: int) -> None:
        """Find the holders of old graphs, which is slow, at a step with a count of graphs."""
        trend = self.counter.trend
        if trend == "grows" and not self._growing:
            self._growing = self._find_holders(frame)
        elif trend == "stays":
            self._growing = []
        elif trend == "falls":
            # A backward pass has freed the graphs that waited for one, such as an actor's at the end of an episode.
            self._growing = [finding for finding in self._growing if finding.cause.op not in self.counter.waiting]
        if self._growing and step in {_REPORTED_AT, _WAITED_UNTIL}:
            self._report_holders(frame, may_wait=step < _WAITED_UNTIL)

    def finish(self, step: int) -> None:
        """Report the holders at the end of a training."""
        if step:
            self.counter.count(step)
        if self._growing or self.counter.trend == "grows":
            self._report_holders(None, may_wait=False)

    def _find_holders(self, frame: FrameType | None) -> list[Finding]:
        return [self._describe(cause) for cause in self.counter.causes(self._variables, frame)]

    def _report_holders(self, frame: FrameType | None, *, may_wait: bool) -> None:
        waited, now = self.counter.waiting, self._find_holders(frame)
        waiting = self.counter.waiting
        if frame is None and self._growing:
            # At the end the variables of functions no longer exist, so earlier findings have better names and lines.
            found = {finding.cause.op: finding for finding in now}
            now = [found.get(finding.cause.op, finding) for finding in self._growing]
        # During the training a waiting graph may still get its backward pass. At the end, omit those that got it.
        omitted = waiting if may_wait else waited - waiting
        for finding in now or self._growing:
            if finding.cause.op not in omitted:
                self._report(finding)


def _describe_holder(holder: Holder) -> Cause:
    source, excerpt, is_carried = find_line(holder)
    detail = f"{len(_functions_behind(holder.tensors)):,} functions of graphs are alive by it"
    level: Level = "error"
    if len(holder.tensors) > 1:
        kind, op = "kept_graphs", f"{holder.kind} `{holder.path}`"
        most = f", of at most {holder.most:,}" if holder.most is not None else ""
        detail = f"it has {pluralize(len(holder.tensors), 'tensor')} of earlier steps{most}, and {detail}"
        # A window of steps keeps them on purpose.
        level = "info" if holder.most is not None or is_cut(holder) else "error"
    else:
        kind, op = "carried_graph" if is_carried else "summed_graphs", f"`{holder.path}`"
    return Cause(kind, level, plain_text(op), source=source, detail=plain_text(detail), excerpt=excerpt)


def _is_waiting(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether a backward pass may still run: graphs of tensors have all their saved tensors unchanged."""
    saved = set()
    for fn in islice(_functions_behind(tensors), _MOST_FUNCTIONS):
        slots = [slot.removeprefix(PACKED) for slot in dir(fn) if slot.startswith(PACKED)]
        if any(is_stale(fn, slot) for slot in slots):
            return False
        if slots:
            saved.add(any(read_saved_tensor(fn, slot) is not None for slot in slots))
    return saved == {True}


def _tensors_with_graph() -> list[torch.Tensor]:
    return [tensor for tensor in find_instances(torch.Tensor) if tensor.grad_fn is not None]


def _functions_behind(tensors: Iterable[torch.Tensor]) -> set[GradFn]:
    def children(fn: GradFn) -> Iterator[GradFn]:
        return (each for each, _ in fn.next_functions if each is not None and type(each).__name__ != ACCUMULATOR)

    return set(find_reachable((tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None), children))


def _find_oldest(tensors: Iterable[torch.Tensor]) -> dict[GradFn, int]:
    found: dict[GradFn, int] = {}
    # A function has a larger number than its inputs.
    for fn in sorted(_functions_behind(tensors), key=sequence_number):
        below = (found.get(child) for child, _ in fn.next_functions if child is not None)
        found[fn] = min((number for number in below if number is not None), default=sequence_number(fn))
    return found
