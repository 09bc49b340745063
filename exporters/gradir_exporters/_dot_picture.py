"""What the ``dot`` exporter draws, as data: boxes in nested groups, and lines between them.

Boxes are named by position (``n0``, ``n1``, and ``n5s0`` for the first saved slot of ``n5``), so the same graph gives
the same picture everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gradir.errors import ExportError
from gradir.ir.marks import SIGNS, lost_slots, status
from gradir_exporters._dot_labels import Labels, Tooltips, scope_caption, tooltip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gradir.ir import Graph, Node, Scope

__all__ = ["Box", "Group", "Line", "Picture", "Style"]

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
        self._labels = Labels(style.attr_chars)
        self._tooltips = Tooltips(graph.nodes)
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
        keys, labels, tooltips = self._keys, self._labels, self._tooltips
        for node in group.nodes:
            key, role, label = keys[node.id], node.role, labels.node(node)
            if self._marked:
                mark = status(node)
                role = mark or _CONTEXT
                label = f"{SIGNS[mark]} {label}" if mark else label
            yield key, role, label, tooltips.node(node.id)
            if self._style.saved:
                for number, saved in enumerate(node.saved):
                    yield f"{key}s{number}", "saved", labels.saved(saved), tooltips.saved(saved.slot, node.id)

    def lines(self) -> Iterator[Line]:
        """Every line, those of the graph's edges first.

        Raises:
            ExportError: an edge comes from a node that the graph does not have.
        """
        keys, nodes = self._keys, self._graph.nodes
        clusters = self._style.clusters
        lengths = _entry_lengths(self._graph) if clusters else {}
        ragged = _saving(self._graph) if clusters and self._style.saved else {}
        for src, node, slot, kind in _edges(self._graph):
            tail = keys.get(src)
            if tail is None:
                raise ExportError(f"node {node.id!r} has an edge from {src!r}, which is not in the graph")
            by_src = lengths.get(node.id)
            length = by_src.get(src, 1) if by_src else 1
            if src in ragged and not _inside(node.scope, ragged[src]):
                length += 1  # past the saved tensors, which hang a rank below what saved them
            gone = self._marked and kind == "data" and _is_gone(nodes[src], node, slot)
            yield tail, keys[node.id], "removed" if gone else kind, length
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

    def _saved_lines(self, node: Node) -> Iterator[Line]:
        key = self._keys[node.id]
        for number, saved in enumerate(node.saved):
            yield key, f"{key}s{number}", "saved", 1
            origin = self._graph.nodes.get(saved.origin.id) if saved.origin is not None else None
            if origin is not None and origin.role == "buffer":
                yield self._keys[origin.id], f"{key}s{number}", "buffer", 1


def _edges(graph: Graph) -> Iterator[tuple[str, Node, int, str]]:
    """What `Graph.edges` has, in its order: the source's id, the consumer, its input slot, the kind.

    Plain tuples of what is at hand: an `Edge` takes several times as long to make.
    """
    for node in graph.nodes.values():
        for slot, ref in enumerate(node.inputs):
            if ref is not None:
                yield ref.id, node, slot, "data"
        if node.base is not None:
            yield node.base, node, -1, "view"


def _is_gone(tail: Node, head: Node, slot: int) -> bool:
    """Whether nothing flows there any more."""
    return "removed" in {status(tail), status(head)} or slot in lost_slots(head)


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
    rises = _rises(graph)
    numbers = {id_: number for number, id_ in enumerate(nodes)}
    first: dict[str, int] = {}
    lengths: dict[str, dict[str, int]] = {}
    for id_, rise in rises.items():
        node = nodes[id_]
        entered = first.setdefault(node.scope, numbers[id_])
        if not rise:
            continue
        by_src = {}
        for ref in node.inputs:
            if ref is None or numbers.get(ref.id, entered) >= entered:
                continue
            if not _inside(nodes[ref.id].scope, node.scope):
                by_src[ref.id] = rise + 1
        if by_src:
            lengths[id_] = by_src
    return lengths


def _rises(graph: Graph) -> dict[str, int]:
    """By node that is fed from outside its module: how many ranks above it what only the module itself feeds begins."""
    nodes = graph.nodes
    rises = _own_depths(graph)
    for id_ in reversed(rises):
        rise = rises[id_] - 1
        if rise > 0:
            node = nodes[id_]
            for ref in node.inputs:
                if ref is not None and rises.get(ref.id, rise) < rise and nodes[ref.id].scope == node.scope:
                    rises[ref.id] = rise
    return rises


def _own_depths(graph: Graph) -> dict[str, int]:
    """By node that is fed from outside its module: the ranks of the module's own nodes above it."""
    own: dict[str, tuple[str, int]] = {}  # by node that only its module feeds: the module, its distance from the top
    fed: dict[str, int] = {}
    for id_, node in graph.nodes.items():
        scope = node.scope
        if not scope:
            continue
        depth, is_fed = 0, False
        for ref in node.inputs:
            if ref is None:
                continue
            above = own.get(ref.id)
            if above is None or above[0] != scope:
                is_fed = True
            elif above[1] >= depth:
                depth = above[1] + 1
        if is_fed:
            fed[id_] = depth
        else:
            own[id_] = (scope, depth)
    return fed


def _inside(scope: str, outer: str) -> bool:
    return scope.startswith(outer) and scope[len(outer) : len(outer) + 1] in {"", "."}


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
