"""Exporters: nodes a second, DOT beside torchviz on the same graph, and how long the command takes to start.

python benchmarks/exporters.py [--smoke]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import torch
import torchviz
from torch import nn

import gradir
from gradir import registry
from gradir.ir import Graph

sys.path.insert(0, str(Path(__file__).parent))

from capture import Block
from measure import interleaved, table

FORMATS = ("plain", "tree", "dot", "nodelink", "graphml", "cytoscape", "model-explorer", "summary", "modules")


def captured(blocks: int) -> tuple[nn.Module, torch.Tensor, Graph]:
    """Stacked transformer blocks, their output and their graph, with scopes."""
    model = nn.Sequential(*(Block() for _ in range(blocks)))
    with gradir.record(model) as recorder:
        loss = model(torch.ones(2, 4, 8)).sum()
    return model, loss, recorder.capture(loss)


def rates(graph: Graph, repetitions: int) -> str:
    """Nodes a second of every text format."""
    runs = {name: lambda graph, name=name: registry.export(name, graph, {}) for name in FORMATS}
    seconds = interleaved(lambda: graph, runs, repetitions)
    rows = [[name, f"{len(graph.nodes) / taken:,.0f}", f"{taken * 1e3:.0f}"] for name, taken in seconds.items()]
    return table(["exporter", "nodes a second", f"ms for {len(graph.nodes):,} nodes"], rows)


def beside_torchviz(blocks: int, repetitions: int) -> str:
    """DOT source of the same graph, milliseconds; gradir's from the captured graph, and with the capture."""
    model, loss, graph = captured(blocks)
    names = dict(model.named_parameters())
    runs = {
        "torchviz": lambda _: torchviz.make_dot(loss, params=names).source,
        "gradir, from the graph": lambda _: graph.to("dot"),
        "gradir, with the capture": lambda _: gradir.make_dot(loss, model=model).source,
    }
    seconds = interleaved(lambda: None, runs, repetitions)
    rows = [[name, f"{taken * 1e3:.0f}", f"{seconds['torchviz'] / taken:.1f}"] for name, taken in seconds.items()]
    return table([f"DOT of {len(graph.nodes):,} nodes", "ms", "times faster"], rows)


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
        seconds = interleaved(lambda: None, runs, repetitions)
    bare = seconds["python -c pass"]
    return table(
        ["command", "ms", "times a bare interpreter"],
        [[name, f"{taken * 1e3:.0f}", f"{taken / bare:.1f}"] for name, taken in seconds.items()],
    )


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small sizes, to see that it runs")
    smoke = parser.parse_args().smoke
    warnings.simplefilter("ignore")
    graph = captured(2 if smoke else 700)[2]
    print(rates(graph, 1 if smoke else 3), flush=True)
    print()
    print(beside_torchviz(2 if smoke else 700, 1 if smoke else 3), flush=True)
    print()
    print(starts(captured(1)[2], 1 if smoke else 25))


if __name__ == "__main__":
    # torchviz walks the graph by recursion.
    sys.setrecursionlimit(10**7)
    threading.stack_size(1 << 29)
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
