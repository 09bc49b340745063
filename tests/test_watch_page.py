"""The page of a watch: what it holds, what it draws in Chromium, and what hostile names do to it."""

from __future__ import annotations

import json
import math
import os
import re
import struct
import subprocess
import sys
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from browser import Browser, Opened
from hostile_texts import HOSTILE_TEXTS
from hypothesis import given
from msgspec.structs import replace
from watches import NAN, training, transformer, watch_of, watches

from gradir.explanations.model import Cause
from gradir.ir.text import escape_unprintable
from gradir.watches.charts import format_number
from gradir.watches.model import Finding, Number, Step, Watch
from gradir.watches.page import page

NONE, ALARM, ZERO = 0, 1, 2
PNG = re.compile(r'data-key="(\w+)"[^>]*>\s*<img alt="" src="data:image/png;base64,([^"]*)"')
DATA = re.compile(r'(<script type="application/octet-stream" id="gradir-watch">)([^<]*)(</script>)')
ELEMENTS = set(
    """a body button code dd details div dl dt figcaption figure g h1 h2 head html img input label li line
    lineargradient main meta ol output p path pre rect script span stop strong style summary svg text title""".split()  # noqa: SIM905
)
BROKEN = replace(
    training(500, transformer(33), broken=357),
    findings=(
        NAN,
        Finding(20, Cause("lr_zero", "info", names=("lm_head.weight",))),
        Finding(40, Cause("lr_zero", "note", names=("transformer.wpe.weight",))),
    ),
)


def data_of(html: str) -> dict[str, Any]:
    found = DATA.search(html)
    assert found is not None
    data: dict[str, Any] = json.loads(zlib.decompress(b64decode(found[2])))
    return data


def pixels(png: bytes) -> tuple[list[list[int]], list[bytes]]:
    """The numbers of the colours of a picture, and the colours."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    parts, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + data),)
        parts[kind], at = data, at + 12 + length
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    raw = zlib.decompress(parts[b"IDAT"])
    rows = [[*raw[row * (width + 1) + 1 : (row + 1) * (width + 1)]] for row in range(height)]
    palette = parts[b"PLTE"]
    return rows, [palette[place : place + 3] for place in range(0, len(palette), 3)]


def pictures(html: str) -> dict[str, list[list[int]]]:
    return {key: pixels(b64decode(text))[0] for key, text in PNG.findall(html)}


def rounded(value: Number | None) -> Number | None:
    short = float(f"{value:.4g}") if isinstance(value, (int, float)) else value
    return value if short in {math.inf, -math.inf} else short


def small() -> Watch:
    """A watch with all that a page has."""
    modules = ("", "net.0", "a.very.long.path.of.a.module.that.has.no.room.beside.its.row")
    steps = (
        Step(1, 1, 2.5, 10.0, 2**30, 0, (1.0, 0.0), (None, None, 1e-3)),
        Step(2, 2, 1.5, 0.0, 2**31, None, (0.1, 2.0, 3.0), (1e-3, 1e-4, 1e-2)),
        Step(3, 3, "nan", "inf", 2**31, 12, ("nan", 2.0, "-inf"), ()),
    )
    quiet = Finding(1, Cause("lr_zero", "note", names=("net.0.weight",)))
    return Watch(modules, steps, (replace(NAN, step=3), quiet), 6, "it was interrupted")


def test_the_page_has_a_golden(golden: Callable[[str, str], None]) -> None:
    html = page(small(), {3: "step-3.gir.html"})
    shown = re.sub(r"<style>.*?</style>", "<style/>", DATA.sub(r"\1\3", html), flags=re.DOTALL)
    shown = re.sub(r"<script>.*?</script>", "<script/>", re.sub(r"sha256-[^']*", "sha256-", shown), flags=re.DOTALL)
    shown = re.sub(r"base64,[^\"]*", "base64,", shown)
    golden("watch/page.html", f"{shown}{json.dumps(data_of(html), indent=1)}\n{json.dumps(pictures(html), indent=1)}\n")


def test_equal_watches_have_equal_pages() -> None:
    program = (
        "import sys; sys.path.insert(0, 'tests/support')\n"
        "from watches import training; from gradir.watches.page import page; from hashlib import sha256\n"
        "print(sha256(page(training(9, ('b', 'a'), broken=5), {3: 'x', 2: 'y'}).encode()).hexdigest())"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[1],
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(made) == 1


@given(watches())
def test_the_numbers_of_any_watch_are_read_back(watch: Watch) -> None:
    html = page(watch, {step.number: "g.html" for step in watch.steps[:1]})
    check_markup(html)
    data, drawn = data_of(html), pictures(html)
    assert data["columns"] == [f"step {step.number:,}" for step in watch.steps]
    assert data["modules"] == [escape_unprintable(path) or "(model)" for path in watch.modules]
    assert data["lines"].get("loss", []) == [
        format_number(step.loss) for step in watch.steps if any(step.loss is not None for step in watch.steps)
    ]
    for key in ("norms", "ratios"):
        rows = [
            [row[at] if at < len(row) else None for row in (getattr(step, key) for step in watch.steps)]
            for at in range(len(watch.modules))
        ]
        if all(value is None for row in rows for value in row):
            assert key not in data["heats"]
            assert key not in drawn
            continue
        assert data["heats"][key] == [[*map(rounded, row)] for row in rows]
        check_colours([value for row in rows for value in row], [pixel for row in drawn[key] for pixel in row])


def check_colours(values: list[Number | None], drawn: list[int]) -> None:
    for value, pixel in zip(values, drawn, strict=True):
        special = NONE if value is None else ALARM if isinstance(value, str) else ZERO if value <= 0 else None
        assert pixel == special if special is not None else pixel > ZERO
    numbers = sorted(
        (value, pixel) for value, pixel in zip(values, drawn, strict=True) if isinstance(value, float) and value > 0
    )
    assert [pixel for _, pixel in numbers] == sorted(pixel for _, pixel in numbers)


def test_colours_rise_in_lightness_and_none_is_the_alarm() -> None:
    html = page(training(2, ("fc",)))
    (_, text), *_ = PNG.findall(html)
    _, colours = pixels(b64decode(text))
    lightness = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in colours[ZERO:]]
    assert len(colours) == 256
    assert all(one <= other + 0.5 for one, other in pairwise(lightness))
    assert lightness[1] - lightness[0] > 40
    assert all(blue >= red for red, _, blue in colours[ZERO:])
    assert colours[ALARM][0] > 2 * colours[ALARM][2]


def test_steps_beyond_the_columns_show_their_highest() -> None:
    steps = list(training(5000, ("a", "b")).steps)
    steps[2344] = replace(steps[2344], loss="inf", norms=("nan", steps[2344].norms[1]))
    html = page(Watch(("a", "b"), tuple(steps), count=20_000))
    data = data_of(html)
    assert len(data["columns"]) == 600
    column = next(at for at, row in enumerate(data["heats"]["norms"][0]) if row == "nan")
    first, last = (int(text.replace(",", "")) for text in data["columns"][column].split(" ")[1].split("-"))
    assert first <= 2345 <= last
    assert data["lines"]["loss"][column] == "infinity"
    highest = max(value for step in steps[first - 1 : last] if isinstance(value := step.norms[1], float))
    assert data["heats"]["norms"][1][column] == rounded(highest)
    assert "A column shows up to 9 steps: a cell shows NaN or infinity if one of them has it" in html
    assert "The charts show 5,000 of 20,000 steps." in html
    assert 'class="curve"' in html
    assert 'class="dots"' not in html


def test_a_large_watch_stays_light() -> None:
    assert len(page(training(500, transformer(33)))) < 1_200_000
    many = page(training(300, tuple(f"layers.{at}" for at in range(2500))))
    assert len(many) < 2_000_000
    assert "The first 2,000 of 2,500 modules are drawn." in many


@pytest.mark.parametrize(
    ("losses", "ticks"),
    [
        ((1.0, 3.0), ["1", "1.5", "2", "2.5", "3"]),
        ((1e-5, 3.0), ["1e-05", "0.001", "0.1"]),
        ((-1.0, 3000.0), ["0", "1000", "2000", "3000"]),
        ((2.0, 2.0), ["2"]),
        ((-1.7e308, 1.7e308), ["-1.7e+308", "1.7e+308"]),
    ],
)
def test_the_scale_of_the_loss_is_logarithmic_where_it_has_to_be(losses: tuple[float, ...], ticks: list[str]) -> None:
    html = page(Watch(steps=tuple(Step(at + 1, loss=loss) for at, loss in enumerate(losses)), count=len(losses)))
    labels = html.partition('class="labels"')[2].partition("</svg>")[0]
    assert re.findall(r">([^<>]+)</text>", labels) == ticks
    assert ("Loss, on a logarithmic scale" in html) == (ticks[0] == "1e-05")


def test_the_verdict_is_first_and_every_colour_has_a_word() -> None:
    for watch, level, sign in (
        (BROKEN, "error", "✕"),
        (training(2, ("fc",)), "none", "✓"),
        (Watch(ended="it raised"), "info", "!"),
    ):
        body = page(watch).partition("<main>")[2].lstrip()
        assert body.startswith(f'<h1 class="{level}"><span aria-hidden="true">{sign}</span>{watch.verdict}</h1>')


def test_findings_have_their_line_and_advice_the_gravest_first_and_notes_closed() -> None:
    html = page(small())
    assert html.index("the loss is NaN or infinite</strong> (by running step 357 once more)") < html.index("1 note")
    place, line = "  --&gt; train.py:42 in train", "42 |     loss = criterion(model(images).log(), labels)"
    assert f'<pre tabindex="0">{place}\n{line}\n   |  ' in html
    assert "help:</span> look at the operation that is named here" in html
    many = page(replace(small(), findings=(NAN,) * 250))
    assert many.count("<li ") == 200
    assert "And 50 more: <code>-o watch.jsonl</code> has them all." in many


class _Markup(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def check_markup(html: str) -> None:
    """Nothing but the page's own elements, no handler, no style of an element, no address but of a file beside it."""
    assert html.replace("\n", "").isprintable()
    parser = _Markup()
    parser.feed(html)
    assert {name for name, _ in parser.elements} <= ELEMENTS
    assert [name for name, _ in parser.elements].count("script") == 2
    for name, attributes in parser.elements:
        assert not [each for each in attributes if each.startswith("on") or each in {"style", "onclick"}]
        assert re.fullmatch(r"(?!/)[\w.%~/-]*", attributes.get("href") or "")
        assert name != "img" or (attributes["src"] or "").startswith("data:image/png;base64,")


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_hostile_names_are_text(browser: Browser, name: str) -> None:
    text = HOSTILE_TEXTS[name]
    html = page(watch_of(text), {1: text, 2: "javascript:alert(1)"})
    check_markup(html)
    assert len(html) < 100_000 + 20 * len(text)
    with shown(browser, html) as opened:
        assert opened.page.locator("figure").count() == 6
        hover(opened, "norms", 0.2, 0.2)
        assert " ".join(escape_unprintable(text).split()) in " ".join(opened.page.text_content("output").split())
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1400


@contextmanager
def shown(browser: Browser, html: str, **context: Any) -> Iterator[Opened]:
    """A page from the disk, which in the end has said nothing and asked for nothing but itself."""
    address = browser.write(html)
    with browser.visit(Path(url2pathname(urlsplit(address).path)), **context) as opened:
        yield opened
        assert opened.said == []
        assert {each for each in opened.asked if not each.startswith("data:")} <= {address}


def hover(opened: Opened, key: str, x: float, y: float) -> None:
    plot = opened.page.locator(f"[data-key={key}]")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    opened.page.wait_for_function("document.querySelector('.plot').dataset.ready")
    opened.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    opened.page.wait_for_selector("output:visible")


def test_the_pointer_reads_numbers(browser: Browser) -> None:
    data = data_of(page(BROKEN))
    with shown(browser, page(BROKEN)) as opened:
        hover(opened, "norms", 100.5 / 500, 3.5 / 200)
        wanted = ["transformer.h.0.attn.c_attn", "step 101", str(data["heats"]["norms"][3][100])]
        assert opened.text("output").splitlines() == wanted
        assert opened.page.locator(".at.on").count() == 5
        hover(opened, "loss", 356.5 / 500, 0.5)
        assert opened.text("output").splitlines() == [
            "step 357",
            "NaN",
            "step 357 (epoch = 2, batch = 116): the loss is NaN or infinite",
        ]
        opened.page.mouse.move(0, 0)
        assert opened.page.locator("output").is_hidden()


def test_keys_read_numbers(browser: Browser) -> None:
    with shown(browser, page(BROKEN)) as opened:
        hover(opened, "loss", 0.5, 0.5)
        opened.page.locator("[data-key=ratios]").focus()
        opened.press("Home", "ArrowRight", "ArrowDown")
        assert opened.text("output").splitlines()[:2] == ["transformer.wpe", "step 2"]
        opened.press("End", "ArrowRight", "ArrowUp", "ArrowUp")
        assert opened.text("output").splitlines() == ["transformer.wte", "step 500", "NaN"]
        opened.press("Enter")
        assert opened.page.locator(".pin.on").count() == 5
        opened.press("Escape")
        assert opened.page.locator("output").is_hidden()


def test_a_finding_marks_its_step_in_every_chart(browser: Browser) -> None:
    with shown(browser, page(BROKEN)) as opened:
        assert opened.page.locator(".mark.error").count() == opened.page.locator(".plot").count() == 5
        opened.page.get_by_role("button", name="step 357 (epoch = 2, batch = 116)").click()
        places = opened.page.eval_on_selector_all(".pin.on", "all => all.map((each) => each.getAttribute('x1'))")
        assert places == ["71.3%"] * 5
        assert opened.page.locator("li.on").count() == 1
        opened.page.get_by_role("button", name="step 357 (epoch = 2, batch = 116)").click()
        assert opened.page.locator(".pin.on, li.on").count() == 0


@pytest.mark.parametrize("way", ["pointer", "key", "list"])
def test_a_cell_of_a_captured_step_opens_its_graph(browser: Browser, way: str) -> None:
    html = page(BROKEN, {357: "step 357#.html"})
    beside = Path(url2pathname(urlsplit(browser.write(html)).path)).with_name("step 357#.html")
    beside.write_text("<!doctype html><title>graph</title>", encoding="utf-8")
    address = browser.write(html)
    with browser.visit(Path(url2pathname(urlsplit(address).path))) as opened:
        hover(opened, "norms", 356.5 / 500, 0.5)
        assert "open its graph" in opened.text("output")
        if way == "pointer":
            opened.page.mouse.down()
            opened.page.mouse.up()
        elif way == "key":
            opened.page.locator("[data-key=norms]").focus()
            opened.press("Enter")
        else:
            opened.page.get_by_role("link", name="open the graph of step 357").click()
        opened.page.wait_for_url("**/step%20357%23.html")
        assert opened.page.title() == "graph"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_can_be_read_by_all(browser: Browser, theme: str, width: int) -> None:
    html = page(BROKEN, {357: "step-357.gir.html"})
    with shown(browser, html, color_scheme=theme, viewport={"width": width, "height": 800}) as opened:
        hover(opened, "norms", 0.9, 0.5)
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.violations() == []
        box = opened.page.locator("output").bounding_box()
        assert box["x"] + box["width"] <= width
        assert opened.page.locator("figure > figcaption > p").count() == 5


def test_modules_have_a_line_each_where_that_is_asked_for(browser: Browser) -> None:
    with shown(browser, page(BROKEN)) as opened:
        names = opened.page.locator("figure:has([data-key=norms]) .labels text:visible")
        assert names.count() == 41
        opened.page.locator("figure:has([data-key=norms]) input").check()
        assert names.count() == 202
        (first, second) = (names.nth(at).bounding_box()["y"] for at in (0, 1))
        assert second - first >= 13


def test_paper_is_white_in_the_dark(browser: Browser) -> None:
    with shown(browser, page(BROKEN), color_scheme="dark") as opened:
        ground = "getComputedStyle(document.body).backgroundColor"
        assert opened.page.evaluate(ground) == "rgb(13, 17, 23)"
        opened.page.emulate_media(media="print")
        assert opened.page.evaluate(ground) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("watch", [Watch(), Watch(findings=(NAN,)), training(1, ()), training(1, ("fc",))])
def test_little_is_drawn_as_well(browser: Browser, watch: Watch) -> None:
    with shown(browser, page(watch, {1: "g.html"})) as opened:
        assert opened.text("h1").endswith(watch.verdict)
        assert opened.page.locator(".plot").count() == (0 if not watch.steps else 5 if watch.modules else 3)
        for button in opened.page.locator("button").all():
            button.click()
        assert opened.violations() == []
