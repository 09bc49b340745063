"""What the viewer reads of a page, told by the viewer's own code in node."""

from __future__ import annotations

import re
import subprocess
from base64 import b64decode
from collections.abc import Callable
from gzip import decompress
from pathlib import Path
from typing import Any

from node_programs import ask

VIEWER = Path(__file__).parents[2] / "viewer"
_BLOCK = re.compile(r'<script type="application/octet-stream" id="gradir-(\w+)">([^<]*)</script>')


def page_blocks(page: str) -> dict[str, bytes]:
    """The blocks of data in a page, by name, as they are compressed."""
    return {name: b64decode(data) for name, data in _BLOCK.findall(page)}


def page_data(page: str) -> str:
    """The data in a page."""
    return "\n".join(decompress(block).decode() for block in page_blocks(page).values())


def reader(node: str, folder: Path) -> Callable[[str], Any]:
    """Return a function that reads a page with the viewer's own code in node."""
    program, path = folder / "tell.mjs", folder / "page.html"
    esbuild = VIEWER / "node_modules" / "esbuild" / "bin" / "esbuild"
    bundle = ["--bundle", "--platform=node", "--format=esm", "--log-level=warning", f"--outfile={program}"]
    subprocess.run([str(esbuild), str(VIEWER / "tests" / "tell.ts"), *bundle], check=True)

    def read(page: str) -> Any:
        path.write_text(page, encoding="utf-8")
        return ask(node, str(program), [str(path)])

    return read
