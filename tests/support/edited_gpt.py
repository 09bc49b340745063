"""Edits of a language model of six equal blocks, each as a change of its source, of its modules or of its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import gradir
from gradir.ir import Graph

_WORDS: Final = 64
_WIDTH: Final = 16
_LAYERS: Final = 6
_CONTEXT: Final = 32
_CONSTANTS: Final = {"added-constant": 1.0, "other-constant": 2.0}


class Attention(nn.Module):
    """Causal self-attention of two heads; ``edit`` names what is done otherwise."""

    def __init__(self, width: int, edit: str = "") -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.drop, self.edit = nn.Dropout(0.1), edit

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        seen = x.detach() if self.edit == "detached-value" else x
        q, k, v = (
            part.view(batch, length, 2, width // 2).transpose(1, 2) for part in (self.q(x), self.k(x), self.v(seen))
        )
        if self.edit == "sdpa":
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // 2)
            ones = torch.ones(length, length, dtype=torch.bool)
            future = ones.tril(-1) if self.edit == "other-triangle" else ones.triu(1)
            scores = scores.masked_fill(future, -1e4 if self.edit == "other-fill" else -math.inf)
            mixed = self.drop(scores.softmax(-1)) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    """Two linear layers, four times as wide in between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


class RMSNorm(nn.Module):
    """A norm without a mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Block(nn.Module):
    """Attention and MLP, each normalised before and added to its input; ``edit`` names what is done otherwise."""

    def __init__(self, width: int, edit: str = "") -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, edit)
        self.norm2, self.mlp, self.drop = nn.LayerNorm(width), MLP(width), nn.Dropout(0.1)
        self.edit = edit

    def forward(self, x: Tensor) -> Tensor:
        if self.edit == "swapped":
            x = x + self.drop(self.mlp(self.norm2(x)))
            return x + self.drop(self.attn(self.norm1(x)))
        kept = x.detach() if self.edit == "detached-residual" else x
        x = kept + self.drop(self.attn(self.norm1(x)))
        x = x + self.drop(self.mlp(self.norm2(x)))
        return x + _CONSTANTS[self.edit] if self.edit in _CONSTANTS else x


class GPT(nn.Module):
    """Embeddings, six blocks, a norm and a head."""

    def __init__(self, width: int = _WIDTH, edit: str = "") -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(_WORDS, width), nn.Embedding(_CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, edit) for _ in range(_LAYERS))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, _WORDS, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.tokens(words) + self.places(torch.arange(words.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Wrapped(nn.Module):
    """A module below another one."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x)


class Lora(nn.Module):
    """A linear layer that is frozen, with an adapter of low rank beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.b(self.a(x)) * 0.5


def loss_of(
    edit: str = "",
    *,
    change: Callable[[GPT], None] | None = None,
    width: int = _WIDTH,
    size: tuple[int, int] = (2, 16),
    dtype: torch.dtype | None = None,
    autocast: bool = False,
    reduction: str = "mean",
) -> tuple[GPT, Tensor, gradir.Recorder]:
    """A model, its loss and what was recorded."""
    torch.manual_seed(0)
    model = GPT(width, edit)
    if change is not None:
        change(model)
    if dtype is not None:
        model.to(dtype)
    words = torch.randint(_WORDS, (size[0], size[1] + 1))
    with gradir.record(model) as recorder, torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        logits = model(words[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten(), reduction=reduction)
    return model, loss, recorder


def _each(name: str, made: Callable[[Any], nn.Module], layers: range = range(_LAYERS)) -> Callable[[GPT], None]:
    """Put another module in the place of one in these blocks."""

    def change(model: GPT) -> None:
        for layer in layers:
            above, _, last = f"blocks.{layer}.{name}".rpartition(".")
            old = model.get_submodule(f"blocks.{layer}.{name}")
            setattr(model.get_submodule(above), last, made(old))

    return change


def _set(kind: type[nn.Module], **values: object) -> Callable[[GPT], None]:
    """Set attributes of all modules of a class."""

    def change(model: GPT) -> None:
        for module in model.modules():
            if isinstance(module, kind):
                for name, value in values.items():
                    setattr(module, name, value)

    return change


def _all(*changes: Callable[[GPT], None]) -> Callable[[GPT], None]:
    def change(model: GPT) -> None:
        for each in changes:
            each(model)

    return change


def _lora(model: GPT) -> None:
    """LoRA as it is used: all is frozen, and q and v have adapters."""
    model.requires_grad_(False)
    _all(_each("attn.q", Lora), _each("attn.v", Lora))(model)


def _blocks(model: GPT) -> None:
    model.blocks = nn.ModuleList(map(Wrapped, model.blocks))


def _tie(model: GPT) -> None:
    model.head.weight = model.tokens.weight


_NORMS: Final = tuple(_each(name, lambda _: RMSNorm(_WIDTH)) for name in ("norm1", "norm2"))

_PLAIN: Final = ("swapped", "detached-residual", "detached-value", "sdpa", "other-triangle", "other-fill", *_CONSTANTS)

EDITS: Final[dict[str, dict[str, Any]]] = {
    "none": {},
    **{name: {"edit": name} for name in _PLAIN},
    "eps": {"change": _set(nn.LayerNorm, eps=1e-6)},
    "dropout": {"change": _set(nn.Dropout, p=0.2)},
    "wrapped-one": {"change": _each("mlp.up", Wrapped, range(3, 4))},
    "wrapped-some": {"change": _each("mlp.up", Wrapped, range(1, 6, 2))},
    "wrapped-all": {"change": _each("mlp.up", Wrapped)},
    "wrapped-linears": {
        "change": _all(*(_each(f"attn.{name}", Wrapped) for name in "qkv"), _each("mlp.down", Wrapped))
    },
    "wrapped-attention": {"change": _each("attn", Wrapped)},
    "wrapped-blocks": {"change": _blocks},
    "in-sequential": {"change": _each("mlp.up", nn.Sequential)},
    "one-in-sequential": {"change": _each("mlp.up", nn.Sequential, range(3, 4))},
    "lora-up": {"change": _each("mlp.up", Lora)},
    "lora-one": {"change": _each("mlp.up", Lora, range(3, 4))},
    "lora": {"change": _all(_each("attn.q", Lora), _each("attn.v", Lora))},
    "lora-autocast": {"change": _all(_each("attn.q", Lora), _each("attn.v", Lora)), "autocast": True},
    "lora-alone": {"change": _lora},
    "reduction": {"reduction": "sum"},
    "tied": {"change": _tie},
    "autocast": {"autocast": True},
    "dtype": {"dtype": torch.bfloat16},
    "length": {"size": (2, 24)},
    "batch": {"size": (6, 16)},
    "width": {"width": 32},
    "norm": {"change": _all(*_NORMS)},
}
"""The arguments of `loss_of` for each edit, by the edit's name."""


@cache
def plain() -> Graph:
    """The graph of the model as it is."""
    return capture_edit("none")


@cache
def capture_edit(name: str) -> Graph:
    """The graph after an edit; made once."""
    _, loss, recorder = loss_of(**EDITS[name])
    return recorder.capture(loss)
