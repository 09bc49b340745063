"""Parameters that lost their gradient: a condition fails on them, and no list of conditions passes them in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET
from reports import outcomes

import gradir
from gradir.cli import main
from gradir.diffs.changes import FieldChange
from gradir.diffs.compare import compare
from gradir.diffs.field_changes import descriptions, field_changes
from gradir.diffs.ignoring import ignore_fields
from gradir.ir import Cut, Graph, Node, Saved, Scope
from gradir.review.conditions import parse_conditions

ONE = "1 parameter now gets no gradient"
TWO = "2 parameters now get no gradient"
HINT = "; --fail-on cuts fails on that"


def graph(**kinds: str) -> Graph:
    """Three parameters, of which those with a kind are cut."""
    nodes = [Node(name, role="parameter") for name in "vwx" if name not in kinds]
    return Graph.of([Node("exp:1", op="exp"), *nodes], [], [Cut(kind, (name,)) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    ("before", "after", "conditions", "texts", "fails"),
    [
        ({}, {"w": "unreached"}, "cuts", [f"cuts: 0 -> 1, {ONE}"], True),
        ({}, {"v": "unreached", "w": "unreached"}, "cuts>0", [f"cuts>0: 0 -> 2, {TWO}"], True),
        ({}, {"v": "unreached", "w": "unreached"}, "cuts>2", [], False),
        ({"w": "unreached"}, {}, "cuts", ["cuts: 1 -> 0"], True),
        ({"w": "unreached"}, {}, "cuts>0,params>1", [], False),
        ({"v": "unreached"}, {"w": "unreached"}, "cuts", [f"cuts: 1 -> 1, {ONE}"], True),
        ({"v": "unreached"}, {"w": "unreached"}, "cuts>0", [f"cuts>0: 1 -> 1, {ONE}"], True),
        ({"w": "hidden"}, {"w": "unreached"}, "cuts", [f"cuts: 1 -> 1, {ONE}"], True),
        ({"w": "unreached"}, {"w": "hidden"}, "cuts", [], False),
        ({}, {"w": "hidden"}, "cuts", [f"cuts: 0 -> 1, {ONE} that can be seen"], True),
        ({}, {"v": "unreached", "w": "unreached"}, "nodes>0,params>0,edges>0", [TWO + HINT], False),
        ({}, {"v": "unreached", "w": "hidden"}, "nodes>0", [f"{ONE}, {ONE} that can be seen{HINT}"], False),
        ({}, {"w": "unreached"}, "nodes", [ONE + HINT, "nodes: 4 -> 3 (-25.0 %)"], True),
        ({"w": "unreached"}, {"w": "unreached"}, "cuts,nodes", [], False),
        ({"w": "unreached"}, {}, "nodes>1", [], False),
    ],
)
def test_a_lost_gradient_does_not_pass_in_silence(
    before: dict[str, str], after: dict[str, str], conditions: str, texts: list[str], fails: bool
) -> None:
    sides = graph(**before), graph(**after)
    found = list(outcomes(compare(*sides), sides, parse_conditions(conditions)))
    assert [finding.text for finding in found] == texts
    assert any(finding.fails for finding in found) == fails


def test_what_is_ignored_still_counts_where_it_is_asked_for() -> None:
    sides = graph(), graph(w="unreached")
    found = ignore_fields(compare(*sides), ["cuts"])
    assert [finding.fails for finding in outcomes(found, sides, parse_conditions("cuts>0"))] == [True]
    assert list(outcomes(found, sides, parse_conditions("nodes>0"))) == []


def test_the_command_line_says_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / f"{side}.gir") for side in "ab"]
    for path, made in zip(files, (graph(), graph(w="unreached")), strict=True):
        gradir.save(made, path)
    assert main(["diff", *files, "--fail-on", "params>0,nodes>0,saved-bytes>0,edges>0"]) == 0
    assert capfd.readouterr().err == f"gradir: {ONE}{HINT}\n"
    assert main(["diff", *files, "--fail-on", "cuts>0,params>0"]) == 1
    assert capfd.readouterr().err == f"gradir: cuts>0: 0 -> 1, {ONE}\n"


def test_a_cut_at_the_root_may_lie_in_a_module_of_the_other_graph() -> None:
    nodes, cuts = [Node("x", role="leaf")], [Cut("", scope="")]
    sides = Graph.of(nodes, [], cuts), Graph.of(nodes, [Scope("", "0"), Scope("a")], cuts)
    for pair in (sides, sides[::-1]):
        assert {(change.subject, change.id) for change in compare(*pair).changes} == {("scope", ""), ("scope", "a")}


@pytest.mark.parametrize(
    ("translated", "new", "shown", "before", "after"),
    [
        ("a", "b", "", UNSET, "b"),
        ("", "b", "a", "a", "b"),
        ("b", "", "a", "a", UNSET),
        ("b", "c", "a", "a", "c"),
    ],
)
def test_a_change_reports_the_name_in_the_first_graph_even_if_a_side_has_none(
    translated: str, new: str, shown: str, before: object, after: object
) -> None:
    old, other, original = (Cut("hidden", scope=scope) for scope in (translated, new, shown))
    assert list(field_changes(old, other, descriptions(Cut), original)) == [FieldChange(("scope",), before, after)]


def test_a_change_in_a_slot_reports_the_storage_in_the_first_graph_even_if_a_side_has_none() -> None:
    for names, values in ((("t", "u", ""), (UNSET, "u")), (("", "u", "s"), ("s", "u"))):
        old, new, original = (Node("x", saved=(Saved("mask", bytes=4, storage=name),)) for name in names)
        change = FieldChange(("saved", "mask", "storage"), *values)
        assert list(field_changes(old, new, descriptions(Node), original)) == [change]
