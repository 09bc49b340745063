"""The settings of what came, went or became another operation are told; what is so by itself is not."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from reports import markdown, render_details, render_text

import gradir
from gradir.diffs.changes import Diff
from gradir.diffs.compare import compare
from gradir.diffs.diff_json import decode, encode
from gradir.ir import Graph, Node, Producer, Ref, Scope
from gradir.ir.model import AttrValue


def graph(*nodes: Node, scopes: tuple[Scope, ...] = ()) -> Graph:
    return Graph.of(nodes, scopes, producer=Producer(framework="torch"))


def chain(op: str, scope: str = "", **attrs: AttrValue) -> Graph:
    return graph(Node("x"), Node(f"{op}:1", op=op, scope=scope, attrs=attrs, inputs=(Ref("x", 0),)))


def texts(a: Graph, b: Graph) -> list[str]:
    found = compare(a, b)
    assert gradir.patch(a, found) == b
    return [render_details(found, (a, b)), render_text(found, (a, b)), markdown(a, b, found)]


@pytest.mark.parametrize(
    ("op", "attrs", "told"),
    [
        ("mul", {"other": 0.5}, "mul by 0.5"),
        ("div", {"other": 8}, "div by 8"),
        ("div", {"in0": 1.0}, "div(in0=1.0)"),
        ("gelu", {"approximate": "none"}, 'gelu(approximate="none")'),
        ("add", {"alpha": 1}, "add"),
        ("add", {"alpha": 2}, "add(alpha=2)"),
        ("clamp", {"min": 0, "max": None, "in_place": False}, "clamp(min=0)"),
        ("avg_pool2d", {"count_include_pad": False, "stride": (1, 1), "padding": (0, 1)}, None),
        ("checkpoint_function", {"inputs": (None, None)}, "checkpoint_function"),
        ("native_group_norm", {"N": 2, "C": 8, "group": 2}, "native_group_norm(group=2)"),
        ("view", {"self_sym_sizes": (2, 3)}, "view"),
        ("Scale", {"config": "<Config>", "nested": ((1, 2),)}, "Scale"),
        ("slice", {"dim": 1, "start": 1, "end": 2**63 - 1}, "slice(dim=1, start=1)"),
        ("nll_loss", {"reduction": 1, "ignore_index": -100}, "nll_loss(reduction=mean)"),
    ],
)
def test_added_and_removed_nodes_show_their_settings(op: str, attrs: dict[str, AttrValue], told: str | None) -> None:
    told = told or "avg_pool2d(count_include_pad=false, padding=[0, 1])"
    without, with_it = graph(Node("x")), chain(op, **attrs)
    for text in texts(without, with_it):
        assert f"  + {op}:1  {told}\n" in text
    for text in texts(with_it, without):
        assert f"  - {op}:1  {told}\n" in text


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        (chain("add"), chain("mul", other=0.5), "op: add -> mul by 0.5"),
        (chain("mul", other=0.5), chain("div", other=3.0), "op: mul by 0.5 -> div by 3.0"),
        (chain("gelu", approximate="tanh"), chain("relu"), 'op: gelu(approximate="tanh") -> relu'),
        (chain("softmax", dim=1), chain("log_softmax", dim=1), "op: softmax -> log_softmax"),
        (chain("softmax", dim=1), chain("log_softmax", dim=2), "op: softmax(dim=1) -> log_softmax(dim=2)"),
    ],
)
def test_what_becomes_another_operation_says_both(a: Graph, b: Graph, told: str) -> None:
    for text in texts(a, b):
        assert f"      {told}\n" in text
        assert "attrs." not in text


@pytest.mark.parametrize(
    ("class_name", "detail", "told"),
    [
        ("GELU", "approximate='none'", "GELU(approximate='none')"),
        ("Dropout", "p=0.1, inplace=False", "Dropout(p=0.1)"),
        ("LayerNorm", "(8,), eps=1e-05, elementwise_affine=True, bias=True", "LayerNorm((8,))"),
        ("LayerNorm", "(8,), eps=1e-06, elementwise_affine=True", "LayerNorm((8,), eps=1e-06)"),
        ("Conv2d", "3, 8, kernel_size=(3, 3), stride=(2, 2), bias=False", None),
    ],
)
def test_modules_say_what_they_were_made_with(class_name: str, detail: str, told: str | None) -> None:
    told = told or "Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2), bias=False)"
    scopes = tuple(Scope(f"h.{n}.m", class_name, detail=detail) for n in range(3))
    nodes = [Node(f"h.{n}.m/{op}:1", op=op, scope=f"h.{n}.m") for n in range(3) for op in ("exp", "sin")]
    brief, full, report = texts(graph(), graph(*nodes, scopes=scopes))
    assert f"  + 3 modules h.{{0..2}}.m  {told}  each 2 nodes\n" in brief
    assert full.count(f"  {told}\n") == 3
    assert f"| `{told}` |" in report


def test_modules_that_are_set_otherwise_are_distinguished() -> None:
    scopes = tuple(Scope(f"h.{at}", "Dropout", detail=f"p=0.{p}") for at, p in enumerate((1, 1, 2)))
    brief, _, report = texts(
        graph(), graph(*(Node(f"h.{n}/mul:1", op="mul", scope=f"h.{n}") for n in range(3)), scopes=scopes)
    )
    assert "  + 2 modules h.{0,1}  Dropout(p=0.1)  each 1 node\n  + module h.2  Dropout(p=0.2)  1 node\n" in brief
    assert "| `Dropout(p=0.1)` |" in report
    assert "| `Dropout(p=0.2)` |" in report


def test_the_row_of_a_module_has_its_own_settings_and_no_other() -> None:
    scopes = (Scope("block", "Block"), Scope("block.drop", "Dropout", detail="p=0.1"))
    nodes = (Node("block/exp:1", op="exp", scope="block"), Node("block.drop/mul:1", op="mul", scope="block.drop"))
    brief, full, report = texts(graph(), graph(*nodes, scopes=scopes))
    assert "p=0.1" not in brief
    assert "  + scope block.drop  Dropout(p=0.1)\n" in full
    assert "settings" not in report.partition("<details>")[0]


def test_ignored_attributes_are_reported_of_nothing() -> None:
    found = gradir.diff(graph(Node("x")), chain("mul", other=0.5), ignore=["attrs"])
    assert "  + mul:1  mul\n" in found.to("text")


def test_the_data_has_the_same_settings() -> None:
    a, b = (
        graph(Node("x")),
        graph(*chain("mul", other=0.5, alpha=1).nodes.values(), scopes=(Scope("m", "M", detail="p=1, bias=True"),)),
    )
    read = decode(encode(compare(a, b)))
    assert {
        change.id: [(field.name, field.before, field.after) for field in change.fields] for change in read.changes
    } == {
        "m": [("detail", UNSET, "p=1")],
        "mul:1": [("attrs.other", UNSET, 0.5)],
    }
    assert "  + mul:1  mul by 0.5\n" in render_text(read)


VALUES = st.one_of(
    st.integers(-3, 3), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.booleans(), st.none()
)


@given(st.text(min_size=1), st.dictionaries(st.text(), VALUES), st.text())
def test_settings_stay_in_a_short_line_and_there_and_back_say_the_same(
    op: str, attrs: dict[str, AttrValue], detail: str
) -> None:
    a = graph(Node("x"))
    b = graph(Node("x"), Node("f:1", op=op, scope="m", attrs=attrs), scopes=(Scope("m", "M", detail=detail),))
    there, back = compare(a, b), compare(b, a)
    for found, sides in ((there, (a, b)), (back, (b, a))):
        lines = render_text(found, sides).splitlines()
        assert all(line.isprintable() for line in lines)
        assert all(len(line) <= 6 * len(op) + 120 for line in lines)
    assert _fields(there) == [(where, path, after, before) for where, path, before, after in _fields(back)]


def _fields(diff: Diff) -> list[tuple[str, tuple[str | int, ...], object, object]]:
    return [(change.id, field.path, field.before, field.after) for change in diff.changes for field in change.fields]


@given(st.dictionaries(st.text(min_size=1), VALUES))
def test_no_setting_is_left_out_but_null_and_what_nobody_set(attrs: dict[str, AttrValue]) -> None:
    b = Graph.of([Node("f:1", op="f", attrs=attrs)], producer=Producer(framework="unheard"))
    (change,) = compare(Graph.of([], producer=Producer(framework="unheard")), b).changes
    said = {str(field.path[1]): field.after for field in change.fields}
    assert said.keys() <= attrs.keys()
    for name, value in attrs.items():
        is_object = isinstance(value, str) and value.startswith("<") and value.endswith(">")
        assert (name in said) == (value is not None and value is not False and not is_object)


def test_a_setting_that_only_differs_in_type_is_reported() -> None:
    a, b = chain("f", other=1), chain("g", other=1.0)
    (change,) = [change for change in compare(a, b).changes if change.subject == "node"]
    assert msgspec.to_builtins(change.fields[1]) == {"path": ("attrs", "other"), "before": 1, "after": 1.0}
