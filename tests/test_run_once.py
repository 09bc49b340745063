"""Functions whose backward runs only once: refused before anything runs, or run and put back."""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict, defaultdict, deque
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked
import pytest

torch = pytest.importorskip("torch")

from tensors import leaf, shows_saved  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError, GradirWarning  # noqa: E402

nn = torch.nn


class Holding(torch.autograd.Function):
    """Keeps its state as attributes, and lets `used` take it away in backward."""

    @staticmethod
    def forward(ctx, x, used):
        ctx.x, ctx.stack, ctx.names, ctx.used = x.detach(), [x.detach()], {"x": [x.detach()]}, used
        ctx.bag = SimpleNamespace(x=x.detach(), count=0)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.bag.count += 1
        return gradient * 2 + 0 * ctx.used(ctx), None


def deletes(ctx: Any) -> Any:
    x = ctx.x
    del ctx.x
    return x


def sets_to_none(ctx: Any) -> Any:
    x, ctx.x = ctx.x, None
    return x * 1


def pops(ctx: Any) -> Any:
    return ctx.stack.pop()


def empties_what_is_nested(ctx: Any) -> Any:
    (x,) = ctx.names["x"]
    ctx.names["x"].clear()
    ctx.names.clear()
    return x


def clears_an_object(ctx: Any) -> Any:
    x = ctx.bag.x
    ctx.bag.x = None
    return x


@pytest.mark.parametrize("used", [deletes, sets_to_none, pops, empties_what_is_nested, clears_an_object])
def test_attributes_that_a_backward_consumes_are_restored(used: Any) -> None:
    x = leaf(2)
    out = Holding.apply(x, used).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gradir.verify(out).mismatches == ()
        assert gradir.verify(out).mismatches == ()
    out.backward(retain_graph=True)
    assert x.grad.tolist() == [2.0, 2.0]
    with pytest.raises((AttributeError, TypeError, IndexError, KeyError)):
        out.backward()


def test_a_failed_backward_restores_consumed_attributes() -> None:
    x = leaf(2)
    out = Holding.apply(x.exp(), deletes)
    x.register_hook(lambda _: 1 / 0)
    with pytest.raises(CaptureError, match="which failed: ZeroDivisionError"):
        gradir.verify(out.sum())
    assert set(vars(out.grad_fn)) == {"x", "stack", "names", "used", "bag"}


def test_a_tensor_that_backward_changes_is_reported() -> None:
    out = Holding.apply(leaf(2), lambda ctx: ctx.x.add_(1)).sum()
    with pytest.warns(GradirWarning, match="changed tensors that holding:1 kept: run the forward again before a back"):
        assert gradir.verify(out).mismatches == ()


def test_ordered_and_default_dicts_are_put_back() -> None:
    def clears(ctx: Any) -> Any:
        x = ctx.ordered["x"][0]
        ctx.ordered.clear()
        ctx.stacks["x"].pop()
        return x

    out = Holding.apply(leaf(2), clears)
    fn = out.grad_fn
    fn.ordered = OrderedDict(x=deque([torch.ones(2)]), y=1)
    fn.stacks = defaultdict(list, x=[1])
    assert gradir.verify(out).mismatches == ()
    assert list(fn.ordered) == ["x", "y"]
    assert fn.stacks == {"x": [1]}


class Freeing(torch.autograd.Function):
    """Frees its output's storage, as layers do that compute it again."""

    @staticmethod
    def forward(ctx, x):
        ctx.y = x.detach() * 2
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        give_back(ctx.y)
        return gradient * 2


def give_back(tensor: Any) -> None:
    tensor.untyped_storage().resize_(0)


class ReadsOnce(torch.autograd.Function):
    clear_saved_tensors_on_access = True

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 + 0 * x


LEAVES_NONE = (
    ", so that verifying would leave no graph for a backward of your own: {}verify with keep_graph=False, which uses "
    "the graph up"
)
ONCE = [(Freeing, "freeing:1: frees storages in its backward")]
if hasattr(torch.autograd.Function, "clear_saved_tensors_on_access"):
    ONCE.append(
        (ReadsOnce, "reads_once:1: has clear_saved_tensors_on_access, and can read its saved tensors only once")
    )


@pytest.mark.parametrize(("function", "why"), ONCE)
def test_verify_refuses_a_single_use_backward_before_it_runs(function: Any, why: str) -> None:
    x = leaf(2)
    out = function.apply(x).sum()
    with pytest.raises(CaptureError) as caught:
        gradir.verify(out)
    assert str(caught.value) == why + LEAVES_NONE.format("")
    out.backward()
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(("function", "why"), ONCE)
def test_a_single_use_backward_is_verified_without_keep_graph(function: Any, why: str) -> None:
    x = leaf(2)
    out = function.apply(x).exp().sum()
    assert gradir.verify(out, keep_graph=False).mismatches == ()
    assert x.grad is None
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def selective(model: nn.Module, x: Any) -> Any:
    from torch.utils import checkpoint

    if not hasattr(checkpoint, "create_selective_checkpoint_contexts"):
        pytest.skip("this torch has no selective checkpoint")
    chosen = partial(checkpoint.create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    return checkpoint.checkpoint(model, x, use_reentrant=False, context_fn=chosen)


@shows_saved
def test_a_selective_checkpoint_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    x = leaf(1, 2)
    with gradir.record(model) as rec:
        out = selective(model, x).sum()
    with pytest.raises(CaptureError) as caught:
        rec.verify(out)
    assert str(caught.value) == (
        "0/addmm:1: lies in a region of selective activation checkpointing, which runs backward once"
        + LEAVES_NONE.format("")
    )
    out.backward()
    assert x.grad is not None
    again = selective(model, x).sum()
    assert gradir.verify(again, model=model, keep_graph=False).mismatches == ()


def test_a_checkpoint_that_is_not_selective_is_verified_and_kept() -> None:
    from torch.utils.checkpoint import checkpoint

    model, x = nn.Linear(2, 2), leaf(1, 2)
    out = checkpoint(model, x, use_reentrant=False).sum()
    assert gradir.verify(out, model=model).mismatches == ()
    out.backward()
    assert x.grad is not None


def test_a_compiled_part_with_donated_buffers_is_refused() -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.LayerNorm(4))
    compiled = torch.compile(model, backend="aot_eager")
    if not torch._functorch.config.donated_buffer:
        pytest.skip("this torch donates no buffers unless asked to")
    x = leaf(3, 4)
    # What backward compiles for its first run may keep what it uses only where that run does.
    compiled(x).sum().backward()
    model.zero_grad()
    out = compiled(x).sum()
    with pytest.raises(CaptureError) as caught:
        gradir.verify(out, model=model)
    assert str(caught.value) == (
        "compiled_function:1: was compiled with donated buffers, which its backward can use once"
        + LEAVES_NONE.format("set torch._functorch.config.donated_buffer = False before compiling, or ")
    )
    out.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert gradir.verify(compiled(x).sum(), model=model, keep_graph=False).mismatches == ()
    with torch._functorch.config.patch(donated_buffer=False):
        out = compiled(x).sum()
        assert gradir.verify(out, model=model).mismatches == ()
        out.backward()


PROGRAM = """
import torch

class ReadsOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.detach() * 2
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.y.untyped_storage().resize_(0)
        return gradient * 2

def loss():
    return ReadsOnce.apply(torch.ones(2, requires_grad=True)).sum()
"""


def test_the_command_verifies_a_single_use_graph(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text(PROGRAM)
    command = ["capture", "once.py:loss", "--verify", "-o", "once.gir"]
    done = forked.run([sys.executable, "-m", "gradir", *command], cwd=tmp_path, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[0] == "verified once.py:loss: 3 functions, 3 edges, 3 executed, 0 mismatches"
