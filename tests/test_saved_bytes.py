"""Whoever tells what is saved for backward tells the same: each storage once, where it was saved first."""

from __future__ import annotations

import json

import pytest

from gradir.codecs.codec import encode, survey
from gradir.ir import Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.totals import sizes, totals
from gradir.passes.fold import fold


def saved(*slots: tuple[str, int | None, str]) -> tuple[Saved, ...]:
    return tuple(Saved(slot, bytes=size, storage=storage) for slot, size, storage in slots)


KEPT = saved(("x", 4, ""), ("x", 16, ""), ("w", 8, "w"))
GRAPH = Graph.of(
    [
        Node("w", role="parameter", scope="a", outputs=(TensorMeta("float32", (2,)),)),
        Node("a/f:1", op="f", scope="a", inputs=(Ref("w", 0),), saved=KEPT),
        Node("b/g:1", op="g", scope="b", inputs=(Ref("a/f:1", 0),), saved=saved(("x", 9, "a/f:1.x"), ("y", None, ""))),
        Node("c", role="module", op="module", inputs=(Ref("b/g:1", 0),), attrs={"saved_bytes": 100, "parameters": 3}),
        Node("output", role="output", inputs=(Ref("c", 0),)),
    ],
    [Scope("a"), Scope("b"), Scope("c")],
)
# The second slot of the name x has a storage of its own; what b saved is the first one, whose size it knew better.
BYTES = {"a": 9 + 16, "b": 0, "c": 100}


def test_all_report_the_same() -> None:
    assert totals(GRAPH).saved_bytes == sum(BYTES.values())
    assert {path: size.saved_bytes for path, size in sizes(GRAPH.nodes.values()).items()} == {"a": 25, "b": 0, "": 100}
    layers = json.loads(GRAPH.to("summary", style="json"))["layers"]
    assert {layer["path"]: layer["saved_bytes"] for layer in layers} == BYTES
    folded = fold(GRAPH, 1)
    assert {name: folded.nodes[name].attrs["saved_bytes"] for name in BYTES} == BYTES
    assert totals(folded).saved_bytes == sum(BYTES.values())


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_survey_reports_the_same(encoding: str) -> None:
    assert survey(encode(GRAPH, encoding)).totals == totals(GRAPH)
