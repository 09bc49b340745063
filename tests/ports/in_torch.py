"""Models in torch, of which `in_jax.py` has ports."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["CNN", "GPT", "MLP", "Residuals", "cnn_loss", "gpt_loss", "mlp_loss", "residuals_loss"]


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


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.max_pool2d(torch.relu(self.bn(self.conv(x))), 2).flatten(1))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln, self.fc1, self.fc2 = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.fc2(functional.silu(self.fc1(self.ln(x))))


class Residuals(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Residual() for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def cnn_loss(model: CNN) -> Tensor:
    return (model(torch.ones(2, 3, 8, 8)) ** 2).mean()


def residuals_loss(model: Residuals) -> Tensor:
    return (model(torch.ones(4, 8)) ** 2).mean()


def mlp_loss(model: MLP) -> Tensor:
    return (model(torch.ones(5, 4)) ** 2).mean()


def gpt_loss(model: GPT) -> Tensor:
    tokens = torch.zeros(2, 6, dtype=torch.long)
    return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
