"""Write an explanation as text for a terminal, as Markdown, and as JSON.

schemas/gir-explanation-1.0.schema.json describes the JSON.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from gradir.errors import ExportError
from gradir.explanations.model import STATUSES, Allowed, Cause, Examined, Excerpt, Explanation, Level, Record, Term
from gradir.explanations.verdict import place_text, subject, verdict_of
from gradir.ir import Source
from gradir.ir.jsontext import printable_json
from gradir.ir.memo import group_by_key
from gradir.ir.text import escape_unprintable, pluralize
from gradir.markdown import code_span
from gradir.vocabulary.causes import printable_short

_LEVELS: Final = ("error", "info", "note")
# The text lists so many, the gravest causes first, and counts the rest; the JSON has all.
_MOST_TERMS: Final = 12
_MOST_CAUSES: Final = 30
_MOST_ALLOWED: Final = 20
_LONGEST_LINE: Final = 100
_LEAST_LINE: Final = 40
_LEAST_EXCERPT: Final = 20
_MARGIN: Final = len(" |     ")


class Palette(NamedTuple):
    """The escape sequences before each kind of sign. Colour is never the only sign."""

    error: str = ""
    quiet: str = ""
    reset: str = ""


_ANSI: Final = Palette("\x1b[1;31m", "\x1b[1;34m", "\x1b[0m")


class ToldCause(Record, frozen=True, omit_defaults=False):
    """A cause with its sentences: ``text`` says what happened, and ``advice`` what to do."""

    kind: str
    level: Level
    text: str
    advice: str
    op: str
    names: tuple[str, ...]
    source: Source | None
    via: Source | None
    excerpt: Excerpt | None = None


class Told(ToldCause, frozen=True, omit_defaults=False):
    """A cause of an explanation; ``pattern`` is a recognized pattern, such as ``straight-through``, or empty."""

    pattern: str = ""


class Document(Record, frozen=True, omit_defaults=False):
    """The parameters that get a gradient, and the reasons why others get none.

    ``verdict`` is the answer in one line, ``statuses`` has a word for every parameter and tensor, and ``level`` is
    the highest level of a cause. ``gradients`` has norms, or ``none``, ``zero`` or ``nonfinite``.
    """

    format: Literal["gir-explanation"]
    version: Annotated[str, msgspec.Meta(pattern=r"^1\.(0|[1-9][0-9]*)$")]
    verdict: str
    level: Level
    statuses: Mapping[str, str]
    causes: tuple[Told, ...]
    terms: tuple[Term, ...]
    gradients: Mapping[str, float | str]
    examined: Examined
    allowed: tuple[Allowed, ...] = ()


class Layout(NamedTuple):
    """The layout of a text: ``all`` prints notes, ``width`` wraps lines, and ``norms`` adds those of modules."""

    all: bool = False
    width: int | None = None
    color: bool = False
    norms: bool = False

    @property
    def palette(self) -> Palette:
        """Return the escape sequences of the text."""
        return _ANSI if self.color else Palette()


def text(explanation: Explanation, layout: Layout = Layout()) -> str:  # noqa: B008
    """Return the verdict, then each cause with its line and advice, the gravest first."""
    lines = wrap_line(explanation.verdict, layout)
    causes, others = _select_causes(explanation, layout)
    for cause in causes:
        lines += ["", *cause_lines(cause, layout, named=subject(explanation, cause.names))]
    for other in others:
        lines += ["", other]
    if len(explanation.terms) > 1:
        lines += ["", "terms of the loss:", *(f"  {each}" for each in _describe_terms(explanation, escape_unprintable))]
    if explanation.allowed:
        lines += ["", "allowed:", *(f"  {each}" for each in _describe_allowed(explanation, escape_unprintable))]
    if layout.norms:
        lines += ["", *_norms(explanation)]
    return "".join(f"{line}\n" for line in lines)


def _norms(explanation: Explanation) -> Iterator[str]:
    squares: dict[str, float | str] = {}
    for name, gradient in explanation.gradients.items():
        path = name.rpartition(".")[0]
        number = 0.0 if gradient in {"none", "zero"} else gradient
        known = squares.get(path, 0.0)
        is_word = isinstance(number, str) or isinstance(known, str)
        squares[path] = "nonfinite" if is_word else float(known) + float(number) ** 2
    if not squares:
        yield "gradient norms: none are known, since no backward ran"
        return
    shown = {printable_short(path) or "(the model)": value for path, value in squares.items()}
    width = max(map(len, shown))
    yield "gradient norms by module:"
    for path, value in shown.items():
        yield f"  {path:<{width}}  {value if isinstance(value, str) else f'{value**0.5:.3g}'}"


def cause_lines(cause: Cause, layout: Layout, *, named: str = "", before: str = "", after: str = "") -> Iterator[str]:
    """Return the lines of one cause, with text ``before`` or ``after`` its sentence; ``named`` replaces its names."""
    palette = layout.palette
    colour = palette.error if cause.level == "error" else palette.quiet
    words = cause.words(named=named)
    detail = f": {escape_unprintable(cause.detail)}" if cause.detail else ""
    head, *rest = wrap_line(
        f"{cause.level}[{escape_unprintable(cause.kind)}]: {before}{words.text}{detail}{after}", layout
    )
    label, colon, sentence = head.partition(": ")
    yield f"{colour}{label}{palette.reset}{colon}{sentence}"
    yield from rest
    if cause.source is not None:
        via = "" if cause.via is None else f" via {place_text(cause.via)}"
        yield f"  {palette.quiet}-->{palette.reset} {place_text(cause.source)}{via}"
        yield from _draw_excerpt(cause.source.line, cause.excerpt, colour, layout)
    if words.advice:
        yield from wrap_line(f"  help: {words.advice}", layout, "        ")


def _draw_excerpt(line: int, excerpt: Excerpt | None, colour: str, layout: Layout) -> Iterator[str]:
    # A tab takes one column, like the carets below.
    text = "" if excerpt is None else excerpt.text.replace("\t", " ")
    if excerpt is None or not text.isprintable():
        return
    palette, number = layout.palette, str(line)
    first = len(text) - len(text.lstrip())
    shown = text.strip()
    start, end = max(excerpt.start - first, 0), min(excerpt.end - first, len(shown))
    room = _LONGEST_LINE if layout.width is None else max(layout.width - len(number) - _MARGIN, _LEAST_EXCERPT)
    # Cut a long line at its beginning if a cut at its end would remove the operation.
    left = max(0, min(end, start + room) - room) if len(shown) > room else 0
    shown, start, end = shown[left : left + room], start - left, min(end - left, room)
    yield f"{palette.quiet}{number} |{palette.reset}     {shown}"
    if start < end:
        blanks = "".join(" " * _columns_of(char) for char in shown[:start])
        carets = "^" * sum(map(_columns_of, shown[start:end]))
        yield f"{palette.quiet}{' ' * len(number)} |{palette.reset}     {blanks}{colour}{carets}{palette.reset}"


def wrap_line(line: str, layout: Layout, further: str = "    ") -> list[str]:
    """Return a line in pieces of the layout's width, all but the first behind ``further``."""
    if layout.width is None or len(line) <= layout.width:
        return [line]
    width = max(layout.width, _LEAST_LINE)
    return textwrap.wrap(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


def _describe_terms(explanation: Explanation, shown: Callable[[str], str]) -> Iterator[str]:
    for term in explanation.terms[:_MOST_TERMS]:
        value = term.value if isinstance(term.value, str | None) else f"{term.value:.6g}"
        number = f", value {value}" if value else ""
        where = "" if term.source is None else f" at {shown(place_text(term.source))}"
        count = len(explanation.join_tied(term.names))
        reached = pluralize(count, "parameter") if count else "nothing"
        yield f"{shown(term.variable or term.op or '?')}{where}: reaches {reached}{number}"
    if len(explanation.terms) > _MOST_TERMS:
        yield f"and {len(explanation.terms) - _MOST_TERMS:,} more"


def _select_causes(
    explanation: Explanation, layout: Layout, shown: Callable[[str], str] = escape_unprintable
) -> tuple[Sequence[Cause], list[str]]:
    # A level of a later version counts as an error.
    causes = sorted(
        (cause for cause in explanation.causes if layout.all or cause.level != "note"),
        key=lambda cause: _LEVELS.index(cause.level) if cause.level in _LEVELS else 0,
    )
    others = []
    if len(causes) > _MOST_CAUSES:
        others.append(f"and {len(causes) - _MOST_CAUSES:,} more causes: --format json has them all")
    notes = Counter(cause.kind for cause in explanation.causes if cause.level == "note")
    if notes and not layout.all:
        kinds = ", ".join(f"{shown(kind)} {count:,}" for kind, count in [*notes.items()][:_MOST_TERMS])
        others.append(
            f"{pluralize(notes.total(), 'note')} ({kinds}): --all shows {'it' if notes.total() == 1 else 'them'}"
        )
    return causes[:_MOST_CAUSES], others


def _describe_allowed(explanation: Explanation, shown: Callable[[str], str]) -> Iterator[str]:
    for allowed in explanation.allowed[:_MOST_ALLOWED]:
        where = f" ({shown(allowed.where)})" if allowed.where else ""
        nothing = "nothing, as no cause is of this kind or of such names alone"
        yield f"{shown(allowed.pattern)}{where}: {pluralize(allowed.causes, 'cause') if allowed.causes else nothing}"
    if len(explanation.allowed) > _MOST_ALLOWED:
        yield f"and {len(explanation.allowed) - _MOST_ALLOWED:,} more"


def markdown(explanation: Explanation, layout: Layout = Layout()) -> str:  # noqa: B008
    """Return the verdict, a table of the parameters that lack a gradient, and a list of the causes."""
    lines = [f"**{verdict_of(explanation, code_span)}**"]
    groups = group_by_key((status, name) for name, status in explanation.statuses.items() if status != "reached")
    if groups:
        lines += ["", "| parameters | status |", "|---|---|"]
        for status, names in groups.items():
            meaning = f"{status}: {STATUSES[status]}" if status in STATUSES else code_span(status)
            lines.append(f"| {subject(explanation, names, code_span)} | {meaning} |")
    if explanation.causes or explanation.allowed:
        lines.append("")
    causes, others = _select_causes(explanation, layout, code_span)
    lines += [cause_item(cause, named=subject(explanation, cause.names, code_span)) for cause in causes]
    lines += [f"- {other}" for other in others]
    lines += [f"- allowed: {each}" for each in _describe_allowed(explanation, code_span)]
    if len(explanation.terms) > 1:
        lines += ["", "Terms of the loss:", "", *(f"- {each}" for each in _describe_terms(explanation, code_span))]
    return "".join(f"{line}\n" for line in lines)


def cause_item(cause: Cause, *, named: str = "", before: str = "", after: str = "") -> str:
    """Return one cause as an item of a Markdown list; see `cause_lines`."""
    words = cause.words(code_span, named=named)
    where = "" if cause.source is None else f" at {code_span(place_text(cause.source))}"
    advice = f" To do: {words.advice}." if words.advice else ""
    detail = f": {code_span(cause.detail)}" if cause.detail else ""
    head = f"- **{cause.level}**, {code_span(cause.kind)}{where}"
    return f"{head}: {before}{words.text}{detail}{after}.{advice}"


def json(explanation: Explanation, _: Layout = Layout()) -> str:  # noqa: B008
    """Return the explanation as JSON, with the sentences of each cause."""
    # The sentences join the names of one tensor, unlike the field `names`.
    joined = (replace(cause, names=explanation.join_tied(cause.names)) for cause in explanation.causes)
    causes = tuple(
        Told(**{**copy_fields(Told, cause), "text": shown.text, "advice": shown.advice})
        for cause, shown in zip(explanation.causes, joined, strict=True)
    )
    document = Document("gir-explanation", "1.0", **{**copy_fields(Document, explanation), "causes": causes})
    try:
        body = msgspec.json.format(msgspec.json.encode(document), indent=2)
    except UnicodeEncodeError as error:
        raise ExportError(f"the explanation has a value that JSON cannot represent: {error}") from error
    return f"{printable_json(body)}\n"


# The forms of an explanation by name.
FORMS: Final[Mapping[str, Callable[[Explanation, Layout], str]]] = {"text": text, "markdown": markdown, "json": json}


def format_explanation(explanation: Explanation, form: str, layout: Layout = Layout()) -> str:  # noqa: B008
    """Return an explanation in a format."""
    if form not in FORMS:
        raise ExportError(f"no format {form!r} of an explanation: there are {', '.join(FORMS)}")
    return FORMS[form](explanation, layout)


def copy_fields(kind: type[Record], source: object) -> dict[str, Any]:
    """Return the values of the fields of a record that another object has too."""
    return {name: getattr(source, name) for name in kind.__struct_fields__ if hasattr(source, name)}


def _columns_of(char: str) -> int:
    # On a terminal a wide letter takes two columns, a combining accent none.
    return 2 if unicodedata.east_asian_width(char) in "WF" else int(not unicodedata.combining(char))
