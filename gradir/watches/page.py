"""Write a watch as one HTML page with charts and heat maps, which opens from disk and loads nothing.

Its script only shows values under the pointer. The numbers are compressed JSON in base64, so that no text of a watch
can become markup or script.
"""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple
from urllib.parse import quote

from gradir.explanations.formats import Layout, cause_lines
from gradir.explanations.model import Level
from gradir.ir.frozen import NOTHING
from gradir.ir.jsontext import json_text
from gradir.ir.memo import group_by_key
from gradir.ir.text import escape_unprintable, pluralize, shorten
from gradir.watches import charts
from gradir.watches.charts import Columns, Figure, Mark, Series, find_worst, format_memory, format_number, markup
from gradir.watches.model import LEVELS, Finding, Number, Watch
from gradir.webpage import hash_for_policy, head

_SIGNS: Final[Mapping[str, str]] = {"error": "✕", "info": "!", "note": "✓", "none": "✓"}
_MOST_FINDINGS: Final = 200
_MOST_MODULES: Final = 2000
_HELP: Final = "  help: "
_KEPT: Final = "Functions of earlier graphs kept alive"
_LAST: Final = (("loss", "loss"), ("norm", "gradient norm"))


def page(watch: Watch, graphs: Mapping[int, str] = NOTHING) -> str:
    """Return the HTML; ``graphs`` has by step the relative path of a page with its graph."""
    content = _Page(watch, graphs)
    body = "".join(f"{line}\n" for line in content.body())
    rows = len(content.modules)
    style = f"{_asset('page.css')}:root{{--rows:{rows};--row:{_row_height(rows)}px}}\n"
    script = _asset("page.js")
    data = b64encode(zlib.compress(json_text(content.data()).encode())).decode()
    return f"""\
{head("gradir watch", style, scripts=hash_for_policy(script))}
<body>
<main>
{body}</main>
<output hidden></output>
<script type="application/octet-stream" id="gradir-watch">{data}</script>
<script>{script}</script>
</body>
</html>
"""


@cache
def _asset(name: str) -> str:
    return (files("gradir.watches") / name).read_text(encoding="utf-8")


class _Page:
    def __init__(self, watch: Watch, graphs: Mapping[int, str]) -> None:
        self.watch = watch
        self.modules = [path or "(model)" for path in watch.modules[:_MOST_MODULES]]
        steps = watch.steps
        self.columns = Columns(steps, len(self.modules))
        series = (
            Series("loss", "Loss", tuple(step.loss for step in steps), "linear"),
            Series("norm", "Gradient norm after any clipping", tuple(step.norm for step in steps), "log"),
            Series("memory", "Memory", tuple(step.memory or None for step in steps), "zero", format_memory),
            Series("kept", _KEPT, tuple(step.kept for step in steps), "zero", charts.format_count),
        )
        self.lines = [each for each in series if any(value is not None for value in each.values)]
        ratios = "The length of each update beside that of its parameters, estimated from some of them."
        heats = (
            _Heat(
                "norms",
                "Gradient norms by module",
                "The norm of each module's own gradients, after any clipping.",
                self._rows([step.norms for step in steps]),
            ),
            _Heat("ratios", "Update ratios by module", ratios, self._rows([step.ratios for step in steps])),
        )
        self.heats = [heat for heat in heats if any(value is not None for row in heat.rows for value in row)]
        self.findings = sorted(watch.findings, key=lambda finding: LEVELS.index(_level(finding)))
        self.links = {step: quote(name, errors="surrogatepass") for step, name in sorted(graphs.items())}
        # A watch without steps has no columns.
        links = self.links.items() if len(self.columns) else ()
        self.links_by_column = {self.columns.place(step): link for step, link in links}

    def _rows(self, numbers: Sequence[Sequence[Number | None]]) -> list[list[Number | None]]:
        rows = ([row[at] if at < len(row) else None for row in numbers] for at in range(len(self.modules)))
        return [[*map(find_worst, self.columns.groups(row))] for row in rows]

    def data(self) -> object:
        columns = self.columns
        shown = self.findings[:_MOST_FINDINGS]
        findings = group_by_key((str(columns.place(each.step)), escape_unprintable(each.text)) for each in shown)
        lines = {
            each.key: [each.format(find_worst(group)) for group in columns.groups(each.values)] for each in self.lines
        }
        return {
            "columns": [columns.name(column) for column in range(len(columns))],
            "findings": findings,
            "graphs": {str(column): name for column, name in self.links_by_column.items()},
            "heats": {heat.key: [[*map(_round, row)] for row in heat.rows] for heat in self.heats},
            "lines": lines,
            "modules": [*map(escape_unprintable, self.modules)],
        }

    def body(self) -> Iterator[str]:
        watch, columns = self.watch, self.columns
        level = watch.level if watch.count or watch.level == "error" else "info"
        yield f'<h1 class="{level}"><span aria-hidden="true">{_SIGNS[level]}</span>{markup(watch.verdict)}</h1>'
        if watch.ended and watch.level == "error":
            yield f'<p class="quiet">The watch ended early: {markup(watch.ended)}.</p>'
        yield from self._tiles()
        yield from self._list()
        if self.links:
            links = ", ".join(f'<a href="{name}">step {step:,}</a>' for step, name in self.links.items())
            yield f'<p class="quiet">Captured graphs: {links}</p>'
        yield from self._notes()
        levels = {columns.place(finding.step): _level(finding) for finding in reversed(self.findings)}
        marks = [Mark(*entry) for entry in sorted(levels.items())] if len(columns) else []
        for series in self.lines:
            yield from charts.line_chart(series, columns, watch.steps, marks)
        for heat in self.heats:
            yield from _heat_map(heat, columns, self.modules, marks, self.links_by_column)

    def _tiles(self) -> Iterator[str]:
        known = {each.key: [value for value in each.values if value is not None] for each in self.lines}
        tiles = [("steps", f"{self.watch.count:,}")]
        tiles += [("modules", f"{len(self.watch.modules):,}")] if self.modules else []
        tiles += [(f"last {word}", format_number(known[key][-1])) for key, word in _LAST if key in known]
        tiles += [("peak memory", format_memory(find_worst(known["memory"])))] if "memory" in known else []
        error = ' class="error"'
        broken = (format_number("nan"), format_number("inf"), format_number("-inf"))
        items = "".join(
            f"<div><dt>{name}</dt><dd{error * (value in broken)}>{value}</dd></div>" for name, value in tiles
        )
        yield f'<dl class="tiles">{items}</dl>'

    def _list(self) -> Iterator[str]:
        items = [(_level(finding), self._item(finding)) for finding in self.findings[:_MOST_FINDINGS]]
        problems = "".join(item for level, item in items if level != "note")
        notes = [item for level, item in items if level == "note"]
        if problems:
            yield f'<ol class="findings" aria-label="findings">{problems}</ol>'
        if notes:
            summary = f"<summary>{pluralize(len(notes), 'note')}</summary>"
            yield f'<details>{summary}<ol class="findings" aria-label="notes">{"".join(notes)}</ol></details>'
        if more := len(self.findings) - len(items):
            yield f'<p class="quiet">And {more:,} more: <code>-o watch.jsonl</code> has them all.</p>'

    def _item(self, finding: Finding) -> str:
        cause = finding.cause
        _, *lines = cause_lines(cause, Layout())
        code = "\n".join(markup(shorten(line)) for line in lines if not line.startswith(_HELP))
        how = f" ({markup(finding.how)})" if finding.how else ""
        parts = [
            f'<button type="button">{markup(finding.place())}</button> <span class="level">{_level(finding)}:</span> ',
            f"<strong>{markup(cause.text)}</strong>{how}",
            f'<pre tabindex="0">{code}</pre>' if code else "",
            f'<p><span class="level">help:</span> {markup(cause.advice)}</p>' if cause.advice else "",
        ]
        if finding.step in self.links:
            parts.append(f'<p><a href="{self.links[finding.step]}">open the graph of step {finding.step:,}</a></p>')
        place = self.columns.place(finding.step)
        return f'<li class="{_level(finding)}" data-column="{place}">{"".join(parts)}</li>'

    def _notes(self) -> Iterator[str]:
        watch, columns = self.watch, self.columns
        notes = list[str]()
        if len(watch.steps) < watch.count:
            notes.append(f"The charts show {len(watch.steps):,} of {pluralize(watch.count, 'step')}.")
        if columns.most_steps > 1:
            notes.append(
                f"A column shows up to {columns.most_steps:,} steps: a cell shows NaN or infinity if one of them has "
                f"it, else the highest number, and a line goes through the lowest and the highest."
            )
        if len(watch.modules) > len(self.modules):
            notes.append(f"The first {len(self.modules):,} of {len(watch.modules):,} modules are drawn.")
        if notes:
            yield f'<p class="quiet">{" ".join(notes)}</p>'


def _level(finding: Finding) -> Level:
    level = finding.cause.level
    return "note" if level == "none" else level


def _round(value: Number | None) -> Number | None:
    if value is None or isinstance(value, str):
        return value
    rounded = float(f"{value:.4g}")
    # Rounding can make the largest floats infinite, which JSON does not have.
    return rounded if math.isfinite(rounded) else value


# The lightness rises from low to high, which everybody sees on white and on black.
_STOPS: Final = ("443a83", "31688e", "2a8fa5", "40b7ad", "8bdab2", "def5e5")
_NONE: Final = 0
_ALARM: Final = 1
_ZERO: Final = 2
_COLOURS: Final = ("000000", "f0441c", "000000")
_SHADES: Final = 256 - len(_COLOURS)
_MOST_DECADES: Final = 16
_LONGEST: Final = 32
_LONGEST_TITLE: Final = 300
_LABEL: Final = 13
_TALL: Final = 640


class _Heat(NamedTuple):
    """A number for each module, in rows, and each column of steps."""

    key: str
    title: str
    about: str
    rows: Sequence[Sequence[Number | None]]


def _row_height(count: int) -> float:
    """Return the height of a row, so that all rows fit."""
    return 28 if count <= 8 else 16 if count <= 40 else max(1, round(_TALL / count, 2))


def _heat_map(
    heat: _Heat, columns: Columns, modules: Sequence[str], marks: Sequence[Mark], links: Mapping[int, str]
) -> Iterator[str]:
    """Yield the figure of a number for each module and step; ``links`` has the files of graphs by column."""
    low, high = _range(heat.rows)
    figure = Figure(heat.key, heat.title, "heat", columns, marks)
    yield figure.head(f"{heat.about} {_summary(heat, columns, modules)}")
    yield _legend(heat.key, low, high)
    every = -(-_LABEL // _row_height(len(modules)))
    if every > 1:
        yield '<label class="all"><input type="checkbox"> a line for each module</label>'
    labels = ""
    for row, path in enumerate(modules):
        name = markup(f"…{path[1 - _LONGEST :]}" if len(path) > _LONGEST else path)
        kind = ' class="more"' if row % int(every) else ""
        full = f"<title>{markup(shorten(path, _LONGEST_TITLE))}</title>" if len(path) > _LONGEST else ""
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
    # A scale of less than a decade would exaggerate.
    missing = max(0.0, 1 - (high - low)) / 2
    return low - missing, high + missing


def _pixels(rows: Sequence[Sequence[Number | None]], low: float, high: float) -> list[bytes]:
    steps = (_SHADES - 1) / (high - low) if high > low else 0.0

    def pixel(value: Number | None) -> int:
        if value is None:
            return _NONE
        if isinstance(value, str):
            return _ALARM
        return len(_COLOURS) + max(0, round((math.log10(value) - low) * steps)) if value > 0 else _ZERO

    return [bytes(map(pixel, row)) for row in rows]


def _png(rows: Sequence[bytes]) -> bytes:
    palette = bytes.fromhex("".join(_COLOURS))
    for level in range(_SHADES):
        whole, part = divmod(level * (len(_STOPS) - 1) / (_SHADES - 1), 1)
        one, other = (bytes.fromhex(_STOPS[min(int(whole) + more, len(_STOPS) - 1)]) for more in (0, 1))
        palette += bytes(round(a + (b - a) * part) for a, b in zip(one, other, strict=True))
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)),
        (b"PLTE", palette),
        # The first color, of cells without a value, is transparent.
        (b"tRNS", b"\0"),
        # Each row begins with the number of its filter, here none.
        (b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _legend(key: str, low: float, high: float) -> str:
    swatches = "".join(
        f'<span><svg class="swatch {kind}" aria-hidden="true"></svg>{label}</span>'
        for kind, label in (("zero", "0"), ("none", "no value"), ("alarm", "NaN or infinity"))
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


def _summary(heat: _Heat, columns: Columns, modules: Sequence[str]) -> str:
    finite = [[value for value in row if isinstance(value, (int, float))] for row in heat.rows]
    highest = [(max(numbers), at) for at, numbers in enumerate(finite) if numbers]
    broken = [
        (column, at) for at, row in enumerate(heat.rows) for column, value in enumerate(row) if isinstance(value, str)
    ]
    sentences = list[str]()
    if len(highest) == 1:
        sentences.append(f"Its maximum over all steps is {format_number(highest[0][0])}.")
    elif highest:
        (low, bottom), (high, top) = min(highest), max(highest)
        ends = f"lowest in {_name(modules[bottom])} ({format_number(low)}) and highest in {_name(modules[top])}"
        sentences.append(f"Its maximum over all steps is {ends} ({format_number(high)}).")
    if broken:
        column, at = min(broken)
        count = pluralize(len({row for _, row in broken}), "module")
        sentences.append(f"NaN or infinite in {count}, first in {columns.name(column)}: {_name(modules[at])}.")
    return " ".join(sentences)


def _name(path: str) -> str:
    return f"<code>{markup(shorten(path, 2 * _LONGEST))}</code>"
