"""The page of a diff in a real browser: what is open, the list of changes, before and after."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, Opened, details, drawing
from msgspec.structs import replace
from page_graphs import WEIGHT, changed, layered

import gradir
from gradir.ir import Cut


@pytest.fixture
def review(browser: Browser) -> Iterator[Opened]:
    before = layered()
    with browser.opened(gradir.diff(before, changed(before)).to("html")) as opened:
        yield drawing(opened)


def test_a_diff_opens_what_changed_only(review: Opened) -> None:
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


def test_before_and_after_stand_side_by_side(review: Opened) -> None:
    review.press("b")
    assert review.ask("sides") is True
    assert review.page.get_by_text("before", exact=True).count() >= 1
    review.press("b")
    assert review.ask("sides") is False


def test_the_side_before_says_what_was(review: Opened) -> None:
    assert ["gelu" in line for line in drawn_text(review)].count(True) == 0
    review.press("b")
    said = drawn_text(review)
    assert "gelu" in said
    assert "relu" not in said


def drawn_text(opened: Opened) -> list[str]:
    """What is written in the drawing, on the left side of two."""
    with opened.page.expect_download() as download:
        opened.press("s")
    return re.findall(r"<text[^>]*>([^<]*)", Path(download.value.path()).read_text(encoding="utf-8"))


def test_a_large_review_begins_at_a_change_that_can_be_read(browser: Browser) -> None:
    before = layered(40)
    graph = gradir.diff(before, changed(before)).to("html")
    with browser.opened(graph, viewport={"width": 1000, "height": 500}) as page:
        view = page.ask("view")
        assert 12 * view["k"] >= 5
        right, bottom = (view[at] + view[size] / view["k"] for at, size in (("x", "width"), ("y", "height")))
        first = next(box for box in page.ask("boxes") if box["status"] != "same")
        assert view["x"] <= first["x"] <= right
        assert view["y"] <= first["y"] <= bottom
        drawing(page).press("f")
        page.page.wait_for_timeout(400)
        assert page.ask("view")["k"] < view["k"]


def test_stubs_of_one_box_that_say_the_same_say_it_once(browser: Browser) -> None:
    graph = layered(flow=True)
    more = tuple(replace(graph.cuts[-1], names=(f"lost.{number}",)) for number in range(2))
    for cuts, words in ((graph.cuts, "unreached"), (graph.cuts + more, "unreached \u00d73")):
        with browser.opened(replace(graph, cuts=cuts).to("html")) as page:
            assert [text for text in drawn_text(drawing(page)) if text.startswith("unreached")] == [words]


def test_the_side_before_has_no_cut_that_came(browser: Browser) -> None:
    before = layered()
    lost = Cut("unreached", ("head.weight",), "head", WEIGHT)
    nodes = {key: node for key, node in before.nodes.items() if key != "head.weight"}
    nodes["head/mm:1"] = replace(nodes["head/mm:1"], inputs=(nodes["head/mm:1"].inputs[0], None), saved=())
    after = replace(before, nodes=nodes, cuts=(lost,))
    with browser.opened(gradir.diff(before, after).to("html"), "#open=head") as page:
        drawing(page)
        assert "unreached" in drawn_text(page)
        page.press("b")
        assert "unreached" not in drawn_text(page)


def test_what_is_selected_is_whole_on_both_sides(browser: Browser) -> None:
    before = layered()
    html = gradir.diff(before, changed(before)).to("html")
    with browser.opened(html, viewport={"width": 1000, "height": 700}) as page:
        drawing(page).press("n", "n", "n")
        box = next(box for box in page.ask("boxes") if box["status"] == "added")
        view = page.ask("view")
        # At the right edge, where one side of two has no room for it.
        left = box["x"] + box["width"] + 9 - view["width"] / view["k"]
        page.page.evaluate("it => gradir.page.stage.move(it)", {**view, "x": left})
        page.press("b")
        page.page.wait_for_timeout(200)
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
