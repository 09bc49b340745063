"""The text of a diff: every fact, a line each."""

from __future__ import annotations

import re

import msgspec
import pytest
from diff_pairs import edit_sample, pairs
from hypothesis import given
from reports import render_text
from samples import HOSTILE_LABELS, everything, hostile

from gradir.diffs.changes import Change, Diff, FieldChange
from gradir.diffs.compare import compare
from gradir.ir import Cut, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.totals import Totals
from gradir.review.wording import ANSI, Palette


@given(pairs())
def test_the_text_has_one_line_for_each_fact(pair: tuple[Graph, Graph]) -> None:
    diff = compare(*pair)
    text = render_text(diff)
    lines = text.splitlines()
    assert lines == text.split("\n")[:-1]
    assert all(line.isprintable() for line in lines)
    signs = [line[2] for line in lines[1:] if line[:2] == "  " and line[2] != " "]
    kinds = {"+": "added", "-": "removed", "~": "changed", ">": "renamed", "^": "moved"}
    assert sorted(kinds[sign] for sign in signs) == sorted(change.kind for change in diff.changes)
    fields = [line for line in lines[1:] if line.startswith("      ")]
    # Settings of what came, went or became another operation stand in a line that is there anyhow.
    others = [change for change in diff.changes if change.kind not in {"added", "removed"}]
    settings = [
        field
        for change in others
        if any(field.path == ("op",) for field in change.fields)
        for field in change.fields
        if field.path[0] == "attrs"
    ]
    # A saved tensor from another node follows from an input from there.
    ends = {
        id(field): [None if end is msgspec.UNSET else end for end in (field.before, field.after)]
        for change in others
        for field in change.fields
    }
    origins = [
        field
        for change in others
        for field in change.fields
        if (field.path[0], field.path[-1]) == ("saved", "origin")
        and any(ends[id(each)] == ends[id(field)] for each in change.fields if each.path[0] == "in")
    ]
    assert len(fields) == sum(len(change.fields) for change in others) - len(settings) - len(origins)


@given(pairs())
def test_colour_only_decorates(pair: tuple[Graph, Graph]) -> None:
    diff = compare(*pair)
    # The text is printable, so these marks are the palette's own.
    coloured = render_text(diff, palette=Palette("\1", "\2", "\3", "\4", "\5"))
    assert re.sub("[\1-\5]", "", coloured) == render_text(diff)


def test_colour_marks_the_kind_of_each_change() -> None:
    ansi = render_text(compare(everything(), edit_sample()), palette=ANSI)
    assert "\x1b[32m+ fc/relu:1" in ansi
    assert "\x1b[31m- output:1.var" in ansi
    assert "\x1b[33m~ mul:1" in ansi


def test_the_first_line_counts() -> None:
    parameter = Node("w", role="parameter", outputs=(TensorMeta("float32", (64, 192)),))
    use = Node("f:1", op="f", inputs=(Ref("w", 0), None), saved=(Saved("a", bytes=1_000),))
    a = Graph.of([use], [Scope("m")])
    grown = msgspec.structs.replace(use, saved=(Saved("a", bytes=5_200),))
    b = Graph.of([parameter, grown], [Scope("m", calls=1)], [Cut("unreached", ("p",))])
    headline = "+1 -0 ~0 cuts; +1 -0 ~1 nodes; +0 -0 ~1 scopes; parameters +12,288; saved bytes +4.2 kB (+420.0 %)"
    assert render_text(compare(a, b)).splitlines()[0] == headline


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "+1 B"),
        (999, "+999 B"),
        (1_000, "+1.0 kB"),
        (999_940, "+999.9 kB"),
        (999_960, "+1.0 MB"),
        (-1_500_000_000, "-1.5 GB"),
        (2**62, "+4.6 EB"),
        # What is beyond counting is said to be.
        (2**63 - 1, "≥ +9.2 EB"),
        (10**22, "≥ +9.2 EB"),
    ],
)
def test_bytes_are_short(count: int, text: str) -> None:
    diff = Diff(Totals(saved_bytes=max(-count, 0)), Totals(saved_bytes=max(count, 0)), (Change("added", "node", "x"),))
    assert f"saved bytes {text}" in render_text(diff).splitlines()[0]


def test_groups_follow_the_scopes() -> None:
    diff = compare(
        Graph.of([]), Graph.of([Node("a", scope="m"), Node("b"), Node("c", scope="m"), Node("d", scope="(top level)")])
    )
    headings = [line for line in render_text(diff).splitlines()[1:] if line and not line.startswith(" ")]
    assert headings == ["m", "(top level)", '"(top level)"']


def test_hostile_text_stays_on_its_line() -> None:
    for diff in (compare(hostile(), Graph.of([])), compare(Graph.of([]), hostile())):
        lines = render_text(diff).split("\n")[1:-1]
        assert all(line.isprintable() for line in lines)
        assert sum(line.startswith("  ") for line in lines) == len(diff.changes)
    for label in HOSTILE_LABELS:
        fields = {"op": label, "native": label, "scope": label, "names": (label,), "attrs": {label: label}}
        diff = compare(Graph.of([Node("x")]), Graph.of([Node("x", **fields)]))  # type: ignore[arg-type]
        assert all(line.isprintable() for line in render_text(diff).split("\n"))


def test_a_diff_from_elsewhere_cannot_break_a_line() -> None:
    evil = "a\n\x1b[31m\u202e"
    change = Change("changed", "node", evil, evil, evil, (FieldChange((evil,), evil, evil),))
    lines = render_text(Diff(Totals(), Totals(), (change,))).split("\n")
    assert len(lines) == 6
    assert all(line.isprintable() for line in lines)
