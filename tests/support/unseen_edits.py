"""A model, and edits of it that leave nothing in its autograd graph; each is a program of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MODEL: Final = """
import torch
from torch import nn


def rope(x, base=10000.0):
    length, size = x.shape[-2], x.shape[-1]
    frequencies = 1.0 / base ** (torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(length), frequencies)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., ::2], x[..., 1::2]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("mask", torch.ones(5, 5).tril())

    def forward(self, x):
        q, k, v = self.qkv(x).split(8, dim=-1)
        q, k = rope(q), rope(k)
        scores = q @ k.transpose(-1, -2) * 0.35
        causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(causal, float("-inf"))
        window = torch.arange(5)[:, None] - torch.arange(5) > 3
        scores = scores.masked_fill(window, -1e9)
        return scores.softmax(-1) @ v


def loss():
    model = nn.Sequential(Attention(), nn.Linear(8, 3))
    x = torch.linspace(-1, 1, 80).view(2, 5, 8)
    target = torch.zeros(10, dtype=torch.long)
    scores = model(x) + torch.full((3,), 0.5)
    keep = scores.detach().argmax(-1) >= 0
    return model, nn.functional.cross_entropy((scores * keep[..., None]).view(10, 3), target)
"""

EDITS: Final[Mapping[str, tuple[str, str]]] = {
    "the diagonal of the mask": (".triu(1)", ".triu(2)"),
    "the fill of the mask": ('float("-inf")', "-1e4"),
    "the fill of the window": ("-1e9", "-1e4"),
    "the width of the window": ("> 3", "> 2"),
    "a constant that is added": ("0.5)", "0.25)"),
    "the base of the frequencies": ("base=10000.0", "base=500000.0"),
    "the step of the frequencies": ("/ size)", "/ (size + 2))"),
    "a comparison that chooses": ("argmax(-1) >= 0", "argmax(-1) > 0"),
}


def edit_model(name: str) -> str:
    """The model with an edit."""
    old, new = EDITS[name]
    assert MODEL.count(old) == 1, name
    return MODEL.replace(old, new)
