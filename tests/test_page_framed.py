"""The page in a frame of another page, such as a notebook."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import pytest
from browser import DRAWING, Browser
from page_graphs import layers_graph

import gradir

AROUND = """<!doctype html><html lang="en"><title>around</title><body style="margin:0">
<p style="height:200px">before</p>
<iframe srcdoc="{page}" title="graph" width="100%" height="600" frameborder="0"
sandbox="allow-scripts allow-downloads"></iframe>
<p style="height:3000px">after</p></body></html>"""


SETTLED = """new Promise((done) => {
    const look = (last) => setTimeout(() => (scrollY === last ? done(last) : look(scrollY)), 100);
    look(-1);
})"""


def zoom(frame: Any) -> float:
    found: float = frame.evaluate("told.view.k")
    return found


@pytest.mark.parametrize("is_review", [False, True])
def test_the_wheel_scrolls_the_document_around_and_ctrl_zooms(
    browser: Browser, tmp_path: Path, is_review: bool
) -> None:
    graph = layers_graph()
    html = gradir.diff(graph, layers_graph(5)).to("html") if is_review else graph.to("html")
    document = tmp_path / "around.html"
    document.write_text(AROUND.format(page=escape(html)), encoding="utf-8")
    with browser.visit(document, viewport={"width": 1280, "height": 800}) as opened:
        outer = opened.page
        frame = outer.frames[1]
        frame.wait_for_function("() => window.gradir && window.gradir.timings.picture > 0")
        place = frame.locator(DRAWING).first.bounding_box()
        outer.mouse.move(place["x"] + place["width"] / 2, place["y"] + 100)
        before = zoom(frame)
        outer.mouse.wheel(0, 120)
        outer.wait_for_function("() => scrollY > 0")
        assert zoom(frame) == before
        assert frame.locator(".tip").first.inner_text() == "Ctrl and wheel or two fingers zoom"
        scrolled = outer.evaluate("scrollY")
        outer.keyboard.down("Control")
        outer.mouse.wheel(0, -120)
        outer.keyboard.up("Control")
        frame.wait_for_function("before => told.view.k > before", arg=before)
        assert outer.evaluate("scrollY") == scrolled
        frame.locator(DRAWING).first.press("?")
        assert "Ctrl and wheel to zoom" in frame.locator("dialog").inner_text()


def test_one_finger_scrolls_the_document_around_and_two_move_the_drawing(browser: Browser, tmp_path: Path) -> None:
    document = tmp_path / "around.html"
    document.write_text(AROUND.format(page=escape(layers_graph().to("html"))), encoding="utf-8")
    with browser.visit(document, viewport={"width": 390, "height": 844}, has_touch=True) as opened:
        outer = opened.page
        frame = outer.frames[1]
        frame.wait_for_function("() => window.gradir && window.gradir.timings.picture > 0")
        fingers = outer.context.new_cdp_session(outer)

        def touch(kind: str, *places: tuple[int, int]) -> None:
            points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
            fingers.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})

        camera = "told.view"
        before = frame.evaluate(camera)
        touch("Start", (200, 600))
        for y in range(590, 480, -10):
            touch("Move", (200, y))
        touch("End")
        outer.wait_for_function("() => scrollY > 0")
        assert frame.evaluate(camera) == before
        assert frame.locator(".tip").first.text_content() == "Ctrl and wheel or two fingers zoom"
        scrolled = outer.evaluate(SETTLED)
        touch("Start", (150, 500))
        touch("Start", (150, 500), (250, 500))
        for step in range(0, 60, 10):
            touch("Move", (150 - step, 500 - step), (250 + step, 500 - step))
        touch("End")
        assert frame.evaluate(camera)["k"] > before["k"] * 1.5
        assert outer.evaluate("scrollY") == scrolled


def test_in_a_window_of_its_own_the_wheel_zooms(browser: Browser) -> None:
    with browser.open(layers_graph().to("html")) as page:
        place = page.page.locator(DRAWING).first.bounding_box()
        page.page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
        before = page.ask("view")["k"]
        page.page.mouse.wheel(0, -240)
        page.wait(f"view.k > {before}")
