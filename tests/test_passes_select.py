"""focus, between, ancestors and descendants, drop and hide on small graphs."""

from __future__ import annotations

import re

import pytest
from samples import everything

from gradir.errors import GradirError, PassError
from gradir.ir import Builder, Cut, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.totals import totals
from gradir.passes import ancestors, between, descendants, drop, focus, hide_shape_ops, matching

META = TensorMeta("float32", (2, 3))


def layered() -> Graph:
    """Two layers, each with a weight behind an accumulator and a transpose; the second uses the first's weight too."""
    b = Builder()
    value = b.tensor("x", META)
    first = None
    for number in range(2):
        scope = f"h.{number}.fc"
        weight = b.tensor(f"{scope}.weight", META, role="parameter", scope=scope)
        accumulate = b.function("accumulate_grad", [weight], [META], scope=scope)
        first = first or accumulate
        t = b.function("t", [accumulate], [META], scope=scope)
        value = b.function("mm", [value, t, first], [META], scope=scope, names=[f"y{number}"])
    b.output(value)
    return b.build(
        scopes=[Scope(path, kind) for path, kind in (("", "Net"), ("h.0.fc", "Linear"), ("h.1.fc", "Linear"))],
        cuts=[Cut("unreached", ("h.2.weight",), "h.2")],
    )


FIRST = ["h.0.fc.weight", "h.0.fc/accumulate_grad:1", "h.0.fc/t:1", "h.0.fc/mm:1"]
SECOND = ["h.1.fc.weight", "h.1.fc/accumulate_grad:1", "h.1.fc/t:1", "h.1.fc/mm:1"]
ALL = ["x", *FIRST, *SECOND, "output"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("h.0.fc/mm:1", ["h.0.fc/mm:1"]),
        ("y1", ["h.1.fc/mm:1"]),
        ("x", ["x"]),
        ("h.0.fc", FIRST),
        ("h.0", FIRST),
        ("h", [*FIRST, *SECOND]),
        ("h.*", [*FIRST, *SECOND]),
        ("*.1", SECOND),
        ("h.?.fc", [*FIRST, *SECOND]),
        ("h.[1-9]", SECOND),
        ("*.weight", ["h.0.fc.weight", "h.1.fc.weight"]),
        ("*/mm:*", ["h.0.fc/mm:1", "h.1.fc/mm:1"]),
        ("y?", ["h.0.fc/mm:1", "h.1.fc/mm:1"]),
        ("*", ALL),
    ],
)
def test_a_pattern_matches_these_nodes(pattern: str, expected: list[str]) -> None:
    assert [key for key in ALL if key in matching(layered(), pattern)] == expected


def test_a_name_with_a_wildcard_in_it_is_first_taken_as_it_is() -> None:
    graph = Graph.of([Node("a[0]"), Node("a0"), Node("w*"), Node("w1", scope="m[1]"), Node("m1")])
    assert matching(graph, "a[0]") == {"a[0]"}
    assert matching(graph, "w*") == {"w*"}
    assert matching(graph, "m[1]") == {"w1"}
    assert matching(graph, "a[0-9]") == {"a0"}


def test_a_module_is_not_another_whose_name_starts_alike() -> None:
    graph = Graph.of([Node("a", scope="h.1"), Node("b", scope="h.10"), Node("c", scope="h.1.x")])
    assert matching(graph, "h.1") == {"a", "c"}


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("h.0.fc.wieght", "(did you mean 'h.0.fc.weight'"),
        ("h.0.cf", "(did you mean 'h.0.fc'"),
        ("H.0.FC/mm:*", ""),
        ("????", ""),
        ("h.2", ""),
        ("zzzzzzz", ""),
    ],
)
def test_a_pattern_that_names_nothing_is_an_error(pattern: str, hint: str) -> None:
    for run in (focus, ancestors, descendants, lambda graph, found: between(graph, "x", found)):
        with pytest.raises(PassError, match=re.escape(f"{pattern!r}: no node, name or module with nodes matches")) as e:
            run(layered(), pattern)
        assert hint in str(e.value)
        assert "\n" not in str(e.value)


def test_an_empty_pattern_is_an_error() -> None:
    with pytest.raises(GradirError, match="the pattern is empty"):
        focus(layered(), "")


def test_a_wrong_pattern_on_a_large_graph_does_not_compare_everything() -> None:
    graph = Graph.of([Node(f"n{number}", scope="h.0") for number in range(100_000)])
    with pytest.raises(PassError, match=r"did you mean 'h\.0'"):
        focus(graph, "h.o")


def test_focus_by_hops() -> None:
    graph = layered()
    assert list(focus(graph, "h.0.fc/t:1", 0).nodes) == ["h.0.fc/t:1"]
    assert list(focus(graph, "h.0.fc/t:1").nodes) == ["h.0.fc/accumulate_grad:1", "h.0.fc/t:1", "h.0.fc/mm:1"]
    two = ["x", *FIRST, "h.1.fc/mm:1"]
    assert list(focus(graph, "h.0.fc/t:1", 2).nodes) == two
    assert focus(graph, "x", None) is graph


def test_focus_says_which_inputs_are_left_out() -> None:
    found = focus(layered(), "h.1.fc", 0)
    assert list(found.nodes) == SECOND
    assert found.nodes["h.1.fc/mm:1"] == Node(
        "h.1.fc/mm:1",
        op="mm",
        native="mm",
        scope="h.1.fc",
        names=("y1",),
        inputs=(None, Ref("h.1.fc/t:1", 0), None),
        outputs=(META,),
        ext={"elided_inputs": (0, 2), "left_out": (2, 1), "focus": True},
    )
    again = focus(found, "h.1.fc/mm:1", 0)
    assert again.nodes["h.1.fc/mm:1"].ext == {"elided_inputs": (0, 1, 2), "left_out": (3, 1), "focus": True}


def test_a_slot_that_was_null_is_not_elided() -> None:
    found = focus(everything(), "fc/addmm:1", 0)
    assert found.nodes["fc/addmm:1"].inputs == (None, None, None)
    assert found.nodes["fc/addmm:1"].ext == {"elided_inputs": (1, 2), "left_out": (2, 1), "focus": True}


def test_the_modules_of_what_is_left_and_every_cut_stay() -> None:
    found = focus(layered(), "h.1.fc/mm:1", 0)
    assert list(found.scopes) == ["", "h.1.fc"]
    assert found.cuts == layered().cuts
    nodes = [Node("a", scope="h.1.x"), Node("b", scope="h-")]
    scopes = [Scope(path) for path in ("h", "h.1", "h.10", "h.1.x", "h.1.x.y", "h-", "i")]
    assert list(focus(Graph.of(nodes, scopes), "a").scopes) == ["h", "h.1", "h.1.x"]


def test_the_buffers_that_a_kept_node_saved_stay() -> None:
    found = focus(everything(), "norm/native_batch_norm:1", 0)
    assert list(found.nodes) == ["norm.running_mean", "norm/native_batch_norm:1"]
    slot = found.nodes["norm/native_batch_norm:1"].saved[1]
    assert slot.origin == Ref("norm.running_mean", 0)
    assert list(focus(everything(), "fc/t:1", 0).nodes) == ["fc/t:1"]


def test_a_view_edge_is_an_edge() -> None:
    graph = Graph.of([Node("x", role="leaf"), Node("b", role="view_base"), Node("o", role="output", base="b")])
    assert list(focus(graph, "o").nodes) == ["b", "o"]
    assert list(ancestors(graph, "o").nodes) == ["b", "o"]
    assert focus(graph, "o", 0).nodes["o"].base is None


def test_lineage() -> None:
    graph = layered()
    assert list(ancestors(graph, "y0").nodes) == ["x", *FIRST]
    assert list(descendants(graph, "h.1.fc/t:1").nodes) == ["h.1.fc/t:1", "h.1.fc/mm:1", "output"]
    assert ancestors(graph, "output") is graph
    assert ancestors(graph, "y0").nodes["h.0.fc/mm:1"].ext == {"focus": True, "left_out": (0, 1)}


def test_between_finds_every_path_and_either_direction() -> None:
    graph = layered()
    weight = "h.0.fc.weight"
    every = [*FIRST, "h.1.fc/mm:1", "output"]
    assert list(between(graph, weight, "output").nodes) == every
    assert between(graph, "output", weight) == between(graph, weight, "output")
    assert list(between(graph, "x", "x").nodes) == ["x"]
    assert list(between(graph, "h.*.weight", "h.0.fc/mm:1").nodes) == FIRST


def test_between_unconnected_nodes_is_an_error() -> None:
    with pytest.raises(PassError, match=r"between 'x' and 'h\.1\.fc\.weight': no path along the edges joins them"):
        between(layered(), "x", "h.1.fc.weight")


def test_negative_hops_are_an_error() -> None:
    with pytest.raises(PassError, match="-1 hops"):
        focus(layered(), "x", -1)


def test_an_accumulator_hands_its_leaf_to_its_consumers() -> None:
    dropped = drop(layered(), ["accumulate_grad"])
    assert [edge[:4] for edge in dropped.edges] == [
        ("h.0.fc.weight", 0, "h.0.fc/t:1", 0),
        ("x", 0, "h.0.fc/mm:1", 0),
        ("h.0.fc/t:1", 0, "h.0.fc/mm:1", 1),
        ("h.0.fc.weight", 0, "h.0.fc/mm:1", 2),
        ("h.1.fc.weight", 0, "h.1.fc/t:1", 0),
        ("h.0.fc/mm:1", 0, "h.1.fc/mm:1", 0),
        ("h.1.fc/t:1", 0, "h.1.fc/mm:1", 1),
        ("h.0.fc.weight", 0, "h.1.fc/mm:1", 2),
        ("h.1.fc/mm:1", 0, "output", 0),
    ]


def test_an_accumulator_that_no_leaf_feeds_joins_nothing() -> None:
    nodes = [
        Node("w", role="leaf"),
        Node("a", op="accumulate_grad", inputs=(None,)),
        Node("b", op="accumulate_grad"),
        Node("mm", op="mm", inputs=(Ref("a", 0), None, Ref("b", 0))),
    ]
    dropped = drop(Graph.of(nodes), ["accumulate_grad"])
    assert list(dropped.nodes) == ["w", "mm"]
    assert dropped.nodes["mm"].inputs == (None, None, None)
    assert dropped.nodes["mm"].ext == {"elided_inputs": (0, 2)}
    assert not [*dropped.edges]


@pytest.mark.parametrize(
    ("what", "left"),
    [
        ("buffer", ["x", "fc.weight", "fc/t:1", "fc/addmm:1", "norm/native_batch_norm:1", "mul:1",
                    "checkpoint_function:1", "output:0", "output:1.var"]),
        ("output", ["x", "fc.weight", "fc/t:1", "fc/addmm:1", "norm.running_mean", "norm/native_batch_norm:1", "mul:1",
                    "checkpoint_function:1"]),
        ("function", ["x", "fc.weight", "norm.running_mean", "output:0", "output:1.var"]),
    ],
)  # fmt: skip
def test_roles(what: str, left: list[str]) -> None:
    assert list(drop(everything(), [what]).nodes) == left


def test_a_buffer_that_is_removed_loses_its_origins_too() -> None:
    dropped = drop(everything(), ["buffer"])
    slot = dropped.nodes["norm/native_batch_norm:1"].saved[1]
    assert (slot.slot, slot.origin, slot.storage, slot.bytes) == ("running_mean", None, "norm.running_mean", None)


def test_a_slot_of_a_removed_owner_loses_its_bytes_without_an_edge_to_it() -> None:
    slot = Saved("saved", storage="w", bytes=8)
    nodes = [
        Node("w", role="parameter"),
        Node("x", role="leaf"),
        Node("exp:1", op="exp", inputs=(Ref("x", 0),), saved=(slot,)),
    ]
    assert drop(Graph.of(nodes), ["parameter"]).nodes["exp:1"].saved == (Saved("saved", storage="w"),)


@pytest.mark.parametrize("what", [["buffer"], ["leaf"], ["parameter"], ["leaf", "parameter", "buffer"]])
def test_drop_does_not_raise_saved_bytes(what: list[str]) -> None:
    assert totals(drop(everything(), what)).saved_bytes == totals(everything()).saved_bytes


def test_saved_tensors() -> None:
    dropped = drop(everything(), ["saved"])
    assert list(dropped.nodes) == list(everything().nodes)
    assert list(dropped.edges) == list(everything().edges)
    assert not any(node.saved for node in dropped.nodes.values())


def test_views() -> None:
    graph = Graph.of(
        [
            Node("x", role="leaf"),
            Node("o/base", role="view_base", inputs=(Ref("x", 0),)),
            Node("o", role="output", inputs=(Ref("x", 0),), base="o/base"),
            Node("p", role="output", inputs=(Ref("x", 0),), base="x"),
        ]
    )
    assert [edge[:4] for edge in drop(graph, ["views"]).edges] == [("x", 0, "o", 0), ("x", 0, "p", 0)]
    without_bases = drop(graph, ["view_base"])
    assert list(without_bases.nodes) == ["x", "o", "p"]
    assert [node.base for node in without_bases.nodes.values()] == [None, None, "x"]


def test_a_role_of_ones_own_can_be_dropped_where_it_is() -> None:
    graph = Graph.of([Node("x", role="leaf"), Node("note", role="remark")])
    assert list(drop(graph, ["remark"]).nodes) == ["x"]
    with pytest.raises(PassError, match=r"cannot drop 'remarks' \(did you mean 'remark'\?\): choose from .*remark"):
        drop(graph, ["leaf", "remarks"])
    with pytest.raises(PassError, match="cannot drop 'remark': choose from function, leaf, parameter, buffer"):
        drop(everything(), ["remark"])


def test_shape_operations_are_hidden() -> None:
    hidden = hide_shape_ops(layered())
    assert [key for key in ALL if key not in hidden.nodes] == ["h.0.fc/t:1", "h.1.fc/t:1"]
    assert hidden.nodes["h.1.fc/mm:1"].inputs[1] == Ref("h.1.fc/accumulate_grad:1", 0)
    both = drop(hidden, ["accumulate_grad"])
    assert both == hide_shape_ops(drop(layered(), ["accumulate_grad"]))
    assert both.nodes["h.1.fc/mm:1"].inputs == (Ref("h.0.fc/mm:1", 0), Ref("h.1.fc.weight", 0), Ref("h.0.fc.weight", 0))


def test_hiding_keeps_the_output_number() -> None:
    b = Builder()
    split = b.function("split", [b.tensor("x", META)], [META, META])
    view = b.function("view", [b.function("transpose", [split.output(1)], [META])], [META])
    b.output(b.function("mul", [view, split], [META], saved=[(Saved("self", bytes=24), view)]))
    hidden = hide_shape_ops(b.build())
    assert hidden.nodes["mul:1"].inputs == (Ref("split:1", 1), Ref("split:1", 0))
    assert hidden.nodes["mul:1"].saved == (Saved("self", bytes=24),)


@pytest.mark.parametrize(
    "stays",
    [
        Node("v", op="view"),
        Node("v", op="view", inputs=(None,)),
        Node("v", op="expand", inputs=(Ref("x", 0), None)),
        Node("v", op="view", inputs=(Ref("x", 0),), opaque=True),
        Node("v", op="squeeze", inputs=(Ref("x", 0),), outputs=(META, META)),
        Node("v", op="view", role="module", inputs=(Ref("x", 0),)),
        Node("v", op="clone", inputs=(Ref("x", 0),)),
    ],
)
def test_hide_shape_ops_keeps_other_operations(stays: Node) -> None:
    graph = Graph.of([Node("x", role="leaf"), stays, Node("o", role="output", inputs=(Ref("v", 0),))])
    assert hide_shape_ops(graph) is graph
