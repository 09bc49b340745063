"""What the viewer reads of a page, told by the viewer's own code in node."""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64decode
from gzip import decompress
from pathlib import Path
from typing import Any

VIEWER = Path(__file__).parents[2] / "viewer"


_BLOCK = re.compile(r'<script type="application/octet-stream" id="gradir-(\w+)">([^<]*)</script>')


def page_blocks(page: str) -> dict[str, bytes]:
    """The blocks of data in a page, by name, as they are compressed."""
    return {name: b64decode(data) for name, data in _BLOCK.findall(page)}


def page_data(page: str) -> str:
    """The data in a page."""
    return "\n".join(decompress(block).decode() for block in page_blocks(page).values())


class Teller:
    """A node that reads pages, one after the other."""

    def __init__(self, node: str, folder: Path) -> None:
        self._page = folder / "page.html"
        program = folder / "tell.mjs"
        esbuild = VIEWER / "node_modules" / "esbuild" / "bin" / "esbuild"
        bundle = ["--bundle", "--platform=node", "--format=esm", "--log-level=warning", f"--outfile={program}"]
        subprocess.run([str(esbuild), str(VIEWER / "tests" / "tell.ts"), *bundle], check=True)
        self._process = subprocess.Popen([node, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, page: str) -> Any:
        """What is in a page."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._page.write_text(page, encoding="utf-8")
        self._process.stdin.write(f"{self._page}\n".encode())
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Let node end."""
        self._process.communicate()
