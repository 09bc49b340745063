"""Programs that every tested release of torch captures alike, as far as ``--normalize`` goes.

``PYTHONPATH=tests/support python tests/verification/released.py FOLDER`` writes graphs into FOLDER/RELEASE.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from example_files import GRAPHS, attribute
from msgspec.structs import replace
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import gradir
from gradir import capturing
from gradir.ir import Graph
from gradir.request import CaptureRequest

__all__ = ["KINDS", "PROGRAMS", "capture_program", "file_of", "release"]

KINDS: Final = ("autograd", "forward")


def module(make: Callable[[], nn.Module], *sizes: int) -> Callable[[], Any]:
    """A program that sums what a module makes of ones."""

    def program() -> Any:
        model = make()
        made = model(torch.ones(sizes))
        return model, (made[0] if isinstance(made, tuple) else made).sum()

    return program


class Attention(nn.Module):
    def __init__(self, *, is_causal: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.is_causal = is_causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.view(2, 5, 2, 4).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1))
        made = functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return made.transpose(1, 2).reshape(2, 5, 8)[:, -1]


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.5)) for _ in range(2))
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


class Itself(nn.Module):
    """What attends to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.attention(x, x, x)[0]
        return made


PROGRAMS: Final[Mapping[str, Callable[[], Any]]] = {
    **{spec.replace(".py:", "-"): lambda spec=spec: attribute(spec)() for spec in GRAPHS},
    "batch-norm": module(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2)), 2, 3, 6, 6),
    "checkpoint": module(lambda: Checkpointed(reentrant=False), 2, 4),
    "checkpoint-reentrant": module(lambda: Checkpointed(reentrant=True), 2, 4),
    "group-norm": module(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU()), 2, 3, 6, 6),
    "gru": module(lambda: nn.GRU(3, 4), 5, 2, 3),
    "layer-norm": module(lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.RMSNorm(4)), 2, 3),
    "lstm": module(lambda: nn.LSTM(3, 4, num_layers=2, dropout=0.5), 5, 2, 3),
    "multihead-attention": module(Itself, 2, 5, 8),
    "sdpa": module(lambda: Attention(is_causal=False), 2, 5, 8),
    "sdpa-causal": module(lambda: Attention(is_causal=True), 2, 5, 8),
    "transformer": module(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, 5, 8),
}


def capture_program(name: str, kind: str) -> Graph:
    """The graph that the installed release gives of a program, without lines, which are those of this file."""
    torch.manual_seed(0)
    request = CaptureRequest(target=PROGRAMS[name], is_program=True, graph=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = capturing.capture_graph(request)
    nodes = {node.id: replace(node, source=None) for node in graph.nodes.values()}
    return replace(graph, nodes=nodes, cuts=tuple(replace(cut, source=None) for cut in graph.cuts))


def file_of(name: str, kind: str) -> str:
    """The name of the file that has a graph."""
    return f"{name}.{kind}.gir.gz"


def release() -> str:
    """The installed release, without its build."""
    return torch.__version__.partition("+")[0]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) / release()
    folder.mkdir(parents=True, exist_ok=True)
    for each in PROGRAMS:
        for of in KINDS:
            gradir.save(capture_program(each, of), folder / file_of(each, of))
