"""The ``dot`` exporter: Graphviz source, for the picture that torchviz made classic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from gradir.errors import ExportError
from gradir.gcpause import pause_gc
from gradir.ir import Graph
from gradir.ir.marks import SIGNS
from gradir.ir.memo import Memo
from gradir.options import OptionError, fill_options
from gradir.protocols import Options
from gradir_exporters._box_looks import BESIDE, MORE, shrink_by_default
from gradir_exporters._box_words import CUT, FAILED, FOCUSED, UNREACHED
from gradir_exporters._dot_labels import cell, display_text
from gradir_exporters._dot_picture import MANY, DotOptions, Picture
from gradir_exporters._palette import CUT as CUT_COLOUR
from gradir_exporters._palette import FILLS, LINE, PALETTE, RIM, TEXT, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import graphviz
    import pydot


__all__ = ["DotExporter", "DotOptions", "to_graphviz", "to_pydot"]

_NAME: Final = "gradir"
# Fonts whose widths Graphviz and graphviz-pure know on every machine.
_SANS: Final = {"fontname": "Helvetica"}
_MONOSPACED: Final = {"fontname": "Courier"}
_GRAPH_LOOK: Final[Mapping[str, Any]] = {
    "fontsize": "10",
    "ranksep": "0.2",
    # Without it, lines point against the flow when it leaves a module and returns.
    "newrank": "true",
}
# Without these, dot takes minutes for a few hundred boxes of an unrolled loop; with them, lines bend needlessly.
_HURRIED: Final[Mapping[str, Any]] = {"nslimit": "1", "nslimit1": "1"}
# For at most this many nodes, dot draws its best layout.
_UNHURRIED: Final = 100
_NODE_LOOK: Final[Mapping[str, Any]] = {
    "fontsize": "10",
    "shape": "box",
    "style": "filled",
    "height": "0.2",
    "margin": "0.1,0.03",
    "class": "function",
}
_EDGE_LOOK: Final[Mapping[str, Any]] = {"fontsize": "10", "arrowsize": "0.6"}
_CLUSTER_LOOK: Final[Mapping[str, Any]] = {"style": "rounded,filled", "labeljust": "l"}

_QUIET_COLOUR: Final = "gray60"

_LINE_LOOKS: Final[Mapping[str, Mapping[str, Any]]] = {
    "data": {},
    MANY: {"penwidth": "0.5", "arrowsize": "0.4"},
    "removed": {"style": "dashed"},
    "view": {"style": "dotted"},
    "inplace": {"style": "bold", "arrowhead": "diamond"},
    "saved": {"dir": "none"},
    "buffer": {"dir": "none", "style": "dashed"},
    CUT: {"style": "dashed", "color": CUT_COLOUR, "arrowhead": "empty"},
    MORE: {"style": "dashed", "color": _QUIET_COLOUR, "arrowhead": "none"},
    BESIDE: {"style": "invis"},
}
_OTHER_LINE: Final[Mapping[str, Any]] = {"style": "dotted"}
_BARE_LOOKS: Final[Mapping[str, Mapping[str, str]]] = {
    CUT: {"style": "dashed", "color": CUT_COLOUR},
    UNREACHED: {"style": "dashed", "color": CUT_COLOUR},
    MORE: {"shape": "plaintext", "style": "solid"},
}
# The borders by the suffix of a role, visible on light and dark pages.
_OWN_BORDERS: Final[Mapping[str, Mapping[str, str]]] = {
    FAILED: {"color": CUT_COLOUR, "penwidth": "3"},
    FOCUSED: {"color": "#0969da", "penwidth": "3"},
}
# The lines in a legend; any other kind looks like a view. The font of graphviz-pure has all of these characters.
_LINE_SIGNS: Final[Mapping[str, str]] = {
    "data": "──►",
    "removed": "- - ►",
    "view": "· · ►",
    "inplace": "══♦",
    "saved": "───",
    "buffer": "- - -",
    CUT: "- - >",
}

_LEGEND_COLUMNS: Final = 4
# A legend with longer texts has one column.
_LONG_TEXT: Final = 40
_BORDERS: Final[Mapping[str, Mapping[str, str]]] = {"parameter": {"penwidth": "1.5"}}


class _Theme(NamedTuple):
    """The look of a picture, with ``fills`` by role and ``tints`` of frames; all text has a contrast of 4.5 or more."""

    graph: Mapping[str, str]
    node: Mapping[str, str]
    edge: Mapping[str, str]
    cluster: Mapping[str, str]
    fills: Mapping[str, str]
    unknown: str
    tints: tuple[str, str]
    cut: str = CUT_COLOUR

    def frame(self, level: int) -> dict[str, str]:
        return {**_CLUSTER_LOOK, "fillcolor": self.tints[level % 2], **self.cluster}


# The fills by role, in torchviz's colors.
_CLASSIC: Final[Mapping[str, str]] = {
    "leaf": "lightblue",
    "parameter": "lightblue",
    "input": "lightcyan",
    "buffer": "lightgoldenrod1",
    "output": "darkolivegreen1",
    "view_base": "darkolivegreen3",
    "saved": "orange",
    "module": "thistle",
    "context": "gray95",
    "bare": "white",
    "added": "palegreen",
    "removed": "lightpink",
    "changed": "khaki1",
    **{look: light for look, (light, _) in FILLS.items()},
}

_THIN: Final = {"penwidth": "0.6"}
_LIGHT, _DARK = ({role: fills[dark] for role, fills in PALETTE.items()} for dark in (0, 1))


def _make_theme(dark: int, page: str, tints: tuple[str, str], caption: str, cut: str = CUT_COLOUR) -> _Theme:
    text, line, fills = TEXT[dark], LINE[dark], (_LIGHT, _DARK)[dark]
    return _Theme(
        {**_SANS, "fontcolor": text, **({"bgcolor": page} if dark else {})},
        {**_SANS, "fillcolor": fills["function"], "color": RIM, "fontcolor": text, "penwidth": "0.8"},
        {**_SANS, "color": line, "fontcolor": caption, "penwidth": "0.8"},
        {"color": tints[1], "fontcolor": caption},
        fills,
        UNKNOWN[dark],
        tints,
        cut,
    )


_THEMES: Final[Mapping[str, _Theme]] = {
    "light": _make_theme(0, "white", ("white", "#eef1f5"), "#57606a"),
    "dark": _make_theme(1, "#0d1117", ("#0d1117", "#1c232b"), "#b1bac4", "#ff7b72"),
    # For print, fills appear only where a color says more than the role.
    "paper": _Theme(
        {**_SANS},
        {**_SANS, "fillcolor": "white", **_THIN},
        {**_SANS, **_THIN},
        {"style": "rounded", "fontcolor": "black", "penwidth": "0.3"},
        {**_LIGHT, **dict.fromkeys(_CLASSIC.keys() - FILLS.keys() - {*SIGNS}, "white")},
        "white",
        ("white", "white"),
    ),
    "classic": _Theme(
        {**_MONOSPACED},
        {**_MONOSPACED, "fillcolor": "lightgray"},
        {**_MONOSPACED},
        {"color": "gray60", "fontcolor": "gray30"},
        _CLASSIC,
        "white",
        ("white", "gray94"),
    ),
}


class DotExporter:
    """Graphviz source: the classic picture of an autograd graph, with a frame around each module."""

    suffix: ClassVar[str] = ".dot"
    options: ClassVar[type[Options]] = DotOptions

    def export(self, graph: Graph, options: DotOptions) -> str:
        """Return the DOT source of a digraph.

        Raises:
            ExportError: an edge comes from a node that the graph does not have.
        """
        source: str = self.digraph(graph, options).source
        return source

    @staticmethod
    def digraph(graph: Graph, options: DotOptions) -> graphviz.Digraph:
        """Return the picture as an object of the graphviz package."""
        from gradir_exporters._dot_digraph import Digraph

        theme = _THEMES[options.theme]
        with pause_gc():
            picture, caption = _picture(graph, options)
            digraph = Digraph(
                _NAME,
                graph_attr=_graph_look(picture, options, theme),
                node_attr={**_NODE_LOOK, **_boxes_look(options, theme)},
                edge_attr={**_EDGE_LOOK, **theme.edge},
            )
            # The methods of a Digraph quote every value again, which takes longer than all the rest.
            digraph.body.extend(_box_statements(picture, theme))
            # Most lines have the same look.
            looks = Memo(_line_attributes)
            digraph.body.extend(
                [
                    f"\t{tail} -> {head}{looks[kind, length, text, weight]}\n"
                    for tail, head, kind, length, text, weight in picture.lines()
                ]
            )
        if label := _label(picture, caption, theme):
            digraph.body.append(f"\tlabel={label}\n")
        return digraph


def to_graphviz(graph: Graph, **options: Any) -> graphviz.Digraph:
    """Return the picture as a `graphviz.Digraph`; ``options`` are those of `DotOptions`.

    Raises:
        ExportError: an unknown option, a value that an option does not take, or a graph that cannot be drawn.
    """
    return DotExporter.digraph(graph, _fill_options(options))


def to_pydot(graph: Graph, **options: Any) -> pydot.Dot:
    """Return the picture as a `pydot.Dot`, for further edits; ``options`` are those of `DotOptions`.

    Raises:
        ExportError: an unknown option, a value that an option does not take, or a graph that cannot be drawn.

    >>> from gradir.ir import Graph, Node
    >>> dot = to_pydot(Graph.of([Node("x", role="leaf")]), direction="LR")
    >>> dot.get_rankdir(), dot.get_node("n0")[0].get_fillcolor()
    ('LR', '"#c5e3f6"')
    """
    import pydot

    filled = _fill_options(options)
    picture, caption = _picture(graph, filled)
    theme = _THEMES[filled.theme]
    dot = pydot.Dot(_NAME, graph_type="digraph", **_quote_colours(_graph_look(picture, filled, theme)))
    if label := _label(picture, caption, theme):
        dot.set("label", label)
    dot.set_node_defaults(**_NODE_LOOK, **_quote_colours(_boxes_look(filled, theme)))
    dot.set_edge_defaults(**_EDGE_LOOK, **_quote_colours(theme.edge))
    # The open graph of each level. A cluster is added while empty, since pydot visits all its contents then.
    open_graphs: list[pydot.Graph] = [dot]
    for level, group in picture.root.walk():
        if level:
            look = _quote_colours(theme.frame(level))
            cluster = pydot.Subgraph(group.key, **_quote(group.label, group.tooltip), **look)
            del open_graphs[level:]
            open_graphs[-1].add_subgraph(cluster)
            open_graphs.append(cluster)
        for key, role, label, tooltip in picture.boxes(group):
            look = _quote_colours(_box_look(role, theme))
            open_graphs[-1].add_node(pydot.Node(key, **_quote(label, tooltip), **look))
    for tail, head, kind, length, text, weight in picture.lines():
        dot.add_edge(pydot.Edge(tail, head, **_quote_colours(_line_look(kind, length, text, weight))))
    return dot


def _fill_options(options: Mapping[str, Any]) -> DotOptions:
    try:
        return fill_options(DotOptions, options, "exporter 'dot'")
    except OptionError as error:
        raise ExportError(str(error)) from error


def _graph_look(picture: Picture, options: DotOptions, theme: _Theme) -> dict[str, Any]:
    hurried = _HURRIED if picture.count > _UNHURRIED else {}
    return {**_GRAPH_LOOK, **hurried, "rankdir": options.direction, **theme.graph}


def _boxes_look(options: DotOptions, theme: _Theme) -> Mapping[str, str]:
    return {**theme.node, **_MONOSPACED} if options.show_attrs else theme.node


def _picture(graph: Graph, options: DotOptions) -> tuple[Picture, str]:
    graph, caption = (graph, options.caption) if options.all else shrink_by_default(graph, options.caption)
    return Picture(graph, options), caption


def _label(picture: Picture, caption: str, theme: _Theme) -> str:
    if picture.legend is None:
        return f'"{display_text(caption)}"' if caption else ""
    title, boxes, lines, notes = picture.legend
    cells = []
    for role, text in boxes.items():
        look = {**theme.node, **_box_look(role, theme)}
        fill = look["fillcolor"] if role not in _BARE_LOOKS else theme.tints[0]
        # dot takes only integers for the border of a cell.
        width = max(1, round(float(look.get("penwidth", "1"))))
        attributes = {"border": str(width), "bgcolor": fill, "color": look.get("color", "black")}
        if role in _BARE_LOOKS:
            attributes["style"] = "dashed"
        cells.append((text, _attributes(attributes), look.get("fontcolor", "")))
    cells += [(f"{_LINE_SIGNS.get(kind, _LINE_SIGNS['view'])} {text}", "", "") for kind, text in lines.items()]
    columns = 1 if any(len(text) > _LONG_TEXT for text, *_ in cells) else _LEGEND_COLUMNS
    rows = ["".join(cell(*entry) for entry in cells[at : at + columns]) for at in range(0, len(cells), columns)]
    above, below = (
        [cell(text, f' colspan="{columns}"') for text in texts if text] for texts in ((caption, title), notes)
    )
    table = "".join(f"<tr>{row}</tr>" for row in [*above, *rows, *below])
    return f'<<table border="0" cellspacing="4" cellpadding="3">{table}</table>>'


def _box_statements(picture: Picture, theme: _Theme) -> Iterator[str]:
    looks: Memo[str, str] = Memo(lambda role: _attributes(_box_look(role, theme)))
    frames = [_attributes(theme.frame(level)) for level in (0, 1)]
    depth = 0
    for level, group in picture.root.walk():
        while depth and depth >= level:
            yield "\t" * depth + "}\n"
            depth -= 1
        margin = "\t" * (level + 1)
        if level:
            depth = level
            yield f"{margin[1:]}subgraph {group.key} {{\n"
            yield f'{margin}graph [label="{group.label}" tooltip="{group.tooltip}"{frames[level % 2]}]\n'
        for key, role, label, tooltip in picture.boxes(group):
            yield f'{margin}{key} [label="{label}" tooltip="{tooltip}"{looks[role]}]\n'
    for level in range(depth, 0, -1):
        yield "\t" * level + "}\n"


def _box_look(role: str, theme: _Theme) -> dict[str, str]:
    for end, border in _OWN_BORDERS.items():
        plain, found, _ = role.partition(end)
        if found:
            look = _box_look(plain or "function", theme)
            return {**look, "class": f"{look.get('class', 'function')} {end[1:]}", **border}
    if role == "function":
        return {}
    # A class in SVG is one word, but a role in a file may be any text.
    look = {"class": re.sub(r"[^A-Za-z0-9_]+", "-", role)}
    if role in _BARE_LOOKS:
        return {**look, **_BARE_LOOKS[role], **({"fontcolor": theme.cut} if role in {CUT, UNREACHED} else {})}
    return {**look, "fillcolor": theme.fills.get(role, theme.unknown), **_BORDERS.get(role, {})}


def _line_attributes(line: tuple[str, int, str, int]) -> str:
    attributes = _attributes(_line_look(*line))
    return f" [{attributes[1:]}]" if attributes else ""


def _line_look(kind: str, length: int, text: str, weight: int) -> dict[str, Any]:
    look = dict(_LINE_LOOKS.get(kind, _OTHER_LINE))
    if length > 1:
        look["minlen"] = str(length)
    if text:
        look["label"] = f" {text}"
    if weight != 1:
        look["weight"] = str(weight)
    return look


def _attributes(look: Mapping[str, Any]) -> str:
    # All values are plain words from this module, so they need no escaping.
    return "".join(f' {name}="{value}"' for name, value in look.items())


def _quote_colours(look: Mapping[str, str]) -> dict[str, Any]:
    return {name: f'"{value}"' if value.startswith("#") else value for name, value in look.items()}


def _quote(label: str, tooltip: str) -> dict[str, Any]:
    return {"label": f'"{label}"', "tooltip": f'"{tooltip}"'}
