"""Arrange the steps of a watch in columns, and draw lines over them as SVG with the width of its window.

Places are in percent, so text and marks keep their size.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from gradir.explanations.model import Level
from gradir.ir.text import escape_unprintable, pluralize
from gradir.watches.model import Number, Step
from gradir.watches.watch_formats import short_number

_MOST: Final = 600
_LEAST: Final = 50
_MOST_CELLS: Final = 150_000
_STEP_TICKS: Final = 8
_NAMES: Final = {"nan": "NaN", "inf": "infinity", "-inf": "-infinity"}


def markup(text: str) -> str:
    r"""Return text of the user as inert markup."""
    return escape(escape_unprintable(text))


def format_number(value: Number | None) -> str:
    """Return a number as text."""
    return _NAMES[value] if isinstance(value, str) else short_number(value) or "no value"


def find_worst(values: Iterable[Number | None]) -> Number | None:
    """Return the worst of several numbers: NaN or infinity, else the highest."""
    known = [value for value in values if value is not None]
    return next((name for name in _NAMES if name in known), None) or max(known, default=None)


def _round_step(span: float, most: int) -> float:
    """Return a round distance that fits at most ``most`` times into a span."""
    if span / most <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(span / most))
    return next((found for each in (1, 2, 5) if (found := each * power) * most >= span), 10 * power)


class Columns:
    """The columns of a chart, each with one step, or with several if there are too many."""

    def __init__(self, steps: Sequence[Step], rows: int) -> None:
        most = min(_MOST, max(_LEAST, _MOST_CELLS // max(rows, 1)))
        count = min(len(steps), most)
        self._ends = [place * len(steps) // count for place in range(count + 1)] if count else [0]
        self._first = [steps[start].number for start in self._ends[:-1]]
        self._last = [steps[end - 1].number for end in self._ends[1:]]
        self.most_steps = -(-len(steps) // count) if count else 0

    def __len__(self) -> int:
        return len(self._first)

    def groups(self, values: Sequence[Number | None]) -> list[Sequence[Number | None]]:
        """Return the values of each column."""
        return [values[start:end] for start, end in pairwise(self._ends)]

    def name(self, column: int) -> str:
        """Return the name of a column."""
        first, last = self._first[column], self._last[column]
        return f"step {first:,}" if first == last else f"steps {first:,}-{last:,}"

    def place(self, step: int) -> int:
        """Return the column of a step, or the last one before it."""
        return max(0, bisect_right(self._first, step) - 1)

    def middle(self, column: int) -> float:
        """Return the position of a column, in percent of the width."""
        return round(100 * (column + 0.5) / len(self), 3)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the position and number of some steps: the first, and round ones."""
        if not self._first:
            return []
        first, last = self._first[0], self._first[-1]
        distance = max(1, int(_round_step(last - first, _STEP_TICKS)))
        numbers = range(first - first % distance + distance, last + 1, distance)
        # A round number close to the first has no room.
        shown = [first, *(number for number in numbers if number - first > distance / 2)]
        return [(self.middle(self.place(number)), f"{number:,}") for number in shown]


# The area of numbers in percent; infinity and NaN are above it, and 0 is below a logarithmic scale.
_TOP: Final = 10.0
_HEIGHT: Final = 80.0
_TICKS: Final = 4
_DECADES: Final = 3
_UNITS: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_BANDS: Final = {"nan": "NaN", "inf": "∞", "-inf": "-∞", "low": "0 or less"}
_SHAPES: Final = {"error": "M0 0l6-11h-12z", "info": "M0 0l5-5.5-5-5.5-5 5.5z", "note": "M-2 0h4v-8h-4z"}


class Mark(NamedTuple):
    """A finding on the axis of every chart."""

    column: int
    level: Level


class Series(NamedTuple):
    """A number for each step; ``scale`` is ``log``, ``linear``, or ``zero`` for a linear scale from 0."""

    key: str
    title: str
    values: tuple[Number | None, ...]
    scale: str
    format: Callable[[Number | None], str] = format_number


class _Scale(NamedTuple):
    low: float
    high: float
    is_log: bool
    unit: float = 1.0

    def place(self, value: float) -> float:
        low, high, at = (map(math.log10, (self.low, self.high, value))) if self.is_log else (self.low, self.high, value)
        # The halves avoid an overflow of the difference.
        span = high / 2 - low / 2
        return round(_TOP + _HEIGHT * (1 - ((at / 2 - low / 2) / span if span else 0.5)), 2)

    def ticks(self) -> list[float]:
        if self.is_log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            # 1e308 is the highest power of ten that a float holds.
            powers = range(first, min(last, 308) + 1, max(1, -(-(last - first) // _TICKS)))
            digits = (1, 2, 5) if last - first < _DECADES else (1,)
            ticks = (digit * 10.0**power for power in powers for digit in digits)
            return [tick for tick in ticks if self.low <= tick <= self.high]
        span = self.high - self.low
        distance = _round_step(span / self.unit, _TICKS) * self.unit if math.isfinite(span) else 0.0
        if not distance:
            return list(dict.fromkeys((self.low, self.high)))
        # Rounding must not lose a tick at an end of the scale.
        places = range(math.ceil(self.low / distance - 1e-9), math.floor(self.high / distance + 1e-9) + 1)
        return [float(f"{place * distance:.12g}") for place in places]


def format_count(value: Number | None) -> str:
    """Return a count as text."""
    return f"{value:,.0f}" if isinstance(value, (int, float)) else format_number(value)


def format_memory(value: Number | None) -> str:
    """Return a number of bytes as text."""
    if not isinstance(value, (int, float)):
        return format_number(value)
    size, unit = _unit(value)
    return f"{value / size:.4g} {unit}"


def _unit(value: float) -> tuple[int, str]:
    return next((each for each in _UNITS if value >= each[0]), (1, "B"))


def _scale(series: Series) -> _Scale | None:
    numbers = [value for value in series.values if isinstance(value, (int, float))]
    positive = [value for value in numbers if value > 0]
    is_wide = len(positive) == len(numbers) and bool(numbers) and max(numbers) / 10**_DECADES > min(numbers)
    is_log = series.scale == "log" or (series.scale == "linear" and is_wide)
    if is_log:
        numbers = positive
    if not numbers:
        return None
    low, high = min(numbers), max(numbers)
    if is_log and high / 10 < low:
        # A scale of less than a decade would exaggerate; the limits are those of floats.
        return _Scale(max(low / 2, 5e-324), min(high * 2, 1.7e308), True)
    unit = float(_unit(high)[0]) if series.format is format_memory else 1.0
    return _Scale(min(0.0, low) if series.scale == "zero" else low, high, is_log, unit)


class Figure(NamedTuple):
    """The markup of a chart with its title and sentence."""

    key: str
    title: str
    kind: str
    columns: Columns
    marks: Sequence[Mark]

    def head(self, sentence: str) -> str:
        """Return the beginning of the markup."""
        return (
            f'<figure class="{self.kind}" aria-labelledby="{self.key}-title"><figcaption>'
            f'<h2 id="{self.key}-title">{self.title}</h2><p>{sentence}</p></figcaption>'
        )

    def frame(self, labels: str, *, under: str = "", drawing: str = "", over: str = "") -> Iterator[str]:
        """Yield the drawing with its labels and the numbers of steps; ``under`` is no SVG."""
        yield f'<div class="frame"><svg class="labels" aria-hidden="true">{labels}</svg>'
        label = f"{self.title}: arrow keys read it"
        yield f'<div class="plot" role="group" tabindex="0" data-key="{self.key}" aria-label="{label}">{under}'
        for column, level in self.marks:
            x = self.columns.middle(column)
            drawing += f'<line class="fall" x1="{x}%" x2="{x}%" y2="100%"/>' if level == "error" else ""
            drawing += f'<svg x="{x}%" y="100%" class="mark {level}"><path d="{_SHAPES[level]}"/></svg>'
        yield f'<svg class="over" aria-hidden="true">{drawing}'
        yield '<line class="pin" y2="100%"/><line class="at" y2="100%"/><rect class="cell"/>'
        yield f"{over}</svg></div>"
        end = ' class="end"'
        texts = "".join(f'<text x="{x}%" y="15"{end * (x > 96)}>{text}</text>' for x, text in self.columns.ticks())
        yield f'<svg class="steps" aria-hidden="true"><text y="15" dx="-30"{end}>step</text>{texts}</svg>'
        yield "</div></figure>"


def line_chart(series: Series, columns: Columns, steps: Sequence[Step], marks: Sequence[Mark]) -> Iterator[str]:
    """Yield the figure of a series: its title, a sentence, and the drawing."""
    scale = _scale(series)
    suffix = ", on a logarithmic scale" if scale is not None and scale.is_log else ""
    ticks = [] if scale is None else [(scale.place(tick), series.format(tick)) for tick in scale.ticks()]
    drawing = "".join(f'<line class="grid" x2="100%" y1="{y}%" y2="{y}%"/>' for y, _ in ticks)
    drawing += _line(series, columns, scale) + "".join(_edges(series, columns, scale))
    labels = "".join(f'<text x="100%" dx="-8" dy=".35em" y="{y}%">{markup(text)}</text>' for y, text in ticks)
    figure = Figure(series.key, f"{series.title}{suffix}", "lines", columns, marks)
    yield figure.head(_summary(series, steps))
    yield from figure.frame(labels, drawing=drawing)


def _line(series: Series, columns: Columns, scale: _Scale | None) -> str:
    if scale is None:
        return ""
    parts, path, dots = list[str](), list[str](), list[str]()
    for column, group in enumerate([*columns.groups(series.values), ()]):
        numbers = [each for each in group if isinstance(each, (int, float)) and (each > 0 or not scale.is_log)]
        if numbers:
            x = f"{10 * columns.middle(column):.6g}"
            path += [f"{x} {scale.place(each)}" for each in dict.fromkeys((min(numbers), max(numbers)))]
        # Only some steps have a count of functions, so a step without one is no gap.
        elif path and (series.key != "kept" or not group):
            (parts if len(path) > 1 else dots).append(f"M{'L'.join(path)}{'h0' * (len(path) == 1)}")
            path = []
    drawn = "".join(
        f'<path class="{name}" d="{"".join(each)}"/>' for name, each in (("curve", parts), ("dots", dots)) if each
    )
    return f'<svg viewBox="0 0 1000 100" preserveAspectRatio="none" width="100%" height="100%">{drawn}</svg>'


def _edges(series: Series, columns: Columns, scale: _Scale | None) -> Iterator[str]:
    is_log = scale.is_log if scale else series.scale == "log"

    def find_edge(group: Sequence[Number | None]) -> str:
        low = is_log and any(isinstance(each, (int, float)) and each <= 0 for each in group)
        return next((name for name in _NAMES if name in group), "low" if low else "")

    column = 0
    for edge, run in groupby(map(find_edge, columns.groups(series.values))):
        length = len(list(run))
        x, width = 100 * column / len(columns), 100 * length / len(columns)
        column += length
        if not edge:
            continue
        top, below = ("96%", "93%") if edge in {"low", "-inf"} else ("0", "19")
        place = f'x="{x:.6g}%" width="{width:.6g}%"'
        # Near the right border, the label ends there, for lack of room.
        text = 'x="100%" dx="-5" class="end"' if x > 90 else f'x="{x:.6g}%" dx="5"'
        yield f'<g class="band {edge}"><rect class="wash" {place} height="100%"/>'
        yield f'<rect class="strip" {place} y="{top}" height="5"/><text {text} y="{below}">{_BANDS[edge]}</text></g>'


def _summary(series: Series, steps: Sequence[Step]) -> str:
    known = [(value, step.number) for value, step in zip(series.values, steps, strict=True) if value is not None]
    numbers = [(value, number) for value, number in known if isinstance(value, (int, float))]
    if not known:
        return "No step has a number."

    def describe(entry: tuple[Number, int]) -> str:
        return f"{series.format(entry[0])} at step {entry[1]:,}"

    text = describe(known[0])
    if known[-1][1] != known[0][1]:
        text += f", {describe(known[-1])}"
    if len(numbers) > 2:
        low, high = min(numbers, key=itemgetter(0)), max(numbers, key=itemgetter(0))
        text += f"; lowest {describe(low)}, highest {describe(high)}"
    broken = [number for value, number in known if isinstance(value, str)]
    if broken:
        text += f"; NaN or infinite in {pluralize(len(broken), 'step')}, first in step {broken[0]:,}"
    return f"{text}."
