"""Room at 1280 pixels: the table of modules beside the drawing, and the words of a review in their boxes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Browser, Opened, drawing
from msgspec.structs import replace
from page_graphs import change_layers, layers_graph

import gradir
from gradir.ir import Builder, Graph, Scope, TensorMeta

WINDOW = {"width": 1280, "height": 800}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_table_of_modules_leaves_room_for_the_drawing(browser: Browser, scheme: str) -> None:
    with browser.open(layers_graph(20).to("html"), viewport=WINDOW, color_scheme=scheme) as page:
        drawing(page).press("m")
        assert page.page.locator("main").bounding_box()["width"] >= 400
        heads = page.page.get_by_role("columnheader").all()
        table = page.page.locator(".left").bounding_box()
        assert len(heads) == 7
        for head in heads:
            place = head.bounding_box()
            assert place["x"] + place["width"] <= table["x"] + table["width"], head.inner_text()
        assert {"[4, 8] float32"} <= {*page.page.locator("[role=gridcell]:nth-child(3)").all_inner_texts()}
        assert not page.violations()


def test_the_bar_of_a_review_has_one_line(browser: Browser) -> None:
    html = gradir.diff(layers_graph(20), change_layers(layers_graph(20))).to(
        "html", title="Model: models/before.gir \u2192 models/after.gir"
    )
    with browser.open(html, viewport=WINDOW) as page:
        places = [part.bounding_box() for part in page.page.locator("header > :not(.verdict)").all()]
        assert len(places) == 7
        assert len({round(place["y"] + place["height"] / 2) for place in places}) == 1


TOO_LARGE = """async () => {
    const pen = document.createElement("canvas").getContext("2d");
    const found = [];
    for (const { words } of told.drawings)
        for (const { width, label, lines } of words) {
            if (lines.length > label.length) found.push(lines);
            lines.forEach((line, at) => {
                pen.font = `${at === 0 ? "600 " : ""}12px ${getComputedStyle(document.body).fontFamily}`;
                if (pen.measureText(line).width > width) found.push(line);
            });
        }
    return found;
}"""


def replaced() -> tuple[Graph, Graph]:
    """Modules of a long class that have more to say in the first graph than in the second."""
    b = Builder()
    meta = TensorMeta("float32", (128, 1024))
    weight = b.tensor("w", TensorMeta("float32", (1024, 1024)), role="parameter", scope="act")
    value = b.function("mm", [b.tensor("x", meta), weight], [meta], scope="act")
    b.output(b.function("sum", [value], [TensorMeta("float32", ())]))
    graph = b.build(scopes=[Scope("act", "A" * 60, "", 1, 1 << 20, 1 << 20)])
    less = {key: node for key, node in graph.nodes.items() if key != "w"}
    less = {key: replace(node, inputs=node.inputs[:1]) if node.op == "mm" else node for key, node in less.items()}
    return graph, replace(graph, nodes=less, scopes={"act": Scope("act", "B")})


def pairs() -> Iterator[tuple[Graph, Graph]]:
    yield layers_graph(), change_layers(layers_graph())
    yield change_layers(layers_graph()), layers_graph()
    yield replaced()
    before, after = replaced()
    yield after, before


@pytest.mark.parametrize("both", [*pairs()], ids=["changed", "back", "replaced", "restored"])
def test_side_by_side_text_stays_in_its_box(browser: Browser, both: tuple[Graph, Graph]) -> None:
    with browser.open(gradir.diff(*both).to("html"), viewport=WINDOW) as page:
        drawing(page).press("b")
        for key in ("0", "e"):
            page.press(key)
            page.wait_for_paint()
            assert all(side["words"] for side in page.ask("drawings"))
            assert page.page.evaluate(TOO_LARGE) == []


def test_side_by_side_the_legend_is_closed_and_the_whole_is_in_sight(browser: Browser) -> None:
    with browser.open(gradir.diff(*replaced()).to("html"), viewport=WINDOW) as page:
        legend = page.page.locator(".legend")
        assert legend.get_attribute("open") is not None
        drawing(page).press("b")
        assert legend.get_attribute("open") is None
        view = page.ask("view")
        for box in page.ask("boxes"):
            left, right = ((edge - view["x"]) * view["k"] for edge in (box["x"], box["x"] + box["width"]))
            assert 0 <= left < right <= view["width"], box["name"]
        drawing(page).press("b")
        assert legend.get_attribute("open") is not None


def rows(page: Opened) -> list[str]:
    return page.page.locator(".row[role=option]").all_inner_texts()


def test_a_review_lists_a_cause_before_its_consequences(browser: Browser) -> None:
    b = Builder()
    meta = TensorMeta("float32", (4,))
    x = b.tensor("x", meta)
    value = b.function("relu", [x], [meta], scope="z")
    b.output(b.function("exp", [value], [meta], scope="a"))
    before = b.build(scopes=[Scope("a", "Reader"), Scope("z", "Act")])
    c = Builder()
    x = c.tensor("x", meta)
    value = c.function("neg", [c.function("sin", [x], [meta], scope="z")], [meta], scope="z")
    c.output(c.function("exp", [value], [meta], scope="a"))
    after = c.build(scopes=[Scope("a", "Reader"), Scope("z", "Act")])
    diff = gradir.diff(before, after)
    with browser.open(diff.to("html")) as page:
        listed = rows(page)
        heads = [row for row in listed if row.split("\n")[-1] in {"a", "z"}]
        assert [head.split("\n")[-1] for head in heads] == ["z", "a"], listed
        # The first of them is the one that n goes to.
        drawing(page).press("n")
        assert page.ask("selection") == {"kind": "change", "name": "0"}


@pytest.mark.parametrize("width", [390, 1280])
def test_search_results_are_below_the_field_and_within_the_window(browser: Browser, width: int) -> None:
    html = gradir.diff(layers_graph(), change_layers(layers_graph())).to("html", title="Model: before \u2192 after")
    with browser.open(html, viewport={"width": width, "height": 844}) as page:
        drawing(page).press("/")
        page.page.keyboard.type("gelu")
        page.page.locator(".hits").wait_for()
        field, found = (page.page.locator(each).bounding_box() for each in (".finder input", ".hits"))
        assert 0 <= found["x"] <= found["x"] + found["width"] <= width
        assert 0 <= found["y"] - (field["y"] + field["height"]) <= 4
