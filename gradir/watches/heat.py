"""Draw a number for each module and step as a small picture with one pixel a cell, which the page stretches."""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gradir.ir.excerpt import shortened
from gradir.ir.text import counted
from gradir.watches.charts import Figure, Mark
from gradir.watches.columns import Columns, markup, number_words
from gradir.watches.model import Number

# From low to high: lightness rises, which every eye sees, on white and on black.
_STOPS: Final = ("443a83", "31688e", "2a8fa5", "40b7ad", "8bdab2", "def5e5")
_NONE: Final = 0
_ALARM: Final = 1
_ZERO: Final = 2
_COLOURS: Final = ("000000", "f0441c", "000000")
_LEVELS: Final = 256 - len(_COLOURS)
_MOST_DECADES: Final = 16
_LONGEST: Final = 32
_LONGEST_TITLE: Final = 300
_LABEL: Final = 13
_TALL: Final = 640


class Heat(NamedTuple):
    """A number for each module, in rows, and each column of steps."""

    key: str
    title: str
    about: str
    rows: Sequence[Sequence[Number | None]]


def row_height(count: int) -> float:
    """Return the height of a row, so that all rows fit.

    >>> row_height(1), row_height(20), row_height(200)
    (28, 16, 3.2)
    """
    return 28 if count <= 8 else 16 if count <= 40 else max(1, round(_TALL / count, 2))


def heat_map(
    heat: Heat, columns: Columns, modules: Sequence[str], marks: Sequence[Mark], links: Mapping[int, str]
) -> Iterator[str]:
    """Return the figure of a number for each module and step; ``links`` are the files of graphs by column."""
    low, high = _range(heat.rows)
    figure = Figure(heat.key, heat.title, "heat", columns, marks)
    yield figure.head(f"{heat.about} {_summary(heat, columns, modules)}")
    yield _legend(heat.key, low, high)
    every = -(-_LABEL // row_height(len(modules)))
    if every > 1:
        yield '<label class="all"><input type="checkbox"> a line for each module</label>'
    labels = ""
    for row, path in enumerate(modules):
        name = markup(f"…{path[1 - _LONGEST :]}" if len(path) > _LONGEST else path)
        kind = ' class="more"' if row % int(every) else ""
        full = f"<title>{markup(shortened(path, _LONGEST_TITLE))}</title>" if len(path) > _LONGEST else ""
        y = f"{100 * (row + 0.5) / len(modules):.6g}%"
        labels += f'<text{kind} x="100%" dx="-8" dy=".35em" y="{y}">{full}{name}</text>'
    data = b64encode(_png(_pixels(heat.rows, low, high))).decode()
    width = 100 / len(columns)
    over = "".join(
        f'<a href="{href}" tabindex="-1"><title>open the graph of {columns.name(column)}</title>'
        f'<rect class="graph" x="{width * column:.6g}%" width="{width:.6g}%" height="100%"/></a>'
        for column, href in links.items()
    )
    yield from figure.frame(labels, under=f'<img alt="" src="data:image/png;base64,{data}">', over=over)


def _range(rows: Iterable[Iterable[Number | None]]) -> tuple[float, float]:
    positive = [value for row in rows for value in row if isinstance(value, (int, float)) and value > 0]
    if not positive:
        return 0.0, 0.0
    low, high = math.log10(min(positive)), math.log10(max(positive))
    low = max(low, high - _MOST_DECADES)
    # Less than a decade would make much of little.
    missing = max(0.0, 1 - (high - low)) / 2
    return low - missing, high + missing


def _pixels(rows: Sequence[Sequence[Number | None]], low: float, high: float) -> list[bytes]:
    steps = (_LEVELS - 1) / (high - low) if high > low else 0.0

    def pixel(value: Number | None) -> int:
        if value is None:
            return _NONE
        if isinstance(value, str):
            return _ALARM
        return len(_COLOURS) + max(0, round((math.log10(value) - low) * steps)) if value > 0 else _ZERO

    return [bytes(map(pixel, row)) for row in rows]


def _png(rows: Sequence[bytes]) -> bytes:
    palette = bytes.fromhex("".join(_COLOURS))
    for level in range(_LEVELS):
        whole, part = divmod(level * (len(_STOPS) - 1) / (_LEVELS - 1), 1)
        one, other = (bytes.fromhex(_STOPS[min(int(whole) + more, len(_STOPS) - 1)]) for more in (0, 1))
        palette += bytes(round(a + (b - a) * part) for a, b in zip(one, other, strict=True))
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)),
        (b"PLTE", palette),
        # The first color, of cells without a value, is transparent.
        (b"tRNS", b"\0"),
        # Each row begins with the number of its filter, here none.
        (b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 9)),
        (b"IEND", b""),
    )
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _legend(key: str, low: float, high: float) -> str:
    swatches = "".join(
        f'<span><svg class="swatch {kind}" aria-hidden="true"></svg>{words}</span>'
        for kind, words in (("zero", "0"), ("none", "no value"), ("alarm", "NaN or infinity"))
    )
    if high <= low:
        return f'<p class="legend">{swatches}</p>'
    stops = "".join(
        f'<stop offset="{100 * place / (len(_STOPS) - 1):.6g}%" stop-color="#{colour}"/>'
        for place, colour in enumerate(_STOPS)
    )
    bar = (
        f'<svg class="bar" aria-hidden="true"><linearGradient id="{key}-colours">{stops}</linearGradient>'
        f'<rect width="100%" height="100%" fill="url(#{key}-colours)"/></svg>'
    )
    ends = (f"{10.0 ** min(each, 308):.2g}" for each in (low, high))
    return f'<p class="legend"><span>{bar.join(ends)} (logarithmic)</span>{swatches}</p>'


def _summary(heat: Heat, columns: Columns, modules: Sequence[str]) -> str:
    finite = [[value for value in row if isinstance(value, (int, float))] for row in heat.rows]
    highest = [(max(numbers), at) for at, numbers in enumerate(finite) if numbers]
    broken = [
        (column, at) for at, row in enumerate(heat.rows) for column, value in enumerate(row) if isinstance(value, str)
    ]
    said = list[str]()
    if len(highest) == 1:
        said.append(f"Its maximum over all steps is {number_words(highest[0][0])}.")
    elif highest:
        (low, at), (high, top) = min(highest), max(highest)
        ends = f"lowest in {_name(modules[at])} ({number_words(low)}) and highest in {_name(modules[top])}"
        said.append(f"Its maximum over all steps is {ends} ({number_words(high)}).")
    if broken:
        column, at = min(broken)
        count = counted(len({at for _, at in broken}), "module")
        said.append(f"NaN or infinite in {count}, first in {columns.name(column)}: {_name(modules[at])}.")
    return " ".join(said)


def _name(path: str) -> str:
    return f"<code>{markup(shortened(path, 2 * _LONGEST))}</code>"
