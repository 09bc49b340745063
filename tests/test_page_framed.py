"""The page in a frame of another page, such as a notebook."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import pytest
from browser import DRAWING, Browser
from page_graphs import layered

import gradir

AROUND = """<!doctype html><html lang="en"><title>around</title><body style="margin:0">
<p style="height:200px">before</p>
<iframe srcdoc="{page}" title="graph" width="100%" height="600" frameborder="0"
sandbox="allow-scripts allow-downloads"></iframe>
<p style="height:3000px">after</p></body></html>"""


def zoom(frame: Any) -> float:
    found: float = frame.evaluate("window.gradir.page.stage.camera.k")
    return found


@pytest.mark.parametrize("is_review", [False, True])
def test_the_wheel_scrolls_the_document_around_and_ctrl_zooms(
    browser: Browser, tmp_path: Path, is_review: bool
) -> None:
    graph = layered()
    html = gradir.diff(graph, layered(5)).to("html") if is_review else graph.to("html")
    document = tmp_path / "around.html"
    document.write_text(AROUND.format(page=escape(html)), encoding="utf-8")
    with browser.visited(document, viewport={"width": 1280, "height": 800}) as opened:
        outer = opened.page
        frame = outer.frames[1]
        frame.wait_for_function("() => window.gradir && window.gradir.timings.picture > 0")
        place = frame.locator(DRAWING).first.bounding_box()
        outer.mouse.move(place["x"] + place["width"] / 2, place["y"] + 100)
        before = zoom(frame)
        outer.mouse.wheel(0, 120)
        outer.wait_for_function("() => scrollY > 0")
        assert zoom(frame) == before
        assert frame.locator(".tip").first.inner_text() == "Ctrl and wheel zoom"
        scrolled = outer.evaluate("scrollY")
        outer.keyboard.down("Control")
        outer.mouse.wheel(0, -120)
        outer.keyboard.up("Control")
        frame.wait_for_function("before => window.gradir.page.stage.camera.k > before", arg=before)
        assert outer.evaluate("scrollY") == scrolled
        frame.locator(DRAWING).first.press("?")
        assert "Ctrl and wheel to zoom" in frame.locator("dialog").inner_text()


def test_in_a_window_of_its_own_the_wheel_zooms(browser: Browser) -> None:
    with browser.opened(layered().to("html")) as page:
        place = page.page.locator(DRAWING).first.bounding_box()
        page.page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
        before = page.ask("view")["k"]
        page.page.mouse.wheel(0, -240)
        page.until(f"view.k > {before}")
