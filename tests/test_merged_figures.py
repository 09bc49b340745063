"""Figures that follow from shapes in a merge: as a capture of the merged program has them, or a conflict."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import gradir
from gradir.diffs.merging import merge_graphs
from gradir.ir import Builder, Cut, Graph, Node, Ref, Saved, Scope, TensorMeta

MET = "both edits change its sizes; capture the merged program"
META = TensorMeta("float32", (2, 6, 16))


def kept(*shape: int, dtype: str = "float32", size: int = 4, **attrs: Any) -> Graph:
    """A tensor, and an operation that saves it."""
    meta = TensorMeta(dtype, shape)
    count = prod(shape)
    attrs = {name: count if value == "numel" else value for name, value in attrs.items()}
    saved = (Saved("self", dtype, shape, count * size, Ref("x", 0)),)
    nodes = [
        Node("x", role="leaf", names=("x",), outputs=(meta,)),
        Node("exp:1", op="exp", inputs=(Ref("x", 0),), outputs=(meta,), saved=saved, attrs=attrs),
        Node("output", role="output", inputs=(Ref("exp:1", 0),), outputs=(meta,)),
    ]
    return Graph.of(nodes)


def test_saved_bytes_are_those_of_the_merged_shape() -> None:
    """Both sides have 1,152 bytes, and both edits together 1,728."""
    assert merge_graphs(kept(2, 6, 16), kept(3, 6, 16), kept(2, 6, 24)).graph == kept(3, 6, 24)
    assert kept(3, 6, 24).nodes["exp:1"].saved[0].bytes == 1_728
    half = {"dtype": "bfloat16", "size": 2}
    assert merge_graphs(kept(2, 6), kept(2, 9), kept(2, 6, **half)).graph == kept(2, 9, **half)


def test_a_number_of_elements_is_that_of_the_merged_input() -> None:
    graphs = [kept(*shape, self_numel="numel") for shape in ((2, 6), (3, 6), (2, 9), (3, 9))]
    assert merge_graphs(*graphs[:3]).graph == graphs[3]


def test_a_size_that_may_be_the_product_of_both_edits_is_a_conflict() -> None:
    found = merge_graphs(*(kept(*shape, flat=(shape[0] * shape[1],)) for shape in ((2, 6), (4, 6), (2, 12))))
    assert {conflict.base for conflict in found.conflicts} == {"exp:1"}
    assert found.conflicts[0].reason == MET


def chain(*shapes: tuple[int, ...]) -> Graph:
    """An operation for each shape, one after the other."""
    builder = Builder()
    value = builder.tensor("x", TensorMeta("float32", shapes[0]))
    for number, shape in enumerate(shapes):
        value = builder.function(f"op{number}", [value], [TensorMeta("float32", shape)])
    builder.output(value)
    return builder.build()


def test_an_operation_behind_a_tensor_that_the_other_side_widened_is_a_conflict() -> None:
    (conflict,) = {conflict.reason for conflict in merge_graphs(chain((2,)), chain((4,)), chain((2,), (2,))).conflicts}
    assert conflict == "one side changed the shape or dtype of an input of the other side's operation"


def test_another_reduction_of_a_tensor_that_the_other_side_widened_is_a_conflict() -> None:
    def graph(length: int, dim: int) -> Graph:
        builder = Builder()
        x = builder.tensor("x", TensorMeta("float32", (2, length)))
        out = TensorMeta("float32", (length,) if dim == 0 else (2,))
        builder.output(builder.function("sum", [x], [out], attrs={"dim": dim}))
        return builder.build()

    assert [conflict.reason for conflict in merge_graphs(graph(6, 1), graph(6, 0), graph(9, 1)).conflicts] == [MET]


def test_elements_of_a_module_are_those_of_its_merged_parameters() -> None:
    def graph(*shape: int) -> Graph:
        builder = Builder()
        builder.output(builder.tensor("h.w", TensorMeta("float32", shape), role="parameter", scope="h"))
        # One parameter beside it is not in the graph.
        count = shape[0] * shape[1] + 5
        counts = {"total": count, "trainable": count}
        return builder.build(scopes=[Scope("", "M", **counts), Scope("h", "M", own=count, **counts)])

    assert merge_graphs(graph(8, 8), graph(16, 8), graph(8, 16)).graph == graph(16, 16)


def layers(*widths: int) -> Graph:
    """A list of layers, each of an operation with a width of its own."""
    builder = Builder()
    value = builder.tensor("x", META)
    for number, width in enumerate(widths):
        value = builder.function("layer", [value], [META], scope=f"h.{number}", attrs={"width": width})
    builder.output(value)
    return builder.build(scopes=[Scope("h"), *(Scope(f"h.{number}", "Layer") for number in range(len(widths)))])


@pytest.mark.parametrize("other", [(4, 4, 4), (4, 4, 4, 4, 4)], ids=["removed", "added"])
def test_an_edit_of_one_of_several_equal_layers_is_a_conflict(other: tuple[int, ...]) -> None:
    base, ours, theirs = layers(4, 4, 4, 4), layers(4, 8, 4, 4), layers(*other)
    for sides in ((ours, theirs), (theirs, ours)):
        found = merge_graphs(base, *sides)
        assert found.graph is None
        assert {(conflict.subject, conflict.base) for conflict in found.conflicts} == {("scope", "h.1")}


def test_the_same_edit_of_equal_layers_on_both_sides_is_one_edit() -> None:
    base, ours, theirs = layers(4, 4, 4, 4), layers(4, 8, 4), replace(layers(4, 8, 4), cuts=(Cut("unreached", ("w",)),))
    assert merge_graphs(base, ours, theirs).graph == merge_graphs(base, theirs, ours).graph == theirs


EDITS: dict[str, dict[str, Any]] = {
    "batch": {"batch": 3},
    "double batch": {"batch": 4},
    "length": {"length": 12},
    "activation": {"act": "Tanh"},
    "other saved": {"act": "GELU"},
    "dtype": {"dtype": "bfloat16"},
    "mean": {"loss": "mean"},
    "eps": {"eps": 1e-6},
    "operation": {"exp": True},
    "no bias": {"bias": False},
    "remove": {"count": 3},
    "add": {"count": 5},
}
MERGE = {"batch", "double batch", "length", "activation", "dtype", "mean", "eps"}
"""These keep to themselves, whatever is widened."""


@cache
def capture(
    *,
    wide: tuple[int, ...] = (8, 8, 8, 8),
    batch: int = 2,
    length: int = 6,
    act: str = "ReLU",
    dtype: str = "float32",
    loss: str = "sum",
    eps: float = 1e-5,
    exp: bool = False,
    bias: bool = True,
    count: int = 4,
) -> Graph:
    import torch
    from torch import Tensor, nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(16, eps=eps)
            self.up, self.act = nn.Linear(16, width), getattr(nn, act)()
            self.down = nn.Linear(width, 16, bias=bias)

        def forward(self, x: Tensor) -> Tensor:
            y = self.act(self.up(self.norm(x)))
            return x + self.down(y.exp() if exp else y)

    widths = (*wide, 8)[:count]
    model = nn.Sequential(nn.Linear(3, 16), *map(Block, widths)).to(getattr(torch, dtype))
    with gradir.record(model) as recorder:
        out = model(torch.zeros(batch, length, 3, dtype=getattr(torch, dtype)))
        return recorder.capture(getattr(out, loss)())


@given(
    st.sampled_from(sorted(EDITS)), st.integers(0, 3), st.sampled_from([12, 16, 24]), st.sampled_from(["sum", "mean"])
)
def test_a_widened_layer_and_another_edit_are_a_capture_of_both_or_a_conflict(
    name: str, place: int, width: int, loss: str
) -> None:
    pytest.importorskip("torch")
    wide = {"wide": tuple(width if number == place else 8 for number in range(4))}
    edit = {"loss": loss, **EDITS[name]}
    base, ours, theirs = capture(loss=loss), capture(loss=loss, **wide), capture(**edit)
    found, truth = merge_graphs(base, ours, theirs), capture(**edit, **wide)
    assert found.graph == truth if found.graph is not None else found.conflicts
    assert found.graph is not None or name not in MERGE


def test_a_batch_and_a_length_that_a_program_makes_one_size_are_a_conflict() -> None:
    pytest.importorskip("torch")
    base, ours, theirs = capture(loss="mean"), capture(loss="mean", batch=3), capture(loss="mean", length=9)
    found = merge_graphs(base, ours, theirs)
    assert found.graph is None
    assert MET in {conflict.reason for conflict in found.conflicts}
