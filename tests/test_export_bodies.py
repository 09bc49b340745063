"""Captures of GraphModules that are broken or run others, and of operations with bodies of their own kind."""

from __future__ import annotations

from operator import getitem
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.8")

from steps import steps  # noqa: E402
from torch import fx, nn  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.ir.validate import check_all  # noqa: E402


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.scale = nn.Linear(3, 3), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.fc(x) * self.scale


def _set(kind: str, field: str, value: Any, module: Any) -> None:
    (node,) = module.graph.find_nodes(op=kind)
    setattr(node, field, value)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda module: delattr(module, "fc"), "the program takes the module 'fc', which it does not have"),
        (lambda module: module._modules.update(fc=3), "takes the module 'fc', which"),
        (lambda module: _set("call_module", "target", "fc.inner.last", module), "takes the module 'fc.inner.last'"),
        (lambda module: _set("call_module", "target", "", module), "takes the module '', which"),
        (lambda module: delattr(module, "scale"), "takes the attribute 'scale', which it does not have"),
        (lambda module: _set("output", "args", (), module), "the output of the program has no value"),
        (lambda module: module._modules.update(fc=module), "nested more than 500 times: 'fc.fc.fc"),
    ],
)
def test_a_broken_module_is_refused_with_the_part_that_is_broken(spoil, told):
    module = fx.symbolic_trace(_Scaled())
    spoil(module)
    with pytest.raises(CaptureError, match=told):
        gradir.capture(module)


def _run_inside(inner: fx.Graph, *inputs: str, **named: str) -> tuple[fx.Graph, dict[str, Any], fx.Node]:
    outer = fx.Graph()
    places = {name: outer.placeholder(name) for name in "ab"}
    called = outer.call_module(
        "inner", tuple(places[name] for name in inputs), {key: places[name] for key, name in named.items()}
    )
    return outer, {"inner": fx.GraphModule({}, inner)}, called


@pytest.mark.parametrize(
    ("inputs", "named", "takes"),
    [("ab", {}, ["a", "b"]), ("", {"y": "a", "x": "b"}, ["b", "a"]), ("a", {}, ["a", "input:1"])],
)
def test_a_module_inside_takes_its_inputs_by_name_and_has_defaults(inputs, named, takes):
    inner = fx.Graph()
    x, y = inner.placeholder("x"), inner.placeholder("y", default_value=2.0)
    inner.output(inner.call_function(torch.sub, (x, y)))
    outer, modules, called = _run_inside(inner, *inputs, **named)
    outer.output(called)
    assert [each.id for each in gradir.capture(fx.GraphModule(modules, outer)).nodes["inner/sub:1"].inputs] == takes


def test_a_module_inside_may_return_a_dict():
    inner = fx.Graph()
    x = inner.placeholder("x")
    inner.output({"sin": inner.call_function(torch.sin, (x,)), "both": [x, inner.call_function(torch.cos, (x,))]})
    outer, modules, called = _run_inside(inner, "a")
    both = outer.call_function(getitem, (called, "both"))
    values = outer.call_function(getitem, (called, "sin")), outer.call_function(getitem, (both, 1))
    outer.output(outer.call_function(torch.sub, values))
    found = gradir.capture(fx.GraphModule(modules, outer))
    assert [each.id for each in found.nodes["sub:1"].inputs] == ["inner/sin:1", "inner/cos:1"]
    assert {node.op for node in found.nodes.values() if node.role == "function"} == {"sin", "cos", "sub"}


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.ones(2))

    def forward(self, q):
        from torch.nn.attention.flex_attention import flex_attention

        return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + self.slopes[h] * (i - j))


def test_a_body_that_gets_values_of_its_operation_has_unknown_inputs_and_the_operation_all_its_own():
    found = gradir.capture(torch.export.export(_Attention(), (torch.ones(1, 2, 16, 8),)))
    check_all(found)
    (attention,) = (node for node in found.nodes.values() if node.op == "flex_attention")
    assert [each.id for each in attention.inputs].count("q") == 3
    assert "slopes" in {each.id for each in attention.inputs}
    unknown = [node for node in found.nodes.values() if node.role == "input" and not node.names]
    assert unknown
    assert all(node.shape is None for node in unknown)


class _Hinted(nn.Module):
    def forward(self, x, y):
        from torch._higher_order_ops.hints_wrap import hints_wrapper

        return hints_wrapper(lambda a, b: (a - b).cos(), (x, y), {}, hints={"fast": 1})


def test_options_after_the_operands_of_a_body_are_none_of_its_inputs():
    found = gradir.capture(torch.export.export(_Hinted(), (torch.ones(3), torch.ones(3)), strict=True))
    assert [each.id for each in found.nodes["sub:1"].inputs] == ["x", "y"]
    assert [node.op for node in found.nodes.values() if node.role == "function"] == ["sub", "cos"]


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 * ctx.saved_tensors[0]


def test_the_forward_of_a_custom_function_is_without_its_backward():
    seen = list[fx.GraphModule]()
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: _Square.apply(x).sin(), backend=lambda module, _: seen.append(module) or module)
    compiled(torch.ones(3, requires_grad=True))
    found = gradir.capture(seen[0])
    sin = next(node for node in found.nodes.values() if node.op == "sin")
    assert [each.id for each in sin.inputs] == ["mul:1"]
    assert [node.op for node in found.nodes.values() if node.op == "mul"] == ["mul"]


def _traced(modules: int) -> fx.GraphModule:
    return fx.symbolic_trace(nn.Sequential(*(nn.Linear(1, 1) for _ in range(modules))))


def test_the_time_for_a_traced_module_is_linear_in_its_submodules():
    few, many = _traced(100), _traced(400)
    gradir.capture(few)
    assert steps(lambda: gradir.capture(many)) < 5 * steps(lambda: gradir.capture(few))
