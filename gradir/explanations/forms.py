"""An explanation as text for a terminal, as Markdown, and as JSON.

The JSON is what schemas/gir-explanation-1.0.schema.json describes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from gradir.errors import ExportError
from gradir.explanations.model import STATUSES, Allowed, Cause, Explanation, Level, Record, Term
from gradir.ir import Source
from gradir.ir.jsontext import printable_json
from gradir.ir.text import counted, printable
from gradir.markdown import code_span
from gradir.vocabulary.causes import worded

__all__ = ["FORMS", "Document", "json", "markdown", "text", "written"]

_SIGNS: Final = {"error": "x", "info": "i", "note": "."}
_MOST_TERMS: Final = 12
_MOST_ROWS: Final = 40
_MOST_CAUSES: Final = 30
_MOST_ALLOWED: Final = 20
"""Of more, a text names the first, or the gravest, and says how many are left; the JSON has all."""


class Told(Record, frozen=True, omit_defaults=False):
    """A cause with its sentences: ``text`` says what happened, ``advice`` what to do."""

    kind: str
    level: Level
    text: str
    advice: str
    op: str
    names: tuple[str, ...]
    source: Source | None
    via: Source | None


class Document(Record, frozen=True, omit_defaults=False):
    """Which parameters get a gradient, and why the others get none.

    ``statuses`` has a word for every parameter and tensor by name, ``level`` is the highest level of a cause,
    ``terms`` are the summands of what was captured, ``gradients`` has by name the norm of what arrives, or ``none``,
    ``zero`` or ``nonfinite``, where values were asked for, and ``allowed`` is what was said to be meant, and where.
    """

    format: Literal["gir-explanation"]
    version: Annotated[str, msgspec.Meta(pattern=r"^1\.(0|[1-9][0-9]*)$")]
    level: Level
    statuses: Mapping[str, str]
    causes: tuple[Told, ...]
    terms: tuple[Term, ...]
    gradients: Mapping[str, float | str]
    allowed: tuple[Allowed, ...] = ()


def text(explanation: Explanation) -> str:
    """The counts, then each cause with its line and what to do."""
    lines = [_summary(explanation)]
    causes, others = _gravest(explanation)
    for cause in causes:
        lines += ["", f"{_SIGNS.get(cause.level, '-')} {printable(cause.kind)}{_at(cause)}", f"  {cause.text}"]
        if cause.advice:
            lines.append(f"  -> {cause.advice}")
    if others:
        lines += ["", others]
    if len(explanation.terms) > 1:
        listed = (f"  {_term(explanation, term)}" for term in explanation.terms[:_MOST_TERMS])
        lines += ["", "terms of what was captured:", *listed]
        if len(explanation.terms) > _MOST_TERMS:
            lines.append(f"  and {len(explanation.terms) - _MOST_TERMS:,} more")
    if explanation.allowed:
        lines += ["", "allowed:", *(f"  {each}" for each in _allowed(explanation, printable))]
    return "".join(f"{line}\n" for line in lines)


def _term(explanation: Explanation, term: Term, shown: Callable[[str], str] = printable) -> str:
    number = "" if term.value is None else f", value {_number(term.value)}"
    where = "" if term.source is None else f" at {shown(_line(term.source))}"
    count = len(explanation.joined(term.names))
    reached = counted(count, "parameter") if count else "nothing"
    return f"{shown(term.variable or term.op or '?')}{where}: reaches {reached}{number}"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _gravest(explanation: Explanation) -> tuple[Sequence[Cause], str]:
    """The causes to tell, and how many others there are; in the order of the program where all are told."""
    causes = _causes(explanation)
    if len(causes) <= _MOST_CAUSES:
        return causes, ""
    levels = [*_SIGNS]
    gravest = sorted(causes, key=lambda cause: levels.index(cause.level) if cause.level in levels else len(levels))
    return gravest[:_MOST_CAUSES], f"and {len(causes) - _MOST_CAUSES:,} more causes: --format json has them all"


def _allowed(explanation: Explanation, shown: Callable[[str], str]) -> Iterator[str]:
    """Each pattern, where it is written, and what came of it; one that allows nothing may be misspelt."""
    for allowed in explanation.allowed[:_MOST_ALLOWED]:
        where = f" ({shown(allowed.where)})" if allowed.where else ""
        nothing = "nothing, as no cause is of this kind or of such names alone"
        yield f"{shown(allowed.pattern)}{where}: {counted(allowed.causes, 'cause') if allowed.causes else nothing}"
    if len(explanation.allowed) > _MOST_ALLOWED:
        yield f"and {len(explanation.allowed) - _MOST_ALLOWED:,} more"


def markdown(explanation: Explanation) -> str:
    """The counts, a table of what does not simply get its gradient, and a list of the causes."""
    return "".join(f"{line}\n" for line in _markdown(explanation))


def _markdown(explanation: Explanation) -> Iterator[str]:
    yield f"**{_summary(explanation)}**"
    told = [(name, status) for name, status in explanation.statuses.items() if status != "reached"]
    if told:
        yield from ("", "| parameter | status |", "|---|---|")
        for name, status in told[:_MOST_ROWS]:
            yield f"| {code_span(name)} | {_status(status)} |"
        if len(told) > _MOST_ROWS:
            yield f"| … {len(told) - _MOST_ROWS:,} more | |"
    if explanation.causes or explanation.allowed:
        yield ""
    causes, others = _gravest(explanation)
    for cause in causes:
        words = worded(cause.kind, cause.op, cause.names, code_span)
        where = "" if cause.source is None else f" at {code_span(_line(cause.source))}"
        advice = f" To do: {words.advice}." if words.advice else ""
        detail = f": {code_span(cause.detail)}" if cause.detail else ""
        yield f"- **{cause.level}**, {code_span(cause.kind)}{where}: {words.text}{detail}.{advice}"
    if others:
        yield f"- {others}"
    yield from (f"- allowed: {each}" for each in _allowed(explanation, code_span))
    if len(explanation.terms) > 1:
        yield from ("", "Terms of what was captured:", "")
        yield from (f"- {_term(explanation, term, code_span)}" for term in explanation.terms[:_MOST_TERMS])
        if len(explanation.terms) > _MOST_TERMS:
            yield f"- and {len(explanation.terms) - _MOST_TERMS:,} more"


def json(explanation: Explanation) -> str:
    """All of it, with the sentences of each cause.

    Raises:
        ExportError: a name holds what JSON cannot spell.
    """
    causes = [
        Told(each.kind, each.level, shown.text, shown.advice, each.op, each.names, each.source, each.via)
        for each, shown in zip(explanation.causes, _causes(explanation), strict=True)
    ]
    document = Document(
        "gir-explanation",
        "1.0",
        explanation.level,
        explanation.statuses,
        tuple(causes),
        explanation.terms,
        explanation.gradients,
        explanation.allowed,
    )
    try:
        body = msgspec.json.format(msgspec.json.encode(document), indent=2)
    except UnicodeEncodeError as error:
        raise ExportError(f"the explanation holds what JSON cannot spell: {error}") from error
    return f"{printable_json(body)}\n"


FORMS: Final[Mapping[str, Callable[[Explanation], str]]] = {"text": text, "markdown": markdown, "json": json}
"""The forms of an explanation by name."""


def written(explanation: Explanation, form: str) -> str:
    """An explanation in the form of that name.

    Raises:
        ExportError: there is no such form, or it cannot hold the explanation.
    """
    if form not in FORMS:
        raise ExportError(f"no format {form!r} of an explanation: there are {', '.join(FORMS)}")
    return FORMS[form](explanation)


def _causes(explanation: Explanation) -> list[Cause]:
    """The causes as they are told: of names that are one tensor's, as one."""
    return [replace(cause, names=explanation.joined(cause.names)) for cause in explanation.causes]


def _status(status: str) -> str:
    return f"{status}: {STATUSES[status]}" if status in STATUSES else code_span(status)


def _summary(explanation: Explanation) -> str:
    others = {name for group in explanation.tied for name in group[1:]}
    counts = Counter(status for name, status in explanation.statuses.items() if name not in others)
    total = counts.total()
    lacking = [f"{counts[status]} {status}" for status in STATUSES if status != "reached" and counts[status]]
    some = f"{counts['reached']} of {counted(total, 'parameter')} reached"
    return ", ".join([some, *lacking])


def _at(cause: Cause) -> str:
    via = "" if cause.via is None else f" via {_line(cause.via)}"
    return "" if cause.source is None else f" at {_line(cause.source)}{via}"


def _line(source: Source) -> str:
    where = f"{printable(source.file)}:{source.line}"
    return f"{where} in {printable(source.function)}" if source.function else where
