"""A diff as a report for a pull request."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from msgspec import Meta

from gradir import registry
from gradir.errors import ExportError, GradirWarning
from gradir.options import Options
from gradir.review.markdown import markdown

if TYPE_CHECKING:
    from gradir.review.comparison import Comparison

__all__ = ["MarkdownOptions", "MarkdownRenderer"]

_MOST_PICTURED: Final = 120


class MarkdownOptions(Options, frozen=True, kw_only=True):
    """What the report is called."""

    title: Annotated[str, Meta(description="the heading of the report")] = "Autograd graph"


class MarkdownRenderer:
    """A report for a pull request, that fits into a comment: figures, a table, a picture, and the details folded."""

    suffix: ClassVar[str] = ".md"
    options: ClassVar[type[Options]] = MarkdownOptions

    def render(self, comparison: Comparison, options: MarkdownOptions) -> str:
        """The report, with a picture where that is small enough to read."""
        picture = _picture(comparison) if comparison.diff and comparison.has_graphs else ""
        return markdown(comparison, title=options.title, picture=picture)


def _picture(comparison: Comparison) -> str:
    """The changed part as Mermaid source; nothing where it is too large to read."""
    part = comparison.changed_part()
    if not part.nodes or len(part.nodes) > _MOST_PICTURED:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GradirWarning)
            return registry.export("mermaid", part, {"fold": False})
    except ExportError:
        return ""
