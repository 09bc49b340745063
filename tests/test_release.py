"""What a release is made of: contents, versions, fragments of the changelog."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradir.version import __version__

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib  # type: ignore[import-not-found,no-redef]

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = [path.read_text(encoding="utf-8") for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
KINDS = [each["directory"] for each in PROJECT["tool"]["towncrier"]["type"]]


def test_every_published_schema_is_in_the_wheel() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    published = [path for path in (ROOT / "schemas").iterdir() if path.suffix == ".json" or path.name == "SHA256SUMS"]
    assert included == {f"schemas/{path.name}": f"gradir/schemas/{path.name}" for path in published}


@pytest.mark.parametrize("file", [path.name for path in (ROOT / "changes").iterdir()])
def test_a_fragment_has_a_kind(file: str) -> None:
    assert file == "README.md" or re.fullmatch(rf"(\+[a-z0-9-]+|\d+)\.({'|'.join(KINDS)})\.md", file)


def test_the_version_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == __version__  # type: ignore[index]
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not (ROOT / ".github").exists(), reason="an sdist has no workflows")
def test_workflows_run_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    called = [name for text in WORKFLOWS for name in re.findall(r"run: make ([a-z-]+)", text)]
    assert set(called) <= {*targets}
    # git keeps no mode of the script that runs everything, so that a shell has to be named.
    assert not re.search(r"(run: |sudo )\.ci/run", "".join(WORKFLOWS))
    assert {"test-core", "test-torch", "test-jax", "release-check"} <= {*called}
