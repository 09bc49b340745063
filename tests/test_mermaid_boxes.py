"""What a Mermaid flowchart has a box for, and what is written in it."""

from __future__ import annotations

import re

import pytest
from gradir_exporters._mermaid_picture import Picture, shorten_text
from mermaid_pictures import META, PLAIN, boxes_in, export, groups_in
from samples import everything

from gradir.ir import Builder, Cut, Graph, Node, Ref, Saved, Scope, TensorMeta


def accumulating() -> Graph:
    b = Builder()
    leaf, weight = b.tensor("x", META), b.tensor("w", META, role="parameter")
    taken = [b.function("accumulate_grad", [tensor], []) for tensor in (leaf, weight)]
    b.output(b.function("mul", [taken[0], taken[1]], [META]), "0")
    b.output(taken[0], "1")
    return b.build()


def test_accumulators_are_one_with_their_tensors_unless_asked_for() -> None:
    graph = accumulating()
    texts = [box.text.split("\n")[0] for box in boxes_in(Picture(graph, PLAIN).items())]
    assert texts == ["x", "w", "mul", "output:0", "output:1"]
    assert [arrow[:2] for arrow in Picture(graph, PLAIN).arrows] == [
        ("n0", "n2"),
        ("n1", "n2"),
        ("n2", "n3"),
        ("n0", "n4"),
    ]
    assert export(graph, accumulators=True).count("accumulate_grad") == 2


def test_buffers_are_drawn_where_something_leads_to_them() -> None:
    assert "running_mean" not in export(everything())
    assert export(everything(), show_saved=True).count("norm.running_mean") == 1
    b = Builder()
    b.output(b.function("mul", [b.tensor("used", META, role="buffer")], [META]))
    assert ":::buffer" in export(b.build())


def test_a_saved_slot_shows_its_state() -> None:
    b = Builder()
    b.output(b.function("exp", [b.tensor("x", META)], [META], saved=[(Saved("result", state="freed"), None)]))
    assert '["result (freed)\n?[?]"]:::saved' in export(b.build(), show_saved=True)


def test_roles_that_gradir_does_not_know_are_drawn() -> None:
    source = export(Graph.of([Node("x", role="invented", names=("x",)), Node("y", inputs=(Ref("x", 0),))]))
    assert 'n0["x"]:::other' in source
    assert "accDescr: 1 function, 1 other node, 1 arrow\n" in source


def test_modules_that_hold_one_module_only_share_its_frame() -> None:
    b = Builder()
    first = b.function("f", [b.tensor("x", META)], [META], scope="model.layers.0.attn")
    b.output(b.function("f", [first], [META], scope="model.layers.0.mlp"))
    graph = b.build(scopes=[Scope("model.layers.0", "Block"), Scope("model.layers.0.mlp", "MLP")])
    groups = groups_in(Picture(graph, PLAIN).items())
    assert [(group.key, group.text) for group in groups] == [
        ("m0", "model.layers.0 (Block)"),
        ("m1", "attn"),
        ("m2", "mlp (MLP)"),
    ]


def test_a_name_makes_no_line_of_its_own() -> None:
    name = "w\nfloat32[9]"
    b = Builder()
    weight = b.tensor(name, META, role=name, scope=name)
    b.output(
        b.function(name, [weight], [TensorMeta(name, (name,))], native=name, scope=name, saved=[(Saved(name), weight)]),
    )
    graph = b.build(scopes=[Scope(name, name)], cuts=[Cut("unreached", (name,)), Cut(name, op=name)])
    for options in ({}, {"native": True}, {"legend": True, "show_saved": True}, {"depth": 0}, {"caption": name}):
        source = export(graph, **options)
        assert "w#92;nfloat32" in source
        assert not re.search(r"\bw\n|\n *float32\[9\]", source)
    for source in (graph.to("dot", show_saved=True, show_attrs=True), graph.to("dot", caption=name)):
        assert "w\\\\nfloat32" in source
        assert not re.search(r"[^\\]\\nfloat32\[9\]|w\n", source)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", "(empty)"),
        (" ", "␣"),
        ("a  b ", "a ␣b␣"),
        ("a\nb", "a\nb"),
        ("a\r\n\n", "a\\r\n(empty)\n(empty)"),
        ("\x1b[31m\u202e\u2066", "\\x1b[31m\\u202e\\u2066"),
        ("x" * 500, "x" * 119 + "…"),
        ("\n".join("a" * 50), "\n".join([*("a" * 19), "…"])),
        ("漢字 🔥 é", "漢字 🔥 é"),
    ],
)
def test_invisible_characters_are_shown(text: str, seen: str) -> None:
    assert shorten_text(text) == seen
