"""A graph in a few words, and the graph of a forward."""

from __future__ import annotations

from collections.abc import Callable

import gradir
from gradir.ir import Graph, Ref
from gradir.ir.validate import problems


def wiring(graph: Graph) -> dict[str, tuple[str | None, ...]]:
    """What feeds each function and output, by input slot: an id, with ``#`` and the output's number if it is not 0.

    The node that accumulates into a leaf is shown as the leaf.
    """
    return {
        node.id: tuple(_arrow(graph, ref) for ref in node.inputs)
        for node in graph.nodes.values()
        if node.role in {"function", "output"} and node.op != "accumulate_grad"
    }


def _arrow(graph: Graph, ref: Ref | None) -> str | None:
    if ref is None:
        return None
    source = graph.nodes[ref.id]
    if source.op == "accumulate_grad":
        return _arrow(graph, source.inputs[0])
    return f"{ref.id}#{ref.output_nr}" if ref.output_nr else ref.id


def describe_wiring(graph: Graph) -> list[str]:
    """Each node with what it takes: ``exp:1(x)``, an output behind a dot, ``~`` before a view, ``!`` what it writes."""
    signs = {"view": "~", "inplace": "!", "data": ""}
    found = []
    for node in graph.nodes.values():
        refs = zip(node.inputs, node.kinds or ["data"] * len(node.inputs), strict=True)
        taken = [f"{signs[kind]}{ref.id}{f'.{ref.output_nr}' if ref.output_nr else ''}" for ref, kind in refs]
        found.append(f"{node.id}({', '.join(taken)})" if taken else node.id)
    return found


def tensor_roles(graph: Graph) -> dict[str, str]:
    """The role of each node that is a tensor and not an output."""
    return {node.id: node.role for node in graph.nodes.values() if node.role not in {"function", "output"}}


def forward(run: Callable[[], object], model: object = None) -> Graph:
    """The graph of what runs, which keeps every rule of graphs."""
    with gradir.record(model, flow=True) as rec:
        run()
    graph = rec.forward()
    assert list(problems(graph)) == []
    return graph
