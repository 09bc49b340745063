"""viewer/, by its own tools: types, tests, and that what is committed in the package is what it builds."""

from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path

import pytest

import gradir
from gradir.ir import Graph

ROOT = Path(__file__).parents[1]
VIEWER = ROOT / "viewer"
PAGE = ROOT / "exporters" / "gradir_exporters" / "_page"


def run(node: str, *words: str) -> None:
    done = subprocess.run([node, *words], cwd=VIEWER, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_script_in_the_package_is_what_is_built(viewer_node: str) -> None:
    run(viewer_node, "build.mjs", "--check")


def test_its_types_are_strict(viewer_node: str) -> None:
    run(viewer_node, "node_modules/typescript/bin/tsc", "--noEmit")


def test_its_own_tests(viewer_node: str) -> None:
    run(viewer_node, "build.mjs", "--tests")
    run(viewer_node, "--test", ".tests/")


def test_the_script_does_not_grow_unseen() -> None:
    """Every page carries it compressed: what makes it larger says so here and in docs/benchmarks.md."""
    script = (PAGE / "page.js").read_bytes()
    assert len(script) <= 110_000
    assert len(gzip.compress(script, 9)) <= 48_000
    (carried,) = re.findall(r'id="script">([^<]*)<', gradir.export(Graph.of([]), "html"))
    assert len(carried) <= 64_100


@pytest.mark.parametrize("name", ["page.js", "style.css"])
def test_the_built_script_can_be_put_into_a_page(name: str) -> None:
    text = (PAGE / name).read_text(encoding="utf-8")
    assert text.isascii(), "its encoding would depend on the host"
    for end in ("</script", "</style", "<!--"):
        assert end not in text.lower()
    for way in ("eval(", "new Function(", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "fetch("):
        assert way not in text, "text may not become markup or script"
    assert "XMLHttpRequest" not in text
    assert "@import" not in text
