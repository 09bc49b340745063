"""Draw a diff with an exporter, as a picture or as a page for a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from gradir import registry
from gradir.errors import ExportError
from gradir.ir.marks import overlay_verdict
from gradir.options import Options
from gradir.overlays import mark_verdict
from gradir.protocols import ListsChanges

if TYPE_CHECKING:
    from gradir.diffs.changes import Diff
    from gradir.ir import Graph

_PAGE = "html"


class PictureOptions(Options, frozen=True, kw_only=True):
    """The extent of the picture."""

    hops: Annotated[int, Meta(ge=0, description="edges to show around changes")] = 1
    full: Annotated[bool, Meta(description="every change by itself: equal ones too, and all of a new module")] = False


def draw_diff(diff: Diff, exporter: str, how: PictureOptions, **options: object) -> str:
    """Return the changed nodes and their neighbours in the format of an exporter."""
    from gradir.review.united import UnionGraph, draw_part

    united = UnionGraph(diff)
    part = united.changed_part(how.hops) if how.full else draw_part(diff, united, how.hops)
    return registry.export(exporter, part, {"parameters": "inline", **options})


class DotOptions(PictureOptions, frozen=True, kw_only=True):
    """The extent of the picture, and its legend."""

    legend: Annotated[bool, Meta(description="add a box that explains the colours")] = False


class DotRenderer:
    """Graphviz source of what changed and what is near it."""

    suffix: ClassVar[str] = ".dot"
    options: ClassVar[type[Options]] = DotOptions

    def render(self, diff: Diff, options: DotOptions) -> str:
        """Return the DOT source of the changed part."""
        return draw_diff(diff, "dot", options, legend=options.legend, all=True)


class MermaidRenderer:
    """A flowchart of what changed and what is near it, drawn by GitHub, GitLab and notebooks."""

    suffix: ClassVar[str] = ".mmd"
    options: ClassVar[type[Options]] = PictureOptions

    def render(self, diff: Diff, options: PictureOptions) -> str:
        """Return the Mermaid source of the changed part."""
        return draw_diff(diff, "mermaid", options)


class PageOptions(Options, frozen=True, kw_only=True):
    """The titles of the page and of both graphs."""

    title: Annotated[str, Meta(description="the title of the page (default: the model and both graphs)")] = ""
    before: Annotated[str, Meta(description="name of the first graph", min_length=1)] = "before"
    after: Annotated[str, Meta(description="name of the second graph", min_length=1)] = "after"


class HtmlRenderer:
    """A page for a review: both graphs in one drawing, what changed marked in it and listed beside it."""

    suffix: ClassVar[str] = ".html"
    options: ClassVar[type[Options]] = PageOptions

    def render(self, diff: Diff, options: PageOptions) -> str:
        """Return the page."""
        from gradir.review.change_list import list_changes, measure_modules_before
        from gradir.review.united import UnionGraph

        united, sides = UnionGraph(diff), diff.sides
        assert sides is not None  # noqa: S101 (or there is no united graph)
        exporter = registry.exporter(_PAGE)
        if not isinstance(exporter, ListsChanges):
            raise ExportError(f"the exporter {_PAGE!r} lists no changes: use the one of gradir")
        values = registry.exporter_options(_PAGE, {"title": options.title})
        named = [(options.before, sides.before), (options.after, sides.after)]
        graph = _add_sentence(united.graph, diff)
        return exporter.export_changes(
            graph, values, list_changes(diff, sides, united), measure_modules_before(sides, united), named
        )


def _add_sentence(graph: Graph, diff: Diff) -> Graph:
    """Return the graph with the summary of the diff in the place of an explanation's verdict."""
    from gradir.review.summary import sentence
    from gradir.review.text import headline, no_difference

    if overlay_verdict(graph.nodes.values()):
        return graph
    look = "alarm" if any(finding.level == "error" for finding in diff.findings) else "quiet"
    # Without a sentence, as for an empty graph, the page counts the changes.
    return mark_verdict(graph, look, (sentence(diff) or headline(diff)) if diff else no_difference(diff))
