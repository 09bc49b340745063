"""The picture of ``mermaid`` as data, boxes in nested groups and arrows between them, and its escaping of text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, starmap
from typing import Annotated, NamedTuple

import msgspec

from gradir.ir import Graph, Node, Scope
from gradir.ir.edges import sources
from gradir.ir.frames import frames, module_of_frame
from gradir.ir.marks import graph_kind, is_lost, left_out, stands_for_several
from gradir.ir.model import NO_GRADIENT_ROLES as BESIDE_ROLES
from gradir.ir.text import escape_unprintable, pluralize
from gradir.vocabulary import vocabulary_of
from gradir_exporters._box_looks import BESIDE, MORE, Drawing, PictureOptions, arrange_in_rows, wrap_text
from gradir_exporters._box_words import CUT, FAILED, FOCUSED, border, frame_name, keeps_frame

# One huge name would use up all the text that a picture may have.
_MAX_LINE_CHARS = 120
_MAX_LINES = 20

_VANISHING_SPACE = re.compile(r"^ | $|(?<= ) ")

# Mermaid uses these characters for entities, and would read them in a label as entities.
_PLACEHOLDER = re.compile("ﬂ(?=°)|¶(?=ß)")

# Tried on 9,042 labels, parsed and drawn in Chromium, with Mermaid 11.4, 11.12, 11.13, 11.17 and 12.3.
_SYNTAX = re.compile(
    r"""
      ^(?P<number>[0-9]+)[.)](?=[ ]|$)      # an item of a numbered list,
    | ^[-+]                                 # of another list, or an underline
    | (?<=\])\(                             # a link
    | (?<=www)\.                            # an address
    | (?<![a-z0-9])_ | _(?![a-z0-9])        # emphasis
    | [^a-z0-9 ,.()\[\]{}/'!?^_+\-\x80-\U0010ffff]
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


def escape_label(text: str) -> str:
    """Return a label between the quotes of a Mermaid node or subgraph.

    Characters that Mermaid, its Markdown or HTML may read as syntax become ``#NN;``. A line break stays: where a
    label has a ``<br/>``, Mermaid up to 11.12 undoes every ``#NN;`` before it reads Markdown.
    """
    lines = shorten_text(text).split("\n")
    return "\n".join(_SYNTAX.sub(lambda found: f"{found['number'] or ''}#{ord(found[0][-1])};", line) for line in lines)


def join_lines(lines: Iterable[str]) -> str:
    """Join lines; a line break inside one is spelled out."""
    return "\n".join(map(escape_unprintable, lines))


def shorten_text(text: str) -> str:
    """Return the text to read, shortened, with unprintable characters spelled out."""
    lines = text.split("\n", _MAX_LINES)
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES - 1 :] = ["…"]
    return "\n".join(map(_shorten_line, lines))


def _shorten_line(line: str) -> str:
    cut = line if len(line) <= _MAX_LINE_CHARS else line[: _MAX_LINE_CHARS - 1] + "…"
    seen = "".join(char if char.isprintable() else _spell_out(char) for char in cut)
    seen = _PLACEHOLDER.sub(lambda mark: _spell_out(mark[0]), seen)
    return _VANISHING_SPACE.sub("␣", seen) or "(empty)"


def _spell_out(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


# Mermaid lays out 60 levels; a deeper module shows the rest of its path in one frame.
_MAX_NESTING = 32
_MOST_CUTS = 50
# No module has this path.
_LEGEND = "\0legend"
_LEGEND_COLUMNS = 4
# The role of a legend's box that explains a line.
LINE = "line"

# The lines in a legend; any other kind looks like data.
_LINE_SIGNS = {
    "removed": "· · ▶",
    "view": "· · ▶",
    "inplace": "━━▶",
    "saved": "· · ·",
    "buffer": "· · ·",
    CUT: "· · ✕",
}

_NOUNS = {
    "function": ("function", "functions"),
    "module": ("folded module", "folded modules"),
    "parameter": ("parameter", "parameters"),
    "leaf": ("leaf", "leaves"),
    "input": ("input", "inputs"),
    "buffer": ("buffer", "buffers"),
    "saved": ("saved tensor", "saved tensors"),
    "view_base": ("view base", "view bases"),
    "output": ("output", "outputs"),
    "": ("other node", "other nodes"),
    "cut": ("place where gradients end", "places where gradients end"),
    "unreached": ("box of parameters not in the graph", "boxes of parameters not in the graph"),
}


class MermaidOptions(PictureOptions, frozen=True, kw_only=True):
    """The options of the ``mermaid`` exporter."""

    depth: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="fold every module below this depth into one box, as --depth does"),
    ] = None
    caption: Annotated[str, msgspec.Meta(description="a line of text above the picture")] = ""
    accumulators: Annotated[bool, msgspec.Meta(description="draw the nodes that accumulate gradients")] = False


class Box(NamedTuple):
    """One node to draw, with its text before escaping."""

    key: str
    role: str
    text: str
    border: str = ""


class Arrow(NamedTuple):
    """One arrow between two boxes, for ``times`` edges, with the text of its tensor if arrows show it."""

    tail: str
    head: str
    kind: str
    times: int = 1
    tensor: str = ""


class Group(msgspec.Struct, eq=False):
    """The boxes of one module, and the modules inside it, in the order of the flow."""

    part: str = ""
    path: str = ""
    items: list[Box | Group] = []
    children: dict[str, Group] = {}
    key: str = ""
    text: str = ""

    def close(self, key: str, scopes: Mapping[str, Scope]) -> None:
        """Name the group, and merge it with its only module, except a frame of equal steps."""
        while (
            len(self.items) == 1
            and isinstance(inner := self.items[0], Group)
            and not keeps_frame(scopes.get(self.path))
        ):
            self.part, self.path, self.items = f"{self.part}.{inner.part}", inner.path, inner.items
        name = frame_name(module_of_frame(self.part), scopes.get(module_of_frame(self.path)))
        self.key, self.text = key, join_lines([name])


class Picture(Drawing):
    """A graph as boxes and arrows; a gradient accumulator and its tensor are one box by default."""

    def __init__(self, graph: Graph, options: MermaidOptions) -> None:
        super().__init__(graph, options, _MOST_CUTS)
        graph = self._graph
        tensors = {} if options.accumulators else _find_accumulated(graph)
        ends = {id_ for edge in graph.edges for id_ in (edge.src, edge.dst)}
        if options.show_saved:
            slots = chain.from_iterable(node.saved for node in graph.nodes.values())
            ends.update(slot.origin.id for slot in slots if slot.origin is not None)
        # Only buffers with an edge are drawn.
        connected = {tensors.get(id_, id_) for id_ in ends}
        drawn = (node for node in graph.nodes.values() if node.id not in tensors)
        self._nodes = [node for node in drawn if node.role not in BESIDE_ROLES or node.id in connected]
        self._keys = {node.id: f"n{number}" for number, node in enumerate(self._nodes)}
        self._keys |= {id_: self._keys[tensor] for id_, tensor in tensors.items() if tensor in self._keys}
        self._tensors = tensors
        # The numbers of omitted nodes before and behind a box.
        self._left_out: dict[str, tuple[int, int]] = {}
        for node in graph.nodes.values() if not self._is_marked else ():
            if any(cut := left_out(node)) and (key := self._keys.get(node.id)):
                before, behind = self._left_out.get(key, (0, 0))
                self._left_out[key] = (before + cut[0], behind + cut[1])
        self.arrows = [*self._arrows()]
        for key, counts in self._left_out.items():
            self.arrows += (Arrow(*ends) for *_, ends in self._omissions(key, counts))
        self._legend = self._legend_group()
        if self._legend:
            self.arrows += self._arrows_to_legend(len(self._legend.items))

    @property
    def title(self) -> str:
        """Return the title, such as ``Autograd graph of Net``."""
        name = self._graph.scopes[""].class_name if "" in self._graph.scopes else ""
        graph = f"{graph_kind(self._graph).capitalize()} graph"
        return f"{graph} of {name}" if name.isidentifier() and name.isascii() else graph

    @property
    def description(self) -> str:
        """Return the number of boxes of each kind, and of arrows."""
        roles = Counter(node.role if node.role in _NOUNS else "" for node in self._nodes)
        places = sum(stub.is_place for stub in self._stubs)
        roles.update(cut=places, unreached=len(self._stubs) - places)
        roles["saved"] += sum(len(node.saved) for node in self._nodes) if self._options.show_saved else 0
        counts = [pluralize(roles[role], *nouns) for role, nouns in _NOUNS.items() if roles[role]]
        seen = sum(arrow.kind != BESIDE for arrow in self.arrows)
        return f"{', '.join([*counts, pluralize(seen, 'arrow', 'arrows')])}"

    def items(self) -> list[Box | Group]:
        """Return the boxes and groups outside all modules."""
        groups, moved = _Groups(), frames(self._graph, vocabulary_of(self._graph).accumulators)
        for node in self._nodes:
            groups[moved.get(node.id, node.scope)].items.extend(self._boxes(node))
        for number, stub in enumerate(self._stubs):
            groups[""].items.append(Box(f"c{number}", "cut", join_lines(wrap_text(stub.reason))))
        if self._legend:
            groups[""].items.append(self._legend)
        return groups.close_all(self._graph.scopes)

    def _legend_group(self) -> Group | None:
        legend = self._make_legend(self._nodes, {(arrow.kind, arrow.times > 1) for arrow in self.arrows})
        if legend is None:
            return None
        entries = [
            *legend.boxes.items(),
            *((LINE, f"{_LINE_SIGNS.get(kind, '──▶')} {text}") for kind, text in legend.lines.items()),
            *((LINE, note) for note in legend.notes),
        ]
        group = Group(legend.title, _LEGEND)
        for number, (role, text) in enumerate(entries):
            looks = ("function", role) if role in {FAILED, FOCUSED} else (role, "")
            group.items.append(Box(f"l{number}", looks[0], join_lines([text]), looks[1]))
        return group

    def _arrows_to_legend(self, entries: int) -> Iterator[Arrow]:
        # Mermaid places a box without arrows on the first rank, so arrows from the lowest box move the legend down.
        ranks = dict.fromkeys(self._keys.values(), 0)
        for arrow in self.arrows:
            if arrow.head in ranks:
                ranks[arrow.head] = max(ranks[arrow.head], ranks.get(arrow.tail, 0) + 1)
        lowest = max(ranks, key=ranks.__getitem__, default="")
        boxes = [f"l{number}" for number in range(entries)]
        return (Arrow(*ends, BESIDE) for ends in arrange_in_rows(lowest, boxes, _LEGEND_COLUMNS))

    def _arrows(self) -> Iterator[Arrow]:
        keys, nodes = self._keys, self._graph.nodes
        # Edges between the same boxes are one arrow if a box represents several nodes.
        drawn: dict[tuple[Arrow, int], int] = {}
        for number, edge in enumerate(self._graph.edges):
            if edge.dst not in self._tensors:
                tail, head = nodes[edge.src], nodes[edge.dst]
                kind = "removed" if self._is_marked and is_lost(tail, head, edge.input_nr) else edge.kind
                is_one = stands_for_several(tail) or stands_for_several(head)
                text = self._words.on_line(tail, edge.output_nr) if self._words.on_lines and kind == "data" else ""
                arrow = Arrow(keys[edge.src], keys[edge.dst], kind, 1, text), -1 if is_one else number
                drawn[arrow] = drawn.get(arrow, 0) + 1
        yield from (arrow._replace(times=times) for (arrow, _), times in drawn.items())
        into, beside = self._cut_lines(keys, "c")
        yield from starmap(Arrow, chain(self._lines_to_saved(self._nodes, keys), into, beside))

    def _boxes(self, node: Node) -> Iterator[Box]:
        key = self._keys[node.id]
        before, below = self._texts_around(node)
        text = f"{before}{join_lines([*self._words.lines(node), *below])}"
        yield Box(key, self._role(node), text, border(node, self._is_marked))
        for more, text, _ in self._omissions(key, self._left_out.get(key, (0, 0))):
            yield Box(more, MORE, text)
        for number, slot in enumerate(node.saved if self._options.show_saved else ()):
            text = join_lines(self._words.slot_lines(slot.slot, slot.tensor, slot.state))
            yield Box(f"{key}s{number}", "saved", text)


def _find_accumulated(graph: Graph) -> dict[str, str]:
    """Return, by accumulator, the tensor whose gradient it accumulates."""
    tensors: dict[str, str] = {}
    accumulators = vocabulary_of(graph).accumulators
    for node in graph.nodes.values():
        if node.op in accumulators and len(found := sources(node)) == 1:
            tensors[node.id] = tensors.get(found[0], found[0])
    return tensors


class _Groups(dict[str, Group]):
    """Nested groups by the paths of frames, each created on first access."""

    def __missing__(self, scope: str) -> Group:
        group = root = self.setdefault("", Group())
        for part in scope.split(".", _MAX_NESTING - 1) if scope else ():
            if part not in group.children:
                child = Group(part, part if group is root else f"{group.path}.{part}")
                group.children[part] = child
                group.items.append(child)
            group = group.children[part]
        self[scope] = group
        return group

    def close_all(self, scopes: Mapping[str, Scope]) -> list[Box | Group]:
        waiting, number = self[""].items[::-1], 0
        while waiting:
            item = waiting.pop()
            if isinstance(item, Group):
                item.close(f"m{number}", scopes)
                number += 1
                waiting += item.items[::-1]
        return self[""].items
