"""A graph of JAX in a few words, for an exact comparison. Knows nothing of the front-end."""

from __future__ import annotations

from gradir import Graph
from gradir.ir import Node
from gradir.ir.saved import Storages

__all__ = ["cuts", "held_bytes", "names", "ops", "scopes", "slots"]


def ops(graph: Graph) -> str:
    return " ".join(node.op for node in graph.nodes.values() if node.role == "function")


def names(graph: Graph, role: str) -> str:
    return " ".join(sorted(name for node in graph.nodes.values() if node.role == role for name in node.names))


def slots(graph: Graph) -> str:
    """The operations that keep something, and each slot's bytes; ``~`` of one that is made anew."""
    return " ".join(f"{node.op}({_slots(node)})" for node in graph.nodes.values() if node.saved)


def _slots(node: Node) -> str:
    return " ".join(f"{slot.slot}{'~' if slot.state == 'recomputed' else f'={slot.bytes}'}" for slot in node.saved)


def held_bytes(graph: Graph) -> int:
    """The bytes of the storages that are held, each once."""
    storages = Storages()
    return sum(size for node in graph.nodes.values() for _, size, state in storages.add(node) if state == "held")


def cuts(graph: Graph) -> tuple[tuple[str, str, str], ...]:
    return tuple((cut.kind, name, cut.op) for cut in graph.cuts for name in cut.names)


def scopes(graph: Graph) -> dict[str, int]:
    return {path: scope.rounds for path, scope in graph.scopes.items() if path}
