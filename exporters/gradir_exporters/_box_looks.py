"""Parts that ``dot`` and ``mermaid`` share: the graph to draw, their options, and the lines and looks of boxes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from gradir.errors import warn
from gradir.ir import Graph, Node
from gradir.ir.cuts import stubs
from gradir.ir.marks import SIGNS, is_layer, overlay_mark, status, times
from gradir.ir.model import NO_GRADIENT_ROLES
from gradir.pictures import LARGE
from gradir.protocols import Options
from gradir_exporters import _box_words
from gradir_exporters._box_words import CONTEXT, CUT, LINES, NO_VALUE, OTHER, ROLES, UNREACHED, Legend, Words, border
from gradir_exporters._palette import overlay_legend, overlay_text

_WIDTH: Final = 36
_COLUMNS: Final = 3
# The lines of a word. One that is too long for a line, such as a path, breaks after these characters if it can.
_PARTS: Final = re.compile(rf".{{1,{_WIDTH}}}(?:(?<=[./_,:])(?![./_,:])|\Z)|.{{{_WIDTH}}}", re.DOTALL)
# The role of a box that stands for omitted nodes, and the kind of the line between it and the box beside it.
MORE: Final = "more"
# The kind of the invisible lines that place the boxes of cuts and of a legend.
BESIDE: Final = "beside"
# The keys of the ends of a line, and its kind.
Ends: TypeAlias = "tuple[str, str, str]"


def wrap_text(text: str) -> list[str]:
    """Return the lines of a text; long words break after a dot, a slash and the like."""
    lines = [""]
    for word in text.split(" "):
        for place, part in enumerate(_PARTS.findall(word) or [""]):
            line = lines[-1]
            with_part = f"{line} {part}" if line and not place else f"{line}{part}"
            if not line or len(with_part) <= _WIDTH:
                lines[-1] = with_part
            else:
                lines.append(part)
    return lines


def arrange_in_rows(above: str, boxes: Sequence[str], columns: int) -> Iterator[tuple[str, str]]:
    """Return invisible lines that put boxes in rows, below another box if any."""
    return (
        zip([*[above] * columns, *boxes], boxes, strict=False) if above else zip(boxes, boxes[columns:], strict=False)
    )


class PictureOptions(Options, frozen=True, kw_only=True):
    """The options of every static picture."""

    direction: Annotated[
        Literal["TB", "LR", "BT", "RL"], msgspec.Meta(description="where arrows point: TB is top to bottom")
    ] = "TB"
    all: Annotated[
        bool, msgspec.Meta(description="draw every node; by default a large graph is made small enough to read")
    ] = False
    shapes: Annotated[bool, msgspec.Meta(description="show dtype and shape of each box's output")] = True
    native: Annotated[bool, msgspec.Meta(description="show the framework's own name of each operation")] = False
    parameters: Annotated[
        Literal["boxes", "inline"],
        msgspec.Meta(description="draw each parameter, or write it into the box of the one function that takes it"),
    ] = "boxes"
    legend: Annotated[bool, msgspec.Meta(description="explain boxes and lines below the picture")] = False
    show_saved: Annotated[bool, msgspec.Meta(description="draw the tensors saved for backward, and buffers")] = False


class Drawing:
    """The texts, roles, cuts and legend of a picture; the roles are those of nodes, a diff or an overlay."""

    def __init__(self, graph: Graph, options: PictureOptions, most_cuts: int) -> None:
        graph, inline = _box_words.inline_parameters(graph) if options.parameters == "inline" else (graph, {})
        self._graph, self._options = graph, options
        self._words = Words(graph, shapes=options.shapes, native=options.native, inline=inline)
        # A file may have any number of cuts, and drawing thousands of boxes takes long.
        self._stubs = stubs(graph, most_cuts)
        extended = [node for node in graph.nodes.values() if node.ext]
        self._is_marked = any(map(status, extended))
        """Whether a diff is drawn."""
        self._overlay = {node.id: mark for node in extended if (mark := overlay_mark(node)) is not None}

    def _role(self, node: Node) -> str:
        if self._is_marked:
            return status(node) or CONTEXT
        found = self._overlay.get(node.id)
        return found.look if found is not None else NO_VALUE if self._overlay else node.role

    def _texts_around(self, node: Node) -> tuple[str, list[str]]:
        """Return the text before and the lines below a node's text."""
        if self._is_marked:
            mark = status(node)
            return f"{SIGNS[mark]} " if mark else "", [f"×{times(node):,}"] if mark and times(node) > 1 else []
        return "", [overlay_text(self._overlay[node.id])] if node.id in self._overlay else []

    def _omissions(self, key: str, counts: tuple[int, int]) -> Iterator[tuple[str, str, Ends]]:
        """Yield a box for each number of omitted nodes, its text and its line."""
        before, behind = counts
        if before:
            yield f"{key}before", f"… {before:,} more", (f"{key}before", key, MORE)
        if behind:
            yield f"{key}behind", f"… {behind:,} more", (key, f"{key}behind", MORE)

    def _lines_to_saved(self, nodes: Iterable[Node], keys: Mapping[str, str]) -> Iterator[Ends]:
        if not self._options.show_saved:
            return
        buffers = {id_ for id_, node in self._graph.nodes.items() if node.role in NO_GRADIENT_ROLES}
        for node in nodes:
            for number, saved in enumerate(node.saved):
                box = f"{keys[node.id]}s{number}"
                yield keys[node.id], box, "saved"
                if saved.origin is not None and saved.origin.id in buffers:
                    yield keys[saved.origin.id], box, "buffer"

    def _cut_lines(self, keys: Mapping[str, str], prefix: str) -> tuple[list[Ends], list[Ends]]:
        """Return the lines from cuts to boxes, and the invisible ones that place other cuts."""
        into, elsewhere = list[Ends](), list[str]()
        for number, stub in enumerate(self._stubs):
            if stub.into and stub.into in keys:
                into.append((f"{prefix}{number}", keys[stub.into], CUT))
            else:
                elsewhere.append(f"{prefix}{number}")
        *_, output = "", *(keys[node.id] for node in self._graph.nodes.values() if node.role == "output")
        return into, [(*ends, BESIDE) for ends in arrange_in_rows(output, elsewhere, _COLUMNS)]

    def _make_legend(
        self, nodes: Collection[Node], drawn: Iterable[tuple[str, bool]], *, framed: bool = True
    ) -> Legend | None:
        """Return the legend, if any; ``drawn`` has each kind of line, and whether it joins several."""
        if not (self._options.legend or self._overlay):
            return None
        drawn = set(drawn)
        kinds = {kind for kind, _ in drawn} - {BESIDE, MORE}
        title, texts = overlay_legend(self._overlay.values())
        texts = {**texts, **ROLES}
        roles = {self._role(node) for node in nodes} | {border(node, self._is_marked) for node in nodes} - {""}
        roles |= {CUT if stub.is_place else UNREACHED for stub in self._stubs}
        if self._options.show_saved and any(node.saved for node in nodes):
            roles.add("saved")
        boxes = {role: text for role, text in texts.items() if role in roles}
        if others := sorted(roles.difference(texts)):
            boxes[OTHER] = ", ".join(others)
        lines = {kind: text for kind, text in LINES.items() if kind in kinds} if kinds != {"data"} else {}
        lines.update((kind, kind) for kind in sorted(kinds.difference(LINES)))
        joined = any(several for _, several in drawn)
        notes = self._words.notes(nodes, framed=framed, marked=self._is_marked, joined=joined)
        return Legend(title or "legend", boxes, lines, [*notes])


def shrink_by_default(graph: Graph, caption: str) -> tuple[Graph, str]:
    """Return the graph to draw and its caption; a folded graph is drawn as it is.

    Warns:
        GradirWarning: the graph is drawn smaller than it is.
    """
    is_small = len(graph.nodes) <= LARGE and not any(map(is_layer, graph.nodes.values()))
    if is_small or is_folded(graph):
        return graph, caption
    # Imported only for a large graph or layers, so that drawing a small graph starts fast.
    from gradir.passes import smallest

    small = smallest(graph)
    if small.graph is not graph:
        warn(f"{small.note}; --all, in Python all=True, draws every node; --depth, --rollup, --drop, --focus choose")
    return small.graph, "; ".join(filter(None, (caption, small.note)))


def is_folded(graph: Graph) -> bool:
    """Return whether a module with submodules is already one node."""
    return any(node.role == "module" and not is_layer(node) for node in graph.nodes.values())
