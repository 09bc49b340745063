"""Merge the edits of two sides: the nodes, modules and cuts that `gradir.diffs.matching` pairs."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec import UNSET
from msgspec.structs import asdict, replace

from gradir.diffs.compare import COUNTS, cut_name
from gradir.diffs.hunks import script
from gradir.diffs.matching import match
from gradir.diffs.merging.places import BASE, OURS, THEIRS, Places, find_open_layers
from gradir.diffs.merging.side import TENSOR, Side, build_nodes, make_ids, order_nodes
from gradir.diffs.merging.values import Combiner, Figures, input_types, is_same_value, merge_orders, pick
from gradir.errors import GraphError
from gradir.gcpause import pause_gc
from gradir.ir import Cut, Graph, Node, Scope
from gradir.ir.edges import edges_into
from gradir.ir.fields import fields_of
from gradir.ir.head import Head, rename_in_head
from gradir.ir.model import INT64_MAX, clamp_size
from gradir.ir.module_tree import ModuleTree
from gradir.ir.totals import parameter_elements
from gradir.ir.validate import check_all

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

R = TypeVar("R", Node, Scope, Cut)

_CHANGED: Final = "both sides changed it, and not in the same way"
_REMOVED: Final = "one side changed a part that the other removed"
_USED: Final = "one side uses a part that the other removed"
_UNUSED: Final = "no output depends on it after both edits"
_OPEN: Final = "one side changed it, and the other added or removed one of the layers equal to it: which one is open"
_ADDED: Final = "both sides added the graph, and not the same"
_OF_CAPTURE: Final = "a side changed its {}: capture the merged program again"


class Conflict(NamedTuple):
    """A record that cannot be merged, with its module, the reason, and its name in each graph.

    ``subject`` is ``node``, ``scope``, ``cut`` or ``graph``. The names are those of a `gradir.Change`, in the base and
    on both sides, empty if the graph does not have the record.
    """

    subject: str
    module: str
    reason: str
    base: str = ""
    ours: str = ""
    theirs: str = ""


class Merged(NamedTuple):
    """The graph with both edits, ``None`` if they conflict, and the conflicts."""

    graph: Graph | None
    conflicts: tuple[Conflict, ...] = ()


def merge_graphs(base: Graph, ours: Graph, theirs: Graph) -> Merged:
    """Return the graph with the edits of both sides."""
    # Each field has the value of the side that changed it. The result has canonical order and the ids of a capture, if
    # all three graphs have them.
    if not script(base, ours) or not script(ours, theirs):
        return Merged(theirs)
    if not script(base, theirs):
        return Merged(ours)
    if not base.nodes:
        return Merged(None, (Conflict("graph", "", _ADDED),))
    with pause_gc():
        return _Merge((base, ours, theirs)).run()


class _Merge:
    def __init__(self, graphs: tuple[Graph, Graph, Graph]) -> None:
        self._graphs = graphs
        matchings = [match(graphs[0], side) for side in graphs[1:]]
        self._places = Places(graphs, matchings)
        self._sides = [Side(graph, number, self._places) for number, graph in enumerate(graphs)]
        base, ours, theirs = self._sides
        base.keys.update((node_id, BASE + node_id) for node_id in graphs[0].nodes)
        for mark, side, matching in zip((OURS, THEIRS), (ours, theirs), matchings, strict=True):
            base_keys = {after: BASE + before for before, after in matching.nodes.items()}
            side.keys.update((node_id, base_keys.get(node_id, mark + node_id)) for node_id in side.graph.nodes)
        _join(ours, theirs)
        self._ids = [{key: node_id for node_id, key in side.keys.items()} for side in self._sides]
        self._conflicts: list[Conflict] = []

    def run(self) -> Merged:
        nodes = self._merge_nodes()
        scopes, cuts = self._merge_scopes(nodes), self._merge_cuts(nodes)
        open_layers = find_open_layers(self._graphs, self._places.paths)
        for key, reason in (*self._places.clashes.items(), *((key, _OPEN) for key in open_layers)):
            self._add("scope", self._places.path_of(key), reason, key)
        self._check_uses(nodes)
        if self._conflicts:
            return Merged(None, tuple(self._conflicts))
        order = order_nodes(nodes, self._sides)
        for key in nodes.keys() - set(order):
            self._add("node", nodes[key].scope, _UNUSED, key)
        if self._conflicts:
            return Merged(None, tuple(sorted(self._conflicts)))
        ids = make_ids(nodes, order)
        head = self._merge_head(cuts)
        if self._conflicts:
            return Merged(None, tuple(self._conflicts))
        graph = Graph.of(
            build_nodes(nodes, order, ids),
            scopes,
            read_from=max(graph.read_from for graph in self._graphs),
            unknown=max(graph.unknown for graph in self._graphs),
            **{**asdict(head), **rename_in_head(head, lambda key: ids.get(key, ""), keeps_slots=True)},
        )
        try:
            check_all(graph)
        except GraphError as error:
            return Merged(None, (Conflict("graph", "", f"both edits together break the graph: {error}"),))
        return Merged(graph)

    def _merge_nodes(self) -> dict[str, Node]:
        """Return the nodes by key, with keys in place of ids."""
        base = self._sides[0]
        own = base.storages({})
        known = {(base.keys[node_id], slot): storage for (node_id, slot), storage in own.items()}
        storages = [own, *(side.storages(known) for side in self._sides[1:])]
        found: dict[str, Node] = {}
        figures: dict[str, Figures] = {}
        for key in dict.fromkeys(key for ids in self._ids for key in ids):
            records = [
                side.node(ids[key], stored) if key in ids else None
                for side, ids, stored in zip(self._sides, self._ids, storages, strict=True)
            ]
            if records[1] and records[2]:
                # Another origin of an id is no edit by itself.
                origin = pick(*(record.id if record else "" for record in records))
                records = [record and replace(record, id=origin) for record in records]
            types = [
                input_types(graph.nodes[ids[key]], graph.nodes) if key in ids else ()
                for graph, ids in zip(self._graphs, self._ids, strict=True)
            ]
            figures[key] = Figures(records, types)
            node, reason = _combine(*figures[key].records)
            if reason:
                self._add("node", max(record.scope for record in records if record), reason, key)
            if node is not None:
                found[key] = node
        nodes: dict[str, Node] = {}
        for key, combined in found.items():
            nodes[key], reason = figures[key].settle(combined, found)
            if reason:
                self._add("node", combined.scope, reason, key)
        return nodes

    def _merge_scopes(self, nodes: Mapping[str, Node]) -> list[Scope]:
        tables = [side.scopes for side in self._sides]
        own = [
            _own_elements(side.graph.nodes, partial(self._places.key, number))
            for number, side in enumerate(self._sides)
        ]
        merged_own = _own_elements(nodes, str)
        found: dict[str, Scope] = {}
        for key in dict.fromkeys(key for table in tables for key in table):
            records = [table.get(key) for table in tables]
            path = self._places.path_of(key)
            counts = [{count: getattr(record, count) for count in COUNTS} if record else {} for record in records]
            # The merged nodes give the elements of parameters that are nodes.
            plain = [
                record and replace(record, own=record.own - elements[key], **dict.fromkeys(COUNTS, 0))
                for record, elements in zip(records, own, strict=True)
            ]
            scope, reason = _combine(*plain)
            if reason:
                self._add("scope", path, reason, key)
            if scope is not None:
                elements = clamp_size(max(0, scope.own + merged_own[path]))
                found[key] = replace(scope, own=elements, **_merge_counts(*counts))
        order, _ = merge_orders([found[key].path for key in table if key in found] for table in tables)
        by_path = {scope.path: scope for scope in found.values()}
        return _with_totals([by_path[path] for path in order]) if len(by_path) == len(found) else []

    def _merge_cuts(self, nodes: Mapping[str, Node]) -> list[Cut]:
        sides = [side.cuts() for side in self._sides]
        found: dict[Hashable, Cut] = {}
        for key in dict.fromkeys(key for side in sides for key in side):
            records = [side.get(key) for side in sides]
            # The place of a cut follows from the program and the nodes, so it is no edit.
            for field in ("at", "into", "slot"):
                values = [getattr(record, field) for record in records if record]
                if len(set(values)) > 1:
                    # Any slot will do, or any remaining node.
                    end = max([value for value in values if value in nodes] or values, key=repr)
                    records = [record and replace(record, **{field: end}) for record in records]
            cut, reason = _combine(*records)
            if reason:
                module = max(record.scope for record in records if record)
                names = [cut_name(record) if record else "" for record in records]
                self._conflicts.append(Conflict("cut", module, reason, *names))
            if cut is not None:
                found[key] = cut
        order, _ = merge_orders([repr(key) for key in side if key in found] for side in sides)
        by_text = {repr(key): cut for key, cut in found.items()}
        return [by_text[text] for text in order]

    def _merge_head(self, cuts: Sequence[Cut]) -> Head:
        """Return the head with these cuts, with keys in place of ids."""
        heads = [
            {**asdict(side.graph), **rename_in_head(side.graph, side.key_of, keeps_slots=True)} for side in self._sides
        ]
        found: dict[str, Any] = {"cuts": tuple(cuts)}
        for field in fields_of(Head):
            if field.name in found:
                continue
            base, *edits = (head[field.name] for head in heads)
            combiner = Combiner()
            found[field.name] = combiner.combine(base, *edits)
            if field.about.merged == "neither" and edits != [base, base]:
                self._conflicts.append(Conflict("graph", "", _OF_CAPTURE.format(field.key)))
            elif field.about.merged == "both" and combiner.clashes:
                self._conflicts.append(Conflict("graph", "", f"{field.key}: {_CHANGED}"))
        return Head(**found)

    def _check_uses(self, nodes: Mapping[str, Node]) -> None:
        for node_key, node in nodes.items():
            used = [edge.src for edge in edges_into(node)]
            used += [slot.origin.id for slot in node.saved if slot.origin is not None]
            used += [key[len(TENSOR) :] for slot in node.saved if (key := slot.storage).startswith(TENSOR)]
            if not all(map(nodes.__contains__, used)):
                self._add("node", node.scope, _USED, node_key)

    def _add(self, subject: str, module: str, reason: str, key: str) -> None:
        names = self._ids if subject == "node" else self._places.paths
        self._conflicts.append(Conflict(subject, module, reason, *(each.get(key, "") for each in names)))


def _join(ours: Side, theirs: Side) -> None:
    """Give one key to nodes that both sides added: the same operation, inputs and module."""
    waiting: defaultdict[Hashable, deque[str]] = defaultdict(deque)
    for node_id, node in ours.graph.nodes.items():
        if ours.keys[node_id].startswith(OURS):
            waiting[ours.signature(node)].append(ours.keys[node_id])
    for node_id, node in theirs.graph.nodes.items():
        if theirs.keys[node_id].startswith(THEIRS) and (keys := waiting.get(theirs.signature(node))):
            theirs.keys[node_id] = keys.popleft()


def _combine(base: R | None, ours: R | None, theirs: R | None) -> tuple[R | None, str]:
    """Return the record with both edits, ``None`` if one removed it, and the reason of a conflict."""
    if ours is None or theirs is None:
        left = ours or theirs
        if left is None or base is None:
            return left, ""
        return None, "" if is_same_value(_own_part(left), _own_part(base)) else _REMOVED
    combiner = Combiner()
    found: R = combiner.combine(UNSET if base is None else base, ours, theirs)
    return found, _CHANGED if combiner.clashes else ""


def _own_part(record: R) -> R:
    """Return a record without fields that follow from other records or from earlier lines."""
    if isinstance(record, Node):
        saved = tuple(replace(slot, origin=None, storage="") for slot in record.saved)
        return replace(record, source=None, saved=saved)
    if isinstance(record, Cut):
        return replace(record, source=None, via=None)
    return record


def _own_elements(nodes: Mapping[str, Node], key: Callable[[str], str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in nodes.values():
        if node.role == "parameter":
            found[key(node.scope)] += parameter_elements(node)
    return found


def _merge_counts(base: Mapping[str, int], *sides: Mapping[str, int]) -> dict[str, int]:
    found = {}
    for count in COUNTS:
        numbers = [side[count] for side in sides if count in side]
        found[count] = numbers[0] if len(set(numbers)) == 1 else sum(numbers) - base.get(count, 0)
    return found


def _with_totals(scopes: Sequence[Scope]) -> list[Scope]:
    tree = ModuleTree(scopes)
    sums = {count: tree.with_below([scope.own + getattr(scope, count) for scope in tree.scopes]) for count in COUNTS}
    rows = [tree.place(scope.path) for scope in scopes]
    return [
        replace(scope, **{count: min(INT64_MAX, max(0, sums[count][row])) for count in COUNTS})
        for scope, row in zip(scopes, rows, strict=True)
    ]
