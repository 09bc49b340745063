"""The gallery shows what the commands make now. Pictures depend on Graphviz and Chromium; the Mermaid blocks do not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gradir.cli import main

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery"
PAGE = (GALLERY / "README.md").read_text(encoding="utf-8")
SECTIONS = PAGE.split("\n## ")[1:]


def commands(section: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^    gradir (.*)$", section, re.MULTILINE)]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_the_mermaid_block_is_what_the_command_prints(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    capture, _, mermaid = commands(section)
    assert main(capture) == main(mermaid) == 0
    (block,) = re.findall(r"^```mermaid\n.*?^```\n", section, re.DOTALL | re.MULTILINE)
    assert capfd.readouterr().out == block


def test_every_picture_is_shown_and_there() -> None:
    shown = set(re.findall(r'(?:src|srcset)="([^"]*)"', PAGE))
    assert shown == {path.name for path in GALLERY.iterdir() if path.suffix in {".svg", ".png"}}
    assert len(shown) == 4 * len(SECTIONS) > 0


@pytest.mark.parametrize("path", sorted(GALLERY.glob("*.svg")), ids=lambda path: path.stem)
def test_every_drawing_is_well_formed(path: Path) -> None:
    from xml.etree import ElementTree as ET

    root = ET.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "legend" in texts
    assert "graphviz version" not in path.read_text(encoding="utf-8")
