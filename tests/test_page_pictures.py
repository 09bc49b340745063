"""Pages in a real browser: what each draws by its own model, that it is quiet and asks no host, and hostile graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import SECONDS, Browser, Opened
from example_files import GRAPHS, record_example
from first_sight import DESKTOP, PHONE, assert_readable
from hostile_texts import HOSTILE_TEXTS, graph_of
from samples import everything, hostile

import gradir
from gradir import display
from gradir.ir import Builder, Graph, TensorMeta

META = TensorMeta("float32", (2, 3))


def told(page: Opened) -> list[str]:
    """What is drawn, a thing a line, without its places."""
    return sorted(_told(page))


def _told(page: Opened) -> Iterator[str]:
    for frame in page.ask("frames"):
        yield f"frame {json.dumps(frame['name'])} depth {frame['depth']}"
    for box in page.ask("boxes"):
        times = f" times {box['times']}" if box["times"] > 1 else ""
        status = "" if box["status"] == "same" else f" {box['status']}"
        holds = f" holds {', '.join(box['holds'])}" if box["holds"] else ""
        yield f"{box['role']} {json.dumps(box['name'])} {json.dumps(box['label'])}{times}{status}{holds}"
    for edge in page.ask("edges"):
        weight = f" weight {edge['weight']}" if edge["weight"] > 1 else ""
        status = "" if edge["status"] == "same" else f" {edge['status']}"
        marked = " marked" if edge["marked"] else ""
        yield f"edge {json.dumps(edge['from'])} {json.dumps(edge['to'])}{weight}{status}{marked}"
    for stub in page.ask("stubs"):
        yield f"stub {stub['cut']} {json.dumps(stub['box'])} {'above' if stub['above'] else 'below'}"


MOST = 150
"""A picture of more boxes is nothing to read and compare."""


def picture(page: Opened) -> str:
    """What is drawn at first, and with everything open."""
    first = [*told(page)]
    page.page.locator("[role=application]").focus()
    page.press("e")
    opened = [*told(page)] if len(page.names()) <= MOST else [f"{len(page.names())} boxes"]
    return "\n".join(["at first:", *first, "", "all open:", *opened, ""])


def chains(count: int) -> Graph:
    """A stack of layers, each a few operations deep, with a parameter each and one that all share."""
    b = Builder()
    shared = b.tensor("shared", META, role="parameter")
    value = b.tensor("x", META)
    for layer in range(count):
        scope = f"layers.{layer // 100}.{layer % 100}"
        weight = b.tensor(f"{scope}.weight", META, role="parameter", scope=scope)
        for op in ("mul", "add", "tanh", "exp"):
            value = b.function(op, [value, weight if op == "mul" else shared], [META], scope=scope)
    b.output(value)
    return b.build()


def test_a_graph_that_has_everything(browser: Browser, golden: Callable[[str, str], None]) -> None:
    with browser.open(everything().to("html")) as page:
        golden("page/everything.txt", picture(page))


@pytest.mark.parametrize("spec", GRAPHS)
def test_the_examples(spec: str, browser: Browser, golden: Callable[[str, str], None]) -> None:
    pytest.importorskip("torch")
    with browser.open(record_example(spec, "--sources").to("html")) as page:
        golden(f"page/{spec.replace('.py:', '-')}.txt", picture(page))


def test_a_review_of_two_examples(browser: Browser, golden: Callable[[str, str], None]) -> None:
    pytest.importorskip("torch")
    with browser.open(gradir.diff(record_example("gpt.py:loss"), record_example("gpt.py:edited")).to("html")) as page:
        golden("page/review.txt", "\n".join([*told(page), ""]))


@pytest.mark.parametrize("graph", [hostile(), *map(graph_of, HOSTILE_TEXTS.values())], ids=["names", *HOSTILE_TEXTS])
def test_hostile_names_are_text(browser: Browser, graph: Graph) -> None:
    with browser.open(gradir.export(graph, "html", title="</title><script>alert(1)</script>\u202e")) as page:
        assert page.page.title().startswith("</title><script>alert(1)</script>")
        picture(page)
        assert page.ask("boxes")
        for name in page.names()[:40]:
            page.click(name)
        page.press("t", "m", "u")
        # The data in two blocks, the script compressed, what unpacks it, and what that makes of it.
        assert page.page.evaluate("document.scripts.length") == 5


def test_a_name_of_100_000_characters(browser: Browser) -> None:
    b = Builder()
    long = "n" * 100_000
    value = b.function(long, [b.tensor(long, META)], [META], scope=long, names=[long])
    b.output(value)
    with browser.open(b.build().to("html")) as page:
        picture(page)
        assert max(box["width"] for box in page.ask("boxes")) < 1000
        assert max(len(line) for box in page.ask("boxes") for line in box["label"]) < 1000


def test_a_graph_of_140_000_nodes(browser: Browser) -> None:
    graph = chains(28_000)
    assert len(graph.nodes) > 140_000
    with browser.open(graph.to("html"), viewport=PHONE) as page:
        assert_readable(page)
        page.page.set_viewport_size(DESKTOP)
        page.page.reload()
        assert_readable(page.is_shown())
        page.press("0")
        page.open("layers")
        page.page.keyboard.press("/")
        page.page.keyboard.type("layers.77.5")
        page.wait("hits.length > 0")
        page.page.keyboard.press("Enter")
        page.wait("selection.kind !== 'none'")


def test_20_000_siblings_with_one_weight(browser: Browser) -> None:
    b = Builder()
    shared = b.tensor("shared", META, role="parameter")
    for number in range(20_000):
        b.output(b.function("mul", [shared], [META]), str(number)) if number % 100 == 0 else b.function(
            "mul", [shared], [META]
        )
    with browser.open(b.build().to("html")) as page:
        assert page.ask("boxes")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_out_of_reach(browser: Browser, scheme: str) -> None:
    with browser.open(everything().to("html"), color_scheme=scheme) as page:
        assert page.violations() == []
        page.page.locator("[role=application]").focus()
        page.press("ArrowDown", "m")
        page.wait("selection.kind !== 'none'")
        assert page.violations() == []
        page.page.locator("[role=application]").focus()
        page.press("?")
        assert page.violations() == []


def test_a_notebook_shows_it_in_a_frame(browser: Browser) -> None:
    shown = display.mimebundle(everything())["text/html"]
    host = f"<!doctype html><script>window.gradir = {{timings: {{details: 1}}}}</script>{shown}"
    with browser.open(host) as page:
        (frame,) = page.page.frames[1:]
        frame.wait_for_function("() => window.gradir?.timings.picture > 0", timeout=SECONDS * 1000)
        assert frame.evaluate("window.told.boxes.length") > 0
        assert frame.evaluate("window.origin") == "null"


def test_without_script_it_says_so(browser: Browser) -> None:
    address = browser.write(everything().to("html"))
    within = browser._chromium.new_context(java_script_enabled=False)
    page = within.new_page()
    page.goto(address)
    assert "needs JavaScript" in page.inner_text("body")
    within.close()


def test_a_page_that_is_not_whole_says_so(browser: Browser) -> None:
    html: Any = everything().to("html").replace('id="gradir-columns"', 'id="gone"')
    address = browser.write(html)
    within = browser._chromium.new_context()
    page = within.new_page()
    page.goto(address)
    assert "the file is incomplete" in page.wait_for_selector("[role=alert]").inner_text()
    within.close()
