"""The graph of a forward that builds, materializes or parametrizes modules itself."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from wiring import describe_wiring, forward  # noqa: E402

import gradir  # noqa: E402

nn = torch.nn
orthogonal, spectral_norm, weight_norm = (
    getattr(nn.utils.parametrizations, name) for name in ("orthogonal", "spectral_norm", "weight_norm")
)


class Channels(nn.Module):
    """Runs a convolution on the same input as the others."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.view(1, 2, 3))


class Growing(nn.Module):
    """Builds its head when it first runs."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.body, self.head, self.make = nn.Linear(3, 3), None, make

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x)
        if self.head is None:
            self.head = self.make()
        return self.head(x.relu())


class Appending(nn.Module):
    """Has a list of layers that it lengthens while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for depth in range(3):
            if len(self.layers) == depth:
                self.layers.append(nn.Linear(3, 3))
            x = self.layers[depth](x)
        return x


class Scaled(nn.Module):
    """Makes a parameter of its own when it first runs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale is None:
            self.scale = nn.Parameter(torch.randn(x.shape[-1]) / 2)
        return x * self.scale


class Attending(nn.Module):
    """Has a buffer beside submodules with parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(3, 3)
        self.register_buffer("mask", torch.tril(torch.ones(3, 3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.keys(x) @ self.mask


class Symmetric(nn.Module):
    """A parametrization of the user's that computes its inverse with gradients."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        runs.append("forward")
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x: torch.Tensor) -> torch.Tensor:
        runs.append("right_inverse")
        return x.triu() * 1


runs: list[str] = []


def symmetric(module: nn.Module) -> nn.Module:
    return nn.utils.parametrize.register_parametrization(module, "weight", Symmetric())


def linear() -> nn.Linear:
    return nn.Linear(3, 3)


def filled(module: nn.Linear) -> nn.Linear:
    nn.init.orthogonal_(module.weight)
    nn.init.trunc_normal_(module.bias)
    return module.double().float().requires_grad_(False)


BUILDERS = {
    "lazy linear": lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2, bias=False)),
    "lazy cast": lambda: nn.Sequential(nn.LazyLinear(3, dtype=torch.float64)).float(),
    "lazy convolution": lambda: Channels(nn.LazyConv1d(4, 1)),
    "lazy transposed": lambda: Channels(nn.LazyConvTranspose1d(4, 1)),
    "lazy norm": lambda: nn.Sequential(nn.Linear(3, 3), nn.LazyBatchNorm1d()),
    "lazy bare norm": lambda: nn.LazyBatchNorm1d(affine=False),
    "lazy instance norm": lambda: Channels(nn.LazyInstanceNorm1d(affine=True, track_running_stats=True)),
    "orthogonal": lambda: orthogonal(linear()),
    "orthogonal tall": lambda: orthogonal(nn.Linear(3, 4), orthogonal_map="matrix_exp"),
    "orthogonal cayley": lambda: orthogonal(linear(), orthogonal_map="cayley"),
    "orthogonal bare": lambda: orthogonal(linear(), orthogonal_map="householder", use_trivialization=False),
    "spectral": lambda: spectral_norm(linear(), n_power_iterations=2),
    "spectral eval": lambda: spectral_norm(linear()).eval(),
    "spectral convolution": lambda: Channels(spectral_norm(nn.Conv1d(2, 4, 1))),
    "spectral vector": lambda: spectral_norm(linear(), "bias"),
    "spectral of normed": lambda: spectral_norm(weight_norm(linear())),
    "normed whole": lambda: weight_norm(linear(), dim=None),
    "normed twice": lambda: nn.Sequential(weight_norm(linear()), weight_norm(nn.Linear(3, 2))),
    "normed recurrent": lambda: weight_norm(nn.GRU(3, 3), "weight_ih_l0"),
    "symmetric": lambda: symmetric(linear()),
    "normed symmetric": lambda: symmetric(symmetric(linear())),
    "growing": lambda: Growing(linear),
    "growing norm": lambda: Growing(lambda: nn.Sequential(linear(), nn.BatchNorm1d(3))),
    "growing buffer": lambda: Growing(Attending),
    "growing lazy": lambda: Growing(lambda: nn.LazyLinear(2)),
    "growing orthogonal": lambda: Growing(lambda: orthogonal(linear())),
    "growing spectral": lambda: Growing(lambda: spectral_norm(linear())),
    "growing normed": lambda: Growing(lambda: weight_norm(linear())),
    "growing twice": lambda: Growing(lambda: Growing(linear)),
    "growing copied": lambda: Growing(lambda: copy.deepcopy(linear())),
    "growing emptied": lambda: Growing(lambda: filled(nn.Linear(3, 3, device="meta").to_empty(device="cpu"))),
    "growing initialised": lambda: Growing(lambda: filled(linear())),
    "appending": Appending,
    "scaled": Scaled,
}


def run(model: nn.Module) -> torch.Tensor:
    given = model(torch.ones(2, 3))
    return (given[0] if isinstance(given, tuple) else given).sum()


def told(graph: gradir.Graph) -> list[object]:
    nodes = [(node.role, node.names, node.scope, node.outputs) for node in graph.nodes.values()]
    return [*describe_wiring(graph), nodes, graph.scopes]


@pytest.fixture(params=BUILDERS.values(), ids=BUILDERS)
def build(request) -> Callable[[], nn.Module]:
    return request.param


@pytest.mark.parametrize(("is_known", "is_training"), [(False, True), (True, False)], ids=["unknown", "known, no_grad"])
def test_the_first_forward_of_a_model_has_the_graph_of_a_later_one(build, is_known, is_training) -> None:
    with torch.set_grad_enabled(is_training):
        outside = build()
        run(outside)
        later = told(forward(lambda: run(outside), outside))
        first = build()
        assert told(forward(lambda: run(first), first if is_known else None)) == later
        with gradir.record(flow=True) as rec:
            inside = build()
            run(inside)
    assert told(rec.forward(model=inside if is_known else None)) == later


def test_a_recording_changes_no_tensor_no_random_number_and_runs_nothing_more(build) -> None:
    def state() -> list[torch.Tensor]:
        torch.manual_seed(0)
        runs.clear()
        model = build()
        loss = run(model)
        return [loss, *model.state_dict().values(), torch.rand(1)]

    alone, ran = state(), list(runs)
    with gradir.record(flow=True) as rec:
        recorded = state()
    rec.forward()
    if recorded[0].requires_grad:
        rec.capture(recorded[0])
    assert all(map(torch.equal, recorded, alone))
    assert runs == ran


def test_every_run_of_a_spectral_norm_takes_a_step_and_its_registration_none() -> None:
    def twice() -> None:
        model = spectral_norm(nn.Linear(3, 3))
        models.append(model)
        run(model)
        run(model)

    models: list[nn.Module] = []
    ops = [node.op for node in forward(twice).nodes.values()]
    assert (ops.count("vdot"), ops.count("linalg_vector_norm")) == (2, 4)


def test_a_parametrization_that_is_computed_and_not_used_is_of_the_forward() -> None:
    def idle() -> None:
        model = symmetric(nn.Linear(3, 3))
        models.append(model)
        assert isinstance(model.weight, torch.Tensor)

    models: list[nn.Module] = []
    assert describe_wiring(forward(idle))[-1] == "output(0/add:1)"


class Counting(nn.Module):
    """Computes its buffers in each forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.register_buffer("rates", torch.zeros(3))
        self.register_buffer("cache", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rates = torch.arange(3.0) * 2
        self.cache.zero_()
        self.cache.add_(self.inner(x).detach())
        return self.cache * self.rates


def test_buffers_that_each_forward_computes_are_computed_in_its_graph() -> None:
    model = Counting()
    from_outside = describe_wiring(forward(lambda: run(model), model))
    assert {"mul:1(arange:1)", "zero_:1(!cache)", "mul:2(add_:1, mul:1)"} <= set(from_outside)


class Fitted(nn.Module):
    """Fits a parameter to its first input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale is None:
            self.scale = nn.Parameter(torch.empty(3))
            with torch.no_grad():
                self.scale.copy_(x.mean(0))
        return x * self.scale


def test_a_parameter_initialized_from_the_input_is_part_of_the_forward() -> None:
    model = Fitted()
    assert describe_wiring(forward(lambda: run(model), model)) == [
        "ones:1",
        "mean:1(ones:1)",
        "scale",
        "copy_:1(!scale, mean:1)",
        "mul:1(ones:1, copy_:1)",
        "sum:1(mul:1)",
        "output(sum:1)",
    ]


def test_the_source_of_a_copied_parameter_is_part_of_its_initialization() -> None:
    teacher = nn.Linear(3, 3, bias=False)

    def build() -> None:
        model = nn.Linear(3, 3, bias=False)
        models.append(model)
        with torch.no_grad():
            model.weight.copy_(teacher.weight * 0.5)
        run(model)

    models: list[nn.Module] = []
    assert describe_wiring(forward(build)) == [
        "ones:1",
        "weight",
        "t:1(~weight)",
        "mm:1(ones:1, t:1)",
        "sum:1(mm:1)",
        "output(sum:1)",
    ]
