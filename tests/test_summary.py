"""The layer table and its styles."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from gradir_exporters.summary import SummaryExporter, SummaryOptions
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from samples import HOSTILE_LABELS, chain, everything, hostile
from strategies import graphs

import gradir
from gradir.ir import Builder, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.text import escape_unprintable
from gradir.ir.totals import totals
from gradir.passes import fold

F4 = TensorMeta("float32", (4,))
SAMPLES = {"everything": everything, "hostile": hostile}
STYLES = {"table": "txt", "markdown": "md", "csv": "csv", "json": "json"}


def summary(graph: Graph, **options: Any) -> str:
    """The table with all its columns, unless a width is given."""
    return SummaryExporter().export(graph, SummaryOptions(**{"width": None, **options}))


def quoted_formula(text: str) -> str:
    return f"'{text}" if text[:1] in {"=", "+", "-", "@"} else text


def data(graph: Graph, **options: Any) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(summary(graph, style="json", **options))
    return read


def rows_by_path(graph: Graph) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in data(graph)["layers"]}


def shapes(graph: Graph) -> dict[str, Any]:
    return {path: row["output_shapes"] for path, row in rows_by_path(graph).items()}


def cells(text: str) -> list[list[str]]:
    """The rows of the first table, as a Markdown parser reads them."""
    found: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "tr_open":
            found.append([])
        elif token.type == "inline" and token.level == 4:
            assert all(child.type in {"text", "code_inline"} for child in token.children or ())
            found[-1].append("".join(child.content for child in token.children or ()))
    return found


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("sample", SAMPLES)
def test_goldens(golden: Callable[[str, str], None], sample: str, style: str) -> None:
    golden(f"summary/{sample}.{STYLES[style]}", gradir.export(SAMPLES[sample](), "summary", style=style))


def test_wrong_options_are_refused() -> None:
    for options in ({"style": "latex"}, {"depth": -1}, {"depth": "deep"}, {"sort": "path"}):
        with pytest.raises(gradir.ExportError):
            gradir.export(everything(), "summary", **options)
    assert gradir.export(everything(), "summary", depth="0", style="csv") == summary(everything(), depth=0, style="csv")


@given(graphs())
def test_every_byte_is_counted_once(graph: Graph) -> None:
    found = data(graph)
    total = found["totals"]
    assert total["saved_bytes"] == totals(graph).saved_bytes
    assert sum(row["own_saved_bytes"] for row in found["layers"]) + total["outside_bytes"] == total["saved_bytes"]
    assert sum(state["bytes"] for state in total["states"].values()) == total["saved_bytes"]
    slots = [slot for node in graph.nodes.values() for slot in node.saved]
    assert sum(state["slots"] for state in total["states"].values()) == len(slots)
    assert sum(state["unsized"] for state in total["states"].values()) == sum(slot.bytes is None for slot in slots)


@given(graphs(), st.integers(0, 3))
def test_a_module_has_what_the_modules_below_it_have(graph: Graph, depth: int) -> None:
    rows = data(graph)["layers"]
    assert sorted(row["path"] for row in rows) == sorted(graph.scopes)
    for row in rows:
        below = [r for r in rows if not row["path"] or f"{r['path']}.".startswith(f"{row['path']}.")]
        assert row["saved_bytes"] == sum(r["own_saved_bytes"] for r in below)
        assert row["unsized"] == sum(r["own_unsized"] for r in below)
    shown = data(graph, depth=depth)
    assert shown["totals"] == data(graph)["totals"]
    assert shown["layers"] == [row for row in rows if (row["path"].count(".") + 1 if row["path"] else 0) <= depth]


def test_json_is_escaped_as_all_json_is() -> None:
    label = "a\ud800</script>\x9b"
    graph = Graph.of([Node("x", saved=(Saved("s", state=label),))], [Scope(label, label), Scope("b")])
    text = summary(graph, style="json")
    assert text.isascii()
    assert "<" not in text
    assert [row["path"] for row in json.loads(text)["layers"]] == [label, "b"]
    assert label in json.loads(text)["totals"]["states"]
    assert text.count("\n") == 5


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_csv_has_no_formulas(start: str) -> None:
    graph = Graph.of([], [Scope(f"{start}1", f"{start}cmd|'/c calc'!A1"), Scope("a=1", "B")])
    (first, second) = csv.DictReader(io.StringIO(summary(graph, style="csv")))
    assert (first["path"], first["class"]) == (f"'{start}1", f"'{start}cmd|'/c calc'!A1")
    assert (second["path"], second["class"]) == ("a=1", "B")


@given(graphs())
def test_csv_reads_back(graph: Graph) -> None:
    text = summary(graph, style="csv")
    rows = data(graph)["layers"]
    assert text.count("\n") == len(rows) + 1
    for read, row in zip(csv.DictReader(io.StringIO(text, newline="")), rows, strict=True):
        assert list(read) == list(row)
        assert read["path"] == quoted_formula(escape_unprintable(row["path"]))
        assert read["class"] == quoted_formula(escape_unprintable(row["class"]))
        assert (read["output_shapes"] == "") == (row["output_shapes"] is None)
        counts = [key for key in row if isinstance(row[key], int)]
        assert {key: int(read[key]) for key in counts} == {key: row[key] for key in counts}


@given(graphs())
def test_markdown_reads_back(graph: Graph) -> None:
    rows = data(graph)["layers"]
    read = cells(summary(graph, style="markdown"))
    if not rows:
        assert not read
        return
    assert read[0][:3] == ["layer", "class", "calls"]
    for row, found in zip(rows, read[1:], strict=True):
        assert len(found) == 9
        assert found[0] == (row["path"] or "(model)")
        assert found[1] == escape_unprintable(row["class"])
        assert found[4:7] == [f"{row[key]:,}" for key in ("own_parameters", "parameters", "trainable")]


def test_hostile_names_stay_in_their_cell() -> None:
    graph = hostile()
    assert [row["path"] for row in data(graph)["layers"]].count("") == 1
    assert {row["path"] for row in data(graph)["layers"]} == set(HOSTILE_LABELS)
    for style in STYLES:
        text = summary(graph, style=style)
        assert text.endswith("\n")
        # JSON holds a name as it is, in escapes where it must.
        assert style == "json" or all(line.isprintable() for line in text.split("\n"))
    read = {row[0] for row in cells(summary(graph, style="markdown"))[1:]}
    assert read == {escape_unprintable(label) or "(model)" for label in HOSTILE_LABELS}
    assert len(list(csv.reader(io.StringIO(summary(graph, style="csv"))))) == len(HOSTILE_LABELS) + 1


def test_storages_count_at_the_first_node_that_saved_them() -> None:
    b = Builder()
    weight = b.tensor("w", F4, role="parameter", scope="a")
    first = b.function("mul", [weight, None], [F4], scope="a.x", saved=[(Saved("self", "float32", (4,), 16), None)])
    shared = [
        (Saved("self", "float32", (4,), 16, storage="a.x/mul:1.self"), None),
        (Saved("other", "float32", (4,), 16, storage="w"), weight),
        (Saved("result", state="freed"), None),
    ]
    second = b.function("mul", [first], [F4], scope="b", saved=shared)
    b.output(b.function("sum", [second], [TensorMeta("float32", ())], saved=[(Saved("x", bytes=7, state="odd"), None)]))
    graph = b.build(scopes=[Scope(path, "M", calls=1) for path in ("a", "a.x", "b")])
    rows = rows_by_path(graph)
    assert [(path, row["own_saved_bytes"], row["saved_bytes"]) for path, row in rows.items()] == [
        ("a", 0, 16),
        ("a.x", 16, 16),
        ("b", 0, 0),
    ]
    assert (rows["b"]["own_unsized"], rows["a"]["unsized"]) == (1, 0)
    found = data(graph)["totals"]
    assert (found["saved_bytes"], found["outside_bytes"], found["owned_bytes"]) == (23, 7, 16)
    assert found["states"] == {
        "held": {"slots": 3, "unsized": 0, "bytes": 16},
        "freed": {"slots": 1, "unsized": 1, "bytes": 0},
        "hooked": {"slots": 0, "unsized": 0, "bytes": 0},
        "odd": {"slots": 1, "unsized": 0, "bytes": 7},
    }
    text = summary(graph)
    assert "saved for backward: 23 bytes (held 16, freed 0 and 1 of unknown size, hooked 0, odd 7)\n" in text
    assert text.splitlines()[4].endswith("   ?             ?")


def test_a_storage_counts_in_full_even_if_its_first_slot_saw_less() -> None:
    nodes = [Node("f:1", scope="a", saved=(Saved("x", bytes=4, storage="s"),))]
    nodes.append(Node("g:1", scope="b", saved=(Saved("x", bytes=9, storage="s", state="stale"),)))
    graph = Graph.of(nodes, [Scope("a"), Scope("b")])
    assert [row["saved_bytes"] for row in data(graph)["layers"]] == [9, 0]
    assert data(graph)["totals"]["states"]["held"]["bytes"] == totals(graph).saved_bytes == 9


def test_folded_modules_keep_their_numbers() -> None:
    graph = everything()
    found, folded = data(graph), data(fold(graph, 1))
    for before, after in zip(found["layers"], folded["layers"], strict=True):
        assert after["saved_bytes"] == before["saved_bytes"]
    assert folded["totals"]["saved_bytes"] == found["totals"]["saved_bytes"]
    assert folded["totals"]["folded_bytes"] == sum(row["saved_bytes"] for row in found["layers"] if row["path"])
    assert data(fold(graph, 0))["layers"][0]["own_saved_bytes"] == found["totals"]["saved_bytes"]


def test_the_parts_of_a_folded_module_are_one_module() -> None:
    nodes, before = [], None
    for number, scope in enumerate(["a", "b", "a", "b"]):
        inputs = () if before is None else (Ref(before, 0),)
        before = f"{scope}/f:{number}"
        nodes.append(Node(before, op="f", scope=scope, inputs=inputs, saved=(Saved("x", bytes=1),)))
    folded = fold(Graph.of([*nodes, Node("output", role="output", inputs=(Ref(str(before), 0),))]), 1)
    assert len(folded.nodes) == 5
    found = data(Graph.of(folded.nodes.values(), [Scope("a"), Scope("b")]))
    assert [row["saved_bytes"] for row in found["layers"]] == [2, 2]


def test_output_shapes() -> None:
    b = Builder()
    x = b.tensor("x", F4)
    weight = b.tensor("a.fc.weight", TensorMeta("float32", (2, 4)), role="parameter", scope="a.fc")
    ready = b.function("t", [weight], [TensorMeta("float32", (4, 2))], scope="a.fc")
    fc = b.function("mm", [x, ready], [TensorMeta("float32", (2,))], scope="a.fc", saved=[(Saved("self"), x)])
    again = b.function("mm", [fc, ready], [TensorMeta("float32", (3,))], scope="a.fc")
    split = b.function("split", [again], [TensorMeta("float32", (1,)), TensorMeta("float32", None)], scope="a")
    tied = b.function("mm", [split, split.output(1), ready], [TensorMeta("float32", (9,))], scope="c")
    rows = b.tensor("e.weight", TensorMeta("float32", (5, 2)), role="parameter", scope="e")
    looked_up = b.function("embedding", [rows], [TensorMeta("float32", (7, 2))], scope="e", saved=[(Saved("i"), None)])
    b.output(b.function("add", [tied, looked_up], [TensorMeta("float32", ())], scope=""))
    modules = [Scope("", "M", calls=1), Scope("a", "A", calls=1), Scope("a.fc", "Linear", calls=2)]
    modules += [Scope("c", "C", calls=1), Scope("e", "E", calls=1), Scope("list", "ModuleList")]
    assert shapes(b.build(scopes=modules)) == {
        "": None,  # the caller may have made the sum
        "a": [[1], None],
        "a.fc": [[3]],  # the first call's result goes into the second call
        "c": [[9]],
        "e": [[7, 2]],
        "list": None,
    }


def test_the_whole_model_has_a_shape_when_a_module_in_it_made_the_output() -> None:
    def captured(path: str, class_name: str) -> Any:
        b = Builder()
        b.output(b.function("exp", [b.tensor("x", F4)], [F4], scope=path))
        return shapes(b.build(scopes=[Scope("", "M", calls=1), Scope(path, class_name, calls=1)]))[""]

    assert captured("head", "Linear") == [[4]]
    # A criterion that ran beside the model stands below the empty path too.
    assert captured("MSELoss", "MSELoss") is None
    assert captured("MSELoss_2", "MSELoss") is None


def test_a_folded_module_does_not_show_its_last_operation() -> None:
    graph = everything()
    assert shapes(graph)["norm"] == [[2, 4], [4]]
    assert shapes(fold(graph, 1))["norm"] is None


def test_without_a_scope_table_there_are_totals_only() -> None:
    assert summary(chain(3)) == (
        "parameters: 0 (0 trainable)\nnodes: 5\nsaved for backward: 0 bytes (held 0, freed 0, hooked 0)\n"
    )
    b = Builder()
    b.output(b.function("exp", [b.tensor("w", F4, role="parameter")], [F4]))
    assert data(b.build())["totals"]["parameters"] == 4


def test_it_is_linear_and_not_recursive() -> None:
    nodes = [Node("x", role="leaf", outputs=(F4,))]
    paths = [".".join("m" * depth) for depth in range(1, 1_001)]
    for number in range(20_000):
        scope = paths[number % 1_000] if number % 2 else ""
        below = (Ref(nodes[-1].id, 0),)
        nodes.append(
            Node(f"f:{number}", op="f", scope=scope, inputs=below, outputs=(F4,), saved=(Saved("x", bytes=1),))
        )
    graph = Graph.of(nodes, [Scope(path, "M", calls=1) for path in paths])
    found = data(graph)
    assert found["totals"]["saved_bytes"] == 20_000
    assert found["layers"][0]["saved_bytes"] == 10_000
    assert data(chain(100_000))["totals"]["nodes"] == 100_002
