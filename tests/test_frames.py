"""A module that is called again elsewhere has no frame around all that lies between, in DOT and Mermaid."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from dot_pictures import Picture, export, run_dot
from gradir_exporters._mermaid_picture import MermaidOptions
from gradir_exporters._mermaid_picture import Picture as MermaidPicture
from hypothesis import given
from mermaid_pictures import groups_in
from strategies import graphs

from gradir.ir import Builder, Graph, Scope, TensorMeta
from gradir.ir.build import Value
from gradir.ir.frames import frames, module_of_frame

META = TensorMeta("float32", (2,))
ACCUMULATORS = {"accumulate_grad"}


def called(times: int, *, weight: bool = False, inner: bool = False, calls: int | None = None) -> Graph:
    """A module that is called with something else in between, perhaps with a weight or a module in it."""
    b = Builder()
    value: Value = b.tensor("x", META)
    scope = "net.act.inner" if inner else "net.act"
    taken = b.function("accumulate_grad", [b.tensor("w", META, role="parameter", scope=scope)], [META], scope=scope)
    for _ in range(times):
        turned = b.function("t", [taken], [META], scope=scope) if weight else None
        value = b.function("mul", [value, turned], [META], scope=scope)
        value = b.function("tanh", [value], [META], scope="net.act")
        value = b.function("sin", [value], [META], scope="net")
    b.output(value)
    known = times if calls is None else calls
    return b.build(scopes=[Scope("net", "Net", calls=1), Scope("net.act", "Act", calls=known)])


def captions(graph: Graph) -> tuple[list[str], list[str]]:
    """Those of the frames in both pictures."""
    groups = groups_in(MermaidPicture(graph, MermaidOptions(accumulators=True)).items())
    return re.findall(r'graph \[label="([^"]*)"', graph.to("dot")), [group.text for group in groups]


@pytest.mark.parametrize("weight", [False, True])
def test_each_call_has_a_frame(weight: bool, dot_program: str) -> None:
    graph = called(3, weight=weight)
    assert captions(graph) == (["net (Net)", *["act (Act)"] * 3],) * 2
    picture = Picture(run_dot(dot_program, export(graph), "json"))
    assert [cluster["tooltip"] for cluster in picture.clusters.values()] == ["net", *["net.act"] * 3]
    boxes = [[*map(float, cluster["bb"].split(","))] for cluster in picture.clusters.values()]
    outer, *calls = boxes
    assert all(3 * (top - bottom) < 2 * (outer[3] - outer[1]) for _, bottom, _, top in calls)
    if weight:
        first = next(name for name, box in picture.nodes.items() if box["label"].startswith("w\\n"))
        heights = sorted((box[3] for box in calls), reverse=True)
        inside = [box for box in calls if box[1] <= float(picture.nodes[first]["pos"].split(",")[1]) <= box[3]]
        assert inside[0][3] == heights[0], "a weight stands where it is first used"


def test_modules_in_it_go_along() -> None:
    assert captions(called(2, inner=True))[0] == ["net (Net)", *["act (Act)", "inner"] * 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: called(1),
        lambda: called(3, calls=0),
        lambda: called(3, calls=2),
    ],
)
def test_a_module_that_was_not_called_that_often_has_one_frame(make: Callable[[], Graph]) -> None:
    assert frames(make(), ACCUMULATORS) == {}
    assert captions(make())[0] == ["net (Net)", "act (Act)"]


def test_calls_that_feed_each_other_share_a_frame() -> None:
    b = Builder()
    value: Value = b.tensor("x", META)
    for _ in range(5):
        value = b.function("exp", [value], [META], scope="cell")
    b.output(value)
    graph = b.build(scopes=[Scope("cell", "Cell", calls=5)])
    assert frames(graph, ACCUMULATORS) == {}


def test_without_clusters_there_are_none() -> None:
    assert "subgraph" not in called(3).to("dot", clusters=False)


@given(graphs())
def test_a_frame_is_of_the_module_of_its_node(graph: Graph) -> None:
    paths = sorted({node.scope for node in graph.nodes.values()})
    again = Graph.of(graph.nodes.values(), [Scope(path, calls=9) for path in paths])
    for node_id, frame in frames(again, ACCUMULATORS).items():
        assert module_of_frame(frame) == graph.nodes[node_id].scope


def test_very_deep_modules_that_are_called_again_take_linear_time() -> None:
    path = ".".join("a" * 3000)
    scopes = [Scope(path[: 2 * depth + 1], calls=2) for depth in range(0, 3000, 7)]
    b = Builder()
    value: Value = b.tensor("x", META)
    for _ in range(300):
        value = b.function("exp", [value], [META], scope=path)
        value = b.function("sin", [value], [META])
    b.output(value)
    assert frames(b.build(scopes=scopes), ACCUMULATORS) == {}
    assert len(set(frames(called(500), ACCUMULATORS).values())) == 499
