"""Leave out operations that return their input, which only some releases of a framework record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gradir.ir import Graph, Node, Ref
from gradir.ir.edges import rewired
from gradir.ir.head import renamed_head
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradir.ir import Saved


def without_identities(graph: Graph) -> Graph:
    """Return the graph without such operations; what read one reads its input. One that has none is returned as it is.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b, meta = Builder(), [TensorMeta("float32", (2, 3))]
    >>> x = b.function("slice", [b.tensor("x", meta[0])], meta)
    >>> b.output(b.function("exp", [x], meta))
    >>> [*without_identities(b.build()).nodes]
    ['x', 'exp:1', 'output']
    """
    names = vocabulary_of(graph).identities
    instead: dict[str, Ref] = {}
    for node in graph.nodes.values():
        source = node.inputs[0] if node.op in names and len(node.inputs) == 1 else None
        if source is not None and _is_same(node, source, graph.nodes):
            instead[node.id] = instead.get(source.id, source)
    if not instead:
        return graph

    def moved(ref: Ref, kind: str) -> Ref:  # noqa: ARG001 (as rewired calls it)
        return instead.get(ref.id, ref)

    def slot(saved: Saved) -> Saved:
        origin = saved.origin and instead.get(saved.origin.id)
        return replace(saved, origin=origin) if origin else saved

    nodes = {
        node.id: replace(node, saved=tuple(map(slot, node.saved)), **rewired(node, moved))
        for node in graph.nodes.values()
        if node.id not in instead
    }
    head = renamed_head(graph, lambda name: instead[name].id if name in instead else name)
    return replace(graph, nodes=nodes, **head)


def _is_same(node: Node, source: Ref, nodes: Mapping[str, Node]) -> bool:
    """Whether the only output has the sizes of the input, and all of them are known."""
    outputs = nodes[source.id].outputs
    if len(node.outputs) != 1 or source.output_nr >= len(outputs):
        return False
    shape = node.outputs[0].shape
    return shape is not None and None not in shape and shape == outputs[source.output_nr].shape
