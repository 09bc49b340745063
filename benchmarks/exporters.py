"""Exporters: nodes a second, DOT beside torchviz on the same graph, and how long the command takes to start.

python benchmarks/exporters.py [--smoke]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
import torchviz
from torch import nn

import gradir
from gradir import registry
from gradir.ir import Graph

sys.path.insert(0, str(Path(__file__).parent))

from capture import Block, Bottleneck
from measure import is_smoke, run_deep, table, time_in_turns

FORMATS = ("plain", "tree", "dot", "nodelink", "graphml", "cytoscape", "model-explorer", "summary", "modules", "html")
EVERYTHING = {"show_attrs": True, "show_saved": True}


class Captured(NamedTuple):
    """A model, its output and its graph."""

    model: nn.Module
    loss: torch.Tensor
    graph: Graph


def transformer(blocks: int) -> Captured:
    """Stacked transformer blocks, with scopes."""
    return capture_model(nn.Sequential(*(Block() for _ in range(blocks))), torch.ones(2, 4, 8), sources=False)


def residual(blocks: int) -> Captured:
    """Stacked blocks of a ResNet-50, with scopes and source lines: many attributes, saved slots, buffers, modules."""
    model = nn.Sequential(*(Bottleneck(8, 2, 1) for _ in range(blocks)))
    return capture_model(model, torch.ones(2, 8, 4, 4), sources=True)


def capture_model(model: nn.Module, inputs: torch.Tensor, *, sources: bool) -> Captured:
    with gradir.record(model, sources=sources) as recorder:
        loss = model(inputs).sum()
    return Captured(model, loss, recorder.capture(loss))


def rates(graphs: Mapping[str, Graph], repetitions: int) -> str:
    """Nodes a second of every text format."""
    columns = []
    for graph in graphs.values():
        runs = {name: lambda made, name=name: registry.export(name, made, {}) for name in FORMATS}
        runs["dot, everything"] = lambda made: registry.export("dot", made, EVERYTHING)
        seconds = time_in_turns(lambda graph=graph: graph, runs, repetitions)
        columns.append({name: f"{len(graph.nodes) / taken:,.0f}" for name, taken in seconds.items()})
    heads = [f"{name}, {len(graph.nodes):,} nodes" for name, graph in graphs.items()]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return table(["nodes a second", *heads], rows)


def compare_with_torchviz(blocks: int, repetitions: int) -> str:
    """DOT source of the same graph, milliseconds, with the same options on both sides."""
    model, loss, graph = transformer(blocks)
    names = dict(model.named_parameters())
    rows = []
    for title, options in (("boxes and arrows", {}), ("with attributes and saved tensors", EVERYTHING)):
        runs = {
            "torchviz": lambda _, options=options: torchviz.make_dot(loss, params=names, **options).source,
            "graph": lambda _, options=options: graph.to("dot", **options),
            "capture": lambda _, options=options: gradir.make_dot(loss, model=model, **options).source,
        }
        seconds = time_in_turns(lambda: None, runs, repetitions)
        peer = seconds.pop("torchviz")
        ours = [cell for taken in seconds.values() for cell in (f"{taken * 1e3:.0f}", f"{peer / taken:.1f}")]
        rows.append([title, f"{peer * 1e3:.0f}", *ours])
    heads = ["torchviz ms", "from the graph ms", "times faster", "with the capture ms", "times faster"]
    return table([f"DOT of {len(graph.nodes):,} nodes", *heads], rows)


def starts(graph: Graph, repetitions: int) -> str:
    """How long commands take from start to end, beside an interpreter that does nothing and one that loads msgspec.

    Modules are compiled once, as an installation does it, whatever the environment says of that.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.gir"
        graph.save(path)
        lines = {
            "python -c pass": ["-c", "pass"],
            'python -c "import msgspec"': ["-c", "import msgspec"],
            "gradir --version": ["-m", "gradir", "--version"],
            "gradir --help": ["-m", "gradir", "--help"],
            "gradir export --to tree": ["-m", "gradir", "export", str(path), "--to", "tree"],
            "gradir export --to dot": ["-m", "gradir", "export", str(path), "--to", "dot"],
            "gradir diff": ["-m", "gradir", "diff", str(path), str(path)],
        }
        runs = {
            name: lambda _, line=line: subprocess.run(
                [sys.executable, *line], env=environment, check=True, capture_output=True
            )
            for name, line in lines.items()
        }
        seconds = time_in_turns(lambda: None, runs, repetitions)
    bare = seconds["python -c pass"]
    return table(
        ["command", "ms", "times a bare interpreter"],
        [[name, f"{taken * 1e3:.0f}", f"{taken / bare:.1f}"] for name, taken in seconds.items()],
    )


def main() -> None:
    """Measure and print tables."""
    smoke = is_smoke(__doc__)
    warnings.simplefilter("ignore")
    graphs = {
        "transformer": transformer(2 if smoke else 700).graph,
        "ResNet, everything recorded": residual(2 if smoke else 1200).graph,
    }
    print(rates(graphs, 1 if smoke else 5), flush=True)
    print()
    del graphs
    print(compare_with_torchviz(2 if smoke else 450, 1 if smoke else 5), flush=True)
    print()
    print(starts(transformer(1).graph, 1 if smoke else 25))


if __name__ == "__main__":
    run_deep(main)
