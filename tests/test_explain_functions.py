"""What custom Functions and reentrant checkpoints do to the gradient of what they take, and of what runs in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from marked_lines import find_marked_line  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402

X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.3, -0.7]])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).tanh()


@pytest.fixture
def model() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"block": Block(), "head": nn.Linear(3, 2)})


BLOCK = ("block.inner.weight", "block.inner.bias")


def explained(model: nn.Module, run: Callable[[Any], torch.Tensor], **more: Any) -> Explanation:
    """The explanation of a loss; what it says to be reached or hidden is what a real backward gives a gradient."""
    with gradir.record(model, flow=True) as rec:
        loss = run(model)
    found = rec.explain(loss, **more)
    if loss.requires_grad:
        loss.backward()
    having = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert {name for name, status in found.statuses.items() if status in {"reached", "hidden"}} == having
    return found


def of_nothing(model: Any) -> torch.Tensor:
    hidden = checkpoint(model["block"], X, use_reentrant=True)  # HERE
    return model["head"](hidden).sum()


def of_nothing_in_the_end(model: Any) -> torch.Tensor:
    hidden = model["head"](X).detach()
    return checkpoint(model["block"], X + hidden.sum(), use_reentrant=True)  # HERE


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_reentrant_checkpoint_without_an_input_that_requires_grad_is_named(model: nn.ModuleDict) -> None:
    found = explained(model, of_nothing)
    assert {name: found.status(name) for name in BLOCK} == dict.fromkeys(BLOCK, "cut")
    (cause,) = found.causes
    assert (cause.kind, cause.level, cause.names) == ("checkpoint", "error", BLOCK)
    assert cause.source is not None
    assert (cause.source.line, cause.source.function) == (find_marked_line(of_nothing), "of_nothing")
    assert "use_reentrant=False" in cause.advice
    with gradir.record(model, flow=True) as rec:
        loss = of_nothing(model)
    (cut,) = (cut for cut in rec.capture(loss).cuts if cut.kind == "checkpoint")
    assert (cut.names, cut.op, cut.scope) == (BLOCK, "CheckpointFunction", "")


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_loss_that_such_a_checkpoint_gives_has_no_graph(model: nn.ModuleDict) -> None:
    found = explained(model, of_nothing_in_the_end)
    assert [(cause.kind, cause.level, cause.names) for cause in found.causes] == [
        ("detach", "error", ("head.weight", "head.bias")),
        ("checkpoint", "error", BLOCK),
    ]


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_of_several_such_checkpoints_each_is_reported_at_its_line() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"one": Block(), "other": Block(), "head": nn.Linear(3, 2)})

    def in_a_row(m: Any) -> torch.Tensor:
        hidden = checkpoint(m["one"], X, use_reentrant=True)  # HERE
        hidden = checkpoint(m["other"], hidden, use_reentrant=True)
        return m["head"](hidden).sum()

    def in_a_loop(m: Any) -> torch.Tensor:
        hidden = X
        for name in ("one", "other"):
            hidden = checkpoint(m[name], hidden, use_reentrant=True)  # HERE
        return m["head"](hidden).sum()

    names = {name: (f"{name}.inner.weight", f"{name}.inner.bias") for name in ("one", "other")}
    for run, expected in (
        (in_a_row, [(0, names["one"]), (1, names["other"])]),
        (in_a_loop, [(0, names["one"] + names["other"])]),
    ):
        model.zero_grad()
        causes = explained(model, run).causes
        assert {(cause.kind, cause.level) for cause in causes} == {("checkpoint", "error")}
        assert [
            (cause.source.line - find_marked_line(run), cause.names) for cause in causes if cause.source
        ] == expected


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_another_reached_parameter_excuses_a_checkpoint(model: nn.ModuleDict) -> None:
    found = explained(model, lambda m: of_nothing(m) + m["block"](X).sum())
    assert found.level == "none", str(found)
    optimizer = torch.optim.SGD(model["head"].parameters(), 0.1)
    model.zero_grad()
    assert explained(model, of_nothing, optimizer=optimizer).level == "none"


def test_a_checkpoint_that_gives_gradients_is_no_cut(model: nn.ModuleDict) -> None:
    found = explained(model, lambda m: checkpoint(m["block"], m["head"](X)[:, :1] + X, use_reentrant=True).sum())
    assert found.level == "none", str(found)
    assert {found.status(name) for name in BLOCK} == {"hidden"}
    model.zero_grad()
    assert explained(model, lambda m: m["head"](checkpoint(m["block"], X, use_reentrant=False)).sum()).level == "none"


class Marked(torch.autograd.Function):
    """Says that what it gives has no derivative."""

    @staticmethod
    def forward(ctx, x):
        result = x.sign()
        ctx.mark_non_differentiable(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def signs(model: Any) -> torch.Tensor:
    return model["head"](Marked.apply(model["block"](X))).square().sum()  # HERE


def test_a_function_that_says_it_has_no_derivative_is_named(model: nn.ModuleDict) -> None:
    found = explained(model, signs)
    (cause,) = found.causes
    assert (cause.kind, cause.level, cause.op, cause.names) == ("nondifferentiable", "error", "Marked", BLOCK)
    assert cause.source is not None
    assert cause.source.line == find_marked_line(signs)


class Largest(torch.autograd.Function):
    """Gives a value with a derivative, and a place without one."""

    @staticmethod
    def forward(ctx, x):
        value, place = x.max(1)
        ctx.mark_non_differentiable(place)
        ctx.save_for_backward(place)
        return value, place

    @staticmethod
    def backward(ctx, gradient, _):
        return gradient.unsqueeze(1).expand(-1, 3)


class StraightThrough(torch.autograd.Function):
    """Has the gradient of the identity."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_functions_that_give_gradients_are_no_cuts(model: nn.ModuleDict) -> None:
    def largest(m: Any) -> torch.Tensor:
        value, place = Largest.apply(m["block"](X))
        return m["head"](X * value.unsqueeze(1) * place.unsqueeze(1)).sum()

    assert explained(model, largest).level == "none"
    model.zero_grad()
    assert explained(model, lambda m: m["head"](StraightThrough.apply(m["block"](X))).sum()).level == "none"


class Both(torch.autograd.Function):
    """Gives two values, each of a weight of its own."""

    @staticmethod
    def forward(ctx, one, other):
        ctx.set_materialize_grads(False)
        return one * 2, other * 2

    @staticmethod
    def backward(ctx, of_one, of_other):
        return None if of_one is None else of_one * 2, None if of_other is None else of_other * 2


def test_an_unused_output_of_a_function_is_no_alarm() -> None:
    model = nn.ParameterDict({"one": torch.ones(3), "other": torch.ones(3)})
    found = explained(model, lambda m: Both.apply(m["one"], m["other"])[0].sum())
    assert [(cause.kind, cause.level, cause.names) for cause in found.causes] == [("unused", "info", ("other",))]


class Forgetful(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.saved_tensors[0], None  # HERE


class Dead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return torch.zeros_like(gradient)  # HERE


def forgetting(model: Any) -> torch.Tensor:
    hidden = model["block"](X).sum()
    scale = model["head"].bias.exp().sum()
    return Forgetful.apply(hidden, scale)


def killing(model: Any) -> torch.Tensor:
    return Dead.apply(model["block"](X)).sum() + model["head"](X).sum()


@pytest.mark.parametrize(
    ("run", "function", "kind", "names"),
    [(forgetting, Forgetful, "withheld", ("head.bias",)), (killing, Dead, "given_zero", BLOCK)],
)
def test_a_function_that_gives_nothing_back_is_named_with_the_line_that_returns(
    model: nn.ModuleDict,
    run: Callable[[Any], torch.Tensor],
    function: type[torch.autograd.Function],
    kind: str,
    names: tuple[str, ...],
) -> None:
    with gradir.record(model, flow=True) as rec:
        loss = run(model)
    found = rec.explain(loss)
    (cause,) = (cause for cause in found.causes if cause.kind == kind)
    assert (cause.names, cause.op, cause.level) == (names, function.__name__, "error")
    assert cause.source is not None
    assert (cause.source.line, cause.source.function) == (
        find_marked_line(function.backward),
        f"{function.__name__}.backward",
    )
    loss.backward()
    gradients = [model.get_parameter(name).grad for name in names]
    assert all(gradient is None if kind == "withheld" else not gradient.any() for gradient in gradients)


class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, shift: Any) -> Any:
        return x + shift

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if not ctx.needs_input_grad[0]:
            return None, None
        return gradient, None


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * (ctx.saved_tensors[0].abs() < 1)  # HERE


def test_of_several_returns_none_is_named_but_the_function(model: nn.ModuleDict) -> None:
    found = explained(model, lambda m: Shifted.apply(m["block"](X), m["head"].weight[:1]).sum())
    (cause,) = (cause for cause in found.causes if cause.kind == "withheld")
    assert (cause.op, cause.names, cause.level) == ("Shifted", ("head.weight",), "error")
    assert cause.source is not None
    assert cause.source.function == "Shifted.backward"


def test_a_function_whose_zeros_may_depend_on_its_input_is_no_alarm(model: nn.ModuleDict) -> None:
    with gradir.record(model, flow=True) as rec:
        loss = Clipped.apply(model["block"](X) + 5).sum()
    found = rec.explain(loss)
    loss.backward()
    assert not any(p.grad.any() for p in model["block"].parameters())
    (cause,) = (cause for cause in found.causes if cause.kind == "zero")
    assert (cause.op, cause.names, cause.level) == ("Clipped", BLOCK, "info")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(Clipped.backward)


@pytest.mark.parametrize(
    ("run", "op"),
    [
        (lambda m: torch.norm(m["block"](X), p=0), "linalg_vector_norm"),
        (lambda m: torch.linalg.vector_norm(m["block"](X), ord=0), "linalg_vector_norm"),
        (lambda m: torch.dist(m["block"](X), torch.zeros(2, 3), p=0), "dist"),
    ],
)
def test_a_function_of_torch_without_a_gradient_is_no_custom_function(
    model: nn.ModuleDict, run: Callable[[Any], torch.Tensor], op: str
) -> None:
    found = explained(model, run)
    assert [found.status(name) for name in BLOCK] == ["cut", "cut"]
    (cause,) = (cause for cause in found.causes if cause.kind == "no_derivative")
    assert (cause.op, cause.level, cause.names) == (op, "error", BLOCK)
    assert "custom Function" not in str(found)


@pytest.mark.parametrize("times", [2, 5])
def test_a_function_that_is_applied_in_several_lines_is_one_cause(model: nn.ModuleDict, times: int) -> None:
    weights = {f"w{number}": torch.randn(1, 3, requires_grad=True) for number in range(times)}
    first, second = weights["w0"], weights["w1"]

    def run(m: Any) -> torch.Tensor:
        x = Shifted.apply(m["block"](X), first)
        x = Shifted.apply(x, second)
        for weight in [*weights.values()][2:]:
            x = Shifted.apply(x, weight)
        return x.sum()

    found = explained(model, run, params=weights)
    (cause,) = (cause for cause in found.causes if cause.kind == "withheld")
    assert cause.names == tuple(weights)
    begin = run.__code__.co_firstlineno
    lines = [begin + 1, begin + 2, *[begin + 4] * (times > 2)]
    assert [int(place.rpartition(":")[2]) for place in cause.detail.split(" at ")[1].split(", ")] == lines
    assert "more error" not in found.verdict


def test_operations_of_one_line_without_gradients_are_one_cause(model: nn.ModuleDict) -> None:
    first, second = (torch.randn(3, 3, requires_grad=True) for _ in range(2))

    def run(m: Any) -> torch.Tensor:
        with torch.no_grad():
            hidden = (X @ first).tanh() @ second + 1
        return m["head"](hidden).sum()

    found = explained(model, run, params={"first": first, "second": second})
    (cause,) = (cause for cause in found.causes if cause.kind == "no_grad")
    assert (cause.names, cause.detail) == (("first", "second"), "")
    assert "more error" not in found.verdict


@pytest.mark.parametrize("name", ["Clamp", "Mul", "Round", "Spike", "Tanh", "Threshold"])
def test_a_function_of_the_program_is_no_operation_of_torch_whatever_it_is_called(name: str) -> None:
    members = {"forward": staticmethod(lambda ctx, x: ctx.save_for_backward(x) or x.gt(9).float())}
    members["backward"] = staticmethod(lambda ctx, gradient: gradient * (ctx.saved_tensors[0] > 9))
    layer, function = nn.Linear(2, 2), type(name, (torch.autograd.Function,), members)
    with gradir.record(layer, flow=True) as rec:
        loss = function.apply(layer(torch.ones(3, 2))).sum()
    cause = rec.explain(loss).causes[0]
    assert (cause.kind, cause.op, cause.names) == ("zero", name, ("weight", "bias"))


def test_a_function_with_an_empty_and_a_broken_gradient_is_named() -> None:
    broken = staticmethod(lambda _, gradient: (gradient.new_zeros(0, 3), gradient * torch.tensor([[1.0], [torch.nan]])))
    members = {"forward": staticmethod(lambda _, empty, x: x * 1), "backward": broken}
    layer, function = nn.Linear(3, 3), type("Broken", (torch.autograd.Function,), members)
    with gradir.record(layer, flow=True) as rec:
        loss = function.apply(torch.ones(0, 3, requires_grad=True), layer(X)).sum()
    cause = rec.explain(loss).causes[0]
    assert (cause.kind, cause.op, cause.names) == ("nonfinite", "Broken", ("weight", "bias"))


class Deaf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return 2 * ctx.saved_tensors[0]


class Hearing(Deaf):
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return 2 * ctx.saved_tensors[0] * sum(gradients)


@pytest.mark.parametrize("function", [Deaf, Hearing])
def test_a_backward_that_ignores_its_gradient_is_an_error(model: nn.ModuleDict, function: Any) -> None:
    with gradir.record(model, flow=True) as rec:
        hidden = function.apply(model["block"](X))
        loss = (hidden * 3).sum() + model["head"](X).sum()
        # The gradient of a loss is 1.
        alone = function.apply(model["block"](X).sum())
        summed = function.apply(model["block"](X)).sum()
    assert "error" not in {rec.explain(each).level for each in (alone, summed)}
    found = rec.explain(loss)
    assert [(cause.kind, cause.op, cause.names) for cause in found.causes if cause.level == "error"] == (
        [("ignores_gradient", "Deaf", BLOCK)] if function is Deaf else []
    )
    assert {found.status(name) for name in BLOCK} == {"wrong" if function is Deaf else "reached"}
    own = torch.autograd.grad(loss, [*model["block"].parameters()], retain_graph=True)
    true = torch.autograd.grad(model["block"](X).square().sum() * 3, [*model["block"].parameters()])
    assert all(torch.allclose(*each) for each in zip(own, true, strict=True)) == (function is Hearing)
