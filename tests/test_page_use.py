"""The page in a real browser, by mouse and keys: everything that a person can do in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import DRAWING, Browser, Opened, details, drawing
from page_graphs import failing_graph, layers_graph

import gradir
from gradir.ir import Builder, TensorMeta
from gradir.overlays import Channel, Overlay


@pytest.fixture
def page(browser: Browser) -> Iterator[Opened]:
    with browser.open(layers_graph().to("html", title="a stack")) as opened:
        yield drawing(opened)


def find(opened: Opened, words: str) -> list[str]:
    """The hits of a search."""
    field = opened.page.get_by_role("combobox", name="Search nodes and modules")
    field.fill("")
    field.type(words)
    # The page searches 40 ms after the last key: its timer is due before this one, however slow the machine.
    opened.page.evaluate("new Promise((done) => setTimeout(done, 50))")
    opened.wait("hits.length > 0")
    found: list[str] = opened.ask("hits")
    return found


def lit(opened: Opened) -> set[str]:
    return {box["name"] for box in opened.ask("boxes") if box["lit"]}


def test_modules_open_and_close(page: Opened) -> None:
    page.press("0")
    assert set(page.names()) >= {"h", "head"}
    page.open("h")
    assert "h" in page.ask("opened")
    assert {"h.0", "h.1", "h.2", "h.3"} <= {*page.names(), *(frame["name"] for frame in page.ask("frames"))}
    page.press("e")
    assert page.ask("boxes.some(({isModule}) => isModule)") is False
    page.press("1")
    depths = {frame["depth"] for frame in page.ask("frames")}
    page.press("2")
    assert depths < {frame["depth"] for frame in page.ask("frames")}
    page.click("h", click_count=2)
    page.wait("frames.every(({name}) => name !== 'h')")
    page.click("h")
    page.press("Enter")
    page.wait("frames.some(({name}) => name === 'h')")


def test_modules_of_a_path_or_a_class_open_and_close_together(page: Opened) -> None:
    page.press("0")
    for pattern in ("h.*.attn", "class:att*"):
        assert {f"h.{n}.attn" for n in range(4)} <= {*find(page, pattern)}
        for word in ("Open 4", "Close 4"):
            page.page.get_by_role("search").get_by_role("button", name=word).click()
            frames = {frame["name"] for frame in page.ask("frames")}
            assert {"h", "h.0", "h.3"} <= frames, "what holds them is open"
            assert ({"h.0.attn", "h.3.attn"} <= frames) is (word == "Open 4")
            assert "h.0.mlp" not in frames


def test_open_modules_are_drawn_whole(page: Opened) -> None:
    page.press("e", "g", "h")
    drawn = set(page.names())
    graph = layers_graph()
    page.press("i")
    assert {*page.names(), *drawn} >= {node.id for node in graph.nodes.values() if node.op != "view"}


def test_pan_zoom_and_fit(page: Opened) -> None:
    before = page.ask("view")
    page.press("+", "+")
    page.wait(f"view.k > {before['k']}")
    box = page.page.locator(DRAWING).first.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] - 20
    here = page.ask("view")
    page.page.mouse.move(*middle)
    page.page.mouse.down()
    page.page.mouse.move(middle[0] - 120, middle[1] - 90, steps=4)
    page.page.mouse.up()
    page.wait(f"view.x > {here['x']}")
    page.page.mouse.wheel(0, 240)
    page.press("Shift+ArrowRight")
    page.press("f")
    page.wait_for_paint()
    fitted = page.ask("view")
    assert (fitted["k"], fitted["x"], fitted["y"]) == pytest.approx((before["k"], before["x"], before["y"]), rel=1e-3)


def test_panning_draws_no_whole_picture_anew(page: Opened) -> None:
    page.press("e", "+")
    page.wait_for_paint()
    before = page.ask("painted")
    for _ in range(5):
        page.press("Shift+ArrowRight")
    page.wait_for_paint()
    assert page.ask("painted")["count" if "count" in before else next(iter(before))] - next(iter(before.values())) <= 5


@pytest.mark.parametrize(
    ("words", "hit"),
    [
        ("h.2.mlp/gelu", "h.2.mlp/gelu:1"),
        ("softmax", "h.0.attn/softmax:1"),
        ("Linear", "head"),
        ("head.weight", "head.weight"),
        ("net.py:41", "h.0.mlp/mm:1"),
        ("h.3.attn", "h.3.attn"),
    ],
)
def test_search_finds_ids_names_operations_classes_and_lines(page: Opened, words: str, hit: str) -> None:
    assert hit in find(page, words)[:12]


def test_search_finds_labels_of_the_outline(page: Opened) -> None:
    for row, hit in (("mm float32[4, 8]", "h.0.attn/mm:1"), ("● weight float32[8, 8]", "head.weight")):
        assert hit in find(page, row.removeprefix("● ")), row
    assert find(page, "head: Linear")[0] == "head"
    # No regular expression: what is wrong is said, and nothing is broken.
    assert {*find(page, "op:/^(gelu|softmax)$/ in:h.1")} == {"h.1.attn/softmax:1", "h.1.mlp/gelu:1"}
    field = page.page.get_by_role("combobox", name="Search nodes and modules")
    field.fill("/(/")
    page.page.get_by_text("Invalid regular expression").first.wait_for()
    assert page.ask("hits") == []
    page.page.keyboard.press("Enter")


def test_the_help_shows_the_fields_of_a_search(page: Opened) -> None:
    page.press("?")
    said = page.text("dialog")
    assert all(f"{field}:" in said for field in ("id", "name", "op", "class", "dtype", "shape", "source", "in"))
    assert "/add|mul/" in said


def test_a_hit_is_selected_and_brought_into_view(page: Opened) -> None:
    page.press("0", "/")
    hits = find(page, "h.2.mlp/gelu")
    page.page.keyboard.press("Enter")
    page.wait("selection.kind === 'node'")
    assert page.ask("selection")["name"] == hits[0] == "h.2.mlp/gelu:1"
    assert page.ask("place(it)", "h.2.mlp/gelu:1") is not None


def test_everything_that_the_file_knows_of_a_node(page: Opened) -> None:
    find(page, "h.1.attn/mm")
    page.page.keyboard.press("Enter")
    page.wait("selection.kind === 'node'")
    said = details(page)
    for words in ("MmBackward0", "net.py:40 in forward", "scale", "0.5", "self_sym_sizes", "[4, 8]", "128 B"):
        assert words in said, words
    assert "h.1.attn.weight" in said, "the storage that is kept"
    assert "h.1.attn/view:1" in said, "an input"
    assert "h.1.attn/softmax:1" in said, "a consumer"
    page.page.get_by_role("button", name="Copy id").click()
    page.page.get_by_label("Details").get_by_role("button", name="h.1.attn/softmax:1").click()
    assert page.ask("selection")["name"] == "h.1.attn/softmax:1"
    drawing(page).press("ArrowUp")
    assert page.ask("selection")["name"] == "h.1.attn/mm:1"
    page.press("ArrowDown")
    assert page.ask("selection")["name"] == "h.1.attn/softmax:1"


def test_paths_ancestors_and_descendants(page: Opened) -> None:
    page.press("e")
    find(page, "h.2.attn/softmax")
    page.page.keyboard.press("Enter")
    drawing(page).press("a")
    ancestors = lit(page)
    assert "h.0.mlp/gelu:1" in ancestors
    assert not {"h.3.mlp/gelu:1", "sum:1"} & ancestors
    page.press("d")
    descendants = lit(page)
    assert {"h.3.mlp/gelu:1", "sum:1"} <= descendants
    assert "h.0.mlp/gelu:1" not in descendants
    page.press("l")
    assert lit(page) <= descendants
    assert "sum:1" in lit(page)
    page.press("Escape")
    assert page.ask("boxes.every(({lit}) => lit === null || lit)")


def test_colours_have_a_legend(page: Opened) -> None:
    seen = {}
    for _ in range(8):
        seen[page.ask("colour")] = [entry["words"] for entry in page.ask("legend")]
        page.press("w")
    assert [*seen] == ["class", "role", "saved"]
    assert all(words for words in seen.values())


def test_an_overlay_is_a_colour_of_its_own(browser: Browser) -> None:
    graph = layers_graph()
    overlay = Overlay(
        (Channel("gradient", {"head.weight": 0.5, "h.0.attn.weight": "zero"}, "norm", looks={"zero": "alarm"}),)
    )
    with browser.open(gradir.export(graph, "html", overlay=overlay)) as page:
        drawing(page).press("e")
        assert "gradient" in page.text("main")
        assert {"x zero"} & {entry["words"] for entry in page.ask("legend")}


@pytest.mark.parametrize(("channel", "first"), [("", "norm"), ("status", "status")])
def test_every_channel_of_an_overlay_is_a_colour(browser: Browser, channel: str, first: str) -> None:
    overlay = Overlay(
        (
            Channel("norm", {f"h.{layer}.attn/mm:1": float(layer) for layer in range(4)}),
            Channel("status", {"head/mm:1": "lost"}, looks={"lost": "alarm"}),
        )
    )
    with browser.open(gradir.export(layers_graph(), "html", overlay=overlay, channel=channel, rollup=True)) as page:
        (other,) = {"norm", "status"} - {first}
        assert page.ask("colour") == f"overlay:{first}"
        assert page.text("header select").splitlines()[:2] == [f"Colour: {first}", f"Colour: {other}"]
        drawing(page).press("w", "e")
        assert page.ask("colour") == f"overlay:{other}"
        fills = {box["name"]: box["fill"] for box in page.ask("boxes")}
        page.press("w", "w", "w", "w")
        fills |= {box["name"]: box["fill"] for box in page.ask("boxes") if box["fill"].startswith(("look", "scale"))}
        assert fills["head/mm:1"] == "look-alarm"
        assert fills["h.0-3.attn/mm:1"] == "scale-20", "of one number the middle"
        page.click("h.0-3.attn/mm:1")
        assert "at most 3" in details(page)


def test_an_overlay_colours_the_box_that_a_parameter_is_written_in(browser: Browser) -> None:
    values = {f"h.{layer}.attn.weight": "lost" if layer == 1 else "reached" for layer in range(4)}
    looks: Any = {"lost": "alarm", "reached": "good"}
    overlay = Overlay((Channel("status", values, looks=looks),))
    with browser.open(gradir.export(layers_graph(), "html", overlay=overlay), "#open=*&on=inline") as page:
        fills = {box["name"]: box["fill"] for box in page.ask("boxes")}
        assert (fills["h.0.attn/mm:1"], fills["h.1.attn/mm:1"]) == ("look-good", "look-alarm")
        assert fills["h.1.mlp/mm:1"] == "plain"


def test_equal_layers_are_drawn_once(page: Opened) -> None:
    page.press("0")
    page.open("h")
    page.press("r")
    page.wait("boxes.some(({times}) => times === 4) || frames.length > 0")
    times = {box["times"] for box in page.ask("boxes")}
    assert 4 in times
    page.press("r")
    assert {box["times"] for box in page.ask("boxes")} == {1}


def test_shape_operations_and_parameters_are_switches(page: Opened) -> None:
    page.press("e")
    if "h.0.attn/view:1" not in page.names():
        page.press("h")
    assert "h.0.attn/view:1" in page.names()
    page.press("h")
    assert "h.0.attn/view:1" not in page.names()
    edges = {(edge["from"], edge["to"]) for edge in page.ask("edges")}
    assert ("x", "h.0.attn/mm:1") in edges
    before = len(page.names())
    page.press("i")
    assert abs(len(page.names()) - before) >= 8


def test_the_table_of_modules_follows_the_drawing(page: Opened) -> None:
    page.press("m")
    grid = page.page.get_by_role("grid", name="Modules")
    grid.get_by_role("row").filter(has_text="head").first.click()
    assert page.ask("selection") == {"kind": "module", "name": "head"}
    grid.get_by_role("button", name="Saved").click()
    first = grid.get_by_role("row").nth(1).inner_text()
    assert first.startswith("h"), first
    assert "1.0 kB" in grid.inner_text() or "kB" in grid.inner_text()


def test_the_table_has_equal_layers_once_with_what_they_come_to(page: Opened) -> None:
    page.press("m")
    rows = page.page.get_by_role("grid", name="Modules").get_by_role("row")
    assert rows.count() == 1 + 14
    page.press("r")
    page.wait("switches.rollUp")
    told = [row.split("\n") for row in rows.all_inner_texts()[1:]]
    assert [(row[0], row[1]) for row in told] == [
        ("h", "ModuleList"),
        ("h.0", "Block ×4"),
        ("h.0.attn", "ATTN ×4"),
        ("h.0.mlp", "MLP ×4"),
        ("head", "Linear"),
    ]
    assert told[1][-2] == "512", "parameters"
    page.press("r")
    assert rows.count() == 1 + 14


def test_all_modules_of_a_class_open_and_close_together(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), "#open=h.0,h.1,h.2,h.3") as page:
        page.click("h.1.attn")
        every = [f"h.{layer}.attn" for layer in range(4)]
        for word, is_open in (("Open", True), ("Close", False)):
            page.page.get_by_role("button", name=f"{word} all ATTN").click()
            assert {name for name in page.ask("opened") if name.endswith("attn")} == ({*every} if is_open else set())
        assert {*every} <= {*page.names()}


def test_the_outline_is_a_tree_for_keys(page: Opened) -> None:
    page.press("t")
    tree = page.page.get_by_role("tree", name="Outline of the graph")
    assert tree.get_by_role("treeitem").first.get_attribute("aria-level") == "1"
    page.page.get_by_role("tab", name="Outline").focus()
    page.page.keyboard.press("Tab")
    page.press("ArrowDown", "ArrowRight", "ArrowDown", "Enter")
    assert page.ask("selection")["kind"] in {"module", "node"}
    find(page, "head.weight")
    page.page.keyboard.press("Enter")
    page.wait("selection.kind === 'node'")
    # The module that holds it stands above.
    assert "weight float32[8, 8]" in tree.get_by_role("treeitem", selected=True).inner_text()
    assert "head." not in tree.inner_text()


def test_a_link_brings_the_view_back(page: Opened, browser: Browser) -> None:
    page.press("0")
    page.open("h")
    find(page, "head.weight")
    page.page.keyboard.press("Enter")
    page.wait("selection.kind === 'node'")
    address = page.page.url
    assert "#" in address
    assert "node=head.weight" in address
    state = page.ask("opened"), page.ask("selection")
    with browser.open(layers_graph().to("html", title="a stack"), "#" + address.partition("#")[2]) as again:
        assert (again.ask("opened"), again.ask("selection")) == state


@pytest.mark.parametrize(
    "link", ["#node=", "#node=nothing&open=%", "#open=\x00&colour=x&on=y&follow=z&sides=1", "#" + "a=" * 5000]
)
def test_a_broken_link_is_no_trouble(browser: Browser, link: str) -> None:
    with browser.open(layers_graph().to("html"), link) as page:
        assert page.ask("boxes")


@pytest.mark.parametrize(("key", "head"), [("s", b"<svg"), ("Shift+S", b"\x89PNG")])
def test_the_visible_drawing_is_saved(page: Opened, key: str, head: bytes) -> None:
    with page.page.expect_download() as download:
        page.press(key)
    data = Path(download.value.path()).read_bytes()
    assert head in data[:200]
    if head == b"<svg":
        assert b"<title>" in data
        assert all(box["label"][0].encode() in data for box in page.ask("boxes"))


def test_cuts_are_stubs_and_unreached_parameters_lead_to_them(browser: Browser) -> None:
    with browser.open(layers_graph(flow=True).to("html")) as page:
        drawing(page).press("e")
        (stub,) = [stub for stub in page.ask("stubs") if stub["cut"] == 0]
        assert stub["box"] == "head/mm:1"
        page.press(*"-----")
        place = page.ask("placeOfStub(0)")
        page.page.mouse.click(place["x"], place["y"])
        assert page.ask("selection") == {"kind": "cut", "name": "0"}
        said = details(page)
        assert "detach() cuts lost.weight" in said
        assert "take detach() out of this line" in said
        assert "net.py:77 in forward" in said
        drawing(page).press("u")
        page.page.get_by_role("option").filter(has_text="lost.weight").first.click()
        assert page.ask("selection")["kind"] == "cut"


def test_a_forward_that_raised_ends_at_the_operation(browser: Browser) -> None:
    with browser.open(failing_graph().to("html")) as page:
        drawing(page).press("e")
        (box,) = [box for box in page.ask("boxes") if box["failed"]]
        page.click(box["name"])
        said = details(page)
        assert "sizes 4 and 8 differ" in said
        assert "net.py:9 in forward" in said


def test_fit_leaves_room_for_the_legend(browser: Browser) -> None:
    b, meta = Builder(), TensorMeta("float32", (4, 8))
    for column in range(8):
        value = b.tensor(f"x{column}", meta, role="input")
        for _ in range(12):
            value = b.function("exp", [value], [meta])
        b.output(value, str(column))
    with browser.open(b.build().to("html")) as page:
        drawing(page).press("f")
        page.wait_for_paint()
        legend = page.page.locator(".legend").bounding_box()
        assert legend is not None
        for box in page.ask("boxes"):
            place = page.ask("place(it)", box["name"])
            assert place["x"] > legend["x"] + legend["width"] or place["y"] < legend["y"]


def test_help_names_every_key(page: Opened) -> None:
    page.press("?")
    said = page.text("dialog")
    for words in ("search", "open all", "ancestors", "SVG", "colour"):
        assert words in said
    page.press("Escape")
    assert page.page.locator("dialog[open]").count() == 0
