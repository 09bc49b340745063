"""What a forward writes in place, updates and initialises, in the graph of it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402
from wiring import describe_wiring, forward  # noqa: E402

import gradir  # noqa: E402

nn = torch.nn


def test_a_write_through_a_view_changes_all_aliases() -> None:
    def run() -> object:
        y = torch.ones(4)
        half, _ = y.chunk(2)
        half.add_(1)
        return y * 2

    assert describe_wiring(forward(run)) == [
        "ones:1",
        "split:1(~ones:1)",
        "add_:1(!split:1)",
        "mul:1(add_:1)",
        "output(mul:1)",
    ]


def test_a_leaf_and_an_out_argument_are_written_in_place() -> None:
    w, out = leaf(3), torch.empty(3)

    def run() -> None:
        with torch.no_grad():
            w.mul_(2)
        torch.add(w.detach(), 1, out=out)

    assert describe_wiring(forward(run)) == [
        "leaf:1",
        "mul_:1(!leaf:1)",
        "detach:1(~mul_:1)",
        "input:1",
        "add:1(detach:1, !input:1)",
    ]


def test_a_final_in_place_operation_is_an_output() -> None:
    state = torch.zeros(2)

    def run() -> None:
        state.add_(1)
        torch.ones(2)
        (torch.ones(2) * 2).relu_()

    graph = forward(run)
    assert describe_wiring(graph)[-1] == "output(relu_:1)"
    assert len(graph.outputs) == 1


class Built(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare, self.norm = nn.Linear(2, 2, bias=False), nn.Linear(2, 2), nn.BatchNorm1d(2)
        self.scale = nn.Parameter(torch.ones(2).mul(3))
        self.register_buffer("mask", torch.arange(2) * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def test_initialization_of_an_unused_parameter_is_left_out() -> None:
    def run() -> None:
        model = Built()
        models.append(model)
        model(torch.ones(1, 2))

    models: list[nn.Module] = []
    assert describe_wiring(forward(run)) == [
        "ones:1",
        "used.weight",
        "used/t:1(~used.weight)",
        "used/mm:1(ones:1, used/t:1)",
        "output(used/mm:1)",
    ]


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(3, 3), nn.Parameter(torch.randn(3) / 3**0.5)
        self.register_buffer("mask", torch.tril(torch.ones(3, 3)).view(1, 3, 3))
        self.register_buffer("rates", 1 / (100 ** (torch.arange(3.0) / 3)))
        self.register_buffer("count", torch.tensor(3.0))
        nn.init.trunc_normal_(self.inner.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.inner(x) * self.scale) @ self.mask[0] / self.count + self.rates


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


def changed(*changes: Callable[[nn.Linear], object]) -> Callable[[], nn.Module]:
    """Makes a linear module, and changes it before it is used."""

    def build() -> nn.Module:
        module = nn.Linear(3, 3)
        for change in changes:
            with torch.no_grad():
                change(module)
        return module

    return build


def of_data(module: nn.Linear) -> None:
    with torch.enable_grad():
        module.weight.data.normal_(0, 0.1)
        module.bias.data = torch.zeros(3)


LOADED = nn.Linear(3, 3).state_dict()

BUILDERS = {
    "linear": lambda: nn.Linear(3, 3),
    "norm": lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, momentum=None)),
    "eval": lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval(),
    "frozen": lambda: nn.Linear(3, 3).requires_grad_(False),
    "recurrent": lambda: nn.GRU(3, 3),
    "transformer": lambda: nn.TransformerEncoderLayer(3, 1, 4, batch_first=True),
    "masked": Masked,
    "tied": Tied,
    "normed weight": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    "copied": lambda: copy.deepcopy(nn.Linear(3, 3)),
    "cast": lambda: nn.Linear(3, 3).double().float(),
    "emptied": lambda: nn.Linear(3, 3, device="meta").to_empty(device="cpu"),
    "data": changed(of_data),
    "identity": changed(lambda module: module.weight.copy_(torch.eye(3) * 2), lambda module: module.bias[1:].fill_(3)),
    "loaded": changed(lambda module: module.load_state_dict(LOADED)),
    "orthogonal": changed(lambda module: nn.init.orthogonal_(module.weight)),
    "sparse": changed(lambda module: nn.init.sparse_(module.weight, 0.1)),
    "normal": changed(lambda module: nn.init.kaiming_normal_(module.weight), lambda module: module.bias.div_(2)),
}


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
@pytest.mark.parametrize("is_training", [True, False], ids=["grad", "no_grad"])
def test_a_model_that_is_built_inside_has_the_forward_of_one_from_outside(build, is_known, is_training) -> None:
    def run(model: nn.Module) -> torch.Tensor:
        given = model(torch.ones(2, 3))
        return (given[0] if isinstance(given, tuple) else given).sum()

    def told(graph: gradir.Graph) -> list[object]:
        return [
            *describe_wiring(graph),
            [(node.role, node.names, node.scope, node.outputs) for node in graph.nodes.values()],
        ]

    outside = build()
    with torch.set_grad_enabled(is_training):
        from_outside = told(forward(lambda: run(outside), outside))
        with gradir.record(flow=True) as rec:
            model = build()
            run(model)
    assert told(rec.forward(model=model if is_known else None)) == from_outside


def test_a_penalty_before_the_first_use_is_part_of_the_forward() -> None:
    def run() -> torch.Tensor:
        model = nn.Linear(2, 2, bias=False)
        models.append(model)
        penalty = model.weight.square().sum()
        with torch.no_grad():
            model.weight.mul_(0.5)
        return model(torch.ones(1, 2)).sum() + penalty * 0

    models: list[nn.Module] = []
    assert describe_wiring(forward(run)) == [
        "weight",
        "pow:1(weight)",
        "sum:1(pow:1)",
        "mul_:1(!weight)",
        "ones:1",
        "t:1(~mul_:1)",
        "mm:1(ones:1, t:1)",
        "sum:2(mm:1)",
        "mul:1(sum:1)",
        "add:1(sum:2, mul:1)",
        "output(add:1)",
    ]


def test_a_term_that_was_never_added_and_an_initialisation_that_raises_are_of_the_forward() -> None:
    def run() -> None:
        model = nn.Linear(2, 2, bias=False)
        models.append(model)
        loss = model(torch.ones(1, 2)).sum()
        model.weight.abs().sum()
        loss.exp()

    models: list[nn.Module] = []
    assert describe_wiring(forward(run))[-2:] == ["output:0(sum:2)", "output:1(exp:1)"]
    weight = nn.Parameter(torch.empty(2, 3))
    with pytest.raises(RuntimeError), gradir.record(flow=True) as rec, torch.no_grad():
        weight.copy_(torch.ones(4) * 2)
    assert describe_wiring(rec.forward()) == ["ones:1", "mul:1(ones:1)", "parameter:1", "copy_:1(!parameter:1, mul:1)"]


def test_an_update_of_what_was_made_inside_is_of_the_forward_and_no_output() -> None:
    def run() -> None:
        model = nn.Linear(2, 1, bias=False)
        models.append(model)
        step = model(torch.ones(1, 2)).detach()
        with torch.no_grad():
            model.weight.view(-1).sub_(step.view(-1))

    models: list[nn.Module] = []
    assert describe_wiring(forward(run))[-3:] == [
        "view:1(~weight)",
        "view:2(~detach:1)",
        "sub_:1(!view:1, view:2)",
    ]


def test_a_stored_result_is_an_output() -> None:
    model, outside = nn.Linear(2, 1, bias=False), torch.ones(2)
    model.register_buffer("last", None)

    def run() -> None:
        model(torch.ones(1, 2))
        model.last = outside.exp()

    assert [line for line in describe_wiring(forward(run, model)) if line.startswith("output")] == [
        "output:0(mm:1)",
        "output:1(exp:1)",
    ]
