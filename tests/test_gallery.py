"""The gallery shows what the commands make now. Pictures depend on Graphviz and Chromium; the Mermaid blocks do not."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

from page_reader import page_data

from gradir.cli import main

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery"
PAGE = (GALLERY / "README.md").read_text(encoding="utf-8")
LOST, *SECTIONS, REVIEW = PAGE.split("\n## ")[1:]


def commands(section: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^    gradir (.*)$", section, re.MULTILINE)]


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples, in which commands run."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shutil.copy(GALLERY / "gan.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_the_page_is_what_the_commands_make(section: str, somewhere: Path) -> None:
    capture, page, _ = commands(section)
    assert main(capture) == main(page) == 0
    assert is_linked(section, somewhere / page[-1])


def test_the_page_of_what_is_lost_is_what_the_command_makes(somewhere: Path) -> None:
    explain, page = commands(LOST)
    assert main(explain) == 1
    assert main(page) == 0
    assert is_linked(LOST, somewhere / page[-1])


def test_the_review_is_what_the_commands_make(somewhere: Path) -> None:
    before, after, diff = commands(REVIEW)
    assert main(before) == main(after) == 0
    assert main(diff) == 1
    assert is_linked(REVIEW, somewhere / diff[-1])


def is_linked(section: str, made: Path) -> bool:
    (link,) = re.findall(r"\[The page\]\((pages/.*?)\)", section)
    # A page carries its script: one that was built before stays a page, so the data alone has to be of today.
    return page_data((GALLERY / link).read_text(encoding="utf-8")) == page_data(made.read_text(encoding="utf-8"))


def test_every_picture_is_shown_and_there() -> None:
    shown = set(re.findall(r'(?:src|srcset)="([^"]*)"', PAGE))
    assert shown == {path.name for path in GALLERY.iterdir() if path.suffix in {".svg", ".png"}}
    assert len(shown) == 6 * len(SECTIONS) + 4
    assert {path.name for path in (GALLERY / "pages").iterdir()} == set(re.findall(r"\(pages/(.*?)\)", PAGE))


def test_every_picture_of_first_sight_is_shown_small_and_there() -> None:
    shown = re.findall(r'src="first-sight/([^"]*)"', (GALLERY / "first-sight.md").read_text(encoding="utf-8"))
    pictures = {path.name: path.stat().st_size for path in (GALLERY / "first-sight").iterdir()}
    assert {*shown} == {*pictures}
    assert len(shown) == 2 * 16
    assert max(pictures.values()) < 100_000


@pytest.mark.parametrize("path", sorted(GALLERY.glob("*.svg")), ids=lambda path: path.stem)
def test_every_drawing_is_well_formed(path: Path) -> None:
    from xml.etree import ElementTree as ET

    root = ET.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "legend" in texts
    assert "graphviz version" not in path.read_text(encoding="utf-8")
