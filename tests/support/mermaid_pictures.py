"""Mermaid pictures: the samples' tensor, a style, and what is in a picture."""

from __future__ import annotations

from typing import Any

from gradir_exporters._mermaid_picture import Box, Group, Style
from gradir_exporters.mermaid import MermaidExporter, MermaidOptions

from gradir.ir import Graph, TensorMeta

__all__ = ["META", "PLAIN", "boxes_in", "export", "groups_in"]

META = TensorMeta("float32", (2, 3))
PLAIN = Style(shapes=True, native=False, saved=False, accumulators=False)


def export(graph: Graph, **options: Any) -> str:
    return MermaidExporter().export(graph, MermaidOptions(**options))


def boxes_in(items: list[Box | Group]) -> list[Box]:
    return [box for item in items for box in ([item] if isinstance(item, Box) else boxes_in(item.items))]


def groups_in(items: list[Box | Group]) -> list[Group]:
    return [group for item in items if isinstance(item, Group) for group in [item, *groups_in(item.items)]]
