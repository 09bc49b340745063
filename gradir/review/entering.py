"""What enters an entry of a list of modules, as the output of one layer enters the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.ir.edges import sources
from gradir.ir.ids import numbered
from gradir.ir.module_tree import upwards

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["entering", "entry"]


def entering(graph: Graph) -> dict[str, str]:
    """For each entry of a list the node that it reads from outside, where that is one alone.

    >>> from gradir.ir import Graph, Node, Ref
    >>> nodes = [Node(f"h.{n}/f:1", scope=f"h.{n}", inputs=(Ref(f"h.{n - 1}/f:1", 0),) if n else ()) for n in range(3)]
    >>> entering(Graph.of(nodes))
    {'h.1': 'h.0/f:1', 'h.2': 'h.1/f:1'}
    """
    entries: dict[str, str] = {}
    found: dict[str, str] = {}
    for node in graph.nodes.values():
        if node.scope not in entries:
            entries[node.scope] = entry(node.scope)
        here = entries[node.scope]
        for source in sources(node) if here else ():
            there = graph.nodes[source].scope if source in graph.nodes else ""
            if there != here and not there.startswith(f"{here}."):
                found[here] = source if found.get(here, source) == source else ""
    return {path: source for path, source in found.items() if source}


def entry(path: str) -> str:
    """The innermost entry of a list that a module lies in, or is; nothing where it lies in none.

    >>> entry("h.3.mlp.up"), entry("h_3.experts.1"), entry("norm")
    ('h.3', 'h_3.experts.1', '')
    """
    return next((above for above in upwards(path) if numbered(above.rpartition(".")[2])), "")
