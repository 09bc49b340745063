"""How much each module grew: its operations, its parameters, what it saves for backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gradir.diff.model import Growth, Size
from gradir.ir.totals import OWNERS, elements

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["growth", "sizes"]


def growth(a: Graph, b: Graph, paths: Mapping[str, str]) -> Iterator[Growth]:
    """Each module whose size differs, those of ``b`` first in the order of its nodes; ``paths`` are a's paths in b."""
    before: dict[str, Size] = {}
    was: dict[str, str] = {}
    taken = {paths.get(path, path) for path in a.scopes}
    for path, size in sizes(a).items():
        new = paths.get(path, path)
        # A module that went away does not become one that came under its path.
        new = new if path in paths or new not in taken or path not in b.scopes else f"{path}\0"
        before[new] = size
        was[new] = path
    after = sizes(b)
    for path in dict.fromkeys((*after, *before)):
        old, new_size = before.get(path, Size()), after.get(path, Size())
        if old != new_size:
            name = path.removesuffix("\0")
            yield Growth(name, old, new_size, "" if was.get(path, name) == name else was[path])


def sizes(graph: Graph) -> dict[str, Size]:
    """The size of each module without those below it; a storage counts where it was saved first.

    >>> from gradir.ir import Graph, Node
    >>> sizes(Graph.of([Node("fc/exp:1", scope="fc")]))
    {'fc': Size(nodes=1, parameters=0, saved_bytes=0)}
    """
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    storages: dict[str, int] = {}
    for node in graph.nodes.values():
        found = counts[node.scope]
        if node.role == "function":
            found[0] += 1
        elif node.role == "parameter":
            found[1] += elements(node)
        for slot in node.saved:
            key = slot.storage or f"{node.id}.{slot.slot}"
            owner = graph.nodes.get(key)
            if slot.bytes is None or (owner is not None and owner.role in OWNERS):
                continue
            found[2] += max(0, slot.bytes - storages.get(key, 0))
            storages[key] = max(storages.get(key, 0), slot.bytes)
    return {path: Size(*found) for path, found in counts.items()}
