"""Capture for JAX beside JAX's own tracing: a LLaMA of 7 billion parameters, and graphs of many equations.

Each row is taken side by side in one process: minima of the processor's time. ``make_jaxpr``
is what a capture does first; what is beyond is gradir's.
Memory is what the process has more after than before, at its peak, in a process of its own for each row.

    python benchmarks/jax_capture.py
    python benchmarks/jax_capture.py --smoke
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from measure import is_smoke, table

import gradir

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from jax_models.plain import BILLIONS, SMALL, llama

FORMS = [(scanned, checkpointed) for scanned in (False, True) for checkpointed in (False, True)]
_REPETITIONS = 3


def seconds(run: Callable[[], object]) -> float:
    """The processor's time for a run, from a cold start of JAX's caches."""
    jax.clear_caches()
    start = time.process_time()
    run()
    return time.process_time() - start


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure_llama(*, scanned: bool, checkpointed: bool, smoke: bool) -> dict[str, float]:
    """What a capture takes beyond the trace, in a process of its own."""
    fn, args = llama(SMALL if smoke else BILLIONS, scanned=scanned, checkpointed=checkpointed)
    # What only the first capture of a process does is not of this graph.
    gradir.capture(lambda w: jnp.sin(w).sum(), jax.ShapeDtypeStruct((3,), jnp.float32))
    tracing = min(seconds(lambda: jax.make_jaxpr(fn)(*args)) for _ in range(_REPETITIONS))
    before = peak_kib()
    graph = gradir.capture(fn, *args)
    memory = (peak_kib() - before) / 1024
    capture = min(seconds(lambda: gradir.capture(fn, *args)) for _ in range(_REPETITIONS))
    return {"nodes": len(graph.nodes), "tracing": tracing, "capture": capture, "memory": memory}


def measure_chain(equations: int) -> dict[str, float]:
    """A function of so many equations: its capture beside the trace of its gradient."""

    def fn(p: Any, x: Any) -> Any:
        for number in range(equations // 4):
            x = jnp.tanh(x @ p["w"] + p["b"]) * (1.0 + number % 7)
        return x.sum()

    shape = jax.ShapeDtypeStruct
    args = {"w": shape((8, 8), jnp.float32), "b": shape((4, 8), jnp.float32)}, shape((4, 8), jnp.float32)
    gradient, capture = [], []
    for _ in range(_REPETITIONS):
        gradient.append(seconds(lambda: jax.make_jaxpr(jax.grad(fn))(*args)))
        capture.append(seconds(lambda: gradir.capture(fn, *args)))
    graph = gradir.capture(fn, *args)
    return {"nodes": len(graph.nodes), "gradient": min(gradient), "capture": min(capture)}


def alone(*arguments: str) -> dict[str, float]:
    """What this file finds in a process of its own."""
    command = [sys.executable, __file__, "--one", *arguments]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return found


def main(*, smoke: bool) -> None:
    rows = []
    for scanned, checkpointed in FORMS[:1] if smoke else FORMS:
        found = alone(str(int(scanned)), str(int(checkpointed)), str(int(smoke)))
        beyond = found["capture"] - found["tracing"]
        name = f"{'scanned' if scanned else 'unrolled'}{', checkpointed' * checkpointed}"
        seconds_taken = [f"{each:.2f}" for each in (found["tracing"], found["capture"], beyond)]
        rows.append([name, f"{found['nodes']:,.0f}", *seconds_taken, f"{found['memory']:.0f}"])
    print(table(["LLaMA", "nodes", "make_jaxpr s", "capture s", "beyond s", "beyond MB"], rows))
    print()
    rows = []
    for equations in (40, 80) if smoke else (1_000, 10_000):
        found = measure_chain(equations)
        gradient, capture = found["gradient"], found["capture"]
        figures = [f"{each:.2f}" for each in (gradient, capture, capture / gradient)]
        rows.append([f"{equations:,}", f"{found['nodes']:,.0f}", *figures])
    print(table(["equations", "nodes", "make_jaxpr(grad) s", "capture s", "capture / make_jaxpr(grad)"], rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        each = [bool(int(word)) for word in sys.argv[2:]]
        print(json.dumps(measure_llama(scanned=each[0], checkpointed=each[1], smoke=each[2])))
    else:
        main(smoke=is_smoke(__doc__))
