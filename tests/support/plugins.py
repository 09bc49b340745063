"""Plug-ins: the distribution in tests/plugin, installed, and ones that a test makes up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from samples import everything

PLUGIN = Path(__file__).parents[1] / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that holds the plug-in as pip installs it, offline."""
    target = tmp_path_factory.mktemp("plugin")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", target, PLUGIN], check=True, timeout=120)
    return target


@pytest.fixture(scope="module")
def gir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gir") / "sample.gir"
    everything().save(path)
    return path


def gradir(plugins: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(plugins), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "gradir", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=60, check=False)


def register(plugins: Path, name: str, value: str, group: str = "gradir.exporters") -> None:
    info = plugins / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")


def recipe(name: str) -> Any:
    """The class of that name in the recipes of CONTRIBUTING."""
    contributing = (PLUGIN.parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = re.findall(r"^   ```python\n(.*?)^   ```$", contributing, re.DOTALL | re.MULTILINE)
    (found,) = [text for text in recipes if f"class {name}" in text]
    namespace: dict[str, Any] = {}
    exec(textwrap.dedent(found).replace("from __future__ import annotations", ""), namespace)
    return namespace[name]()
