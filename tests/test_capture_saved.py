"""What is captured can be written as it is, without a further look at each node."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from msgspec.structs import replace  # noqa: E402
from tensors import leaf  # noqa: E402

import gradir  # noqa: E402
from gradir import codecs  # noqa: E402
from gradir.ir import validate  # noqa: E402
from gradir.ir.validate import check_all  # noqa: E402

nn = torch.nn


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_fresh_capture_is_written_without_a_further_check(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    graph = gradir.capture(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2))
    monkeypatch.setattr(validate, "_check_records", lambda _: pytest.fail("looked at once more"))
    assert gradir.loads(gradir.dumps(graph, format=encoding)) == graph


def test_a_graph_made_of_a_fresh_capture_is_looked_at() -> None:
    graph = gradir.capture(leaf(2).exp())
    graph = replace(graph, nodes={**graph.nodes, "x": "no node"})
    with pytest.raises(gradir.FormatError, match="expected a Node"):
        gradir.dumps(graph)


def _fake_with_symbolic_size() -> Any:
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv())
    sizes = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    return mode.from_tensor(torch.ones(5, 3), source=ConstantSource("x"), symbolic_context=sizes)


def test_saved_tensors_of_symbolic_size_are_of_unknown_bytes() -> None:
    x = _fake_with_symbolic_size().requires_grad_()
    graph = gradir.capture((x * x).exp())
    saved = [slot for node in graph.nodes.values() for slot in node.saved]
    assert {slot.bytes for slot in saved} == {None}
    assert all(isinstance(slot.shape[0], str) for slot in saved)
    assert codecs.decode(codecs.encode(graph)) == graph


def test_parameters_of_symbolic_size_are_not_counted() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(_fake_with_symbolic_size())
    graph = gradir.capture(model.weight.exp(), model=model)
    assert graph.scopes[""].own == 0
    assert codecs.decode(codecs.encode(graph)) == graph


def test_odd_shapes_of_a_tensor_subclass_can_be_written() -> None:
    class Odd(torch.Tensor):
        shape = property(lambda _: (-1, True, 2.5))
        output_nr = property(lambda _: -7)

    x = torch.ones(2).as_subclass(Odd).requires_grad_()
    graph = gradir.capture(x * x.exp())
    assert graph.outputs[0].shape == ("-1", "True", "2.5")
    assert codecs.decode(codecs.encode(graph)) == graph


def test_a_name_of_a_class_is_plain_text() -> None:
    class Name(str):
        __slots__ = ()

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    output = Double.apply(leaf(2))
    type(output.grad_fn).__name__ = Name("TwiceBackward")
    graph = gradir.capture(output)
    assert type(graph.nodes["twice:1"].native) is str
    check_all(graph)


def test_the_code_of_what_a_function_keeps_does_not_run() -> None:
    ran = []

    class Items(list):
        def __len__(self) -> int:
            ran.append("len of a list")
            return 99

        def __iter__(self) -> Any:
            ran.append("iter of a list")
            return iter([7])

    class Pair(tuple):
        __slots__ = ()

        def __iter__(self) -> Any:
            ran.append("iter of a tuple")
            return iter([7])

    class Shy:
        @property
        def __class__(self) -> type:
            ran.append("class")
            return bool

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.items, ctx.pair, ctx.nested, ctx.shy = Items([1, 2]), Pair((3, 4)), [Items([5])], Shy()
            ctx.size, ctx.low = torch.Size([6]), (-(2**70), 1)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad

    graph = gradir.capture(Keep.apply(leaf(2)))
    kept = dict(graph.nodes["keep:1"].attrs)
    assert ran == []
    assert (kept["items"], kept["pair"], kept["nested"], kept["size"]) == ((1, 2), (3, 4), ((5,),), (6,))
    assert (kept["shy"], kept["low"]) == ("<Shy>", (str(-(2**70)), 1))
    assert codecs.decode(codecs.encode(graph)) == graph
