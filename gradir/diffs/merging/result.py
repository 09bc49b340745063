"""Gives the nodes of a merge their order, their ids and the names of their storages, as a capture would."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gradir.diffs.merging.side import FIXED, LEAF, NAMED, ORDINAL, TENSOR, TEXT, UNDER, dependencies
from gradir.diffs.merging.values import woven
from gradir.ir.edges import rewired
from gradir.ir.ids import encode_component, function_prefix, storage_key
from gradir.ir.model import Node, Ref, Saved
from gradir.ir.order import postorder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradir.diffs.merging.side import Side

__all__ = ["ids_of", "order_of", "written"]


def order_of(nodes: Mapping[str, Node], sides: Sequence[Side]) -> list[str]:
    """The keys of the nodes in canonical order, if all three graphs are in it, else each behind what it was behind.

    Only what the outputs depend on is there in the first case.
    """
    orders = [[key for key in side.keys.values() if key in nodes] for side in sides]
    # Not by whose they are, so that it does not matter which side is which.
    order, _ = woven(orders, by=lambda keys: [key[1:] for key in keys])
    if all(side.is_canonical for side in sides):
        order = [key for key in order if nodes[key].role == "output"]
    return postorder(order, lambda key: dependencies(nodes, key))


def ids_of(nodes: Mapping[str, Node], order: Sequence[str]) -> dict[str, str]:
    """The id of each node by its key; the id of each node in ``nodes`` says how it is made."""
    names = _Names()
    found = {key: names.free(nodes[key].id[len(FIXED) :]) for key in order if nodes[key].id.startswith(FIXED)}
    for key in order:
        node = nodes[key]
        if node.id == ORDINAL:
            found[key] = names.next(function_prefix(encode_component(node.scope), encode_component(node.op)))
        elif node.id.startswith(UNDER):
            first = next((ref.id for ref in node.inputs if ref is not None), "")
            found[key] = names.free(found.get(first, "") + node.id)
        elif node.id == NAMED and node.names:
            found[key] = names.free(encode_component(node.names[0]))
        elif key not in found:
            found[key] = names.next(f"{LEAF}:")
    return found


class _Names:
    """Ids that are free, in time that does not grow with how many are alike."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: defaultdict[str, int] = defaultdict(int)

    def free(self, wanted: str) -> str:
        """The id itself, or with the next free suffix."""
        claimed = wanted
        while claimed in self._taken:
            self._counts[wanted] += 1
            claimed = f"{wanted}~{self._counts[wanted] + 1}"
        self._taken.add(claimed)
        return claimed

    def next(self, prefix: str) -> str:
        """The id with the next free ordinal."""
        self._counts[prefix] += 1
        while f"{prefix}{self._counts[prefix]}" in self._taken:
            self._counts[prefix] += 1
        return self.free(f"{prefix}{self._counts[prefix]}")


def written(nodes: Mapping[str, Node], order: Sequence[str], ids: Mapping[str, str]) -> list[Node]:
    """The nodes with ids in place of keys."""
    owners: dict[str, tuple[str, int, str]] = {}

    def ref_of(ref: Ref | None) -> Ref | None:
        return None if ref is None else replace(ref, id=ids[ref.id])

    def slot_of(slot: Saved, node_id: str, place: int) -> Saved:
        what, called = slot.storage[:1], slot.storage[1:]
        if what == TENSOR:
            storage = ids[called]
        elif what == TEXT:
            storage = called
        else:
            own = node_id, place, storage_key(node_id, slot.slot)
            owner = owners.setdefault(slot.storage, own)
            storage = "" if owner == own else owner[2]
        return replace(slot, origin=ref_of(slot.origin), storage=storage)

    return [
        replace(
            node,
            id=ids[key],
            saved=tuple([slot_of(slot, ids[key], place) for place, slot in enumerate(node.saved)]),
            **rewired(node, lambda ref, _: ref_of(ref)),
        )
        for key, node in ((key, nodes[key]) for key in order)
    ]
