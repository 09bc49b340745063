"""What a command loads before it does its work: the reason why it starts fast, without a clock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from samples import everything

import gradir

Loaded = Callable[..., "frozenset[str]"]

# Each takes about a millisecond or more, some thirty.
SLOW = (
    *("csv", "difflib", "email", "importlib.metadata", "json", "logging", "pathlib", "subprocess", "tempfile"),
    *(
        "threading",
        "urllib.parse",
        "zipfile",
        "graphviz",
        "mermaid",
        "msgpack",
        "pydot",
        "requests",
        "rich",
        "argcomplete",
    ),
    *("gradir.frontends.pytorch", "gradir.replacing", "gradir.review.report", "gradir.spec"),
)
LIBRARY = ("msgspec", "gradir.ir", "gradir.codecs", "gradir.passes", "gradir.registry", "gradir.protocols")
UNASKED = ("gradir.codecs.strict", "gradir.codecs.surveyor", "gradir.diffs.changes", "gradir.git", "gradir.passes")
WIDTH = ("shutil",)
"""What finds out the width of the terminal, for which it loads all compressions."""

GRAPHVIZ = ("graphviz", "logging", "pathlib", "subprocess", "threading", "urllib.parse")
"""graphviz, which builds the DOT text, and what it loads."""

RUN = "from gradir.cli import main; main()"

ABSENT = {
    "--version": (*SLOW, *WIDTH, *LIBRARY, "gradir.cli.export_command"),
    "--help": (*SLOW, *LIBRARY),
    "export --help": (*SLOW, "gradir.codecs", "gradir.cli.diff_command"),
    "export a.gir --to tree": (*SLOW, *WIDTH, *UNASKED, "gradir.cli.diff_command"),
    "export a.gir --to plain": (*SLOW, *WIDTH, *UNASKED),
    "export a.gir --to dot": (*(name for name in SLOW if name not in GRAPHVIZ), *WIDTH, *UNASKED),
    "export a.gir --to nodelink": (*SLOW, *WIDTH, *UNASKED),
    "export a.gir --to tree --depth 1": (*SLOW, *WIDTH, *(name for name in UNASKED if name != "gradir.passes")),
    "exporters": ("graphviz", "mermaid", "pydot", "requests", "rich", *UNASKED[:-1]),
    "summary a.gir --style markdown": (*SLOW, *WIDTH, *UNASKED),
    "git textconv a.gir": (*SLOW, *WIDTH, *UNASKED[:-1], "gradir.passes"),
    "info a.gir": (*SLOW, *WIDTH, "gradir.registry", "gradir.passes", "gradir.diffs.changes", "gradir.git"),
    "validate a.gir": (*(name for name in SLOW if name != "json"), *WIDTH, "gradir.registry", "gradir.passes"),
    "diff a.gir a.gir": (
        *SLOW,
        *WIDTH,
        "gradir.registry",
        "gradir.passes",
        "gradir.review.united",
        "gradir.review.conditions",
    ),
    "convert a.gir -": (*SLOW, *WIDTH, *UNASKED, "gradir.registry"),
}

PRESENT = {
    "export a.gir --to tree": ("msgspec", "gradir.registry", "gradir.cli.export_command", "gradir_exporters.tree"),
    "export a.gir --to tree --depth 1": ("gradir.passes.fold",),
    "export --help": WIDTH,
    "export a.gir --to plain -o a.txt": ("gradir.replacing",),
    "export a.gir --to summary -O style=csv": ("csv",),
    "diff a.gir a.gir --fail-on nodes": ("gradir.review.conditions",),
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """The modules that an interpreter has loaded after some code, in a directory that holds a.gir."""
    folder = tmp_path_factory.mktemp("startup")
    gradir.save(everything(), folder / "a.gir")

    # -X importtime does not see what importlib.import_module imports.
    listing = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"

    def run(code: str, *arguments: str) -> frozenset[str]:
        command = [sys.executable, "-c", f"{listing}\n{code}", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=60)
        return frozenset(done.stderr.decode().splitlines()[-1].split())

    return run


@pytest.fixture(scope="module")
def floor(loaded: Loaded) -> frozenset[str]:
    """What is there anyway: by the environment, by argparse, and by msgspec, which the records are made of."""
    return loaded("import argparse, msgspec") - {"msgspec"}


@pytest.mark.parametrize("line", ABSENT)
def test_a_command_loads_nothing_that_it_does_not_need(line: str, loaded: Loaded, floor: frozenset[str]) -> None:
    found = loaded(RUN, *line.split()) - floor
    assert {"gradir.cli.main", "gradir.errors"} <= found
    assert sorted(found.intersection(ABSENT[line])) == []


@pytest.mark.parametrize("line", PRESENT)
def test_needed_modules_are_loaded(line: str, loaded: Loaded) -> None:
    assert set(PRESENT[line]) <= loaded(RUN, *line.split())


@pytest.mark.parametrize("name", sorted({name for names in ABSENT.values() for name in names}))
def test_the_modules_named_here_exist(name: str) -> None:
    assert find_spec(name) is not None


CYCLE = """
import sys
import torch

class Held:
    def __init__(self):
        self.itself = self

    def __del__(self):
        sys.stderr.write("finalized\\n")

held = Held()
loss = torch.ones(2, requires_grad=True).exp()
"""


@pytest.mark.parametrize("command", ["capture", "check"])
def test_objects_of_a_program_are_finalized(command: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(CYCLE)
    gradir_command = [sys.executable, "-m", "gradir"]
    capture = [*gradir_command, "capture", "program.py:loss", "-o", "loss.gir"]
    check = [*gradir_command, "check", "program.py:loss", "--against", "loss.gir", "--update"]
    line = capture if command == "capture" else check
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, check=True, encoding="utf-8", timeout=120)
    assert "finalized\n" in done.stderr
