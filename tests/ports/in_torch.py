"""Models in torch, of which `in_jax.py` has ports."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["GPT", "MLP", "gpt_loss", "mlp_loss"]


ACTIVATIONS = {"gelu": lambda: nn.GELU("tanh"), "gelu_erf": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}


class MLP(nn.Module):
    def __init__(self, hidden: int = 16, activation: str = "relu", bias: bool = True) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, hidden), nn.Linear(hidden, 3, bias=bias)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(x)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part(x).view(batch, length, self.heads, -1).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, activation: str, residual: bool) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.activation, self.residual = ACTIVATIONS[activation](), residual

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        y = self.proj(self.activation(self.fc(self.ln_2(x))))
        return x + y if self.residual else y


class GPT(nn.Module):
    def __init__(self, blocks: int = 1, width: int = 8, activation: str = "gelu", residual: bool = True) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(11, width), nn.Embedding(6, width)
        self.h = nn.ModuleList([Block(width, 2, activation, residual) for _ in range(blocks)])
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, 11, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def mlp_loss(model: MLP) -> Tensor:
    return (model(torch.ones(5, 4)) ** 2).mean()


def gpt_loss(model: GPT) -> Tensor:
    tokens = torch.zeros(2, 6, dtype=torch.long)
    return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
