"""What a storage is called in the other graph: its name is the slot that saved it first, which an order decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.ir.ids import storage_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gradir.ir import Graph, Node

__all__ = ["renamed_storages"]

Slots = dict[str, list[tuple[str, str]]]


def renamed_storages(a: Graph, b: Graph, called: Callable[[str], str]) -> dict[str, str]:
    """Names of storages of the first graph to those of the second, where the same slots share them under another name.

    ``called`` gives what a node of the first graph is called in the second. A storage that is not shared, or that a
    tensor owns, has no other name.

    >>> from gradir.ir import Graph, Node, Saved
    >>> def saving(slot, storage=""): return (Saved(slot, "float32", (2,), 8, storage=storage),)
    >>> a = Graph.of([Node("f:1", op="f", saved=saving("x")), Node("g:1", op="g", saved=saving("x", "f:1.x"))])
    >>> b = Graph.of([Node("g:1", op="g", saved=saving("x")), Node("f:1", op="f", saved=saving("x", "g:1.x"))])
    >>> renamed_storages(a, b, lambda name: name)
    {'f:1.x': 'g:1.x'}
    """
    before, after = _shared(a.nodes.values()), _shared(b.nodes.values())
    if not before or not after:
        return {}
    names = {frozenset(slots): name for name, slots in after.items()}
    found = {}
    for name, slots in before.items():
        there = names.get(frozenset((called(node_id), slot) for node_id, slot in slots))
        if there is not None:
            node_id, slot = slots[0]
            if there != storage_key(called(node_id), slot):
                found[name] = there
    return found


def _shared(nodes: Collection[Node]) -> Slots:
    """The slots that share a storage, by its name: first the slot that gives the name, then those that refer to it."""
    found: Slots = {}
    for node in nodes:
        for slot in node.saved:
            if slot.storage:
                found.setdefault(slot.storage, []).append((node.id, slot.slot))
    if not found:
        return found
    own = {
        name: (node.id, slot.slot)
        for node in nodes
        for slot in node.saved
        if not slot.storage and (name := storage_key(node.id, slot.slot)) in found
    }
    return {name: [own[name], *slots] for name, slots in found.items() if name in own}
