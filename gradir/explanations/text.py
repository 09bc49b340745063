"""An explanation as text for a terminal, and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from gradir.explanations.model import STATUSES, Cause, Explanation, Term
from gradir.explanations.words import worded
from gradir.ir import Source
from gradir.ir.text import counted, printable
from gradir.markdown import code_span

__all__ = ["markdown", "text"]

_SIGNS: Final = {"error": "x", "info": "i", "note": "."}


def text(explanation: Explanation) -> str:
    """The counts, then each cause with its line and what to do."""
    lines = [_summary(explanation)]
    for cause in explanation.causes:
        lines += ["", f"{_SIGNS.get(cause.level, '-')} {cause.kind}{_at(cause)}", f"  {cause.text}"]
        if cause.advice:
            lines.append(f"  -> {cause.advice}")
    if len(explanation.terms) > 1:
        lines += ["", "terms of what was captured:", *map(_term, explanation.terms)]
    return "".join(f"{line}\n" for line in lines)


def _term(term: Term) -> str:
    name = printable(term.variable or term.op or "?")
    where = "" if term.source is None else f" at {_line(term.source)}"
    return f"  {name}{where}: reaches {counted(len(term.names), 'parameter') if term.names else 'nothing'}"


def markdown(explanation: Explanation) -> str:
    """The counts, a table of what does not simply get its gradient, and a list of the causes."""
    return "".join(f"{line}\n" for line in _markdown(explanation))


def _markdown(explanation: Explanation) -> Iterator[str]:
    yield f"**{_summary(explanation)}**"
    told = [(name, status) for name, status in explanation.statuses.items() if status != "reached"]
    if told:
        yield from ("", "| parameter | status |", "|---|---|")
        for name, status in told:
            yield f"| {code_span(name)} | {status}: {STATUSES.get(status, '')} |"
    for cause in explanation.causes:
        words = worded(cause.kind, cause.op, cause.names, code_span)
        where = "" if cause.source is None else f" at {code_span(_line(cause.source))}"
        yield ""
        yield f"- **{cause.level}: {cause.kind}**{where}: {words.text}. {words.advice}."


def _summary(explanation: Explanation) -> str:
    counts = Counter(explanation.statuses.values())
    total = len(explanation.statuses)
    others = [f"{counts[status]} {status}" for status in STATUSES if status != "reached" and counts[status]]
    some = f"{counts['reached']} of {counted(total, 'parameter')} reached"
    return ", ".join([some, *others])


def _at(cause: Cause) -> str:
    via = "" if cause.via is None else f" via {_line(cause.via)}"
    return "" if cause.source is None else f" at {_line(cause.source)}{via}"


def _line(source: Source) -> str:
    where = f"{printable(source.file)}:{source.line}"
    return f"{where} in {printable(source.function)}" if source.function else where
