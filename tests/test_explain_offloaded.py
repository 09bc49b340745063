"""Parameters that a module has only while it runs, as where an offloading hook exchanges them for the call."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402

nn = torch.nn


def offload(model: nn.Module, way: str, *, trainable: bool = True) -> nn.Module:
    """Take the data of every parameter away, and let a hook give it back for each call."""
    for module in model.modules():
        real = {name: parameter.detach().clone() for name, parameter in module.named_parameters(recurse=False)}

        def exchange(module: nn.Module, device: str, real=real) -> None:
            for name, values in real.items():
                parameter = nn.Parameter(values.to(device, copy=True), requires_grad=trainable)
                if way == "attribute":
                    setattr(module, name, parameter)
                else:
                    module._parameters[name] = parameter

        exchange(module, "meta")
        if way == "forward":
            # As accelerate does it: within the call, where no hook of torch's runs.
            def forward(*args, module=module, before=module.forward, exchange=exchange):
                exchange(module, "cpu")
                try:
                    return before(*args)
                finally:
                    exchange(module, "meta")

            module.forward = forward
        else:
            module.register_forward_pre_hook(lambda module, _, exchange=exchange: exchange(module, "cpu"))
            module.register_forward_hook(lambda module, *_, exchange=exchange: exchange(module, "meta"))
    return model


NAMES = ["0.weight", "0.bias", "1.weight", "1.bias"]
ways = pytest.mark.parametrize("way", ["forward", "dict", "attribute"])


@ways
def test_offloaded_parameters_keep_their_names_and_lose_their_gradient(way: str) -> None:
    model = offload(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), way)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.rand(2, 3)).square().sum()
    graph = rec.capture(loss)
    assert sorted(node.id for node in graph.nodes.values() if node.role == "parameter") == sorted(NAMES)
    assert graph.cuts == ()
    assert [node.id for node in rec.forward().nodes.values() if node.role == "parameter"] == NAMES
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for found in (rec.explain(loss, values=False), rec.explain(loss, values=False, optimizer=optimizer)):
        assert dict(found.statuses) == dict.fromkeys(NAMES, "reached")
        (cause,) = found.causes
        assert (cause.kind, cause.level, list(cause.names)) == ("lent", "error", NAMES)
    loss.backward()
    assert [parameter.grad for parameter in model.parameters()] == [None] * 4


@ways
def test_parameters_offloaded_for_inference_keep_their_names(way: str) -> None:
    model = offload(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), way, trainable=False)
    with torch.no_grad(), gradir.record(model, flow=True) as rec:
        model(torch.rand(2, 3))
    assert [node.id for node in rec.forward().nodes.values() if node.role == "parameter"] == NAMES


def test_a_parameter_that_a_call_is_given_is_not_the_one_of_the_module() -> None:
    model = nn.Linear(3, 1, bias=False)
    given = nn.Parameter(torch.rand(1, 3))
    with gradir.record(model, flow=True) as rec:
        loss = torch.func.functional_call(model, {"weight": given}, (torch.rand(2, 3),)).sum()
    assert rec.explain(loss).statuses["weight"] == "unused"


def test_a_model_without_data_that_runs_without_data_is_explained() -> None:
    model = nn.Linear(3, 1, device="meta")
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.rand(2, 3, device="meta")).sum()
    assert dict(rec.explain(loss, values=False).statuses) == {"weight": "reached", "bias": "reached"}
