"""What a capture says of tensors: nodes, edges, shapes, names, saved tensors."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402

import gradir  # noqa: E402
from gradir import registry  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.frontends.pytorch.reading.outputs import flatten  # noqa: E402
from gradir.frontends.pytorch.reading.saved import normalize_packed  # noqa: E402
from gradir.frontends.pytorch.reading.walk import walk  # noqa: E402
from gradir.ir import Cut, Edge, Graph, Ref, TensorMeta  # noqa: E402
from gradir.ir.edges import postorder  # noqa: E402
from gradir.ir.validate import problems  # noqa: E402

nn = torch.nn


def slots(graph: Graph, node_id: str) -> dict[str, tuple[object, ...]]:
    return {s.slot: (s.shape, s.bytes, s.origin, s.storage, s.state) for s in graph.nodes[node_id].saved}


def test_the_smallest_graph() -> None:
    graph = gradir.capture(leaf(3).exp())
    assert list(graph.nodes) == ["leaf:1", "leaf:1/accumulate_grad:1", "exp:1", "output"]
    assert list(graph.edges) == [
        Edge("leaf:1", 0, "leaf:1/accumulate_grad:1", 0),
        Edge("leaf:1/accumulate_grad:1", 0, "exp:1", 0),
        Edge("exp:1", 0, "output", 0),
    ]
    assert graph.nodes["exp:1"].native == "ExpBackward0"
    assert graph.nodes["exp:1"].outputs == (TensorMeta("float32", (3,)),)
    assert graph.nodes["leaf:1"].role == "leaf"


def test_the_same_input_twice_is_two_edges_from_one_leaf() -> None:
    x = leaf(2)
    graph = gradir.capture(x * x, params={"x": x})
    assert [edge for edge in graph.edges if edge.dst == "mul:1"] == [
        Edge("x/accumulate_grad:1", 0, "mul:1", 0),
        Edge("x/accumulate_grad:1", 0, "mul:1", 1),
    ]
    assert [node.id for node in graph.nodes.values() if node.role == "leaf"] == ["x"]


def test_outputs_of_one_node_are_distinguished() -> None:
    a, b = leaf(4, 2).split(2)
    graph = gradir.capture({"a": a * 2, "b": b * 3})
    assert Ref("split:1", 0) in graph.nodes["mul:1"].inputs
    assert Ref("split:1", 1) in graph.nodes["mul:2"].inputs
    assert len(graph.nodes["split:1"].outputs) == 2


def test_a_constant_leaves_a_null_slot() -> None:
    x = leaf(2, 3)
    graph = gradir.capture(torch.addmm(torch.zeros(4), x, torch.ones(3, 4)), params={"x": x})
    assert graph.nodes["addmm:1"].inputs == (None, Ref("x/accumulate_grad:1", 0), None)


def test_negative_dimensions_stay_negative() -> None:
    graph = gradir.capture(leaf(2, 3).softmax(-1))
    assert graph.nodes["softmax:1"].attrs == {"dim": -1}


def test_saved_tensors_have_their_origin_and_storage() -> None:
    x, w = leaf(2, 3), leaf(4, 3)
    h = x.tanh()
    graph = gradir.capture(h @ w.t(), params={"x": x, "w": w})
    assert slots(graph, "tanh:1") == {"result": ((2, 3), 24, Ref("tanh:1", 0), "", "held")}
    assert slots(graph, "mm:1") == {
        "mat2": ((3, 4), 48, Ref("t:1", 0), "w", "held"),
        "self": ((2, 3), 24, Ref("tanh:1", 0), "tanh:1.result", "held"),
    }


def test_a_saved_buffer_is_a_node_of_its_own() -> None:
    model = nn.BatchNorm1d(3)
    graph = gradir.capture(model(torch.ones(2, 3)).sum(), model=model)
    assert graph.nodes["running_mean"].role == "buffer"
    assert slots(graph, "native_batch_norm:1")["running_mean"][2] == Ref("running_mean", 0)
    assert not [edge for edge in graph.edges if edge.src == "running_mean"]


def test_a_saved_frozen_weight_is_not_an_activation() -> None:
    model = nn.Linear(3, 4, bias=False)
    model.weight.requires_grad_(False)
    graph = gradir.capture(model(leaf(2, 3)), model=model)
    (saved,) = [s for node in graph.nodes.values() for s in node.saved]
    assert saved.storage == "weight"
    assert graph.nodes["weight"].role == "buffer"
    assert graph.cuts == ()


def test_saved_tensors_are_freed_by_backward() -> None:
    loss = leaf(3).exp().sum()
    loss.backward()
    graph = gradir.capture(loss)
    assert graph.nodes["exp:1"].saved[0].state == "freed"
    assert graph.nodes["exp:1"].outputs == (TensorMeta("float32", (3,)),)


def test_an_undefined_saved_tensor_is_no_slot() -> None:
    y = nn.functional.layer_norm(leaf(3), (3,))
    assert "bias" not in slots(gradir.capture(y), "native_layer_norm:1")


def test_hooks_on_saved_tensors_never_run() -> None:
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda packed: unpacked.append(1) or packed):
        y = leaf(3).exp()
    assert slots(gradir.capture(y), "exp:1") == {"result": (None, None, None, "", "hooked")}
    assert unpacked == []


def test_a_tensor_changed_after_it_was_saved_is_stale() -> None:
    x = leaf(3).clone()
    y = x.exp()
    y.add_(1)
    graph = gradir.capture(y)
    assert graph.nodes["exp:1"].saved[0].state == "stale"


def test_an_output_made_in_place_is_recorded() -> None:
    x = leaf(3).clone()
    y = nn.functional.relu(x, inplace=True)
    assert slots(gradir.capture(y * 2), "relu:1")["result"] == ((3,), 12, Ref("relu:1", 0), "", "held")
    y.add_(1)
    assert slots(gradir.capture(y), "relu:1")["result"][4] == "stale"


def test_tied_parameters_are_one_node_with_all_names() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Linear(3, 3, bias=False)})
    model["b"].weight = model["a"].weight
    graph = gradir.capture(model["b"](model["a"](torch.ones(1, 3))), model=model)
    assert graph.nodes["a.weight"].names == ("a.weight", "b.weight")
    assert graph.scopes[""].total == 9
    assert (graph.scopes["a"].own, graph.scopes["b"].own) == (9, 9)


def test_a_parameter_that_gets_no_gradient_is_a_cut() -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 1, bias=False), "unused": nn.Linear(2, 1, bias=False)})
    graph = gradir.capture(model["used"](torch.ones(1, 2)), model=model)
    assert graph.cuts == (Cut("unreached", ("unused.weight",), "unused", TensorMeta("float32", (1, 2))),)


def test_a_reentrant_checkpoint_hides_parameters() -> None:
    from torch.utils.checkpoint import checkpoint

    model = nn.Linear(2, 1)
    y = checkpoint(model, leaf(1, 2), use_reentrant=True)
    graph = gradir.capture(y, model=model)
    assert [cut.kind for cut in graph.cuts] == ["hidden", "hidden"]
    assert graph.nodes["checkpoint_function:1"].opaque


def test_a_checkpoint_is_never_recomputed() -> None:
    from torch.utils.checkpoint import checkpoint

    calls = []

    def run(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.exp().sin()

    y = checkpoint(run, leaf(3), use_reentrant=False)
    graph = gradir.capture(y)
    assert calls == [1]
    assert {s.state for node in graph.nodes.values() for s in node.saved} == {"hooked"}


def test_a_view_has_its_base() -> None:
    x = leaf(4)
    base = x * 2
    graph = gradir.capture(base.view(2, 2))
    assert graph.nodes["output"].base == "output/base"
    assert graph.nodes["output/base"].role == "view_base"
    assert Edge("output/base", 0, "output", -1, "view") in list(graph.edges)


def test_a_view_of_a_leaf_has_the_leaf_as_base() -> None:
    x = leaf(4)
    graph = gradir.capture(x.view(2, 2), params={"x": x})
    assert graph.nodes["output"].base == "x"


def test_a_view_captured_with_its_base_shares_it() -> None:
    base = leaf(4) * 2
    graph = gradir.capture([base.view(2, 2), base])
    assert graph.nodes["output:0"].base == "output:1"
    assert list(problems(graph)) == []


def test_a_leaf_can_be_captured() -> None:
    x = leaf(2)
    graph = gradir.capture(x, params={"x": x})
    assert list(graph.nodes) == ["x", "x/accumulate_grad:1", "output"]


def test_names_of_intermediates_belong_to_their_node() -> None:
    a, b = leaf(2), leaf(2)
    c = a + b
    d = c * a
    graph = gradir.capture(d, params={"a": a, "b": b, "c": c, "d": d})
    named = {node.id: node.names for node in graph.nodes.values() if node.names}
    assert named == {"a": ("a",), "b": ("b",), "add:1": ("c",), "mul:1": ("d",), "output": ("d",)}


def test_hostile_names_are_encoded_in_ids_and_kept_in_names() -> None:
    x = leaf(2)
    graph = gradir.capture(x.exp(), params={"a/b:c\x1b\ud800": x})
    assert graph.nodes["a%2Fb%3Ac%1B%5Cud800"].names == ("a/b:c\x1b\\ud800",)
    assert gradir.loads(gradir.dumps(graph)) == graph


def test_custom_functions_show_their_context() -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            ctx.save_for_backward(x)
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor, None

    x = leaf(2)
    graph = gradir.capture(Scale.apply(x, 1.5), params={"x": x})
    node = graph.nodes["scale:1"]
    assert node.attrs == {"factor": 1.5, "needs_input_grad": (True, False)}
    assert slots(graph, "scale:1") == {"tensors[0]": ((2,), 8, Ref("x", 0), "x", "held")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.ones(3), "nothing it was computed from requires grad"),
        (lambda: leaf(3).argmax(), "dtype int64 carries no gradient"),
        (lambda: leaf(3) > 0, "dtype bool carries no gradient"),
        (lambda: {"text": "x"}, "output 'text' is not a tensor but str"),
        (lambda: None, "is not a tensor but NoneType"),
        (list, "cannot capture"),
    ],
)
def test_a_target_without_a_graph_is_one_clear_error(make, message: str) -> None:
    with pytest.raises(CaptureError) as caught:
        gradir.capture(make())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (lambda x: [x], "params is a list and not a mapping of names to tensors"),
        (lambda x: x, "params is a Tensor and not"),
        (lambda _: "w", "params is a str and not"),
        (lambda x: {"": x}, "params has an empty name"),
        (lambda _: {"x": 1}, r"params\['x'\] is not a tensor but int"),
    ],
)
def test_params_that_name_no_tensor_are_one_clear_error(params, message: str) -> None:
    x = leaf(2)
    with pytest.raises(CaptureError, match=message):
        gradir.capture(x.exp(), params=params(x))


def test_inference_tensors_are_explained() -> None:
    with torch.inference_mode():
        y = torch.ones(3) * 2
    with pytest.raises(CaptureError, match="inference_mode"):
        gradir.capture(y)


@pytest.mark.parametrize("model", [3, [nn.Linear(1, 1)], {"a": 1}])
def test_a_wrong_model_is_one_clear_error(model: object) -> None:
    with pytest.raises(CaptureError, match="model must be"):
        gradir.capture(leaf(3).exp(), model=model)


def test_a_wrong_param_is_one_clear_error() -> None:
    with pytest.raises(CaptureError, match=r"params\['x'\] is not a tensor"):
        gradir.capture(leaf(3).exp(), params={"x": 3})


def test_capture_changes_nothing() -> None:
    model = nn.Linear(3, 1)
    loss = model(torch.ones(2, 3)).sum()
    before = torch._C._autograd._get_sequence_nr()
    gradir.capture(loss, model=model)
    assert torch._C._autograd._get_sequence_nr() == before
    loss.backward()
    assert model.weight.grad is not None


def test_a_torch_without_shapes_of_nodes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.4.1+cpu"))
    # A front-end that is loaded already has seen which torch there is.
    registry.frontend._made.clear()
    with pytest.raises(CaptureError, match=r"torch 2\.5 or later, and this is 2\.4\.1\+cpu"):
        gradir.capture(leaf(2).exp())


def test_the_walk_lists_what_the_general_search_lists() -> None:
    random = Random(0)
    for _ in range(50):
        tensors, views = [leaf(2, 2) * 1], []
        for _ in range(12):
            first, second = random.choice(tensors), random.choice(tensors)
            made = random.choice([first + second, first[0] + second, second.t() * 1, torch.unbind(first)[-1] + second])
            tensors.append(made)
            views.append(made[0])
            if random.random() < 0.3:
                views[-1].mul_(2)
        captured = flatten(random.sample(tensors + views, 8))

        def children(key: Any, captured: Any = captured) -> list[Any]:
            if isinstance(key, int):
                _, _, _, producer, base = captured[key]
                return [*([producer[0]] if producer else []), *([] if base is None else [base])]
            return [child for child, _ in key.next_functions if child is not None]

        outputs = [index for index, tensor in enumerate(captured) if tensor.role == "output"]
        walked = walk(captured)
        assert walked.order == postorder(outputs, children)
        assert {fn: fn.next_functions for fn in walked.edges} == walked.edges


def test_saved_tensors_are_unpacked_without_running_hooks() -> None:
    ran = []
    x = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: ran.append(tensor) or tensor):
        hooked = x.exp().grad_fn
    held = (x * 2).exp()
    assert normalize_packed(hooked, "_saved_result", object()).state == "hooked"
    assert torch.equal(normalize_packed(held.grad_fn, "_saved_result", object()).data, held)
    watched, traced = sys.getprofile(), sys.gettrace()
    try:
        # A profiler is left alone, and a hook stopped another way; under both of them nothing is read.
        sys.setprofile(lambda *_: None)
        profiler = sys.getprofile()
        assert normalize_packed(hooked, "_saved_result", object()).state == "hooked"
        sys.settrace(lambda *_: None)
        assert normalize_packed(hooked, "_saved_result", object()).state == "unread"
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(watched)
        sys.settrace(traced)
    assert not ran
    with torch.no_grad():
        held.add_(1)
    stale = normalize_packed(held.grad_fn, "_saved_result", object())
    assert (stale.state, stale.shape) == ("stale", (3,))
