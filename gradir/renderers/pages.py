"""A diff as a page to open in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from gradir import registry
from gradir.errors import ExportError
from gradir.options import Options
from gradir.protocols import ListsChanges

if TYPE_CHECKING:
    from gradir.diffs.changes import Diff

__all__ = ["HtmlRenderer", "PageOptions"]

_EXPORTER = "html"


class PageOptions(Options, frozen=True, kw_only=True):
    """What the page is called."""

    title: Annotated[str, Meta(description="the title of the page", min_length=1)] = "gradir diff"


class HtmlRenderer:
    """A page for a review: both graphs in one drawing, what changed marked in it and listed beside it."""

    suffix: ClassVar[str] = ".html"
    options: ClassVar[type[Options]] = PageOptions

    def render(self, diff: Diff, options: PageOptions) -> str:
        """The page, as the exporter of that name writes it.

        Raises:
            ExportError: the graphs are not known, or the exporter is another one that lists no changes.
        """
        from gradir.review.listed import held_before, listed
        from gradir.review.united import United

        united, sides = United(diff), diff.sides
        assert sides is not None  # noqa: S101 (or there is no united graph)
        exporter = registry.exporter(_EXPORTER)
        if not isinstance(exporter, ListsChanges):
            raise ExportError(f"the exporter {_EXPORTER!r} lists no changes: use the one of gradir")
        values = registry.exporter_options(_EXPORTER, {"title": options.title})
        return exporter.export_changes(united.graph, values, listed(diff, sides, united), held_before(sides, united))
