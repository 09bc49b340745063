"""Capture beside torchviz and a bare walk, its growth with size, and what recording and explaining a forward cost.

python benchmarks/capture.py [--smoke]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import gradir

sys.path.insert(0, str(Path(__file__).parent))

from measure import is_smoke, run_deep, table, time_in_turns

WIDTH = 8


class Block(nn.Module):
    """Attention and a feed-forward layer: the mixture of operations of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm(x)).chunk(3, dim=-1)
        weights = (query @ key.transpose(-1, -2) / WIDTH**0.5).softmax(-1)
        x = x + self.proj(weights @ value)
        return x + self.down(nn.functional.gelu(self.up(x)))


class Made(NamedTuple):
    """A fresh graph, and the model it came from."""

    model: nn.Module
    loss: Tensor


def mix_models(blocks: int) -> Callable[[], Made]:
    """Graphs of stacked blocks over one model, each from a forward of its own."""
    model = nn.Sequential(*(Block() for _ in range(blocks)))
    return lambda: Made(model, model(torch.ones(2, 4, WIDTH)).sum())


def chain(length: int) -> Callable[[], Made]:
    """Graphs of ``length`` additions."""

    def make() -> Made:
        y = torch.ones(1, requires_grad=True)
        for _ in range(length):
            y = y + 1
        return Made(nn.Identity(), y)

    return make


def bare_walk(made: Made) -> dict[Any, Any]:
    """The least that any capture does: visit every grad_fn once and keep its next_functions."""
    seen: dict[Any, Any] = {}
    stack = [made.loss.grad_fn]
    while stack:
        fn = stack.pop()
        if fn in seen:
            continue
        following = seen[fn] = fn.next_functions
        stack.extend(child for child, _ in following if child is not None)
    return seen


def capture_made(made: Made) -> gradir.Graph:
    return gradir.capture(made.loss, model=made.model)


def torchviz(made: Made) -> object:
    from torchviz import make_dot

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_dot(made.loss, show_attrs=True, show_saved=True)


def compare_with_torchviz(blocks: list[int], repetitions: int) -> str:
    rows = []
    for count in blocks:
        make = mix_models(count)
        nodes = len(bare_walk(make()))
        runs = {"torchviz": torchviz, "gradir": capture_made, "walk": bare_walk}
        times = {name: seconds / nodes * 1e6 for name, seconds in time_in_turns(make, runs, repetitions).items()}
        rows.append(
            [
                f"{nodes:,}",
                *(f"{times[name]:.2f}" for name in ("torchviz", "gradir", "walk")),
                f"{times['torchviz'] / times['gradir']:.1f}",
                f"{times['gradir'] / times['walk']:.1f}",
            ]
        )
    heads = ["grad_fns", "torchviz µs", "gradir µs", "bare walk µs", "torchviz / gradir", "gradir / walk"]
    return table(heads, rows)


def growth(lengths: list[int], repetitions: int) -> str:
    rows = []
    first = 0.0
    for length in lengths:
        cost = time_in_turns(chain(length), {"gradir": capture_made}, repetitions)["gradir"] / length * 1e6
        first = first or cost
        rows.append([f"{length:,}", f"{cost:.2f}", f"{cost / first:.2f}"])
    return table(["chain", "gradir µs a node", "against the first row"], rows)


def recording(name: str, model: nn.Module, given: Tensor, repetitions: int) -> str:
    def record(**options: bool) -> object:
        with gradir.record(model, **options):
            return model(given)

    runs = {
        "plain": lambda _: model(given),
        "scopes": lambda _: record(),
        "sources": lambda _: record(sources=True),
        "flow": lambda _: record(flow=True),
    }
    times = time_in_turns(lambda: None, runs, repetitions)
    rows = [
        [run, f"{times[run] * 1e3:.1f}", f"{100 * (times[run] / times['plain'] - 1):+.1f} %"]
        for run in ("plain", "scopes", "sources", "flow")
    ]
    return table([f"forward of a {name}", "ms", "against plain"], rows)


def explaining(lengths: list[int], repetitions: int) -> str:
    """A chain of operations that is recorded with its flow, explained without a backward, and made a graph of."""
    weight = torch.ones(8, requires_grad=True)

    def run(length: int) -> Tensor:
        x = torch.ones(8)
        for _ in range(length // 2):
            x = (x * weight).tanh()
        return x.sum()

    def record(length: int) -> tuple[gradir.Recorder, Tensor]:
        with gradir.record(flow=True) as rec:
            return rec, run(length)

    rows = []
    for length in lengths:
        rec, loss = record(length)
        runs = {
            "plain": lambda _, length=length: run(length),
            "recorded": lambda _, length=length: record(length),
            "explained": lambda _, rec=rec, loss=loss: rec.explain(loss, params={"weight": weight}, values=False),
            "graph": lambda _, rec=rec: rec.forward(),
        }
        times = time_in_turns(lambda: None, runs, repetitions)
        rows.append([f"{length:,}", *(f"{times[name]:.2f}" for name in runs)])
    return table(["operations", "plain s", "recorded s", "explained s", "its graph s"], rows)


def gpt2(width: int, layers: int) -> nn.Module:
    """The layers of GPT-2 when there are 12 of width 768 (Radford et al., 2019)."""
    layer = nn.TransformerEncoderLayer(
        width, width // 64, 4 * width, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class Bottleneck(nn.Module):
    """The residual block of ResNet-50 (He et al., 2015)."""

    def __init__(self, inner: int, planes: int, stride: int) -> None:
        super().__init__()
        outer = 4 * planes
        self.body = nn.Sequential(
            nn.Conv2d(inner, planes, 1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(),
            nn.Conv2d(planes, planes, 3, stride, 1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(),
            nn.Conv2d(planes, outer, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


def resnet50(channels: int) -> nn.Module:
    """ResNet-50 when ``channels`` is 64."""
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inner = channels
    for stage, depth in enumerate((3, 4, 6, 3)):
        planes = channels * 2**stage
        for number in range(depth):
            layers.append(Bottleneck(inner, planes, 2 if stage and not number else 1))
            inner = 4 * planes
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 10))


def recordings(resnet: nn.Module, size: int, gpt: nn.Module, tokens: int, repetitions: int) -> list[str]:
    width = gpt.layers[0].linear1.in_features
    return [
        recording("ResNet-50", resnet, torch.ones(2, 3, size, size), repetitions),
        recording("GPT-2", gpt, torch.ones(1, tokens, width), repetitions),
    ]


def main(smoke: bool) -> None:
    if smoke:
        parts = [compare_with_torchviz([1], 1), growth([10, 100], 1), *recordings(resnet50(2), 32, gpt2(64, 1), 8, 1)]
        parts.append(explaining([10, 100], 1))
    else:
        parts = [
            compare_with_torchviz([30, 300, 750], 5),
            growth([1_000, 10_000, 100_000, 1_000_000], 3),
            *recordings(resnet50(64), 224, gpt2(768, 12), 256, 9),
            explaining([1_000, 10_000, 100_000], 3),
        ]
    print("\n\n".join(parts))


if __name__ == "__main__":
    smoke = is_smoke(__doc__)
    torch.manual_seed(0)
    run_deep(main, smoke)
