"""The page in windows, by links and of graphs that are out of the ordinary."""

from __future__ import annotations

from typing import Any

import pytest
from browser import PAINTED, Browser, Opened
from msgspec.structs import replace
from page_graphs import change_layers, failing_graph, layers_graph

import gradir
from gradir.ir import Builder, Graph, Ref, TensorMeta

NARROW = {"width": 400, "height": 700}


def said(page: Opened) -> str:
    return page.text("[role=status]")


def chain(length: int) -> Graph:
    b = Builder()
    value = b.tensor("x", TensorMeta("float32", (4, 8)))
    for _ in range(length):
        value = b.function("exp", [value], [TensorMeta("float32", (4, 8))])
    b.output(value)
    return b.build()


def test_a_narrow_window_has_room_for_one_panel(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), viewport=NARROW) as page:
        panels = page.page.locator("aside:visible")
        assert panels.count() == 0
        page.page.get_by_role("button", name="Details").click()
        assert panels.get_attribute("aria-label") == "Details"
        page.page.get_by_role("button", name="Lists").click()
        assert panels.count() == 1
        assert panels.get_attribute("aria-label") == "Lists"
        page.page.get_by_role("button", name="Details").click()
        assert panels.get_attribute("aria-label") == "Details"
        page.page.get_by_role("button", name="Details").click()
        assert panels.count() == 0
        assert page.page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


def test_the_first_picture_has_text(browser: Browser) -> None:
    """Where a whole chain would be too small to read, its beginning is seen."""
    with browser.open(chain(16).to("html"), viewport={"width": 650, "height": 420}) as page:
        view, boxes = page.ask("view"), page.ask("boxes")
        assert 12 * view["k"] >= 5
        first = min(boxes, key=lambda box: box["y"])
        assert view["y"] <= first["y"]
        assert view["x"] <= first["x"] <= view["x"] + view["width"] / view["k"]


def test_a_link_opens_both_sides_with_all_that_belongs_to_them(browser: Browser) -> None:
    before = layers_graph()
    with browser.open(gradir.diff(before, change_layers(before)).to("html"), "#open=h.0.mlp&sides=1") as page:
        drawings = page.page.locator(".drawing")
        assert page.page.locator(".stage > p").all_inner_texts() == ["before", "after"]
        place = page.ask("place(it)", "h.0.mlp/gelu:1")
        right = drawings.nth(1).bounding_box()["x"] - drawings.nth(0).bounding_box()["x"]
        # The rim of the second view is no part of its picture.
        page.page.mouse.click(place["x"] + right, place["y"])
        assert page.ask("selection") == {"kind": "node", "name": "h.0.mlp/gelu:1"}


def test_a_link_of_another_graph_asks_for_nothing_that_is_not_there(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), "#colour=overlay:gradient&sides=1") as page:
        assert page.ask("colour") == "class"
        assert page.page.locator("header select").input_value() == "class"
        assert page.ask("sides") is False
        assert page.page.locator(".drawing").count() == 1


def test_after_a_search_keys_are_for_the_drawing(browser: Browser) -> None:
    with browser.open(layers_graph().to("html")) as page:
        for down in (False, True):
            page.press("/")
            page.page.keyboard.type("h.2.mlp/gelu")
            page.wait("hits[0] === 'h.2.mlp/gelu:1'")
            page.press(*["ArrowDown"] * down, "Enter")
            page.wait("selection.kind === 'node'")
            assert page.page.evaluate("document.activeElement.getAttribute('role')") == "application"
            page.press("a")
            assert page.ask("trail") == "ancestors"
            page.press("Escape", "Escape", "/", "Control+a", "Delete")
            # In the field a slash is a slash.
            page.wait("hits.length === 0")
            page.press("Escape", "Escape")
            assert page.page.evaluate("document.activeElement.getAttribute('role')") == "application"


def test_a_screen_reader_hears_trails_and_switches(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), "#node=h.2.attn%2Fsoftmax:1&open=*") as page:
        page.page.locator("[role=application]").focus()
        page.press("d")
        boxes = page.ask("boxes")
        lit = sum(bool(box["lit"]) for box in boxes)
        assert said(page) == f"Descendants: {lit} of {len(boxes)} boxes"
        page.press("Escape")
        assert said(page) == "Nothing followed"
        page.press("h")
        assert said(page) == f"{len(page.ask('boxes'))} boxes"


def test_a_cut_is_marked_beside_the_lines_that_are_none(browser: Browser) -> None:
    with browser.open(layers_graph(flow=True).to("html"), "#open=*") as page:
        boxes = {box["name"]: box for box in page.ask("boxes")}
        (stub,) = [stub for stub in page.ask("stubs") if stub["cut"] == 0]
        box = boxes[stub["box"]]
        middle = box["x"] + box["width"] / 2
        assert middle + box["width"] / 10 < stub["x"] < box["x"] + box["width"]


def test_the_legend_names_what_failed(browser: Browser) -> None:
    with browser.open(failing_graph().to("html")) as page:
        assert "the operation that failed" in page.text(".legend")
    with browser.open(layers_graph().to("html")) as page:
        assert "failed" not in page.text(".legend")


def test_saved_bytes_are_seen_in_the_table_without_scrolling(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), viewport={"width": 1280, "height": 800}) as page:
        page.page.locator("[role=application]").focus()
        page.press("m")
        saved = page.page.get_by_role("columnheader", name="Saved").bounding_box()
        panel = page.page.get_by_role("complementary", name="Lists").bounding_box()
        assert saved["x"] + saved["width"] <= panel["x"] + panel["width"]


def test_paper_has_the_drawing_alone(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), color_scheme="light") as page:
        page.page.emulate_media(media="print")
        assert page.page.locator("aside:visible, .tools:visible, .minimap:visible, .finder:visible").count() == 0
        assert page.page.locator("canvas:visible, .legend:visible, h1:visible").count() >= 3


def test_paper_is_white_in_the_dark(browser: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with browser.open(layers_graph().to("html"), color_scheme="dark") as page:
        assert page.page.evaluate(ground) == "rgb(13, 17, 23)"
        view = page.ask("view")
        page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.page.emulate_media(media="print")
        assert page.page.evaluate(ground) == "rgb(255, 255, 255)"
        assert page.page.evaluate("getComputedStyle(document.body).color") == "rgb(31, 35, 40)"
        (size, others, corner, dark) = page.page.evaluate(
            """() => {
                const [canvas, ...others] = [...document.querySelectorAll('canvas')].filter((each) => each.offsetWidth);
                const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
                let dark = 0;
                for (let at = 0; at < data.length; at += 4) if (data[at] + data[at + 1] + data[at + 2] < 200) dark++;
                return [[canvas.width, canvas.height], others.length, [...data.slice(0, 3)], 4 * dark / data.length];
            }"""
        )
        assert size == [2 * view["width"], 2 * view["height"]], "the view as it was seen"
        assert (others, corner) == (0, [255, 255, 255])
        assert 0 < dark < 0.1
        page.page.emulate_media(media="screen")
        page.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.page.locator("canvas.print").count() == 0
        assert page.page.evaluate(ground) == "rgb(13, 17, 23)"


def test_the_legend_shows_what_is_drawn(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), "#open=") as page:
        assert page.page.locator(".legend li").all_inner_texts() == [
            "function",
            "\u25cf\nleaf",
            "\u25ce\noutput",
            "closed module",
        ]
    before = layers_graph()
    with browser.open(gradir.diff(before, change_layers(before)).to("html"), "#open=&colour=changes") as page:
        closed = page.page.locator(".legend li").all_inner_texts()
        page.page.locator("[role=application]").focus()
        page.press("e")
        opened = page.page.locator(".legend li").all_inner_texts()
    assert "changes inside" in closed
    assert "changes inside" not in opened
    words = [entry.partition("\n")[2] or entry for entry in opened]
    assert words == ["same", "added: only in after", "removed: only in before", "changed"]
    assert not any(" ".join(entry.split()) in {"> renamed", "^ moved"} for entry in closed)


def test_a_module_that_was_added_is_listed_once(browser: Browser) -> None:
    before = layers_graph()
    less = replace(before, nodes={id_: node for id_, node in before.nodes.items() if node.scope != "head"})
    kept = {
        id_: replace(node, inputs=(Ref("h.3/add:1", 0),)) if id_ == "sum:1" else node
        for id_, node in less.nodes.items()
    }
    less = replace(less, nodes=kept, scopes={path: scope for path, scope in less.scopes.items() if path != "head"})
    with browser.open(gradir.diff(less, before).to("html")) as page:
        page.page.locator("[role=application]").focus()
        page.press("v")
        rows = page.page.get_by_role("option").all_inner_texts()
        assert len([row for row in rows if "module head" in row]) == 1, rows
        page.page.get_by_role("option").filter(has_text="module head").click()
        assert page.text("[aria-label=Details]").count("module head") == 1


@pytest.mark.parametrize("kind", ["boxes", "frames"])
def test_a_key_may_remove_the_box_under_the_pointer(browser: Browser, kind: str) -> None:
    # A caption needs some pixels to be drawn.
    with browser.open(layers_graph().to("html"), "#open=*", viewport={"width": 1400, "height": 1000}) as page:
        page.page.locator("[role=application]").focus()
        page.press("e")
        topmost = min(page.ask(kind), key=lambda drawn: float(drawn["y"]))
        place = page.ask("place(it)", topmost["name"])
        page.page.mouse.move(place["x"], place["y"])
        page.wait("pointed")
        page.press("0")
        page.wait("frames.length === 0")
        page.page.evaluate("new Promise((painted) => requestAnimationFrame(() => setTimeout(painted)))")
        assert page.ask("boxes")


def test_a_link_is_copied_where_there_is_one(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), permissions=["clipboard-read", "clipboard-write"]) as page:
        page.click("head")
        page.press("k")
        assert said(page) == "Copied a link to this view"
        assert page.page.evaluate("navigator.clipboard.readText()") == page.page.url
        assert "#module=head" in page.page.url
        assert "&eye=" in page.page.url
    with browser.open(layers_graph().to("html")) as page:
        page.page.evaluate(
            """html => {
                const frame = document.createElement('iframe');
                frame.srcdoc = html;
                frame.style = 'width: 900px; height: 600px';
                document.body.replaceChildren(frame);
            }""",
            layers_graph().to("html"),
        )
        (frame,) = page.page.frames[1:]
        frame.wait_for_function("() => window.gradir?.timings.picture > 0")
        frame.locator("[role=application]").focus()
        page.press("k")
        assert frame.inner_text("[role=status]") == "A view in a notebook has no link"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_empty_graph_says_so(browser: Browser, scheme: str) -> None:
    with browser.open(Graph(nodes={}).to("html"), color_scheme=scheme) as page:
        assert "This graph has no nodes" in page.text("main")
        page.page.locator("[role=application]").focus()
        page.press("e", "0", "f", "z", "ArrowDown", "Enter", "a", "l", "n", "r", "h", "o", "+")
        assert page.ask("boxes") == []
        assert not page.violations()


FRAME = """([html, style]) => {
    const frame = document.createElement('iframe');
    frame.srcdoc = html;
    frame.sandbox = 'allow-scripts allow-downloads';
    frame.style = style;
    frame.frameBorder = 0;
    document.body.replaceChildren(frame);
}"""
SEEN = "() => window.gradir?.timings.picture > 0"
STYLED = "style => { document.querySelector('iframe').style = style; }"
LARGE, SMALL = "width: 850px; height: 600px", "width: 500px; height: 400px"


def framed(page: Opened, graph: Graph, style: str) -> Any:
    """The frame of a page as in a notebook."""
    page.page.evaluate(FRAME, [graph.to("html"), style])
    return page.page.frames[-1]


def sight(frame: Any) -> tuple[Any, Any]:
    """Where the eye is, and what is open, once both stay as they are."""
    last, now = None, ()
    while last != now:
        last = now
        # The page follows a new size some frames later, how many says the machine.
        frame.evaluate(PAINTED)
        frame.page.wait_for_timeout(100)
        now = frame.evaluate("window.told.view"), frame.evaluate("window.told.opened")
    return now


@pytest.mark.parametrize("kind", ["layers", "chain", "failed"])
def test_a_grown_frame_shows_the_same_as_a_large_one(browser: Browser, kind: str) -> None:
    graph = {"layers": layers_graph, "chain": lambda: chain(16), "failed": failing_graph}[kind]()
    with browser.open(layers_graph().to("html")) as page:
        frame = framed(page, graph, LARGE)
        frame.wait_for_function(SEEN)
        wanted = sight(frame)
        assert wanted[0]["width"] == 850
        for first in ("width: 0; height: 0", "display: none", "width: 850px; height: 0", SMALL):
            frame = framed(page, graph, first)
            if first == SMALL:
                frame.wait_for_function(SEEN)
                assert sight(frame) != wanted
            page.wait_for_paint()
            page.page.evaluate(STYLED, LARGE)
            frame.wait_for_function(SEEN)
            assert sight(frame) == wanted, first


def test_a_moved_view_survives_a_resize_of_the_frame(browser: Browser) -> None:
    with browser.open(layers_graph().to("html")) as page:
        frame = framed(page, layers_graph(), LARGE)
        frame.wait_for_function(SEEN)
        page.page.mouse.move(400, 300)
        page.page.mouse.down()
        page.page.mouse.move(340, 250)
        page.page.mouse.up()
        view, opened = sight(frame)
        # A cell of a notebook that is scrolled out of sight may be hidden.
        for style in ("width: 0; height: 0", "display: none", LARGE):
            page.page.evaluate(STYLED, style)
            page.wait_for_paint()
        assert sight(frame) == (view, opened)
        page.page.evaluate(STYLED, SMALL)
        after, same = sight(frame)
        assert (after["k"], same) == (view["k"], opened)
        for at, side in (("x", "width"), ("y", "height")):
            assert after[side] < view[side]
            middle = view[at] + view[side] / 2 / view["k"]
            assert after[at] + after[side] / 2 / after["k"] == pytest.approx(middle), (
                "what was in the middle stays there"
            )


def on_screen(page: Opened, name: str) -> dict[str, float]:
    """The sides of a box in the window."""
    (box,) = [box for box in page.ask("boxes") if box["name"] == name]
    view, drawing = page.ask("view"), page.page.locator(".drawing").bounding_box()
    left = drawing["x"] + (box["x"] - view["x"]) * view["k"]
    top = drawing["y"] + (box["y"] - view["y"]) * view["k"]
    return {
        "left": left,
        "top": top,
        "right": left + box["width"] * view["k"],
        "bottom": top + box["height"] * view["k"],
    }


@pytest.mark.parametrize("cover", [".legend", ".minimap"])
def test_a_revealed_box_is_clear_of_legend_and_map(browser: Browser, cover: str) -> None:
    with browser.open(chain(40).to("html")) as page:
        covered = page.page.locator(cover).bounding_box()
        wanted = "exp:9"
        before = on_screen(page, wanted)
        # Wholly in sight but for what lies over it.
        side = "right" if cover == ".minimap" else "left"
        over = {"left": covered["x"], "right": covered["x"] + covered["width"]}[side]
        page.ask("pan(...it)", [over - before[side], covered["y"] - before["top"]])
        assert on_screen(page, wanted)[side] == pytest.approx(over)
        page.press("/")
        page.page.keyboard.type(wanted)
        page.wait(f"hits[0] === '{wanted}'")
        page.press("Enter")
        page.wait("selection.kind === 'node'")
        box, drawing = on_screen(page, wanted), page.page.locator(".drawing").bounding_box()
        assert drawing["x"] <= box["left"]
        assert drawing["y"] <= box["top"]
        for each in (".legend", ".minimap"):
            over = page.page.locator(each).bounding_box()
            assert box["bottom"] < over["y"] or box["right"] < over["x"] or box["left"] > over["x"] + over["width"]


def test_a_parameter_that_is_not_reached_is_marked_at_its_open_module(browser: Browser) -> None:
    with browser.open(layers_graph(flow=True).to("html"), "#open=head") as page:
        (stub,) = [stub for stub in page.ask("stubs") if stub["cut"] == 1]
        (frame,) = [frame for frame in page.ask("frames") if frame["name"] == "head"]
        assert (stub["box"], stub["y"]) == ("head", frame["y"] + frame["height"])
        place = page.ask("placeOfStub(1)")
        page.page.mouse.click(place["x"], place["y"])
        assert page.ask("selection") == {"kind": "cut", "name": "1"}


def test_of_a_text_four_times_as_large_nothing_covers_the_tools(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), viewport={"width": 350, "height": 225}, device_scale_factor=4) as page:
        for _ in range(2):
            assert not page.page.locator(".minimap").is_visible()
            for button in page.page.locator("header button:visible").all():
                button.click(trial=True)
            assert page.page.evaluate("document.documentElement.scrollWidth") <= 350
            page.page.get_by_role("button", name="Lists").click()
