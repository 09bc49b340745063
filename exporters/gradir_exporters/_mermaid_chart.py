"""A picture as a flowchart of mermaid-py.

Import it only to draw: mermaid-py is slow to import.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from mermaid.flowchart import FlowChart, Link, Node
from mermaid.style import Style

from gradir.ir.text import quoted
from gradir_exporters._box_lines import MORE
from gradir_exporters._box_words import CONTEXT, CUT, FAILED, FOCUSED, NO_VALUE, UNREACHED
from gradir_exporters._mermaid_picture import BESIDE, LINE, Box
from gradir_exporters._mermaid_text import escaped, joined, shown
from gradir_exporters._overlay_looks import FILLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradir_exporters._mermaid_picture import Group, Picture

__all__ = ["AutogradChart"]

_TEXT = "#1f2328"
_LINE = "#57606a"


def _style(name: str, fill: str, width: str | None = None) -> Style:
    # The colour of the text is set too, since a dark theme would write in white on these.
    return Style(name, fill=fill, color=_TEXT, stroke=_LINE, stroke_width=width)


_BORDERS = {
    FAILED: Style("failed", stroke="#cf222e", stroke_width="4px"),
    FOCUSED: Style("focus", stroke="#0969da", stroke_width="4px"),
}
# The fills are those of the classic picture, as far as that has the role.
_STYLES = {
    "function": _style("function", "#d3d3d3"),
    "leaf": _style("leaf", "#add8e6"),
    "parameter": _style("parameter", "#add8e6", "2px"),
    "input": _style("input", "#e0ffff"),
    "buffer": _style("buffer", "#ffec8b"),
    "output": _style("output", "#caff70", "2px"),
    "view_base": _style("viewbase", "#a2cd5a"),
    "saved": _style("saved", "#ffa500"),
    "module": _style("module", "#d8bfd8", "2px"),
    CONTEXT: _style("context", "#f6f8fa"),
    NO_VALUE: _style("bare", "#ffffff"),
    "added": _style("added", "#aceebb", "2px"),
    "removed": _style("removed", "#ffcecb", "2px"),
    "changed": _style("changed", "#ffe58a", "2px"),
    **{look: _style(look.replace(" ", ""), light) for look, (light, _) in FILLS.items()},
    LINE: Style("line", fill="#ffffff", color=_TEXT, stroke="#ffffff"),
    CUT: Style("cut", fill="#ffffff", color=_TEXT, stroke="#cf222e", other="stroke-dasharray:4 3"),
    MORE: Style("more", fill="#ffffff", color=_LINE, stroke="#d0d7de", other="stroke-dasharray:4 3"),
}
_STYLES[UNREACHED] = _STYLES[CUT]
_OTHER = _style("other", "#ffffff")
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
    """A flowchart with a source text of its own.

    The base class escapes nothing, and loses the styles of nodes inside subgraphs. Layout is pinned to the one that
    GitHub has, since Mermaid 12 chooses another where it can.
    """

    def __init__(self, picture: Picture, direction: str, notes: Sequence[str] = (), caption: str = "") -> None:
        self._head = ["---", *([f"title: {quoted(shown(joined([caption])))}"] if caption else []), "config:"]
        self._notes = [
            *(f"%% {note}" for note in notes),
            f"accTitle: {picture.title}",
            f"accDescr: {picture.description}",
        ]
        by_key: dict[str, Node] = {}
        self._drawn = list(_drawn(picture.items(), by_key))
        links = [
            Link(
                by_key[arrow.tail],
                by_key[arrow.head],
                message=f"×{arrow.times}" if arrow.times > 1 else "",
                **_LINKS.get(arrow.kind, {}),
            )
            for arrow in picture.arrows
        ]
        super().__init__(picture.title, list(by_key.values()), links, direction)

    def _build_script(self) -> None:
        lines = [*self._head, "  layout: dagre", "---", f"flowchart {self.orientation}", *self._notes]
        lines.extend(map(str, sorted(self.styles, key=attrgetter("name"))))
        lines.extend(self._drawn)
        lines.extend(map(str, self.links))
        self.script = "\n".join(lines) + "\n"


def _drawn(items: Sequence[Box | Group], by_key: dict[str, Node]) -> Iterator[str]:
    """The lines of boxes and groups; ``by_key`` gets the boxes."""
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
            node = by_key[item.key] = Node(item.key, escaped(item.text), shape, styles=styles)
            yield f'{indent}{node.id_}{node.shape.start}"{node.content}"{node.shape.end}:::{style.name}'
            if item.border:
                yield f"{indent}class {node.id_} {_BORDERS[item.border].name}"
        else:
            yield f'{indent}subgraph {item.key}["{escaped(item.text)}"]'
            stack.append(iter(item.items))
