"""The modules of a page: those of the scope table, those that only nodes name, and all that lie around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.ir import Scope
from gradir.ir.module_tree import ModuleTree, upwards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.ir import Graph

__all__ = ["whole_tree", "with_those_below"]


def whole_tree(graph: Graph) -> ModuleTree:
    """The modules, the root first and each after the one that it lies in, which is the next one up of its path.

    >>> from gradir.ir import Graph, Node
    >>> tree = whole_tree(Graph.of([Node("f:1", scope="a.b")], [Scope("c")]))
    >>> tree.names, tree.parents
    (['', 'c', 'a', 'b'], [-1, 0, 0, 2])
    """
    scopes = {"": graph.scopes.get("", Scope("")), **graph.scopes}
    named = [*[node.scope for node in graph.nodes.values()], *[cut.scope for cut in graph.cuts]]
    for path in dict.fromkeys([*graph.scopes, *named]):
        for above in upwards(path):
            if above not in scopes:
                scopes[above] = Scope(above)
            elif above != path:
                break
    return ModuleTree(scopes.values())


def with_those_below(tree: ModuleTree, own: Sequence[int]) -> list[int]:
    """What each module has by itself and all below it have, together."""
    sums = [*own]
    for place in range(len(sums) - 1, 0, -1):
        sums[tree.parents[place]] += sums[place]
    return sums
