"""A language model in the shape of GPT-2, small enough to read and deep enough for a graph of over 500 nodes.

``loss`` is one training step. ``edited`` is the same model with an adapter in layer 3, ``swapped`` the same with
another activation there: a diff of either against ``loss`` speaks of layer 3 alone.

    gradir capture examples/gpt.py:loss -o model.gir
    gradir capture examples/gpt.py:edited -o edited.gir
    gradir diff model.gir edited.gir
    gradir capture examples/gpt.py:GPT --input 'int64[2,16]' -o logits.gir
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)


@dataclass(frozen=True)
class Config:
    """The size of the model."""

    vocabulary: int = 64
    context: int = 16
    layers: int = 12
    heads: int = 2
    width: int = 8


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.c_attn = nn.Linear(config.width, 3 * config.width)
        self.c_proj = nn.Linear(config.width, config.width)
        future = torch.ones(config.context, config.context, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Every position mixed with the positions before it."""
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        weights = scores.masked_fill(self.future[:length, :length], -math.inf).softmax(dim=-1)
        return self.c_proj((weights @ value).transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    """Two linear layers, four times as wide in between."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.width, 4 * config.width)
        self.act = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Every position on its own."""
        return self.c_proj(self.act(self.c_fc(x)))


class AdaptedMLP(MLP):
    """An MLP with a bottleneck beside its output."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.adapter = nn.Sequential(
            nn.Linear(config.width, config.width // 2), nn.ReLU(), nn.Linear(config.width // 2, config.width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The output of the MLP plus what the adapter makes of it."""
        y = super().forward(x)
        return y + self.adapter(y)


class Block(nn.Module):
    """One layer: attention and MLP, each normalised before and added to its input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """The residual stream after this layer."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Token and position embeddings, a stack of blocks, and a head that shares its weight with the embedding."""

    def __init__(self, config: Config = Config()) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocabulary, config.width)
        self.wpe = nn.Embedding(config.context, config.width)
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width)
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token, of shape ``[batch, length, vocabulary]``."""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def training_loss(model: GPT) -> Tensor:
    config = model.config
    tokens = torch.randint(config.vocabulary, (2, config.context + 1))
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def loss() -> tuple[GPT, Tensor]:
    torch.manual_seed(0)
    model = GPT()
    return model, training_loss(model)


def edited() -> tuple[GPT, Tensor]:
    torch.manual_seed(0)
    model = GPT()
    model.h[3].mlp = AdaptedMLP(model.config)
    return model, training_loss(model)


def swapped() -> tuple[GPT, Tensor]:
    torch.manual_seed(0)
    model = GPT()
    model.h[3].mlp.act = nn.ReLU()
    return model, training_loss(model)
