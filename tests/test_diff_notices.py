"""What a comparison says of how its two graphs were made."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from samples import everything

import gradir
from gradir.cli import main
from gradir.ir import Graph, Node, Producer, Scope, Source


@pytest.mark.parametrize(
    ("framework", "version", "said"),
    [
        (
            "jax",
            "1",
            "comparing a graph of torch 2.13.0 with one of jax 1; --vocabulary compares in words that both share\n",
        ),
        ("torch", "3.0", "with one of torch 3.0; --normalize ignores these changes\n"),
        ("torch", "2.13.0", ""),
        ("", "", ""),
    ],
)
def test_graphs_of_another_framework_are_compared_and_said_to_be(
    framework: str, version: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / name) for name in ("a.gir", "c.gir")]
    gradir.save(everything(), paths[0])
    producer = replace(everything().producer, framework=framework, framework_version=version)
    gradir.save(replace(everything(), producer=producer), paths[1])
    assert main(["diff", *paths]) == 0
    error = capfd.readouterr().err
    assert error.endswith(said) if said else error == ""


@pytest.mark.parametrize("first", [True, False])
def test_source_lines_of_one_side_only_are_named_as_such(
    first: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bare = Graph.of([Node("exp:1", op="exp")])
    noted = Graph.of([Node("exp:1", op="exp", source=Source("model.py", 3))])
    paths = [str(tmp_path / name) for name in ("a.gir", "b.gir")]
    for path, graph in zip(paths, (noted, bare) if first else (bare, noted), strict=True):
        graph.save(path)
    assert main(["diff", *paths]) == 1
    which = "first" if first else "second"
    said = f"gradir: only the {which} graph has source lines; --ignore source,names ignores the difference\n"
    assert capfd.readouterr().err == said
    assert main(["diff", *paths, "--ignore", "source,names"]) == 0
    assert capfd.readouterr().err == ""
    assert main(["diff", paths[0], paths[0]]) == 0
    assert capfd.readouterr().err == ""


def test_two_kinds_of_graphs_are_the_first_line_and_list_no_settings_that_one_does_not_state(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / name) for name in ("a.gir", "b.gir")]
    scopes = [Scope(path, "Linear", detail="in_features=4", training=True) for path in ("a", "b", "c")]
    nodes = [Node(f"{path}/mm:1", op="mm", scope=path) for path in ("a", "b", "c")]
    gradir.save(Graph.of(nodes, scopes), paths[0])
    bare = [replace(each, detail="", training=None) for each in scopes]
    gradir.save(Graph.of(nodes, bare, producer=Producer(options={"graph": "forward"})), paths[1])
    assert main(["diff", *paths]) == 1
    told = capfd.readouterr().out.splitlines()
    assert told[0] == "two kinds of graphs: autograd and forward, whose operations differ"
    assert "without settings of modules: the second graph" in told
    assert not any("in_features" in line for line in told)
