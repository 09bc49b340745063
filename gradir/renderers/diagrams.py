"""A diff as a picture, drawn by an exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from gradir import registry
from gradir.options import Options

if TYPE_CHECKING:
    from gradir.diffs.changes import Diff

__all__ = ["DotOptions", "DotRenderer", "MermaidRenderer", "PictureOptions", "drawn"]


class PictureOptions(Options, frozen=True, kw_only=True):
    """How much is drawn."""

    hops: Annotated[int, Meta(ge=0, description="how many edges around what changed are shown")] = 1
    full: Annotated[bool, Meta(description="every change by itself: equal ones too, and all of a new module")] = False


def drawn(diff: Diff, exporter: str, how: PictureOptions, **options: object) -> str:
    """What changed and what is near it, as an exporter writes it.

    Raises:
        ExportError: the graphs are not known, or the format cannot hold what changed.
    """
    from gradir.review.drawn import drawn_part
    from gradir.review.united import United

    united = United(diff)
    part = united.changed_part(how.hops) if how.full else drawn_part(diff, united, how.hops)
    return registry.export(exporter, part, {"parameters": "inline", **options})


class DotOptions(PictureOptions, frozen=True, kw_only=True):
    """How much is drawn, and with what."""

    legend: Annotated[bool, Meta(description="add a box that says what the colours mean")] = False


class DotRenderer:
    """Graphviz source of what changed and what is near it."""

    suffix: ClassVar[str] = ".dot"
    options: ClassVar[type[Options]] = DotOptions

    def render(self, diff: Diff, options: DotOptions) -> str:
        """The changed part, as the exporter of that name writes it.

        Raises:
            ExportError: the graphs are not known.
        """
        return drawn(diff, "dot", options, legend=options.legend, all=True)


class MermaidRenderer:
    """A flowchart of what changed and what is near it, drawn by GitHub, GitLab and notebooks."""

    suffix: ClassVar[str] = ".mmd"
    options: ClassVar[type[Options]] = PictureOptions

    def render(self, diff: Diff, options: PictureOptions) -> str:
        """The changed part, as the exporter of that name writes it.

        Raises:
            ExportError: it is larger than Mermaid draws, or the graphs are not known.
        """
        return drawn(diff, "mermaid", options)
