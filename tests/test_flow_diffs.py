"""What a diff says of where gradients end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flow_graphs import DETACH, NO_GRAD, small
from hostile_texts import HOSTILE_TEXTS
from msgspec.structs import replace
from reports import outcomes

import gradir
from gradir.cli import main
from gradir.diffs import diff_json
from gradir.diffs.compare import compare
from gradir.ir import Cut, Graph, Producer, Source
from gradir.review.conditions import parse_conditions
from gradir.review.reviewing import review_graphs
from gradir.review.text import headline

# Diffs.


def moved(cut: Cut, line: int, **fields: Any) -> Cut:
    return replace(cut, source=Source("net.py", line, "Net.forward"), **fields)


def said(before: Graph, after: Graph) -> str:
    return headline(review_graphs(before, after))


def test_a_new_detach_is_reported_first() -> None:
    before, after = small(NO_GRAD), small(DETACH, NO_GRAD)
    assert said(before, after) == "a new cut: detach at net.py:41 (2 parameters); +1 -0 ~0 cuts; +0 -0 ~0 nodes"
    text = gradir.diff(before, after).to("text")
    assert "+ cut detach at net.py:41: fc.weight, fc.bias\n" in text
    report = gradir.diff(before, after).to("markdown")
    assert "**Cuts:** `+ cut detach at net.py:41: fc.weight, fc.bias`  \n" in report
    assert "**Cuts:** `- cut detach at net.py:41: fc.weight, fc.bias`" in gradir.diff(after, before).to("markdown")
    assert "new cut" not in said(after, before)


@pytest.mark.parametrize(("first", "nth"), [(True, "second"), (False, "first")])
def test_places_that_were_recorded_of_one_side_alone_are_no_news(first: bool, nth: str) -> None:
    noted, bare = small(DETACH, NO_GRAD), replace(small(), producer=Producer())
    sides = (noted, bare) if first else (bare, noted)
    diff = gradir.diff(*sides)
    assert [(change.subject, change.id) for change in diff.changes] == [("graph", "flow")]
    text = diff.to("text").splitlines()
    assert text[:2] == [
        "+0 -0 ~0 nodes",
        f"without flow: the {nth} graph (no --flow), so no place where gradients end is known to be new or gone",
    ]
    assert f"**Without flow:** `the {nth} graph (no --flow)" in diff.to("markdown")
    assert "a new cut" not in diff.to("markdown")
    assert list(outcomes(gradir.diff(*sides), sides, parse_conditions("cuts,cuts>0,nodes"))) == []
    assert not gradir.diff(*sides, ignore=["cuts"])
    assert gradir.patch(sides[0], diff).cuts == sides[1].cuts
    # A diff without its graphs has the change alone.
    assert "~ flow" in diff_json.decode(diff_json.encode(diff)).to("text")


def test_a_parameter_that_lost_its_gradient_is_news_without_the_flow_of_the_other_side_too() -> None:
    noted, bare = small(DETACH, Cut("unreached", ("fc.bias",))), replace(small(), producer=Producer())
    assert said(bare, noted) == "+1 -0 ~0 cuts; +0 -0 ~0 nodes"
    assert [finding.text for finding in outcomes(compare(bare, noted), (bare, noted), parse_conditions("cuts"))] == [
        "cuts: 0 -> 1, 1 parameter now gets no gradient"
    ]
    # Whoever made a graph with places knows them, whatever made it.
    assert "a new cut: detach" in said(replace(small(NO_GRAD), producer=Producer()), noted)


def test_a_line_that_moves_is_no_change() -> None:
    before = small(DETACH, NO_GRAD)
    after = small(moved(DETACH, 97), replace(NO_GRAD, via=Source("lib.py", 9), into="add:1"))
    assert not gradir.diff(before, after)
    assert gradir.patch(before, gradir.diff(before, after)) == after


def test_of_equal_detaches_the_new_one_is_new() -> None:
    before = small(moved(DETACH, 10), moved(DETACH, 30))
    after = small(moved(DETACH, 10), moved(DETACH, 20), moved(DETACH, 30))
    (change,) = gradir.diff(before, after).changes
    assert (change.kind, change.cut) == ("added", moved(DETACH, 20))
    (change,) = gradir.diff(after, before).changes
    assert (change.kind, change.cut) == ("removed", moved(DETACH, 20))


def test_a_detach_of_other_parameters_is_another() -> None:
    before, after = small(DETACH), small(replace(DETACH, names=("fc.weight", "fc.bias", "stem.weight")))
    assert [change.kind for change in gradir.diff(before, after).changes] == ["removed", "added"]
    assert said(before, after).startswith("a new cut: detach at net.py:41 (3 parameters)")


def test_a_module_with_another_name_is_no_new_cut() -> None:
    before = small(DETACH)
    renamed = gradir.dumps(before).replace(b'"fc', b'"linear').replace(b'"in":[["fc', b'"in":[["linear')
    after = gradir.loads(renamed)
    assert after.cuts[0].names == ("linear.weight", "linear.bias")
    found = gradir.diff(before, after)
    assert [change for change in found.changes if change.subject == "cut"] == []


def test_a_parameter_called_as_a_kind_is_no_place() -> None:
    before, after = small(Cut("unreached", ("detach",))), small(replace(DETACH, names=()))
    found = [change for change in gradir.diff(before, after).changes if change.subject == "cut"]
    assert [(change.kind, change.label) for change in found] == [("removed", "unreached"), ("added", "detach")]


@pytest.mark.parametrize(
    ("before", "after", "condition", "texts", "fails"),
    [
        ([], [DETACH], "cuts", ["cuts: 0 -> 1, a new cut: detach at net.py:41 (2 parameters)"], True),
        ([], [DETACH, NO_GRAD], "cuts>1", [
            "cuts>1: 0 -> 2, 2 new cuts: detach at net.py:41 (2 parameters), and 1 more"
        ], True),
        ([], [DETACH], "cuts>1", [], False),
        ([], [DETACH], "nodes>0", [
            "a new cut: detach at net.py:41 (2 parameters); --fail-on cuts fails on that"
        ], False),
        ([], [replace(DETACH, meant="straight-through")], "cuts", [], False),
        ([], [replace(DETACH, meant="straight-through")], "cuts>0,nodes>0", [], False),
        ([replace(DETACH, meant="straight-through")], [DETACH], "cuts>0", [
            "cuts>0: 0 -> 1, a new cut: detach at net.py:41 (2 parameters)"
        ], True),
        ([DETACH], [moved(DETACH, 7)], "cuts,nodes", [], False),
        ([DETACH], [NO_GRAD], "cuts>0", ["cuts>0: 1 -> 1, a new cut: no_grad (mul) at net.py:45 (1 parameter)"], True),
    ],
)  # fmt: skip
def test_a_condition_on_cuts_counts_what_nothing_means(
    before: list[Cut], after: list[Cut], condition: str, texts: list[str], fails: bool
) -> None:
    sides = small(*before), small(*after)
    found = list(outcomes(compare(*sides), sides, parse_conditions(condition)))
    assert [finding.text for finding in found] == texts
    assert any(finding.fails for finding in found) == fails


def test_a_diff_in_a_file_has_the_cut() -> None:
    found = gradir.diff(small(), small(DETACH))
    assert diff_json.decode(diff_json.encode(found)) == found
    broken = diff_json.encode(found).replace(b'"line": 41', b'"line": -41')
    with pytest.raises(gradir.FormatError):
        diff_json.decode(broken)


def test_hostile_cuts_in_a_diff_act_on_no_terminal() -> None:
    for text in [*HOSTILE_TEXTS.values(), "x" * 1_000_000]:
        hostile = Cut(text or "detach", (text, text), text, None, text or "op", Source(text, 1, text), meant="")
        for shown in (said(small(), small(hostile)), gradir.diff(small(), small(hostile)).to("text")):
            assert all(char.isprintable() or char == "\n" for char in shown)
            assert len(shown) < 3000


def test_the_command_line_fails_on_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("a.gir", "b.gir")]
    for path, graph in zip(files, (small(NO_GRAD), small(NO_GRAD, DETACH)), strict=True):
        gradir.save(graph, path)
    assert main(["diff", *files, "--fail-on", "cuts"]) == 1
    captured = capfd.readouterr()
    assert captured.out.startswith("a new cut: detach at net.py:41 (2 parameters); ")
    assert captured.err == "gradir: cuts: 1 -> 2, a new cut: detach at net.py:41 (2 parameters)\n"
    assert main(["info", files[1]]) == 0
    assert "detach at net.py:41: fc.weight, fc.bias" in capfd.readouterr().out
