"""A graph of JAX in a few words, for an exact comparison. Knows nothing of the front-end."""

from __future__ import annotations

from gradir import Graph
from gradir.ir.saved import SavedBytes


def ops(graph: Graph) -> str:
    return " ".join(node.op for node in graph.nodes.values() if node.role == "function")


def names(graph: Graph, role: str) -> str:
    return " ".join(sorted(name for node in graph.nodes.values() if node.role == role for name in node.names))


def held_bytes(graph: Graph) -> int:
    """The bytes of the storages that are held, each once."""
    saved = SavedBytes[None]({})
    for node in graph.nodes.values():
        saved.add(node, None)
    return saved.bytes[None, "held"]
