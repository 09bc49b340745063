"""The line of an error that a forward raised, and of the operation by which a loss is no number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from marked_lines import find_marked_line  # noqa: E402
from torch import nn  # noqa: E402

import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402

X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.3, -0.7]])
Run = Callable[[Any], Any]


class Checked(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        assert x.shape[0] == 7, "a batch has seven rows"  # HERE
        return x


def an_assertion(m: nn.Module) -> torch.Tensor:
    hidden = m(X)
    assert not hidden.requires_grad, "no gradient is wanted"  # HERE
    return hidden


def a_key(m: nn.Module) -> torch.Tensor:
    outputs = {"logits": m(X)}
    return outputs["loss"]  # HERE


def after_another_error(m: nn.Module) -> torch.Tensor:
    try:
        m(X.t())
    except RuntimeError:
        hidden = m(X)
    raise ValueError(f"{len(hidden)} rows")  # HERE


def a_product(m: nn.Module) -> torch.Tensor:
    hidden = m(X)
    return hidden @ X.t()  # HERE


def in_a_module(m: nn.Module) -> torch.Tensor:
    return m(X)


@pytest.mark.parametrize(
    ("run", "kind", "at", "op"),
    [
        (an_assertion, nn.Linear, an_assertion, ""),
        (a_key, nn.Linear, a_key, ""),
        (after_another_error, nn.Linear, after_another_error, ""),
        (a_product, nn.Linear, a_product, "matmul"),
        (in_a_module, Checked, Checked, ""),
    ],
)
def test_an_error_of_the_forward_has_the_line_that_raised(run: Run, kind: type[nn.Linear], at: object, op: str) -> None:
    model = kind(3, 2)
    with pytest.raises((AssertionError, KeyError, RuntimeError, ValueError)) as raised:  # noqa: SIM117
        with gradir.record(model, flow=True) as rec:
            run(model)
    found = rec.explain(raised.value)
    (cause,) = found.causes
    assert (cause.kind, cause.level, cause.op, set(found.statuses.values())) == ("raised", "error", op, {"error"})
    assert cause.source is not None
    assert cause.source.line == find_marked_line(at)
    assert cause.text.startswith(f"{op or 'the program'} raised: {type(raised.value).__name__}: ")
    assert cause.advice


def test_a_program_without_a_line_that_ran_is_not_placed_in_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\nplain = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 1))\n\n\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.plain = plain\n\n"
        "    def forward(self, x):\n        return self.plain(x)\n"
    )
    for name, where in (("plain", ""), ("Net", "\n  --> net.py:12 in Net.forward\n")):
        assert main(["explain", f"net.py:{name}", "--input", "float32[2,3]"]) == 1
        said = capfd.readouterr().out
        assert where in said if where else "-->" not in said
        assert "explain_command" not in said
        # torch 2.15 names the operation.
        assert "linear raised: RuntimeError: mat1 and mat2 shapes" in said.replace("addmm: ", "")


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x


class Unpacks(Square):
    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        x, factor = ctx.saved_tensors  # HERE
        return grad * factor * x


class ReturnsTwo(Square):
    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, ctx.saved_tensors[0]


class ReturnsNumber(Square):
    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return (grad * ctx.saved_tensors[0]).sum().expand(5)


def squared(m: nn.Module, kind: type[Square]) -> torch.Tensor:
    return kind.apply(m(X)).sum()  # HERE


@pytest.mark.parametrize(("kind", "at"), [(Unpacks, Unpacks), (ReturnsTwo, squared), (ReturnsNumber, squared)])
def test_an_error_of_the_backward_of_a_function_has_a_line(kind: type[Square], at: object) -> None:
    model = nn.Linear(3, 2)
    with gradir.record(model, flow=True) as rec:
        loss = squared(model, kind)
    found = rec.explain(loss)
    with pytest.raises((RuntimeError, ValueError)) as raised:
        loss.backward()
    (cause,) = found.causes
    assert (cause.kind, cause.level, set(found.statuses.values())) == ("raised", "error", {"error"})
    assert cause.source is not None
    assert cause.source.line == find_marked_line(at)
    assert cause.text.startswith(f"the backward raised: {type(raised.value).__name__}: ")


def written_after_a_function(m: nn.Module) -> torch.Tensor:
    hidden = m(X)
    total = Square.apply(hidden).sum()
    hidden += 1  # HERE
    return total + hidden.sum()


def test_a_write_to_what_a_custom_function_saved_is_named() -> None:
    model = nn.Linear(3, 2)
    with gradir.record(model, flow=True) as rec:
        loss = written_after_a_function(model)
    (cause,) = rec.explain(loss).causes
    assert (cause.kind, cause.op) == ("inplace", "add_")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(written_after_a_function)
    assert cause.detail.startswith("Square at ")


def floored(m: nn.Module) -> torch.Tensor:
    hidden = m(X)
    return (hidden // 2).sum()  # HERE


def stepped(m: nn.Module) -> torch.Tensor:
    hidden = torch.heaviside(m(X), torch.zeros(()))  # HERE
    return hidden.sum()


@pytest.mark.parametrize("run", [floored, stepped])
def test_an_operation_without_a_derivative_is_reported_with_its_line(run: Run) -> None:
    model = nn.Linear(3, 2)
    with gradir.record(model, flow=True) as rec:
        loss = run(model)
    with pytest.raises(RuntimeError, match="is not implemented"):
        loss.backward(retain_graph=True)
    (cause,) = rec.explain(loss).causes
    assert (cause.kind, cause.op, cause.level) == ("raised", "the backward", "error")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(run)


def divided_by_its_sum(x: torch.Tensor) -> torch.Tensor:
    x = (x - 100).relu()
    x = x / x.sum(-1, keepdim=True)  # HERE
    return x.square().mean()


def the_mean_of_nothing(x: torch.Tensor) -> torch.Tensor:
    chosen = x[x > 100]
    return chosen.mean()  # HERE


def divided_by_a_count(x: torch.Tensor) -> torch.Tensor:
    is_valid = (x > 100).float().detach()
    x = (x * is_valid).relu()
    return x.sum() / is_valid.sum()  # HERE


def the_logarithm_of_nothing(x: torch.Tensor) -> torch.Tensor:
    x = (x - 100).relu()
    return x.sum().log()  # HERE


@pytest.mark.parametrize(
    ("run", "op"),
    [
        (divided_by_its_sum, "div"),
        (the_mean_of_nothing, "mean"),
        (the_logarithm_of_nothing, "log"),
        (divided_by_a_count, "div"),
    ],
)
def test_a_loss_that_is_no_number_is_reported_at_the_operation_that_made_it_so(run: Run, op: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    with gradir.record(model, flow=True) as rec:
        loss = run(model(X))
    found = rec.explain(loss)
    loss.backward()
    assert not torch.isfinite(loss)
    assert not any(p.grad.any() for p in model.parameters())
    assert set(found.statuses.values()) == {"zero"}
    (cause,) = found.causes
    assert (cause.kind, cause.op, cause.level) == ("undefined", op, "error")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(run)
    assert cause.detail


def test_the_gradient_of_a_sparse_matrix_is_explained() -> None:
    for matrix in (torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse()):
        sparse, dense = matrix.requires_grad_(), torch.randn(3, 3, requires_grad=True)
        with gradir.record(flow=True) as rec:
            loss = torch.sparse.mm(sparse, dense).sum()
        found = rec.explain(loss, params={"sparse": sparse, "dense": dense})
        assert (found.statuses, found.level) == ({"sparse": "reached", "dense": "reached"}, "none")
