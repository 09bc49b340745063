"""A watched training as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, Literal

from gradir.explanations.model import Cause, Level, Record
from gradir.explanations.verdict import place_text
from gradir.ir.frozen import NOTHING
from gradir.ir.text import escape_unprintable, pluralize
from gradir.vocabulary.causes import printable_short

Number = float | Literal["nan", "inf", "-inf"]
"""A number of a training, as JSON spells it."""

LEVELS: Final = ("error", "info", "note")

# The most steps that a watch keeps, so that a long training takes no more memory than a short one.
_MOST_STEPS: Final = 2_000


def encode_number(value: float | None) -> Number | None:
    """Return a number for a record, as text if it is NaN or infinite.

    >>> encode_number(1.5), encode_number(float("nan"))
    (1.5, 'nan')
    """
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


class Modules(Record, frozen=True, tag="modules"):
    """The paths of the modules, in the order of the norms of the following steps."""

    paths: tuple[str, ...] = ()


class Step(Record, frozen=True, tag="step"):
    """A step of an optimizer.

    ``number`` counts the steps of all optimizers from 1, and ``backward`` the calls of backward before it. ``loss``
    is that of the last call, ``norm`` the norm of clipped gradients, and ``memory`` the bytes of the
    process or device. ``kept`` counts functions of earlier graphs that are alive. ``norms`` has the gradient norm of
    each of the `Modules`, and ``ratios`` the size of its update beside its parameters, ``None`` if it did not move.
    """

    number: int
    backward: int = 0
    loss: Number | None = None
    norm: Number | None = None
    memory: int = 0
    kept: int | None = None
    norms: tuple[Number | None, ...] = ()
    ratios: tuple[Number | None, ...] = ()


class Finding(Record, frozen=True, tag="finding"):
    """A problem at a step.

    ``how`` says how it was found, and ``loops`` has the loop variables of the program, outer ones first.

    >>> print(Finding(3, Cause("lr_zero", "error", names=("net.weight",)), loops={"i": 2}).text)
    step 3 (i = 2): the learning rate of net.weight is 0, so no step moves it
    """

    step: int
    cause: Cause
    how: str = ""
    loops: Mapping[str, int] = NOTHING

    def place(self, shown: Callable[[str], str] = escape_unprintable) -> str:
        """Return the step and the loop variables, which ``shown`` formats."""
        loops = ", ".join(f"{name} = {value}" for name, value in self.loops.items())
        return f"step {self.step}{f' ({shown(loops)})' if loops else ''}"

    @property
    def text(self) -> str:
        """Return the step and the problem in one sentence."""
        return f"{self.place()}: {self.cause.text}"


class Watch(Record, frozen=True):
    """A watched training, which is true if something is wrong.

    ``steps`` has the last step and others at equal distances, ``count`` is their full number, and ``ended`` the
    reason why watching ended early.

    >>> Watch(count=2).verdict
    'Nothing wrong was found in 2 steps.'
    """

    modules: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    findings: tuple[Finding, ...] = ()
    count: int = 0
    ended: str = ""

    @property
    def level(self) -> Level:
        """Return the highest level of a finding."""
        levels = {finding.cause.level for finding in self.findings}
        return next((level for level in LEVELS if level in levels), "none")

    @property
    def verdict(self) -> str:
        """Return the findings in one sentence, the most severe first."""
        return self.verdict_as(printable_short)

    def verdict_as(self, shown: Callable[[str], str]) -> str:
        """Return the verdict, with names and places formatted by ``shown``."""
        errors = [finding for finding in self.findings if finding.cause.level == "error"]
        if not self.count and not errors:
            return f"No step of an optimizer was seen{f': {shown(self.ended)}' if self.ended else ''}."
        if not errors:
            end = f", and then {shown(self.ended)}" if self.ended else ""
            return f"Nothing wrong was found in {pluralize(self.count, 'step')}{end}."
        first = errors[0]
        more = f", and {pluralize(len(errors) - 1, 'more error')}" if len(errors) > 1 else ""
        cause = first.cause
        where = "" if cause.source is None else f" ({shown(place_text(cause.source))})"
        detail = f": {shown(cause.detail)}" if cause.detail else ""
        return f"S{first.place(shown)[1:]}: {cause.words(shown).text}{detail}{where}{more}."

    def __bool__(self) -> bool:
        return self.level == "error"

    def to(self, format: str) -> str:
        """Return the output of ``gradir watch``.

        Raises:
            ExportError: the format is not ``text``, ``markdown``, ``jsonl`` or ``html``.
        """
        # That module imports this one.
        from gradir.watches.watch_formats import format_watch

        return format_watch(self, format)

    def __str__(self) -> str:
        """Return the output of ``gradir watch``, without the last line end."""
        return self.to("text").removesuffix("\n")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        """Return the page for a notebook."""
        return {"text/plain": str(self), "text/markdown": self.to("markdown")}


class Collector:
    """Collects the records of a watch; of too many steps, it keeps some at equal distances and the last."""

    def __init__(self) -> None:
        self.ended = ""
        self.findings: list[Finding] = []
        self.modules: tuple[str, ...] = ()
        self._steps: list[Step] = []
        self.last: Step | None = None
        self._every, self._count = 1, 0

    def add(self, record: Modules | Step | Finding) -> None:
        """Add a record."""
        if isinstance(record, Modules):
            self.modules = record.paths
        elif isinstance(record, Finding):
            self.findings.append(record)
        else:
            self._count += 1
            self.last = record
            if (self._count - 1) % self._every == 0:
                self._steps.append(record)
            if len(self._steps) > _MOST_STEPS:
                self._steps = self._steps[::2]
                self._every *= 2

    def watch(self) -> Watch:
        """Return the watch of the records so far."""
        steps = [*self._steps]
        if self.last is not None and steps[-1] is not self.last:
            steps.append(self.last)
        return Watch(self.modules, tuple(steps), tuple(self.findings), self._count, self.ended)
