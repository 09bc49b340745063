"""The names that `import gradir` promises."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gradir

ARCHITECTURE = Path(__file__).parent.parent / "docs" / "architecture.md"


def documented() -> dict[str, list[str]]:
    """The names in the table of public names, by row."""
    section = ARCHITECTURE.read_text(encoding="utf-8").partition("## Public names\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z -]+) \| (.+) \|$", section, re.MULTILINE)
    return {kind: re.findall(r"`(\w+)`", names) for kind, names in rows}


NAMES = sorted(name for names in documented().values() for name in names)


def python(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, check=True, encoding="utf-8", timeout=60).stdout


def test_all_lists_the_documented_names() -> None:
    assert sorted(gradir.__all__) == NAMES
    assert len(set(gradir.__all__)) == len(gradir.__all__)


def test_every_name_resolves_in_a_package_that_is_imported_anew() -> None:
    code = f"""
import sys
for name in {NAMES}:
    for module in [each for each in sys.modules if each.partition(".")[0] == "gradir"]:
        del sys.modules[module]
    namespace = {{}}
    exec(f"from gradir import {{name}} as found; import gradir", namespace)
    print(name, namespace["found"] is getattr(namespace["gradir"], name))
"""
    assert python(code).splitlines() == [f"{name} True" for name in NAMES]


def test_dir_lists_exactly_the_names() -> None:
    assert dir(gradir) == NAMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gradir' has no attribute 'nothing'"):
        _ = gradir.nothing


def test_every_error_is_a_gradir_error() -> None:
    assert all(issubclass(getattr(gradir, name), gradir.GradirError) for name in documented()["errors"])


def test_no_module_has_the_name_of_a_public_object() -> None:
    modules = {module.name for module in pkgutil.iter_modules(gradir.__path__)}
    assert "api" in modules
    assert modules.isdisjoint(gradir.__all__)


def test_importing_gradir_imports_no_framework_and_no_exporter() -> None:
    loaded = python("import sys, gradir; print(*sorted(sys.modules))").split()
    heavy = {
        "graphviz",
        "gradir_exporters",
        "jax",
        "mermaid",
        "msgpack",
        "msgspec",
        "numpy",
        "pydot",
        "requests",
        "torch",
    }
    assert heavy.isdisjoint(name.partition(".")[0] for name in loaded)
