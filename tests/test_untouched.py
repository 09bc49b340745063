"""No public call runs what a model overrides, or changes what a training has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from wiring import describe_wiring  # noqa: E402

import gradir  # noqa: E402
from gradir.frontends.pytorch.diff_run import run_alike  # noqa: E402
from gradir.request import CaptureRequest  # noqa: E402

PUBLIC = [name for name in dir(nn.Module) if not name.startswith("_") and name != "forward"]


class Net(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.first = layers[0]
        self.rest = nn.Sequential(*layers[1:])

    def forward(self, x):
        return self.rest(self.first(x))


def shadowed(*, by_class: bool) -> nn.Module:
    """A model that has something else under every public name of a module, in its class or as an attribute."""

    def refused(*args, **kwargs):
        raise AssertionError("called what the model overrides")

    class Odd(Net):
        pass

    model = Odd(nn.Linear(3, 4), nn.BatchNorm1d(4))
    # A model that cannot register a hook cannot be used at all.
    for name in PUBLIC:
        setattr(Odd, name, refused) if by_class else vars(model).__setitem__(name, [1, 2])
    return model


def every_call(model: nn.Module, run: Callable[[], Any]) -> Iterator[Callable[[], object]]:
    """Every public call on a forward that was recorded, or was not."""
    with gradir.record(model, flow=True, sources=True) as rec:
        loss = run()
    yield partial(gradir.capture, loss)
    yield partial(gradir.capture, loss, model=model)
    yield partial(rec.capture, loss)
    yield rec.forward
    yield partial(rec.explain, loss, values=False)
    yield partial(rec.explain, loss, values=True)
    yield partial(rec.verify, loss, keep_graph=True)
    yield partial(gradir.verify, loss, model=model, keep_graph=True)
    yield partial(gradir.verify, loss, keep_graph=True)
    yield loss.backward


@pytest.mark.parametrize("by_class", [False, True])
def test_a_module_may_shadow_every_public_name(by_class: bool) -> None:
    model = shadowed(by_class=by_class)
    x = torch.ones(2, 3)
    for call in every_call(model, lambda: model(x).sum()):
        call()
    with gradir.record(model) as rec:
        loss = model(x).sum()
    graph = rec.capture(loss)
    assert list(graph.scopes) == ["", "first", "rest", "rest.0"]
    assert {name for node in graph.nodes.values() if node.role == "parameter" for name in node.names} == {
        "first.weight",
        "first.bias",
        "rest.0.weight",
        "rest.0.bias",
    }
    with gradir.record() as rec:
        loss = model(x).sum()
    assert rec.capture(loss).scopes.keys() == graph.scopes.keys()


@pytest.mark.parametrize("by_class", [False, True])
def test_a_run_with_the_weights_of_another_calls_no_public_name_of_a_module(by_class: bool, tmp_path: Path) -> None:
    model = shadowed(by_class=by_class)
    request = CaptureRequest(target=lambda: (model, model(torch.ones(2, 3)).sum()), is_program=True)
    run_alike(request, str(tmp_path / "run"))
    assert run_alike(request, str(tmp_path / "run"), {}).paired == 4


def test_a_model_may_keep_its_layers_in_a_list_called_modules() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.modules = [nn.Linear(3, 4), nn.Linear(4, 1)]

        def forward(self, x):
            for module in self.modules:
                x = module(x)
            return x

    model = Listed()
    for call in every_call(model, lambda: model(torch.ones(2, 3)).sum()):
        call()
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(2, 3)).sum()
    (cause,) = rec.explain(loss).causes
    assert cause.kind == "not_registered"


def test_the_names_of_a_model_are_those_of_its_structure() -> None:
    class Own(nn.Sequential):
        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            raise AssertionError

        named_parameters = named_buffers = named_modules

    model = Own()
    model.add_module("wrapped", nn.Sequential(nn.Linear(2, 2)))
    graph = gradir.capture(model, torch.ones(1, 2))
    assert list(graph.scopes) == ["", "wrapped", "wrapped.0"]


def test_a_property_or_a_parametrization_is_not_asked_for_the_details_of_a_module() -> None:
    class Sharded(nn.Linear):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.in_features = self.out_features = 2
            self.part, self.bias = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))

        @property
        def weight(self):
            raise RuntimeError("gather first")

        def extra_repr(self):
            return f"{super().extra_repr()}, of {self.name_of()}"

        def name_of(self):
            return "two parts"

        def forward(self, x):
            return nn.functional.linear(x, self.part, self.bias)

    class Asking(Sharded):
        def extra_repr(self):
            return f"{self.weight}"

    model = nn.Sequential(Sharded(), Asking(), noisy_of(nn.Linear(2, 2)))
    with gradir.record(model) as rec:
        loss = model(torch.ones(1, 2)).sum()
    random = torch.get_rng_state()
    scopes = rec.capture(loss).scopes
    assert torch.equal(random, torch.get_rng_state())
    linear = "in_features=2, out_features=2, bias=True"
    assert [scopes[path].detail for path in "012"] == [f"{linear}, of two parts", "", linear]


def test_modules_that_share_modules_level_by_level_are_named_once() -> None:
    model: nn.Module = nn.Linear(1, 1)
    for _ in range(40):
        model = nn.Sequential(model, model)
    graph = gradir.capture(torch.ones(1, requires_grad=True).exp(), model=model)
    assert len(graph.scopes) == 41


class Noise(nn.Module):
    def forward(self, weight):
        return weight + 0.1 * torch.randn_like(weight)


class Fading(torch.autograd.Function):
    """Draws random numbers in its backward."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.rand(())


class Faded(nn.Module):
    def forward(self, x):
        return Fading.apply(x)


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module, **options: Any) -> None:
        super().__init__()
        self.inner, self.options = inner, options

    def forward(self, x):
        return checkpoint(self.inner, x, **self.options)


def noisy_of(layer: nn.Linear) -> nn.Linear:
    for name in ("weight", "bias"):
        parametrize.register_parametrization(layer, name, Noise())
    return layer


def inner() -> nn.Module:
    return nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 4)), nn.BatchNorm1d(4), nn.Dropout(0.5))


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "noise": lambda: noisy_of(nn.Linear(3, 4)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(3, 4)),
    "old spectral norm": lambda: nn.utils.spectral_norm(nn.Linear(3, 4)),
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(3, 4)),
    "old weight norm": lambda: nn.utils.weight_norm(nn.Linear(3, 4)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(3, 4)),
    "lazy": lambda: nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()),
    "checkpoint": lambda: Checkpointed(inner(), use_reentrant=False),
    "checkpoint of new random numbers": lambda: Checkpointed(
        inner(), use_reentrant=False, preserve_rng_state=False, determinism_check="none"
    ),
    "reentrant checkpoint": lambda: Checkpointed(inner(), use_reentrant=True),
    "custom function": lambda: nn.Sequential(nn.Linear(3, 4), Faded()),
    "compiled": lambda: torch.compile(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), backend="eager"),
    "compiled ahead": lambda: torch.compile(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), backend="aot_eager"),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)),
}


@pytest.fixture
def process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # torch puts the rank in front of every error from then on.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


CALLS: dict[str, Callable[[nn.Module, Any, Any, Any], object]] = {
    "capture": lambda model, loss, rec, optimizer: gradir.capture(loss, model=model),
    "verify": lambda model, loss, rec, optimizer: gradir.verify(loss, model=model),
    "verify alone": lambda model, loss, rec, optimizer: gradir.verify(loss),
    "record capture": lambda model, loss, rec, optimizer: rec.capture(loss),
    "record flow capture": lambda model, loss, rec, optimizer: rec.capture(loss),
    "record flow explain": lambda model, loss, rec, optimizer: rec.explain(loss, values=False, optimizer=optimizer),
    "record flow values": lambda model, loss, rec, optimizer: rec.explain(loss, values=True, optimizer=optimizer),
    "record flow forward": lambda model, loss, rec, optimizer: rec.forward(),
    "record verify": lambda model, loss, rec, optimizer: rec.verify(loss),
    "record sources capture": lambda model, loss, rec, optimizer: rec.capture(loss),
    "record collectives capture": lambda model, loss, rec, optimizer: rec.capture(loss),
    "record flow sources failure": lambda model, loss, rec, optimizer: rec.explain(RuntimeError("none"), model=model),
    "release": lambda model, loss, rec, optimizer: gradir.release(),
}


def trained(make: Callable[[], nn.Module], call: str, wrap: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """All that two steps of training leave, with a call of gradir's between each forward and its backward."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = make()
    x = torch.randn(6, 3, requires_grad=True)
    model(x)
    if wrap is not None:
        model = wrap(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        noted = {kind: kind in call for kind in ("flow", "sources", "collectives")}
        recorder = gradir.record(model, **noted) if call.startswith("record") else None
        with recorder or nullcontext():
            loss = model(x).square().mean()
        if call:
            CALLS[call](model, loss, recorder, optimizer)
        loss.backward()
        optimizer.step()
    return {
        "model": dict(model.state_dict()),
        "gradients": {name: parameter.grad for name, parameter in model.named_parameters()},
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
    }


def differing(one: Any, other: Any, path: str = "") -> list[str]:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        return [found for key in one for found in differing(one[key], other[key], f"{path}.{key}")]
    if isinstance(one, list):
        return [
            found for at, pair in enumerate(zip(one, other, strict=True)) for found in differing(*pair, f"{path}.{at}")
        ]
    if isinstance(one, DTensor):
        one, other = one.to_local(), other.to_local()
    same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    return [] if same else [path]


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.filterwarnings("ignore")
def test_a_training_is_the_same_bit_by_bit_with_every_public_call(make: Callable[[], nn.Module]) -> None:
    alone = trained(make, "")
    assert {call: found for call in CALLS if (found := differing(alone, trained(make, call)))} == {}


WRAPPERS = [nn.parallel.DistributedDataParallel, fully_shard]


@pytest.mark.parametrize("wrap", WRAPPERS, ids=["replicated", "sharded"])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("process_group")
def test_a_distributed_training_is_the_same_bit_by_bit_with_every_public_call(wrap: Callable[[Any], Any]) -> None:
    make = inner if wrap is not fully_shard else layers
    alone = trained(make, "", wrap)
    found = {call: differing(alone, trained(make, call, wrap)) for call in CALLS}
    assert {call: paths for call, paths in found.items() if paths} == {}


class Unequal(nn.Linear):
    """Counts how often it is compared or hashed, and is equal to every other."""

    asked = 0

    def __eq__(self, other: object) -> bool:
        type(self).asked += 1
        return True

    def __hash__(self) -> int:
        type(self).asked += 1
        return 1


@pytest.mark.parametrize("is_known", [False, True])
def test_no_module_is_compared_or_hashed_and_equal_ones_stay_apart(is_known: bool) -> None:
    layers = nn.ModuleList([Unequal(3, 3), Unequal(3, 3)])
    Unequal.asked = 0
    with gradir.record(layers if is_known else None, flow=True, sources=True) as rec:
        loss = layers[1](layers[0](torch.ones(1, 3))).sum()
    graphs = [rec.capture(loss), rec.forward()]
    rec.forget_others(loss)
    assert Unequal.asked == 0
    names = ["0", "1"] if is_known else ["Unequal", "Unequal_2"]
    for graph in [*graphs, rec.capture(loss)]:
        functions = {node.scope for node in graph.nodes.values() if node.role == "function"}
        assert {scope: graph.scopes[scope].calls for scope in functions - {""}} == dict.fromkeys(names, 1)


class Computing(Mapping[str, Any]):
    """Keeps tensors in a dict, and runs code of its own to give them."""

    def __init__(self, **values: Any) -> None:
        self.values_by_name = values

    def refuse(self, *names: object) -> Any:
        raise AssertionError("called what the mapping does")

    __getitem__ = __iter__ = __len__ = items = keys = values = refuse


def test_no_method_of_a_mapping_runs() -> None:
    x = torch.ones(2, requires_grad=True)
    for wrap in (lambda found: found, MappingProxyType):
        graph = gradir.capture(wrap(Computing(loss=x.exp(), other=[x.sin()])))
        assert [node.id for node in graph.nodes.values() if node.role == "output"] == ["output:loss", "output:other.0"]


class Wrapping(torch.Tensor):
    """Wraps a tensor, and says so by code of its own."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> torch.Tensor:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> Any:
        raise AssertionError("called what the tensor does")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain, named = torch.utils._pytree.tree_map_only(cls, lambda tensor: tensor.inner, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, cls, func(*plain, **named))


def test_no_method_of_a_tensor_that_wraps_another_runs() -> None:
    memory = torch.ones(3)
    with gradir.record(flow=True) as rec:
        Wrapping(memory).mul_(2)
        Wrapping(memory).exp()
    assert "exp:1(mul_:1)" in describe_wiring(rec.forward())


class Listed(list[Any]):
    iterated = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).iterated += 1
        return super().__iter__()


def test_a_list_that_torch_takes_is_iterated_no_more_often() -> None:
    entries = Listed([torch.ones(()), 2.0])
    torch.as_tensor(entries)
    alone, Listed.iterated = Listed.iterated, 0
    with gradir.record(flow=True) as rec:
        torch.as_tensor(entries)
    assert Listed.iterated == alone
    assert "as_tensor:1(input:1)" in describe_wiring(rec.forward())
