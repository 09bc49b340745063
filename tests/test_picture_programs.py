"""The program that lays out a picture: how gradir finds it, limits it and reports its failures."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import graphviz
import pytest
from gradir_exporters.dot import to_graphviz
from graphviz.backend import dot_command
from samples import chain

import gradir
from gradir.errors import ExportError
from gradir.ir import Graph, Node, Ref
from gradir.pictures import find_program, render

PROGRAMS = ("dot", "graphviz-pure")


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of each layout program, which draws what the test draws."""
    monkeypatch.setenv("GRADIR_DOT", request.param)
    try:
        found = find_program()
    except ExportError:
        pytest.skip(f"needs the program {request.param}")
    assert found is not None
    return found


@pytest.fixture
def pure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The path of graphviz-pure, where the PATH has no dot."""
    monkeypatch.delenv("GRADIR_DOT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_program()
    if found is None:
        pytest.skip("needs the program graphviz-pure")
    return found


@pytest.fixture
def no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any layout program."""
    monkeypatch.delenv("GRADIR_DOT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("gradir.pictures._script_folders", list)


def write_program(path: Path, script: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture(params=PROGRAMS)
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], str]:
    """A function that lets a script draw in place of each layout program, and returns its name."""

    def write(script: str) -> str:
        monkeypatch.setenv("GRADIR_DOT", write_program(tmp_path / request.param, script))
        name: str = request.param
        return name

    return write


@pytest.mark.usefixtures("no_program")
def test_a_missing_program_is_an_error_with_advice() -> None:
    with pytest.raises(ExportError, match=r"^cannot draw SVG: no layout program; .*Graphviz.*graphviz-pure.*mermaid$"):
        gradir.render(chain(2), "svg")
    assert set(chain(2)._repr_mimebundle_()) == {"text/plain", "text/html", "text/vnd.mermaid"}
    with pytest.raises(graphviz.ExecutableNotFound):
        to_graphviz(chain(2)).pipe(format="svg")


def test_dot_on_the_path_is_preferred_to_graphviz_pure(
    pure: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert Path(pure).name.startswith("graphviz-pure")
    dot = write_program(tmp_path / "dot", "exit 3")
    assert find_program() == dot
    monkeypatch.setenv("GRADIR_DOT", "graphviz-pure")
    assert find_program() == pure
    other = write_program(tmp_path / "elsewhere" / "my-dot", "exit 3")
    monkeypatch.setenv("GRADIR_DOT", other)
    assert find_program() == other


def test_graphviz_pure_is_found_on_the_path_too(no_program: None, tmp_path: Path) -> None:
    assert find_program() is None
    path = write_program(tmp_path / "graphviz-pure", "exit 3")
    assert find_program() == path


@pytest.mark.usefixtures("no_program")
@pytest.mark.parametrize("path", ["", ".", "bin"])
def test_no_program_of_the_working_directory_is_run(path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    for name in PROGRAMS:
        write_program(tmp_path / name, "exit 3")
        write_program(tmp_path / "bin" / name, "exit 3")
    assert find_program() is None
    monkeypatch.setenv("GRADIR_DOT", f"bin{os.sep}dot")
    with pytest.raises(ExportError, match=r"GRADIR_DOT is 'bin.{1,2}dot', which is not a program"):
        find_program()


@pytest.mark.parametrize("named", ["no-such-program", "/nowhere/dot"])
def test_a_chosen_program_that_is_missing_is_one_clear_error(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIR_DOT", named)
    message = (
        f"^cannot draw: GRADIR_DOT is '{named}', which is not a program; set it to the absolute path of .* or unset it$"
    )
    with pytest.raises(ExportError, match=message):
        gradir.render(chain(2), "svg")
    with pytest.raises(ExportError, match=message):
        to_graphviz(chain(2)).pipe(format="svg")


def test_a_file_that_cannot_be_run_is_one_clear_error(fake: Callable[[str], str]) -> None:
    fake("exit 3")
    Path(os.environ["GRADIR_DOT"]).write_text("no program")
    with pytest.raises(ExportError, match=r"^cannot draw SVG: cannot run '.*': Exec format error; .* GRADIR_DOT"):
        gradir.render(chain(2), "svg")


def test_an_unknown_format_names_the_known() -> None:
    with pytest.raises(ExportError, match="'gif': choose from svg, png, pdf"):
        gradir.render(chain(2), "gif")


def test_a_layout_that_takes_too_long_is_given_up(fake: Callable[[str], str]) -> None:
    name = fake("exec sleep 60")
    message = (
        rf"^cannot draw SVG: {name} did not finish laying out 4 boxes and 3 arrows within 0\.2 s; .*--seconds.*depth"
    )
    with pytest.raises(ExportError, match=message):
        gradir.render(chain(2), "svg", seconds=0.2)


def test_a_layout_that_is_too_large_is_refused_before_dot_runs(fake: Callable[[str], str], tmp_path: Path) -> None:
    fake(f"touch {tmp_path}/ran; exec sleep 60")
    with pytest.raises(ExportError, match=r"25,003 boxes and 25,002 arrows are too many .*smaller --depth.*--to html"):
        gradir.render(chain(25_001), "svg", all=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a program that runs")
def test_a_program_has_limits_of_memory_and_time_even_if_nobody_waits(
    fake: Callable[[str], str], tmp_path: Path
) -> None:
    limits = "import resource as r, sys; print(r.getrlimit(r.RLIMIT_AS)[0], r.getrlimit(r.RLIMIT_CPU)[0])"
    name = fake(f"cat >{tmp_path}/read; {sys.executable} -c '{limits}' >&2; exit 3")
    with pytest.raises(ExportError, match=rf"{name} failed on .* \({4 << 30} 8\)"):
        gradir.render(chain(2), "svg", seconds=7)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a program that runs")
def test_a_layout_that_needs_too_much_memory_is_one_line(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every line of it is as long as the graph, which both lay out by a box for each step of the way.
    far = "".join(f"n{number} -> n{number + 1}; n0 -> n{number};" for number in range(1, 1500))
    monkeypatch.setattr("gradir.pictures._MEMORY", 200 << 20)
    message = rf"{Path(program).name} broke down on .* needs more than .*smaller --depth"
    with pytest.raises(ExportError, match=message) as raised:
        render(f"digraph {{ n0 -> n1; {far} }}", "svg")
    assert "\n" not in str(raised.value)


def test_boxes_and_arrows_are_counted_despite_odd_names(fake: Callable[[str], str]) -> None:
    fake("exec sleep 60")
    tail = Node("a -> b [label=", role="leaf", scope="h.0")
    graph = Graph.of([tail, Node("c", op="n0 [label=", scope="h.0", inputs=(Ref(tail.id, 0),))])
    with pytest.raises(ExportError, match="laying out 2 boxes and 1 arrow within"):
        gradir.render(graph, "svg", seconds=0.2)
    with pytest.raises(ExportError, match="laying out 1 box and 0 arrows within"):
        gradir.render(Graph.of([tail]), "svg", seconds=0.2)


def test_an_error_of_the_drawing_program_is_passed_on(program: str) -> None:
    with pytest.raises(ExportError, match=rf"^cannot draw SVG: {Path(program).name} failed on .*\(.*syntax error"):
        render("digraph {", "svg")


@pytest.mark.parametrize(
    ("script", "why"), [("exit 3", "exit status 3"), ("echo 'Warning: a font' >&2; echo no >&2; exit 1", "no")]
)
def test_a_failure_has_a_reason_and_advice(script: str, why: str, fake: Callable[[str], str]) -> None:
    name = fake(script)
    with pytest.raises(ExportError, match=rf"{name} failed on 4 boxes and 3 arrows \({why}\)") as raised:
        gradir.render(chain(2), "svg")
    for advice in ("--depth", "--rollup", "--to html"):
        assert advice in str(raised.value)


def test_a_digraph_draws_with_the_program_that_was_set(
    fake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake("cat >/dev/null; echo chosen")
    assert to_graphviz(chain(2)).pipe(format="svg") == b"chosen\n"
    own = write_program(tmp_path / "own" / "dot", "cat >/dev/null; echo own")
    monkeypatch.setattr(dot_command, "DOT_BINARY", Path(own))
    assert to_graphviz(chain(2)).pipe(format="svg") == b"own\n"
    assert Path(own) == dot_command.DOT_BINARY
