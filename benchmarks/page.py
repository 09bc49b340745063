"""The page in Chromium: first picture, opening, search and panning, beside Model Explorer's viewer and torchvista.

python benchmarks/page.py [--smoke]

Needs Chromium, and for the peers `make model-explorer` and torchvista in .torchvista:
pip install --no-deps --target .torchvista torchvista ipython
"""

from __future__ import annotations

import gzip
import json
import mimetypes
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import tools
from browser import PROBE
from measure import is_smoke, run_deep, table
from playwright.sync_api import Error, sync_playwright

from exporters import Captured, transformer
from gradir import registry
from gradir.ir import Builder, Graph, TensorMeta

Launch = Callable[[], AbstractContextManager[Any]]
ROOT = Path(__file__).resolve().parents[1]
MODEL_EXPLORER = ROOT / ".model-explorer" / "model_explorer" / "web_app"
TORCHVISTA = ROOT / ".torchvista"
PAGE = ROOT / "exporters" / "gradir_exporters" / "_page"
META = TensorMeta("float32", (8, 8))
PEERS = ("Model Explorer", "torchvista")
PATIENCE = 120.0
"""Seconds after which a peer counts as one that does not end."""

STARTS = 2_500
"""Milliseconds in which a browser has started."""

SMALL = {"flat": 50, "wide": 50, "search": 2, "pan": 2, "settled": 300, "moves": 10, "frames": 10}
"""Sizes by which nothing is measured; ``settled`` are the milliseconds after which nothing moves any more."""

ADAPTER = {
    "id": "builtin_json",
    "name": "JSON",
    "description": "",
    "author": "",
    "type": "adapter",
    "fileExts": ["json"],
}
FRAMES = """
(count) => new Promise((done) => {
  const found = [];
  let last = 0;
  const note = (now) => {
    if (last > 0) found.push(now - last);
    last = now;
    if (found.length < count) requestAnimationFrame(note);
    else done(found);
  };
  requestAnimationFrame(note);
})
"""


class Shown:
    """A page in the browser, and how long after its start something was there."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def when(self, condition: str) -> float | None:
        """Milliseconds until a condition holds; nothing where it never does."""
        try:
            found = self.page.wait_for_function(f"() => ({condition}) ? performance.now() : 0", timeout=PATIENCE * 1000)
        except Error:
            return None
        return float(found.json_value())


@contextmanager
def launch(playwright: Any) -> Iterator[Any]:
    """A browser of its own: what another viewer leaves behind would slow the next picture by half."""
    arguments = ["--no-sandbox", "--enable-unsafe-swiftshader"]
    browser = playwright.chromium.launch(executable_path=tools.find("Chromium"), args=arguments)
    # Chromium loads pages of its own for two seconds, while who opens a page has a browser that runs.
    browser.new_page().wait_for_timeout(0 if is_smoke(__doc__) else STARTS)
    yield browser
    browser.close()


@contextmanager
def show(browser: Any, address: str, serve: Callable[[Any], None] | None = None) -> Iterator[Shown]:
    """A page in a context of its own."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.add_init_script(PROBE)
    page.set_default_timeout(PATIENCE * 1000)
    if serve is not None:
        page.route("**/*", serve)
    page.goto(address, wait_until="commit")
    yield Shown(page)
    context.close()


def serve_explorer(graph: Graph) -> Callable[[Any], None]:
    """Model Explorer's web app with a graph, as its server answers."""
    answer = json.dumps({"graphs": json.loads(graph.to("model-explorer"))["graphs"]})

    def serve(route: Any) -> None:
        path = route.request.url.split("://", 1)[1].partition("/")[2].partition("?")[0] or "index.html"
        file = MODEL_EXPLORER / path
        if "load_graphs_json" in path:
            route.fulfill(content_type="application/json", body=answer)
        elif path.startswith("api/"):
            known = [ADAPTER] if "extensions" in path else {}
            route.fulfill(content_type="application/json", body=json.dumps(known))
        elif file.is_file():
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
            route.fulfill(path=str(file), content_type=kind)
        else:
            route.fulfill(status=404)

    return serve


def first_pictures(launches: Launch, folder: Path, captured: Captured, repetitions: int) -> dict[str, float | None]:
    """Milliseconds to the first picture of one model, every viewer in turn."""
    graph = captured.graph
    page = folder / "page.html"
    page.write_text(graph.to("html"), encoding="utf-8")
    explorer = f"http://explorer.test/?data={quote(json.dumps({'models': [{'url': 'graphs://model/0'}]}))}"
    runs: dict[str, Callable[[], float | None]] = {"the page": lambda: _picture(launches, page.as_uri())}
    if MODEL_EXPLORER.is_dir():
        serve = serve_explorer(graph)
        runs["Model Explorer"] = lambda: _picture(launches, explorer, "document.querySelector('canvas.main')", serve)
    vista = folder / "vista.html"
    if TORCHVISTA.is_dir() and _trace(captured, vista):
        runs["torchvista"] = lambda: _picture(launches, vista.as_uri(), "document.querySelector('svg g[class^=node]')")
    times: dict[str, list[float | None]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            if None not in times[name]:
                times[name].append(run())
    return {
        name: None if None in found else statistics.median(each for each in found if each is not None)
        for name, found in times.items()
    }


def _picture(
    launches: Launch, address: str, condition: str = "", serve: Callable[[Any], None] | None = None
) -> float | None:
    with launches() as browser, show(browser, address, serve) as page:
        if condition:
            return page.when(condition)
        page.when("window.gradir?.timings.picture")
        return float(page.page.evaluate("gradir.timings.picture"))


def _trace(captured: Captured, path: Path) -> bool:
    """Whether torchvista could make its page of the same model, which takes it minutes for a large one."""
    if len(captured.graph.nodes) > 25_000:
        return False
    sys.path.append(str(TORCHVISTA))
    import torchvista

    with redirect_stdout(StringIO()):
        torchvista.trace_model(captured.model, torch.ones(2, 4, 8), export_path=str(path))
    return path.is_file()


def flat(count: int) -> Graph:
    """Siblings that share one weight."""
    b = Builder()
    shared = b.tensor("shared", META, role="parameter")
    values = [b.function("mul", [shared], [META]) for _ in range(count)]
    b.output(b.function("stack", values, [META]))
    return b.build()


def group_operations(count: int) -> Graph:
    """A module with so many operations side by side, among others."""
    b = Builder()
    value = b.tensor("x", META)
    for scope in ("first", "wide", "last"):
        values = [b.function("mul", [value], [META], scope=scope) for _ in range(count if scope == "wide" else 3)]
        value = b.function("stack", values, [META], scope=scope)
    b.output(value)
    return b.build()


def write_page(folder: Path, graph: Graph) -> str:
    path = folder / "graph.html"
    path.write_text(graph.to("html"), encoding="utf-8")
    return path.as_uri()


def measure_use(browser: Any, folder: Path, sizes: Mapping[str, int]) -> str:
    """What a reader waits for, milliseconds, each beside its bound."""
    rows: list[tuple[str, float, str]] = []
    with show(browser, write_page(folder, flat(sizes["flat"]))) as page:
        page.when("window.gradir?.timings.picture")
        rows.append(
            (f"{sizes['flat']:,} siblings with one weight", page.page.evaluate("gradir.timings.picture"), "1,000")
        )
    for count, bound in ((20, "50"), (sizes["wide"], "100")):
        with show(browser, write_page(folder, group_operations(count))) as page:
            page.when("window.gradir?.timings.picture")
            page.page.locator("[role=application]").first.focus()
            page.page.keyboard.press("0")
            # The view glides to what is left.
            page.page.wait_for_timeout(sizes["settled"])
            place = page.page.evaluate("told.place('wide')")
            page.page.mouse.click(place["x"], place["y"])
            page.page.keyboard.press("Enter")
            page.when("told.frames.length > 0 && gradir.timings.opening > 0")
            rows.append((f"opening a module of {count:,}", page.page.evaluate("gradir.timings.opening"), bound))
    with show(browser, write_page(folder, transformer(sizes["search"]).graph)) as page:
        page.when("window.gradir?.timings.picture")
        page.page.wait_for_timeout(sizes["settled"])
        times = []
        for words in ("addmm", "float32 8", f"{sizes['search'] - 1}.qkv", "in:down"):
            page.page.get_by_role("combobox", name="Search nodes and modules").fill(words)
            page.page.wait_for_timeout(sizes["settled"])
            times.append(page.page.evaluate("gradir.timings.searching"))
        rows.append(("search, the slowest of four", max(times), "30"))
    with show(browser, write_page(folder, transformer(sizes["pan"]).graph)) as page:
        page.when("window.gradir?.timings.picture")
        page.page.locator("[role=application]").first.focus()
        # Each layer by itself.
        if page.page.evaluate("told.switches.rollUp"):
            page.page.keyboard.press("r")
        page.page.keyboard.press("e")
        page.page.wait_for_timeout(sizes["settled"])
        for _ in range(14):
            page.page.keyboard.press("-")
        page.page.wait_for_timeout(sizes["settled"])
        page.page.evaluate(f"window.frames_ = ({FRAMES})({sizes['frames']})")
        page.page.mouse.move(700, 450)
        page.page.mouse.down()
        for step in range(sizes["moves"]):
            page.page.mouse.move(700 + 3 * (step % 60), 450 + 2 * (step % 40))
        page.page.mouse.up()
        frames = sorted(page.page.evaluate("window.frames_"))
        boxes = page.page.evaluate("told.boxes.length")
        rows.append((f"a frame while panning over {boxes:,} boxes, the median", statistics.median(frames), "16.7"))
        rows.append(("the same, of 19 frames in 20", frames[int(len(frames) * 0.95)], ""))
    return table(["in use", "ms", "bound"], [[name, f"{took:.1f}", bound] for name, took, bound in rows])


def main() -> None:
    """Measure and print tables."""
    smoke = is_smoke(__doc__)
    warnings.simplefilter("ignore")
    blocks = {"1k": 16, "20k": 310, "100k": 1550} if not smoke else {"small": 2}
    script = (PAGE / "page.js").read_bytes()
    print(f"script {len(script):,} bytes, {len(gzip.compress(script, 9)):,} gzipped (bound 110,000)\n")
    registry.exporter("html")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as name, ExitStack() as entered:
        launches: Launch = partial(launch, playwright)
        if smoke:
            # One browser is enough to see that all runs.
            launches = partial(nullcontext, entered.enter_context(launches()))
        rows = []
        for count in blocks.values():
            captured = transformer(count)
            size = len(captured.graph.nodes)
            begun = time.perf_counter()
            page = registry.export("html", captured.graph, {})
            rate = size / (time.perf_counter() - begun)
            data = sum(map(len, re.findall("octet-stream[^>]*>([^<]*)<", page))) / 1000
            found = first_pictures(launches, Path(name), captured, 1 if smoke else 3)
            own = found.pop("the page") or 0.0
            peers = [_cell(found.get(peer), own) for peer in PEERS]
            rows.append([f"{size:,}", f"{rate:,.0f}", f"{data:,.0f}", f"{own:,.0f}", *peers])
        heads = ["nodes", "nodes a second", "kB of data", "first picture ms"]
        heads += [f"{peer} (times)" for peer in PEERS]
        print(table(heads, rows), flush=True)
        print()
        sizes = {"flat": 20_000, "wide": 2_000, "search": 1550, "pan": 84, "settled": 1000, "moves": 120, "frames": 90}
        with launches() as browser:
            print(measure_use(browser, Path(name), sizes if not smoke else SMALL))


def _cell(took: float | None, own: float) -> str:
    return "-" if took is None else f"{took:,.0f} ({took / own:.1f})"


if __name__ == "__main__":
    run_deep(main)
