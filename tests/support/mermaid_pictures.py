"""Mermaid pictures: the samples' tensor, a style, what is in a picture, and what Mermaid reads of one."""

from __future__ import annotations

from typing import Any

from gradir_exporters._mermaid_picture import Box, Group
from gradir_exporters.mermaid import MermaidExporter, MermaidOptions
from node_programs import ask

from gradir.ir import Graph, TensorMeta

META = TensorMeta("float32", (2, 3))
PLAIN = MermaidOptions()


def export(graph: Graph, **options: Any) -> str:
    return MermaidExporter().export(graph, MermaidOptions(**options))


def boxes_in(items: list[Box | Group]) -> list[Box]:
    return [box for item in items for box in ([item] if isinstance(item, Box) else boxes_in(item.items))]


def groups_in(items: list[Box | Group]) -> list[Group]:
    return [group for item in items if isinstance(item, Group) for group in [item, *groups_in(item.items)]]


def parse_mermaid(mermaid_node: str, sources: list[str]) -> list[dict[str, Any]]:
    """What Mermaid's own parser makes of sources."""
    results: list[dict[str, Any]] = ask(mermaid_node, "parse.mjs", sources)
    return results
