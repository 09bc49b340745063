"""Advice for what happened: by operation, custom Function, hook, number format, loop, clipping, and error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.vocabulary.operations import FUNCTIONS, advice_on_error  # noqa: E402

nn, functional = torch.nn, torch.nn.functional
Tensor = torch.Tensor
x = torch.linspace(-1, 1, 12).reshape(4, 3)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def explained(model: Any, run: Callable[[], Tensor], **options: Any) -> gradir.Explanation:
    with gradir.record(model, flow=True) as recorder:
        loss = run()
    return recorder.explain(loss, **options)


@pytest.fixture
def group() -> Iterator[Any]:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


def gathered(dist: Any, y: Tensor) -> Tensor:
    parts = [torch.zeros_like(y)]
    dist.all_gather(parts, y)
    return torch.cat(parts)


def gathered_into(dist: Any, y: Tensor) -> Tensor:
    whole = torch.empty_like(y)
    dist.all_gather_into_tensor(whole, y)
    return whole


def scattered(dist: Any, y: Tensor) -> Tensor:
    part = torch.empty_like(y)
    dist.reduce_scatter_tensor(part, y)
    return part


def gathered_with_a_gradient(dist: Any, y: Tensor) -> Tensor:
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(y, dist.group.WORLD))


def with_the_own_part(dist: Any, y: Tensor) -> Tensor:
    parts = [torch.zeros_like(y)]
    dist.all_gather(parts, y)
    parts[0] = y
    return torch.cat(parts)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("collective", "op"),
    [
        (gathered, "all_gather"),
        # Newer releases call another function by these names.
        (gathered_into, "all_gather_"),
        (scattered, "reduce_scatter_"),
        (gathered_with_a_gradient, ""),
        (with_the_own_part, ""),
    ],
)
def test_a_collective_without_a_backward(group: Any, collective: Callable[..., Tensor], op: str) -> None:
    model = nn.Linear(3, 2)
    with gradir.record(model, flow=True) as recorder:
        loss = collective(group, model(x)).pow(2).sum()
    report = recorder.explain(loss)
    if loss.requires_grad:
        loss.backward()
    assert (model.weight.grad is None) == bool(op)
    assert report.level == ("error" if op else "none")
    if op:
        (cause,) = report.causes
        assert cause.op.startswith(op)
        assert cause.text == f"{cause.op} has no backward, which cuts weight, bias"
        assert "torch.distributed.nn.functional" in cause.advice
        assert "gathered[rank] = x" in cause.advice


@pytest.mark.parametrize(
    ("run", "op", "advice"),
    [
        (lambda y: y.long(), "long", "use a float"),
        (lambda y: y.int(), "int", "use a float"),
        (lambda y: y.bool(), "bool", "use a float"),
        (lambda y: y.to(torch.int64), "to", "use a float"),
        (lambda y: y > 0, "gt", "torch.sigmoid((a - b)"),
        (lambda y: y <= 0.5, "le", "torch.sigmoid((a - b)"),
        (lambda y: y.argmax(1), "argmax", "gumbel_softmax(hard=True)"),
        (lambda y: functional.one_hot(y.argmin(1), 2), "argmin", "gumbel_softmax(hard=True)"),
        (lambda y: y.topk(1, 1).indices, "topk", "values that topk returns"),
        (lambda y: y.sort(1)[1], "sort", "values that sort returns"),
        (lambda y: y.histc(4), "histc", "count softly"),
        (lambda y: torch.multinomial(y.softmax(1), 1), "multinomial", "loss of log_prob()"),
        (lambda y: torch.normal(y, 1.0), "normal", "randn_like"),
        (lambda y: y.round(), "round", "x + (round(x) - x).detach()"),
        (lambda y: y.sign(), "sign", "tanh"),
        (lambda y: torch.bernoulli(y.sigmoid()), "bernoulli", "p + (sample - p).detach()"),
    ],
)
def test_each_operation_has_advice_of_its_own(run: Callable[[Tensor], Tensor], op: str, advice: str) -> None:
    model = nn.Linear(3, 2)
    report = explained(model, lambda: run(model(x)).float().sum())
    (cause, *_) = (cause for cause in report.causes if cause.level == "error")
    assert cause.op == op
    assert advice in cause.advice


class Quantise(torch.autograd.Function):
    """Returns nothing for the step."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, step: Tensor) -> Tensor:
        return torch.round(x / step) * step

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class Kill(torch.autograd.Function):
    """Returns zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, step: Tensor) -> Tensor:
        return x * step

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, torch.zeros(())


class Divide(Kill):
    """Returns infinities."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad.sum() / 0


class Listed(torch.autograd.Function):
    """Takes its tensors in a list, in which autograd does not see them."""

    @staticmethod
    def forward(ctx: Any, tensors: list[Tensor]) -> Tensor:
        return tensors[0] * tensors[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


@pytest.mark.parametrize(
    ("run", "kind", "status"),
    [
        (lambda y, step: Quantise.apply(y, step) + y, "withheld", "cut"),
        (lambda y, step: Kill.apply(y, step) + y, "given_zero", "zero"),
        (lambda y, step: Divide.apply(y, step) + y, "nonfinite", "nonfinite"),
        (lambda y, step: Listed.apply([y, step]) + y, "nondifferentiable", "cut"),
    ],
)
def test_a_custom_function_is_called_by_its_class(
    run: Callable[[Tensor, Tensor], Tensor], kind: str, status: str
) -> None:
    model, step = nn.Linear(3, 2), nn.Parameter(torch.tensor(0.5))
    report = explained(model, lambda: run(model(x), step).sum(), params={"step": step})
    assert report.status("step") == status
    (cause,) = (cause for cause in report.causes if "step" in cause.names)
    name = run.__code__.co_names[0]  # type: ignore[attr-defined]
    assert (cause.kind, cause.op) == (kind, name)
    assert cause.advice == FUNCTIONS[kind][1].format(op=name)
    assert cause.source is not None


@pytest.mark.parametrize(
    ("hook", "kind"),
    [
        (lambda grad: grad * 0, "hooked"),
        (lambda grad: grad / 0, "hook_nonfinite"),
        (lambda grad: grad.log() * 0, "hook_nonfinite"),
    ],
)
def test_a_hook_is_to_be_checked_and_no_input(hook: Callable[[Tensor], Tensor], kind: str) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))

    def run() -> Tensor:
        hidden = model[0](x)
        hidden.register_hook(hook)
        return model[1](hidden).sum()

    (cause,) = explained(model, run).causes
    assert (cause.kind, cause.level) == (kind, "error")
    assert cause.advice.startswith("check what the hook returns")


@pytest.mark.parametrize(
    "run",
    [
        lambda p: (p * 1e-4 * 1e-4).sum(),
        lambda p: (p.float() * 1e-9).sum(),
        lambda p: (p.reshape(1, 2) @ torch.full((2, 1), 1e-4, dtype=torch.float16) * 1e-4).sum(),
    ],
)
def test_a_float16_underflow_advises_a_grad_scaler(run: Callable[[Tensor], Tensor]) -> None:
    p = nn.Parameter(torch.ones(2, dtype=torch.float16))
    (cause,) = explained(None, lambda: run(p), params={"p": p}).causes
    assert (cause.kind, cause.level) == ("underflow", "error")
    assert "GradScaler" in cause.advice
    assert not torch.autograd.grad(run(p), p)[0].any()
    # Scaled, as a GradScaler does, it arrives.
    assert torch.autograd.grad(run(p) * 1024.0 * 64, p)[0].any()


def test_a_factor_of_zero_is_no_underflow_and_no_overflow_is_no_domain() -> None:
    p = nn.Parameter(torch.ones(2, dtype=torch.float16))
    zero = torch.zeros(2, dtype=torch.float16)
    (cause,) = explained(None, lambda: (p * zero * 1e-4).sum(0), params={"p": p}).causes
    assert cause.kind == "factor"
    (cause,) = explained(None, lambda: (p * 300 * 300).sum().float(), params={"p": p}).causes
    assert (cause.kind, cause.level) == ("overflow", "error")
    assert "bfloat16" in cause.advice


def powers(w: Tensor) -> Tensor:
    h = w * 3
    for _ in range(8):
        h = h.pow(2)
    return h.sum()


def product(w: Tensor) -> Tensor:
    matrix, h = torch.eye(3) * 50 * w, torch.ones(3)
    for _ in range(40):
        h = matrix @ h
    return h.sum()


def cell(w: Tensor) -> Tensor:
    rnn = nn.RNN(3, 3, nonlinearity="relu")
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(torch.eye(3) * 100)
    return rnn(torch.ones(30, 1, 3) * w)[0].sum()


@pytest.mark.parametrize("run", [powers, product, cell])
def test_a_loop_that_explodes_is_to_be_tamed(run: Callable[[Tensor], Tensor]) -> None:
    w = nn.Parameter(torch.ones(1))
    report = explained(None, lambda: run(w), params={"w": w})
    assert report.status("w") == "nonfinite"
    kinds = {cause.kind for cause in report.causes}
    assert kinds == {"exploding"}
    (cause, *_) = report.causes
    assert "gated cell" in cause.advice
    assert "times in this line" in cause.text


def test_a_root_of_zero_in_a_loop_is_no_explosion() -> None:
    w = nn.Parameter(torch.zeros(1))

    def run() -> Tensor:
        return sum((w * k).sqrt().sum() for k in range(1, 9))  # type: ignore[return-value]

    assert {cause.kind for cause in explained(None, run, params={"w": w}).causes} == {"nonfinite"}


@pytest.mark.parametrize(
    "clip",
    [
        lambda weights: nn.utils.clip_grad_norm_(weights, 0.0),
        lambda weights: nn.utils.clip_grad_value_(weights, 0.0),
        lambda weights: nn.utils.clip_grad_norm_([*weights, unbounded()], 1.0),
        lambda weights: [weight.grad.mul_(0) for weight in weights],
    ],
)
def test_clipping_to_nothing_is_an_error_at_its_line(clip: Callable[[list[Tensor]], object]) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = model.weight.detach().clone()
    with gradir.record(model, flow=True) as recorder:
        loss = model(x).pow(2).sum()
        loss.backward()
        clip([*model.parameters()])
        optimizer.step()
    assert torch.equal(before, model.weight)
    (cause,) = recorder.explain(loss, optimizer=optimizer).causes
    assert (cause.kind, cause.level, cause.names) == ("clipped", "error", ("weight", "bias"))
    assert cause.source is not None
    assert "error_if_nonfinite=True" in cause.advice


def unbounded() -> Tensor:
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.full((1,), float("inf"))
    return weight


def test_clipping_as_usual_and_a_part_that_is_kept_from_learning_are_no_errors() -> None:
    model = nn.Linear(3, 2)
    for clip, level in (
        (lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.1), "none"),
        (lambda: model.bias.grad.mul_(0), "info"),
    ):
        model.zero_grad()
        with gradir.record(model, flow=True) as recorder:
            loss = model(x).pow(2).sum()
            loss.backward()
            clip()
        assert recorder.explain(loss).level == level


class Branches(nn.Module):
    """Runs one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.left = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


def test_ddp_names_the_module_that_the_iteration_before_left_out(group: Any) -> None:
    model = nn.parallel.DistributedDataParallel(Branches())
    left = ("module.left.weight", "module.left.bias")
    report = explained(model, lambda: model(x).sum())
    assert [(cause.kind, cause.level, cause.names) for cause in report.causes] == [("ddp_unused", "error", left)]
    model(x).sum().backward()
    with gradir.record(model, flow=True) as recorder, pytest.raises(RuntimeError, match="prior iteration") as raised:
        model(x)
    (cause,) = recorder.explain(raised.value).causes
    assert (cause.kind, cause.level, cause.names) == ("ddp_unused", "error", left)
    assert "find_unused_parameters=True" in cause.advice
    patient = nn.parallel.DistributedDataParallel(Branches(), find_unused_parameters=True)
    assert "ddp_unused" not in {cause.kind for cause in explained(patient, lambda: patient(x).sum()).causes}


def leaf_in_place(model: Any) -> None:
    model.weight += 1


def twice(model: Any) -> None:
    loss = model(x).pow(2).sum()
    loss.backward()
    loss.backward()


@pytest.mark.parametrize(
    "fails",
    [
        lambda model: model(x).numpy(),
        lambda model: model(x).backward(),
        leaf_in_place,
        twice,
        lambda model: model(x).sum().detach().backward(),
        lambda model: model(torch.ones(4, 2)),
        lambda model: model(x.double()),
        lambda model: x.long().requires_grad_(),
        lambda model: functional.cross_entropy(model(x), torch.tensor([0, 1, 2, 5])),
        lambda model: functional.binary_cross_entropy(model(x) + 2, torch.ones(4, 2)),
        lambda model: torch.autograd.grad(model(x).sum(), x),
        lambda model: model(x).unbind(1)[0].add_(1),
    ],
)
def test_an_error_of_torch_has_advice(fails: Callable[[Any], object]) -> None:
    model = nn.Linear(3, 2)
    with gradir.record(model, flow=True) as recorder, pytest.raises((RuntimeError, IndexError)) as raised:
        fails(model)
    (cause,) = recorder.explain(raised.value).causes
    assert cause.advice == advice_on_error(cause.detail) != ""
