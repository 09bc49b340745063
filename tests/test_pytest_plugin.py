"""The pytest plugin, in pytest runs of its own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from plugins import run_with_plugin as run

import gradir

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from gradir.ir import Builder, TensorMeta

def graph(width=3, op="exp"):
    b = Builder()
    w = b.tensor("w", TensorMeta("float32", (width,)), role="parameter")
    b.output(b.function(op, [w], [TensorMeta("float32", (width,))]))
    return b.build()

def test_one(graph_snapshot):
    graph_snapshot.check(graph())

def test_two(graph_snapshot):
    graph_snapshot.check(graph(4))
    graph_snapshot.check(graph(5))
    graph_snapshot.check(graph(6), name="named")

class TestClass:
    @pytest.mark.parametrize("op", ["sin", "a/b:c", pytest.param("tan", id="x" * 200)])
    def test_three(self, graph_snapshot, op):
        graph_snapshot.check(graph(op=op))
"""

SUMMARY = "*graph snapshots that no test used*"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project whose snapshots are written."""
    pytester.makepyfile(test_model=TESTS)
    missing = run(pytester)
    missing.assert_outcomes(failed=5)
    missing.stdout.fnmatch_lines(["*missing test_one.gir beside the test; run pytest --gradir-update*"])
    run(pytester, "--gradir-update").assert_outcomes(passed=5)
    return pytester


def files(pytester: pytest.Pytester) -> list[str]:
    return sorted(path.name for path in (pytester.path / "__graphs__" / "test_model").iterdir())


def test_files_are_written_and_compared(project: pytest.Pytester) -> None:
    names = files(project)
    assert names[-4:] == ["test_one.gir", "test_two-2.gir", "test_two-named.gir", "test_two.gir"]
    assert names[0] == "TestClass.test_three[a%2Fb%3Ac].gir"
    assert names[2].startswith("TestClass.test_three[xxx")
    assert len(names) == 7
    done = run(project)
    done.assert_outcomes(passed=5)
    done.stdout.no_fnmatch_line(SUMMARY)


def test_pytest_finds_the_plugin_by_itself(project: pytest.Pytester) -> None:
    done = project.runpytest_subprocess("-p", "no:cacheprovider")
    done.assert_outcomes(passed=5)
    done.stdout.no_fnmatch_line(SUMMARY)


def test_a_change_fails_with_the_difference_until_it_is_accepted(project: pytest.Pytester) -> None:
    module = project.path / "test_model.py"
    module.write_text(module.read_text().replace("graph(4)", "graph(40)"))
    before = (project.path / "__graphs__" / "test_model" / "test_two.gir").read_bytes()
    done = run(project)
    done.assert_outcomes(passed=4, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*the graph is not that of __graphs__/test_model/test_two.gir; if it should be, run pytest --gradir-up*",
            "*+0 -0 ~3 nodes; parameters +36*",
            "*~ w *",
        ]
    )
    done.stdout.no_fnmatch_line("*pytest_plugin.py*")
    assert (project.path / "__graphs__" / "test_model" / "test_two.gir").read_bytes() == before
    run(project, "--gradir-update").assert_outcomes(passed=5)
    run(project).assert_outcomes(passed=5)


def test_an_update_rewrites_nothing_that_is_equal(project: pytest.Pytester) -> None:
    path = project.path / "__graphs__" / "test_model" / "test_one.gir"
    gradir.save(gradir.load(path), path, format="msgpack")
    packed = path.read_bytes()
    run(project, "--gradir-update").assert_outcomes(passed=5)
    assert path.read_bytes() == packed


def test_files_that_no_test_asks_for_are_named(project: pytest.Pytester) -> None:
    module = project.path / "test_model.py"
    module.write_text(module.read_text().replace("def test_one", "def not_any_more"))
    done = run(project)
    done.stdout.fnmatch_lines([SUMMARY, "__graphs__/test_model/test_one.gir"])
    done.stdout.no_fnmatch_line("__graphs__/test_model/test_two.gir")
    for narrowed in (["-k", "two"], ["test_model.py::test_two"], ["-x"]):
        run(project, *narrowed).stdout.no_fnmatch_line(SUMMARY)
    assert len(files(project)) == 7


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_files_of_a_module_that_is_gone_are_named_in_a_run_of_its_folder(
    project: pytest.Pytester, workers: list[str]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    below = project.mkdir("below")
    (project.path / "test_model.py").rename(below / "test_other.py")
    (project.path / "__graphs__").rename(below / "__graphs__")
    (below / "__graphs__" / "test_model").rename(below / "__graphs__" / "test_other.old")
    project.makepyfile(test_more="def test_more(): pass")
    update = run(project, "--gradir-update")
    update.assert_outcomes(passed=6)
    named = "below/__graphs__/test_other.old/test_one.gir"
    for whole in ([], ["below"], ["below", "test_more.py"]):
        done = run(project, *whole, *workers)
        done.stdout.fnmatch_lines([SUMMARY, named])
        done.stdout.no_fnmatch_line("below/__graphs__/test_other/*")
    for narrowed in (["-k", "one"], ["below/test_other.py"], ["test_more.py"], ["--collect-only"]):
        run(project, *narrowed, *workers).stdout.no_fnmatch_line(SUMMARY)
    (below / "test_other.old.py").write_text("")
    run(project, *workers).stdout.no_fnmatch_line(SUMMARY)


def test_the_fixture_ignores_the_given_fields(pytester: pytest.Pytester) -> None:
    module = """
        from gradir.ir import Graph, Node

        def test_one(graph_snapshot):
            graph_snapshot.check(Graph.of([Node("one", attrs={{"eps": {}}})]), ignore=["attrs.eps"])

        def test_two(graph_snapshot):
            graph_snapshot.check(Graph.of([Node("one", op="view", native="{}")]), normalize=True)

        def test_three(graph_snapshot):
            graph_snapshot.check(Graph.of([Node("one", attrs={{"eps": 1}})]), ignore=["epsilon"])
    """
    pytester.makepyfile(test_model=module.format(1, "View"))
    run(pytester, "--gradir-update").assert_outcomes(passed=2, failed=1)
    before = [path.read_bytes() for path in sorted(pytester.path.glob("__graphs__/*/*"))]
    pytester.makepyfile(test_model=module.format(2, "Other"))
    done = run(pytester)
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["*cannot ignore 'epsilon'*"])
    run(pytester, "--gradir-update").assert_outcomes(passed=2, failed=1)
    assert [path.read_bytes() for path in sorted(pytester.path.glob("__graphs__/*/*"))] == before
    pytester.makepyfile(test_model=module.format(2, "Other").replace(', ignore=["attrs.eps"]', ""))
    run(pytester).stdout.fnmatch_lines(["*attrs.eps: 1 -> 2*"])


def test_with_xdist(project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    module = project.path / "test_model.py"
    done = project.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2")
    done.assert_outcomes(passed=5)
    done.stdout.no_fnmatch_line(SUMMARY)
    module.write_text(module.read_text().replace("def test_one", "def not_any_more"))
    run(project, "-n", "2").stdout.fnmatch_lines([SUMMARY, "__graphs__/test_model/test_one.gir"])


def test_a_broken_file_is_one_clear_error(project: pytest.Pytester) -> None:
    (project.path / "__graphs__" / "test_model" / "test_one.gir").write_text("{")
    done = run(project)
    done.assert_outcomes(passed=4, failed=1)
    done.stdout.fnmatch_lines(["*/test_one.gir: *broken JSON*; pytest --gradir-update rewrites it"])
    for inside in ("*stored.py*", "*pytest_plugin.py*", "*Error:*"):
        done.stdout.no_fnmatch_line(inside)


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_an_update_writes_a_broken_file_anew_and_says_so(project: pytest.Pytester, workers: list[str]) -> None:
    if workers:
        pytest.importorskip("xdist")
    path = project.path / "__graphs__" / "test_model" / "test_one.gir"
    whole = path.read_bytes()
    path.write_text("{")
    done = run(project, "--gradir-update", *workers)
    done.assert_outcomes(passed=5)
    done.stdout.fnmatch_lines(
        ["*graph snapshots that were broken*", "__graphs__/test_model/test_one.gir: *broken JSON*; rewritten"]
    )
    assert path.read_bytes() == whole
    run(project, "--gradir-update", *workers).stdout.no_fnmatch_line("*graph snapshots that were broken*")


def test_an_update_leaves_a_file_of_a_newer_version(project: pytest.Pytester) -> None:
    path = project.path / "__graphs__" / "test_model" / "test_one.gir"
    text = path.read_text().replace('"version":"1.0"', '"version":"7.2"')
    path.write_text(text)
    done = run(project, "--gradir-update")
    done.assert_outcomes(passed=4, failed=1)
    done.stdout.fnmatch_lines(["*test_one.gir: *GIR version 7.2 is newer*; upgrade gradir, or delete the file first"])
    assert path.read_text() == text


def test_an_update_keeps_the_encoding_of_a_file(project: pytest.Pytester) -> None:
    path = project.path / "__graphs__" / "test_model" / "test_one.gir"
    module = project.path / "test_model.py"
    gradir.save(gradir.load(path), path, format="msgpack")
    start = path.read_bytes()[:8]
    module.write_text(module.read_text().replace("width=3", "width=30"))
    run(project, "--gradir-update").assert_outcomes(passed=5)
    assert path.read_bytes()[:8] == start
    run(project).assert_outcomes(passed=5)


def test_the_option_is_documented(pytester: pytest.Pytester) -> None:
    run(pytester, "--help").stdout.fnmatch_lines(["graph snapshots:", "*--gradir-update*"])
    run(pytester, "--fixtures").stdout.fnmatch_lines(["graph_snapshot*"])


# To import torch here would load it once for every test, which it does not stand.
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="could not import 'torch'")


@needs_torch
def test_models_are_captured(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_model="""
        import torch

        def test_loss(graph_snapshot):
            model = torch.nn.Linear(3, 2)
            graph_snapshot.check(model(torch.ones(1, 3)).sum(), model=model)
            graph_snapshot.check(model, torch.ones(1, 3), name="called")
        """
    )
    run(pytester, "--gradir-update").assert_outcomes(passed=1)
    run(pytester).assert_outcomes(passed=1)
    assert files(pytester) == ["test_loss-called.forward.gir", "test_loss-called.gir", "test_loss.gir"]
    path = Path(pytester.path / "__graphs__" / "test_model" / "test_loss.gir")
    assert "weight" in gradir.load(path).nodes


INCOMPLETE = """
import pytest
from gradir.ir import Graph, Node

def test_one(graph_snapshot):
    graph_snapshot.check(Graph.of([Node("one")]))

def test_two(graph_snapshot):
    {}
    graph_snapshot.check(Graph.of([Node("two")]))
"""


@pytest.mark.parametrize(
    "statement", ["pytest.skip('later')", "assert False", "pytest.exit('now')", "raise KeyboardInterrupt"]
)
@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_files_of_tests_that_did_not_come_to_their_end_are_not_named(
    pytester: pytest.Pytester, statement: str, workers: list[str]
) -> None:
    pytester.makepyfile(test_model=INCOMPLETE.format("pass"))
    run(pytester, "--gradir-update").assert_outcomes(passed=2)
    pytester.makepyfile(test_model=INCOMPLETE.format(statement))
    run(pytester, *workers).stdout.no_fnmatch_line(SUMMARY)


def test_collecting_names_no_file(project: pytest.Pytester) -> None:
    for option in ("--collect-only", "--setup-plan"):
        run(project, option).stdout.no_fnmatch_line(SUMMARY)


def test_two_graphs_of_one_name_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_model="""
        from gradir.ir import Graph, Node

        def test_equal(graph_snapshot):
            graph_snapshot.check(Graph.of([Node("one")]), name="x")
            graph_snapshot.check(Graph.of([Node("two")]), name="x")

        def test_numbered(graph_snapshot):
            graph_snapshot.check(Graph.of([Node("one")]), name="2")
            graph_snapshot.check(Graph.of([Node("two")]))

        def test_long(graph_snapshot):
            graph_snapshot.check(Graph.of([Node("one")]), name="日本" * 90)
        """
    )
    done = run(pytester, "--gradir-update")
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(["*two graphs of this test have the file 'x'*", "*have the file '2'*"])
    assert all(name.isascii() for name in files(pytester))


FORWARDS = """
import random
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        x = self.fc(x)
        return x.masked_fill(torch.ones(2, 3, dtype=torch.bool).triu(1), FILL).sum()

def test_module(graph_snapshot):
    graph_snapshot.check(Model(), torch.ones(2, 3))

def test_recorded(graph_snapshot):
    import gradir
    model = Model()
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(2, 3))
    graph_snapshot.check(rec.capture(loss), forward=rec.forward())

def test_graph(graph_snapshot):
    import gradir
    graph_snapshot.check(gradir.capture(Model(), torch.ones(2, 3)))
"""


@needs_torch
def test_the_forward_of_a_module_is_compared_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_model=FORWARDS.replace("FILL", "-1e9"))
    run(pytester, "--gradir-update").assert_outcomes(passed=3)
    names = ["test_graph.gir", "test_module.forward.gir", "test_module.gir"]
    assert files(pytester) == [*names, "test_recorded.forward.gir", "test_recorded.gir"]
    same = run(pytester)
    same.assert_outcomes(passed=3)
    same.stdout.no_fnmatch_line(SUMMARY)
    pytester.makepyfile(test_model=FORWARDS.replace("FILL", "-1e4"))
    failed = run(pytester)
    failed.assert_outcomes(passed=1, failed=2)
    failed.stdout.fnmatch_lines(
        [
            "*the graph of the forward is not that of __graphs__/test_model/test_module.forward.gir; if it should be*",
            "*attrs.value: -1000000000.0 -> -10000.0",
        ]
    )
    run(pytester, "--gradir-update").assert_outcomes(passed=3)
    run(pytester).assert_outcomes(passed=3)
    # A snapshot of one graph stays one, however its module is edited.
    pytester.makepyfile(test_model=FORWARDS.replace("FILL", "-1e4").replace("x = self.fc(x)", "x = self.fc(x).exp()"))
    run(pytester, "--gradir-update", "-k", "graph").assert_outcomes(passed=1, deselected=2)
    assert files(pytester)[0:2] == names[:2]


@needs_torch
def test_a_forward_that_is_another_in_every_run_fails_no_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_model=FORWARDS.replace("FILL", "random.random()"))
    run(pytester, "--gradir-update").assert_outcomes(passed=3)
    found = run(pytester, "-k", "module")
    found.assert_outcomes(passed=1, deselected=2)
    found.stdout.fnmatch_lines(
        ["*graph snapshots that were not compared*", "*test_module.forward.gir: it is another in every run"]
    )
