"""Parts that ``dot`` and ``mermaid`` share: the graph to draw, their options, and the lines and looks of boxes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, Final, Literal

import msgspec

from gradir.errors import warn
from gradir.ir import Graph, Node
from gradir.ir.cuts import Stub
from gradir.ir.marks import SIGNS, is_layer, overlay_mark, status, times
from gradir.pictures import LARGE
from gradir.protocols import Options
from gradir_exporters._box_words import CONTEXT, CUT, LINES, NO_VALUE, OTHER, ROLES, UNREACHED, Legend, Words, border
from gradir_exporters._palette import overlay_legend, overlay_text

_WIDTH: Final = 36
_COLUMNS: Final = 3
# A word that is too long for a line, such as a path, may break after these characters.
_PARTS: Final = re.compile(r"[^./_,:]*[./_,:]*")
# The role of a box that stands for omitted nodes, and the kind of the line between it and the box beside it.
MORE: Final = "more"


def wrap_text(text: str) -> list[str]:
    """Return the lines of a text; long words break after a dot, a slash and the like.

    >>> wrap_text("no_grad (linear) at net.py:41: encoder.layers.0.attention.weight and 2 more")
    ['no_grad (linear) at net.py:41:', 'encoder.layers.0.attention.weight', 'and 2 more']
    >>> wrap_text("a_model_with_a_long_name.encoder_layers.first")
    ['a_model_with_a_long_name.encoder_', 'layers.first']
    """
    lines = [""]
    for word in text.split(" "):
        for place, part in enumerate(_split_word(word)):
            line = lines[-1]
            with_part = f"{line} {part}" if line and not place else f"{line}{part}"
            if not line or len(with_part) <= _WIDTH:
                lines[-1] = with_part
            else:
                lines.append(part)
    return lines


def arrange_in_rows(above: Sequence[str], boxes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the invisible lines that put boxes in rows, below another box if there is one.

    >>> list(arrange_in_rows(["output"], ["a", "b", "c", "d"]))
    [('output', 'a'), ('output', 'b'), ('output', 'c'), ('a', 'd')]
    """
    for number, box in enumerate(boxes):
        if number >= _COLUMNS:
            yield boxes[number - _COLUMNS], box
        elif above:
            yield above[0], box


def _split_word(word: str) -> Iterator[str]:
    if len(word) <= _WIDTH:
        yield word
        return
    line = ""
    for part in _PARTS.findall(word):
        if line and len(line) + len(part) > _WIDTH:
            yield line
            line = ""
        line += part
        while len(line) > _WIDTH:
            yield line[:_WIDTH]
            line = line[_WIDTH:]
    yield line


def omission_boxes(key: str, counts: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """Yield the boxes with the numbers of omitted nodes before and behind a box."""
    for end, count in zip(("before", "behind"), counts, strict=True):
        if count:
            yield f"{key}{end}", f"… {count:,} more"


def omission_lines(key: str, counts: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """Yield the lines between a box and its `omission_boxes`, as the keys of their ends."""
    before, behind = counts
    if before:
        yield f"{key}before", key
    if behind:
        yield key, f"{key}behind"


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


class Looks:
    """The roles of the boxes of one picture: those of the nodes, of a diff's marks, or of an overlay."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        extended = [node for node in nodes if node.ext]
        self.is_marked = any(map(status, extended))
        """Whether a diff is drawn."""
        self.overlay = {node.id: mark for node in extended if (mark := overlay_mark(node)) is not None}

    def role(self, node: Node) -> str:
        """Return the role of a node's box."""
        if self.is_marked:
            return status(node) or CONTEXT
        found = self.overlay.get(node.id)
        return found.look if found is not None else NO_VALUE if self.overlay else node.role

    def texts_around(self, node: Node) -> tuple[str, list[str]]:
        """Return the text before and the lines below the text of a node's box."""
        if self.is_marked:
            mark = status(node)
            return f"{SIGNS[mark]} " if mark else "", [f"×{times(node):,}"] if mark and times(node) > 1 else []
        return "", [overlay_text(self.overlay[node.id])] if node.id in self.overlay else []

    def legend(
        self,
        options: PictureOptions,
        words: Words,
        nodes: Collection[Node],
        stubs: Collection[Stub],
        kinds: Collection[str],
        *,
        framed: bool,
        joined: bool,
    ) -> Legend:
        """Return the legend of the picture; see `Words.notes` for ``framed`` and ``joined``."""
        title, texts = overlay_legend(self.overlay.values())
        texts = {**texts, **ROLES}
        roles = {self.role(node) for node in nodes} | {border(node, self.is_marked) for node in nodes} - {""}
        roles |= {CUT if stub.is_place else UNREACHED for stub in stubs}
        if options.show_saved and any(node.saved for node in nodes):
            roles.add("saved")
        boxes = {role: text for role, text in texts.items() if role in roles}
        if others := sorted(roles.difference(texts)):
            boxes[OTHER] = ", ".join(others)
        lines = {kind: text for kind, text in LINES.items() if kind in kinds} if set(kinds) != {"data"} else {}
        lines.update((kind, kind) for kind in sorted(set(kinds).difference(LINES)))
        notes = words.notes(nodes, framed=framed, marked=self.is_marked, joined=joined)
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
