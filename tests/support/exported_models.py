"""Small models to export, by name, with their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.spare = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x, y):
        return {"sum": self.b(self.a(self.a(x))) + y, "both": (x, 3)}


class Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        x = self.norm(x)
        self.seen.add_(x.sum(0))
        y = x * 2
        view = y.view(2, 2, 4)
        y[:, 0] = 0
        with torch.no_grad():
            kept = view.sin()
        return view + 1, kept + self.seen


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.norm2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside)
        self.short = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.pool = nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)
        self.blocks = nn.Sequential(Residual(4, 4), Residual(4, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.blocks(self.pool(self.stem(x))).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        skip = F.gelu(self.down1(x))
        low = F.gelu(self.down2(F.avg_pool2d(skip, 2)))
        return self.out(torch.cat([self.up(low), skip], 1))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, 2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.h = nn.ModuleList(Block(8, 2) for _ in range(2))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return self.head(x)


class Cond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x)
        return torch.cond(y.sum() > 0, lambda a, b: a.sin() + b, lambda a, b: a * 2, (y, x))


class Scan(nn.Module):
    def forward(self, x):
        from torch._higher_order_ops.scan import scan

        return scan(lambda carry, row: (carry + row, carry * row), x[0] * 0, x)


class While(nn.Module):
    def forward(self, x):
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 2), (torch.zeros((), dtype=torch.int64), x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x):
        state = torch.zeros(2, 4)
        for row in x.unbind(0):
            state = self.cell(row, state)
        return state, x.topk(2)


class Number(nn.Module):
    def forward(self, x, count):
        size = count.item()
        torch._check(size >= 1)
        torch._check(size <= 5)
        return x[:1].expand(size, 4).sum(0), x.shape[0] * x


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.fc(x)
        return y.float() * (0.5 - 1j)


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "mlp": lambda: (Mlp(), (torch.randn(3, 4),)),
    "tied": lambda: (Tied(), (torch.randn(3, 4), torch.randn(4))),
    "written": lambda: (Written(), (torch.randn(4, 4),)),
    "resnet": lambda: (ResNet(), (torch.randn(2, 3, 10, 10),)),
    "unet": lambda: (UNet(), (torch.randn(1, 1, 8, 8),)),
    "gpt": lambda: (Gpt(), (torch.zeros(2, 6, dtype=torch.int64),)),
    "cond": lambda: (Cond(), (torch.randn(3, 4),)),
    "scan": lambda: (Scan(), (torch.randn(5, 4),)),
    "while": lambda: (While(), (torch.randn(4),)),
    "recurrent": lambda: (Recurrent(), (torch.randn(3, 2, 4),)),
    "number": lambda: (Number(), (torch.randn(3, 4), torch.tensor(2))),
    "mixed": lambda: (Mixed(), (torch.randn(3, 4),)),
}
DECOMPOSED = frozenset({"mixed"})
DYNAMIC = {"mlp": ({0: torch.export.Dim("batch")},), "number": ({0: torch.export.Dim("rows")}, None)}


def export_model(name: str) -> torch.export.ExportedProgram:
    """The program of a model, its first size dynamic where that is among `DYNAMIC`."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    program = torch.export.export(model, inputs, dynamic_shapes=DYNAMIC.get(name))
    return program.run_decompositions() if name in DECOMPOSED else program
