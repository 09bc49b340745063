"""The layer rule holds on the tree, and breaks as soon as a forbidden import is written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytest.importorskip("importlinter", reason="needs import-linter (the dependency group check)")

FRAMEWORKS = "Only front-ends know a framework"
LAYERS = "Data flows one way"
REGISTRY = "Front-ends are reached through the registry only"
EXPORTERS = "Exporters do not know each other"
READING = "Reading a live graph knows nothing of recording and verifying"
PROTOCOL = "Exporters see the IR, passes and the export protocol only"
CORE = "The core does not know the exporters"

FORBIDDEN = [
    ("gradir/ir/model.py", "import torch", FRAMEWORKS),
    ("gradir/ir/edges.py", "def late() -> None:\n    import torch", FRAMEWORKS),
    ("gradir/codecs/codec.py", "import numpy", FRAMEWORKS),
    ("gradir/vocabulary/pytorch.py", "import torch", FRAMEWORKS),
    ("gradir/api.py", "import gradir.frontends.pytorch.frontend", REGISTRY),
    ("gradir/ir/ids.py", "import gradir.codecs", LAYERS),
    ("gradir/registry.py", "import gradir.cli", LAYERS),
    ("gradir/diffs/changes.py", "import gradir.codecs", LAYERS),
    ("exporters/gradir_exporters/dot.py", "import gradir_exporters.tree", EXPORTERS),
    ("exporters/gradir_exporters/mermaid.py", "import gradir_exporters._dot_labels", EXPORTERS),
    ("gradir/misplaced.py", "", LAYERS),
    ("gradir/misplaced.py", "import torch", FRAMEWORKS),
    ("gradir/__init__.py", "import torch", FRAMEWORKS),
    ("gradir/cli/main.py", "import gradir.frontends.pytorch.frontend", REGISTRY),
    ("gradir/frontends/pytorch/reading/walk.py", "import gradir.frontends.pytorch.recording.sources", READING),
    ("gradir/frontends/pytorch/recording/flow.py", "import gradir.frontends.pytorch.verifying.verify", READING),
    ("gradir/frontends/pytorch/misplaced.py", "", READING),
    ("exporters/gradir_exporters/plain.py", "import torch", FRAMEWORKS),
    ("exporters/gradir_exporters/tree.py", "import gradir.registry", PROTOCOL),
    ("exporters/gradir_exporters/mermaid.py", "import gradir", PROTOCOL),
    ("gradir/api.py", "import gradir_exporters.plain", CORE),
]
"""Code that is added to a module, and the contract that it breaks. Without code, the module itself has no place."""


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    # An editable installation would resolve to the original, so the copy comes first on the path.
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'exporters'}", "PYTHONUTF8": "1"}
    code = "from importlinter.cli import lint_imports_command as main; main()"
    command = [sys.executable, "-c", code, "--no-cache"]
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, encoding="utf-8", timeout=120, check=False
    )


def test_the_tree_keeps_the_rule() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert " kept, 0 broken" in result.stdout


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The report on a copy of the tree with every forbidden import, by contract."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("gradir", "exporters"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    for path, code, _ in FORBIDDEN:
        module = tree / path
        assert module.is_file() or module.name == "misplaced.py"
        with module.open("a", encoding="utf-8") as file:
            file.write(f"\n\n{code}\n")
    result = lint(tree)
    assert result.returncode == 1, result.stdout + result.stderr
    _, *parts = re.split(r"^(.+)\n-{4,}\n\n", result.stdout.partition("Broken contracts")[2], flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize(("path", "code", "contract"), FORBIDDEN)
def test_a_forbidden_import_breaks_it(broken: dict[str, str], path: str, code: str, contract: str) -> None:
    module = path.removeprefix("exporters/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    told = f"- {module} -> {code.rsplit(maxsplit=1)[-1]} (l." if code else f"not listed as layers: - {module} "
    assert told in broken[contract]
