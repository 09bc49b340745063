"""Find the frame of each node in a picture: its module, or one call of it if they are not connected."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import accumulate
from typing import Final

from gradir.ir.edges import sources
from gradir.ir.graph import Graph
from gradir.ir.memo import Memo
from gradir.ir.model import Node

# The text between a module's path and the number of a frame, in the path of each frame but the first.
_PART: Final = "\0\0part"
_NUMBERED: Final = re.compile(f"{_PART}\\d+")

_MAX_DEPTH: Final = 32


def frames(graph: Graph, accumulators: Collection[str]) -> dict[str, str]:
    """Return the path of each node's frame that is not the first of its module.

    The frame of a module called at several places would enclose everything between, so unconnected nodes get their
    own.

    >>> from gradir.ir import Graph, Node, Ref, Scope
    >>> nodes = [Node("x"), Node("a", scope="act", inputs=(Ref("x", 0),)), Node("y", inputs=(Ref("a", 0),))]
    >>> graph = Graph.of([*nodes, Node("b", scope="act", inputs=(Ref("y", 0),))], [Scope("act", calls=2)])
    >>> [(node_id, module_of_frame(frame), frame == "act") for node_id, frame in frames(graph, ()).items()]
    [('b', 'act', False)]
    """
    parts = {path: _Parts() for path, scope in graph.scopes.items() if path and scope.calls > 1}
    if not parts:
        return {}

    def find_repeated(scope: str) -> list[str]:
        components = scope.split(".", _MAX_DEPTH)[:_MAX_DEPTH]
        return [path for path in accumulate(components, "{}.{}".format) if path in parts]

    around = Memo(find_repeated)
    shared: set[str] = set()
    inside = [node for node in graph.nodes.values() if around[node.scope]]
    for node in inside:
        feeds = sources(node)
        if node.role == "parameter" or (node.op in accumulators and shared.issuperset(feeds)):
            shared.add(node.id)
        for path in around[node.scope]:
            parts[path].add(node.id, feeds, shared)
    numbers = {path: each.number_nodes() for path, each in parts.items()}
    numbers = {path: each for path, each in numbers.items() if 1 < len({*each.values()}) <= graph.scopes[path].calls}
    return {node.id: frame for node in inside if (frame := _frame(node, numbers)) != node.scope} if numbers else {}


def module_of_frame(frame: str) -> str:
    """Return the module, or the part of one, of a frame."""
    return _NUMBERED.sub("", frame) if _PART in frame else frame


class _Parts:
    """The connected parts of the nodes of one module, by union-find."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def add(self, node_id: str, feeds: Iterable[str], shared: set[str]) -> None:
        self._above[node_id] = node_id
        for source in feeds:
            if source in self._above and (source not in shared or self._above[source] == source):
                # A shared parameter joins its first user, but must not connect its users.
                self._above[self._top(source)] = self._top(node_id)

    def number_nodes(self) -> dict[str, int]:
        numbers: dict[str, int] = {}
        return {node_id: numbers.setdefault(self._top(node_id), len(numbers)) for node_id in self._above}

    def _top(self, node_id: str) -> str:
        # Path halving makes later searches short (Tarjan and van Leeuwen, 1984).
        above = self._above
        while above[node_id] != node_id:
            above[node_id] = node_id = above[above[node_id]]
        return node_id


def _frame(node: Node, numbers: dict[str, dict[str, int]]) -> str:
    path = frame = ""
    for part in node.scope.split(".", _MAX_DEPTH) if node.scope else ():
        path, frame = (f"{path}.{part}", f"{frame}.{part}") if path else (part, part)
        number = numbers[path][node.id] if path in numbers and node.id in numbers[path] else 0
        frame += f"{_PART}{number}" if number else ""
    return frame
