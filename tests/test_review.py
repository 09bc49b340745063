"""What reviewers read: reports, pictures, conditions, patches, and what is ignored on request."""

from __future__ import annotations

import re

import msgspec
import pytest
from diff_pairs import edit_sample, pairs, valid_pairs
from hypothesis import given
from markdown_it import MarkdownIt
from msgspec.structs import replace
from reports import UNKNOWN, cut_changed_part, markdown, outcomes, render_text, union
from samples import HOSTILE_LABELS, chain, everything, hostile
from strategies import graphs

import gradir
from gradir.diffs.changes import Change, Diff, FieldChange
from gradir.diffs.compare import compare
from gradir.diffs.ignoring import ignore_fields, normalize_diff
from gradir.errors import GradirError
from gradir.ir import Builder, Cut, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.marks import SIGNS, status
from gradir.ir.totals import Totals, sizes, totals
from gradir.ir.validate import check
from gradir.review import report
from gradir.review.conditions import parse_conditions
from gradir.review.reviewing import review_graphs
from gradir.review.wording import ANSI

LIMIT = 60_000


def layers(count: int, op: str = "exp") -> Graph:
    b = Builder()
    meta = [TensorMeta("float32", (3,))]
    value = b.tensor("x", meta[0])
    for number in range(count):
        value = b.function(op, [value], meta, scope=f"h.{number}", saved=[(Saved("self", "float32", (3,), 12), value)])
    b.output(value)
    return b.build(scopes=[Scope(f"h.{number}", "Block") for number in range(count)])


@given(valid_pairs)
def test_the_union_has_every_node_marked_as_the_diff_says(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    found = compare(a, b)
    whole = union(a, b, found)
    check(whole)
    kinds = {change.id: change.kind for change in found.changes if change.subject == "node"}
    for node in b.nodes.values():
        expected = {"": "", "added": "added"}.get(kinds.get(node.id, ""), "changed")
        if kinds.get(node.id) != "removed":
            assert status(whole.nodes[node.id]) == expected
    removed = sum(change.kind == "removed" for change in found.changes if change.subject == "node")
    assert len(whole.nodes) == len(b.nodes) + removed
    assert sum(status(node) == "removed" for node in whole.nodes.values()) == removed


@given(graphs())
def test_the_union_of_a_graph_with_itself_is_the_graph(graph: Graph) -> None:
    assert gradir.dumps(union(graph, graph, compare(graph, graph))) == gradir.dumps(graph)


def test_the_changed_part_is_what_changed_and_what_is_near_it() -> None:
    a, b = layers(9), layers(9)
    node = b.nodes["h.4/exp:1"]
    b = replace(b, nodes={**b.nodes, node.id: replace(node, attrs={"v": 1})})
    found = compare(a, b)
    assert list(cut_changed_part(a, b, found).nodes) == ["h.3/exp:1", "h.4/exp:1", "h.5/exp:1"]
    assert len(cut_changed_part(a, b, found, hops=2).nodes) == 5


@pytest.mark.parametrize("exporter", ["dot", "mermaid"])
def test_pictures_show_the_marks_by_sign_and_by_colour(exporter: str) -> None:
    small, large, other = layers(3), layers(4), layers(3, "sin")
    for a, b, mark, sign in (
        (small, large, "added", "+"),
        (large, small, "removed", "-"),
        (small, other, "changed", "~"),
    ):
        text = cut_changed_part(a, b, compare(a, b)).to(exporter)
        plain = text.replace("#43;", "+").replace("#45;", "-").replace("#126;", "~")
        assert re.search(rf'"{re.escape(sign)} (exp|sin)', plain)
        assert mark in text
        assert "context" in text


def test_what_only_looks_like_a_mark_is_none() -> None:
    graph = Graph.of([Node("x", ext={"diff": ("added",)}), Node("y", ext={"diff": "gone"})])
    assert not any(map(status, graph.nodes.values()))
    assert "context" not in graph.to("dot")


@given(pairs())
def test_the_sizes_of_modules_add_up(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    for graph in pair:
        found = sizes(graph.nodes.values()).values()
        assert sum(size.parameters for size in found) == totals(graph).parameters
        assert sum(size.nodes for size in found) == sum(node.role == "function" for node in graph.nodes.values())
    grown = compare(a, b).modules
    change = totals(b).parameters - totals(a).parameters
    assert sum(one.after.parameters - one.before.parameters for one in grown) == change


def rows(text: str) -> list[list[str]]:
    """The cells of the table in a report, read by a parser of Markdown."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    cells: list[list[str]] = []
    for at, token in enumerate(tokens):
        if token.type == "tr_open":
            cells.append([])
        elif token.type in {"td_open", "th_open"}:
            cells[-1].append("".join(child.content for child in tokens[at + 1].children or ()))
    return cells


def test_the_report_has_a_golden(golden) -> None:
    a, b = everything(), edit_sample()
    golden("diff/edited.md", markdown(a, b, compare(a, b)))


@given(valid_pairs)
def test_the_table_of_a_report_counts_every_changed_node(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    found = compare(a, b)
    text = markdown(a, b, found)
    assert len(text.encode()) <= LIMIT
    if not found:
        assert text == "### Autograd graph: no difference\n"
        return
    changes = [change for change in found.changes if change.subject == "node"]
    table = rows(text)[1:]
    for column, kinds in ((1, {"added"}), (2, {"removed"}), (3, {"changed", "renamed", "moved"})):
        assert sum(int(row[column] or 0) for row in table) == sum(change.kind in kinds for change in changes)


def test_a_report_names_what_was_cut_off_first() -> None:
    cuts = [Cut("unreached", (f"w{number}",)) for number in range(6)]
    there = markdown(Graph.of([]), Graph.of([], [], cuts), compare(Graph.of([]), Graph.of([], [], cuts)))
    assert there.splitlines()[3] == "**Cuts:** `+ 6 cuts, unreached: {w0,w1,w2,w3,w4,w5}`  "
    a, b = Graph.of([], [], [*cuts[:1], Cut("hidden", ("v",))]), Graph.of([])
    back = markdown(a, b, compare(a, b))
    assert "**Cuts:** `- cut w0  unreached`  \n**Cuts:** `- cut v  hidden`  \n" in back


def test_a_report_of_hostile_names_stays_in_its_table() -> None:
    a, b = Graph.of([]), hostile()
    text = markdown(a, b, compare(a, b))
    assert len(text.encode()) <= LIMIT
    table = rows(text)
    assert {len(row) for row in table} == {8}
    assert len(table) >= len(HOSTILE_LABELS)
    assert "\x1b" not in text
    assert "\u202e" not in text.partition("```")[0]


def test_a_report_of_a_large_change_fits_into_a_comment() -> None:
    a, b = layers(3), layers(5_000, "sin")
    # One more of each for every following module: no two rows of the table are equal.
    more = [Node(f"h.{module}/cos:{n}", op="cos", scope=f"h.{module}") for module in range(100) for n in range(module)]
    b = replace(b, nodes={**b.nodes, **{node.id: node for node in more}})
    text = markdown(a, b, compare(a, b))
    assert len(text.encode()) <= LIMIT
    assert "more modules" in text
    assert re.search(r"… [\d,]+ more lines: gradir diff --full shows them all", text)
    assert text.count("```") % 2 == 0
    assert text.endswith("</details>\n")


@pytest.mark.parametrize(
    "name", ["層" * 100, "\U0001f9e0" * 100, "\u202e" * 60, "`" * 300, "m" * 119], ids=lambda name: ascii(name[:1])
)
def test_a_report_of_long_names_fits_into_a_comment(name: str) -> None:
    a, b = (
        Graph.of(
            [
                Node(f"{n}.{name}/f:{k}", op=f"f{n}", scope=f"{n}.{name}", attrs={"by": by + n})
                for n in range(60)
                for k in range(9)
            ]
        )
        for by in (0, 1)
    )
    text = review_graphs(a, b).to("markdown")
    assert LIMIT - 2_000 < len(text.encode()) <= LIMIT
    assert text.endswith("</details>\n")
    assert re.search(r"\n… [\d,]+ more lines: gradir diff --full shows them all\n`{3,}\n", text)
    picture = "graph LR\n" + "a --> b\n" * 7_500
    told = report.markdown(review_graphs(a, b), picture=picture)
    assert "No picture: a comment has no room for it" in told
    assert len(told.encode()) <= LIMIT


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("params", ["params: 100 -> 120 (+20.0 %)"]),
        ("params>10%", ["params>10%: 100 -> 120 (+20.0 %)"]),
        ("params>20%", []),
        ("params>19", ["params>19: 100 -> 120 (+20.0 %)"]),
        ("params>20", []),
        ("nodes,edges", ["nodes: 5 -> 4 (-20.0 %)"]),
        ("nodes>0", []),
        ("saved-bytes>1k", ["saved-bytes>1k: 0 -> 2,000"]),
        ("saved-bytes>2kB", []),
        ("saved-bytes>500%", ["saved-bytes>500%: 0 -> 2,000"]),
    ],
)
def test_conditions(text: str, lines: list[str]) -> None:
    diff = Diff(Totals(5, 7, 100, 0), Totals(4, 7, 120, 2000))
    found = list(outcomes(diff, UNKNOWN, parse_conditions(text)))
    assert [finding.text for finding in found] == lines
    assert all(finding.fails for finding in found)


@pytest.mark.parametrize(
    "text", ["", "prams", "params<3", "params>", "params>5%%", "params>-1", "nodes>1x", "a,params"]
)
def test_a_wrong_condition_is_one_clear_error(text: str) -> None:
    with pytest.raises(GradirError, match=r"is not a condition; .*one of cuts, nodes, edges, params, saved-bytes"):
        parse_conditions(text)


def fields(diff: Diff) -> set[str]:
    return {field.name for change in diff.changes for field in change.fields}


@pytest.mark.parametrize(
    ("ignored", "path", "kept"),
    [
        ("attrs.eps", ("attrs", "eps"), False),
        ("attrs", ("attrs", "eps"), False),
        ("attrs.e*", ("attrs", "eps"), False),
        ("attrs.ep", ("attrs", "eps"), True),
        ("out", ("out", 0, "shape"), False),
        ("out*", ("out", 0, "shape"), False),
        ("saved.mat1", ("saved", "mat1", "bytes"), False),
        ("source", ("attrs", "source"), True),
    ],
)
def test_ignored_fields(ignored: str, path: tuple[str | int, ...], kept: bool) -> None:
    change = Change("changed", "node", "x", fields=(FieldChange(path, 1, 2),))
    assert bool(ignore_fields(Diff(Totals(), Totals(), (change,)), [ignored])) is kept


def test_ignoring_keeps_what_else_a_change_says() -> None:
    a, b = everything(), edit_sample()
    whole = compare(a, b)
    rest = ignore_fields(whole, ["attrs.eps", "source"])
    assert fields(whole) - fields(rest) == {"attrs.eps", "source"}
    assert [change.id for change in rest.changes if change.kind != "changed"] == [
        change.id for change in whole.changes if change.kind != "changed"
    ]
    assert gradir.patch(a, rest) == b, "the script stays whole"
    assert not [
        change for change in ignore_fields(whole, ["scopes", "cuts"]).changes if change.subject in {"scope", "cut"}
    ]


def test_what_cannot_be_ignored_is_one_clear_error() -> None:
    with pytest.raises(GradirError, match=r"cannot ignore 'sorce' \(did you mean 'source'\?\)"):
        gradir.diff(everything(), everything(), ignore=["sorce"])


def test_what_a_release_changes_by_itself_is_normalized() -> None:
    def made(native: str, op: str, attrs: dict[str, object]) -> Graph:
        detail = f"8, eps=1e-05, affine=True{', bias=True' if native.endswith('1') else ''}"
        return Graph.of([Node("x", op=op, native=native, attrs=attrs)], [Scope("", "BatchNorm2d", detail)])

    a = made("UnsafeViewBackward0", "unsafe_view", {"self_sym_sizes": (1, 2), "dim": 1})
    b = made("ViewBackward1", "view", {"dim": 1})
    assert gradir.diff(a, b)
    assert not gradir.diff(a, b, normalize=True)
    assert gradir.diff(a, made("ViewBackward1", "view", {"dim": 2}), normalize=True)
    assert normalize_diff(compare(a, b)).script == compare(a, b).script


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(8,), eps=1e-05, elementwise_affine=True, bias=True", "(8,), eps=1e-06, elementwise_affine=True, bias=True"),
        ("(8,), eps=1e-05, elementwise_affine=True", "(8,), eps=1e-06, elementwise_affine=True, bias=True"),
        ("p=0.1, inplace=False", "p=0.2, inplace=False"),
        ("64, 8", "64, 8, max_norm=1.0"),
        ("rate 1", "rate 2"),
    ],
)
def test_what_a_program_sets_counts_however_it_is_known(before: str, after: str) -> None:
    a, b = (Graph.of([], [Scope("m", "M", detail)]) for detail in (before, after))
    (change,) = gradir.diff(a, b, normalize=True).changes
    assert fields(gradir.diff(a, b, normalize=True)) == {"detail"}
    assert change.id == "m"


def test_what_a_release_does_not_let_be_read_matches_anything() -> None:
    def saving(first: Saved, storage: str, attrs: dict[str, int]) -> Graph:
        slots = (Saved("mat1", "float32", (2, 3), 24, storage=storage),)
        return Graph.of([Node("f:1", op="f", saved=(first,)), Node("f:2", op="f", saved=slots, attrs=attrs)])

    seen = saving(Saved("mat1", "float32", (2, 3), 24, Ref("f:9", 0)), "f:1.mat1", {})
    for first in (Saved("mat1", state="unread"), Saved("mat1", shape=(2, 3), state="unread")):
        for sides in ((saving(first, "", {}), seen), (seen, saving(first, "", {}))):
            assert gradir.diff(*sides)
            assert not gradir.diff(*sides, normalize=True)
    other = saving(Saved("mat1", state="unread"), "", {"dim": 1})
    assert fields(gradir.diff(other, seen, normalize=True)) == {"attrs.dim"}
    shorter = saving(Saved("mat1", shape=(1, 3), state="unread"), "", {})
    assert fields(gradir.diff(shorter, seen, normalize=True)) == {"saved.mat1.shape"}
    freed = saving(Saved("mat1", state="freed"), "f:1.mat1", {})
    assert gradir.diff(freed, seen, normalize=True)


def test_a_storage_of_an_unread_slot_matches_any_where_its_node_is_renamed() -> None:
    meta = (TensorMeta("float32", (2, 3)),)

    def saving(path: str, first: Saved, storage: str) -> Graph:
        second = Saved("mat2", "float32", (2, 3), 24, storage=storage)
        nodes = [
            Node("x", "leaf", outputs=meta),
            Node(f"{path}/f:1", op="f", scope=path, inputs=(Ref("x", 0),), outputs=meta, saved=(first,)),
            Node("g:1", op="g", inputs=(Ref(f"{path}/f:1", 0),), outputs=meta, saved=(second,)),
        ]
        return Graph.of(nodes, [Scope("", "Net"), Scope(path, "Block")])

    unread = saving("old", Saved("mat1", state="unread"), "")
    seen = saving("new", Saved("mat1", "float32", (2, 3), 24), "new/f:1.mat1")
    for sides in ((unread, seen), (seen, unread)):
        assert "saved.mat2.storage" in fields(gradir.diff(*sides))
        assert not fields(gradir.diff(*sides, normalize=True))


def test_large_graphs_are_compared_in_linear_time() -> None:
    graph = chain(50_000)
    middle = list(graph.nodes)[10_000]
    other = replace(graph, nodes={**graph.nodes, middle: replace(graph.nodes[middle], attrs={"v": 1})})
    found = gradir.diff(graph, other)
    assert [change.id for change in found.changes] == [middle]
    assert len(cut_changed_part(graph, other, found).nodes) == 3
    assert msgspec.json.encode(found.script).count(b'"id"') == 2


def test_signs_are_one_character_each() -> None:
    assert all(len(sign) == 1 for sign in SIGNS.values())


def test_long_lines_are_cut_at_the_width_of_the_terminal() -> None:
    a, b = Graph.of([]), hostile()
    found = compare(a, b)
    for width in (20, 80):
        text = render_text(found, width=width)
        assert max(map(len, text.splitlines())) == width
        below, whole = (shown.partition("\n\n")[2] for shown in (text, render_text(found)))
        assert len(below.splitlines()) == len(whole.splitlines())
        coloured = render_text(found, palette=ANSI, width=width)
        assert re.sub(r"\x1b\[\d+m", "", coloured) == text
    assert max(map(len, render_text(found).splitlines())) > 10_000
