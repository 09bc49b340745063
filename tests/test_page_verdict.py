"""The verdict of an overlay on the page, in a real browser: where it is, how it looks, and that it stays text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Opened, details, drawing
from msgspec.structs import replace
from page_graphs import META, change_layers, failing_graph, layers_graph

import gradir
from gradir.explanations.from_cuts import explain_cuts
from gradir.ir import Cut, Graph, Node, Ref
from gradir.ir.text import escape_unprintable
from gradir.overlays import Channel, Overlay
from gradir.passes import around

SENTENCE = "2 of 4 parameters get no gradient: detach() cuts all of encoder (net.py:9 in Net.forward)."
CHANNELS = (Channel("status", {"head.weight": "reached"}, looks={"reached": "good"}),)
HOSTILE = '<img src=x onerror="alert(1)"></script><b>"&amp;\x1b[31m\u202e\n\x00{{7*7}}'
WIDE = {"width": 1400, "height": 900}
NARROW = {"width": 390, "height": 800}


def page_of(verdict: str = SENTENCE, look: Any = "alarm", **options: Any) -> str:
    return gradir.export(layers_graph(), "html", overlay=Overlay(CHANNELS, verdict, look), **options)


def place(page: Opened, selector: str) -> Any:
    return page.page.locator(selector).first.bounding_box()


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_verdict_is_above_the_drawing(browser: Browser, scheme: str, viewport: dict[str, int]) -> None:
    with browser.open(page_of(), color_scheme=scheme, viewport=viewport) as page:
        assert page.text(".verdict") == f"✕ {SENTENCE}"
        line, below = place(page, ".verdict"), place(page, "main")
        assert line["y"] + line["height"] <= below["y"]
        assert below["height"] > viewport["height"] / 2
        assert line["width"] > viewport["width"] * 0.9
        # It wraps where it has no room.
        assert (line["height"] > 40) == (viewport is NARROW)
        ground, alarm = page.page.evaluate(
            """() => {
                const line = document.querySelector('.verdict');
                const swatch = document.createElement('i');
                swatch.style.background = 'var(--look-alarm)';
                line.append(swatch);
                return [line, swatch].map((each) => getComputedStyle(each).backgroundColor);
            }"""
        )
        assert ground == alarm
        assert not page.violations()


@pytest.mark.parametrize(("look", "sign"), [("caution", "! "), ("quiet", ""), ("good", "")])
def test_the_sign_is_that_of_the_look(browser: Browser, look: str, sign: str) -> None:
    with browser.open(page_of("All parameters get a gradient.", look)) as page:
        assert page.text(".verdict") == f"{sign}All parameters get a gradient."


def test_a_screen_reader_is_reported_the_verdict(browser: Browser) -> None:
    with browser.open(page_of()) as page:
        page.page.wait_for_function(
            "words => document.querySelector('[role=status]').textContent === words", arg=SENTENCE
        )


def test_every_page_has_the_sentence_of_explain_and_a_click_leads_to_the_place(browser: Browser) -> None:
    graph = layers_graph(flow=True)
    sentence = explain_cuts(graph).verdict
    with browser.open(graph.to("html")) as page:
        line = page.text(".verdict").removeprefix("✕ ")
        assert sentence.startswith(line)
        assert line == "1 of 11 parameters gets no gradient: detach() cuts lost.weight (net.py:77 in forward)."
        page.page.locator(".verdict button").click()
        assert page.ask("selection") == {"kind": "cut", "name": "0"}
        assert "net.py:77 in forward" in details(page)
        assert not page.violations()


def test_in_a_narrow_window_a_click_on_the_sentence_opens_the_details(browser: Browser) -> None:
    with browser.open(layers_graph(flow=True).to("html"), viewport=NARROW) as page:
        panel = page.page.get_by_label("Details")
        assert not panel.is_visible()
        page.page.locator(".verdict button").click()
        assert "net.py:77 in forward" in details(page)
        page.page.locator(".verdict button").click()
        assert panel.is_visible()


def test_without_a_recorded_flow_no_reason_is_guessed(browser: Browser) -> None:
    graph = layers_graph()
    lost = Cut("unreached", ("lost.weight",), "head", META)
    for shown, words in (
        (graph, "All 10 parameters are in the graph."),
        (
            replace(graph, cuts=(lost,)),
            "! 10 of 11 parameters are in the graph; 1 gets no gradient, which may be intended: "
            "no gradient arrives at lost.weight, and the file does not say why.",
        ),
    ):
        assert explain_cuts(shown).verdict.startswith(words.removeprefix("! "))
        with browser.open(shown.to("html")) as page:
            assert page.text(".verdict") == words


def test_a_forward_that_raised_says_where(browser: Browser) -> None:
    with browser.open(failing_graph().to("html")) as page:
        assert page.text(".verdict") == "✕ The forward ended at add: sizes 4 and 8 differ (net.py:9 in forward)."
        page.press("Escape")
        page.page.locator(".verdict button").click()
        assert page.ask("selection") == {"kind": "node", "name": "add:1"}


def test_a_page_of_nothing_to_explain_has_no_line_for_it(browser: Browser) -> None:
    unnamed = Graph.of([Node("x", role="leaf"), Node("exp:1", op="exp", inputs=(Ref("x", 0),))])
    with browser.open(unnamed.to("html")) as page:
        assert page.page.locator(".verdict").count() == 0
        assert page.text("[role=status]") == ""


def test_a_part_of_a_graph_has_no_sentence_of_its_own(browser: Browser) -> None:
    part = around(layers_graph(flow=True), ["head/mm:1"], 1)
    with browser.open(part.to("html")) as page:
        assert page.page.locator(".verdict").count() == 0


def test_a_pass_of_an_export_leaves_the_sentence_of_the_whole(browser: Browser) -> None:
    page_of_part = gradir.export(layers_graph(flow=True), "html", focus="head/mm:1")
    with browser.open(page_of_part) as page:
        assert page.text(".verdict").startswith("✕ 1 of 11 parameters gets no gradient: detach() cuts lost")


def test_a_verdict_with_markup_and_control_characters_is_text(browser: Browser) -> None:
    with browser.open(page_of(HOSTILE)) as page:
        assert page.text(".verdict") == f"✕ {escape_unprintable(HOSTILE)}"
        assert page.page.locator("header img, header b, .verdict *").count() == 0


@pytest.mark.parametrize("words", ["a" * 100_000, "<b> " * 25_000, "\u202e" * 100_000], ids=["a", "b", "rtl"])
def test_a_verdict_without_end_leaves_room_for_the_drawing(browser: Browser, words: str) -> None:
    # No overlay may have one so long, but a file may.
    graph = layers_graph()
    nodes = {**graph.nodes, "output": replace(graph.nodes["output"], ext={"verdict": ("alarm", words)})}
    with browser.open(replace(graph, nodes=nodes).to("html"), viewport=NARROW) as page:
        assert page.text(".verdict").startswith(f"✕ {escape_unprintable(words[:50])}")
        assert place(page, "main")["height"] > NARROW["height"] / 2
        page.page.set_viewport_size(WIDE)
        assert place(page, "main")["height"] > WIDE["height"] / 2
        assert page.page.locator(".verdict *").count() == 0
        # The keys reach it, so that it can be read to its end.
        page.page.locator(".verdict").focus()
        page.press("PageDown")
        page.page.wait_for_function("() => document.querySelector('.verdict').scrollTop > 0")


@pytest.mark.parametrize(
    "passes",
    [{"depth": 0}, {"depth": 1}, {"drop": "output"}, {"focus": "h.0.attn.weight"}, {"rollup": True}],
    ids=str,
)
def test_a_part_of_the_graph_has_the_verdict_of_all_of_it(browser: Browser, passes: dict[str, Any]) -> None:
    with browser.open(page_of(**passes)) as page:
        assert page.text(".verdict") == f"✕ {SENTENCE}"


def test_details_do_not_repeat_the_verdict(browser: Browser) -> None:
    with browser.open(page_of()) as page:
        drawing(page).click("output")
        assert "detach" not in page.text("[aria-label=Details]")


def test_paper_has_the_verdict(browser: Browser) -> None:
    with browser.open(page_of("word " * 400), color_scheme="dark", viewport=NARROW) as page:
        page.page.emulate_media(media="print")
        line = page.page.locator(".verdict")
        assert line.is_visible()
        assert line.evaluate("line => line.scrollHeight - line.clientHeight") == 0
        assert line.evaluate("line => getComputedStyle(line).printColorAdjust") == "exact"


def test_a_saved_picture_shows_the_verdict(browser: Browser) -> None:
    with browser.open(page_of(f"{SENTENCE} <b>&")) as page:
        drawing(page)
        with page.page.expect_download() as download:
            page.press("s")
        picture = Path(download.value.path()).read_text(encoding="utf-8")
        assert f"<desc>{SENTENCE} &lt;b&gt;&amp;</desc>" in picture
    with browser.open(Graph.of([Node("x", role="leaf")]).to("html")) as page:
        drawing(page)
        with page.page.expect_download() as download:
            page.press("s")
        assert "<desc>" not in Path(download.value.path()).read_text(encoding="utf-8")


def test_a_review_of_marked_graphs_has_the_verdict_of_the_second(browser: Browser) -> None:
    before = layers_graph()
    after = gradir.overlays.apply_overlay(change_layers(before), Overlay(CHANNELS, SENTENCE, "alarm"))
    with browser.open(gradir.diff(before, after).to("html")) as page:
        assert page.text(".verdict") == f"✕ {SENTENCE}"
