"""Find modules without a node in the graph whose parameters get no gradient."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from gradir.ir.module_tree import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gradir.ir import Graph
    from gradir.ir.module_tree import ModuleTree

__all__ = ["lost_modules"]
# More such modules in one parent are drawn as stubs of the parent.
_MOST: Final = 60
_HIDDEN: Final = "hidden"


def lost_modules(graph: Graph, tree: ModuleTree, scopes: Sequence[int], numbers: Mapping[str, int]) -> dict[str, Any]:
    """Return the places of these modules, and by cut the module whose value it keeps from a node."""
    used = {0, *_with_outer(tree, scopes, set())}
    holders: dict[str, int] = {}
    for cut in graph.cuts:
        place = tree.place(cut.scope)
        if not cut.is_place and cut.kind != _HIDDEN and place not in used:
            holders.update(dict.fromkeys(cut.names, place))
    tops = _drawn(tree, _with_outer(tree, holders.values(), used))
    lines: dict[tuple[int, int], int] = {}
    for cut in graph.cuts:
        for name in cut.names if cut.into in numbers else ():
            if (place := holders.get(name, OUTSIDE)) in tops:
                key = tops[place], numbers[cut.into]
                lines[key] = max(place, lines.get(key, 0))
    return {"scopes": [*tops], "lines": [[place, into] for (_, into), place in lines.items()]}


def _with_outer(tree: ModuleTree, places: Iterable[int], known: set[int]) -> set[int]:
    found: set[int] = set()
    for inner in places:
        place = inner
        while place != OUTSIDE and place not in found and place not in known:
            found.add(place)
            place = tree.parents[place]
    return found


def _drawn(tree: ModuleTree, found: set[int]) -> dict[int, int]:
    beside = Counter(tree.parents[place] for place in found)
    tops: dict[int, int] = {}
    # Modules stand after those that hold them.
    for place in sorted(found):
        parent = tree.parents[place]
        if beside[parent] <= _MOST and (parent in tops or parent not in found):
            tops[place] = tops.get(parent, place)
    return tops
