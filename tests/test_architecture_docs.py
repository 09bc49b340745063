"""What the pages for developers name is there: files, folders, modules and layers."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ARCHITECTURE = ROOT / "docs" / "architecture.md"
DEPENDENCIES = ROOT / "docs" / "dependencies.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

NAME = r"[\w.-]+"
PATH = re.compile(rf"(?:{NAME}/)+(?:{NAME})?|{NAME}\.(?:py|mjs|md|toml|yml|yaml)")
RECIPE = re.compile(r"^\d\. `([^`]+)`:$", re.MULTILINE)
"""A file that the reader of a recipe makes."""


def sections(page: Path) -> Iterator[str]:
    """The parts of a page below its headings, without their code."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return iter(re.split(r"^#+ .*$", text, flags=re.MULTILINE))


def paths(section: str) -> list[str]:
    invented = set(RECIPE.findall(section))
    spans = re.findall(r"`([^`\n]+)`", section)
    return [span for span in spans if PATH.fullmatch(span) and span not in invented]


def places(section: str) -> list[Path]:
    """Where a file may be that stands without its folder: at the top, or in a folder that the same section names."""
    named = [ROOT / path for path in paths(section)]
    return [ROOT, *(path for path in named if path.is_dir()), *(path.parent for path in named if path.is_file())]


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING], ids=lambda page: page.name)
def test_every_path_that_is_named_exists(page: Path) -> None:
    found = 0
    for section in sections(page):
        for path in paths(section):
            assert any((place / path).exists() for place in places(section)), f"{page.name} names {path}"
            found += 1
    assert found > 20


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING], ids=lambda page: page.name)
def test_every_module_and_name_of_gradir_exists(page: Path) -> None:
    groups = {*re.findall(r'entry-points\."(.+)"', PROJECT)}
    names = re.findall(r"`(gradir(?:\.\w+)+)`", "\n".join(sections(page)))
    assert names
    for name in set(names) - groups:
        assert pkgutil.resolve_name(name) is not None


def test_every_package_is_named() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    homes = [ROOT / "gradir", ROOT / "exporters"]
    packages = [init.parent for home in homes for init in home.rglob("__init__.py")]
    assert len(packages) > 10
    for package in packages:
        path = package.relative_to(ROOT).as_posix()
        assert re.search(rf"`{path}[/`]", text) or path == "gradir", f"architecture.md does not name {path}"


def test_the_layers_are_those_that_are_checked() -> None:
    section = ARCHITECTURE.read_text(encoding="utf-8").partition("## The layer rule\n")[2]
    block = re.search(r"(?:^    .+\n)+", section, re.MULTILINE)
    assert block is not None
    (layers,) = re.findall(r"^layers = \[\n(.*?)^\]", PROJECT, re.MULTILINE | re.DOTALL)
    assert [layer.strip() for layer in " ".join(block[0].split()).split("→")] == re.findall('"(.+)"', layers)


def required(table: str, *keys: str) -> set[str]:
    """The packages that a table of pyproject.toml asks for, or some of its keys alone."""
    text = PROJECT.partition(f"\n[{table}]\n")[2].partition("\n[")[0]
    lists = re.findall(r"^([\w-]+) = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    return {
        name
        for key, listed in lists
        if not keys or key in keys
        for name in re.findall(r'"([\w.-]+?)(?:\[[^]]*\])?(?:[<>=~!].*?)?"', re.sub(r"\{.*?\}", "", listed))
    }


def explained(heading: str) -> dict[str, str]:
    """The packages in the table below a heading, each with the reason for it."""
    section = DEPENDENCIES.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|.* ([^|]+) \|$", section, re.MULTILINE)
    return {name.partition(" ")[0]: reason for names, reason in rows[1:] for name in names.split(", ") if name != "---"}


@pytest.mark.parametrize(
    ("heading", "table", "keys"),
    [
        ("Installed with gradir", "project", ["dependencies"]),
        ("Installed on request", "project.optional-dependencies", []),
        ("Needed to work on gradir", "dependency-groups", []),
    ],
)
def test_every_dependency_has_its_reason(heading: str, table: str, keys: list[str]) -> None:
    reasons = explained(heading)
    assert set(reasons) == required(table, *keys)
    assert all(reasons.values())
