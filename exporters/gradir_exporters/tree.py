"""The graph as an indented tree, from each output down through its inputs, or from each leaf down to its consumers.

Each node is expanded once. Below ``max_depth`` levels a subtree moves to its own section. An id is relative to the
one above it, as in Python's imports: ``./mm:1`` is ``mm:1`` of the same module.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec

from gradir.ir import Graph, Node
from gradir.ir.cuts import stubs
from gradir.ir.edges import DATA, slotless_edges
from gradir.ir.ids import relative_id, starts_with_module, stem
from gradir.ir.marks import CARRIED, ELIDED, get_marked_slots, is_focus, is_layer, left_out, overlay_mark, times
from gradir.ir.memo import Memo
from gradir.ir.model import NO_GRADIENT_ROLES, clamp_size
from gradir.ir.module_tree import module_of, rounds_around, step_around
from gradir.ir.text import escape_unprintable, quote, tensor_text, word
from gradir.protocols import Options
from gradir_exporters._box_words import failure_lines, weight_texts
from gradir_exporters._palette import overlay_text

_NULL: Final = "None"
# Replaces an input that a pass left out.
_ELSEWHERE: Final = "…"
_NOTHING: Final = "(no nodes to show)\n"


class TreeOptions(Options, frozen=True, kw_only=True):
    """The content and characters of the tree."""

    style: Annotated[
        Literal["unicode", "ascii", "rounded", "bold"], msgspec.Meta(description="characters of the branches")
    ] = "unicode"
    shapes: Annotated[bool, msgspec.Meta(description="show the dtype and shape of each tensor")] = True
    native: Annotated[bool, msgspec.Meta(description="show the framework's own name of each operation")] = False
    start: Annotated[
        Literal["outputs", "leaves"], msgspec.Meta(description="from outputs down to leaves, or from leaves to outputs")
    ] = "outputs"
    max_depth: Annotated[
        int, msgspec.Meta(description="levels drawn before a subtree moves to its own section", ge=1, le=1000)
    ] = 24
    paths: Annotated[
        Literal["relative", "whole"], msgspec.Meta(description="write ids relative to their parent, or whole")
    ] = "relative"


class TreeExporter:
    """The graph as an indented tree, from the outputs down to the leaves or the other way round.

    >>> from gradir.ir import Graph, Node, Ref
    >>> graph = Graph.of([Node("x", role="leaf"), Node("mul:1", op="mul", inputs=(Ref("x", 0), None, Ref("x", 0)))])
    >>> print(TreeExporter().export(graph, TreeOptions(shapes=False)), end="")
    mul:1
    ├─ x leaf
    ├─ None
    └─ x (see above)
    """

    suffix: ClassVar[str] = ".txt"
    options: ClassVar[type[Options]] = TreeOptions

    def export(self, graph: Graph, options: TreeOptions) -> str:
        """Return the tree of each output, then the nodes that no output reaches."""
        return "".join(_Drawing(graph, options).text()) or _NOTHING


class _Branches(NamedTuple):
    middle: str
    last: str
    through: str
    blank: str = "   "


_BRANCHES: Final = {
    "unicode": _Branches("├─ ", "└─ ", "│  "),
    "ascii": _Branches("|- ", "`- ", "|  "),
    "rounded": _Branches("├─ ", "╰─ ", "│  "),
    "bold": _Branches("┣━ ", "┗━ ", "┃  "),
}


class _Line(NamedTuple):
    """One line still to draw, under ``above``; ``id`` is ``None`` for a slot without a gradient."""

    prefix: str
    branch: str
    depth: int
    id: str | None
    output_nr: int = 0
    relation: str = ""
    above: str = ""


class _Drawing:
    def __init__(self, graph: Graph, options: TreeOptions) -> None:
        self._nodes, self._options, self._branches = graph.nodes, options, _BRANCHES[options.style]
        self._seen: set[str] = set()
        self._waiting: deque[str] = deque()
        self._below: set[str] = set()
        self._tensors = Memo(tensor_text)
        self._rounds = rounds_around(graph.scopes)
        self._stubs = stubs(graph)
        reasons = {(stub.into, stub.slot): stub.reason for stub in self._stubs if stub.slot is not None}
        children = partial(_inputs, reasons) if options.start == "outputs" else _users(graph)
        self._children = _merge_repeated(graph, children, is_downwards=options.start == "outputs")

    def text(self) -> Iterator[str]:
        for root in self._roots():
            yield self._section(root, self._label(root, 0))
            while self._waiting:
                node = self._nodes[self._waiting.popleft()]
                self._below.remove(node.id)
                yield self._section(node, f"{_output_name(node.id)} (continued)")
        for stub in self._stubs:
            yield f"cut {stub.reason}{f' -> {_word(stub.into)}' if stub.into else ''}\n"

    def _roots(self) -> Iterator[Node]:
        nodes = self._nodes.values()
        if self._options.start == "outputs":
            yield from (node for node in nodes if node.role == "output" and node.id not in self._seen)
        rest = [node for node in nodes if node.id not in self._seen and node.role not in NO_GRADIENT_ROLES]
        used = {child for node in rest for child, *_ in self._children(node)}
        yield from (node for node in rest if node.id not in used)

    def _section(self, root: Node, heading: str) -> str:
        self._seen.add(root.id)
        lines = [heading]
        stack = self._lines_under(root, "", 1)
        branches = self._branches
        while stack:
            line = stack.pop()
            text, node = self._draw(line)
            relation = line.relation if line.id is not None else ""
            lines.append(f"{line.prefix}{line.branch}{relation}{text}")
            if node is not None:
                prefix = line.prefix + (branches.blank if line.branch == branches.last else branches.through)
                stack += self._lines_under(node, prefix, line.depth + 1)
        lines.append("")
        return "\n".join(lines)

    def _lines_under(self, node: Node, prefix: str, depth: int) -> list[_Line]:
        children = self._children(node)
        starts = [self._branches.middle] * (len(children) - 1) + [self._branches.last]
        lines = [_Line(prefix, start, depth, *child, node.id) for start, child in zip(starts, children, strict=False)]
        # On the stack, the first child is on top.
        return lines[::-1]

    def _draw(self, line: _Line) -> tuple[str, Node | None]:
        if line.id is None:
            return line.relation or _NULL, None
        if line.id in self._seen:
            where = "below" if line.id in self._below else "above"
            return f"{_output_name(line.id, line.output_nr)} (see {where})", None
        self._seen.add(line.id)
        node = self._nodes[line.id]
        if line.depth < self._options.max_depth or not self._children(node):
            return self._label(node, line.output_nr, line.above), node
        self._below.add(node.id)
        self._waiting.append(node.id)
        return f"{self._label(node, line.output_nr)} (continued below)", None

    def _label(self, node: Node, output_nr: int, above: str = "") -> str:
        parts = [_output_name(node.id, output_nr, above if self._options.paths == "relative" else "")]
        if self._options.native and node.native:
            parts.append(_word(node.native))
        # The id of a rolled-up node already shows the numbers of its layers or steps.
        count = 1 if starts_with_module(node.id, module_of(node)) else times(node)
        count = clamp_size(count * self._rounds(node.scope))
        if count > 1:
            parts.append(f"×{count:,}")
        role = (is_layer(node) and node.native) or node.role
        if role != "function" and role != stem(node.id):
            parts.append(_word(role))
        if self._options.shapes and 0 <= output_nr < len(node.outputs):
            parts.append(self._tensors[node.outputs[output_nr]])
        parts += self._names(node)
        if node.opaque:
            parts.append("opaque")
        if is_focus(node):
            parts.append("[focus]")
        if node.ext and (failed := failure_lines(node)):
            parts.append(" at ".join(failed))
        mark = overlay_mark(node)
        if mark is not None:
            parts.append(f"[{escape_unprintable(mark.title)}: {escape_unprintable(overlay_text(mark))}]")
        return " ".join(parts)

    def _names(self, node: Node) -> Iterator[str]:
        if is_layer(node) and (weights := weight_texts(node, shapes=self._options.shapes)):
            yield f"({escape_unprintable(', '.join(weights))})"
        if node.names and node.names != (node.id,):
            yield f"named {', '.join(map(_word, node.names))}"


# A line under a node: an id, its output number and its relation; the id is None where no gradient flows.
_Child: TypeAlias = "tuple[str | None, int, str]"
_Children: TypeAlias = "Callable[[Node], list[_Child]]"


def _inputs(reasons: Mapping[tuple[str, int], str], node: Node) -> list[_Child]:
    elided = get_marked_slots(node, ELIDED)
    found: list[_Child] = [
        (None, 0, _ELSEWHERE if slot in elided else "") if ref is None else (ref.id, ref.output_nr, "")
        for slot, ref in enumerate(node.inputs)
    ]
    for slot in range(len(found)) if reasons else ():
        if (node.id, slot) in reasons and found[slot] == (None, 0, ""):
            found[slot] = (None, 0, f"{_NULL} ({reasons[node.id, slot]})")
    if node.kinds:
        found = [
            (id_, nr, _OF_AN_INPUT.get(kind, text)) for (id_, nr, text), kind in zip(found, node.kinds, strict=False)
        ]
    return found + [(edge.src, edge.output_nr, f"{edge.kind} of ") for edge in slotless_edges(node)]


def _merge_repeated(graph: Graph, children: _Children, *, is_downwards: bool) -> _Children:
    """Return the children of a node without those that repeat for each of several parallel steps."""
    nodes = graph.nodes
    merged_steps = {node.id: step_around(module_of(node)) for node in nodes.values() if times(node) > 1}
    chained = {step for key, (step, _) in merged_steps.items() if CARRIED in nodes[key].ext}
    parallel = {key: step for key, step in merged_steps.items() if step[0] and step[0] not in chained}
    if not parallel:
        return children

    def rounds(node: Node, child: str | None) -> int:
        maker, taker = (child, node.id) if is_downwards else (node.id, child)
        step, number = parallel.get(maker or "", ("", 1))
        is_within = taker is not None and f"{nodes[taker].scope}.".startswith(f"{step}.")
        return 1 if is_within else number

    def merge(node: Node) -> list[_Child]:
        found = children(node)
        remaining = Counter(found)
        for child, count in remaining.items():
            if count % (number := rounds(node, child[0])) == 0:
                remaining[child] = count // number
        merged: list[_Child] = []
        for child in found:
            if remaining[child]:
                remaining[child] -= 1
                merged.append(child)
        return merged

    return merge


# The relation of a node to an input that it views or writes to, by kind of the slot.
_OF_AN_INPUT: Final = {"view": "view of ", "inplace": "writes to "}
# The relation of a node to one that uses it, by kind of edge.
_OF_A_USER: Final = {"view": "base of ", "inplace": "written by "}


def _users(graph: Graph) -> _Children:
    users: dict[str, list[_Child]] = {}
    for edge in graph.edges:
        relation = f"[{edge.output_nr}] " if edge.output_nr else ""
        if edge.kind != DATA:
            relation = _OF_A_USER.get(edge.kind, f"{edge.kind} of ")
        users.setdefault(edge.src, []).append((edge.dst, 0, relation))
    for node in graph.nodes.values():
        if count := left_out(node)[1]:
            users.setdefault(node.id, []).append((None, 0, f"{_ELSEWHERE} {count:,} more"))
    return lambda node: users.get(node.id, [])


def _output_name(node_id: str, output_nr: int = 0, above: str = "") -> str:
    # A whole id that looks like a relative one is in quotes.
    name = quote(node_id) if node_id[:1] == "." else _word(node_id)
    if above and name == node_id:
        name = min(relative_id(node_id, above), name, key=len)
    return f"{name}[{output_nr}]" if output_nr else name


def _word(text: str) -> str:
    return quote(text) if text == _NULL else word(text)
