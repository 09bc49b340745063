"""Pages in a real browser: Debian's Chromium, driven by Playwright's client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tools

SIZE = {"width": 1400, "height": 900}
DRAWING = "[role=application]"
PROBE = (Path(__file__).parent / "probe.js").read_text(encoding="utf-8")
"""``window.told``: what a page shows, made of what it hands out as ``window.gradir``."""
PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
SECONDS = 90.0
"""How long a page may take on a machine that does other things too; nothing is measured by it."""


def axe() -> Path:
    """Return the path of axe-core's script."""
    return Path(tools.require("packages of tests/node"), "axe-core", "axe.min.js")


class Opened:
    """One page that was opened, with all that it said and asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        self._listeners = {
            "console": lambda message: self.said.append(f"{message.type}: {message.text}"),
            "pageerror": lambda error: self.said.append(f"error: {error}"),
            "request": lambda request: self.asked.append(request.url),
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def leave(self) -> None:
        """Hear no more of the page, and let it show nothing."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)
        self.page.mouse.move(0, 0)
        # Pages from the disk share what a reader has set.
        self.page.evaluate("localStorage.clear()")
        self.page.goto("about:blank")

    def ask(self, expression: str, argument: Any = None) -> Any:
        """What ``window.told`` answers: ``ask("boxes")``, ``ask("place(it)", "fc")``."""
        return self.page.evaluate(f"it => window.told.{expression}", argument)

    def wait(self, expression: str, argument: Any = None) -> Any:
        """Wait until ``window.told`` answers with something true."""
        told = f"it => window.gradir && window.told.{expression}"
        found = self.page.wait_for_function(told, arg=argument, timeout=SECONDS * 1000)
        return found.json_value()

    def is_shown(self) -> Opened:
        """Wait for the first picture, and for the panels that are read after it."""
        self.wait("timings.details > 0")
        return self

    def wait_for_paint(self, frame: Any = None) -> None:
        """Wait until all that was asked for has been painted."""
        (frame or self.page).evaluate(PAINTED)

    def press(self, *keys: str) -> None:
        """Keys on the drawing."""
        for key in keys:
            self.page.keyboard.press(key)

    def click(self, name: str, **options: Any) -> None:
        """Click on a box or the caption of a frame."""
        place = self.ask("place(it)", name)
        assert place is not None, f"{name} is not drawn"
        self.page.mouse.click(place["x"], place["y"], **options)

    def open(self, name: str) -> None:
        """Double-click on a closed module."""
        self.click(name, click_count=2)
        self.wait("frames.some(({name}) => name === it)", name)

    def names(self) -> list[str]:
        """The names of the boxes that are drawn."""
        return [box["name"] for box in self.ask("boxes")]

    def text(self, selector: str) -> str:
        """The text of one element."""
        found: str = self.page.inner_text(selector)
        return found

    def violations(self) -> list[str]:
        """What axe-core has to say against the page."""
        if not self.page.evaluate("'axe' in window"):
            # The policy of the page forbids a script element.
            self.page.evaluate(axe().read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {json.dumps([node['target'] for node in each['nodes']])[:400]}"
            for each in found["violations"]
        ]


class Browser:
    """One browser for all pages of the tests."""

    def __init__(self, chromium: Any, folder: Path) -> None:
        self._chromium, self._folder, self._count = chromium, folder, 0
        self._left: list[Any] = []

    def write(self, html: str) -> str:
        """The address of a page on the disk."""
        self._count += 1
        path = self._folder / f"page-{self._count}.html"
        path.write_text(html, encoding="utf-8")
        return path.as_uri()

    @contextmanager
    def open(self, html: str, link: str = "", **context: Any) -> Iterator[Opened]:
        """A page from the disk; in the end it has said nothing and asked for nothing but itself.

        It may be where another was before, in another size or colours: only other options take a new context, and that
        a new process.
        """
        address = self.write(html)
        viewport, scheme = context.pop("viewport", SIZE), context.pop("color_scheme", "light")
        opened = Opened(self._new_page(**context) if context or not self._left else self._left.pop())
        try:
            # A page of another context may have been shown since.
            opened.page.bring_to_front()
            opened.page.set_viewport_size(viewport)
            opened.page.emulate_media(media="screen", color_scheme=scheme)
            opened.page.goto(address + link)
            yield opened.is_shown()
            assert not opened.said, opened.said
            asked = {each.partition("#")[0] for each in opened.asked if not each.startswith("blob:")}
            assert asked == {address}, asked
        except BaseException:
            opened.page.context.close()
            raise
        if context:
            opened.page.context.close()
        else:
            opened.leave()
            self._left.append(opened.page)

    @contextmanager
    def visit(self, page: Path, **context: Any) -> Iterator[Opened]:
        """A page of a site on the disk, whatever it asks for."""
        opened = Opened(self._new_page(**context))
        try:
            opened.page.goto(page.as_uri())
            yield opened
        finally:
            opened.page.context.close()

    def _new_page(self, **context: Any) -> Any:
        # Nothing glides, so that what is asked for is where it will stay.
        within = self._chromium.new_context(**{"viewport": SIZE, "reduced_motion": "reduce", **context})
        within.set_default_timeout(SECONDS * 1000)
        page = within.new_page()
        page.add_init_script(PROBE)
        return page


def launch(program: str, folder: Path) -> Iterator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield Browser(chromium, folder)
        chromium.close()


Open = Callable[..., Any]


def drawing(opened: Opened) -> Opened:
    """Keys go to the drawing."""
    opened.page.locator(DRAWING).first.focus()
    return opened


def details(opened: Opened) -> str:
    return opened.text("[aria-label=Details]")
