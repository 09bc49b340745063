"""A layer is one thing: an edit of all equal layers reads as the same in each, and none is taken for another."""

from __future__ import annotations

import re
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

import edited_gpt  # noqa: E402
from edited_gpt import EDITS, capture_edit, plain  # noqa: E402
from reports import all_changes, entries  # noqa: E402
from torch import Tensor  # noqa: E402

import gradir  # noqa: E402
from gradir.diffs.matching import match  # noqa: E402
from gradir.ir import Graph, Node, Ref  # noqa: E402
from gradir.review.reviewing import review_graphs  # noqa: E402


def layer(node_id: str) -> str:
    return "".join(re.findall(r"^blocks\.(\d+)", node_id))


@pytest.mark.parametrize("name", EDITS)
def test_no_layer_is_taken_for_another(name: str) -> None:
    for before, after in match(plain(), capture_edit(name)).nodes.items():
        assert layer(before) == layer(after)


@pytest.mark.parametrize("name", EDITS)
def test_no_line_reports_an_unchanged_value(name: str) -> None:
    text = str(gradir.diff(plain(), capture_edit(name)))
    assert not re.findall(r": (\S.*) -> \1$", text, re.MULTILINE)


def test_exchanged_halves_are_the_same_change_in_six_blocks() -> None:
    diff = gradir.diff(plain(), capture_edit("swapped"))
    assert {(change.subject, change.kind) for change in diff.changes} == {("node", "changed"), ("graph", "changed")}
    assert "indices" not in {change.id for change in diff.changes}
    lines = str(diff).splitlines()
    at = lines.index("(by module)")
    assert lines[at + 1 : at + 3] == [
        "  ~ 12 modules blocks.{0..5}.{norm1,norm2}  each ~1 node (in)",
        "  ~ 6 modules blocks.{0..5}.drop  each ~2 nodes (in)",
    ]
    titles = [line for line in diff.to("text", details=True).splitlines() if "in each of" in line]
    assert titles == [
        "blocks.{0..5}.norm1: the same change in each of 6 modules, here in blocks.0.norm1",
        "blocks.{0..5}.norm2: the same change in each of 6 modules, here in blocks.0.norm2",
        "blocks.{0..5}.drop: the same 2 changes in each of 6 modules, here in blocks.0.drop",
    ]


@pytest.mark.parametrize("name", EDITS)
def test_grouped_changes_cover_each_change_once(name: str) -> None:
    found = review_graphs(plain(), capture_edit(name))
    assert Counter(all_changes(found)) == Counter(found.changes)


def test_a_layer_that_reads_from_elsewhere_than_the_others_is_distinguished() -> None:
    def stack(own: str, third: str) -> Graph:
        nodes = [Node("x"), Node("y")]
        for n in range(4):
            entered = third if n == 2 else f"h.{n - 1}/g:1" if n else "x"
            nodes.append(Node(f"h.{n}/f:1", op="f", scope=f"h.{n}", inputs=(Ref(entered, 0),)))
            inputs = (Ref(f"h.{n}/f:1", 0), Ref(f"h.{n}/f:1" if own == "f" else entered, 0))
            nodes.append(Node(f"h.{n}/g:1", op="g", scope=f"h.{n}", inputs=inputs))
        return Graph.of(nodes)

    layers = [entry.subjects for entry in entries(review_graphs(stack("f", "h.1/g:1"), stack("x", "h.1/g:1")))]
    assert layers == [("h.0", "h.1", "h.2", "h.3")]
    layers = [entry.subjects for entry in entries(review_graphs(stack("f", "h.1/g:1"), stack("x", "y")))]
    assert layers == [("h.0", "h.1", "h.3"), ("h.2",)]


@pytest.mark.parametrize("form", ["after", "beside", "without"])
def test_halves_of_layers_of_any_form_are_exchanged_in_place(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Block(edited_gpt.Block):
        def forward(self, x: Tensor) -> Tensor:
            halves = [(self.norm1, self.attn), (self.norm2, self.mlp)]
            entered = x
            for norm, half in reversed(halves) if self.edit else halves:
                if form == "after":
                    x = norm(x + half(x))
                elif form == "beside":
                    x = x + half(norm(entered))
                else:
                    x = half(norm(x))
            return x

    monkeypatch.setattr(edited_gpt, "Block", Block)
    graphs = []
    for edit in ("", "swapped"):
        _, loss, recorder = edited_gpt.loss_of(edit)
        graphs.append(recorder.capture(loss))
    found = match(*graphs).nodes
    assert len(found) == len(graphs[0].nodes)
    assert all(layer(before) == layer(after) for before, after in found.items())


def test_another_node_of_the_name_is_reported_as_another() -> None:
    def chain(op: str) -> Graph:
        reader = Node("sin:1", op="sin", inputs=(Ref("f:1", 0),))
        return Graph.of([Node("x"), Node("f:1", op=op, role="function" if op else "leaf"), reader])

    found = review_graphs(chain("exp"), chain(""))
    text = str(found)
    assert "      in[0]: f:1 -> another f:1" in text.splitlines()
    assert entries(found)[0].kind == "same"


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("name", EDITS)
def test_twelve_lines_describe_an_edit_and_its_undoing(name: str, back: bool) -> None:
    found = review_graphs(*((capture_edit(name), plain()) if back else (plain(), capture_edit(name))))
    assert sum(map(bool, str(found).splitlines())) <= 12
