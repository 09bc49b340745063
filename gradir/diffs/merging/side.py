"""The records of three graphs with keys in place of names, and the merged records with names in place of keys."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gradir.diffs.compare import residual_counts
from gradir.diffs.merging.values import merge_orders, slots_of
from gradir.ir.edges import edges_into, postorder, rewired
from gradir.ir.ids import FreeIds, below, encode_component, function_prefix, is_named, split_ordinal, storage_key
from gradir.ir.model import BESIDE, Cut, Node, Ref, Saved, Scope

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from gradir.diffs.merging.places import Places
    from gradir.ir import Graph

# How an id is made: counted, of a leaf without a name, of its name, of that of its first input, or by hand.
ORDINAL, LEAF, NAMED, UNDER, FIXED = "#", "leaf:", "name", "/", "="
# What a storage is called after: a tensor that owns it, nothing in the graph, or its first slot.
TENSOR, TEXT, SLOT = "t", "x", "s"


class Side:
    """One of the three graphs: what its nodes, modules, cuts and storages are in the words of the result.

    ``keys`` has the key of each node. Whoever makes a side fills it, inputs first.
    """

    def __init__(self, graph: Graph, number: int, places: Places) -> None:
        self.graph = graph
        self.keys: dict[str, str] = {}
        self._number = number
        self._places = places

    def path(self, path: str) -> str:
        """Return the path in the result of one of its modules."""
        return self._places.path(self._number, path)

    def key_of(self, node_id: str) -> str:
        """Return the key of a node; nothing for an id that no node has."""
        return self.keys.get(node_id, "")

    def signature(self, node: Node) -> Hashable:
        """Return what a new node does, where, and with what; it is equal for one that the other side added too."""
        edges = tuple((self.keys[edge.src], *edge[1:2], *edge[3:]) for edge in edges_into(node))
        names = tuple(self._places.name(self._number, name) for name in node.names)
        what = (names or node.outputs) if not (node.op or edges) else node.op
        place = node.id if node.role == "output" else ""
        return node.role, what, self.path(node.scope), edges, len(node.inputs), place

    def node(self, node_id: str, storages: Mapping[tuple[str, str], str]) -> Node:
        """Return a node in the words of the result; its id says how to make it, and its storages are keys."""
        node = self.graph.nodes[node_id]
        return replace(
            node,
            id=self._kind(node),
            scope=self.path(node.scope),
            names=tuple([self._places.name(self._number, name) for name in node.names]),
            saved=tuple(
                replace(slot, origin=self._ref(slot.origin), storage=storages[node_id, name])
                for name, slot in slots_of(node)
            ),
            **rewired(node, lambda ref, _: self._ref(ref)),
        )

    def cuts(self) -> dict[Hashable, Cut]:
        """Return the cuts in the words of the result; their keys count equal ones."""
        found: dict[Hashable, Cut] = {}
        seen: defaultdict[Hashable, int] = defaultdict(int)
        for cut in self.graph.cuts:
            names = tuple(self._places.name(self._number, name) for name in cut.names)
            at, into = (self.key_of(node_id) for node_id in (cut.at, cut.into))
            now = replace(cut, names=names, scope=self.path(cut.scope), at=at, into=into)
            key = (now.kind, now.op, now.scope, names) if cut.is_place else ("", "", "", names)
            seen[key] += 1
            found[(*key, seen[key])] = now
        return found

    @cached_property
    def scopes(self) -> dict[str, Scope]:
        """The modules of the table by key, their counts without those of the modules in them."""
        scopes = self.graph.scopes
        return {
            self._places.key(self._number, path): replace(scopes[path], path=self.path(path), **counts)
            for path, counts in residual_counts(scopes).items()
        }

    @cached_property
    def is_canonical(self) -> bool:
        """Whether the nodes stand in the order in which capture and `gradir.Builder` put them."""
        nodes = self.graph.nodes
        return postorder([node.id for node in self.graph.outputs], lambda key: dependencies(nodes, key)) == [*nodes]

    def storages(self, base: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
        """Return the storage of each slot, by node and slot, as a key that is the same in all graphs."""
        # `base` has the storages of the base by the keys of nodes, which slots that were there keep.
        nodes = self.graph.nodes
        first: dict[str, tuple[str, str]] = {}
        of_slot: dict[tuple[str, str], str] = {}
        for node in nodes.values():
            for name, slot in slots_of(node):
                of_slot[node.id, name] = slot.storage or storage_key(node.id, name)
        own = {storage_key(*place) for place in of_slot}
        for (node_id, slot_name), name in of_slot.items():
            place = self.keys[node_id], slot_name
            if name not in first or (place in base and first[name] not in base):
                first[name] = place
        taken: set[str] = set()
        called: dict[str, str] = {}
        for name, (key, slot_name) in first.items():
            if name in nodes:
                called[name] = TENSOR + self.keys[name]
                continue
            called[name] = TEXT + name if name not in own else SLOT + storage_key(key, slot_name)
            found = base.get((key, slot_name), "")
            if found.startswith(SLOT) and name in own and found not in taken:
                called[name] = found
                taken.add(found)
        return {place: called[name] for place, name in of_slot.items()}

    @cached_property
    def _counted(self) -> set[str]:
        """What ids start with that are counted in the order of the nodes, as capture does it."""
        counts: defaultdict[str, int] = defaultdict(int)
        wrong: set[str] = set()
        for node in self.graph.nodes.values():
            prefix, ordinal = split_ordinal(node.id)
            counts[prefix] += 1
            if ordinal != counts[prefix]:
                wrong.add(prefix)
        return counts.keys() - wrong

    def _kind(self, node: Node) -> str:
        prefix, ordinal = split_ordinal(node.id)
        first = next((ref.id for ref in node.inputs if ref is not None), "")
        if behind := below(node.id, first):
            return behind
        if ordinal and prefix in self._counted:
            if node.op and prefix == function_prefix(encode_component(node.scope), encode_component(node.op)):
                return ORDINAL
            if not node.op and not node.names and prefix == LEAF:
                return LEAF
        if node.names and not node.op and node.names[0] and is_named(node.id, node.names[0]):
            return NAMED
        return FIXED + node.id

    def _ref(self, ref: Ref | None) -> Ref | None:
        return None if ref is None else replace(ref, id=self.keys[ref.id])


def dependencies(nodes: Mapping[str, Node], key: str) -> list[str]:
    """Return what has to stand before a node: its inputs, and what it saves that no edge leads from."""
    node = nodes[key]
    origins = (slot.origin.id for slot in node.saved if slot.origin is not None)
    return [*(edge.src for edge in edges_into(node)), *(key for key in origins if nodes[key].role in BESIDE)]


def order_nodes(nodes: Mapping[str, Node], sides: Sequence[Side]) -> list[str]:
    """Return the keys of the nodes in canonical order if all graphs are in it, else each behind its predecessor."""
    # In the first case only what the outputs depend on is there.
    orders = [[key for key in side.keys.values() if key in nodes] for side in sides]
    # Not by whose they are, so that it does not matter which side is which.
    order, _ = merge_orders(orders, by=lambda keys: [key[1:] for key in keys])
    if all(side.is_canonical for side in sides):
        order = [key for key in order if nodes[key].role == "output"]
    return postorder(order, lambda key: dependencies(nodes, key))


def make_ids(nodes: Mapping[str, Node], order: Sequence[str]) -> dict[str, str]:
    """Return the id of each node by its key; the id of each node in ``nodes`` says how to make it."""
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


def build_nodes(nodes: Mapping[str, Node], order: Sequence[str], ids: Mapping[str, str]) -> list[Node]:
    """Return the nodes with ids in place of keys."""
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
