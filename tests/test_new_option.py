"""An option that is declared in `gradir.request`, and nowhere else, is one of all that take it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from plugins import installed

__all__ = ["installed"]

ROOT = Path(__file__).parents[1]

OPTIONS = """    mirrored: Annotated[
        bool, Option("show it from behind", needs="mirrored", uses=("capture", "graph"))
    ] = False
    shade: Annotated[
        Literal["light", "dark"], Option("how bright", needs="mirrored", uses=("capture", "graph"))
    ] = "light"
    turns: Annotated[Annotated[int, Meta(ge=1)], Option("how often", needs="mirrored", metavar="TIMES")] = 1
    levels: Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Option("which ones", needs="mirrored", metavar="N")] = ()
    glossy: Annotated[bool, Option("with a shine", needs="mirrored")] = True
"""
USE = """options={name: getattr(request, name) for name in ("mirrored", "shade", "turns", "levels", "glossy")}"""


@pytest.fixture(scope="module")
def tree(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with the options in one file, beside a front-end that has the feature, and a program."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("gradir", "exporters"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(installed, tree / "installed")
    declared = tree / "gradir" / "request.py"
    text = declared.read_text(encoding="utf-8")
    end = text.index("\n\n\n@cache")
    declared.write_text(f"{text[:end]}\n{OPTIONS.rstrip()}{text[end:]}", encoding="utf-8")
    frontend = tree / "installed" / "gradir_terms.py"
    text = frontend.read_text(encoding="utf-8")
    able = text.replace("frozenset()", 'frozenset({"mirrored"})').replace("framework_version=version", f"{USE}, \\g")
    frontend.write_text(able.replace("\\g", "framework_version=version"), encoding="utf-8")
    (tree / "spec.py").write_text("from terms import Term\n\n\ndef make():\n    return Term('x').view()\n")
    return tree


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (tree, tree / "exporters", tree / "installed")))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", "COLUMNS": "100"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def gradir(tree: Path, *arguments: str) -> str:
    done = run(tree, "-m", "gradir", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_take_it(tree: Path) -> None:
    made = gradir(tree, "capture", "spec.py:make", "--mirrored", "--shade", "dark", "--turns", "3", "--levels", "2")
    options = {"mirrored": True, "shade": "dark", "turns": 3, "levels": [2], "glossy": True}
    assert json.loads(made)["producer"]["options"] == options
    assert '"glossy":false' in gradir(tree, "capture", "spec.py:make", "--no-glossy")
    assert "mirrored" in gradir(tree, "export", "spec.py:make", "--mirrored", "--to", "nodelink")
    # The first program of a comparison runs in a process of its own.
    assert gradir(tree, "diff", "spec.py:make", "spec.py:make", "--mirrored", "--shade", "dark").startswith(
        "no difference in the autograd graph; "
    )


def test_the_help_describes_it(tree: Path) -> None:
    for command in ("capture", "export", "diff"):
        told = gradir(tree, command, "--help")
        assert "  --mirrored            show it from behind\n" in told
        assert "  --shade {light,dark}  how bright\n" in told
        assert ("--turns TIMES" in told) == (command == "capture")
    assert "--mirrored" not in gradir(tree, "explain", "--help")


def test_what_is_wrong_with_it_is_one_line(tree: Path) -> None:
    for words, told in (
        (
            ("--turns", "0"),
            "gradir: argument --turns: expected integer, 1 or more, not '0'; see gradir capture --help\n",
        ),
        (
            ("--levels", "x"),
            "gradir: argument --levels: expected integer, 1 or more, not 'x'; see gradir capture --help\n",
        ),
        (("--shade", "grey"), "gradir: unknown --shade 'grey': choose from light, dark; see gradir capture --help\n"),
        (("--miror",), "gradir: unknown option '--miror' (did you mean '--mirrored'?); see gradir capture --help\n"),
    ):
        done = run(tree, "-m", "gradir", "capture", "spec.py:make", *words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    gradir(tree, "capture", "spec.py:make", "-o", "made.gir")
    done = run(tree, "-m", "gradir", "summary", "made.gir", "--shade", "dark")
    assert done.stderr.startswith("gradir: --shade is for a program, but made.gir is a file")


PYTHON = """
import gradir
from terms import Term

graph = gradir.capture(Term("x"), mirrored=True, shade="dark")
assert graph.producer.options == {
    "mirrored": True, "shade": "dark", "turns": 1, "levels": (), "glossy": True
}, graph.producer
for given, told in (
    ({"mirrored": 3}, "capture(): mirrored: expected true|false, not 3"),
    ({"miror": True}, "capture() has no keyword 'miror' (did you mean 'mirrored'?)"),
):
    try:
        gradir.capture(Term("x"), **given)
    except TypeError as error:
        assert str(error) == told, error
    else:
        raise AssertionError(given)
"""


def test_the_functions_take_it(tree: Path) -> None:
    done = run(tree, "-c", PYTHON)
    assert done.returncode == 0, done.stderr


def test_a_front_end_that_lacks_its_feature_is_reported_by_name(tree: Path, tmp_path: Path) -> None:
    other = shutil.copytree(tree, tmp_path / "tree")
    frontend = other / "installed" / "gradir_terms.py"
    frontend.write_text(frontend.read_text(encoding="utf-8").replace('{"mirrored"}', "{}"), encoding="utf-8")
    done = run(other, "-m", "gradir", "capture", "spec.py:make", "--mirrored")
    told = "gradir: spec.py:make: front-end 'terms' cannot take --mirrored: of those installed none can\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    done = run(other, "-c", "import gradir, terms; gradir.capture(terms.Term('x'), turns=2)")
    assert "CaptureError: front-end 'terms' cannot take turns=2" in done.stderr
