"""What a reader asks of a graph first: how many, how large."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

import msgspec

from gradir.ir.graph import Graph
from gradir.ir.model import MOST, Node, TensorMeta

__all__ = [
    "OWNERS",
    "SavedBytes",
    "Tally",
    "Totals",
    "bounded",
    "elements",
    "folded",
    "sized_slots",
    "tensor_elements",
    "totals",
    "unknown_slots",
]

OWNERS = frozenset({"leaf", "parameter", "buffer"})
"""The roles of nodes whose storage lives anyway, with or without a backward."""


def bounded(count: int) -> int:
    """A size, or a sum of sizes, with `MOST` for what is beyond counting.

    A file may state sizes whose product has thousands of digits, which Python does not print and no float can hold.

    >>> bounded(24), bounded(2**64), bounded(-(2**64))
    (24, 9223372036854775807, -9223372036854775807)
    """
    return max(-MOST, min(count, MOST))


class Totals(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Counts and sizes of one graph.

    ``parameters`` counts elements; ``saved_bytes`` is the memory that lives for backward alone, in bytes: every
    storage once, those of leaves, parameters and buffers left out.
    """

    nodes: int = 0
    edges: int = 0
    parameters: int = 0
    saved_bytes: int = 0


class Tally:
    """Totals of nodes that come a few at a time.

    >>> tally = Tally()
    >>> tally.add([Node("w", role="parameter", outputs=(TensorMeta("float32", (2, 3)),))])
    >>> tally.totals()
    Totals(nodes=1, edges=0, parameters=6, saved_bytes=0)
    """

    def __init__(self) -> None:
        self._nodes = 0
        self._edges = 0
        self._parameters = 0
        self._folded_bytes = 0
        self._storages = _Storages()
        self._owners: set[str] = set()

    def add(self, nodes: Iterable[Node]) -> None:
        """Count further nodes."""
        for node in nodes:
            self._nodes += 1
            self._edges += len(node.inputs) - node.inputs.count(None) + (node.base is not None)
            if node.saved:
                self._storages.add(node)
            if node.role in OWNERS:
                self._owners.add(node.id)
                if node.role == "parameter":
                    self._parameters += elements(node)
            elif node.role == "module":
                parameters, saved_bytes = folded(node)
                self._parameters += parameters
                self._folded_bytes += saved_bytes

    def totals(self) -> Totals:
        """What there is so far, sums of sizes `bounded`."""
        saved = self._storages.bytes_without(self._owners) + self._folded_bytes
        return Totals(self._nodes, self._edges, bounded(self._parameters), bounded(saved))


def totals(graph: Graph) -> Totals:
    """Count a graph.

    >>> totals(Graph.of([Node("w", role="parameter")]))
    Totals(nodes=1, edges=0, parameters=0, saved_bytes=0)
    """
    tally = Tally()
    tally.add(graph.nodes.values())
    return tally.totals()


class SavedBytes:
    """The bytes that nodes keep alive, each storage at the node that saved it first; those of owners are left out.

    >>> from gradir.ir.model import Saved
    >>> a, b = (Node(f"{op}:1", saved=(Saved("self", bytes=8, storage="exp:1.result"),)) for op in ("mul", "sin"))
    >>> saved = SavedBytes({"mul:1": a, "sin:1": b})
    >>> saved.add(a), saved.add(b)
    (8, 0)
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """``nodes`` are all nodes of the graph, in which a storage's owner is looked up."""
        self._nodes = nodes
        self._sizes: dict[str, int] = {}

    def add(self, node: Node) -> int:
        """Note the slots of a node; returns by how many bytes they exceed what was noted before."""
        grown = 0
        for key, size, _ in sized_slots(node):
            if key is None:
                grown += size
                continue
            known = self._sizes.get(key, 0)
            if size > known and not self._is_owned(key):
                self._sizes[key] = size
                grown += size - known
        return grown

    def _is_owned(self, key: str) -> bool:
        owner = self._nodes.get(key)
        return owner is not None and owner.role in OWNERS


def unknown_slots(nodes: Iterable[Node]) -> int:
    """The saved slots of unknown size, as hooks and a backward leave them.

    >>> from gradir.ir.model import Saved
    >>> unknown_slots([Node("mul:1", saved=(Saved("self", bytes=8), Saved("other", state="hooked")))])
    1
    """
    return sum(saved.bytes is None for node in nodes for saved in node.saved)


def sized_slots(node: Node) -> Iterator[tuple[str | None, int, str]]:
    """The saved slots of known size: the key of the storage, its bytes, and the slot's state.

    The key is ``None`` for a slot that has a storage of its own and shares its name with another of the node.
    """
    own: set[str] = set()
    for saved in node.saved:
        if saved.bytes is None:
            continue
        if saved.storage:
            yield saved.storage, saved.bytes, saved.state
            continue
        key = f"{node.id}.{saved.slot}"
        yield None if key in own else key, saved.bytes, saved.state
        own.add(key)


class _Storages:
    """The bytes of each storage that saved slots keep, and of the slots that share a name by mistake."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._repeated = 0

    def add(self, node: Node) -> None:
        """Note the slots of a node."""
        for key, size, _ in sized_slots(node):
            if key is None:
                self._repeated += size
            else:
                self._sizes[key] = max(self._sizes.get(key, 0), size)

    def bytes_without(self, owners: Container[str]) -> int:
        """The size of all storages but those of these nodes."""
        return self._repeated + sum(size for key, size in self._sizes.items() if key not in owners)


def elements(node: Node) -> int:
    """The number of elements of a node's first output, `bounded`; 0 when a size is unknown or symbolic."""
    return tensor_elements(node.outputs[0]) if node.outputs else 0


def tensor_elements(tensor: TensorMeta) -> int:
    """The number of elements, `bounded`; 0 when a size is unknown or symbolic.

    >>> tensor_elements(TensorMeta(shape=(2, 3))), tensor_elements(TensorMeta(shape=(2**62,) * 100 + (0,)))
    (6, 0)
    """
    if tensor.shape is None:
        return 0
    product = 1
    for size in tensor.shape:
        if not isinstance(size, int):
            return 0
        product = bounded(product * size)
    return product


def folded(node: Node) -> tuple[int, int]:
    """The elements of parameters and the saved bytes that a folded module stands for.

    >>> folded(Node("fc", role="module", attrs={"parameters": 6, "saved_bytes": 96}))
    (6, 96)
    """
    return _whole(node, "parameters"), _whole(node, "saved_bytes")


def _whole(node: Node, attribute: str) -> int:
    value = node.attrs.get(attribute)
    return value if isinstance(value, int) else 0
