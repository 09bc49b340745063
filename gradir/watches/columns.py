"""Arrange the steps of a watch in columns that all its charts share."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Final

from gradir.ir.text import printable
from gradir.watches.model import Number, Step
from gradir.watches.watch_formats import shown_number

_MOST: Final = 600
_LEAST: Final = 50
_MOST_CELLS: Final = 150_000
_TICKS: Final = 8
_WORDS: Final = {"nan": "NaN", "inf": "infinity", "-inf": "-infinity"}
_ALARMS: Final = ("nan", "inf", "-inf")


def markup(text: str) -> str:
    r"""Return text of the user as inert markup.

    >>> print(markup("</script>\u202e\n"))
    &lt;/script&gt;\u202e\n
    """
    return escape(printable(text))


def number_words(value: Number | None) -> str:
    """Return a number as text.

    >>> number_words(0.123456789), number_words("nan"), number_words(None)
    ('0.1235', 'NaN', 'no value')
    """
    return _WORDS[value] if isinstance(value, str) else shown_number(value) or "no value"


def worst(values: Iterable[Number | None]) -> Number | None:
    """Return the number that stands for several: NaN or infinity, else the highest.

    >>> worst([1.0, None, 3.0]), worst([1.0, "inf", "nan"]), worst([])
    (3.0, 'nan', None)
    """
    known = [value for value in values if value is not None]
    alarms = {value for value in known if isinstance(value, str)}
    if alarms:
        return next(alarm for alarm in _ALARMS if alarm in alarms)
    return max(known, default=None)


def round_step(span: float, most: int) -> float:
    """Return a round distance of which at most so many fit into a span.

    >>> round_step(499, 8), round_step(0.7, 4), round_step(0, 4)
    (100.0, 0.2, 0.0)
    """
    if span / most <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(span / most))
    return next((found for each in (1, 2, 5) if (found := each * power) * most >= span), 10 * power)


class Columns:
    """Steps in columns of equally many: one each, or more if there are too many.

    >>> columns = Columns([Step(number) for number in range(1, 1201)], rows=1)
    >>> len(columns), columns.name(0), columns.place(1200)
    (600, 'steps 1-2', 599)
    """

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
        """Return the column of a step, or the one that it comes after."""
        return max(0, bisect_right(self._first, step) - 1)

    def middle(self, column: int) -> float:
        """Return the position of a column, in percent of the width."""
        return round(100 * (column + 0.5) / len(self), 3)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the position and number of some steps: the first, and round ones."""
        if not self._first:
            return []
        first, last = self._first[0], self._first[-1]
        apart = max(1, int(round_step(last - first, _TICKS)))
        numbers = [first, *(number for number in range(first - first % apart + apart, last + 1, apart))]
        # Beside the first no round one has room.
        kept = numbers[:1] + [number for number in numbers[1:] if number - first > apart / 2]
        return [(self.middle(self.place(number)), f"{number:,}") for number in kept]
