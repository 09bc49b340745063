"""Remove nodes from a graph, and rewire the rest, for all passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, cast

import msgspec
from msgspec.structs import replace

from gradir.gcpause import pause_gc
from gradir.ir import AttrValue, Graph, Node, Ref, Saved
from gradir.ir.edges import DATA, move_edges, sources
from gradir.ir.head import rename_in_head
from gradir.ir.marks import ELIDED, FOCUS, LEFT_OUT, VERDICT, left_out, overlay_verdict
from gradir.ir.model import NO_GRADIENT_ROLES
from gradir.ir.module_tree import Ancestors
from gradir.ir.saved import owner
from gradir.options import Options


def make_switch(name: str, description: str) -> type[Options]:
    """Return the options of a pass that a single one of them only turns on."""
    field = Annotated[bool, msgspec.Meta(description=description)]
    made = msgspec.defstruct("Switch", [(name, field)], bases=(Options,), frozen=True, kw_only=True)
    return cast("type[Options]", made)


def has_one_input(node: Node) -> bool:
    """Return whether there is one input slot with a producer."""
    return len(node.inputs) == 1 and node.inputs[0] is not None


def add_slots(ext: Mapping[str, AttrValue], key: str, slots: Iterable[int]) -> dict[str, AttrValue]:
    """Add input slots to those listed under a key of ``ext``."""
    listed = ext.get(key)
    before = [slot for slot in listed if isinstance(slot, int)] if isinstance(listed, tuple) else []
    return {**ext, key: tuple(sorted({*before, *slots}))}


def without(graph: Graph, gone: Collection[str], joins: Callable[[Node], bool]) -> Graph:
    """Return the graph without some nodes, in the same order.

    If ``joins`` says so, consumers of a removed node with one input take that input instead. Otherwise the slot is
    null, and ``ext["elided_inputs"]`` lists it. So an edge joins two nodes only if a path of removed nodes did.

    Views lose a removed base, saved slots a removed origin, and slots of a removed owner their ``bytes``.
    """
    if not gone:
        return graph
    removal = _Removal(graph.nodes, gone)
    with pause_gc():
        rest: dict[str, Node] = {}
        for node in graph.nodes.values():
            if node.id not in gone:
                rest[node.id] = removal.rewire(node)
            elif joins(node):
                removal.join(node)

        # The verdict is about the whole graph, so it moves to another node if its output is removed.
        verdict = overlay_verdict(graph.nodes.values())
        if verdict and rest and not overlay_verdict(rest.values()):
            last = next(reversed(rest.values()))
            rest[last.id] = replace(last, ext={**last.ext, VERDICT: verdict})
        head = rename_in_head(graph, lambda node_id: node_id if node_id in rest else "")
        return replace(graph, nodes=rest, **head)


def within(graph: Graph, kept: set[str]) -> Graph:
    """Return these nodes with the buffers that they saved, their edges and their modules.

    A slot with a removed source is null, and ``ext["elided_inputs"]`` lists it. Cuts stay.
    """
    buffers = {
        name
        for key in kept
        for slot in graph.nodes[key].saved
        for name in (slot.storage, slot.origin.id if slot.origin is not None else "")
        if name not in kept and name in graph.nodes and graph.nodes[name].role in NO_GRADIENT_ROLES
    }
    # Saved tensors name buffers without an edge to them.
    gone = graph.nodes.keys() - kept - buffers
    if not gone:
        return graph
    part = without(graph, gone, lambda _: False)
    used = Ancestors(node.scope for node in part.nodes.values())
    return replace(part, scopes={path: scope for path, scope in part.scopes.items() if path in used})


def mark_focus(whole: Graph, part: Graph, named: AbstractSet[str]) -> Graph:
    """Return a part of a graph with marks for pictures.

    ``ext["focus"]`` marks the ``named`` nodes, and ``ext["left_out"]`` counts the removed neighbors of a node.
    """
    if part is whole:
        return part
    producers, consumers = Counter[str](), Counter[str]()
    for node in whole.nodes.values():
        for source in {*sources(node)}:
            if source not in part.nodes and node.id in part.nodes:
                producers[node.id] += 1
            elif source in part.nodes and node.id not in part.nodes:
                consumers[source] += 1

    def add_marks(node: Node) -> Node:
        removed = producers[node.id], consumers[node.id]
        if not any(removed) and node.id not in named and FOCUS not in node.ext:
            return node
        ext = {key: value for key, value in node.ext.items() if key != FOCUS}
        if any(removed):
            ext[LEFT_OUT] = tuple(map(sum, zip(removed, left_out(node), strict=True)))
        return replace(node, ext={**ext, FOCUS: True} if node.id in named else ext)

    with pause_gc():
        return replace(part, nodes={key: add_marks(node) for key, node in part.nodes.items()})


class _Removal:
    """Find replacements of removed nodes. Nodes must come in topological order."""

    def __init__(self, nodes: Mapping[str, Node], gone: Collection[str]) -> None:
        self._nodes = nodes
        self._gone = frozenset(gone)
        self._replacements: dict[str, Ref | None] = {}

    def join(self, node: Node) -> None:
        (source,) = node.inputs
        self._replacements[node.id] = None if source is None else self._move(source)

    def rewire(self, node: Node) -> Node:
        gone = self._gone
        if gone.isdisjoint(sources(node)) and not any(
            slot.storage in gone or (slot.origin is not None and slot.origin.id in gone) for slot in node.saved
        ):
            return node
        # A view loses its edge to a removed base, since another base would be wrong.
        fields = move_edges(node, lambda ref, kind: self._move(ref) if kind == DATA or ref.id not in gone else None)
        elided = [slot for slot, ref in enumerate(fields["inputs"]) if ref is None and node.inputs[slot] is not None]
        return replace(
            node,
            saved=tuple(map(self._move_slot, node.saved)),
            ext=add_slots(node.ext, ELIDED, elided) if elided else node.ext,
            **fields,
        )

    def _move(self, ref: Ref) -> Ref | None:
        return self._replacements.get(ref.id) if ref.id in self._gone else ref

    def _move_slot(self, slot: Saved) -> Saved:
        if slot.origin is not None and slot.origin.id in self._gone:
            slot = replace(slot, origin=None)
        if slot.storage in self._gone and owner(slot.storage, self._nodes):
            slot = replace(slot, bytes=None)
        return slot
