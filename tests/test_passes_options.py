"""The passes as options of `gradir export`, `gradir.export`, `Graph.to` and `gradir.render`."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from samples import everything

import gradir
from gradir.errors import PassError
from gradir.exporting import option_names, plan_passes
from gradir.ir import Builder, Graph, TensorMeta
from gradir.passes import between, drop, focus, fold, hide_shape_ops, rollup

META = TensorMeta("float32", (2, 3))


def stacked() -> Graph:
    """Four equal layers of a weight behind an accumulator, a transpose and a product."""
    b = Builder()
    value = b.tensor("x", META)
    for number in range(4):
        scope = f"h.{number}"
        weight = b.tensor(f"{scope}.weight", META, role="parameter", scope=scope)
        accumulate = b.function("accumulate_grad", [weight], [META], scope=scope)
        value = b.function("mm", [value, b.function("t", [accumulate], [META], scope=scope)], [META], scope=scope)
    b.output(value)
    return b.build()


OPTIONS: dict[str, object] = {
    "drop": ["accumulate_grad"],
    "hide_shape_ops": True,
    "ancestors": "h.3/mm:1",
    "descendants": "h.0",
    "between": ("h.0.weight", "h.3/mm:1"),
    "focus": "h.1",
    "layers": True,
    "rollup": True,
    "once": True,
    "fold": ("h.*",),
    "depth": 1,
}


def run(graph: Graph, **options: object) -> Graph:
    for each in plan_passes(options):
        graph = each(graph)
    return graph


def test_the_order_is_that_of_the_fields_whatever_order_they_are_given_in() -> None:
    assert list(OPTIONS) == [name for name in option_names() if name != "hops"]
    for names in combinations(OPTIONS, 2):
        chosen = {name: OPTIONS[name] for name in names}
        expected = run(run(stacked(), **{names[0]: chosen[names[0]]}), **{names[1]: chosen[names[1]]})
        assert run(stacked(), **dict(reversed(chosen.items()))) == expected


def test_hops_are_counted_in_the_remaining_graph() -> None:
    assert list(run(stacked(), focus="h.1/mm:1", drop="accumulate_grad", hide_shape_ops=True).nodes) == [
        "h.0/mm:1",
        "h.1.weight",
        "h.1/mm:1",
        "h.2/mm:1",
    ]
    assert "h.1.weight" not in run(stacked(), focus="h.1/mm:1").nodes


def test_each_option_is_its_pass() -> None:
    graph = stacked()
    assert run(graph) is graph
    assert run(graph, focus="h.1", hops=2) == focus(graph, "h.1", 2)
    assert run(graph, between=["x", "h.1"]) == between(graph, "x", "h.1")
    assert run(graph, drop=["output", "leaf"]) == run(graph, drop=("leaf", "output")) == drop(graph, ["leaf", "output"])
    assert run(graph, depth=1) == fold(graph, 1)
    assert run(graph, rollup=True) == rollup(graph) != graph
    assert run(graph, hide_shape_ops=True) == hide_shape_ops(graph)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hops": 2}, "give focus too"),
        ({"focus": "x", "hops": -1}, "option hops: expected integer, 0 or more, not -1"),
        ({"depth": -1}, "option depth: expected integer, 0 or more, not -1"),
        ({"focus": 3}, "focus"),
        ({"between": ("x",)}, "between"),
        ({"between": "xy"}, "between"),
        ({"drop": 1}, "drop"),
        ({"rollup": "yes"}, "rollup"),
        ({"hops": True, "focus": "x"}, "hops"),
    ],
)
def test_wrong_values(options: dict[str, object], message: str) -> None:
    with pytest.raises(PassError, match=message):
        plan_passes(options)
    with pytest.raises(gradir.PassError, match=message):
        everything().to("tree", **options)


def test_export_runs_them_in_python() -> None:
    graph = stacked()
    chosen = {"drop": "accumulate_grad", "hide_shape_ops": True, "rollup": True}
    assert gradir.export(graph, "plain", **chosen) == graph.to("plain", **chosen)
    assert graph.to("plain", **chosen) == run(graph, **chosen).to("plain")
    assert graph.to("tree", focus="h.1", hops=0, native=True) == focus(graph, "h.1", 0).to("tree", native=True)
    assert graph.to("dot", depth=1) == fold(graph, 1).to("dot")


def test_a_name_that_an_exporter_has_is_the_exporters() -> None:
    assert everything().to("mermaid", depth=1) == fold(everything(), 1).to("mermaid")
    with pytest.raises(gradir.ExportError, match="option depth: expected integer"):
        everything().to("mermaid", depth="deep")


def test_names_are_checked_before_the_passes_run() -> None:
    with pytest.raises(gradir.ExportError, match="no option 'focsu'"):
        everything().to("tree", focsu="x", focus="nothing")
    with pytest.raises(gradir.ExportError, match="unknown exporter 'tre'"):
        everything().to("tre", focus="nothing")


def test_pictures_take_them_too(dot_program: str) -> None:
    assert b"native_batch_norm" not in gradir.render(everything(), focus="x", hops=0)


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def export(tmp_path: Path, clean_environment: dict[str, str]) -> Run:
    """Run `gradir export` on stacked.gir."""
    gradir.save(stacked(), tmp_path / "stacked.gir")

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gradir", "export", "stacked.gir", "--to", "plain", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=clean_environment, capture_output=True, text=True, check=False)

    return call


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--focus", "h.1"], {"focus": "h.1"}),
        (["--focus", "h.1", "--hops", "0"], {"focus": "h.1", "hops": 0}),
        (["--between", "h.0.weight", "h.2"], {"between": ("h.0.weight", "h.2")}),
        (["--ancestors", "h.1/*"], {"ancestors": "h.1/*"}),
        (["--descendants", "h.1.weight"], {"descendants": "h.1.weight"}),
        (["--drop", "output", "--drop", "accumulate_grad"], {"drop": ["output", "accumulate_grad"]}),
        (["--hide-shape-ops", "--rollup"], {"hide_shape_ops": True, "rollup": True}),
        (["--rollup", "--depth", "2"], {"rollup": True, "depth": 2}),
    ],
    ids=" ".join,
)
def test_the_command_line_says_the_same(export: Run, arguments: list[str], options: dict[str, object]) -> None:
    done = export(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == stacked().to("plain", **options) != stacked().to("plain")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--focus", "h.1.wieght"], ["stacked.gir: focus 'h.1.wieght': no node", "did you mean 'h.1.weight'"]),
        (["--ancestors", "nothing"], ["stacked.gir: ancestors 'nothing': no node"]),
        (["--descendants", "nothing"], ["stacked.gir: descendants 'nothing': no node"]),
        (["--between", "x", "nothing"], ["stacked.gir: between 'nothing': no node"]),
        (["--between", "x", "h.1.weight"], ["stacked.gir: between 'x' and 'h.1.weight': no path"]),
        (["--between", "x"], ["expected 2 arguments", "gradir export --help"]),
        (["--focus", ""], ["stacked.gir: focus: the pattern is empty"]),
        (["--focus", "\x1b[31m"], ["focus '\\x1b[31m': no node"]),
        (["--hops", "1"], ["give focus too"]),
        (["--focus", "x", "--hops", "-1"], ["argument --hops: expected integer, 0 or more, not '-1'"]),
        (["--focus", "x", "--hops", "one"], ["argument --hops: expected integer, 0 or more, not 'one'"]),
        (["--drop", "bufer"], ["stacked.gir: cannot drop 'bufer' (did you mean 'buffer'?)", "accumulate_grad"]),
        (["--depth", "-1"], ["argument --depth: expected integer, 0 or more, not '-1'"]),
        (["--drop", "leaf", "--focus", "x"], ["focus 'x': --drop, which runs before it"]),
    ],
    ids=lambda value: " ".join(map(ascii, value)),
)
def test_errors_are_one_line_and_status_2(export: Run, arguments: list[str], words: list[str]) -> None:
    done = export(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gradir: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_a_wrong_number_is_found_before_the_file_is_read(export: Run, tmp_path: Path) -> None:
    (tmp_path / "stacked.gir").unlink()
    assert "give focus too" in export("--hops", "1").stderr


def test_help_lists_every_option_in_the_order_of_the_passes(export: Run) -> None:
    group = re.split(r"\n(?=\S)", export("--help").stdout.partition("what to show:\n")[2])[0]
    listed = re.findall(r"^  --([a-z-]+)", group, re.MULTILINE)
    assert [name.replace("-", "_") for name in listed] == ["overlay", "channel", *option_names()]


def test_every_pass_is_public_and_documented() -> None:
    import gradir.passes

    docs = (Path(__file__).parents[1] / "docs" / "passes.md").read_text(encoding="utf-8")
    for name in gradir.passes.__all__:
        assert inspect.getdoc(getattr(gradir.passes, name))
        assert f"`{name}" in docs, name
