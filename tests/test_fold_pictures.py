"""Folded modules as they are drawn: lists are no boxes, and what passes between two boxes is one line."""

from __future__ import annotations

import re

from gradir.ir import Builder, Graph, Saved, Scope, TensorMeta
from gradir.ir.build import Value
from gradir.ir.validate import check
from gradir.passes import fold

META = TensorMeta("float32", (2, 3))


def u_net() -> Graph:
    """Blocks of two lists, with a pool between those of one, each way back fed by the way there."""
    b = Builder()
    value: Value = b.tensor("x", META)
    kept: list[Value] = []
    for place in range(3):
        value = b.function("conv", [value], [META], scope=f"down.{place}")
        kept.append(value)
        value = b.function("pool", [value], [META], scope="pool")
    for place in range(3):
        value = b.function("cat", [value, kept.pop()], [META])
        value = b.function("conv", [value], [META], scope=f"up.{place}")
    b.output(value)
    called = [f"{name}.{place}" for name in ("down", "up") for place in range(3)] + ["pool"]
    lists = [Scope("down", "ModuleList"), Scope("up", "ModuleList")]
    return b.build(scopes=[Scope("", "Net", calls=1), *lists, *(Scope(path, "Block", calls=1) for path in called)])


def test_a_list_that_is_never_called_is_no_box() -> None:
    folded = fold(u_net(), 1)
    check(folded)
    boxes = [node.id for node in folded.nodes.values() if node.role == "module"]
    assert sorted(boxes) == ["down.0", "down.1", "down.2", "pool", "pool#2", "pool#3", "up.0", "up.1", "up.2"]
    assert {node.scope for node in folded.nodes.values()} == {""}
    assert set(folded.scopes) == {
        "",
        "down",
        "up",
        *(f"{name}.{n}" for name in ("down", "up") for n in range(3)),
        "pool",
    }
    assert fold(folded, 1) == folded


def test_a_parameter_of_a_module_list_is_not_folded() -> None:
    b = Builder()
    scale = b.tensor("blocks.scale", META, role="parameter", scope="blocks")
    b.output(b.function("mul", [scale], [META], scope="blocks.0"))
    graph = b.build(scopes=[Scope("blocks", "List"), Scope("blocks.0", "Block", calls=1)])
    assert list(fold(graph, 1).nodes) == ["blocks.scale", "blocks.0", "output"]
    assert list(fold(graph, 0).nodes) == ["/", "output"]


def several_tensors() -> Graph:
    b = Builder()
    x = b.tensor("x", META)
    split = b.function("split", [x], [META] * 6, scope="a")
    joined = b.function("cat", [split.output(number) for number in range(6)], [META], scope="b")
    b.output(b.function("mul", [joined, joined], [META]))
    return fold(b.build(), 1)


def test_lines_between_two_boxes_are_one_with_their_number() -> None:
    graph = several_tensors()
    assert len(graph.nodes["b"].inputs) == 6
    dot, mermaid = graph.to("dot"), graph.to("mermaid")
    assert re.findall(r"n1 -> n2(.*)", dot) == [' [label=" ×6"]']
    assert re.findall(r"n1 -.*", mermaid) == ['n1 -->|"×6"| n2']
    # A product with itself has two factors, which are two lines, but for those that leave a folded module.
    assert re.findall(r"n2 -> n3(.*)", dot) == [' [label=" ×2"]']


def test_lines_between_operations_stay_apart() -> None:
    b = Builder()
    x = b.tensor("x", META)
    b.output(b.function("mul", [x, x], [META]))
    dot = b.build().to("dot")
    assert dot.count("n0 -> n1") == 2
    assert "×" not in dot


def test_lines_within_a_frame_and_into_the_next_are_the_straightest() -> None:
    b = Builder()
    value: Value = b.tensor("x", META)
    for scope in ("h.0", "h.0", "h.1", "head"):
        value = b.function("exp", [value], [META], scope=scope)
    b.output(value)
    dot = b.build().to("dot")
    assert re.findall(r"-> n\d+(.*)", dot) == ["", ' [weight="8"]', ' [weight="8"]', "", ""]
    assert "weight" not in b.build().to("dot", clusters=False)


def test_the_box_of_a_folded_module_says_the_same_in_both_pictures() -> None:
    b = Builder()
    weight = b.tensor("fc.w", META, role="parameter", scope="fc")
    saved = [(Saved("result", bytes=2048), None)]
    b.output(b.function("exp", [weight], [META], scope="fc", saved=saved))
    folded = fold(b.build(scopes=[Scope("fc", "Linear", calls=1)]), 1)
    words = ["float32[2, 3]", "2 nodes", "6 parameters", "2.0 kB saved"]
    dot, mermaid = folded.to("dot"), folded.to("mermaid")
    assert "fc (Linear) " + " ".join(words) in dot.replace("\\n", " ")
    assert "fc (Linear) " + " ".join(words) in mermaid.replace("\n", " ")
