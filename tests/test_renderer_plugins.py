"""A renderer of a diff from another package is a format of the command line and of Python, as gradir's own are."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diff_pairs import edit_sample
from plugins import gir, gradir, installed, recipe, register
from samples import everything

import gradir as library
from gradir import Graph, registry
from gradir.cli import main
from gradir.diffs.correspondence import Correspondence
from gradir.diffs.diff_json import decode, encode
from gradir.errors import ExportError
from gradir.review.text import render

__all__ = ["gir", "installed"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    library.save(everything(), "a.gir")
    library.save(edit_sample(), "b.gir")
    return tmp_path


def test_it_is_a_format(installed: Path, files: Path) -> None:
    done = gradir(installed, "diff", files / "a.gir", files / "b.gir", "--format", "changes-csv")
    assert (done.returncode, done.stderr) == (1, "")
    found = library.diff(everything(), edit_sample())
    assert done.stdout.splitlines() == [
        "kind,subject,id",
        *(f"{change.kind},{change.subject},{change.id}" for change in found.changes),
    ]


def test_it_takes_its_options(installed: Path, files: Path) -> None:
    line = ("diff", files / "a.gir", files / "b.gir", "--format", "changes-csv")
    done = gradir(installed, *line, "-O", "subject=node")
    found = library.diff(everything(), edit_sample())
    assert len(done.stdout.splitlines()) == 1 + sum(change.subject == "node" for change in found.changes)
    for option, said in (
        ("subjekt=node", "renderer 'changes-csv' has no option 'subjekt' (did you mean 'subject'?)"),
        ("subject=tensor", "renderer 'changes-csv': option subject: expected "),
        ("subject", "-O 'subject': expected KEY=VALUE"),
    ):
        done = gradir(installed, *line, "-O", option)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"gradir: {said}")


def test_the_help_lists_it_and_its_options(installed: Path) -> None:
    for command in ("diff", "check"):
        done = gradir(installed, command, "--format", "changes-csv", "--help")
        assert (done.returncode, done.stderr) == (0, "")
        words = " ".join(done.stdout.split())
        assert "text, changes-csv, dot, html, json, markdown, mermaid, svg (default: " in words
        assert "options of changes-csv, each as -O KEY=VALUE: subject=all|cut|node|scope which changes" in words


BROKEN = {
    "missing-import": "import a_library_that_is_not_there\n",
    "exits": "raise SystemExit('gone')\n",
    "not-a-renderer": "Renderer = 3\n",
    "an-exporter": (
        "from gradir.options import NoOptions\n\n\nclass Renderer:\n    suffix = '.txt'\n    options = NoOptions\n"
        "    def export(self, graph, options):\n        return ''\n"
    ),
    "raises": (
        "from gradir.options import NoOptions\n\n\nclass Renderer:\n    suffix = '.txt'\n    options = NoOptions\n"
        "    def render(self, diff, options):\n        raise KeyError('a\\nb')\n"
    ),
    "returns-bytes": (
        "from gradir.options import NoOptions\n\n\nclass Renderer:\n    suffix = '.txt'\n    options = NoOptions\n"
        "    def render(self, diff, options):\n        return b''\n"
    ),
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_a_broken_one_is_one_clear_line_and_the_others_work(tmp_path: Path, files: Path, source: str) -> None:
    (tmp_path / "broken_plugin.py").write_text(source)
    register(tmp_path, "broken", "broken_plugin:Renderer", "gradir.renderers")
    done = gradir(tmp_path, "diff", files / "a.gir", files / "b.gir", "--format", "broken")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("gradir: renderer 'broken' ")
    assert gradir(tmp_path, "diff", files / "a.gir", files / "b.gir", "--format", "json").returncode == 1


def test_an_unknown_one_is_found_before_anything_is_loaded(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "missing.gir", "gone.gir", "--format", "makrdown"]) == 2
    assert capfd.readouterr().err == (
        "gradir: unknown renderer 'makrdown' (did you mean 'markdown'?): choose from dot, html, json, markdown, "
        "mermaid, text; svg is a picture, drawn by 'gradir diff --format svg'\n"
    )
    with pytest.raises(ExportError, match="unknown renderer 'svg': svg is a picture, drawn by 'gradir diff"):
        library.diff(everything(), edit_sample()).to("svg")


@pytest.mark.parametrize("name", ["text", "markdown", "json", "mermaid", "dot", "html"])
@pytest.mark.usefixtures("files")
def test_python_and_the_command_give_the_same_text(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert set(registry.renderer_names()) == {"text", "markdown", "json", "mermaid", "dot", "html"}
    for ignored in ((), ("attrs", "cuts")):
        main(["diff", "a.gir", "b.gir", "--format", name, *(word for field in ignored for word in ("--ignore", field))])
        found = library.diff(library.load("a.gir"), library.load("b.gir"), ignore=ignored)
        names = {"before": "a.gir", "after": "b.gir"} if name == "html" else {}
        assert found.to(name, **names) == capfd.readouterr().out
    assert library.diff(everything(), everything()).to(name)


@pytest.mark.usefixtures("files")
def test_a_diff_prints_itself(capfd: pytest.CaptureFixture[str]) -> None:
    found = library.diff(everything(), edit_sample())
    print(found)
    mine = capfd.readouterr().out
    main(["diff", "a.gir", "b.gir"])
    assert mine == capfd.readouterr().out
    shown = found._repr_mimebundle_()
    assert shown.pop("text/html").startswith("<iframe srcdoc=")
    assert shown == {"text/plain": mine.removesuffix("\n"), "text/markdown": found.to("markdown")}
    # Nothing to review.
    assert {*library.diff(everything(), everything())._repr_mimebundle_()} == {"text/plain", "text/markdown"}
    main(["diff", "a.gir", "b.gir", "--full"])
    assert found.to("text", full=True) == capfd.readouterr().out
    main(["diff", "a.gir", "b.gir", "-O", "full=true", "-O", "width=40"])
    assert found.to("text", full=True, width=40) == capfd.readouterr().out


def test_the_graphs_are_no_part_of_its_value() -> None:
    found = library.diff(everything(), edit_sample())
    read = decode(encode(found))
    assert read == found
    assert repr(read) == repr(found)
    assert found.sides is not None
    assert found.sides.after == edit_sample()
    assert read.sides is None
    # It tells every change by itself then.
    assert f"{read}\n" == render(read, "full")
    assert read.to("markdown").startswith("### Autograd graph\n")
    for name in ("mermaid", "dot"):
        with pytest.raises(ExportError, match="a picture needs both graphs"):
            read.to(name)


def test_a_report_makes_each_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    def counted(home: str, name: str) -> None:
        module = __import__(home, fromlist=[name])
        made: Callable[..., Any] = getattr(module, name)

        def count(*given: Any, **more: Any) -> Any:
            counts[name] += 1
            return made(*given, **more)

        monkeypatch.setattr(module, name, count)

    for home, name in {
        "gradir.diffs.matching": "match",
        "gradir.diffs.compare": "compare",
        "gradir.review.united": "unite_graphs",
    }.items():
        counted(home, name)
    monkeypatch.setattr(Correspondence, "__init__", _counted_init(counts))
    found = library.diff(everything(), edit_sample())
    assert counts == {"match": 1, "compare": 1, "Correspondence": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = found.to("markdown")
    assert re.search("```mermaid\n.*<summary>What changed</summary>", report, re.DOTALL)
    assert counts == {"match": 1, "compare": 1, "Correspondence": 1, "unite_graphs": 1}
    before = Counter(counts)
    assert str(found)
    assert json.loads(found.to("json"))
    assert counts == before


def _counted_init(counts: Counter[str]) -> Callable[..., None]:
    made = Correspondence.__init__

    def count(self: Correspondence, a: Graph, b: Graph, matching: Any) -> None:
        counts["Correspondence"] += 1
        made(self, a, b, matching)

    return count


def test_the_recipe_works() -> None:
    renderer = recipe("IdsRenderer")
    found = library.diff(everything(), edit_sample())
    lines = [f"{change.kind} {change.id}" for change in found.changes]
    assert renderer.render(found, renderer.options()).splitlines() == lines
