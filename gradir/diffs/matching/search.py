"""Search for the cheapest matching of the nodes of two graphs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from gradir.diffs.matching.costs import Costs, shared_addresses
from gradir.diffs.matching.matched_modules import match_modules, pair_by_name
from gradir.diffs.matching.numbered import FREE, LEVELS, NOTHING, NumberedGraph, Surroundings
from gradir.diffs.matching.pairing import Pairing, join_matchings
from gradir.diffs.matching.renames import Rename
from gradir.diffs.sequences import Gap, align, gaps_between, longest_increasing
from gradir.gcpause import pause_gc
from gradir.ir.edges import sources
from gradir.ir.ids import split_id, split_last
from gradir.ir.memo import Table, group_by_key
from gradir.ir.module_tree import walk_up

if TYPE_CHECKING:
    from collections.abc import Set

    from gradir.ir import Graph, Node, Scope

# The nodes of both graphs in sequence.
_Orders = tuple[list[int], list[int]]
# The search stops when the cost is above the lower bound by at most one part in this many.
_NEAR: Final = 200
# Smaller graphs are matched as a whole.
_SMALL: Final = 2_000
# So are graphs if more than one node of this many differs or is near a different one.
_SHARE: Final = 4
# An equal node with more consumers than this has no near nodes.
_HUB: Final = 8


class Matching(msgspec.Struct, frozen=True):
    """The matched nodes of two graphs: ids of the second by ids of the first, one to one.

    ``renames`` are the renamed prefixes of names, and ``cost`` is the number of edits, see `match`.
    """

    nodes: Mapping[str, str]
    renames: tuple[Rename, ...] = ()
    cost: int = 0


def match(a: Graph, b: Graph) -> Matching:
    """Match the nodes so that few edits turn ``a`` into ``b``. ``match(b, a)`` is the inverse matching.

    ``docs/matching.md`` lists the cost of each edit. Of matchings with the same cost, the result has more equal ids.
    Indices and ordinals cost nothing, since they follow from earlier additions and removals, and neither does the order
    of the nodes. References in saved slots and to a base are compared through the matching. Equal attributes of
    different types (``1`` and ``1.0``) count as equal here.

    The exact minimum is out of reach, since graph edit distance is NP-hard. This search takes near-linear time. Its
    cost is at most that of matching equal ids, including the same name in a module and in its wrapper.

    >>> from gradir.ir import Graph, Node
    >>> a = Graph.of([Node("w", role="parameter"), Node("fc/exp:1", op="exp", scope="fc")])
    >>> b = Graph.of([Node("w", role="parameter"), Node("head/exp:1", op="exp", scope="head")])
    >>> match(a, b)
    Matching(nodes={'w': 'w', 'fc/exp:1': 'head/exp:1'}, renames=(Rename(before='fc', after='head'),), cost=1)
    """
    swaps = _should_swap(a, b)
    if swaps is None:
        return Matching({node_id: node_id for node_id in a.nodes})
    with pause_gc():
        # A separate call, so that its records are freed before the collector runs again.
        return _inverse(_match_one_way(b, a), a) if swaps else _match_one_way(a, b)


def edit_cost(a: Graph, b: Graph, nodes: Mapping[str, str]) -> int:
    """Return the cost, as `match` defines it, of matching these ids of ``a`` to ids of ``b``."""
    search = _Search(a, b)
    return search.costs.total_cost(search.to_positions(nodes))


def _match_one_way(a: Graph, b: Graph) -> Matching:
    parts = find_differing_parts(a, b)
    if parts is not None:
        found = _search(*parts)
        if not found.renames and stay_in_place(*parts, found.nodes):
            inside = parts[0].nodes
            pairs = ((key, found.nodes.get(key) if key in inside else key) for key in a.nodes)
            return replace(found, nodes={key: partner for key, partner in pairs if partner is not None})
    return _search(a, b)


def _search(a: Graph, b: Graph) -> Matching:
    search = _Search(a, b)
    return search.to_matching(*search.best())


class _Search:
    def __init__(self, a: Graph, b: Graph) -> None:
        labels: Table[Hashable] = Table()
        self._before, self._after = NumberedGraph(a, labels), NumberedGraph(b, labels)
        self.costs = Costs(self._before, self._after)
        same_ids = [*(self._after.index.get(node_id, FREE) for node_id in self._before.ids), NOTHING]
        self._by_id = self._match_in_wrappers(same_ids)

    @cached_property
    def _depth_first(self) -> _Orders:
        return self._before.depth_first(), self._after.depth_first()

    def to_positions(self, nodes: Mapping[str, str]) -> list[int]:
        partners = [*[FREE] * len(self._before), NOTHING]
        for before, after in nodes.items():
            partners[self._before.index[before]] = self._after.index[after]
        return partners

    def to_matching(self, partners: list[int], cost: int) -> Matching:
        ids, other_ids = self._before.ids, self._after.ids
        nodes = {ids[node]: other_ids[other] for node, other in enumerate(partners) if other >= 0}
        return Matching(nodes, tuple(sorted(self.costs.renames(partners))), cost)

    def _match_in_wrappers(self, found: list[int]) -> list[int]:
        """Return a matching of free nodes by their names in a module and its wrapper."""
        # As in an unchanged module, a node may change much and stay matched.
        modules = self.costs.addresses.find_wrapped()
        if not modules:
            return found
        pairing = self._pairing(found)
        pairing.add(
            (node, other)
            for node, other in pair_by_name(self._before, self._after, modules, of_any_role=True)
            if pairing.partners[node] < 0 and pairing.other_partners[other] < 0
        )
        return pairing.partners

    def best(self) -> tuple[list[int], int]:
        """Return the cheapest matching found, and its cost."""
        found = [*self._by_id]
        costs = self.costs.node_costs(found)
        rank = self._rank(found, costs)
        enough = self.costs.lower_bound() if rank[0] else 0
        if rank[0] == enough:
            return found, rank[0]
        enough += enough // _NEAR
        order, other_order = self._depth_first
        position = [*_positions(other_order), NOTHING, NOTHING]
        for candidate in self._candidates():
            if candidate == found:
                continue
            candidate_costs = self.costs.update_node_costs(candidate, found, costs)
            ranks = self._rank_nodes(found, costs), self._rank_nodes(candidate, candidate_costs)
            joined = join_matchings(found, candidate, ranks, order, position)
            options = [(candidate, candidate_costs)]
            if joined not in (found, candidate):
                options.append((joined, self.costs.update_node_costs(joined, candidate, candidate_costs)))
            for new, new_costs in options:
                if self.costs.base_cost(new_costs) > rank[0]:
                    continue
                new_rank = self._rank(new, new_costs)
                if new_rank < rank:
                    found, costs, rank = new, new_costs, new_rank
            if rank[0] <= enough:
                break
        repaired = self._repair(found, costs)
        if repaired == found:
            return found, rank[0]
        repaired_rank = self._rank(repaired, self.costs.update_node_costs(repaired, found, costs))
        return (repaired, repaired_rank[0]) if repaired_rank < rank else (found, rank[0])

    def _rank(self, matching: list[int], costs: list[int]) -> tuple[int, int]:
        """Return the cost, then minus the number of nodes with their own id; lower is better."""
        own = sum(other == same >= 0 for other, same in zip(matching, self._by_id, strict=True))
        return self.costs.total_cost(matching, costs), -own

    def _rank_nodes(self, matching: list[int], costs: list[int]) -> list[int]:
        weight, rows = len(self._before) + 1, zip(costs, matching, self._by_id, strict=False)
        return [cost * weight - (other == same >= 0) for cost, other, same in rows]

    def _repair(self, found: list[int], costs: list[int]) -> list[int]:
        pairing = self._pairing(found)
        producers, consumers = self._before.producers, self._before.consumers
        suspects = [
            near
            for node, cost in enumerate(costs)
            if cost >= 0 and (found[node] < 0 or self.costs.count_rewired(node, found[node], found))
            for near in (node, *producers[node], *consumers[node])
            if near != NOTHING
        ]
        if suspects:
            pairing.exchange(suspects)
            pairing.add_neighbours()
            pairing.separate()
        return pairing.partners

    def _pairing(self, matching: Iterable[int] = ()) -> Pairing:
        pairing = Pairing(self.costs)
        pairing.add((node, other) for node, other in enumerate(matching) if other >= 0)
        return pairing

    def _candidates(self) -> Iterator[list[int]]:
        before, after = self._before, self._after
        modules = match_modules(before, after, self.costs.addresses.find_wrapped())
        around = Surroundings((before, after), shared_addresses(before, after, modules))
        in_file = list(range(len(before))), list(range(len(after)))
        by_name = self._pairing()
        by_name.add(pair_by_name(before, after, modules))
        _align(by_name, in_file, around)
        # A node may become another operation in its place, which comes before a search elsewhere.
        by_name.add_neighbours()
        by_name.add_changed()
        yield _complete(by_name, around)
        by_shape = self._pairing()
        _align(by_shape, self._depth_first, around)
        yield _complete(by_shape, around)


def _align(pairing: Pairing, orders: _Orders, around: Surroundings) -> None:
    """Match free nodes in the gaps between matched nodes, in order, exact labels first."""
    partners, other_partners = pairing.partners, pairing.other_partners
    order, other_order = orders
    position = _positions(other_order)
    # Matched nodes that are out of order are no ends of a gap.
    in_order = longest_increasing([(node, position[partners[node]]) for node in order if partners[node] >= 0])
    ends, other_ends = {node for node, _ in in_order}, {other_order[y] for _, y in in_order}
    order = [node for node in order if partners[node] < 0 or node in ends]
    other_order = [node for node in other_order if other_partners[node] < 0 or node in other_ends]
    matched = (x for x, node in enumerate(order) if partners[node] >= 0)
    other_matched = (y for y, node in enumerate(other_order) if other_partners[node] >= 0)
    gaps = gaps_between(zip(matched, other_matched, strict=True), Gap(0, len(order), 0, len(other_order)))
    for label, radius in LEVELS:
        if not gaps:
            break
        labels, other_labels = around.find_labels(label, radius)
        pairs, gaps = align([labels[node] for node in order], [other_labels[node] for node in other_order], gaps)
        pairing.add((order[x], other_order[y]) for x, y in pairs)


def _complete(pairing: Pairing, around: Surroundings) -> list[int]:
    pairing.add_neighbours()
    pairing.add_moved(around)
    pairing.add_neighbours()
    pairing.add_changed()
    pairing.add_unique()
    pairing.add_same_ids()
    pairing.separate()
    return pairing.partners


def _positions(order: list[int]) -> list[int]:
    positions = [0] * len(order)
    for position, node in enumerate(order):
        positions[node] = position
    return positions


def _should_swap(a: Graph, b: Graph) -> bool | None:
    """Return whether to search from ``b`` to ``a``, for the same result in both directions; ``None`` if equal."""
    if len(a.nodes) != len(b.nodes):
        return len(a.nodes) > len(b.nodes)
    pairs = zip(a.nodes.values(), b.nodes.values(), strict=True)
    texts = ((_text(old), _text(new)) for old, new in pairs if old != new)
    return next((old > new for old, new in texts if old != new), None)


def _text(node: Node) -> str:
    return repr(replace(node, attrs=dict(sorted(node.attrs.items())), ext=dict(sorted(node.ext.items()))))


def _inverse(matching: Matching, a: Graph) -> Matching:
    back = {after: before for before, after in matching.nodes.items()}
    renames = sorted(Rename(rename.after, rename.before) for rename in matching.renames)
    return Matching({node_id: back[node_id] for node_id in a.nodes if node_id in back}, tuple(renames), matching.cost)


def find_differing_parts(a: Graph, b: Graph) -> tuple[Graph, Graph] | None:
    """Return the different nodes with those in their modules and two edges around, or ``None`` if these are many."""
    # Also `None` if entries of lists were added or removed, since equal entries may have moved up then.
    if min(len(a.nodes), len(b.nodes)) < _SMALL:
        return None
    edited = {key for key, node in a.nodes.items() if node != b.nodes.get(key)} | (b.nodes.keys() - a.nodes.keys())
    most = len(a.nodes) // _SHARE
    if len(edited) > most or not _have_the_same_entries(a, b):
        return None
    near = _with_neighbours(a, b, edited)
    if len(near) > most:
        return None
    tables = ((path, a.scopes.get(path), b.scopes.get(path)) for path in {**a.scopes, **b.scopes})
    others = {path for path, old, new in tables if old != new and _kind(old) != _kind(new)}
    around = {path for scope in _scopes(a, b, near) for path in walk_up(scope)}

    def part(graph: Graph) -> Graph:
        nodes = {key: node for key, node in graph.nodes.items() if key in near}
        scopes = {
            path: scope
            for path, scope in graph.scopes.items()
            if not path or path in around or (others and not others.isdisjoint(walk_up(path)))
        }
        return replace(graph, nodes=nodes, scopes=scopes)

    return part(a), part(b)


def _kind(scope: Scope | None) -> object:
    return scope and (scope.class_name, scope.detail)


def _with_neighbours(a: Graph, b: Graph, edited: Set[str]) -> set[str]:
    """Return nodes with those in their modules and two edges around, but without neighbours of near hubs."""
    nodes = (*a.nodes.values(), *(node for key in edited if (node := b.nodes.get(key))))
    users = group_by_key((key, node.id) for node in nodes for key in reference_ids(node))
    scopes = _scopes(a, b, edited)
    found = {*edited, *(key for key, node in a.nodes.items() if node.scope in scopes)}
    for are_edited in (True, False):
        for key in [*found]:
            if are_edited or len(users.get(key, ())) <= _HUB:
                found.update(users.get(key, ()))
                found.update(*(reference_ids(node) for graph in (a, b) if (node := graph.nodes.get(key))))
    return found


def _scopes(a: Graph, b: Graph, keys: Iterable[str]) -> set[str]:
    return {node.scope for key in keys for graph in (a, b) if (node := graph.nodes.get(key))}


def stay_in_place(a: Graph, b: Graph, nodes: Mapping[str, str]) -> bool:
    """Return whether all matched nodes of two parts kept their module, and equal ones their id."""
    # Then the equal nodes elsewhere cannot make another matching cheaper.
    equal = (key for key, node in b.nodes.items() if a.nodes.get(key) == node)
    moved = ((a.nodes[old], b.nodes[new]) for old, new in nodes.items() if old != new)
    return all(nodes.get(key) == key for key in equal) and all(
        (old.scope, _place(old)) == (new.scope, _place(new)) for old, new in moved
    )


def _place(node: Node) -> str:
    return split_id(node.id)[0] if node.op else node.id


def _have_the_same_entries(a: Graph, b: Graph) -> bool:
    before, after = ({node.scope for node in graph.nodes.values()} for graph in (a, b))
    if before == after:
        return True
    entries, other_entries = (
        {path for scope in scopes for path in walk_up(scope) if path.rpartition(".")[2].isdecimal()}
        for scopes in (before, after)
    )
    return entries == other_entries


def reference_ids(node: Node) -> list[str]:
    """Return the ids in a node's references, and names of storages."""
    found = sources(node)
    for slot in node.saved:
        if slot.origin is not None:
            found.append(slot.origin.id)
        if slot.storage:
            found += slot.storage, split_last(slot.storage)[0]
    return found
