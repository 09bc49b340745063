"""FLOPs by torch's own formulas, times that are measured, and what shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dot_pictures import run_dot

import gradir
from gradir import codecs
from gradir.cli.main import main
from gradir.errors import CaptureError, ExportError
from gradir.ir import Graph, Node, Producer
from gradir.ir.marks import flops, milliseconds
from gradir.overlays import costs
from gradir.passes import fold, layers, rollup

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402


class Bottleneck(nn.Module):
    """The block of ResNet-50: 1x1, 3x3, 1x1, and a shortcut."""

    def __init__(self, inside: int, middle: int, stride: int) -> None:
        super().__init__()
        outside = 4 * middle
        sizes = [(inside, middle, 1, 1), (middle, middle, 3, stride), (middle, outside, 1, 1)]
        parts = [nn.Sequential(nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b)) for a, b, k, s in sizes]
        self.parts = nn.ModuleList(parts)
        self.shortcut = nn.Identity()
        if stride > 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Any) -> Any:
        short = self.shortcut(x)
        for part in self.parts[:2]:
            x = part(x).relu()
        return (self.parts[2](x) + short).relu()


def resnet50() -> tuple[nn.Module, Callable[[Any], Any]]:
    stages: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inside = 64
    for middle, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            stages.append(Bottleneck(inside, middle, stride if number == 0 else 1))
            inside = 4 * middle
    model = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))
    return model, lambda net: net(torch.randn(1, 3, 64, 64)).sum()


def gpt2() -> tuple[nn.Module, Callable[[Any], Any]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=3, n_embd=24, n_head=2, vocab_size=31, n_positions=16)
    ids = torch.arange(12).reshape(1, 12)
    return transformers.GPT2LMHeadModel(config), lambda net: net(ids, labels=ids).loss


def small() -> tuple[nn.Module, Callable[[Any], Any]]:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    return model, lambda net: net(torch.ones(4, 8)).sum()


def frozen() -> tuple[nn.Module, Callable[[Any], Any]]:
    model, loss = small()
    model[0].requires_grad_(False)
    return model, loss


def without_grad() -> tuple[nn.Module, Callable[[Any], Any]]:
    model, _ = small()

    def loss(net: Any) -> Any:
        with torch.no_grad():
            hidden = net[1](net[0](torch.ones(4, 8)))
        return net[2](hidden).sum()

    return model, loss


def captured(make: Callable[[], tuple[nn.Module, Callable[[Any], Any]]], cost: str = "flops") -> Graph:
    model, loss = make()
    with gradir.record(model, cost=cost) as rec:
        value = loss(model)
    return rec.capture(value)


def table(graph: Graph, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(graph.to("summary", style="json", **options))
    return found


@pytest.mark.parametrize("make", [gpt2, resnet50, small, frozen, without_grad])
def test_totals_are_those_of_torchs_own_counter(make: Any) -> None:
    model, loss = make()
    with FlopCounterMode(display=False) as counter:
        loss(model)
    graph = captured(make)
    found = table(graph)
    assert found["totals"]["flops"] == counter.get_total_flops() > 1000
    assert found["layers"][0]["flops"] == found["totals"]["flops"]
    by_module = {name.partition(".")[2]: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    rows = {row["path"]: row["flops"] for row in found["layers"]}
    compared = {path for path in by_module if path in rows and path}
    assert len(compared) >= 2 or make is without_grad
    assert {path: rows[path] for path in compared} == {path: by_module[path] for path in compared}
    assert codecs.decode(codecs.encode(graph)) == graph


def test_passes_add_up_what_they_make_one_of() -> None:
    graph = captured(gpt2)
    total = sum(map(flops, graph.nodes.values()))
    for made in (layers(graph), rollup(graph), fold(graph, 1), fold(rollup(layers(graph)), 0)):
        assert sum(map(flops, made.nodes.values())) == total
    rolled = next(row for row in table(graph, all=False)["layers"] if row["path"] == "transformer.h")
    text = graph.to("summary", width=None)
    assert f"{rolled['flops']:,}" in next(line for line in text.splitlines() if " 0-2 " in line)


def test_a_recomputed_forward_is_counted_once() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    with gradir.record(model, cost="time") as rec:
        loss = checkpoint(model, torch.ones(4, 8, requires_grad=True), use_reentrant=False).sum()
    assert table(rec.capture(loss))["totals"]["flops"] == 2 * 4 * (8 * 16 + 16 * 2)


def test_times_are_there_where_they_are_asked_for_and_leave_the_graph_as_it_is() -> None:
    model, loss = small()
    with gradir.record(model, cost="time") as rec:
        value = loss(model)
    graph = rec.capture(value)
    ran = [node for node in graph.nodes.values() if node.role == "function" and node.op != "accumulate_grad"]
    assert all(min(milliseconds(node)) > 0 for node in ran)
    assert all(parameter.grad is None for parameter in model.parameters())
    value.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    totals = table(graph)["totals"]
    assert totals["forward_milliseconds"] == pytest.approx(sum(milliseconds(node)[0] for node in ran))
    assert totals["backward_milliseconds"] == pytest.approx(sum(milliseconds(node)[1] for node in ran))
    assert not any(any(milliseconds(node)) for node in captured(small).nodes.values())
    # What is measured is no difference.
    torch.manual_seed(0)
    again = captured(small, "time")
    assert not gradir.diff(graph, again)


def test_the_table_shows_and_sorts_costs() -> None:
    graph = captured(small, "time")
    heads = graph.to("summary").splitlines()[0]
    assert [word in heads for word in ("FLOPs", "forward ms", "backward ms")] == [True] * 3
    assert max(map(len, graph.to("summary").splitlines())) <= 80
    assert [row["path"] for row in table(graph, sort="flops")["layers"]][:2] == ["0", "2"]
    times = [row["own_milliseconds"] for row in table(graph, sort="time")["layers"]]
    assert times == sorted(times, reverse=True)
    assert "FLOPs of the forward: 1,280" in graph.to("summary", style="markdown")
    assert graph.to("summary", style="csv").splitlines()[0].endswith("backward_milliseconds")
    plain = gradir.capture(nn.Linear(2, 2), torch.ones(1, 2))
    assert "FLOPs" not in plain.to("summary")
    with pytest.raises(ExportError, match="capture it with --cost"):
        plain.to("summary", sort="time")


def test_costs_are_drawn_as_an_overlay(dot_program: str) -> None:
    graph = captured(small, "time")
    assert [channel.name for channel in costs(graph).channels] == ["flops", "forward", "backward"]
    text = graph.to("dot", channel="flops", layers=True)
    assert r"0 (Linear)\nweight [16, 8] · bias [16]\n1.02e+03" in text
    assert "flops" in run_dot(dot_program, text, "svg")
    assert "[forward (ms): " in graph.to("tree", channel="forward")
    assert gradir.render(graph, "svg", channel="backward")
    with pytest.raises(ExportError, match="capture it with --cost"):
        Graph.of([Node("x")]).to("dot", channel="flops")
    with pytest.raises(ExportError, match="no channel 'flop'"):
        graph.to("dot", channel="flop")


@pytest.mark.parametrize("wrong", ["many", -5, (("a",),), (("a", "b"),), ((1, 2),), None])
def test_a_file_may_say_anything_of_costs(wrong: Any) -> None:
    node = Node("x", op="mm", ext={"flops": wrong, "ms": wrong})
    graph = codecs.decode(codecs.encode(Graph.of([node], producer=Producer(options={"flops": wrong}))))
    for style in ("table", "markdown", "csv", "json"):
        assert graph.to("summary", style=style, width=None) if style != "csv" else True
    for name in ("dot", "tree", "mermaid", "html"):
        assert graph.to(name, layers=True)
    with pytest.raises(ExportError):
        graph.to("dot", channel="flops")


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "import torch\nmodel = torch.nn.Linear(8, 4)\ndef loss():\n    return model(torch.ones(2, 8)).sum()\n",
        encoding="utf-8",
    )
    assert main(["capture", "net.py:loss", "-o", "net.gir", "--cost"]) == 0
    assert main(["summary", "net.gir", "--sort", "flops"]) == 0
    assert "FLOPs of the forward: 128\n" in capsys.readouterr().out
    assert main(["summary", "net.py:loss", "--cost=time"]) == 0
    assert "measured: forward " in capsys.readouterr().out
    assert main(["export", "net.gir", "--to", "tree", "--channel", "flops"]) == 0
    assert "[flops: 128]" in capsys.readouterr().out
    assert main(["export", "net.gir", "--to", "summary", "--channel", "flops"]) == 2
    assert main(["capture", "net.py:loss", "--graph", "forward", "--cost", "-o", "x.gir"]) == 2
    assert "--cost flops needs an autograd graph" in capsys.readouterr().err


def test_tensors_that_were_computed_before_have_no_costs() -> None:
    with pytest.raises(CaptureError, match="cost='flops'"):
        gradir.capture(torch.ones(2, requires_grad=True).sum(), cost="flops")
    with pytest.raises(TypeError, match="cost"):
        gradir.record(nn.Linear(2, 2), cost="money")
