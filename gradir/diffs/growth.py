"""How much each module grew: its operations, its parameters, what it saves for backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from gradir.diffs.changes import Growth, Size
from gradir.ir.merged import bytes_told
from gradir.ir.module_tree import OUTSIDE, ModuleTree
from gradir.ir.saved import SavedBytes
from gradir.ir.totals import bounded, parameter_elements

if TYPE_CHECKING:
    from gradir.ir import Graph, Scope

COUNTS: Final = ("total", "trainable")
"""The fields of a scope that count what is below it too."""


def counts_apart(scopes: Mapping[str, Scope]) -> dict[str, dict[str, int]]:
    """Return by path the `COUNTS` of a module without its own and those of the modules right below it."""
    tree = ModuleTree(scopes.values())
    found = {scope.path: {count: getattr(scope, count) - scope.own for count in COUNTS} for scope in tree.scopes}
    for scope, above in zip(tree.scopes, tree.parents, strict=True):
        for count in COUNTS if above != OUTSIDE else ():
            found[tree.scopes[above].path][count] -= getattr(scope, count)
    return found


def growth(a: Graph, b: Graph, paths: Mapping[str, str]) -> Iterator[Growth]:
    """Yield each module whose size differs, in the order of the nodes; ``paths`` are those of ``a`` in ``b``."""
    before, after = sizes(a), sizes(b)
    # Where there is no table of modules, equal paths are one module.
    kept = {path: paths.get(path, path) for path in before if path in paths or path not in a.scopes}
    was = {new: path for path, new in kept.items()}
    for path, size in after.items():
        old = before.get(was.get(path, ""), Size()) if path in was else Size()
        if old != size:
            yield Growth(path, old, size, "" if was.get(path, path) == path else was[path])
    for path, size in before.items():
        if path not in kept:
            yield Growth(path, size, Size(), gone=True)
        elif kept[path] not in after:
            yield Growth(kept[path], size, Size(), "" if kept[path] == path else path)


def sizes(graph: Graph) -> dict[str, Size]:
    """Return the size of each module without those below it.

    A storage counts where it was saved first, and the content of a folded module where that stands.
    """
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    saved: SavedBytes[str] = SavedBytes(graph.nodes)
    for node in graph.nodes.values():
        found = counts[node.scope]
        if node.role == "function":
            found[0] += 1
        elif node.role != "output":
            found[1] += parameter_elements(node)
        if node.ext or node.role == "module":
            found[2] += bytes_told(node)
        if node.saved:
            saved.add(node, node.scope)
    for path, size in saved.by_account().items():
        counts[path][2] += size
    return {path: Size(*map(bounded, found)) for path, found in counts.items()}
