"""The site of the documentation: it builds strictly, its links lead somewhere, it works from a disk without a host."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("torch")

from browser import Browser, axe

import gradir

ROOT = Path(__file__).resolve().parents[1]
LIVE = ("mlp_critic.py:values", "detach-by-accident")
"""An example, and the edit that the start page shows."""


def live_pages(folder: Path) -> None:
    """Make the few live pages."""
    line = [sys.executable, "docs/live_pages.py", str(folder), *LIVE]
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=240)


def built(root: Path, live: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a project."""
    # With --quiet no warning would fail it.
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    environment = {**os.environ, "GRADIR_SITE_LIVE": str(live), "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    return subprocess.run(line, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=240)


class _Links(HTMLParser):
    """Where a page leads, and which places of it can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"href", "src", "srcset"} and value is not None:
                self.links.append(value)
            elif name in {"id", "name"} and value:
                self.places.add(value)


def broken_links(site: Path) -> Iterator[str]:
    """Every link within the site that leads nowhere; pages of gradir's own are led to, and not looked at."""
    pages = {path: _Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if not _is_live(path)}
    for page, told in pages.items():
        for link in told.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            is_place = not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].places
            if not target.is_file() or not is_place:
                yield f"{page.name}: {link}"


def _is_live(path: Path) -> bool:
    return path.parent.name == "pages" or "live" in path.parts


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    live_pages(folder)
    return folder


@pytest.fixture(scope="module")
def site(live: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = built(ROOT, live, target)
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    return target


def test_every_link_of_the_built_pages_leads_somewhere(site: Path) -> None:
    assert not list(broken_links(site))
    assert len(list(site.glob("*.html"))) > 30


def test_a_broken_link_fails_the_build_of_the_site(live: Path, tmp_path: Path) -> None:
    for name in ("docs", "examples", "gradir", "schemas"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("gallery", "__pycache__"))
    shutil.copytree(ROOT / "docs" / "gallery", tmp_path / "docs" / "gallery")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "changes/README.md", "mkdocs.yml", "viewer/README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    with (tmp_path / "docs" / "summary.md").open("a", encoding="utf-8") as page:
        page.write("\n[a](nowhere.md) [b](page.md#nowhere) [c](../CONTRIBUTING.md#nowhere) `gradir.captured(loss)`\n")
    (tmp_path / "docs" / "alone.md").write_text("# In no menu\n", encoding="utf-8")
    done = built(tmp_path, live, tmp_path / "site")
    assert done.returncode == 1
    for said in ("'nowhere.md'", "page.md#nowhere", "contributing.md#nowhere", "gradir.captured", "alone.md"):
        assert said in done.stderr, done.stderr


def test_names_lead_to_the_reference(site: Path) -> None:
    page = (site / "diff.html").read_text(encoding="utf-8") + (site / "using.html").read_text(encoding="utf-8")
    assert re.search(r'<a href="reference\.html#capture"><code>gradir\.capture', page)
    reference = (site / "reference.html").read_text(encoding="utf-8")
    assert {name.lower() for name in gradir.__all__ if name != "__version__"} <= set(
        re.findall(r'id="(\w+)"', reference)
    )


@pytest.mark.parametrize("name", ["commands", "plugins"])
def test_every_command_and_plug_in_is_in_the_reference(name: str, site: Path) -> None:
    from gradir import registry
    from gradir.cli.main import COMMANDS

    text = (site / f"reference-{name}.html").read_text(encoding="utf-8")
    places = set(re.findall(r'<h\d id="([\w-]+)"', text))
    names = {f"gradir-{command}" for command in COMMANDS}
    if name == "plugins":
        names = {
            *registry.exporter_names(),
            *registry.passes(),
            *(f"diff-as-{each}" for each in registry.renderer_names()),
        }
    assert names <= places


def test_every_example_and_edit_has_its_row(site: Path) -> None:
    examples = (site / "gallery" / "examples.html").read_text(encoding="utf-8")
    assert re.findall(r'href="(live/[^"]*)">([^<]*)<', examples) == [("live/examples/mlp_critic-values.html", LIVE[0])]
    pages = _module("live_pages")
    from example_files import GRAPHS
    from real_changes import CHANGES

    assert {*GRAPHS} <= {spec for spec, _ in pages.specs()}
    assert LIVE[1] in CHANGES
    assert (site / "gallery" / "live" / "reviews" / f"{LIVE[1]}.html").stat().st_size > 70_000


def _module(name: str) -> Any:
    location = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert location is not None
    assert location.loader is not None
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return module


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_start_page_asks_no_host_and_can_be_read_by_all(
    site: Path, browser: Browser, width: int, theme: str
) -> None:
    with browser.visit(site / "index.html", viewport={"width": width, "height": 800}, color_scheme=theme) as opened:
        page = opened.page
        page.wait_for_selector(".md-search__output", state="attached")
        (frame,) = [frame for frame in page.frames if "detach-by-accident" in frame.url]
        frame.wait_for_function("() => window.gradir?.timings.picture > 0")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        commands = page.locator(".start-words pre").bounding_box()
        assert commands["y"] + commands["height"] < 800
        if width > 1000:
            shown = page.locator(".start-page iframe").bounding_box()
            assert shown["y"] + shown["height"] < 800
        assert opened.said == []
        page.add_script_tag(path=axe())
        found = page.evaluate("axe.run(document, {iframes: false})")
        assert [each["id"] for each in found["violations"] if each["impact"] in {"serious", "critical"}] == []
        assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in opened.asked), opened.asked


def test_the_search_works_from_the_disk(site: Path, browser: Browser) -> None:
    with browser.visit(site / "tutorials" / "ci.html", viewport={"width": 1280, "height": 800}) as opened:
        page = opened.page
        page.locator("input.md-search__input").click()
        page.keyboard.type("graph_snapshot")
        page.wait_for_selector("a.md-search-result__link")
        titles = page.locator(".md-search-result__article h1").all_inner_texts()
        assert "Guard a graph in CI" in titles
        assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in opened.asked), opened.asked
