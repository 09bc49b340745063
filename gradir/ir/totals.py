"""Count the contents of a graph, and measure their sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import lru_cache

import msgspec

from gradir.ir.edges import number_into
from gradir.ir.graph import Graph
from gradir.ir.marks import times
from gradir.ir.model import Node, Shape, TensorMeta, clamp_size
from gradir.ir.saved import OWNERS, SavedBytes, bytes_beyond_slots, whole_number


class Totals(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Counts and sizes of one graph.

    ``parameters`` counts elements, and ``saved_bytes`` the memory that lives for backward alone.
    """

    nodes: int = 0
    edges: int = 0
    parameters: int = 0
    saved_bytes: int = 0


class Size(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The size of a module by itself: functions, parameter elements and saved bytes."""

    nodes: int = 0
    parameters: int = 0
    saved_bytes: int = 0


def sizes(nodes: Collection[Node]) -> dict[str, Size]:
    """Return the size of each module without its submodules."""
    # A storage counts for the module that saved it first, and a folded module for the module around it.
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    saved: SavedBytes[str] = SavedBytes({node.id: node for node in nodes if node.role in OWNERS})
    for node in nodes:
        found = counts[node.scope]
        if node.role == "function":
            found[0] += 1
        elif node.role != "output":
            found[1] += parameter_elements(node)
        if node.ext or node.role == "module":
            found[2] += bytes_beyond_slots(node)
        if node.saved:
            saved.add(node, node.scope)
    for path, size in saved.total_by_account().items():
        counts[path][2] += size
    return {path: Size(*map(clamp_size, found)) for path, found in counts.items()}


def totals_of(nodes: Collection[Node], modules: Mapping[str, Size]) -> Totals:
    """Return the totals of nodes, given the sizes of their modules; sums are limited to 64 bits."""
    parameters = sum(size.parameters for size in modules.values())
    saved = sum(size.saved_bytes for size in modules.values())
    return Totals(len(nodes), sum(map(number_into, nodes)), clamp_size(parameters), clamp_size(saved))


def totals(graph: Graph) -> Totals:
    """Count a graph; sizes include all nodes that one represents."""
    nodes = graph.nodes.values()
    return totals_of(nodes, sizes(nodes))


def elements(node: Node) -> int:
    """Return the number of elements of a node's first output, or 0 if unknown or symbolic."""
    return tensor_elements(node.outputs[0]) if node.outputs else 0


def tensor_elements(tensor: TensorMeta) -> int:
    """Return the number of elements, limited to 64 bits, or 0 if a size is unknown or symbolic."""
    return count_elements(tensor.shape) or 0


# Graphs have few shapes and many tensors.
@lru_cache(maxsize=1024)
def count_elements(shape: Shape | None) -> int | None:
    """Return the number of elements, limited to 64 bits, or ``None`` if a size is unknown or symbolic."""
    product = 1
    for size in (None,) if shape is None else shape:
        if not isinstance(size, int):
            return None
        # The product of a hostile shape could have thousands of digits.
        product = clamp_size(product * size)
    return product


def parameter_elements(node: Node) -> int:
    """Return the elements of the parameters that a node represents."""
    if node.role == "module":
        return whole_number(node.attrs, "parameters")
    return times(node) * elements(node) if node.role == "parameter" else 0
