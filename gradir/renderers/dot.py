"""A diff as Graphviz source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from gradir.options import Options
from gradir.renderers.picture import PictureOptions, drawn

if TYPE_CHECKING:
    from gradir.review.comparison import Comparison

__all__ = ["DotOptions", "DotRenderer"]


class DotOptions(PictureOptions, frozen=True, kw_only=True):
    """How much is drawn, and with what."""

    legend: Annotated[bool, Meta(description="add a box that says what the colours mean")] = False


class DotRenderer:
    """Graphviz source of what changed and what is near it."""

    suffix: ClassVar[str] = ".dot"
    options: ClassVar[type[Options]] = DotOptions

    def render(self, comparison: Comparison, options: DotOptions) -> str:
        """The changed part, as the exporter of that name writes it.

        Raises:
            ExportError: the graphs are not known.
        """
        return drawn(comparison, "dot", options.hops, legend=options.legend)
