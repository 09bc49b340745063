"""Count the contents of a graph, and measure their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from gradir.ir.edges import number_into
from gradir.ir.graph import Graph
from gradir.ir.marks import times
from gradir.ir.merged import bytes_told
from gradir.ir.model import Node, Shape, TensorMeta, bounded
from gradir.ir.saved import OWNERS, Storages, whole_number

__all__ = ["Totals", "bounded", "elements", "parameter_elements", "tensor_elements", "totals", "totals_of"]
_COUNTED: Final = OWNERS | {"module"}


class Totals(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Counts and sizes of one graph.

    ``parameters`` counts elements, and ``saved_bytes`` the memory that lives for backward alone.
    """

    nodes: int = 0
    edges: int = 0
    parameters: int = 0
    saved_bytes: int = 0


def totals_of(nodes: Sequence[Node]) -> Totals:
    """Count nodes; sums of sizes are `bounded`."""
    parameters, saved, storages, owners = 0, 0, Storages(), []
    for node in nodes:
        if node.saved:
            saved += sum(size for _, size, _ in storages.add(node))
        if node.role in _COUNTED:
            if node.role in OWNERS:
                owners.append(node.id)
            parameters += parameter_elements(node)
        if node.ext or node.role == "module":
            saved += bytes_told(node)
    saved -= storages.bytes_of(owners)
    return Totals(len(nodes), sum(map(number_into, nodes)), bounded(parameters), bounded(saved))


def totals(graph: Graph) -> Totals:
    """Count a graph; sizes are those of all nodes that one stands for."""
    return totals_of(list(graph.nodes.values()))


def elements(node: Node) -> int:
    """Return the number of elements of a node's first output, `bounded`, or 0 if unknown or symbolic."""
    return tensor_elements(node.outputs[0]) if node.outputs else 0


def tensor_elements(tensor: TensorMeta) -> int:
    """Return the number of elements, `bounded`, or 0 if a size is unknown or symbolic.

    >>> tensor_elements(TensorMeta(shape=(2, 3))), tensor_elements(TensorMeta(shape=(2**62,) * 100 + (0,)))
    (6, 0)
    """
    return 0 if tensor.shape is None else _product(tensor.shape)


# Graphs have few shapes and many tensors.
@lru_cache(maxsize=1024)
def _product(shape: Shape) -> int:
    product = 1
    for size in shape:
        if not isinstance(size, int):
            return 0
        # Bounded each time: the product of a hostile shape could have thousands of digits.
        product = bounded(product * size)
    return product


def parameter_elements(node: Node) -> int:
    """Return the elements of the parameters that a node represents."""
    if node.role == "module":
        return whole_number(node.attrs, "parameters")
    return times(node) * elements(node) if node.role == "parameter" else 0
