"""Models with a backward inside a backward. For test modules that know that torch is there."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class WithUnused(nn.Module):
    """A model of these modules, and of one that it does not use."""

    def __init__(self, **modules: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, module in {**modules, "unused": nn.Linear(2, 2)}.items():
            setattr(self, name, module)


class Reversible(torch.autograd.Function):
    """Two residual halves, of which backward computes the inputs again from the outputs."""

    @staticmethod
    def forward(ctx, a, b, f, g):
        ctx.f, ctx.g = f, g
        with torch.no_grad():
            y = a + f(b)
            z = b + g(y)
        ctx.save_for_backward(y, z)
        return y, z

    @staticmethod
    def backward(ctx, dy, dz):
        y, z = ctx.saved_tensors
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            gy = ctx.g(y)
        torch.autograd.backward(gy, dz)
        dy = dy + y.grad
        with torch.no_grad():
            b = z - gy
        with torch.enable_grad():
            b = b.detach().requires_grad_()
            fb = ctx.f(b)
        torch.autograd.backward(fb, dy)
        return dy, dz + b.grad, None, None


class Reversed(nn.Module):
    def __init__(self, f: nn.Module | None = None) -> None:
        super().__init__()
        self.f = nn.Linear(2, 2) if f is None else f
        self.g = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        self.head = nn.Linear(4, 1)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(torch.cat(Reversible.apply(x, x * 2, self.f, self.g), 1))


class Halves(nn.Module):
    """A reversible layer as one half of another."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x):
        return torch.cat(Reversible.apply(x[:, :1], x[:, 1:], self.f, self.g), 1)


class Adjoint(torch.autograd.Function):
    """Euler's method, with the gradient of its parameters from a second solution backwards in time."""

    @staticmethod
    def forward(ctx, field, steps, x, *params):
        ctx.field, ctx.steps = field, steps
        with torch.no_grad():
            for _ in range(steps):
                x = x + field(x) / steps
        ctx.save_for_backward(x, *params)
        return x

    @staticmethod
    def backward(ctx, gradient):
        x, *params = ctx.saved_tensors
        total = [torch.zeros_like(parameter) for parameter in params]
        for _ in range(ctx.steps):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                change = ctx.field(x) / ctx.steps
            found = torch.autograd.grad(change, [x, *params], gradient)
            gradient = gradient + found[0]
            total = [old + new for old, new in zip(total, found[1:], strict=True)]
            x = x - change
        return None, None, gradient, *total


class Solved(WithUnused):
    def forward(self, x):
        return Adjoint.apply(self.field, 3, x, *self.field.parameters()) * 2


class Kernel(torch.autograd.Function):
    """Attention by random features, whose backward computes the features again."""

    @staticmethod
    def forward(ctx, owner, q, k, v):
        ctx.owner = owner
        ctx.save_for_backward(q, k, v)
        with torch.no_grad():
            return owner.attend(q, k, v)

    @staticmethod
    def backward(ctx, gradient):
        again = [saved.detach().requires_grad_() for saved in ctx.saved_tensors]
        with torch.enable_grad():
            out = ctx.owner.attend(*again)
        out.backward(gradient)
        return None, *(tensor.grad for tensor in again)


class Features(WithUnused):
    def attend(self, q, k, v):
        q, k = (q @ self.projection).exp(), (k @ self.projection).exp()
        return q @ (k.T @ v) / (q @ k.sum(0, keepdim=True).T)

    def forward(self, x):
        return Kernel.apply(self, *self.qkv(x).chunk(3, 1))


class Equilibrium(WithUnused):
    """A fixed point, whose gradient a hook solves for with the graph of one more step."""

    def forward(self, x):
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(5):
                z = torch.tanh(self.step(z) + x)
        z = torch.tanh(self.step(z) + x)
        again = z.detach().requires_grad_()
        once_more = torch.tanh(self.step(again) + x)

        def solve(gradient):
            found = gradient
            for _ in range(5):
                found = torch.autograd.grad(once_more, again, found, retain_graph=True)[0] + gradient
            return found

        z.register_hook(solve)
        return z


class OwnGraph(WithUnused):
    """A hook that takes the gradient of the very graph it stands in, root included."""

    def forward(self, x):
        hidden = self.fc(x)
        out = hidden.tanh().exp()
        runs: list[torch.Tensor] = []

        def ask(gradient):
            runs.append(gradient)
            if len(runs) % 2:
                torch.autograd.grad(out, hidden, gradient, retain_graph=True)

        out.register_hook(ask)
        return out


class Penalised(WithUnused):
    def forward(self, x):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.critic(x).sum(), x, create_graph=True)
        return gradient.square().sum() + self.critic(x).sum()


class Checkpointed(WithUnused):
    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return self.head(checkpoint(self.body, x.clone().requires_grad_(), use_reentrant=True))


class Conditional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: self.left(y).sin(), lambda y: self.right(y).cos(), (x,))


class Deep(torch.autograd.Function):
    """Runs itself inside its backward, deeper than the engine nests backwards in one thread."""

    @staticmethod
    def forward(ctx, x, depth):
        ctx.save_for_backward(x)
        ctx.depth = depth
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            total = (Deep.apply(again, ctx.depth - 1) if ctx.depth else again * 2).sum()
        torch.autograd.grad(total, again)
        return gradient * 2, None


class Closed(nn.Module):
    """A Function that reaches its parameters through a closure, and a module through a global."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(2))
        self.other = nn.Linear(2, 2)

    def forward(self, x):
        weight = self.weight

        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.detach() @ weight.detach()

            @staticmethod
            def backward(ctx, gradient):
                (x,) = ctx.saved_tensors
                with torch.enable_grad():
                    again = x.detach().requires_grad_()
                    out = again @ weight
                out.backward(gradient)
                return again.grad

        return Own.apply(x)


class KeptGraph(torch.autograd.Function):
    """Keeps a graph that forward made, and runs it in backward."""

    @staticmethod
    def forward(ctx, x, run):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = run(ctx.x)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, gradient):
        torch.autograd.backward(ctx.y, gradient, retain_graph=True)
        return ctx.x.grad, None


class Keeping(WithUnused):
    def forward(self, x):
        weight, bias = self.fc.weight, self.fc.bias
        return KeptGraph.apply(x, lambda y: nn.functional.linear(y, weight, bias).sin())


UNUSED = {"unused.weight", "unused.bias"}


HALVES = {"f.weight", "f.bias", "g.0.weight", "g.0.bias"}


MODELS: dict[str, tuple[Callable[[], nn.Module], set[str], set[str]]] = {
    "reversible": (Reversed, HALVES, UNUSED),
    "reversible in reversible": (
        lambda: Reversed(Halves()),
        {"f.f.weight", "f.f.bias", "f.g.weight", "f.g.bias", "g.0.weight", "g.0.bias"},
        UNUSED,
    ),
    "adjoint": (lambda: Solved(field=nn.Sequential(nn.Linear(2, 2), nn.Tanh())), set(), UNUSED),
    # Its Function holds the whole module, and might use any of it.
    "features": (
        lambda: Features(qkv=nn.Linear(2, 6), projection=nn.Parameter(torch.eye(2))),
        {"projection", *UNUSED},
        set(),
    ),
    "equilibrium": (lambda: Equilibrium(step=nn.Linear(2, 2)), set(), UNUSED),
    "a hook on its own graph": (lambda: OwnGraph(fc=nn.Linear(2, 2)), set(), UNUSED),
    "penalty": (lambda: Penalised(critic=nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))), set(), UNUSED),
    "reentrant checkpoint": (
        lambda: Checkpointed(body=nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), head=nn.Linear(2, 1)),
        {f"body.{n}.{p}" for n in "01" for p in ("weight", "bias")},
        UNUSED,
    ),
    "closure": (Closed, {"weight"}, {"other.weight", "other.bias"}),
    "a graph kept": (lambda: Keeping(fc=nn.Linear(2, 2)), {"fc.weight", "fc.bias"}, UNUSED),
}
"""Each model with the parameters that are hidden, and those that are unreached."""
