"""Each field of a graph's head survives whatever makes a graph of another, but where that says that it drops it."""

from __future__ import annotations

import pytest
from kept_fields import (
    KEPT,
    PASSES,
    Operation,
    find_lost_fields,
    find_named_nodes,
    operations,
    public_operations,
    whole,
)
from msgspec.structs import replace

from gradir.ir import Graph
from gradir.ir.head import Head
from gradir.registry import passes

WHOLE = whole()
OPERATIONS = operations(WHOLE)

NOT_TRIED = {
    "gradir.ir.cuts.find_graph_without_flow",
    "gradir.api.link",
    "gradir.lines.name_cells",
    "gradir.lines.add_lines",
}
"""One returns a graph that it was given, one joins graphs by ``joined``, and two need a program captured just now."""


def test_the_graph_holds_no_default() -> None:
    bare = Graph.of([])
    assert not [name for name in WHOLE.__struct_fields__ if getattr(WHOLE, name) == getattr(bare, name) != {}]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_keeps_each_field_or_declares_that_it_drops_it(name: str) -> None:
    assert OPERATIONS[name].run(WHOLE) is not WHOLE
    assert not find_lost_fields(WHOLE, OPERATIONS[name])


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_head_of_a_result_names_nodes_of_the_result(name: str) -> None:
    made = OPERATIONS[name].run(WHOLE)
    names = {node for field in Head.__struct_fields__ for node in find_named_nodes(getattr(made, field))}
    assert names <= {"", *made.nodes}


def test_operations_drop_exactly_their_declared_fields() -> None:
    for name, operation in OPERATIONS.items():
        assert find_lost_fields(WHOLE, Operation(operation.run)) == operation.drops, name


def test_every_operation_is_tried() -> None:
    assert public_operations() - NOT_TRIED == {name for name in OPERATIONS if name.startswith("gradir.")}
    assert len(passes()) == len(PASSES)


@pytest.mark.parametrize("field", KEPT)
def test_the_law_notices_a_field_that_is_lost(field: str) -> None:
    default = getattr(Graph.of([]), field)
    assert find_lost_fields(WHOLE, Operation(lambda graph: replace(graph, **{field: default}))) == {field}
    assert not find_lost_fields(WHOLE, Operation(lambda graph: replace(graph, **{field: default}), frozenset({field})))


def test_the_law_notices_a_graph_that_is_made_by_hand() -> None:
    def run(graph: Graph) -> Graph:
        return Graph.of(graph.nodes.values(), graph.scopes.values(), graph.cuts, graph.producer)

    assert find_lost_fields(WHOLE, Operation(run)) == {*Head.__struct_fields__, "read_from", "unknown"} - {
        "cuts",
        "producer",
    }
