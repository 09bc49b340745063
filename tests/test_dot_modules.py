"""How the exporter ``dot`` places modules: their frames, and which way the picture flows."""

from __future__ import annotations

import pytest
from dot_pictures import Picture, export, read_drawn_text, run_dot
from gradir_exporters.dot import to_pydot
from samples import chain

from gradir.ir import Builder, Graph, Node, Saved, Scope, TensorMeta

META = TensorMeta("float32", (2,))


def linears(count: int, scope: str = "net.{}") -> Graph:
    """Linear layers in a row, each with a weight of its own that reaches it through two more functions."""
    b = Builder()
    value = b.tensor("x", META)
    for number in range(count):
        path = scope.format(number)
        weight = b.tensor(f"{path}.weight", META, role="parameter", scope=path)
        for op in ("accumulate_grad", "t"):
            weight = b.function(op, [weight], [META], scope=path)
        value = b.function("view", [value], [META], scope=path)
        value = b.function("mm", [value, weight], [META], scope=path, saved=[(Saved("self"), None)])
    b.output(value)
    return b.build()


def alternating(steps: int) -> Graph:
    """A module that runs again and again with something outside it in between."""
    b = Builder()
    value = b.tensor("x", META)
    weight = b.tensor("cell.weight", META, role="parameter", scope="cell")
    for _ in range(steps):
        turned = b.function("t", [weight], [META], scope="cell")
        value = b.function("mm", [value, turned], [META], scope="cell")
        value = b.function("tanh", [value], [META])
    b.output(value)
    return b.build()


@pytest.mark.parametrize("direction", ["TB", "LR", "BT", "RL"])
def test_direction(direction: str, dot_program: str) -> None:
    picture = Picture(run_dot(dot_program, export(chain(2), direction=direction), "json"))
    (x0, y0), (x1, y1) = (tuple(map(float, picture.nodes[name]["pos"].split(","))) for name in ("n0", "n2"))
    assert {"TB": y1 < y0, "BT": y1 > y0, "LR": x1 > x0, "RL": x1 < x0}[direction]


def test_nodes_of_one_module_share_one_frame() -> None:
    text = export(alternating(3))
    assert text.count("subgraph") == 1


def test_frames_say_class_and_nest_by_path(dot_program: str) -> None:
    nodes = [Node("f", scope="h.0.mlp"), Node("g", scope="h.10"), Node("k", scope="h.1.")]
    graph = Graph.of(nodes, [Scope("h.0", "Block"), Scope("mlp", "Wrong")])
    picture = Picture(run_dot(dot_program, export(graph), "json"))
    texts = [[read_drawn_text(picture.clusters[name]) for name in picture.frames(f"n{number}")] for number in range(3)]
    assert texts[0] == [["h"], ["0 (Block)"], ["mlp"]]
    assert texts[1] == [["h"], ["10"]]
    assert texts[2][:2] == [["h"], ["1"]]


def test_deep_nesting_is_drawn_to_a_limit(dot_program: str) -> None:
    parts = [f"m{n}" for n in range(10_000)]
    graph = Graph.of([Node("a", scope=".".join(parts)), Node("b", scope=".".join(parts[:-1]))])
    picture = Picture(run_dot(dot_program, export(graph), "dot_json"))
    assert len(picture.frames("n0")) == len(picture.frames("n1")) == 64
    assert picture.frames("n0")[:63] == picture.frames("n1")[:63]
    assert len(to_pydot(graph).to_string()) > 0


@pytest.mark.parametrize("show_saved", [False, True])
def test_modules_are_in_a_column(show_saved: bool, dot_program: str) -> None:
    picture = Picture(run_dot(dot_program, export(linears(6), show_saved=show_saved), "json"))
    boxes = [tuple(map(float, cluster["bb"].split(","))) for cluster in picture.clusters.values()]
    layers = sorted((box for box in boxes if box != max(boxes, key=lambda b: b[3] - b[1])), key=lambda b: -b[3])
    assert len(layers) == 6
    assert all(below[3] <= above[1] for above, below in zip(layers, layers[1:]))  # noqa: B905, RUF007
    assert max(box[2] for box in layers) - min(box[0] for box in layers) < 2 * max(box[2] - box[0] for box in layers)


def test_flow_never_runs_backwards(dot_program: str) -> None:
    picture = Picture(run_dot(dot_program, export(alternating(5)), "json"))
    heights = {node["_gvid"]: float(node["pos"].split(",")[1]) for node in picture.nodes.values()}
    assert all(heights[edge["tail"]] > heights[edge["head"]] for edge in picture.edges)


def test_without_clusters_no_edge_is_lengthened() -> None:
    assert "minlen" in export(linears(2))
    assert "minlen" not in export(linears(2), clusters=False)


def test_only_the_first_entry_is_lengthened() -> None:
    assert export(alternating(5)).count("minlen") == 1


def test_an_edge_out_of_an_inner_module_is_not_lengthened() -> None:
    b = Builder()
    weight = b.tensor("block.weight", META, role="parameter", scope="block")
    inner = b.function("exp", [b.tensor("x", META)], [META], scope="block.inner")
    b.output(b.function("mm", [inner, weight], [META], scope="block"))
    assert "minlen" not in export(b.build())
