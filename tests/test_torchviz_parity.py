"""The picture that torchviz draws and the captured graph have the same nodes, roles, edges and saved slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchviz")

from example_files import GRAPHS, run  # noqa: E402
from torchviz_oracle import Correspondence, picture_of_graph, picture_of_torchviz  # noqa: E402

import gradir  # noqa: E402


def flat(outputs: Any) -> list[Any]:
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    # torchviz takes tuples only; the captured graph has the values of a dict in its order.
    return list(outputs.values() if isinstance(outputs, dict) else outputs)


def compare(outputs: Any, *, show_saved: bool, model: object = None) -> gradir.Graph:
    graph = gradir.capture(outputs, model=model)
    names = Correspondence(graph, flat(outputs))
    drawn = picture_of_torchviz(names, flat(outputs), show_saved=show_saved)
    captured = picture_of_graph(names, show_saved=show_saved)
    assert captured.roles == drawn.roles
    assert captured.edges == drawn.edges
    assert captured.saved == drawn.saved
    return graph


@pytest.mark.parametrize("show_saved", [False, True], ids=["plain", "saved"])
@pytest.mark.parametrize("spec", GRAPHS)
def test_examples(spec: str, show_saved: bool) -> None:
    model, outputs = run(spec)
    compare(outputs, show_saved=show_saved, model=model)


def leaf(*shape: int) -> Any:
    return torch.linspace(0.1, 1.0, steps=max(1, torch.Size(shape).numel())).reshape(shape).clone().requires_grad_()


class Cube(torch.autograd.Function):
    """Saves its input and something that it computed."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, x * x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, square = ctx.saved_tensors
        return grads[0] * 3 * square + 0 * x


def custom_function() -> Any:
    return Cube.apply(leaf(3).exp())


def same_operand_twice() -> Any:
    x = leaf(3)
    return x * x


def one_part_of_a_split() -> Any:
    return leaf(6).exp().split(2)[1].sum()


def several_outputs_of_one_node() -> Any:
    return torch.linalg.svd(leaf(3, 3), full_matrices=False)[1:]


def one_output_feeds_another() -> Any:
    middle = leaf(3).exp()
    return middle.sum(), middle, middle.sin()


def frozen_weight() -> Any:
    layer = torch.nn.Linear(3, 2)
    layer.weight.requires_grad_(False)
    return layer(leaf(4, 3))


def in_place_on_a_view() -> Any:
    x = leaf(4) + 1
    x[1:3].mul_(2)
    return x


def view_of_a_leaf() -> Any:
    return leaf(2, 3).view(-1)


def view_of_a_view() -> Any:
    return leaf(2, 3).exp().view(-1)[1:4]


def two_views_of_one_base() -> Any:
    base = leaf(2, 3).exp()
    return base.view(-1), base.t()


def base_before_its_view() -> Any:
    base = leaf(2, 3).exp()
    return base, base.view(-1)


def indices_in_a_tuple() -> Any:
    return leaf(4, 4).exp()[torch.tensor([0, 2]), torch.tensor([1, 1])]


def assignment_into_zeros() -> Any:
    buffer = torch.zeros(2, 3)
    buffer[0] = leaf(3).exp()
    return buffer.sum()


def shared_weight() -> Any:
    weight = leaf(3, 3)
    return (leaf(2, 3) @ weight).tanh() @ weight.t()


CASES = (
    assignment_into_zeros,
    base_before_its_view,
    custom_function,
    frozen_weight,
    in_place_on_a_view,
    indices_in_a_tuple,
    one_output_feeds_another,
    one_part_of_a_split,
    same_operand_twice,
    several_outputs_of_one_node,
    shared_weight,
    two_views_of_one_base,
    view_of_a_leaf,
    view_of_a_view,
)


@pytest.mark.parametrize("show_saved", [False, True], ids=["plain", "saved"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_hard_cases(case: Callable[[], Any], show_saved: bool) -> None:
    compare(case(), show_saved=show_saved)


def test_after_backward_the_structure_is_the_same() -> None:
    loss = leaf(3).exp().prod()
    loss.backward()
    # With saved tensors torchviz raises here, for they are freed.
    compare(loss, show_saved=False)


def test_a_missing_edge_is_noticed() -> None:
    outputs = same_operand_twice()
    graph = gradir.capture(outputs)
    names = Correspondence(graph, [outputs])
    drawn = picture_of_torchviz(names, [outputs], show_saved=True)
    square = graph.nodes["mul:1"]
    names.graph = gradir.Graph.of(
        msgspec.structs.replace(node, inputs=node.inputs[:1], saved=node.saved[:1]) if node is square else node
        for node in graph.nodes.values()
    )
    captured = picture_of_graph(names, show_saved=True)
    assert captured.roles == drawn.roles
    assert (drawn.edges - captured.edges).total() == 1
    assert (drawn.saved - captured.saved).total() == 1


def test_a_tensor_captured_twice_is_two_outputs() -> None:
    # torchviz draws a tensor once, however often it is passed; a captured graph answers for each place of a result.
    y = leaf(3).exp()
    assert [node.id for node in gradir.capture((y, y)).outputs] == ["output:0", "output:1"]


def test_a_captured_leaf_has_its_accumulator() -> None:
    # torchviz draws a lone green node. Backward from a leaf does reach the leaf, so a captured graph has the way.
    graph = gradir.capture(leaf(3))
    assert [(edge.src, edge.dst) for edge in graph.edges] == [
        ("leaf:1", "leaf:1/accumulate_grad:1"),
        ("leaf:1/accumulate_grad:1", "output"),
    ]
