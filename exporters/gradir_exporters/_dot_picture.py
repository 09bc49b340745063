"""What the ``dot`` exporter draws, as data: boxes in nested groups, and lines between them.

Boxes are named by position (``n0``, ``n1``, and ``n5s0`` for the first saved slot of ``n5``), so the same graph gives
the same picture everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gradir.errors import ExportError
from gradir.ir.marks import SIGNS, lost_slots, status
from gradir_exporters._dot_labels import caption, saved_caption, scope_caption, table, tooltip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gradir.ir import Graph, Node, Scope

__all__ = ["Box", "Group", "Line", "Picture", "Style"]

_BREAK: Final = "\\n"

_CONTEXT: Final = "context"
"""What stands for the role of a node that is as it was, where others are marked."""

_LEGEND: Final = "\0legend"
"""A name that no part of a module's path has."""

_LEGEND_LABELS: Final = {
    "parameter": "parameter",
    "leaf": "leaf",
    "function": "function",
    "module": "folded module",
    "buffer": "buffer",
    "saved": "saved tensor",
    "view_base": "base of a view",
    "output": "output",
}

# dot's parser runs out of stack at about 2,500 nested clusters, other tools earlier.
_MAX_NESTING: Final = 64


class Style(NamedTuple):
    """What to draw of a graph. ``attr_chars`` is the width of attribute values; ``None`` leaves attributes out."""

    attr_chars: int | None
    saved: bool
    clusters: bool
    legend: bool = False


Box: TypeAlias = "tuple[str, str, str, str]"
"""One node to draw: its key, role, label and tooltip, the last two escaped. A plain tuple, which takes a tenth of the
time to make of a named one."""

Line: TypeAlias = "tuple[str, str, str, int]"
"""One edge to draw: the keys of its ends, its kind, the ranks it spans. A kind is ``data``, ``removed`` (data that no
longer flows), ``view``, ``saved`` or ``buffer``."""


class Group:
    """The nodes of one module, or those outside all of them for the root; ``label`` and ``tooltip`` are escaped."""

    __slots__ = ("children", "key", "label", "nodes", "tooltip")

    def __init__(self, key: str = "", label: str = "", tooltip: str = "") -> None:
        self.key = key
        self.label = label
        self.tooltip = tooltip
        self.nodes: list[Node] = []
        self.children: dict[str, Group] = {}

    def walk(self) -> Iterator[tuple[int, Group]]:
        """Every group from here inward with its depth, outer ones first."""
        stack = [(0, self)]
        while stack:
            level, group = stack.pop()
            yield level, group
            stack.extend((level + 1, child) for child in reversed(group.children.values()))


class Picture:
    """A graph as boxes in nested groups and lines. Boxes and lines are made while they are read."""

    def __init__(self, graph: Graph, style: Style) -> None:
        self._graph = graph
        self._style = style
        self._keys = {id_: f"n{number}" for number, id_ in enumerate(graph.nodes)}
        self._marked = any(map(status, graph.nodes.values()))
        hidden = frozenset[str]() if style.saved else _idle_buffers(graph)
        groups = _Groups(graph.scopes)
        for node in graph.nodes.values():
            if node.id not in hidden:
                groups[node.scope if style.clusters else ""].nodes.append(node)
        self.root = groups[""]
        self._legend = self._legend_roles() if style.legend else []
        if self._legend:
            self.root.children[_LEGEND] = Group("cluster_legend", "legend", "what the colours mean")

    def boxes(self, group: Group) -> Iterator[Box]:
        """The boxes directly in a group."""
        if group.key == "cluster_legend":
            yield from self._legend_boxes()
            return
        attr_chars = self._style.attr_chars
        for node in group.nodes:
            key = self._keys[node.id]
            lines = caption(node)
            if attr_chars is not None:
                lines.extend(table(node, attr_chars))
            role = node.role
            if self._marked:
                mark = status(node)
                role = mark or _CONTEXT
                lines[0] = f"{SIGNS[mark]} {lines[0]}" if mark else lines[0]
            yield key, role, _BREAK.join(lines), tooltip(node.id)
            if self._style.saved:
                for number, saved in enumerate(node.saved):
                    hint = tooltip(f"{saved.slot} saved by {node.id}")
                    yield f"{key}s{number}", "saved", _BREAK.join(saved_caption(saved)), hint

    def lines(self) -> Iterator[Line]:
        """Every line, those of the graph's edges first.

        Raises:
            ExportError: an edge comes from a node that the graph does not have.
        """
        keys = self._keys
        lengths = _entry_lengths(self._graph) if self._style.clusters else {}
        ragged = _saving(self._graph) if self._style.clusters and self._style.saved else {}
        for src, _, dst, slot, kind in self._graph.edges:
            tail = keys.get(src)
            if tail is None:
                raise ExportError(f"node {dst!r} has an edge from {src!r}, which is not in the graph")
            by_src = lengths.get(dst)
            length = by_src.get(src, 1) if by_src else 1
            gone = self._marked and kind == "data" and self._is_gone(src, dst, slot)
            if src in ragged and not _inside(self._graph.nodes[dst].scope, ragged[src]):
                length += 1  # past the saved tensors, which hang a rank below what saved them
            yield tail, keys[dst], "removed" if gone else kind, length
        if self._style.saved:
            for node in self._graph.nodes.values():
                yield from self._saved_lines(node)
        for number in range(1, len(self._legend)):
            yield f"legend{number - 1}", f"legend{number}", "legend", 1

    def _legend_roles(self) -> list[str]:
        """The roles that are drawn and have a colour of their own, in a fixed order."""
        if self._marked:
            return list(SIGNS)
        drawn = {node.role for group in self._groups() for node in group.nodes}
        if self._style.saved and any(node.saved for node in self._graph.nodes.values()):
            drawn.add("saved")
        return [role for role in _LEGEND_LABELS if role in drawn]

    def _groups(self) -> Iterator[Group]:
        return (group for _, group in self.root.walk())

    def _legend_boxes(self) -> Iterator[Box]:
        for number, role in enumerate(self._legend):
            label = f"{SIGNS[role]} {role}" if role in SIGNS else _LEGEND_LABELS[role]
            yield f"legend{number}", role, label, f"the colour of every {role}"

    def _is_gone(self, src: str, dst: str, slot: int) -> bool:
        """Whether nothing flows there any more."""
        tail, head = self._graph.nodes[src], self._graph.nodes[dst]
        return "removed" in {status(tail), status(head)} or slot in lost_slots(head)

    def _saved_lines(self, node: Node) -> Iterator[Line]:
        key = self._keys[node.id]
        for number, saved in enumerate(node.saved):
            yield key, f"{key}s{number}", "saved", 1
            origin = self._graph.nodes.get(saved.origin.id) if saved.origin is not None else None
            if origin is not None and origin.role == "buffer":
                yield self._keys[origin.id], f"{key}s{number}", "buffer", 1


def _idle_buffers(graph: Graph) -> frozenset[str]:
    """The buffers that no edge touches: all they do is tell what a saved tensor is."""
    buffers = {node.id for node in graph.nodes.values() if node.role == "buffer"}
    if buffers:
        for edge in graph.edges:
            buffers.discard(edge.src)
            buffers.discard(edge.dst)
    return frozenset(buffers)


def _saving(graph: Graph) -> dict[str, str]:
    """The nodes of a module that save a tensor, with the module."""
    return {id_: node.scope for id_, node in graph.nodes.items() if node.saved and node.scope}


def _entry_lengths(graph: Graph) -> dict[str, dict[str, int]]:
    """How long to draw the edges that first enter a module where it has parameters of its own: by dst, then src.

    dot frames modules side by side as soon as they share a rank, and they do when the parameters of one rise above the
    end of the module before it. A longer edge at the entry keeps them below, so that modules stand in a column.
    """
    nodes = graph.nodes
    numbers = {id_: number for number, id_ in enumerate(nodes)}
    rises = _rises(graph)
    first: dict[str, int] = {}
    lengths: dict[str, dict[str, int]] = {}
    for id_, rise in rises.items():
        node = nodes[id_]
        entered = first.setdefault(node.scope, numbers[id_])
        if rise:
            early = (ref.id for ref in node.inputs if ref is not None and numbers.get(ref.id, entered) < entered)
            lengths[id_] = {src: rise + 1 for src in early if not _inside(nodes[src].scope, node.scope)}
    return lengths


def _rises(graph: Graph) -> dict[str, int]:
    """By node that is fed from outside its module: how many ranks above it what only the module itself feeds begins."""
    own: dict[str, int] = {}  # by node that only its module feeds: its distance from the top
    rises: dict[str, int] = {}
    for id_, node in graph.nodes.items():
        if node.scope:
            depth, fed = _own_depth(node, graph, own)
            (rises if fed else own)[id_] = depth
    for id_ in reversed(rises):
        rise = rises[id_] - 1
        if rise > 0:
            node = graph.nodes[id_]
            for ref in node.inputs:
                if ref is not None and rises.get(ref.id, rise) < rise and graph.nodes[ref.id].scope == node.scope:
                    rises[ref.id] = rise
    return rises


def _own_depth(node: Node, graph: Graph, own: Mapping[str, int]) -> tuple[int, bool]:
    """The ranks of its module's own nodes above a node, and whether anything else feeds it."""
    depth, fed = 0, False
    for ref in node.inputs:
        if ref is None:
            continue
        above = own.get(ref.id)
        if above is None or graph.nodes[ref.id].scope != node.scope:
            fed = True
        elif above >= depth:
            depth = above + 1
    return depth, fed


def _inside(scope: str, outer: str) -> bool:
    return scope == outer or scope.startswith(f"{outer}.")


class _Groups(dict[str, Group]):
    """Nested groups by dotted module path, each made when first asked for.

    Below the deepest nesting drawn, the rest of a path is one part.
    """

    def __init__(self, scopes: Mapping[str, Scope]) -> None:
        super().__init__({"": Group()})
        self._scopes = scopes
        self._count = 0

    def __missing__(self, scope: str) -> Group:
        root = group = self[""]
        path = ""
        for part in scope.split(".", _MAX_NESTING - 1):
            path = part if group is root else f"{path}.{part}"
            child = group.children.get(part)
            if child is None:
                child = group.children[part] = self._new(path, part)
            group = child
        self[scope] = group
        return group

    def _new(self, path: str, part: str) -> Group:
        known = self._scopes.get(path)
        key = f"cluster_{self._count}"
        self._count += 1
        return Group(key, scope_caption(part, known.class_name if known else ""), tooltip(path))
