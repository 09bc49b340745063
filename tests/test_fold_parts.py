"""Modules that flow leaves and enters again: folded into several parts, with the parameters of each."""

from __future__ import annotations

from gradir.ir import Builder, Graph, Ref, Scope, TensorMeta
from gradir.ir.build import Value
from gradir.passes import fold

META = TensorMeta("float32", (2, 3))


def recurrent(steps: int) -> Graph:
    b = Builder()
    weight = b.tensor("cell.weight", META, role="parameter", scope="cell")
    state = b.tensor("state", META)
    for _ in range(steps):
        state = b.function("mul", [b.function("mm", [state, weight], [META], scope="cell")], [META])
    b.output(state)
    return b.build(scopes=[Scope("cell", "Cell")])


def test_flow_that_leaves_a_module_and_returns_splits_it() -> None:
    folded = fold(recurrent(3), 1)
    assert list(folded.nodes) == ["state", "cell", "mul:1", "cell#2", "mul:2", "cell#3", "mul:3", "output"]
    assert [n.names[0] for n in folded.nodes.values() if n.role == "module"] == ["cell", "cell (2)", "cell (3)"]
    assert folded.nodes["cell"].inputs == (Ref("state", 0),)
    assert folded.nodes["cell#3"].inputs == (Ref("mul:2", 0), Ref("cell", 0))
    assert {n.native for n in folded.nodes.values() if n.role == "module"} == {"Cell"}


def test_a_side_output_stays_in_its_part_of_a_folded_module() -> None:
    b = Builder()
    x = b.tensor("x", META)
    beside, leaving = (b.function(op, [x], [META], scope="a") for op in ("exp", "sin"))
    returning = b.function("tan", [b.function("cos", [leaving], [META], scope="b")], [META], scope="a")
    for value in (beside, returning):
        b.output(value)
    folded = fold(b.build(), 1)
    taken = [[ref.id for ref in node.inputs if ref] for node in folded.nodes.values() if node.role == "output"]
    assert taken == [["a"], ["a#2"]]


def test_two_modules_that_take_turns_are_both_split_in_order() -> None:
    b = Builder()
    value = b.tensor("x", META)
    for scope in ("a", "b", "a", "b"):
        value = b.function("add", [value], [META], scope=scope)
    b.output(value)
    folded = fold(b.build(), 1)
    assert list(folded.nodes) == ["x", "a", "b", "a#2", "b#2", "output"]


def linear(b: Builder, value: Value | None, weight: Value, scope: str) -> Value:
    """A use of a weight, transposed, as autograd records it."""
    return b.function("mm", [value, b.function("t", [weight], [META], scope=scope)], [META], scope=scope)


def accumulated(b: Builder, name: str, elements: int, scope: str) -> Value:
    weight = b.tensor(name, TensorMeta("float32", (elements,)), role="parameter", scope=scope)
    return b.function("accumulate_grad", [weight], [META], scope=scope)


def test_each_part_of_a_module_has_the_parameters_of_its_own_blocks() -> None:
    # As in a U-Net: blocks of one list, with something else between.
    b = Builder()
    value: Value | None = None
    weights = [(place, accumulated(b, f"down.{place}.w", 10 ** (place + 1), f"down.{place}")) for place in range(3)]
    for place, weight in weights:
        value = linear(b, value, weight, f"down.{place}")
        value = b.function("pool", [value], [META], scope="pool")
    b.output(value)
    folded = fold(b.build(), 1)
    counts = {id_: node.attrs["parameters"] for id_, node in folded.nodes.items() if node.scope == "" and node.attrs}
    assert {id_: count for id_, count in counts.items() if id_.startswith("down")} == {
        "down": 10,
        "down#2": 100,
        "down#3": 1_000,
    }
    assert not any("shared_parameters" in node.attrs for node in folded.nodes.values())
    # No weight has an arrow of its own from part to part.
    assert [ref.id for ref in folded.nodes["down#3"].inputs if ref is not None] == ["pool#2"]
    assert "100 parameters" in folded.to("mermaid")


def test_a_part_that_uses_parameters_of_an_earlier_one_says_so() -> None:
    b = Builder()
    weight, own = accumulated(b, "cell.w", 12, "cell"), accumulated(b, "cell.last", 5, "cell")
    value: Value | None = None
    for _ in range(3):
        value = b.function("tanh", [linear(b, value, weight, "cell")], [META])
    b.output(linear(b, value, own, "cell"))
    folded = fold(b.build(), 1)
    parts = [node for node in folded.nodes.values() if node.role == "module"]
    assert [node.label for node in parts] == ["cell", "cell (2)", "cell (3)", "cell (4)"]
    assert [node.attrs["parameters"] for node in parts] == [12, 0, 0, 5]
    assert [node.attrs.get("shared_parameters", 0) for node in parts] == [0, 12, 12, 0]
    assert folded.to("mermaid").count("12 parameters of an earlier part") == 2


def test_a_weight_that_another_module_uses_first_is_where_that_can_have_it_from() -> None:
    b = Builder()
    weight = accumulated(b, "a.w", 7, "a")
    value = linear(b, None, weight, "b")
    value = linear(b, value, weight, "a")
    b.output(linear(b, value, weight, "b"))
    folded = fold(b.build(), 1)
    assert [(node.id, node.attrs["parameters"]) for node in folded.nodes.values() if node.role == "module"] == [
        ("a", 7),
        ("b", 0),
        ("a#2", 0),
        ("b#2", 0),
    ]


def test_a_backward_that_takes_only_the_forward_waits_for_the_other_backward() -> None:
    b, late = Builder(), {"phase": "backward"}
    value = b.function("exp", [b.tensor("x", META)], [META], scope="a")
    inner = b.function("mul", [b.function("sin", [value], [META], scope="b")], [META])
    early = b.function("cos", [value], [META], scope="a", ext=late)
    gradient = b.function("mul", [b.function("expand", [inner], [META], ext=late), value], [META], scope="b", ext=late)
    b.output(b.function("mul", [gradient, early], [META], scope="a", ext=late))
    folded = fold(b.build(), 1).nodes
    assert [(key, node.attrs["nodes"]) for key, node in folded.items() if node.role == "module"] == [
        *(("a", 1), ("b", 1), ("b#2", 1), ("a#2", 2)),
    ]
