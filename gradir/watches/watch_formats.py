"""Write a watch as text for a terminal, as Markdown, as lines of JSON, and as an HTML page.

schemas/gir-watch-1.0.schema.json describes the lines of JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal

import msgspec

from gradir.errors import ExportError
from gradir.explanations.formats import Layout, ToldCause, cause_item, cause_lines, copy_fields, wrap_line
from gradir.explanations.model import Level, Record
from gradir.ir.jsontext import printable_json
from gradir.ir.text import escape_unprintable, pluralize
from gradir.markdown import code_span
from gradir.watches.model import LEVELS, Finding, Modules, Number, Step, Watch

_MOST: Final = 30
# Rows of the table in Markdown: the first step, the last, and others at equal distances.
_ROWS: Final = 8


class Head(Record, frozen=True, tag="head", omit_defaults=False):
    """The first line of the file."""

    format: Literal["gir-watch"] = "gir-watch"
    version: Annotated[str, msgspec.Meta(pattern=r"^1\.(0|[1-9][0-9]*)$")] = "1.0"


class FindingLine(ToldCause, frozen=True, tag="finding", omit_defaults=False, kw_only=True):
    """A finding: a cause with its sentences, its step, and ``how`` it was found."""

    step: int
    how: str
    loops: Mapping[str, int]


class End(Record, frozen=True, tag="end", omit_defaults=False):
    """The last line: the verdict, and the number of steps."""

    verdict: str
    level: Level
    steps: int
    ended: str = ""


Line = Head | Modules | Step | FindingLine | End


def json_line(record: Line | Finding) -> str:
    """Return one record as a line of JSON, with its end."""
    line: object = record
    if isinstance(record, Finding):
        line = FindingLine(**copy_fields(ToldCause, record.cause), step=record.step, how=record.how, loops=record.loops)
    try:
        body = msgspec.json.encode(line)
    except UnicodeEncodeError as error:
        raise ExportError(f"the watch has a value that JSON cannot represent: {error}") from error
    return f"{printable_json(body)}\n"


def jsonl(watch: Watch, _: Layout = Layout()) -> str:  # noqa: B008
    """Return the head, the modules, the steps with their findings, and the verdict."""
    # A finding follows its step.
    numbered: list[tuple[int, int, Step | Finding]] = [(step.number, 0, step) for step in watch.steps]
    found = [(finding.step, 1, finding) for finding in watch.findings]
    end = End(watch.verdict, watch.level, watch.count, watch.ended)
    records = [record for _, _, record in sorted([*numbered, *found], key=lambda each: each[:2])]
    return "".join(map(json_line, [Head(), Modules(watch.modules), *records, end]))


def text(watch: Watch, layout: Layout = Layout()) -> str:  # noqa: B008
    """Return the verdict, then each finding with its line and advice, the most severe first."""
    lines = wrap_line(watch.verdict, layout)
    findings = _sort_findings(watch, layout)
    for finding in findings[:_MOST]:
        how = f" ({escape_unprintable(finding.how)})" if finding.how else ""
        lines += ["", *cause_lines(finding.cause, layout, before=f"{finding.place()}: ", after=how)]
    if len(findings) > _MOST:
        lines += ["", f"and {len(findings) - _MOST:,} more: -o watch.jsonl has them all"]
    notes = sum(finding.cause.level == "note" for finding in watch.findings)
    if notes and not layout.all:
        lines += ["", f"{pluralize(notes, 'note')}: --all shows {'it' if notes == 1 else 'them'}"]
    return "".join(f"{line}\n" for line in lines)


def markdown(watch: Watch, layout: Layout = Layout()) -> str:  # noqa: B008
    """Return the verdict, a list of the findings, and a table of some steps, including the first and last."""
    lines = [f"**{watch.verdict_as(code_span)}**", ""]
    findings = _sort_findings(watch, layout)
    for finding in findings[:_MOST]:
        after = f" ({escape_unprintable(finding.how)})" if finding.how else ""
        lines.append(cause_item(finding.cause, before=f"{finding.place(code_span)}: ", after=after))
    if len(findings) > _MOST:
        lines.append(f"- and {len(findings) - _MOST:,} more")
    steps = watch.steps
    if len(steps) > _ROWS:
        steps = tuple(steps[place * (len(steps) - 1) // (_ROWS - 1)] for place in range(_ROWS))
    if steps:
        lines += ["", "| step | loss | gradient norm | memory |", "|---|---|---|---|"]
    for step in steps:
        cells = (short_number(step.loss), short_number(step.norm), f"{step.memory / 2**20:,.0f} MiB")
        lines.append(f"| {step.number:,} | {' | '.join(map(code_span, cells))} |")
    return "".join(f"{line}\n" for line in lines)


def _sort_findings(watch: Watch, layout: Layout) -> list[Finding]:
    levels = [level for level in LEVELS if layout.all or level != "note"]
    findings = (finding for finding in watch.findings if finding.cause.level in levels)
    return sorted(findings, key=lambda finding: levels.index(finding.cause.level))


def short_number(value: Number | None) -> str:
    """Return a number as text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.4g}"


def html(watch: Watch, _: Layout = Layout()) -> str:  # noqa: B008
    """Return a page with charts of the steps."""
    from gradir.watches.page import page

    return page(watch)


# The formats of a watch by name.
FORMS: Final[Mapping[str, Callable[[Watch, Layout], str]]] = {
    "text": text,
    "markdown": markdown,
    "jsonl": jsonl,
    "html": html,
}


def format_watch(watch: Watch, form: str, layout: Layout = Layout()) -> str:  # noqa: B008
    """Return a watch in a format."""
    if form not in FORMS:
        raise ExportError(f"no format {form!r} of a watch: there are {', '.join(FORMS)}")
    return FORMS[form](watch, layout)
