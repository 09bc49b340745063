"""Files that are dropped on an open page: overlays and watched trainings, read in the page and sent nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Browser, Opened, drawing
from page_graphs import layers_graph

from gradir.overlays import Channel, Overlay
from gradir.watches.model import Step, Watch
from gradir.watches.watch_formats import jsonl

DROP = """([name, text, size]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([text.padEnd(size)], name));
    const event = new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
    document.querySelector("main").dispatchEvent(event);
    return event.defaultPrevented;
}"""
HOSTILE = '<img src=x onerror="alert(1)">\u202e'
NORMS = {f"h.{layer}.mlp/mm:1": 10.0 ** (layer - 3) for layer in range(4)}
OVERLAY = Overlay((Channel("gradient", {**NORMS, "head/mm:1": "zero"}, "norm", looks={"zero": "alarm"}),))


@pytest.fixture
def page(browser: Browser) -> Iterator[Opened]:
    with browser.open(layers_graph().to("html")) as opened:
        drawing(opened).press("e")
        yield opened


def drop(page: Opened, text: str, name: str = "file.json", size: int = 0) -> str:
    """What the page says of a file."""
    # The browser would show the file in place of the page.
    assert page.page.evaluate(DROP, [name, text, size]) is True
    page.page.locator(".dropped").wait_for(state="visible")
    said: str = page.text(".dropped")
    return said


def fills(page: Opened) -> dict[str, str]:
    return {box["name"]: box["fill"] for box in page.ask("boxes")}


def test_an_overlay_is_a_colour_with_a_continuous_scale(page: Opened) -> None:
    assert drop(page, OVERLAY.to_json(), "grad.json") == "Coloured by gradient (norm), grad.json"
    found = fills(page)
    # By magnitude, each a third of the scale from the next.
    assert [found[name] for name in NORMS] == ["scale-0", "scale-13", "scale-27", "scale-40"]
    assert found["head/mm:1"] == "look-alarm"
    assert {"sign": "", "words": "0.001 to 1"} in page.ask("legend")
    assert "zero" in {entry["words"] for entry in page.ask("legend")}
    assert "Colour: gradient (norm), grad.json" in page.text("header select")
    assert page.page.locator(".swatch.scale").is_visible()
    colours = page.page.evaluate("[0, 13, 27, 40].map((part) => told.theme(`scale-${part}`))")
    assert len({*colours}) == 4
    # Once more is one colour more.
    assert drop(page, OVERLAY.to_json(), "grad.json") == "Coloured by gradient (norm), grad.json'"
    assert not page.violations()


def test_a_watch_colours_modules_by_their_last_step(page: Opened) -> None:
    steps = (
        Step(1, norms=(9.0, 9.0), ratios=(0.5, 0.5)),
        Step(2, norms=(1.0, 100.0), ratios=(0.001, None)),
        Step(3),
    )
    watch = Watch(("h.0.mlp", "h.1.mlp"), steps, count=3)
    assert drop(page, jsonl(watch), "w.jsonl") == "Coloured by gradient norm, step 2, w.jsonl"
    found = fills(page)
    assert (found["h.0.mlp/mm:1"], found["h.1.mlp/mm:1"], found["h.2.mlp/mm:1"]) == ("scale-0", "scale-40", "plain")
    page.press("w")
    assert page.ask("colour") == "overlay:update ratio, step 2, w.jsonl"
    assert fills(page)["h.0.mlp/mm:1"] == "scale-20", "of one number the middle"


def overlay(**fields: Any) -> str:
    channel = {"name": "n", "values": {"head/mm:1": 1.0}}
    return json.dumps({"format": "gir-overlay", "version": "1.0", "channels": [{**channel, **fields}]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.json: not JSON"),
        ("{", "f.json: not JSON"),
        ("[1, 2]", "f.json: neither an overlay of gradir explain nor a watch.jsonl"),
        ("null", "f.json: neither an overlay of gradir explain nor a watch.jsonl"),
        ('{"format": "gir-overlay", "version": "2.0", "channels": []}', "f.json: neither an overlay"),
        (overlay(values={"nowhere": 1.0}), "f.json: of another graph: it names nodes that this one lacks"),
        (overlay(values=[]), "f.json: of another graph"),
        (overlay(values=None), "f.json: a broken overlay"),
        (jsonl(Watch(("nowhere",), (Step(1, norms=(1.0,)),))), "f.json: of another model"),
        (jsonl(Watch()), "f.json: of another model"),
        ('{"type":"head","format":"gir-watch"}\n{', "f.json: not JSON"),
    ],
)
def test_a_file_that_does_not_fit_is_reported_in_a_line(page: Opened, text: str, said: str) -> None:
    before = page.ask("colour")
    if text == overlay(values=[]):
        text = overlay(values={"": 1.0})
    assert drop(page, text, "f.json").startswith(said)
    assert page.text(".dropped").count("\n") == 0
    assert page.ask("colour") == before


def test_a_file_that_is_too_large_is_not_read(page: Opened) -> None:
    assert drop(page, "{}", "big.json", 50_000_001) == "big.json: larger than 50 MB"


def test_hostile_texts_of_a_file_are_text(page: Opened) -> None:
    text = overlay(
        name=HOSTILE,
        unit=HOSTILE,
        values={"h.0.mlp/mm:1": HOSTILE, "sum:1": "a" * 100_000},
        looks={HOSTILE: "__proto__"},
    )
    said = drop(page, text, HOSTILE.replace("/", ""))
    assert "<img src=x" in said
    assert "\u202e" not in page.text("body")
    assert page.page.locator("img").count() == 0
    page.click("h.0.mlp/mm:1")
    page.page.get_by_label("Details").get_by_text("onerror").first.wait_for()
    polluted = '{"format": "gir-overlay", "version": "1.0", "channels": [{"name": "p", "values": {"__proto__": 1}}]}'
    assert "of another graph" in drop(page, polluted, "p.json")


def test_bytes_have_a_continuous_scale(browser: Browser) -> None:
    with browser.open(layers_graph().to("html"), "#open=*&colour=saved&on=") as page:
        found = {name: fill for name, fill in fills(page).items() if name.startswith("h.0.")}
        assert {found["h.0.attn/softmax:1"], found["h.0.mlp/gelu:1"]} == {"scale-0", found["h.0.mlp/gelu:1"]}
        assert found["h.0.mlp/gelu:1"] not in {"scale-0", "scale-40"}
        assert {"128 B to 2.6 kB", "nothing saved"} == {entry["words"] for entry in page.ask("legend")}
