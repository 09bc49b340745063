"""The sizes of the modules add up to those of the graph."""

from __future__ import annotations

from hypothesis import given
from samples import everything
from strategies import graphs

from gradir.ir import Graph, Node, Saved
from gradir.ir.totals import sizes, totals
from gradir.passes import fold


def assert_sums(graph: Graph) -> None:
    each, whole = sizes(graph.nodes.values()).values(), totals(graph)
    assert sum(size.parameters for size in each) == whole.parameters
    assert sum(size.saved_bytes for size in each) == whole.saved_bytes
    assert sum(size.nodes for size in each) == sum(node.role == "function" for node in graph.nodes.values())


@given(graphs())
def test_any_graphs_modules(graph: Graph) -> None:
    assert_sums(graph)


@given(graphs())
def test_any_folded_graphs_modules(graph: Graph) -> None:
    assert_sums(fold(graph, 0))
    assert_sums(fold(graph, 1))


def test_a_folded_module_has_what_it_holds() -> None:
    folded = fold(everything(), 1)
    assert any(node.role == "module" for node in folded.nodes.values())
    assert totals(folded).parameters > 0
    assert_sums(folded)


def test_two_slots_of_one_name_are_both_counted() -> None:
    graph = Graph.of([Node("f:1", saved=(Saved("self", bytes=8), Saved("self", bytes=8)))])
    assert sizes(graph.nodes.values())[""].saved_bytes == totals(graph).saved_bytes == 16
