"""Graphs of a million operations, in small stacks too."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import forked  # noqa: E402
from tensors import leaf  # noqa: E402

import gradir  # noqa: E402
from gradir.frontends.pytorch.reading import keepalive  # noqa: E402

nn = torch.nn


def test_a_deep_chain_is_captured_and_let_go() -> None:
    x = leaf(1)
    y = x
    for _ in range(100_000):
        y = y + 1
    graph = gradir.capture(y, params={"x": x})
    assert len(graph.nodes) == 100_003
    assert keepalive.count_held_nodes() == 100_000
    del y
    gc.collect()
    assert keepalive.count_held_nodes() == 0


def test_a_deep_chain_is_let_go_after_a_compilation_that_failed(tmp_path: Path) -> None:
    script = """if True:
    import gc, torch, gradir
    from gradir.frontends.pytorch.reading import keepalive
    try:
        torch.compile(lambda x: x @ torch.ones(5, 5), backend="eager")(torch.ones(2))
    except Exception:
        y = torch.ones(1, requires_grad=True)
        for _ in range(5_000):
            y = y + 1
        gradir.capture(y)
        print(keepalive.count_held_nodes())
        del y
        gc.collect()
        print(keepalive.count_held_nodes())
    """
    done = forked.run([sys.executable, "-c", script], cwd=tmp_path, text=True, check=True)
    assert done.stdout.split() == ["5000", "0"]


def test_a_kept_hidden_state_keeps_only_its_own_graph() -> None:
    y = leaf(1)
    for step in range(20_000):
        y = y + 1
        if step == 9_999:
            hidden = y
    gradir.capture(y)
    gradir.capture(y)
    del y
    gc.collect()
    assert keepalive.count_held_nodes() == 10_000
    hidden.backward()
    del hidden
    gc.collect()
    assert keepalive.count_held_nodes() == 0


def test_a_deep_chain_of_custom_functions_is_let_go() -> None:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad

    y = leaf(1)
    for step in range(5_000):
        y = Same.apply(y) if step % 2 else y + 1
    gradir.capture(y)
    del y
    gc.collect()
    assert keepalive.count_held_nodes() == 0


def test_an_interrupted_capture_of_a_deep_chain_is_let_go(tmp_path: Path) -> None:
    script = """if True:
    import signal, time, torch, gradir

    def captured(delay):
        y = x
        for _ in range(20_000):
            y = y + 1
        # In the time of the processor, which other processes do not take.
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, delay)
        gradir.capture(y)
        return time.process_time() - begun

    x = torch.ones(1, requires_grad=True)
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    took = captured(0)
    interrupted = 0
    for part in range(1, 7):
        try:
            captured(took * part / 7)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    print(interrupted > 2)
    """
    done = forked.run([sys.executable, "-c", script], cwd=tmp_path, text=True, check=True)
    assert done.stdout.split() == ["True"]


DEEP = """
import gc, sys, threading, torch, gradir

def run():
    y = x
    for _ in range(50_000):
        y = y + 1
    gradir.capture(y)
    return y

x = torch.ones(1, requires_grad=True)
threading.stack_size(512 * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
y = run()
if sys.argv[1] == "free":
    y.backward()
    del y
    gc.collect()
print("survived")
"""


@pytest.mark.parametrize("end", ["free", "exit"])
def test_deep_chains_crash_neither_when_freed_nor_at_exit(end: str) -> None:
    line = [sys.executable, "-c", DEEP, end]
    # A fork does not end as an interpreter does.
    done = (
        forked.run(line, text=True)
        if end == "free"
        else subprocess.run(line, check=False, capture_output=True, text=True)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "survived\n", "")


RELEASED = """
import gc, sys, threading, weakref, numpy, torch, gradir

length = int(sys.argv[1])
gc.disable()

def run():
    x = torch.ones(1, requires_grad=True)
    y, saved = x, []
    for _ in range(length):
        factor = numpy.ones(1, dtype=numpy.float32)
        # torch keeps the array as long as the tensor that a node saved.
        saved.append(weakref.ref(factor))
        y = y * torch.from_numpy(factor)
    del factor
    gradir.capture(y, params={"x": x})
    assert gradir.release() == 0
    alive = lambda: sum(array() is not None for array in saved)
    print(alive())
    del y
    print(alive(), gradir.release(), alive())

threading.stack_size(512 * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("length", [900, 2_000, 20_000])
def test_a_dropped_graph_releases_its_saved_tensors_at_once(length: int) -> None:
    done = forked.run([sys.executable, "-c", RELEASED, str(length)], text=True)
    held = length if length > keepalive.SAFE_DEPTH else 0
    expected = f"{length}\n{held} {held} 0\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
