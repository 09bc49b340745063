"""A small transformer with edits that can be made alone or together: the truth of a merge is a capture of both."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

import gradir
from gradir.ir import Graph

WIDTH = 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.act: nn.Module = nn.GELU()
        self.drop: nn.Module = nn.Identity()
        self.cuts = False

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        y = y.detach() if self.cuts else y
        x = x + F.softmax(self.q(y) @ self.k(y).transpose(1, 2), -1) @ self.v(y)
        return x + self.drop(self.down(self.act(self.up(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.norm: nn.Module = nn.LayerNorm(WIDTH)
        self.head: nn.Module = nn.Linear(WIDTH, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks if hasattr(self, "blocks") else self.layers:
            x = block(x)
        return self.head(self.norm(x))


def _blocks(model: Model) -> nn.ModuleList:
    return model.blocks if hasattr(model, "blocks") else model.layers


def _rename(model: Model) -> None:
    model._modules = {"layers" if name == "blocks" else name: module for name, module in model._modules.items()}


def _freeze(model: Model) -> None:
    _blocks(model)[2].requires_grad_(requires_grad=False)


def _insert(model: Model) -> None:
    block = Block()
    block.act = nn.SiLU()
    _blocks(model).insert(0, block)


def _append(model: Model) -> None:
    block = Block()
    block.act = nn.Tanh()
    _blocks(model).append(block)


class Adapted(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.low, self.high = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2 * self.high(self.low(x))


def _set(number: int, name: str, made: Callable[[Block], object]) -> Callable[[Model], None]:
    # Counted from the end, so that a layer put in front shifts nothing.
    return lambda model: setattr(_blocks(model)[-number], name, made(_blocks(model)[-number]))


EDITS: dict[str, Callable[[Model], None]] = {
    "eps": lambda model: setattr(_blocks(model)[-3].norm, "eps", 1e-6),
    "activation": _set(4, "act", lambda _: nn.ReLU()),
    "dropout": _set(2, "drop", lambda _: nn.Dropout(0.1)),
    "adapter": _set(3, "q", lambda block: Adapted(block.q)),
    "adapter on v": _set(3, "v", lambda block: Adapted(block.v)),
    "no bias": _set(2, "up", lambda _: nn.Linear(WIDTH, 2 * WIDTH, bias=False)),
    "detach": _set(2, "cuts", lambda _: True),
    "freeze": _freeze,
    "final norm": lambda model: setattr(model, "norm", nn.RMSNorm(WIDTH)),
    "head": lambda model: setattr(model, "head", nn.Linear(WIDTH, 11, bias=False)),
    "rename": _rename,
    "insert": _insert,
}
"""Edits of places of their own, the last ones of names; ``insert`` puts a layer of its own kind in front."""

RIVALS: dict[str, Callable[[Model], None]] = {
    "larger eps": lambda model: setattr(_blocks(model)[-3].norm, "eps", 1e-3),
    "append": _append,
}
"""Edits of what another one edits too: ``eps``, and the consumer of the last layer."""


@cache
def model_graph(*edits: str, forward: bool = False) -> Graph:
    """The graph of the model after these edits, or of its forward."""
    torch.manual_seed(0)
    model = Model()
    for edit in edits:
        (EDITS.get(edit) or RIVALS[edit])(model)
    model.train()
    with gradir.record(model, flow=forward) as recorder:
        loss = F.cross_entropy(model(torch.zeros(2, 5, dtype=torch.int64)).flatten(0, 1), torch.zeros(10).long())
    return recorder.forward() if forward else recorder.capture(loss)
