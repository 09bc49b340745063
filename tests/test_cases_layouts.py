"""The cases of docs/cases.md about layouts, nested tensors and dtypes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402
from wiring import wiring  # noqa: E402

import gradir  # noqa: E402
from gradir.ir import TensorMeta  # noqa: E402


def test_nested_tensors_have_a_symbolic_size_or_none() -> None:
    a, b = leaf(2, 3), leaf(1, 3)
    params = {"a": a, "b": b}
    jagged = gradir.capture(torch.nested.as_nested_tensor([a, b], layout=torch.jagged).exp(), params=params)
    assert wiring(jagged) == {
        "cat:1": ("a", "b"),
        "nested_view_from_jagged:1": ("cat:1",),
        "exp:1": ("nested_view_from_jagged:1",),
        "output": ("exp:1",),
    }
    for node_id in ("nested_view_from_jagged:1", "exp:1", "output"):
        (meta,) = jagged.nodes[node_id].outputs
        assert (meta.dtype, meta.layout) == ("float32", "jagged")
        assert meta.shape is not None
        assert meta.shape == (2, str(meta.shape[1]), 3)
    strided = gradir.capture(torch.nested.as_nested_tensor([a, b]).sin(), params=params)
    assert wiring(strided) == {
        "nested_tensor_from_tensor_list:1": ("a", "b"),
        "sin:1": ("nested_tensor_from_tensor_list:1",),
        "output": ("sin:1",),
    }
    assert strided.nodes["sin:1"].outputs == strided.nodes["output"].outputs == (TensorMeta("float32", None),)


def test_sparse_tensors_have_their_layout() -> None:
    places = torch.tensor([[0, 1], [1, 0]])
    values, dense = leaf(2), leaf(3, 2)
    matrix = torch.sparse_coo_tensor(places, values, (2, 3), check_invariants=True)
    graph = gradir.capture([torch.sparse.mm(matrix, dense), matrix * 2], params={"values": values, "dense": dense})
    made = "sparse_coo_tensor_with_dims_and_tensors:1"
    assert wiring(graph) == {
        made: ("values",),
        "sparse_addmm:1": (None, made, "dense"),
        "output:0": ("sparse_addmm:1",),
        "mul:1": (made, None),
        "output:1": ("mul:1",),
    }
    layouts = {node_id: graph.nodes[node_id].outputs[0].layout for node_id in wiring(graph)}
    assert layouts == {
        made: "sparse_coo",
        "sparse_addmm:1": "strided",
        "output:0": "strided",
        "mul:1": "sparse_coo",
        "output:1": "sparse_coo",
    }
    parameter = torch.eye(2).to_sparse().requires_grad_()
    product = gradir.capture(torch.sparse.mm(parameter, torch.ones(2, 1)), params={"p": parameter})
    assert product.nodes["p"].outputs == (TensorMeta("float32", (2, 2), layout="sparse_coo"),)
