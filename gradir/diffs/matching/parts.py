"""The parts of two graphs that differ, with what is near them; all other nodes are equal and keep their ids."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gradir.ir.edges import sources
from gradir.ir.ids import split_id, split_last
from gradir.ir.module_tree import upwards

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gradir.ir import Graph, Node, Scope

_SMALL: Final = 2_000
"""Smaller graphs are matched as a whole."""

_SHARE: Final = 4
"""So are graphs of which more than one node in so many differs or is near one that does."""

_HUB: Final = 8
"""What is near a node with more consumers than this is near nothing else."""


def differing_parts(a: Graph, b: Graph) -> tuple[Graph, Graph] | None:
    """Return the nodes that differ, those in their modules and two edges around.

    It is ``None`` if these are many, or if entries of lists came or went: the others may have moved up, though equal.
    """
    if min(len(a.nodes), len(b.nodes)) < _SMALL:
        return None
    settled = {key for key, node in a.nodes.items() if b.nodes.get(key) == node}
    edited = {key for graph in (a, b) for key in graph.nodes if key not in settled}
    most = len(a.nodes) // _SHARE
    if len(edited) > most or not _have_the_same_entries(a, b):
        return None
    scopes = {graph.nodes[key].scope for graph in (a, b) for key in edited if key in graph.nodes}
    feeding = [(key, named_ids(node)) for key, node in a.nodes.items()]
    feeding += [(key, named_ids(node)) for key, node in b.nodes.items() if key in edited]
    uses = Counter(chain.from_iterable(found for _, found in feeding))
    reached = edited | {key for key in settled if a.nodes[key].scope in scopes}
    for last in (False, True):
        ends = {key for key in reached if uses[key] <= _HUB} if last else reached
        reached = reached | {key for key, found in feeding if not ends.isdisjoint(found)}
        reached |= {source for key, found in feeding if key in ends for source in found}
        if len(reached) > most:
            return None
    return _part(a, b, reached), _part(b, a, reached)


def stay_in_place(a: Graph, b: Graph, nodes: Mapping[str, str]) -> bool:
    """Return whether all matched nodes of two parts have their module, and equal ones their id.

    Then what both graphs have elsewhere cannot make another matching cheaper.
    """
    there = {key: node for key, node in b.nodes.items() if a.nodes.get(key) == node}
    return all(nodes.get(key) == key for key in there) and all(
        old == new or (a.nodes[old].scope == b.nodes[new].scope and _place(a.nodes[old]) == _place(b.nodes[new]))
        for old, new in nodes.items()
    )


def _have_the_same_entries(a: Graph, b: Graph) -> bool:
    """Return whether both graphs have nodes in the same entries of lists."""
    before, after = ({node.scope for node in graph.nodes.values()} for graph in (a, b))
    one, other = (
        {path for scope in scopes for path in upwards(scope) if path.rpartition(".")[2].isdecimal()}
        for scopes in ((before, after) if before != after else ((), ()))
    )
    return one == other


def named_ids(node: Node) -> list[str]:
    """Return the ids that a node refers to, and names of storages."""
    found = sources(node)
    for slot in node.saved:
        if slot.origin is not None:
            found.append(slot.origin.id)
        if slot.storage:
            found += slot.storage, split_last(slot.storage)[0]
    return found


def _place(node: Node) -> str:
    return split_id(node.id)[0] if node.op else node.id


def _part(graph: Graph, other: Graph, reached: Collection[str]) -> Graph:
    """Return some nodes of a graph with the modules around them, and those that are other modules in the other one."""
    nodes = {key: node for key, node in graph.nodes.items() if key in reached}
    around = {
        path for node in (*nodes.values(), *map(other.nodes.get, reached)) if node for path in upwards(node.scope)
    }
    others = {path for path, scope in graph.scopes.items() if _kind(scope) != _kind(other.scopes.get(path))}
    scopes = {
        path: scope
        for path, scope in graph.scopes.items()
        if not path or path in around or (others and not others.isdisjoint(upwards(path)))
    }
    return replace(graph, nodes=nodes, scopes=scopes)


def _kind(scope: Scope | None) -> tuple[str, str] | None:
    return None if scope is None else (scope.class_name, scope.detail)
