"""What the top of a report says of many changes at once, and that it is literally true; what a report must not hide."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest
from diff_pairs import valid_pairs
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from reports import (
    all_changes,
    attach_findings,
    findings_of_kinds,
    headline,
    markdown,
    notes,
    render_details,
    render_text,
    table,
)
from samples import HOSTILE_LABELS

from gradir.diffs.changes import Change, Diff, FieldChange
from gradir.diffs.compare import compare
from gradir.ir import Builder, Graph, Node, Ref, Scope, TensorMeta
from gradir.ir.totals import Totals
from gradir.review.wording import wrap_text


def linear(*frozen: str, roles: bool = True) -> Graph:
    """Layers with a weight of six elements, the last of ten, and a bias of two; without what is frozen."""
    nodes, scopes = [], [Scope("", "Net", total=28), Scope("h", "Sequential", total=28)]
    for layer, op in {"h.0": "exp", "h.1": "sin", "h.2": "cos"}.items():
        shapes = {f"{layer}.weight": (5 if layer == "h.2" else 3, 2), f"{layer}.bias": (2,)}
        left = [name for name in shapes if not (name in frozen or layer in frozen)]
        if roles:
            nodes += [
                Node(name, role="parameter", scope=layer, names=(name,), outputs=(TensorMeta("float32", shapes[name]),))
                for name in left
            ]
        nodes.append(Node(f"{layer}/{op}:1", op=op, scope=layer, inputs=tuple(Ref(name, 0) for name in left * roles)))
        own, trainable = (sum(math.prod(shapes[name]) for name in names) for names in (shapes, left))
        scopes.append(Scope(layer, "Linear", own=own, total=own, trainable=trainable))
    trainable = sum(scope.trainable for scope in scopes[2:])
    scopes[:2] = [replace(scope, trainable=trainable) for scope in scopes[:2]]
    return Graph.of(nodes, scopes)


def notes_of(a: Graph, b: Graph) -> list[str]:
    return notes(attach_findings(compare(a, b), (a, b)))


@pytest.mark.parametrize(
    ("frozen", "text"),
    [
        (["h.1"], "h.1 (2 parameters, 8 elements)"),
        (["h.0", "h.2"], "h.{0,2} (4 parameters, 20 elements)"),
        (["h.1.weight"], "part of h.1 (1 parameter, 6 elements)"),
        (["h.0", "h.1.bias"], "h.0, part of h.1 (3 parameters, 10 elements)"),
        (["h.0", "h.1", "h.2"], "(top level) (6 parameters, 28 elements)"),
    ],
)
def test_what_was_frozen_is_one_line_and_back_again(frozen: list[str], text: str) -> None:
    a, b = linear(), linear(*frozen)
    assert notes_of(a, b) == [f"frozen: {text}"]
    assert notes_of(b, a) == [f"unfrozen: {text}"]
    found = compare(a, b)
    assert render_details(found, (a, b)).splitlines()[1] == f"frozen: {text}"
    assert render_text(found, (a, b)).splitlines()[1] == f"frozen: {text}"
    assert f"\n**Frozen:** `{text}`  \n" in markdown(a, b, found)


def test_both_are_reported() -> None:
    texts = ["frozen: h.2 (2 parameters, 12 elements)", "unfrozen: h.0 (2 parameters, 8 elements)"]
    assert notes_of(linear("h.0"), linear("h.2")) == texts


def test_a_parameter_that_is_kept_as_a_buffer_has_left_the_graph_too() -> None:
    a, b = linear(), linear("h.1")
    kept = [replace(node, role="buffer") for node in a.nodes.values() if node.id not in b.nodes]
    assert notes_of(a, Graph.of([*b.nodes.values(), *kept], b.scopes.values())) == [
        "frozen: h.1 (2 parameters, 8 elements)"
    ]


def test_nothing_is_reported_that_the_table_does_not_prove() -> None:
    a, b = linear(), linear("h.1")
    assert notes_of(a, replace(b, scopes=a.scopes)) == [], "as many are trainable: they are not reached"
    fewer = [replace(scope, own=0, total=0) if scope.path == "h.1" else scope for scope in b.scopes.values()]
    assert notes_of(a, Graph.of(b.nodes.values(), fewer)) == [], "the module has none any more"
    assert notes_of(Graph.of(a.nodes.values()), Graph.of(b.nodes.values())) == [], "there is no table"


def test_figures_are_left_out_where_the_graphs_do_not_show_them() -> None:
    assert notes_of(linear(roles=False), linear("h.1", roles=False)) == ["frozen: h.1"]


def _frozen(a: Graph, b: Graph) -> list[str]:
    return [finding.text for finding in findings_of_kinds(attach_findings(compare(a, b), (a, b)), "frozen")]


def test_a_module_with_others_in_it_is_frozen_only_where_all_of_it_is() -> None:
    def graph(trainable: int, below: int) -> Graph:
        return Graph.of(
            [], [Scope("m", own=2, total=5, trainable=trainable), Scope("m.n", own=3, total=3, trainable=below)]
        )

    a = graph(5, 3)
    assert _frozen(a, graph(0, 0)) == ["frozen: m"]
    assert _frozen(a, graph(2, 0)) == ["frozen: m.n"]
    assert _frozen(a, graph(3, 3)) == [], "nothing tells whose two elements these are"


def tensors(*tensors: TensorMeta, odd: int = 0) -> Graph:
    """Nodes with these outputs each, and odd ones that have other attributes only."""
    nodes = [Node(f"exp:{at}", op="exp", outputs=(tensor,)) for at, tensor in enumerate(tensors, 1)]
    return Graph.of(
        [*nodes, *(Node(f"sin:{at}", op="sin", attrs={"n": len(tensors[0].shape or ())}) for at in range(odd))]
    )


def test_another_dtype_is_one_line() -> None:
    a, b = (tensors(*[TensorMeta(dtype, (2, 3))] * 6) for dtype in ("float32", "bfloat16"))
    assert notes_of(a, b) == ["all 6 changed nodes: dtype float32 -> bfloat16"]
    mixed = Graph.of([*list(b.nodes.values())[:4], *list(a.nodes.values())[4:]])
    assert notes_of(a, mixed) == [], "four are read as they are"
    other = [replace(node, outputs=(TensorMeta("float16", (2, 3)),)) for node in list(b.nodes.values())[4:]]
    assert notes_of(a, Graph.of([*list(b.nodes.values())[:4], *other])) == [
        "4 of 6 changed nodes: dtype float32 -> bfloat16"
    ]
    moved = tensors(*[TensorMeta("float32", (2, 3), "cuda:0")] * 6)
    assert notes_of(a, moved) == ["all 6 changed nodes: device cpu -> cuda:0"]


def test_another_batch_is_one_line_of_those_nodes_alone() -> None:
    shapes = [(2, 3)] * 4 + [(6,)] * 2, [(4, 3)] * 4 + [(12,)] * 2
    a, b = (tensors(*(TensorMeta("float32", shape) for shape in side)) for side in shapes)
    folded = "4 of 6 changed nodes: dimension 0 is 4, was 2; in 2 more, other sizes changed in that ratio"
    assert notes_of(a, b) == [folded]
    other = [(4, 3)] * 4 + [(12,), (9,)]
    assert notes_of(a, tensors(*(TensorMeta("float32", shape) for shape in other))) == [
        folded.replace("in 2 more", "in 1 more")
    ]
    none = [(0, 3)] * 4 + [(0,)] * 2
    assert notes_of(a, tensors(*(TensorMeta("float32", shape) for shape in none))) == [
        "4 of 6 changed nodes: dimension 0 is 0, was 2"
    ]
    wider = tensors(*[TensorMeta("float32", (4, 5))] * 6)
    assert notes_of(a, wider) == [], "two dimensions are others"
    both = tensors(*[TensorMeta("float16", (4, 3))] * 6)
    first = tensors(*[TensorMeta("float32", (2, 3))] * 6)
    assert notes_of(first, both) == [
        "all 6 changed nodes: dtype float32 -> float16",
        "all 6 changed nodes: dimension 0 is 4, was 2",
    ]


def test_a_node_with_two_answers_has_none() -> None:
    fields = (
        FieldChange(("out", 0, "dtype"), "float32", "float16"),
        FieldChange(("out", 1, "dtype"), "float32", "bfloat16"),
    )
    changes = tuple(Change("changed", "node", f"exp:{at}", fields=fields) for at in range(9))
    sides = Graph.of([]), Graph.of([Node("x")])
    script = compare(*sides).script
    assert notes(attach_findings(Diff(Totals(), Totals(), changes, script=script), sides)) == []
    gone = FieldChange(("out", 0, "dtype"), "float32"), FieldChange(("out", 1, "shape"), ("s0",), (2,))
    changes = tuple(replace(change, fields=gone) for change in changes)
    assert notes(attach_findings(Diff(Totals(), Totals(), changes, script=script), sides)) == []


@given(valid_pairs)
def test_a_count_of_changed_nodes_is_that_of_the_headline(pair: tuple[Graph, Graph]) -> None:
    found = compare(*pair)
    changed = re.search(r"~(\d+)[^;]* nodes", headline(found, pair))
    assert changed
    for text in (each.text for each in findings_of_kinds(attach_findings(found, pair), "uniform")):
        assert re.match(rf"(all|\d+ of) {changed[1]} changed nodes: ", text)


@given(st.lists(st.text("abc;:{}/.", min_size=1, max_size=30)).map(" ".join), st.integers(-1, 90))
def test_wrapping_loses_nothing_at_any_width(text: str, width: int) -> None:
    lines = wrap_text(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(len(line) <= max(width, 1) for line in lines)
    assert wrap_text(text, None) == [text]


@pytest.mark.parametrize("width", [1, 8, 20, 40, 80])
def test_the_top_of_a_report_is_whole_at_any_width(width: int) -> None:
    a, b = linear(), linear("h.0", "h.2")
    found = compare(a, b)
    top = [headline(found, (a, b)), *notes_of(a, b)]
    for render in (render_details, render_text):
        shown = render(found, (a, b), width=width).partition("\n\n")[0]
        assert "".join(shown.split()) == "".join("".join(top).split())
        assert max(map(len, shown.splitlines())) <= width


def test_a_setting_is_seen_where_no_node_changed() -> None:
    def graph(*scopes: Scope) -> Graph:
        return Graph.of([Node("exp:1", op="exp")], scopes)

    drop = Scope("drop", "Dropout", "p=0.1, inplace=False", training=True)
    a, b = graph(drop), graph(replace(drop, detail="p=0.5, inplace=False"))
    report = markdown(a, b, compare(a, b))
    assert "\n**Modules:** 1 changed  \n" in report
    assert "\n| `drop` |  |  |  |  |  |  | `p=0.1 → p=0.5` |\n" in report
    b = graph(drop, Scope("same", "Identity"))
    report = markdown(a, b, compare(a, b))
    assert "\n**Modules:** 1 added  \n" in report
    assert "\n| `same` (added) |  |  |  |  |  |  |\n" in report
    b = graph(replace(drop, training=False))
    assert list(table(compare(a, b), (a, b)))[2:] == ["| `drop` |  |  |  |  |  |  | `training: true → false` |"]


@pytest.mark.parametrize("label", HOSTILE_LABELS)
def test_a_hostile_setting_stays_in_its_cell(label: str) -> None:
    a, b = (Graph.of([], [Scope("m", "M", detail)]) for detail in ("p=1", f"p={label}"))
    if not compare(a, b):
        return
    (row,) = list(table(compare(a, b), (a, b)))[2:]
    assert len(re.findall(r"(?<!\\)\|", row)) == 9
    assert row.isprintable()


def test_equal_edits_below_a_renamed_module_are_reported_once() -> None:
    def stack(name: str, op: str) -> Graph:
        b = Builder()
        value = b.tensor("x", TensorMeta("float32", (2,)))
        scopes = [Scope(name, "ModuleList")]
        for layer in range(4):
            path = f"{name}.{layer}"
            scopes += [Scope(path, "Layer"), Scope(f"{path}.act", "Act", op)]
            for scope, what in ((path, "mul"), (f"{path}.act", op), (path, "add"), (path, "neg")):
                value = b.function(what, [value], [TensorMeta("float32", (2,))], scope=scope)
        b.output(value)
        return b.build(scopes=scopes)

    a, b = stack("blocks", "gelu"), stack("layers", "silu")
    found = compare(a, b)
    assert Counter(all_changes(attach_findings(found, (a, b)))) == Counter(found.changes)
    headings = [line for line in render_details(found, (a, b)).splitlines()[1:] if line[:1] not in {"", " "}]
    same = "the same 2 changes in each of 4 modules, here in layers.0.act"
    assert headings == ["(whole graph)", f"layers.{{0..3}}.act: {same}"]
    assert (
        "  ~ blocks.0.act/gelu:1 -> layers.0.act/silu:1  silu float32[2]" in render_details(found, (a, b)).splitlines()
    )
    assert list(table(found, (a, b)))[2:] == ["| `layers.{0..3}.act` (4 modules) |  |  | 4 |  |  |  | `gelu → silu` |"]


def test_modules_that_only_follow_one_that_went_have_no_row() -> None:
    nodes = [
        Node("h.0/exp:1", op="exp", scope="h.0"),
        Node("h.0/exp:2", op="exp", scope="h.0", inputs=(Ref("h.0/exp:1", 0),)),
    ]
    parameter = Node("h.0.w", role="parameter", scope="h.0", outputs=(TensorMeta("float32", (2,)),))
    scopes = [[Scope("h.0", "Layer", own=2, total=2, trainable=count)] for count in (2, 0)]
    a, b = Graph.of([*nodes, parameter], scopes[0]), Graph.of([], scopes[1])
    rows = list(table(compare(a, b), (a, b)))[2:]
    assert rows == ["| `h.0` (all of it removed) |  | 3 |  | -2 | -2 |  |"]
