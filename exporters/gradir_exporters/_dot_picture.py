"""What the ``dot`` exporter draws, as data: boxes in nested groups, and lines between them.

Boxes are named by position (``n0``, ``n1``, and ``n5s0`` for the first saved slot of ``n5``), so the same graph gives
the same picture everywhere.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gradir.errors import ExportError
from gradir.ir.edges import DATA, edges_into, sources
from gradir.ir.marks import SIGNS, lost_slots, status
from gradir_exporters._dot_labels import Labels, Tooltips, scope_caption, tooltip
from gradir_exporters._dot_legend import CONTEXT, Legend
from gradir_exporters._dot_lengths import entry_lengths, past_saved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gradir.ir import Graph, Node, Scope
    from gradir_exporters._dot_lengths import Lengths

__all__ = ["Box", "Group", "Line", "Picture", "Style"]

_LEGEND: Final = "\0legend"
"""A name that no part of a module's path has."""

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
    """One module, or what is outside all of them for the root; ``label`` and ``tooltip`` are escaped.

    ``members`` has the numbers of the nodes directly in it.
    """

    __slots__ = ("children", "key", "label", "members", "tooltip")

    def __init__(self, key: str = "", label: str = "", tooltip: str = "") -> None:
        self.key = key
        self.label = label
        self.tooltip = tooltip
        self.members: list[int] = []
        self.children: dict[str, Group] = {}

    def walk(self) -> Iterator[tuple[int, Group]]:
        """Every group from here inward with its depth, outer ones first."""
        stack = [(0, self)]
        while stack:
            level, group = stack.pop()
            yield level, group
            stack.extend((level + 1, child) for child in reversed(group.children.values()))


class Picture:
    """A graph as boxes in nested groups and lines. Boxes and lines are made while they are read.

    Nodes are known by their number, in the order of the graph: looking ids up would take longer than all the rest.
    """

    def __init__(self, graph: Graph, style: Style) -> None:
        """Look at a graph.

        Raises:
            ExportError: an edge comes from a node that the graph does not have.
        """
        self._graph = graph
        self._style = style
        self._nodes = list(graph.nodes.values())
        self._keys = [f"n{number}" for number in range(len(graph.nodes))]
        self._tails, self._other_kinds = _tails(graph.nodes)
        self._labels = Labels(style.attr_chars)
        self._tooltips = Tooltips(graph.nodes)
        self._marked = any(map(status, self._nodes))
        hidden = frozenset[int]() if style.saved else self._idle_buffers()
        groups = _Groups(graph.scopes)
        for number, node in enumerate(self._nodes):
            if not hidden or number not in hidden:
                groups[node.scope if style.clusters else ""].members.append(number)
        self.root = groups[""]
        self._legend = (
            Legend.of(self._roles(), {kind for _, _, kind, _ in self._drawn_lines()}) if style.legend else None
        )
        if self._legend is not None and self._legend.boxes:
            self.root.children[_LEGEND] = Group("cluster_legend", "legend", "what the colours mean")

    def boxes(self, group: Group) -> Iterator[Box]:
        """The boxes directly in a group."""
        if group.key == "cluster_legend":
            yield from self._legend.boxes if self._legend else ()
            return
        nodes, keys, labels, tooltips = self._nodes, self._keys, self._labels, self._tooltips
        marked, slots = self._marked, self._style.saved
        for member in group.members:
            node, key = nodes[member], keys[member]
            role, label = node.role, labels.node(node)
            if marked:
                mark = status(node)
                role = mark or CONTEXT
                label = f"{SIGNS[mark]} {label}" if mark else label
            yield key, role, label, tooltips.node(node.id)
            if slots and node.saved:
                for number, saved in enumerate(node.saved):
                    text = labels.saved[saved.slot, saved.shape, saved.state]
                    yield f"{key}s{number}", "saved", text, tooltips.saved(saved.slot, node.id)

    def lines(self) -> Iterator[Line]:
        """Every line, those of the graph's edges first."""
        return chain(self._drawn_lines(), self._legend.lines if self._legend else ())

    def _drawn_lines(self) -> Iterator[Line]:
        return chain(self._edge_lines(), self._saved_lines() if self._style.saved else ())

    def _edge_lines(self) -> Iterator[Line]:
        keys, lengths = self._keys, self._lengths()
        nodes, marked = self._nodes, self._marked
        for head, (key, tails) in enumerate(zip(keys, self._tails, strict=True)):
            node, by_tail = nodes[head], lengths.get(head)
            if marked or head in self._other_kinds:
                for tail, kind in zip(tails, self._kinds(node), strict=True):
                    yield keys[tail], key, kind, by_tail.get(tail, 1) if by_tail else 1
            elif by_tail:
                for tail in tails:
                    yield keys[tail], key, "data", by_tail.get(tail, 1)
            else:
                for tail in tails:
                    yield keys[tail], key, "data", 1

    def _roles(self) -> set[str]:
        """The roles of the boxes that are drawn."""
        members = chain.from_iterable(group.members for _, group in self.root.walk())
        nodes = [self._nodes[member] for member in members]
        roles = {status(node) or CONTEXT for node in nodes} if self._marked else {node.role for node in nodes}
        return roles | {"saved"} if self._style.saved and any(node.saved for node in nodes) else roles

    def _lengths(self) -> Lengths:
        if not self._style.clusters:
            return {}
        lengths = entry_lengths(self._nodes, self._tails)
        return past_saved(lengths, self._nodes, self._tails) if self._style.saved else lengths

    def _kinds(self, node: Node) -> Iterator[str]:
        """The kind of each edge into a node, as ``_tails`` has their tails."""
        for edge in edges_into(node):
            marked = self._marked and edge.kind == DATA
            gone = marked and _is_gone(self._graph.nodes[edge.src], node, edge.input_nr)
            yield "removed" if gone else edge.kind

    def _idle_buffers(self) -> frozenset[int]:
        """The buffers that no edge touches: all they do is tell what a saved tensor is."""
        alone = {number for number, node in enumerate(self._nodes) if node.role == "buffer" and not self._tails[number]}
        return frozenset(alone.difference(chain.from_iterable(self._tails)) if alone else ())

    def _saved_lines(self) -> Iterator[Line]:
        buffers = {node.id: key for key, node in zip(self._keys, self._nodes, strict=True) if node.role == "buffer"}
        for key, node in zip(self._keys, self._nodes, strict=True):
            if not node.saved:
                continue
            for number, saved in enumerate(node.saved):
                box = f"{key}s{number}"
                yield key, box, "saved", 1
                if buffers and saved.origin is not None and saved.origin.id in buffers:
                    yield buffers[saved.origin.id], box, "buffer", 1


def _tails(nodes: Mapping[str, Node]) -> tuple[list[Sequence[int]], set[int]]:
    """The numbers of the nodes that each node has edges from, and the nodes with edges of other kinds than data."""
    numbers = dict(zip(nodes, range(len(nodes)), strict=True))
    found: list[Sequence[int]] = []
    others: set[int] = set()
    for number, node in enumerate(nodes.values()):
        try:
            tails = [numbers[src] for src in sources(node)]
        except KeyError as error:
            src = error.args[0]
            raise ExportError(f"node {node.id!r} has an edge from {src!r}, which is not in the graph") from None
        found.append(tails)
        if len(tails) != len(node.inputs) - node.inputs.count(None):
            others.add(number)
    return found, others


def _is_gone(tail: Node, head: Node, slot: int) -> bool:
    """Whether nothing flows there any more."""
    return "removed" in {status(tail), status(head)} or slot in lost_slots(head)


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
