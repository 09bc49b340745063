"""Gives the nodes of a merge their order, their ids and the names of their storages, as a capture would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gradir.diffs.merging.side import FIXED, LEAF, NAMED, ORDINAL, TENSOR, TEXT, UNDER, dependencies
from gradir.diffs.merging.values import woven
from gradir.ir.edges import rewired
from gradir.ir.ids import FreeIds, encode_component, function_prefix, storage_key
from gradir.ir.model import Node, Ref, Saved
from gradir.ir.order import postorder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradir.diffs.merging.side import Side


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
    ids = FreeIds()
    made = {key: nodes[key].id for key in order}
    found = {key: ids.free(how[len(FIXED) :]) for key, how in made.items() if how.startswith(FIXED)}
    for key, how in made.items():
        node = nodes[key]
        if how == ORDINAL:
            found[key] = ids.next(function_prefix(encode_component(node.scope), encode_component(node.op)))
        elif how.startswith(UNDER):
            first = next((ref.id for ref in node.inputs if ref is not None), "")
            found[key] = ids.free(found.get(first, "") + how)
        elif how == NAMED and node.names:
            found[key] = ids.free(encode_component(node.names[0]))
        elif key not in found:
            found[key] = ids.next(LEAF)
    return found


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
