"""A diff as a Mermaid flowchart."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gradir.options import Options
from gradir.renderers.picture import PictureOptions, drawn

if TYPE_CHECKING:
    from gradir.review.comparison import Comparison

__all__ = ["MermaidRenderer"]


class MermaidRenderer:
    """A flowchart of what changed and what is near it, drawn by GitHub, GitLab and notebooks."""

    suffix: ClassVar[str] = ".mmd"
    options: ClassVar[type[Options]] = PictureOptions

    def render(self, comparison: Comparison, options: PictureOptions) -> str:
        """The changed part, as the exporter of that name writes it.

        Raises:
            ExportError: it is larger than Mermaid draws, or the graphs are not known.
        """
        return drawn(comparison, "mermaid", options.hops)
