"""The programs and packages that some tests need: how to find and install each, and how many tests lack it."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

_ROOT: Final = Path(__file__).parents[2]
_MISSING: Final = re.compile(r"missing tool: ([^;]+);")

FIXTURES: Final = frozenset(
    {"browser", "cytoscape_node", "dot_program", "mermaid_node", "model_explorer_viewer", "viewer_node"}
)
"""The fixtures of tests/conftest.py that ask for a tool."""


class Tool(NamedTuple):
    """A program, by any of its names, or a folder; and the command that installs it."""

    install: str
    programs: tuple[str, ...] = ()
    folder: Path = Path()


_TOOLS: Final = {
    "git": Tool("apt-get install git", ("git",)),
    "sh": Tool("apt-get install dash", ("sh",)),
    "dot": Tool("apt-get install graphviz", ("dot",)),
    "Chromium": Tool("apt-get install chromium", ("chromium", "chromium-browser", "google-chrome")),
    "bash": Tool("apt-get install bash", ("bash",)),
    "fish": Tool("apt-get install fish", ("fish",)),
    "zsh": Tool("apt-get install zsh", ("zsh",)),
    "node": Tool("apt-get install nodejs npm", ("node",)),
    "packages of tests/node": Tool("make node", folder=_ROOT / "tests" / "node" / "node_modules"),
    "packages of viewer": Tool("make node", folder=_ROOT / "viewer" / "node_modules"),
    "Model Explorer": Tool("make model-explorer", folder=_ROOT / ".model-explorer" / "model_explorer" / "web_app"),
}


def find(name: str) -> str | None:
    """Return the path of a tool, or None where it is missing."""
    tool = _TOOLS[name]
    if not tool.programs:
        return str(tool.folder) if tool.folder.is_dir() else None
    return next(filter(None, map(shutil.which, tool.programs)), None)


def require(name: str) -> str:
    """Return the path of a tool, or skip the running test where it is missing."""
    found = find(name)
    if found is None:
        pytest.skip(_reason(name))
    return found


def needs(name: str) -> pytest.MarkDecorator:
    """Mark a test, or all of a module, that is skipped where a tool is missing."""
    return pytest.mark.skipif(find(name) is None, reason=_reason(name))


def _reason(name: str) -> str:
    return f"missing tool: {name}; run '{_TOOLS[name].install}'"


def summarize(reasons: Iterable[str]) -> str:
    """Return one line that counts the tests that each missing tool skipped, or an empty text.

    >>> summarize(["missing tool: node; ...", "missing tool: dot; ...", "needs torch", "missing tool: dot; ..."])
    'missing tools: dot (2 tests skipped), node (1)'
    """
    counts = Counter(match[1] for reason in reasons if (match := _MISSING.search(reason)))
    shown = [f"{name} ({counts[name]})" for name in _TOOLS if counts[name]]
    if not shown:
        return ""
    first = shown[0].replace(")", " test skipped)" if "(1)" in shown[0] else " tests skipped)")
    return f"missing tools: {', '.join([first, *shown[1:]])}"


def path_without(program: str) -> str:
    """Return PATH without the folders that contain a program."""
    return os.pathsep.join(folder for folder in os.get_exec_path() if not Path(folder, program).exists())
