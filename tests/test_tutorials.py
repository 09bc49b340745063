"""The tutorials run: their files and commands, one after the other in a new folder, print what stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tools import needs
from tutorials import DOCS, TUTORIALS, play_page

pytestmark = needs("sh")


@pytest.mark.parametrize("name", [name for name in TUTORIALS if not name.endswith("index.md")])
def test_a_tutorial_is_a_session_that_works(name: str, dot_program: str, tmp_path: Path) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert len(re.findall(r"^\$ ", text, re.MULTILINE)) >= 4
    assert "Traceback" not in text
    assert play_page(DOCS / name, tmp_path) == text


def test_every_tutorial_is_listed() -> None:
    index = (DOCS / "tutorials" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == {
        path.name for path in (DOCS / "tutorials").glob("*.md") if path.name != "index.md"
    }
