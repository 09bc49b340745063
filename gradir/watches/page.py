"""Write a watch as one HTML page with charts, which opens from disk and asks no host for anything.

Its script only shows values under the pointer. The numbers are compressed JSON in base64, so that no text of a watch
can become markup or script.
"""

from __future__ import annotations

import math
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import quote

from gradir.explanations.formats import Layout, cause_lines
from gradir.explanations.model import Level
from gradir.ir.excerpt import shortened
from gradir.ir.frozen import NOTHING
from gradir.ir.jsontext import json_text
from gradir.ir.text import counted, printable
from gradir.watches.charts import Mark, Series, count_words, line_chart, memory_words
from gradir.watches.columns import Columns, markup, number_words, worst
from gradir.watches.heat import Heat, heat_map, row_height
from gradir.watches.model import Finding, Number, Watch
from gradir.webpage import hashed, head

_LEVELS: Final = ("error", "info", "note")
_SIGNS: Final[Mapping[str, str]] = {"error": "✕", "info": "!", "note": "✓", "none": "✓"}
_MOST_FINDINGS: Final = 200
_MOST_MODULES: Final = 2000
_HELP: Final = "  help: "
_KEPT: Final = "Functions of earlier graphs kept alive"
_LAST: Final = (("loss", "loss"), ("norm", "gradient norm"))


def page(watch: Watch, graphs: Mapping[int, str] = NOTHING) -> str:
    """Return the page; ``graphs`` has by step the relative path of a page with its graph."""
    drawn = _Drawn(watch, graphs)
    body = "".join(f"{line}\n" for line in drawn.body())
    style = f"{_asset('page.css')}:root{{--rows:{len(drawn.modules)};--row:{row_height(len(drawn.modules))}px}}\n"
    script = _asset("page.js")
    data = b64encode(zlib.compress(json_text(drawn.data()).encode())).decode()
    return f"""\
{head("gradir watch", style, scripts=hashed(script))}
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


class _Drawn:
    def __init__(self, watch: Watch, graphs: Mapping[int, str]) -> None:
        self.watch = watch
        self.modules = [path or "(model)" for path in watch.modules[:_MOST_MODULES]]
        steps = watch.steps
        self.columns = Columns(steps, len(self.modules))
        every = (
            Series("loss", "Loss", tuple(step.loss for step in steps), "linear"),
            Series("norm", "Gradient norm", tuple(step.norm for step in steps), "log"),
            Series("memory", "Memory", tuple(step.memory or None for step in steps), "zero", memory_words),
            Series("kept", _KEPT, tuple(step.kept for step in steps), "zero", count_words),
        )
        self.lines = [each for each in every if any(value is not None for value in each.values)]
        about = "The norm of each module's own gradients."
        heats = (
            Heat("norms", "Gradient norms by module", about, self._rows([step.norms for step in steps])),
            Heat(
                "ratios",
                "Update ratios by module",
                "The length of each update beside that of its parameters, estimated from some of them.",
                self._rows([step.ratios for step in steps]),
            ),
        )
        self.heats = [heat for heat in heats if any(value is not None for row in heat.rows for value in row)]
        self.findings = sorted(watch.findings, key=lambda finding: _LEVELS.index(_level(finding)))
        self.links = {step: quote(name, errors="surrogatepass") for step, name in sorted(graphs.items())}
        # Of a watch without a step there is no column.
        steps_with_graph = self.links if len(self.columns) else {}
        self.links_by_column = {self.columns.place(step): self.links[step] for step in steps_with_graph}

    def _rows(self, numbers: Sequence[Sequence[Number | None]]) -> list[list[Number | None]]:
        return [
            [worst(group) for group in self.columns.groups([row[at] if at < len(row) else None for row in numbers])]
            for at in range(len(self.modules))
        ]

    def data(self) -> object:
        columns = self.columns
        said: dict[int, list[str]] = {}
        for finding in self.findings[:_MOST_FINDINGS]:
            said.setdefault(columns.place(finding.step), []).append(printable(finding.text))
        lines = {each.key: [each.words(worst(group)) for group in columns.groups(each.values)] for each in self.lines}
        return {
            "columns": [columns.name(column) for column in range(len(columns))],
            "findings": {str(column): texts for column, texts in said.items()},
            "graphs": {str(column): name for column, name in self.links_by_column.items()},
            "heats": {heat.key: [[*map(_rounded, row)] for row in heat.rows] for heat in self.heats},
            "lines": lines,
            "modules": [*map(printable, self.modules)],
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
            shown = ", ".join(f'<a href="{name}">step {step:,}</a>' for step, name in self.links.items())
            yield f'<p class="quiet">Captured graphs: {shown}</p>'
        yield from self._notes()
        found = {columns.place(finding.step): _level(finding) for finding in reversed(self.findings)}
        marks = [Mark(column, each) for column, each in sorted(found.items())] if len(columns) else []
        for series in self.lines:
            yield from line_chart(series, columns, watch.steps, marks)
        for heat in self.heats:
            yield from heat_map(heat, columns, self.modules, marks, self.links_by_column)

    def _tiles(self) -> Iterator[str]:
        known = {each.key: [value for value in each.values if value is not None] for each in self.lines}
        tiles = [("steps", f"{self.watch.count:,}")]
        tiles += [("modules", f"{len(self.watch.modules):,}")] if self.modules else []
        tiles += [(f"last {word}", number_words(known[key][-1])) for key, word in _LAST if key in known]
        tiles += [("peak memory", memory_words(worst(known["memory"])))] if "memory" in known else []
        wrong = ' class="error"'
        broken = (number_words("nan"), number_words("inf"), number_words("-inf"))
        shown = "".join(
            f"<div><dt>{name}</dt><dd{wrong * (value in broken)}>{value}</dd></div>" for name, value in tiles
        )
        yield f'<dl class="tiles">{shown}</dl>'

    def _list(self) -> Iterator[str]:
        shown = self.findings[:_MOST_FINDINGS]
        items = [(_level(finding), self._item(finding)) for finding in shown]
        told = "".join(item for level, item in items if level != "note")
        notes = [item for level, item in items if level == "note"]
        if told:
            yield f'<ol class="findings" aria-label="findings">{told}</ol>'
        if notes:
            summary = f"<summary>{counted(len(notes), 'note')}</summary>"
            yield f'<details>{summary}<ol class="findings" aria-label="notes">{"".join(notes)}</ol></details>'
        if len(self.findings) > len(shown):
            more = len(self.findings) - len(shown)
            yield f'<p class="quiet">And {more:,} more: <code>-o watch.jsonl</code> has them all.</p>'

    def _item(self, finding: Finding) -> str:
        cause = finding.cause
        _, *lines = cause_lines(cause, Layout())
        code = "\n".join(markup(shortened(line)) for line in lines if not line.startswith(_HELP))
        how = f" ({markup(finding.how)})" if finding.how else ""
        parts = [
            f'<button type="button">{markup(finding.place)}</button> <span class="level">{_level(finding)}:</span> ',
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
        said = list[str]()
        if len(watch.steps) < watch.count:
            said.append(f"The charts show {len(watch.steps):,} of {counted(watch.count, 'step')}.")
        if columns.most_steps > 1:
            said.append(
                f"A column stands for up to {columns.most_steps:,} steps: a cell shows NaN or infinity where one of "
                "them has it, else the highest number, and a line goes through the lowest and the highest."
            )
        if len(watch.modules) > len(self.modules):
            said.append(f"The first {len(self.modules):,} of {len(watch.modules):,} modules are drawn.")
        if said:
            yield f'<p class="quiet">{" ".join(said)}</p>'


def _level(finding: Finding) -> Level:
    level = finding.cause.level
    return "note" if level == "none" else level


def _rounded(value: Number | None) -> Number | None:
    if value is None or isinstance(value, str):
        return value
    rounded = float(f"{value:.4g}")
    # The largest floats become infinite, which JSON does not have.
    return rounded if math.isfinite(rounded) else value
