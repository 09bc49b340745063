"""A model as its training script makes it for a mesh: `gradir capture meshes.py:llama -- DP TP LAYERS`.

The layers are those of Llama 7B (Touvron et al., 2023) when there are 32.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH, HEADS, INNER, VOCABULARY, POSITIONS = 4096, 32, 11008, 32000, 2048


class Norm(nn.Module):
    """The root mean square alone, as Llama normalizes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Attention(nn.Module):
    """Attention with rotated positions."""

    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, positions, _ = x.shape
        shape = (batch, positions, -1, WIDTH // HEADS)
        query, key, value = (part(x).view(shape).transpose(1, 2) for part in (self.wq, self.wk, self.wv))
        mixed = nn.functional.scaled_dot_product_attention(
            rotate(query, cos, sin), rotate(key, cos, sin), value, is_causal=True
        )
        return self.wo(mixed.transpose(1, 2).reshape(batch, positions, -1))


class FeedForward(nn.Module):
    """The gated feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.w2 = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """A layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention = Norm(), Attention()
        self.ffn_norm, self.feed_forward = Norm(), FeedForward()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    """All of it, with as many layers as asked for."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.norm = Norm()
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        half = WIDTH // HEADS
        angles = torch.outer(torch.arange(ids.shape[1]), 1e4 ** (-torch.arange(0, half, 2) / half))
        x = self.tok_embeddings(ids)
        for block in self.layers:
            x = block(x, angles.cos(), angles.sin())
        return self.output(self.norm(x))


PLAN = {
    **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
    **{f"feed_forward.{name}": ColwiseParallel() for name in ("w1", "w3")},
    **{name: RowwiseParallel() for name in ("attention.wo", "feed_forward.w2")},
}


def llama() -> tuple[nn.Module, Tensor]:
    data, tensors, layers = map(int, sys.argv[1:])
    mesh = init_device_mesh("cpu", (data, tensors), mesh_dim_names=("dp", "tp"))
    model = Llama(layers)
    for block in model.layers:
        fully_shard(parallelize_module(block, mesh["tp"], PLAN), mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    ids = torch.zeros(1, POSITIONS, dtype=torch.int64)
    return model, model(ids).float().log_softmax(-1)[..., 0].mean()
