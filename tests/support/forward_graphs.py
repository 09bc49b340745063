"""The graph of a recorded forward. For test modules that know that torch is there."""

from __future__ import annotations

from collections.abc import Callable

import gradir
from gradir.ir.validate import problems

__all__ = ["forward"]


def forward(run: Callable[[], object], model: object = None) -> gradir.Graph:
    """The graph of what runs, which keeps every rule of graphs."""
    with gradir.record(model, flow=True) as rec:
        run()
    graph = rec.forward()
    assert list(problems(graph)) == []
    return graph
