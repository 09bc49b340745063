"""Both graphs in one as a picture shows them: what takes the gradient of a tensor is no box beside that tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from gradir.ir.marks import STATUS, status
from gradir.passes.wiring import has_one_input, without
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradir.ir import Graph

__all__ = ["DrawnUnion", "drawn_union"]

_CHANGED: Final = "changed"


class DrawnUnion(NamedTuple):
    """The graph, and ``instead`` by each node that is not in it the one that stands for it."""

    graph: Graph
    instead: Mapping[str, str]


def drawn_union(union: Graph) -> DrawnUnion:
    """A marked union without its gradient accumulators.

    Where an accumulator is all that changed of a tensor, the tensor is marked as changed.

    >>> from gradir.ir import Graph, Node, Producer, Ref
    >>> nodes = [
    ...     Node("w", role="parameter"),
    ...     Node("w/accumulate_grad:1", op="accumulate_grad", inputs=(Ref("w", 0),), ext={"diff": "added"}),
    ...     Node("exp:1", op="exp", inputs=(Ref("w/accumulate_grad:1", 0),)),
    ... ]
    >>> graph, instead = drawn_union(Graph.of(nodes, producer=Producer(framework="torch")))
    >>> [(node.id, node.inputs, dict(node.ext)) for node in graph.nodes.values()]
    [('w', (), {'diff': 'changed'}), ('exp:1', (Ref(id='w', output_nr=0),), {})]
    >>> instead
    {'w/accumulate_grad:1': 'w'}
    """
    accumulators = vocabulary_of(union).accumulators
    instead: dict[str, str] = {}
    changed: dict[str, None] = {}
    for node in union.nodes.values():
        if node.op in accumulators and has_one_input(node) and (source := node.inputs[0]) is not None:
            tensor = instead[node.id] = instead.get(source.id, source.id)
            if status(node) and not status(union.nodes[tensor]):
                changed[tensor] = None
    graph = without(union, instead, lambda _: True)
    if not changed:
        return DrawnUnion(graph, instead)
    marked = {key: replace(graph.nodes[key], ext={**graph.nodes[key].ext, STATUS: _CHANGED}) for key in changed}
    return DrawnUnion(replace(graph, nodes={**graph.nodes, **marked}), instead)
