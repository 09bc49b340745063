"""The picture of ``dot`` as data: boxes in nested groups, and lines between them.

Boxes are named by position (``n0``, and ``n5s0`` for a saved slot of ``n5``), so equal graphs give equal pictures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from gradir.ir import Graph, Node, Scope
from gradir.ir.edges import EdgeColumns
from gradir.ir.frames import frames, module_of_frame
from gradir.ir.marks import is_lost, left_out, stands_for_several
from gradir.ir.memo import Memo
from gradir.ir.model import NO_GRADIENT_ROLES as BESIDE_ROLES
from gradir.ir.module_tree import split_path
from gradir.progress import steps
from gradir.vocabulary import vocabulary_of
from gradir_exporters._box_looks import MORE, Drawing, PictureOptions, wrap_text
from gradir_exporters._box_words import CUT, border, frame_name
from gradir_exporters._dot_labels import LINE_BREAK, Labels, display_text, tooltip

# The weights that make dot draw a line short and straight: NEAR within a frame or into the next one, else FAR.
# OF_MANY is for one of many lines at a box, so that its consumers need not stand in one row.
NEAR: Final = 8
FAR: Final = 1
OF_MANY: Final = 0
# The kind of a thin data line, one of many at a box, whose arrow heads would merge into a black bar.
MANY: Final = "many"
_MANY: Final = 8
_MOST_CUTS: Final = 100
# dot's parser runs out of stack at about 2,500 nested clusters, other tools earlier.
_MAX_NESTING: Final = 64


class DotOptions(PictureOptions, frozen=True, kw_only=True):
    """The options of the ``dot`` exporter."""

    show_attrs: Annotated[bool, msgspec.Meta(description="list each function's attributes in its box")] = False
    max_attr_chars: Annotated[
        int, msgspec.Meta(ge=3, le=2000, description="cut the values of attributes to this many characters")
    ] = 50
    clusters: Annotated[bool, msgspec.Meta(description="draw a frame around the boxes of each module")] = True
    theme: Annotated[
        Literal["light", "dark", "paper", "classic"],
        msgspec.Meta(description="the look: paper is black on white for print, classic that of gradir.make_dot"),
    ] = "light"
    caption: Annotated[str, msgspec.Meta(description="a line of text below the picture")] = ""


# The ranks that edges span, by their head and then their tail; an edge that is not listed spans one.
Lengths: TypeAlias = "dict[int, dict[int, int]]"
# Replaces the depth of a node that has an input from outside its module, or is in none.
_FED: Final = -1
# A node to draw: key, role, escaped label and tooltip. A plain tuple is ten times faster than a named one.
Box: TypeAlias = "tuple[str, str, str, str]"
# A line to draw: the keys of its ends, its kind, the ranks that it spans, its text, and its weight. The text is the
# number of edges (``×3``), or the tensor of a single one. A kind is ``data``, ``removed`` (data that no longer flows),
# MANY, ``view``, ``inplace``, ``saved`` or ``buffer``.
Line: TypeAlias = "tuple[str, str, str, int, str, int]"


class Group(msgspec.Struct, eq=False):
    """One module, or the outside of all; ``label`` and ``tooltip`` are escaped."""

    key: str = ""
    label: str = ""
    tooltip: str = ""
    members: list[int] = []
    children: dict[str, Group] = {}

    def walk(self) -> Iterator[tuple[int, Group]]:
        """Yield every group from here inward with its depth."""
        stack = [(0, self)]
        while stack:
            level, group = stack.pop()
            yield level, group
            stack.extend((level + 1, child) for child in reversed(group.children.values()))


class Picture(Drawing):
    """A graph as boxes in nested groups and lines, both generated lazily."""

    def __init__(self, graph: Graph, options: DotOptions) -> None:
        super().__init__(graph, options, _MOST_CUTS)
        graph = self._graph
        self._framed = options.clusters
        self._nodes = list(graph.nodes.values())
        self.count = len(self._nodes)
        self._keys = [f"n{number}" for number in range(len(graph.nodes))]
        self._key_of = dict(zip(graph.nodes, self._keys, strict=True))
        self._edges = EdgeColumns(self._nodes)
        self._kind_names = [*self._edges.kinds]
        self._tails = [self._edges.sources(number) for number in range(len(self._nodes))]
        self._other_kinds = {head for head, kind in zip(self._edges.target, self._edges.kind, strict=True) if kind}
        self._several = {
            number
            for number, node in enumerate(self._nodes)
            if (node.ext or node.role == "module") and stands_for_several(node)
        }
        self._labels = Labels(self._words, options.max_attr_chars if options.show_attrs else None)
        hidden = frozenset[int]() if options.show_saved else self._idle_buffers()
        moved = frames(graph, vocabulary_of(graph).accumulators) if self._framed else {}
        self._frames = [moved.get(node.id, node.scope) if self._framed else "" for node in self._nodes]
        groups = _Groups(graph.scopes)
        for number, frame in enumerate(self._frames):
            if not hidden or number not in hidden:
                groups[frame].members.append(number)
        self.root = groups[""]
        drawn = [self._nodes[member] for _, group in self.root.walk() for member in group.members]
        lines = (("data" if kind == MANY else kind, text[:1] == "×") for _, _, kind, _, text, _ in self.lines())
        self.legend = self._make_legend(drawn, lines, framed=self._framed) if drawn else None

    def boxes(self, group: Group) -> Iterator[Box]:
        """Yield the boxes directly in a group."""
        nodes, keys, labels = self._nodes, self._keys, self._labels
        marked, slots, overlay = self._is_marked, self._options.show_saved, self._overlay
        for member in group.members:
            node, key = nodes[member], keys[member]
            role, label = node.role, labels.node(node)
            if node.ext or overlay or marked:
                role, label = self._look(node, label)
            yield key, role, label, tooltip(node.id)
            if node.ext and not marked:
                for more, text, _ in self._omissions(key, left_out(node)):
                    yield more, MORE, text, text
            if slots and node.saved:
                for number, saved in enumerate(node.saved):
                    text = labels.saved[saved.slot, saved.tensor, saved.state]
                    yield f"{key}s{number}", "saved", text, tooltip(f"{saved.slot} saved by {node.id}")
        if group is self.root:
            for number, stub in enumerate(self._stubs):
                text = LINE_BREAK.join(map(display_text, wrap_text(stub.reason)))
                yield f"cut{number}", CUT, text, tooltip(stub.reason)

    def _look(self, node: Node, label: str) -> tuple[str, str]:
        before, below = self._texts_around(node)
        text = LINE_BREAK.join([f"{before}{label}", *map(display_text, below)])
        return self._role(node) + border(node, self._is_marked), text

    def lines(self) -> Iterator[Line]:
        """Yield every line, those of the graph's edges first."""
        # A diff always shows only a part.
        parts = () if self._is_marked else zip(self._keys, self._nodes, strict=True)
        more = (ends for key, node in parts if node.ext for *_, ends in self._omissions(key, left_out(node)))
        into, beside = self._cut_lines(self._key_of, "cut")
        others = chain(self._lines_to_saved(self._nodes, self._key_of), beside, into, more)
        return chain(self._edge_lines(), ((*ends, 1, "", FAR) for ends in others))

    def _edge_lines(self) -> Iterator[Line]:
        lengths: Lengths = {}
        if self._framed:
            lengths = entry_lengths(self._nodes, self._tails)
            if self._options.show_saved:
                lengths = lengthen_past_saved(lengths, self._nodes, self._tails)
        keys = self._keys
        marked, several, scopes, on_lines = self._is_marked, self._several, self._frames, self._words.on_lines
        nearness, nothing = Memo(_nearness), dict[int, int]()
        fans = {tail for tail, number in Counter(chain.from_iterable(self._tails)).items() if number >= _MANY}
        for head, (key, tails) in enumerate(zip(keys, steps("writing lines", self._tails), strict=True)):
            by_tail, scope = lengths.get(head, nothing), scopes[head]
            is_busy = len(tails) >= _MANY or (fans and not fans.isdisjoint(tails))
            has_several = several and (head in several or not several.isdisjoint(tails))
            if marked or is_busy or has_several or on_lines or head in self._other_kinds:
                # Edges between the same boxes are one line if a box represents several nodes.
                drawn: dict[tuple[int, str, int], list[int]] = {}
                for slot, (tail, kind) in enumerate(zip(tails, self._kinds(head), strict=True)):
                    line = (tail, kind, -1 if head in several or tail in several else slot)
                    drawn.setdefault(line, []).append(self._edges.first[head] + slot)
                for (tail, kind, _), edges in drawn.items():
                    is_of_many = len(drawn) >= _MANY or tail in fans
                    near = nearness[scopes[tail], scope, is_of_many]
                    thin = MANY if is_of_many and kind == "data" and len(edges) == 1 else kind
                    text = f"×{len(edges)}" if len(edges) > 1 else ""
                    if on_lines and not text and thin == "data":
                        text = display_text(self._words.on_line(self._nodes[tail], self._edges.output[edges[0]]))
                    yield keys[tail], key, thin, by_tail.get(tail, 1), text, near
            else:
                within = NEAR if scope else FAR
                for tail in tails:
                    near = within if scopes[tail] == scope else nearness[scopes[tail], scope, False]
                    yield keys[tail], key, "data", by_tail.get(tail, 1) if by_tail else 1, "", near

    def _kinds(self, head: int) -> Iterator[str]:
        edges, nodes, names = self._edges, self._nodes, self._kind_names
        for edge in range(edges.first[head], edges.first[head + 1]):
            marked = self._is_marked and edges.slot[edge] >= 0
            removed = marked and is_lost(nodes[edges.source[edge]], nodes[head], edges.slot[edge])
            yield "removed" if removed else names[edges.kind[edge]]

    def _idle_buffers(self) -> frozenset[int]:
        """Return the buffers without an edge, which only saved slots refer to."""
        alone = {
            number for number, node in enumerate(self._nodes) if node.role in BESIDE_ROLES and not self._tails[number]
        }
        return frozenset(alone.difference(chain.from_iterable(self._tails)) if alone else ())


def _nearness(ends: tuple[str, str, bool]) -> int:
    one, other, is_of_many = ends
    shared = {one, split_path(one)[0]} & {other, split_path(other)[0]}
    return NEAR if shared - {""} else OF_MANY if is_of_many else FAR


class _Groups(dict[str, Group]):
    """Nested groups by the dotted paths of frames, each created on first access."""

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
                module = module_of_frame(path)
                caption = display_text(frame_name(module_of_frame(part), self._scopes.get(module)))
                child = group.children[part] = Group(f"cluster_{self._count}", caption, tooltip(module))
                self._count += 1
            group = child
        self[scope] = group
        return group


def entry_lengths(nodes: Sequence[Node], tails: Sequence[Sequence[int]]) -> Lengths:
    """Return the lengths of the edges that first enter a module with its own parameters.

    dot frames modules side by side as soon as they share a rank. A longer edge at the entry keeps the parameters
    below the module before, so that modules stand in a column.
    """
    scopes = [node.scope for node in nodes]
    rises = _rises(scopes, tails)
    first: dict[str, int] = {}
    lengths: Lengths = {}
    for head, rise in rises.items():
        scope = scopes[head]
        entered = first.setdefault(scope, head)
        if rise:
            by_tail = {tail: rise + 1 for tail in tails[head] if tail < entered and not _inside(scopes[tail], scope)}
            if by_tail:
                lengths[head] = by_tail
    return lengths


def lengthen_past_saved(lengths: Lengths, nodes: Sequence[Node], tails: Sequence[Sequence[int]]) -> Lengths:
    """Return the lengths with one more rank for edges that leave a module past its saved tensors."""
    scopes = [node.scope if node.saved else "" for node in nodes]
    longer = dict(lengths)
    for head, node in enumerate(nodes):
        scope = node.scope
        for tail in tails[head]:
            saver = scopes[tail]
            if saver and saver != scope and not _inside(scope, saver):
                usual = lengths.get(head, {})
                longer[head] = {**longer.get(head, usual), tail: usual.get(tail, 1) + 1}
    return longer


def _rises(scopes: Sequence[str], tails: Sequence[Sequence[int]]) -> dict[int, int]:
    rises = _own_depths(scopes, tails)
    for head in reversed(rises):
        rise = rises[head] - 1
        if rise > 0:
            for tail in tails[head]:
                if rises.get(tail, rise) < rise and scopes[tail] == scopes[head]:
                    rises[tail] = rise
    return rises


def _own_depths(scopes: Sequence[str], tails: Sequence[Sequence[int]]) -> dict[int, int]:
    own = [_FED] * len(scopes)  # of a node that only its module feeds: its distance from the top
    fed: dict[int, int] = {}
    for head, scope in enumerate(scopes):
        if not scope:
            continue
        depth, is_fed = 0, False
        for tail in tails[head]:
            above = own[tail]
            if above == _FED or scopes[tail] != scope:
                is_fed = True
            elif above >= depth:
                depth = above + 1
        if is_fed:
            fed[head] = depth
        else:
            own[head] = depth
    return fed


def _inside(scope: str, outer: str) -> bool:
    return scope.startswith(outer) and scope[len(outer) : len(outer) + 1] in {"", "."}
