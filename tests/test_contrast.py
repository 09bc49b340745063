"""All text of a picture can be read on what is behind it, in both themes."""

from __future__ import annotations

import re

import pytest
from gradir_exporters._palette import FILLS
from gradir_exporters.dot import _THEMES, to_pydot

import gradir
from gradir.ir import Graph
from gradir.ir.marks import LOOKS, STEPS


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


X11 = {
    "white": "#ffffff",
    "black": "#000000",
    "gray30": "#4d4d4d",
    "gray94": "#f0f0f0",
    "gray95": "#f2f2f2",
    "lightgray": "#d3d3d3",
    "lightblue": "#add8e6",
    "lightcyan": "#e0ffff",
    "lightgoldenrod1": "#ffec8b",
    "darkolivegreen1": "#caff70",
    "darkolivegreen3": "#a2cd5a",
    "orange": "#ffa500",
    "thistle": "#d8bfd8",
    "palegreen": "#98fb98",
    "lightpink": "#ffb6c1",
    "khaki1": "#fff68f",
}


@pytest.mark.parametrize("name", ["light", "dark", "paper", "classic"])
def test_the_text_of_every_box_caption_and_line_can_be_read(name: str) -> None:
    theme = _THEMES[name]
    hexed = {**X11, **{colour: colour for colour in re.findall("#[0-9a-f]{6}", repr(theme))}}
    page = theme.graph.get("bgcolor", "white")
    text = theme.node.get("fontcolor", "black")
    for fill in {*theme.fills.values(), theme.unknown, theme.node["fillcolor"]}:
        assert contrast(hexed[fill], hexed[text]) >= 4.5, fill
    on_page = [text, theme.cut, theme.graph.get("fontcolor", "black"), theme.edge.get("fontcolor", "black")]
    for under in (page, *theme.tints):
        for colour in (*on_page, theme.cluster["fontcolor"]):
            assert contrast(hexed[under], hexed[colour]) >= 4.5, (under, colour)
    # A frame differs as much from the one around it at any level, and the outermost from the page.
    assert theme.tints[0] == page
    assert name == "paper" or contrast(*map(hexed.__getitem__, theme.tints)) >= 1.1


def test_the_text_of_every_mermaid_box_can_be_read() -> None:
    from gradir_exporters._mermaid_chart import _OTHER, _STYLES

    assert {"parameter", "cut", "added"} < _STYLES.keys()
    for style in (*_STYLES.values(), _OTHER):
        assert contrast(style.fill, style.color) >= 4.5, style.name


@pytest.mark.parametrize("theme", ["light", "dark", "classic"])
def test_frames_alternate_at_any_depth(theme: str) -> None:
    graph = Graph.of([gradir.Node("x", scope=".".join("abcdefgh"))])
    tints = re.findall(r'subgraph.*\n.*fillcolor="([^"]*)"', graph.to("dot", theme=theme))
    assert tints == [*_THEMES[theme].tints[::-1]] * 4
    drawn = to_pydot(graph, theme=theme)
    for tint in tints:
        (drawn,) = drawn.get_subgraphs()
        assert drawn.get("fillcolor").strip('"') == tint


def test_text_can_be_read_on_every_colour() -> None:
    from gradir_exporters._mermaid_chart import _STYLES, _TEXT

    dark_text = _THEMES["dark"].node["fontcolor"]
    assert set(FILLS) == set(LOOKS)
    for look, (light, dark) in FILLS.items():
        assert contrast(light, "#000000") >= 4.5, look
        assert contrast(light, _TEXT) >= 4.5, look
        assert contrast(dark, dark_text) >= 4.5, look
        assert _STYLES[look].fill == light
    # The steps differ in lightness too, which every eye sees.
    for theme in (0, 1):
        lightness = [luminance(FILLS[step][theme]) for step in STEPS]
        assert lightness in (sorted(lightness), sorted(lightness, reverse=True))
