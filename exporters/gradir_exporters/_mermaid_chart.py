"""A picture as a flowchart of mermaid-py.

Import it only to draw: mermaid-py is slow to import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import attrgetter

from mermaid.flowchart import FlowChart, Link, Node
from mermaid.style import Style

from gradir.ir.marks import SIGNS
from gradir.ir.text import quote
from gradir_exporters._box_looks import BESIDE, MORE
from gradir_exporters._box_words import CUT, FAILED, FOCUSED, UNREACHED
from gradir_exporters._mermaid_picture import LINE as LINE_BOX
from gradir_exporters._mermaid_picture import Box, Group, Picture, escape_label, join_lines, shorten_text
from gradir_exporters._palette import CUT as CUT_COLOUR
from gradir_exporters._palette import LINE, PALETTE, RIM, TEXT, UNKNOWN

_TEXT, _LINE = TEXT[0], LINE[0]
_WIDE = frozenset({"parameter", "output", "module", *SIGNS})
# The fill of a frame is transparent, suits light and dark pages, and darkens from frame to frame.
_FRAME = Style("frame", fill=f"{RIM}1a", stroke=RIM)


def _style(role: str, fill: str) -> Style:
    # The text has its own colour, since a dark theme would write in white.
    width = "2px" if role in _WIDE else None
    return Style(re.sub("[ _]", "", role), fill=fill, color=_TEXT, stroke=_LINE, stroke_width=width)


_BORDERS = {
    FAILED: Style("failed", stroke=CUT_COLOUR, stroke_width="4px"),
    FOCUSED: Style("focus", stroke="#0969da", stroke_width="4px"),
}
_STYLES = {
    **{role: _style(role, light) for role, (light, _) in PALETTE.items()},
    LINE_BOX: Style("line", fill="#ffffff", color=_TEXT, stroke="#ffffff"),
    CUT: Style("cut", fill="#ffffff", color=CUT_COLOUR, stroke=CUT_COLOUR, other="stroke-dasharray:4 3"),
    MORE: Style("more", fill="#ffffff", color=_LINE, stroke="#d0d7de", other="stroke-dasharray:4 3"),
}
_STYLES[UNREACHED] = _STYLES[CUT]
_OTHER = _style("other", UNKNOWN[0])
_SHAPES = {"module": "subroutine-shape"}
_LINKS = {
    "removed": {"shape": "dotted"},
    "view": {"shape": "dotted"},
    "inplace": {"shape": "thick"},
    "saved": {"shape": "dotted", "head_right": "none"},
    "buffer": {"shape": "dotted", "head_right": "none"},
    CUT: {"shape": "dotted", "head_right": "cross"},
    MORE: {"shape": "dotted", "head_right": "none"},
    BESIDE: {"shape": "hidden", "head_right": "none"},
}


class AutogradChart(FlowChart):  # type: ignore[misc]  # mermaid-py has no types
    """A flowchart with its own source text.

    The base class escapes nothing, and loses the styles of nodes inside subgraphs. The layout is that of GitHub.
    """

    def __init__(self, picture: Picture, direction: str, notes: Sequence[str] = (), caption: str = "") -> None:
        title = [f"title: {quote(shorten_text(join_lines([caption])))}"] if caption else []
        self._head = ["---", *title, "config:"]
        self._notes = [f"%% {note}" for note in notes]
        self._notes += [f"accTitle: {picture.title}", f"accDescr: {picture.description}"]
        by_key: dict[str, Node] = {}
        self._frames: list[str] = []
        self._drawn = list(_draw(picture.items(), by_key, self._frames))
        self._cuts = [str(number) for number, arrow in enumerate(picture.arrows) if arrow.kind == CUT]
        links = []
        for arrow in picture.arrows:
            tensor = arrow.tensor and escape_label(join_lines([arrow.tensor]))
            message = f"×{arrow.times}" if arrow.times > 1 else tensor
            links.append(Link(by_key[arrow.tail], by_key[arrow.head], message=message, **_LINKS.get(arrow.kind, {})))
        super().__init__(picture.title, list(by_key.values()), links, direction)

    def _build_script(self) -> None:
        lines = [*self._head, "  layout: dagre", "---", f"flowchart {self.orientation}", *self._notes]
        styles = {*self.styles, _FRAME} if self._frames else self.styles
        lines.extend(map(str, sorted(styles, key=attrgetter("name"))))
        lines.extend(self._drawn)
        lines.extend(map(str, self.links))
        if self._frames:
            lines.append(f"class {','.join(self._frames)} {_FRAME.name}")
        if self._cuts:
            lines.append(f"linkStyle {','.join(self._cuts)} stroke:{CUT_COLOUR}")
        self.script = "\n".join(lines) + "\n"


def _draw(items: Sequence[Box | Group], by_key: dict[str, Node], frames: list[str]) -> Iterator[str]:
    stack = [iter(items)]
    while stack:
        indent = "  " * (len(stack) - 1)
        item = next(stack[-1], None)
        if item is None:
            stack.pop()
            if stack:
                yield f"{indent[2:]}end"
        elif isinstance(item, Box):
            shape, style = _SHAPES.get(item.role, "normal"), _STYLES.get(item.role, _OTHER)
            styles = [style, _BORDERS[item.border]] if item.border else [style]
            node = by_key[item.key] = Node(item.key, escape_label(item.text), shape, styles=styles)
            yield f'{indent}{node.id_}{node.shape.start}"{node.content}"{node.shape.end}:::{style.name}'
            if item.border:
                yield f"{indent}class {node.id_} {_BORDERS[item.border].name}"
        else:
            frames.append(item.key)
            yield f'{indent}subgraph {item.key}["{escape_label(item.text)}"]'
            stack.append(iter(item.items))
