"""Capture by this gradir beside that of another version and beside torchviz, in processes that take turns.

python benchmarks/versions.py [--before PYTHON] [--smoke]

``--before`` is the interpreter of an environment that has the other version. The figures are the minima of all turns,
in microseconds of the processor a grad_fn.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import gradir

sys.path.insert(0, str(Path(__file__).parent))

from capture import Made, bare_walk, capture_made, chain, mix_models, resnet50, torchviz
from measure import run_deep, table


class Case(NamedTuple):
    """What is timed: ``run`` on what ``make`` made, and how often a turn does; a chain is too deep for torchviz."""

    make: Callable[[], Any]
    run: Callable[[Any], object]
    repetitions: int
    drawn: bool = True


class Recorded(NamedTuple):
    """A fresh graph, and the recorder that its forward ran in."""

    recorder: Any
    made: Made


def small_modules(count: int) -> Callable[[], Made]:
    """Graphs of so many linear layers, each with an activation."""
    model = nn.Sequential(*(module for _ in range(count) for module in (nn.Linear(8, 8), nn.Tanh())))
    return lambda: Made(model, model(torch.ones(2, 8)).sum())


def residual(channels: int) -> Callable[[], Made]:
    """Graphs of ResNet-50."""
    model = resnet50(channels)
    return lambda: Made(model, model(torch.ones(2, 3, 32, 32)).sum())


def record_made(make: Callable[[], Made], *, sources: bool = False) -> Callable[[], Recorded]:
    def run() -> Recorded:
        with gradir.record(sources=sources) as recorder:
            made = make()
        return Recorded(recorder, made)

    return run


def capture_recorded(subject: Recorded) -> gradir.Graph:
    return subject.recorder.capture(subject.made.loss, model=subject.made.model)


def capture_alone(made: Made) -> gradir.Graph:
    return gradir.capture(made.loss)


def cases(smoke: bool) -> dict[str, Case]:
    small, blocks, resnet = small_modules(3 if smoke else 300), mix_models(1 if smoke else 60), residual(2)
    often, seldom, length = (1, 1, 10) if smoke else (25, 4, 100_000)
    return {
        "small modules, recorded": Case(record_made(small), capture_recorded, often),
        "small modules, recorded with sources": Case(record_made(small, sources=True), capture_recorded, often),
        "small modules, with the model": Case(small, capture_made, often),
        "small modules, alone": Case(small, capture_alone, often),
        "small modules, the recorded forward": Case(lambda: None, lambda _: record_made(small)(), often, drawn=False),
        "transformer blocks, recorded": Case(record_made(blocks), capture_recorded, often),
        "transformer blocks, with the model": Case(blocks, capture_made, often),
        "ResNet-50, recorded": Case(record_made(resnet), capture_recorded, often),
        "ResNet-50, with the model": Case(resnet, capture_made, often),
        f"a chain of {length:,}": Case(chain(length), capture_alone, seldom, drawn=False),
        f"a chain of {length // 10:,}": Case(chain(length // 10), capture_alone, often, drawn=False),
    }


def shortest(make: Callable[[], Any], run: Callable[[Any], object], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        subject = make()
        gc.collect()
        start = time.thread_time()
        result = run(subject)
        times.append(time.thread_time() - start)
        del subject, result
    return min(times)


def find_made(subject: Any) -> Made:
    return subject.made if isinstance(subject, Recorded) else subject


def turn(smoke: bool, peer: str) -> dict[str, float]:
    """One turn of this interpreter: microseconds a grad_fn, by case."""
    found = {}
    for name, (make, run, repetitions, drawn) in cases(smoke).items():
        subject = make()
        nodes = len(bare_walk(find_made(subject or run(subject))))
        if peer != "torchviz":
            found[name] = shortest(make, run, repetitions) / nodes * 1e6
        elif drawn:
            found[name] = shortest(lambda make=make: find_made(make()), torchviz, min(repetitions, 3)) / nodes * 1e6
    return found


def compare(interpreters: dict[str, str], smoke: bool) -> str:
    best: dict[str, dict[str, float]] = {peer: {} for peer in interpreters}
    for _ in range(1 if smoke else 4):
        for peer, python in interpreters.items():
            command = [python, __file__, "--turn", peer, *(["--smoke"] if smoke else [])]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            for name, cost in json.loads(done.stdout).items():
                best[peer][name] = min(cost, best[peer].get(name, cost))
    others = [peer for peer in interpreters if peer != "now"]
    rows = []
    for name, now in best["now"].items():
        costs = [best[peer].get(name) for peer in others]
        ratios = ["" if cost is None else f"{cost / now:.2f}" for cost in costs]
        rows.append([name, f"{now:.2f}", *("" if cost is None else f"{cost:.2f}" for cost in costs), *ratios])
    return table(
        ["captured", "now µs", *(f"{peer} µs" for peer in others), *(f"{peer} / now" for peer in others)], rows
    )


def main(options: argparse.Namespace) -> None:
    if options.turn:
        print(json.dumps(turn(options.smoke, options.turn)))
        return
    before = {"before": options.before} if options.before else {}
    print(compare({**before, "now": sys.executable, "torchviz": sys.executable}, options.smoke))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="PYTHON", help="the interpreter that has the other version")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does it run")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    run_deep(main, parser.parse_args())
