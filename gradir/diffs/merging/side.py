"""Translate records of three graphs from names to keys, and merged records from keys to names."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gradir.diffs.compare import residual_counts
from gradir.diffs.merging.values import merge_orders, slots_of
from gradir.ir.edges import edges_into, move_edges, postorder
from gradir.ir.ids import FreeIds, encode_component, function_prefix, id_suffix, is_named, split_ordinal, storage_key
from gradir.ir.model import NO_GRADIENT_ROLES, Cut, Node, Ref, Saved, Scope

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from gradir.diffs.merging.places import Places
    from gradir.ir import Graph

# The origin of an id: a count, a count of leaves without a name, the name, the id of the first input, or by hand.
ORDINAL, LEAF, NAMED, UNDER, FIXED = "#", "leaf:", "name", "/", "="
# The origin of a storage's name: a tensor that owns it, nothing in the graph, or its first slot.
TENSOR, TEXT, SLOT = "t", "x", "s"


class Side:
    """One of the three graphs, which translates its nodes, modules, cuts and storages to keys and new paths."""

    def __init__(self, graph: Graph, number: int, places: Places) -> None:
        self.graph = graph
        # The caller adds the key of each node, inputs first.
        self.keys: dict[str, str] = {}
        self._number = number
        self._places = places

    def path(self, path: str) -> str:
        """Return the path in the result of one of its modules."""
        return self._places.path(self._number, path)

    def key_of(self, node_id: str) -> str:
        """Return the key of a node, empty for an id without a node."""
        return self.keys.get(node_id, "")

    def signature(self, node: Node) -> Hashable:
        """Return the operation, module and inputs of a new node, equal for the same node of the other side."""
        edges = tuple((self.keys[edge.src], *edge[1:2], *edge[3:]) for edge in edges_into(node))
        names = tuple(self._places.name(self._number, name) for name in node.names)
        content = (names or node.outputs) if not (node.op or edges) else node.op
        place = node.id if node.role == "output" else ""
        return node.role, content, self.path(node.scope), edges, len(node.inputs), place

    def node(self, node_id: str, storages: Mapping[tuple[str, str], str]) -> Node:
        """Return a node with keys and new paths; its id is the origin of an id, and its storages are keys."""
        node = self.graph.nodes[node_id]
        return replace(
            node,
            id=self._origin_of_id(node),
            scope=self.path(node.scope),
            names=tuple([self._places.name(self._number, name) for name in node.names]),
            saved=tuple(
                replace(slot, origin=self._ref(slot.origin), storage=storages[node_id, name])
                for name, slot in slots_of(node)
            ),
            **move_edges(node, lambda ref, _: self._ref(ref)),
        )

    def cuts(self) -> dict[Hashable, Cut]:
        """Return the cuts with keys of nodes and new paths; their own keys count equal ones."""
        found: dict[Hashable, Cut] = {}
        seen: Counter[Hashable] = Counter()
        for cut in self.graph.cuts:
            names = tuple(self._places.name(self._number, name) for name in cut.names)
            scope = self.path(cut.scope)
            key = (cut.kind, cut.op, scope, names) if cut.is_place else ("", "", "", names)
            seen[key] += 1
            at, into = self.key_of(cut.at), self.key_of(cut.into)
            found[(*key, seen[key])] = replace(cut, names=names, scope=scope, at=at, into=into)
        return found

    @cached_property
    def scopes(self) -> dict[str, Scope]:
        """The modules of the table by key, their counts without those of their children."""
        scopes = self.graph.scopes
        return {
            self._places.key(self._number, path): replace(scopes[path], path=self.path(path), **counts)
            for path, counts in residual_counts(scopes).items()
        }

    @cached_property
    def is_canonical(self) -> bool:
        """Whether the nodes are in the order of a capture and `gradir.Builder`."""
        nodes = self.graph.nodes
        return postorder([node.id for node in self.graph.outputs], lambda key: dependencies(nodes, key)) == [*nodes]

    def storages(self, base: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
        """Return the storage of each slot, by node and slot, as a key that is the same in all graphs."""
        # `base` has the storages of the base by keys of nodes. Slots of the base keep theirs.
        nodes = self.graph.nodes
        names = {
            (node.id, name): slot.storage or storage_key(node.id, name)
            for node in nodes.values()
            for name, slot in slots_of(node)
        }
        own = {storage_key(*place) for place in names}
        first: dict[str, tuple[str, str]] = {}
        for (node_id, slot_name), name in names.items():
            place = self.keys[node_id], slot_name
            if name not in first or (place in base and first[name] not in base):
                first[name] = place
        taken: set[str] = set()
        keys: dict[str, str] = {}
        for name, (key, slot_name) in first.items():
            if name in nodes:
                keys[name] = TENSOR + self.keys[name]
                continue
            keys[name] = TEXT + name if name not in own else SLOT + storage_key(key, slot_name)
            found = base.get((key, slot_name), "")
            if found.startswith(SLOT) and name in own and found not in taken:
                keys[name] = found
                taken.add(found)
        return {place: keys[name] for place, name in names.items()}

    @cached_property
    def _counted_prefixes(self) -> set[str]:
        """The prefixes of ids that count in the order of nodes."""
        counts: Counter[str] = Counter()
        wrong: set[str] = set()
        for node in self.graph.nodes.values():
            prefix, ordinal = split_ordinal(node.id)
            counts[prefix] += 1
            if ordinal != counts[prefix]:
                wrong.add(prefix)
        return counts.keys() - wrong

    def _origin_of_id(self, node: Node) -> str:
        prefix, ordinal = split_ordinal(node.id)
        first = next((ref.id for ref in node.inputs if ref is not None), "")
        if suffix := id_suffix(node.id, first):
            return suffix
        if ordinal and prefix in self._counted_prefixes:
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
    """Return the nodes that must come before a node: its inputs, and saved nodes without outgoing edges."""
    node = nodes[key]
    origins = (slot.origin.id for slot in node.saved if slot.origin is not None)
    return [*(edge.src for edge in edges_into(node)), *(key for key in origins if nodes[key].role in NO_GRADIENT_ROLES)]


def order_nodes(nodes: Mapping[str, Node], sides: Sequence[Side]) -> list[str]:
    """Return the keys of the nodes in canonical order if all graphs have it, else each after its predecessor."""
    # Canonical order omits nodes that no output depends on.
    orders = [[key for key in side.keys.values() if key in nodes] for side in sides]
    # Without the first character, so that the result does not depend on which side is ours.
    order, _ = merge_orders(orders, by=lambda keys: [key[1:] for key in keys])
    if all(side.is_canonical for side in sides):
        order = [key for key in order if nodes[key].role == "output"]
    return postorder(order, lambda key: dependencies(nodes, key))


def make_ids(nodes: Mapping[str, Node], order: Sequence[str]) -> dict[str, str]:
    """Return the id of each node by its key; the nodes have the origin of an id in ``id``."""
    ids = FreeIds()
    origins = {key: nodes[key].id for key in order}
    found = {key: ids.free(origin[len(FIXED) :]) for key, origin in origins.items() if origin.startswith(FIXED)}
    for key, origin in origins.items():
        node = nodes[key]
        if origin == ORDINAL:
            found[key] = ids.next(function_prefix(encode_component(node.scope), encode_component(node.op)))
        elif origin.startswith(UNDER):
            first = next((ref.id for ref in node.inputs if ref is not None), "")
            found[key] = ids.free(found.get(first, "") + origin)
        elif origin == NAMED and node.names:
            found[key] = ids.free(encode_component(node.names[0]))
        elif key not in found:
            found[key] = ids.next(LEAF)
    return found


def build_nodes(nodes: Mapping[str, Node], order: Sequence[str], ids: Mapping[str, str]) -> list[Node]:
    """Return the nodes with ids in place of keys."""
    owners: dict[str, tuple[str, int, str]] = {}

    def translate_ref(ref: Ref | None) -> Ref | None:
        return None if ref is None else replace(ref, id=ids[ref.id])

    def translate_slot(slot: Saved, node_id: str, place: int) -> Saved:
        origin, name = slot.storage[:1], slot.storage[1:]
        if origin == TENSOR:
            storage = ids[name]
        elif origin == TEXT:
            storage = name
        else:
            own = node_id, place, storage_key(node_id, slot.slot)
            owner = owners.setdefault(slot.storage, own)
            storage = "" if owner == own else owner[2]
        return replace(slot, origin=translate_ref(slot.origin), storage=storage)

    return [
        replace(
            nodes[key],
            id=ids[key],
            saved=tuple([translate_slot(slot, ids[key], place) for place, slot in enumerate(nodes[key].saved)]),
            **move_edges(nodes[key], lambda ref, _: translate_ref(ref)),
        )
        for key in order
    ]
