"""Plug-ins: gradir's own exporters, the distribution in tests/plugin, installed, and ones that a test makes up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forked
import pytest
from samples import everything

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib  # type: ignore[import-not-found,no-redef]

BUILT_IN = (
    "cytoscape",
    "dot",
    "graphml",
    "html",
    "mermaid",
    "model-explorer",
    "modules",
    "nodelink",
    "plain",
    "summary",
    "tree",
)
PLUGIN = Path(__file__).parents[1] / "plugin"
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "gradir.pytest_plugin")
NO_OTHER_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""What runs pytest with gradir's plugin alone: to load all that are installed takes a second."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files and entry points of the plug-in, as pip puts them there in ten times as long."""
    target = tmp_path_factory.mktemp("plugin")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))
    for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["include"]:
        shutil.copy(PLUGIN / name, target)
    groups = project["project"]["entry-points"].items()
    lines = [line for group, names in groups for line in (f"[{group}]", *(f"{key} = {names[key]}" for key in names))]
    write_metadata(target, "gradir_edges", "0.1.0", lines)
    return target


@pytest.fixture(scope="module")
def gir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gir") / "sample.gir"
    everything().save(path)
    return path


def gradir(plugins: Path, *arguments: str | Path, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(plugins), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "gradir", *map(str, arguments)]
    how = {"env": environment, "cwd": directory, "capture_output": True, "encoding": "utf-8", "timeout": 60}
    return subprocess.run(command, check=False, **how)  # type: ignore[call-overload,no-any-return]


def run_with_plugin(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest with gradir's plugin, and with xdist where workers are asked for."""
    more = ("-p", "xdist.plugin") if "-n" in arguments else ()
    start = time.monotonic()
    done = forked.run(
        [*PYTEST, *more, *arguments], cwd=pytester.path, env={**os.environ, **NO_OTHER_PLUGINS}, text=True
    )
    out, err = done.stdout.splitlines(), done.stderr.splitlines()
    return pytest.RunResult(done.returncode, out, err, time.monotonic() - start)


def register(plugins: Path, name: str, value: str, group: str = "gradir.exporters") -> None:
    write_metadata(plugins, name, "1.0", [f"[{group}]", f"{name} = {value}"])


def write_metadata(plugins: Path, name: str, version: str, entry_points: Sequence[str]) -> None:
    """Write what tells Python that a distribution is installed."""
    info = plugins / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("\n".join([*entry_points, ""]))


def recipe(name: str) -> Any:
    """Return an object of the class of that name in docs/plugins.md."""
    page = (PLUGIN.parents[1] / "docs" / "plugins.md").read_text(encoding="utf-8")
    recipes = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (found,) = [text for text in recipes if f"class {name}" in text]
    namespace: dict[str, Any] = {}
    # Evaluated where they stand: of a namespace that is no module nobody could resolve the annotations later.
    code = found.replace("from __future__ import annotations", "")
    exec(compile(code, name, "exec", dont_inherit=True), namespace)
    return namespace[name]()


SPEC = """
import atexit, sys
from terms import Term

atexit.register(lambda: print("loaded", *sorted({"torch", "jax", "numpy"} & {*sys.modules}), file=sys.stderr))
term = Term("x") + Term("y").view()
number = 3

def make():
    return term

def fails():
    raise ValueError("no term")
"""


@pytest.fixture
def folder(installed: Path, tmp_path: Path) -> Path:
    """A folder with ``spec.py``, a program of the front-end in the plug-in."""
    (tmp_path / "spec.py").write_text(SPEC)
    return tmp_path


def python(plugins: Path, code: str, *more: str | Path) -> subprocess.CompletedProcess[str]:
    """Run code with gradir and the plug-ins in another process."""
    paths = os.pathsep.join(map(str, (*more, plugins)))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", f"import sys, gradir\nfrom gradir import GradirError\n{code}"]
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=60, check=False)


def said(plugins: Path, call: str, *more: str | Path) -> str:
    """What an error says, which is one line and one of gradir's."""
    done = python(plugins, f"try: {call}\nexcept GradirError as error: print(error)", *more)
    assert done.stdout.count("\n") == 1, done
    return done.stdout.rstrip()
