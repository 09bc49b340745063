"""The parts of two graphs that differ, with what is near them; all other nodes are equal and keep their ids."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gradir.ir.edges import sources
from gradir.ir.ids import split_id, split_last
from gradir.ir.module_tree import upwards

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from gradir.ir import Graph, Node

# Smaller graphs are matched as a whole.
_SMALL: Final = 2_000
# So are graphs of which more than one node in so many differs or is near one that does.
_SHARE: Final = 4
# What is near a node with more consumers than this is near nothing else.
_HUB: Final = 8


def differing_parts(a: Graph, b: Graph) -> tuple[Graph, Graph] | None:
    """Return the nodes that differ, those in their modules and two edges around.

    It is ``None`` if these are many, or if entries of lists came or went: the others may have moved up, though equal.
    """
    if min(len(a.nodes), len(b.nodes)) < _SMALL:
        return None
    there = b.nodes.get
    settled = {key for key, node in a.nodes.items() if node == there(key)}
    edited = (a.nodes.keys() | b.nodes.keys()) - settled
    most = len(a.nodes) // _SHARE
    if len(edited) > most or not _have_the_same_entries(a, b):
        return None
    near = _with_near_ones(a, b, edited)
    if len(near) > most:
        return None
    kinds = [{path: (scope.class_name, scope.detail) for path, scope in graph.scopes.items()} for graph in (a, b)]
    others = {path for path, _ in kinds[0].items() ^ kinds[1].items()}
    around = {path for scope in _scopes(a, b, near) for path in upwards(scope)}

    def part(graph: Graph) -> Graph:
        nodes = {key: node for key, node in graph.nodes.items() if key in near}
        scopes = {
            path: scope
            for path, scope in graph.scopes.items()
            if not path or path in around or (others and not others.isdisjoint(upwards(path)))
        }
        return replace(graph, nodes=nodes, scopes=scopes)

    return part(a), part(b)


def _with_near_ones(a: Graph, b: Graph, edited: Set[str]) -> set[str]:
    """Return nodes with those in their modules and two edges around; a hub that is near one has no neighbours."""
    users: defaultdict[str, list[str]] = defaultdict(list)
    for node in (*a.nodes.values(), *(node for key in edited if (node := b.nodes.get(key)))):
        for key in named_ids(node):
            users[key].append(node.id)
    scopes = _scopes(a, b, edited)
    found = {*edited, *(key for key, node in a.nodes.items() if node.scope in scopes)}
    for are_edited in (True, False):
        for key in [*found]:
            if are_edited or len(users[key]) <= _HUB:
                found.update(users[key])
                found.update(*(named_ids(node) for graph in (a, b) if (node := graph.nodes.get(key))))
    return found


def _scopes(a: Graph, b: Graph, keys: Iterable[str]) -> set[str]:
    return {node.scope for key in keys for graph in (a, b) if (node := graph.nodes.get(key))}


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
