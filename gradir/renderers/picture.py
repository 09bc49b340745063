"""What the renderers have in common that draw a diff with an exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from gradir import registry
from gradir.errors import ExportError
from gradir.options import Options

if TYPE_CHECKING:
    from gradir.review.comparison import Comparison

__all__ = ["PictureOptions", "drawn"]


class PictureOptions(Options, frozen=True, kw_only=True):
    """How much is drawn."""

    hops: Annotated[int, Meta(ge=0, description="how many edges around what changed are shown")] = 1


def drawn(comparison: Comparison, exporter: str, hops: int, **options: object) -> str:
    """What changed and what is near it, as an exporter writes it.

    Raises:
        ExportError: the graphs are not known, or the format cannot hold what changed.
    """
    if not comparison.has_graphs:
        raise ExportError("a picture needs both graphs, and a diff that was read has none: compare them again")
    return registry.export(exporter, comparison.changed_part(hops), options)
