"""A pass of another package is an option of the command line and a keyword, as gradir's own are."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from plugins import gir, gradir, installed, register
from samples import everything

from gradir import Graph, registry
from gradir.errors import GradirWarning
from gradir.exporting import option_names, plan_passes

__all__ = ["gir", "installed"]


def test_it_is_an_option_with_its_help(installed: Path) -> None:
    for command in ("export", "view"):
        shown = gradir(installed, command, "--help")
        assert (shown.returncode, shown.stderr) == (0, "")
        words = " ".join(shown.stdout.split())
        assert "--only-ops OP only these operations; may be repeated, 100% so" in words
        assert "--least-inputs N and of these only those with N inputs (default: 0)" in words
        # It runs behind --hide-shape-ops and before --ancestors.
        assert (
            words.index("--hide-shape-ops leave")
            < words.index("--only-ops OP only")
            < words.index("--ancestors PATTERN only")
        )


def test_it_runs(installed: Path, gir: Path) -> None:
    ops = sorted({node.op for node in everything().nodes.values() if node.op})
    one = gradir(installed, "export", gir, "--to", "nodelink", "--only-ops", ops[0], "--only-ops", ops[1])
    assert (one.returncode, one.stderr) == (0, "")
    kept = [node.id for node in everything().nodes.values() if node.op in ops[:2]]
    assert kept
    assert [key for key in everything().nodes if f'"id":"{key}"' in one.stdout.replace(" ", "")] == kept


def test_it_is_a_keyword(installed: Path, gir: Path) -> None:
    options = "only_ops='addmm', least_inputs=1, arities=(2, 3)"
    by_keyword = python(installed, f"import gradir; print(gradir.load({str(gir)!r}).to('plain', {options}), end='')")
    given = ("--only-ops", "addmm", "--least-inputs", "1", "--arities", "2", "--arities", "3")
    by_option = gradir(installed, "export", gir, "--to", "plain", *given)
    assert by_keyword.stdout == by_option.stdout != gradir(installed, "export", gir, "--to", "plain").stdout
    assert by_option.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--least-inputs", "1"), "least_inputs belongs to only_ops: give only_ops too"),
        (("--only-ops", "addmm", "--least-inputs", "-1"), "--least-inputs: expected integer, 0 or more, not '-1'"),
        (("--only-op", "mul", "--focus", "x"), "focus 'x': --only-ops, which runs before it"),
    ],
)
def test_wrong_options_are_one_line(installed: Path, gir: Path, arguments: tuple[str, ...], said: str) -> None:
    done = gradir(installed, "export", gir, "--to", "plain", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


BROKEN = {
    "missing-import": "import a_library_that_is_not_there\n",
    "exits": "raise SystemExit('gone')\n",
    "not-a-pass": "Pass = 3\n",
    "no-options": "class Pass:\n    order = 1\n    def run(self, graph, options):\n        return graph\n",
    "no-order": "from gradir.options import NoOptions\n\n\nclass Pass:\n    options = NoOptions\n",
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_a_broken_one_is_named_and_the_others_work(tmp_path: Path, gir: Path, source: str) -> None:
    (tmp_path / "broken_plugin.py").write_text(source)
    register(tmp_path, "broken", "broken_plugin:Pass", "gradir.passes")
    plain = gradir(tmp_path, "export", gir, "--to", "plain")
    assert (plain.returncode, plain.stderr) == (0, "")
    folded = gradir(tmp_path, "export", gir, "--to", "plain", "--depth", "1")
    assert folded.returncode == 0
    assert folded.stdout == everything().to("plain", depth=1)
    assert folded.stderr.startswith("gradir: warning: pass 'broken' (broken_plugin:Pass) cannot be loaded: ")
    assert folded.stderr.count("\n") == 1


def test_an_option_of_another_pass_is_not_taken_over(tmp_path: Path, gir: Path) -> None:
    (tmp_path / "second_plugin.py").write_text(
        textwrap.dedent(
            """
            from gradir.options import Options

            class Own(Options, frozen=True, kw_only=True):
                depth: int

            class Pass:
                order = 5
                options = Own
                def run(self, graph, options):
                    raise AssertionError
            """
        )
    )
    register(tmp_path, "second", "second_plugin:Pass", "gradir.passes")
    done = gradir(tmp_path, "export", gir, "--to", "plain", "--depth", "1")
    assert (done.returncode, done.stdout) == (0, everything().to("plain", depth=1))
    assert "pass 'second' is left out: the pass 'fold' has the option depth too" in done.stderr


def test_a_pass_that_returns_no_graph_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        order = 1
        options = type(plan_passes({"depth": 1})[0].options)

        def run(self, graph: Graph, options: object) -> Any:
            return None

    monkeypatch.setattr(registry, "passes", lambda: {"lost": Lost()})
    assert list(option_names()) == ["depth"]
    with pytest.raises(registry.PassError, match="pass 'lost' failed: it returned NoneType, not a graph"):
        plan_passes({"depth": 1})[0](everything())


def python(plugins: Path, code: str) -> subprocess.CompletedProcess[str]:
    import os
    import sys

    environment = {**os.environ, "PYTHONPATH": str(plugins), "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, encoding="utf-8", timeout=60, check=False
    )


def test_warned_of_in_python_too(tmp_path: Path) -> None:
    register(tmp_path, "broken", "no_such_module:Pass", "gradir.passes")
    done = python(tmp_path, "from gradir.exporting import option_names; print(len(list(option_names())))")
    assert done.stdout == "12\n"
    assert GradirWarning.__name__ in done.stderr
