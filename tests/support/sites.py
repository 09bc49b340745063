"""The site of the documentation, built with few live pages, and what is wrong with the links of its pages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["LIVE", "ROOT", "broken_links", "built", "live_pages"]

ROOT = Path(__file__).resolve().parents[2]
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
