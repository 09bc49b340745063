"""The width of the layer table, its order, and rows of equal layers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gradir_exporters.summary import SummaryExporter, SummaryOptions
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from samples import everything, hostile
from strategies import graphs

import gradir
from gradir.ir import Builder, Graph, Producer, Saved, Scope, TensorMeta

F4 = TensorMeta("float32", (4,))


def summary(graph: Graph, **options: Any) -> str:
    """The table with all its columns, unless a width is given."""
    return SummaryExporter().export(graph, SummaryOptions(**{"width": None, **options}))


def data(graph: Graph, **options: Any) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(summary(graph, style="json", **options))
    return read


def rows_by_path(graph: Graph) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in data(graph)["layers"]}


def test_a_table_is_as_wide_as_it_must_be_and_no_wider_than_its_columns_may_be() -> None:
    wide = Graph.of([], [Scope("", "漢字" * 40, calls=1), Scope("🔥", "x" * 1_000, calls=12_345), Scope("🔥.b", "C")])
    for graph in (wide, everything(), hostile()):
        lines = summary(graph).split("\n\n")[0].splitlines()
        rule = lines[1]
        assert set(rule) == {"─"}
        assert all(cell_len(line) <= len(rule) for line in lines)
        assert len(rule) <= 9 * 60 + 8 * 3
    first, second = summary(wide).splitlines()[2:4]
    assert cell_len(first[: first.index("…") + 1].removeprefix("(model)").lstrip()) in {59, 60}
    assert second.startswith(f"  🔥      {'x' * 59}…   12,345")


def test_a_table_does_not_depend_on_the_terminal(tmp_path: Path) -> None:
    gradir.save(everything(), tmp_path / "a.gir")
    read = set()
    for more in ({"COLUMNS": "20", "TERM": "dumb"}, {"FORCE_COLOR": "1", "TERM": "xterm-256color"}, {"NO_COLOR": "1"}):
        command = [sys.executable, "-m", "gradir", "summary", str(tmp_path / "a.gir")]
        read.add(subprocess.run(command, env={**os.environ, **more}, capture_output=True, check=True).stdout)
    assert read == {summary(everything(), width=80).encode()}


def layered() -> Graph:
    """A deep model with long names, and saved tensors of unknown size."""
    path = "encoder.block.0.layer.0.SelfAttention.projection"
    scopes = [Scope(".".join(path.split(".")[:count]), "A" * 9 * count, "", 1, 0, 10**count) for count in range(1, 8)]
    saved = [(Saved("self", "float32", (4,), 123_456), None), (Saved("other", state="hooked"), None)]
    b = Builder()
    b.output(b.function("exp", [b.tensor("x", F4)], [TensorMeta("float32", (2, 3, 4))], scope=path, saved=saved))
    return b.build(scopes=[Scope("", "Model"), *scopes])


def test_columns_go_in_a_fixed_order_until_the_table_fits() -> None:
    graph = layered()
    whole = summary(graph)
    assert summary(graph, width=400) == whole
    assert whole.splitlines()[0].split("   ")[0] == "layer"
    found = []
    for width in range(len(whole.splitlines()[1]), 39, -1):
        table = summary(graph, width=width).partition("\n\n")
        assert table[2].split() == whole.partition("\n\n")[2].split()
        assert max(map(len, table[2].splitlines())) <= max(width, 60)
        assert max(map(cell_len, table[0].splitlines())) <= width
        heads = re.split(" {3,}", table[0].splitlines()[0])
        if not found or found[-1] != heads:
            found.append(heads)
    gone = [next(iter(set(one) - set(other))) for one, other in pairwise(found)]
    assert gone == ["own saved bytes", "own parameters", "trainable", "saved bytes", "calls", "class", "output shape"]
    assert found[-1] == ["layer", "parameters", "saved"]
    assert "≥ 123.5 kB" in summary(graph, width=60)


def test_other_styles_have_all_columns_at_any_width() -> None:
    for style in ("markdown", "csv", "json"):
        assert summary(layered(), style=style, width=40) == summary(layered(), style=style)
    with pytest.raises(gradir.ExportError, match="width"):
        gradir.export(layered(), "summary", width=39)


def test_the_command_fits_the_terminal_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from gradir.cli.main import main

    gradir.save(layered(), tmp_path / "g.gir")
    arguments = ["summary", str(tmp_path / "g.gir")]
    main(arguments)
    assert capsys.readouterr().out == summary(layered(), width=80)
    monkeypatch.setattr("gradir.cli.report.is_terminal", lambda: True)
    monkeypatch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((0, 0)))
    monkeypatch.delenv("COLUMNS", raising=False)
    main(arguments)
    assert capsys.readouterr().out == summary(layered(), width=80) != summary(layered(), width=120)
    monkeypatch.setenv("COLUMNS", "120")
    main(arguments)
    assert capsys.readouterr().out == summary(layered(), width=120)
    main([*arguments, "--width", "300"])
    assert capsys.readouterr().out == summary(layered())
    main([*arguments, "--width", "none"])
    assert capsys.readouterr().out == summary(layered())
    main([*arguments, "-o", str(tmp_path / "table.txt")])
    assert (tmp_path / "table.txt").read_text(encoding="utf-8") == summary(layered(), width=80)
    assert max(map(cell_len, summary(layered(), width=80).splitlines())) <= 80


def stacked(count: int = 4) -> Graph:
    """Equal blocks of a product and an activation in a list, and a loss of the caller's."""
    b = Builder()
    value = b.tensor("x", F4)
    scopes = [
        Scope("", "Net", calls=1, total=4 * count, trainable=4 * count),
        Scope("h", "ModuleList", total=4 * count),
    ]
    for number in range(count):
        path = f"h.{number}"
        scopes += [Scope(path, "Block", calls=1, own=4, total=4, trainable=4), Scope(f"{path}.act", "Exp", calls=1)]
        weight = b.tensor(f"{path}.weight", F4, role="parameter", scope=path)
        value = b.function("mul", [value, weight], [F4], scope=path, saved=[(Saved("self", "float32", (4,), 16), None)])
        value = b.function("exp", [value], [F4], scope=f"{path}.act", saved=[(Saved("r", "float32", (4,), 64), None)])
    b.output(b.function("sum", [value], [TensorMeta("float32", ())]))
    return b.build(scopes=scopes)


def test_equal_layers_are_one_row_and_totals_are_those_of_all() -> None:
    table = summary(stacked())
    assert [line.split()[0] for line in table.splitlines()[2:6]] == ["(model)", "h", "0-3", "act"]
    row = ["0-3", "Block ×4", "4", "[4]", "16", "16", "16", "64", "320"]
    assert re.split(" {2,}", table.splitlines()[4].strip()) == row
    assert "nodes: 15\n" in table
    assert "`h.0-3`" in summary(stacked(), style="markdown")
    whole = summary(stacked(), all=True)
    assert [line.split()[0] for line in whole.splitlines()[2:8]] == ["(model)", "h", "0", "act", "1", "act"]
    assert table.partition("\n\n")[2] == whole.partition("\n\n")[2]
    for style in ("csv", "json"):
        assert summary(stacked(), style=style) == summary(stacked(), style=style, all=True)


@pytest.mark.parametrize(("sort", "first"), [("params", "h.0-3"), ("saved", "h.0-3.act"), ("calls", "h.0-3")])
def test_rows_are_sorted_by_what_a_module_has_itself(sort: str, first: str) -> None:
    for width in (None, 80, 50):
        assert summary(stacked(), sort=sort, width=width).splitlines()[2].startswith(first)
    head = summary(stacked(), sort=sort, width=60).splitlines()[0].split("   ")
    assert {"params": "own parameters", "saved": "saved", "calls": "calls"}[sort] in [word.strip() for word in head]
    own = {"params": "own_parameters", "saved": "own_saved_bytes", "calls": "calls"}[sort]
    numbers = [layer[own] for layer in data(stacked(), sort=sort)["layers"]]
    assert numbers == sorted(numbers, reverse=True)
    assert {layer["path"] for layer in data(stacked(), sort=sort)["layers"]} == set(rows_by_path(stacked()))


@given(graphs(), st.sampled_from(["params", "saved", "calls"]))
def test_sorting_keeps_every_row(graph: Graph, sort: str) -> None:
    def whole(layers: Any) -> list[str]:
        return sorted(map(json.dumps, layers))

    assert whole(data(graph, sort=sort)["layers"]) == whole(data(graph)["layers"])


def test_a_list_has_the_shape_of_its_result_and_a_caller_that_of_the_model() -> None:
    assert rows_by_path(stacked())["h"]["output_shapes"] == [[4]]
    assert rows_by_path(stacked())[""]["output_shapes"] is None
    graph = stacked()
    loss = replace(graph.nodes["sum:1"], ext={"scope": "caller"})
    producer = replace(graph.producer, options={"callers": True})
    told = replace(graph, nodes={**graph.nodes, "sum:1": loss}, producer=producer)
    assert rows_by_path(told)[""]["output_shapes"] == [[4]]
    inside = replace(graph, producer=producer)
    assert rows_by_path(inside)[""]["output_shapes"] == [[]]


def test_ways_to_train_are_few_whatever_a_file_says() -> None:
    # Each is a column, so that many of them in many modules would fill the memory.
    told = Producer(options={"savings": tuple((f"way{number}", "", 1) for number in range(100))})
    assert len(data(replace(stacked(), producer=told))["totals"]["kept"]) == 8
