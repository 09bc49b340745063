"""Write a diff as text, as a report for a pull request, and as JSON."""

from __future__ import annotations

import warnings
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from gradir.diffs.changes import Diff
from gradir.errors import ExportError, GradirWarning
from gradir.options import NoOptions, Options
from gradir.review.text import Detail, render
from gradir.review.wording import ANSI, NO_COLOUR


class TextOptions(Options, frozen=True, kw_only=True):
    """The details of the text, and its terminal."""

    details: Annotated[bool, Meta(description="list changes in each module, like --details")] = False
    full: Annotated[bool, Meta(description="every change by itself, as --full does")] = False
    color: Annotated[bool, Meta(description="colour for a terminal; --color decides it too")] = False
    width: Annotated[int, Meta(ge=1, description="cut lines at so many characters")] | None = None


class TextRenderer:
    """Text for a terminal or a review: the counts, then what changed by module."""

    suffix: ClassVar[str] = ".txt"
    options: ClassVar[type[Options]] = TextOptions

    def render(self, diff: Diff, options: TextOptions) -> str:
        """Return a short list, the details, or every change by itself, which is the only form without the graphs."""
        is_full = options.full or diff.sides is None
        detail: Detail = "full" if is_full else "details" if options.details else "brief"
        return render(diff, detail, palette=ANSI if options.color else NO_COLOUR, width=options.width)


_MOST_PICTURED: Final = 120


class MarkdownOptions(Options, frozen=True, kw_only=True):
    """The heading of the report."""

    title: Annotated[str, Meta(description="the heading of the report")] = "Autograd graph"


class MarkdownRenderer:
    """A report for a pull request, that fits into a comment: figures, a table, a picture, and the details folded."""

    suffix: ClassVar[str] = ".md"
    options: ClassVar[type[Options]] = MarkdownOptions

    def render(self, diff: Diff, options: MarkdownOptions) -> str:
        """Return the report, with a picture if it is small enough to read."""
        from gradir.review.report import markdown

        picture, unpictured = _picture(diff) if diff and diff.sides else ("", "")
        return markdown(diff, title=options.title, picture=picture, unpictured=unpictured)


def _picture(diff: Diff) -> tuple[str, str]:
    """Return the changed part as Mermaid source, or an empty text, and a sentence on its absence or omissions."""
    from gradir import registry
    from gradir.review.united import UnionGraph, draw_part

    left_out, united = "", UnionGraph(diff)
    part = draw_part(diff, united)
    kinds = {finding.kind for finding in diff.findings if finding.changes}
    is_followed = "following" in kinds
    if is_followed or (kinds & {"frozen", "unfrozen"} and len(part.nodes) > _MOST_PICTURED):
        part = draw_part(diff, united, with_explained=False)
        left_out = "The picture does not show changes that the lines at the top explain."
    if not part.nodes:
        why = "the lines at the top list all changes" if is_followed else "no operation changed"
        return "", f"No picture: {why}."
    if len(part.nodes) > _MOST_PICTURED:
        return "", f"No picture: it would have {len(part.nodes):,} boxes; gradir diff --format html shows all of them."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GradirWarning)
            return registry.export("mermaid", part, {"all": True, "parameters": "inline"}), left_out
    except ExportError:
        return "", "No picture: it is larger than Mermaid draws; gradir diff --format html shows it."


class JsonRenderer:
    """The whole diff as data, for programs and for 'gradir patch'."""

    suffix: ClassVar[str] = ".json"
    options: ClassVar[type[Options]] = NoOptions

    def render(self, diff: Diff, options: NoOptions) -> str:  # noqa: ARG002 (there are none)
        """Return the document that `gradir.diffs.diff_json` describes."""
        from gradir.diffs.diff_json import encode

        return encode(diff).decode()
