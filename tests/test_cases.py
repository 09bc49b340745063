"""The cases of docs/cases.md that need neither modules, layouts nor processes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402
from wiring import tensor_roles, wiring  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.ir import Ref, Saved, TensorMeta  # noqa: E402

nn = torch.nn


def saved_states(graph: gradir.Graph) -> dict[str, str]:
    """The state of each saved slot, by ``id.slot``."""
    return {f"{node.id}.{slot.slot}": slot.state for node in graph.nodes.values() for slot in node.saved}


def test_the_outputs_of_svd_are_distinguished() -> None:
    x = leaf(3, 2)
    u, _, vh = torch.linalg.svd(x, full_matrices=False)
    graph = gradir.capture([u.sum(), vh.sum()], params={"x": x})
    assert wiring(graph) == {
        "linalg_svd:1": ("x",),
        "sum:1": ("linalg_svd:1",),
        "output:0": ("sum:1",),
        "sum:2": ("linalg_svd:1#2",),
        "output:1": ("sum:2",),
    }
    assert [meta.shape for meta in graph.nodes["linalg_svd:1"].outputs] == [(3, 2), (2,), (2, 2)]


def test_the_values_of_max_have_a_graph_and_its_indices_have_none() -> None:
    x = leaf(2, 3)
    values, indices = x.max(1)
    graph = gradir.capture(values, params={"x": x})
    assert wiring(graph) == {"max:1": ("x",), "output": ("max:1",)}
    assert graph.nodes["max:1"].saved == (Saved("indices", "int64", (2,), 16),)
    with pytest.raises(CaptureError, match=r"the output has no graph: its dtype int64 carries no gradient"):
        gradir.capture(indices)


def test_backward_frees_only_saved_tensors() -> None:
    x, y = leaf(3), leaf(3)
    loss = (x.exp() * y.sin()).sum()
    before = gradir.capture(loss, params={"x": x, "y": y})
    loss.backward()
    after = gradir.capture(loss, params={"x": x, "y": y})
    assert set(saved_states(before).values()) == {"held"}
    assert saved_states(after) == dict.fromkeys(saved_states(before), "freed")
    assert wiring(after) == wiring(before)
    assert [node.outputs for node in after.nodes.values()] == [node.outputs for node in before.nodes.values()]


def test_a_trunk_freed_by_another_loss_is_freed_alone() -> None:
    x = leaf(3)
    trunk = x.exp()
    first, second = trunk.sin().sum(), trunk.cos().sum()
    first.backward()
    graph = gradir.capture(second, params={"x": x})
    assert saved_states(graph) == {"exp:1.result": "freed", "cos:1.self": "held"}
    assert wiring(graph) == {"exp:1": ("x",), "cos:1": ("exp:1",), "sum:1": ("cos:1",), "output": ("sum:1",)}


def test_a_checkpoint_that_is_not_reentrant_shows_its_operations() -> None:
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    x = leaf(1, 2)
    with gradir.record(model) as rec:
        y = checkpoint(model, x, use_reentrant=False)
    graph = rec.capture(y, params={"x": x})
    assert wiring(graph) == {
        "0/t:1": ("0.weight",),
        "0/addmm:1": ("0.bias", "x", "0/t:1"),
        "1/tanh:1": ("0/addmm:1",),
        "output": ("1/tanh:1",),
    }
    assert set(saved_states(graph).values()) == {"hooked"}
    assert graph.scopes["0"].calls == 1
    assert graph.cuts == ()


def test_a_reentrant_checkpoint_is_one_node_with_its_inputs() -> None:
    from torch.utils.checkpoint import checkpoint

    model = nn.Linear(2, 1)
    x = leaf(1, 2)
    y = checkpoint(lambda x, scale: model(x) * scale, x, 3.0, use_reentrant=True)
    graph = gradir.capture(y, model=model, params={"x": x})
    assert wiring(graph) == {"checkpoint_function:1": ("x",), "output": ("checkpoint_function:1",)}
    assert graph.nodes["checkpoint_function:1"].opaque
    assert saved_states(graph) == {"checkpoint_function:1.tensors[0]": "held"}
    assert tensor_roles(graph) == {"x": "leaf"}
    assert [(cut.kind, cut.names) for cut in graph.cuts] == [("hidden", ("weight",)), ("hidden", ("bias",))]


def test_tensors_saved_on_the_cpu_are_hooked() -> None:
    x, y = leaf(3), leaf(3)
    offload = torch.autograd.graph.save_on_cpu()
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(offload.pack_hook, unpacked.append):
        z = x.exp() * y
    graph = gradir.capture(z, params={"x": x, "y": y})
    assert saved_states(graph) == {"exp:1.result": "hooked", "mul:1.other": "hooked", "mul:1.self": "hooked"}
    assert wiring(graph) == {"exp:1": ("x",), "mul:1": ("exp:1", "y"), "output": ("mul:1",)}
    assert unpacked == []


def test_an_in_place_change_of_a_view_is_torchs_own_copy_slices() -> None:
    x, factor = leaf(4), leaf(2)
    base = x.exp()
    view = base[1:3]
    view.mul_(factor)
    params = {"x": x, "factor": factor}
    slices = {"exp:1": ("x",), "copy_slices:1": ("exp:1", "factor")}
    assert wiring(gradir.capture(base, params=params)) == {**slices, "output": ("copy_slices:1",)}
    graph = gradir.capture(view, params=params)
    assert wiring(graph) == {**slices, "as_strided:1": ("copy_slices:1",), "output": ("as_strided:1",)}
    assert graph.nodes["copy_slices:1"].native == "CopySlices"
    assert graph.nodes["copy_slices:1"].outputs == (TensorMeta("float32", (4,)),)
    assert graph.nodes["as_strided:1"].outputs == (TensorMeta("float32", (2,)),)
    assert graph.nodes["output/base"].inputs == (Ref("copy_slices:1", 0),)
    assert saved_states(graph)["exp:1.result"] == "stale"


def test_an_assignment_into_a_buffer_is_copy_slices_of_nothing_and_the_value() -> None:
    x = leaf(2, 3)
    buffer = torch.zeros(2, 3)
    buffer[0] = x[1]
    buffer[1] = x[0]
    assert wiring(gradir.capture(buffer, params={"x": x})) == {
        "select:1": ("x",),
        "copy_slices:1": (None, "select:1"),
        "select:2": ("x",),
        "copy_slices:2": ("copy_slices:1", "select:2"),
        "output": ("copy_slices:2",),
    }


def test_operations_inside_a_custom_function_are_not_cuts() -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, factor):
            ctx.factor = factor
            ctx.save_for_backward(weight)
            return x.detach() * weight.detach() * factor

        @staticmethod
        def backward(ctx, grad):
            (_weight,) = ctx.saved_tensors
            return None, grad * ctx.factor, None

    model = nn.Linear(2, 1, bias=False)
    with gradir.record(model) as rec:
        y = Scale.apply(torch.ones(1, 2), model.weight, 3).sum()
    graph = rec.capture(y)
    assert wiring(graph) == {"scale:1": (None, "weight"), "sum:1": ("scale:1",), "output": ("sum:1",)}
    assert graph.nodes["scale:1"].attrs == {"factor": 3, "needs_input_grad": (False, True, False)}
    assert graph.cuts == ()


def test_a_second_backward_through_once_differentiable_ends_in_the_error_node() -> None:
    from torch.autograd.function import once_differentiable

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad

    x = leaf(2)
    (grad,) = torch.autograd.grad(Square.apply(x).pow(2).sum(), x, create_graph=True)
    graph = gradir.capture(grad.sum(), params={"x": x})
    # torch puts a leaf of its own below the error, so that x is not reached.
    assert wiring(graph) == {"error:1": ("leaf:1",), "sum:1": ("error:1",), "output": ("sum:1",)}
    assert graph.nodes["error:1"].native == "Error"


def test_a_gradient_penalty_joins_the_forward_and_its_backward() -> None:
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Tanh())
    with gradir.record(model) as rec:
        x = leaf(1, 2)
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        penalty = grad.pow(2).sum()
    graph = rec.capture(penalty, params={"x": x})
    assert wiring(graph) == {
        "0/t:1": ("0.weight",),
        "0/mm:1": ("x", "0/t:1"),
        "1/tanh:1": ("0/mm:1",),
        "tanh_backward:1": (None, "1/tanh:1"),
        "t:1": ("0/t:1",),
        "mm:1": ("tanh_backward:1", "t:1"),
        "pow:1": ("mm:1",),
        "sum:1": ("pow:1",),
        "output": ("sum:1",),
    }
    assert graph.cuts == ()


def test_complex_tensors_have_their_dtype() -> None:
    z = torch.ones(3, dtype=torch.complex64, requires_grad=True)
    graph = gradir.capture((z * z).abs(), params={"z": z})
    assert wiring(graph) == {"mul:1": ("z", "z"), "abs:1": ("mul:1",), "output": ("abs:1",)}
    dtypes = {node_id: graph.nodes[node_id].dtype for node_id in ("z", "mul:1", "abs:1", "output")}
    assert dtypes == {"z": "complex64", "mul:1": "complex64", "abs:1": "float32", "output": "float32"}
    assert {slot.bytes for slot in graph.nodes["mul:1"].saved} == {24}


def test_the_output_of_vmap_has_its_physical_shape() -> None:
    weight = leaf(3)
    y = torch.vmap(lambda row: (row * weight).sin())(torch.ones(5, 3))
    graph = gradir.capture(y, params={"weight": weight})
    assert wiring(graph) == {"mul:1": (None, "weight"), "sin:1": ("mul:1",), "output": ("sin:1",)}
    assert {graph.nodes[node_id].shape for node_id in wiring(graph)} == {(5, 3)}


def test_autocast_shows_its_casts() -> None:
    model = nn.Sequential(nn.Linear(3, 4))
    with gradir.record(model) as rec, torch.autocast("cpu", torch.bfloat16):
        y = model(torch.ones(2, 3))
    graph = rec.capture(y)
    assert wiring(graph) == {
        "0/to_copy:1": ("0.bias",),
        "0/to_copy:2": ("0.weight",),
        "0/t:1": ("0/to_copy:2",),
        "0/addmm:1": ("0/to_copy:1", None, "0/t:1"),
        "output": ("0/addmm:1",),
    }
    assert graph.nodes["0/to_copy:1"].native == "ToCopyBackward0"
    assert {graph.nodes[node_id].dtype for node_id in wiring(graph)} == {"bfloat16"}
    assert {graph.nodes[node_id].dtype for node_id in tensor_roles(graph)} == {"float32"}


def test_a_frozen_weight_is_a_null_edge_and_no_cut() -> None:
    model = nn.Linear(3, 4)
    model.weight.requires_grad_(False)
    graph = gradir.capture(model(torch.ones(2, 3)), model=model)
    assert wiring(graph) == {"addmm:1": ("bias", None, None), "output": ("addmm:1",)}
    assert tensor_roles(graph) == {"bias": "parameter"}
    assert graph.cuts == ()
    assert (graph.scopes[""].total, graph.scopes[""].trainable) == (16, 4)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_parameter_whose_data_was_swapped_is_still_the_leaf(when: str) -> None:
    model = nn.Linear(2, 2, bias=False)
    x = leaf(1, 2)
    if when == "before":
        model.weight.data = torch.zeros(2, 2)
    y = model(x)
    if when == "after":
        model.weight.data = torch.zeros(3, 2)
    graph = gradir.capture(y, model=model, params={"x": x})
    assert wiring(graph) == {"t:1": ("weight",), "mm:1": ("x", "t:1"), "output": ("mm:1",)}
    assert tensor_roles(graph) == {"x": "leaf", "weight": "parameter"}
    assert graph.cuts == ()
    assert graph.nodes["t:1"].shape == (2, 2)
    saved = {slot.slot: slot.storage for slot in graph.nodes["mm:1"].saved}
    assert saved == {"mat2": "weight" if when == "before" else "", "self": "x"}
