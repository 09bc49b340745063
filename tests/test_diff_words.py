"""What a report says in words: values that are numbers, tied weights, and why a comment has no picture."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from edited_gpt import EDITS, capture_edit, plain  # noqa: E402
from reports import changes_in, entries, notes  # noqa: E402

import gradir  # noqa: E402
from gradir.ir import Graph, Node, Producer  # noqa: E402
from gradir.review.reviewing import review_graphs  # noqa: E402
from gradir.review.united import UnionGraph, draw_part  # noqa: E402

UNSEEN = {"none", "other-triangle", "other-fill"}


def test_a_reduction_is_reported_by_its_name_and_kept_as_its_number() -> None:
    diff = gradir.diff(plain(), capture_edit("reduction"))
    assert str(diff).splitlines()[-1] == "      attrs.reduction: mean -> sum"
    assert diff.to("text", full=True).splitlines()[-1] == "      attrs.reduction: mean -> sum"
    assert '"before":1,"after":2' in re.sub(r"\s", "", diff.to("json"))


@pytest.mark.parametrize(
    ("framework", "op", "attribute", "said"),
    [
        ("torch", "grid_sampler_2d", "padding_mode", "zeros -> border"),
        ("torch", "embedding_bag", "mode", "sum -> mean"),
        ("torch", "another", "mode", "0 -> 1"),
        ("unheard", "nll_loss", "reduction", "0 -> 1"),
    ],
)
def test_enum_values_are_named_by_framework_and_operation(framework: str, op: str, attribute: str, said: str) -> None:
    producer = Producer(framework=framework)
    a, b = (Graph.of([Node("f:1", op=op, attrs={attribute: value})], producer=producer) for value in (0, 1))
    assert str(gradir.diff(a, b)).splitlines()[-1] == f"      attrs.{attribute}: {said}"


def test_tied_weights_are_called_tied() -> None:
    a, b = plain(), capture_edit("tied")
    for pair, told in (((a, b), "tied: {tokens,head}.weight"), ((b, a), "untied: {tokens,head}.weight")):
        found = gradir.diff(*pair)
        assert str(found).startswith(f"{told}; "), "once, in the sentence"
        assert str(found).count(told) == 1
        assert found.to("text", details=True).splitlines()[2] == told
    assert "**Tied:** `{tokens,head}.weight`  \n" in gradir.diff(a, b).to("markdown")
    assert not any(note.startswith("tied") for note in notes(review_graphs(a, capture_edit("wrapped-all"))))


@pytest.mark.parametrize(
    ("name", "back"), [(name, bool(place % 2)) for place, name in enumerate(EDITS) if name not in UNSEEN]
)
def test_a_comment_has_a_picture_or_says_why_not_and_is_no_book(name: str, back: bool) -> None:
    graphs = (capture_edit(name), plain()) if back else (plain(), capture_edit(name))
    found = review_graphs(*graphs)
    report = found.to("markdown")
    assert len(report) < 60_000
    reason = re.search(r"^No picture: (.*)$", report, re.MULTILINE)
    assert ("\n```mermaid\n" in report) != bool(reason)
    operations = [change for change in found.changes if change.subject == "node"]
    if not operations:
        assert reason
        assert reason[1] == "no operation changed."
    elif reason:
        assert reason[1] == "the lines at the top list all changes."
        assert not entries(found)
    united = UnionGraph(found)
    drawn = draw_part(found, united, with_explained=False).nodes
    for entry in entries(found):
        nodes = [change for each in changes_in(found, entry) for change in each if change.subject == "node"]
        shown = [united.node(change) for change in nodes]
        assert entry.kind != "same" or not shown or not drawn.keys().isdisjoint(shown)


def test_a_picture_that_is_too_large_is_named_as_such() -> None:
    a, b = (Graph.of([Node(f"f{n}:1", op=op, scope=f"m{n}") for n in range(130)]) for op in ("exp", "sin"))
    report = gradir.diff(a, b).to("markdown")
    assert "\nNo picture: it would have 130 boxes; gradir diff --format html shows all of them.\n" in report


@pytest.mark.parametrize("name", sorted(UNSEEN))
def test_edits_without_a_trace_in_the_graph_are_no_difference(name: str) -> None:
    assert not gradir.diff(plain(), capture_edit(name))


def test_that_a_constant_is_added_is_seen_and_not_which() -> None:
    assert gradir.diff(plain(), capture_edit("added-constant"))
    assert not gradir.diff(capture_edit("added-constant"), capture_edit("other-constant"))
