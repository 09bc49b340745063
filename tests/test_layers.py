"""The layer rule holds on the tree, and breaks as soon as a forbidden import is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytest.importorskip("importlinter", reason="needs import-linter (the dependency group check)")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of both packages and of the rule."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gradir", tmp_path / "gradir", ignore=ignore)
    shutil.copytree(ROOT / "exporters", tmp_path / "exporters", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    # An editable installation would resolve to the original, so the copy comes first on the path.
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'exporters'}", "PYTHONUTF8": "1"}
    code = "from importlinter.cli import lint_imports_command as main; main()"
    command = [sys.executable, "-c", code, "--no-cache"]
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, encoding="utf-8", timeout=120, check=False
    )


def broken_contracts(output: str) -> set[str]:
    return {name for name, found, _ in (line.partition(" BROKEN") for line in output.splitlines()) if found}


def test_the_tree_keeps_the_rule(tree: Path) -> None:
    result = lint(tree)
    assert result.returncode == 0, result.stdout + result.stderr
    assert " kept, 0 broken" in result.stdout


FORBIDDEN = {
    "the IR imports torch": ("gradir/ir/model.py", "import torch", "Only front-ends know a framework"),
    "the IR imports torch inside a function": (
        "gradir/ir/order.py",
        "def late() -> None:\n    import torch",
        "Only front-ends know a framework",
    ),
    "a codec imports numpy": ("gradir/codecs/codec.py", "import numpy", "Only front-ends know a framework"),
    "a vocabulary imports torch": ("gradir/vocabulary/pytorch.py", "import torch", "Only front-ends know a framework"),
    "the api imports a front-end": (
        "gradir/api.py",
        "import gradir.frontends.pytorch.frontend",
        "Front-ends are reached through the registry only",
    ),
    "the IR imports a codec": ("gradir/ir/ids.py", "import gradir.codecs", "Data flows one way"),
    "the registry imports the command line": ("gradir/registry.py", "import gradir.cli", "Data flows one way"),
    "a diff imports a codec": ("gradir/diffs/changes.py", "import gradir.codecs", "Data flows one way"),
    "an exporter imports another": (
        "exporters/gradir_exporters/dot.py",
        "import gradir_exporters.tree",
        "Exporters do not know each other",
    ),
    "an exporter borrows from another": (
        "exporters/gradir_exporters/mermaid.py",
        "import gradir_exporters._dot_labels",
        "Exporters do not know each other",
    ),
    "a module has no place": ("gradir/misplaced.py", "", "Data flows one way"),
    "a module without a place imports a framework": (
        "gradir/misplaced.py",
        "import torch",
        "Only front-ends know a framework",
    ),
    "the package imports a framework": ("gradir/__init__.py", "import torch", "Only front-ends know a framework"),
    "the command line imports a front-end": (
        "gradir/cli/main.py",
        "import gradir.frontends.pytorch.frontend",
        "Front-ends are reached through the registry only",
    ),
    "reading imports recording": (
        "gradir/frontends/pytorch/reading/walk.py",
        "import gradir.frontends.pytorch.recording.sources",
        "Reading a live graph knows nothing of recording and verifying",
    ),
    "recording imports verifying": (
        "gradir/frontends/pytorch/recording/flow.py",
        "import gradir.frontends.pytorch.verifying.verify",
        "Reading a live graph knows nothing of recording and verifying",
    ),
    "a part of the front-end has no place": (
        "gradir/frontends/pytorch/misplaced.py",
        "",
        "Reading a live graph knows nothing of recording and verifying",
    ),
    "an exporter imports a framework": (
        "exporters/gradir_exporters/plain.py",
        "import torch",
        "Only front-ends know a framework",
    ),
    "an exporter imports the registry": (
        "exporters/gradir_exporters/tree.py",
        "import gradir.registry",
        "Exporters see the IR, passes and the export protocol only",
    ),
    "an exporter imports all of gradir": (
        "exporters/gradir_exporters/mermaid.py",
        "import gradir",
        "Exporters see the IR, passes and the export protocol only",
    ),
    "the core imports an exporter": (
        "gradir/api.py",
        "import gradir_exporters.plain",
        "The core does not know the exporters",
    ),
}


@pytest.mark.parametrize(("path", "code", "contract"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_forbidden_import_breaks_it(tree: Path, path: str, code: str, contract: str) -> None:
    module = tree / path
    assert module.is_file() or module.name == "misplaced.py"
    with module.open("a", encoding="utf-8") as file:
        file.write(f"\n\n{code}\n")
    result = lint(tree)
    assert result.returncode == 1, result.stdout + result.stderr
    assert contract in broken_contracts(result.stdout)
