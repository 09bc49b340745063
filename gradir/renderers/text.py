"""A diff as text for a terminal or a review."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from gradir.options import Options
from gradir.review.text import ANSI, NO_COLOUR, render_brief, render_text

if TYPE_CHECKING:
    from gradir.review.comparison import Comparison

__all__ = ["TextOptions", "TextRenderer"]


class TextOptions(Options, frozen=True, kw_only=True):
    """How much is told, and for which terminal."""

    full: Annotated[bool, Meta(description="every change by itself, as --full does")] = False
    color: Annotated[bool, Meta(description="colour for a terminal; --color decides it too")] = False
    width: Annotated[int, Meta(ge=1, description="cut lines at so many characters")] | None = None


class TextRenderer:
    """Text for a terminal or a review: the counts, then what changed by module."""

    suffix: ClassVar[str] = ".txt"
    options: ClassVar[type[Options]] = TextOptions

    def render(self, comparison: Comparison, options: TextOptions) -> str:
        """Each thing once; every change by itself on request, and where the graphs are not known."""
        render = render_text if options.full or not comparison.has_graphs else render_brief
        return render(comparison, palette=ANSI if options.color else NO_COLOUR, width=options.width)
