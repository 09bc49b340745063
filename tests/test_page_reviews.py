"""The page of a diff in a real browser: what is open, the list of changes, before and after."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, Opened, details, drawing
from msgspec.structs import replace
from page_graphs import META, WEIGHT, change_layers, failing_graph, layers_graph

import gradir
from gradir.ir import Builder, Cut, Graph, Saved, Scope, Source, TensorMeta


@pytest.fixture
def review(browser: Browser) -> Iterator[Opened]:
    before = layers_graph()
    with browser.open(gradir.diff(before, change_layers(before)).to("html")) as opened:
        yield drawing(opened)


def test_a_diff_opens_only_changed_modules(review: Opened) -> None:
    assert {"h.0.mlp", "h.3.mlp"} <= {frame["name"] for frame in review.ask("frames")}
    boxes = {box["name"]: box for box in review.ask("boxes")}
    assert {"h.0.attn", "head", "head#2"} <= {*boxes}
    assert boxes["h.0.mlp/gelu:1"]["status"] == "changed"
    assert boxes["h.0.attn"]["holds"] == []
    review.press("0")
    closed = {box["name"]: box for box in review.ask("boxes")}
    assert closed["h"]["holds"] == ["changed"]
    assert closed["head#2"]["status"] == "added"


def test_the_changes_are_listed_with_both_values(review: Opened) -> None:
    review.press("v")
    rows = review.page.get_by_role("listbox", name="Changes")
    assert "the same 2 changes" in rows.inner_text() or "the same change" in rows.inner_text()
    rows.get_by_role("option").filter(has_text="relu").first.click()
    said = details(review)
    for words in ("op", "gelu", "relu"):
        assert words in said
    drawing(review).press("n")
    # The heading names the module.
    assert "gelu:1" in rows.inner_text()
    assert "h.0.mlp/gelu:1" not in rows.inner_text()
    first = review.ask("selection")
    review.press("n")
    assert review.ask("selection") != first
    review.press("p")
    assert review.ask("selection") == first


def test_before_and_after_are_side_by_side(review: Opened) -> None:
    review.press("b")
    assert review.ask("sides") is True
    assert review.page.get_by_text("before", exact=True).count() >= 1
    review.press("b")
    assert review.ask("sides") is False


def test_the_side_before_says_what_was(review: Opened) -> None:
    assert "gelu \u2192 relu" in drawn_text(review)
    assert "gelu" not in drawn_text(review)
    review.press("b")
    said = drawn_text(review)
    assert "gelu" in said
    assert "relu" not in said


def test_a_closed_module_shows_its_former_size(browser: Browser) -> None:
    before, after = grown(8), grown(16)
    with browser.open(gradir.diff(before, after).to("html")) as page:
        drawing(page).press("0")
        now = ["float32 [4, 16]", "128 parameters \u00b7 64 B saved"]
        assert now == [words for words in drawn_text(page) if words in now]
        page.press("b")
        said = drawn_text(page)
        assert "float32 [4, 8]" in said
        assert "64 parameters \u00b7 32 B saved" in said
        assert not {*now} & {*said}


def grown(wide: int) -> Graph:
    """A module with a weight and what it saves, as wide as that, by another operation each."""
    b = Builder()
    meta, of_weight = TensorMeta("float32", (4, wide)), TensorMeta("float32", (8, wide))
    weight = b.tensor("fc.weight", of_weight, role="parameter", scope="fc")
    x = b.tensor("x", TensorMeta("float32", (4, 8)))
    slot = Saved("self", "float32", (wide,), 4 * wide)
    made = b.function("mm", [x, weight], [meta], scope="fc")
    b.output(b.function("sum", [b.function(f"act{wide}", [made], [meta], scope="fc", saved=[(slot, None)])], [META]))
    return b.build(scopes=[Scope("fc", "Linear", calls=1, total=8 * wide, own=8 * wide, trainable=8 * wide)])


def drawn_text(opened: Opened) -> list[str]:
    """What is written in the drawing, on the left side of two."""
    with opened.page.expect_download() as download:
        opened.press("s")
    return re.findall(r"<text[^>]*>([^<]*)", Path(download.value.path()).read_text(encoding="utf-8"))


def test_a_large_review_begins_at_a_change_that_can_be_read(browser: Browser) -> None:
    before = layers_graph(40)
    graph = gradir.diff(before, change_layers(before)).to("html")
    with browser.open(graph, viewport={"width": 1000, "height": 500}) as page:
        view = page.ask("view")
        assert 12 * view["k"] >= 5
        right, bottom = (view[at] + view[size] / view["k"] for at, size in (("x", "width"), ("y", "height")))
        first = min((box for box in page.ask("boxes") if box["status"] != "same"), key=lambda box: float(box["y"]))
        assert view["x"] <= first["x"] <= right
        assert view["y"] <= first["y"] <= bottom
        drawing(page).press("f")
        page.wait_for_paint()
        assert page.ask("view")["k"] < view["k"]


def test_a_lost_input_is_listed_first_in_sight_and_a_click_away(browser: Browser) -> None:
    def model(op: str, *, is_cut: bool) -> Graph:
        b = Builder()
        x = value = b.tensor("x", TensorMeta("float32", (2, 3)))
        for at in range(40):
            value = b.function(op if at == 0 else "tanh", [value], [TensorMeta("float32", (2, 3))], scope=f"h.{at}")
        value = b.function("add", [value, None if is_cut else x], [TensorMeta("float32", (2, 3))])
        b.output(value)
        return b.build()

    page_of_diff = gradir.diff(model("tanh", is_cut=False), model("relu", is_cut=True)).to("html")
    with browser.open(page_of_diff, viewport={"width": 1000, "height": 500}) as page:
        assert page.text(".verdict").startswith("\u2715 1 lost input: in[1] of add:1 in (top level);")
        view = page.ask("view")
        box = next(each for each in page.ask("boxes") if each["name"] == "add:1")
        assert view["x"] <= box["x"] <= view["x"] + view["width"] / view["k"]
        assert view["y"] <= box["y"] <= view["y"] + view["height"] / view["k"]
        page.page.locator(".verdict button").click()
        assert page.ask("selection") == {"kind": "change", "name": "0"}
        assert "in[1]" in details(page)


def test_stubs_of_one_box_that_say_the_same_say_it_once(browser: Browser) -> None:
    graph = layers_graph(flow=True)
    more = tuple(replace(graph.cuts[-1], names=(f"lost.{number}",)) for number in range(2))
    for cuts, words in ((graph.cuts, "unreached"), (graph.cuts + more, "unreached \u00d73")):
        with browser.open(replace(graph, cuts=cuts).to("html")) as page:
            assert [text for text in drawn_text(drawing(page)) if text.startswith("unreached")] == [words]


def test_the_side_before_has_no_cut_that_was_added(browser: Browser) -> None:
    before = layers_graph()
    lost = Cut("unreached", ("head.weight",), "head", WEIGHT)
    nodes = {key: node for key, node in before.nodes.items() if key != "head.weight"}
    nodes["head/mm:1"] = replace(nodes["head/mm:1"], inputs=(nodes["head/mm:1"].inputs[0], None), saved=())
    after = replace(before, nodes=nodes, cuts=(lost,))
    with browser.open(gradir.diff(before, after).to("html"), "#open=head") as page:
        drawing(page)
        assert "unreached" in drawn_text(page)
        page.press("b")
        assert "unreached" not in drawn_text(page)


DETACH = "detach net.py:7"


def test_added_and_removed_cuts_are_those_of_the_diff(browser: Browser) -> None:
    """No node of these parameters went or came: what the diff says of the cuts is all that tells."""
    base = layers_graph()
    place = Cut("detach", (), "head", op="detach", source=Source("net.py", 7), into="head/mm:1", slot=0)
    lost = Cut("unreached", ("head.scale",), "head", WEIGHT)
    one, other = replace(base, cuts=(lost,)), replace(base, cuts=(place,))
    for before, after, came, went in ((one, other, DETACH, "unreached"), (other, one, "unreached", DETACH)):
        with browser.open(gradir.diff(before, after).to("html"), "#open=head") as page:
            drawing(page)
            both = drawn_text(page)
            assert came in both
            assert f"\u2212 {went}" in both
            page.press("b")
            assert came not in drawn_text(page)
            assert f"\u2212 {went}" in drawn_text(page)
            after_side = page.ask("drawings[1].hidden")
            assert after_side == 1 << 2
            page.press("b", "u")
            rows = page.page.get_by_role("listbox", name="Parameters without gradient")
            assert "\u2212 removed" in rows.inner_text()
            assert "+ added" in rows.inner_text()


def test_the_stub_of_a_module_that_is_removed_is_removed_too(browser: Browser) -> None:
    """A cut that both graphs have is drawn on the side alone that has its box."""
    base = layers_graph()
    stays = replace(base, cuts=(Cut("detach", (), "head", op="detach", at="head/exp:1", source=Source("net.py", 7)),))
    after = change_layers(stays)
    with browser.open(gradir.diff(stays, after).to("html"), "#open=head") as page:
        drawing(page)
        assert DETACH in drawn_text(page)
        page.press("b")
        assert DETACH not in drawn_text(page)


def test_the_words_before_and_after_are_above_the_drawings(review: Opened) -> None:
    review.press("b")
    for words in ("before", "after"):
        word = review.page.locator(".stage > p").get_by_text(words, exact=True).bounding_box()
        drawings = [each.bounding_box() for each in review.page.locator(".drawing").all()]
        assert all(word["y"] + word["height"] <= each["y"] + 0.5 for each in drawings)
    review.press("b")
    assert review.page.locator(".stage > p").count() == 0


def test_a_selection_is_whole_on_both_sides(browser: Browser) -> None:
    before = layers_graph()
    html = gradir.diff(before, change_layers(before)).to("html")
    with browser.open(html, viewport={"width": 1000, "height": 700}) as page:
        drawing(page).press("n", "n", "n")
        box = next(box for box in page.ask("boxes") if box["status"] == "added")
        view = page.ask("view")
        # At the right edge, where one side of two has no room for it.
        left = box["x"] + box["width"] + 9 - view["width"] / view["k"]
        page.ask("move(it)", {**view, "x": left})
        page.press("b")
        page.wait_for_paint()
        view = page.ask("view")
        assert view["x"] <= box["x"]
        assert box["x"] + box["width"] <= view["x"] + view["width"] / view["k"]


@pytest.mark.parametrize("key", ["s", "S"])
def test_both_sides_are_saved(review: Opened, key: str) -> None:
    saved: list[str] = []
    review.page.on("download", lambda download: saved.append(download.suggested_filename))
    review.press("b", key)
    review.page.get_by_role("status").filter(has_text="Saved").wait_for(state="attached")
    assert [name.rpartition(".")[0].rpartition("-")[2] for name in saved] == ["before", "after"]


@pytest.mark.parametrize("width", [1400, 700])
def test_the_first_picture_shows_the_error_and_its_line(browser: Browser, width: int) -> None:
    with browser.open(failing_graph().to("html"), viewport={"width": width, "height": 600}) as page:
        for words in ("\u2715 sizes 4 and 8 differ", "net.py:9 in forward"):
            page.page.get_by_label("Details").get_by_text(words).wait_for(state="visible")
