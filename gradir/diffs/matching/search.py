"""Find which node of one graph is which node of another."""

from __future__ import annotations

from collections import defaultdict
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
from gradir.gcpause import paused_gc
from gradir.ir.edges import sources
from gradir.ir.ids import split_id, split_last
from gradir.ir.memo import Table
from gradir.ir.module_tree import upwards

if TYPE_CHECKING:
    from collections.abc import Set

    from gradir.ir import Graph, Node, Scope

# The nodes of both graphs in sequence.
_Orders = tuple[list[int], list[int]]
# Once the cost is within one part in this many of what nothing can go below, nothing further is tried.
_NEAR: Final = 200
# Smaller graphs are matched as a whole.
_SMALL: Final = 2_000
# So are graphs of which more than one node in so many differs or is near one that does.
_SHARE: Final = 4
# What is near a node with more consumers than this is near nothing else.
_HUB: Final = 8


class Matching(msgspec.Struct, frozen=True):
    """Which node of one graph is which of another: ids of the first to ids of the second, one to one.

    ``renames`` are the prefixes of names that became others, ``cost`` is the number of edits, see `match`.
    """

    nodes: Mapping[str, str]
    renames: tuple[Rename, ...] = ()
    cost: int = 0


def match(a: Graph, b: Graph) -> Matching:
    """Match the nodes so that few edits turn ``a`` into ``b``. ``match(b, a)`` is the same matching read backwards.

    The cost of a matching is

    - 1 for each node that is added or removed,
    - 1 for each field of a matched node that changed; native name, attributes and saved slots belong to the operation
      and cost nothing beside another operation; and 1 for each of its input slots that was rewired: whose
      producer is not matched to the producer in the other graph, or that takes another of its outputs,
    - 1 for each rename: a prefix of the ids, scopes and names that became another (``layers`` to ``blocks``, where
      ``*`` stands for any index), however many nodes it renames,
    - 3 for each tensor, and each function of a module with tensors, that leaves or takes a name which both graphs have;
      1 for other functions and where one of the modules contains the other,
    - 1 for each node that is matched to another module than most nodes of its own are, seen from both sides.

    Of matchings that cost the same the one with more equal ids is given.

    An id that only differs in indices and ordinals costs nothing, as they follow from what was added or removed
    before. Neither does the order of the nodes, which follows from the edges. References in saved slots and to a base
    are compared through the matching. Attributes that are equal but of different type (``1`` and ``1.0``) count as
    equal here.

    The exact minimum is out of reach (graph edit distance is NP-hard); this takes near-linear time and never gives
    more than matching equal ids does, where what has one name in a module and inside a wrapper of it counts as equal.

    >>> from gradir.ir import Graph, Node
    >>> a = Graph.of([Node("w", role="parameter"), Node("fc/exp:1", op="exp", scope="fc")])
    >>> b = Graph.of([Node("w", role="parameter"), Node("head/exp:1", op="exp", scope="head")])
    >>> match(a, b)
    Matching(nodes={'w': 'w', 'fc/exp:1': 'head/exp:1'}, renames=(Rename(before='fc', after='head'),), cost=1)
    """
    turned = _should_swap(a, b)
    if turned is None:
        return Matching({node_id: node_id for node_id in a.nodes})
    with paused_gc():
        # In a call of its own: what it made is gone before the collector runs again.
        return _inverse(_match_one_way(b, a), a) if turned else _match_one_way(a, b)


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
            return replace(found, nodes={key: there for key, there in pairs if there is not None})
    return _search(a, b)


def _search(a: Graph, b: Graph) -> Matching:
    search = _Search(a, b)
    return search.to_matching(*search.best())


class _Search:
    def __init__(self, a: Graph, b: Graph) -> None:
        labels: Table[Hashable] = Table()
        self._before, self._after = NumberedGraph(a, labels), NumberedGraph(b, labels)
        self.costs = Costs(self._before, self._after)
        index = self._after.index
        plain = [*(index.get(node_id, FREE) for node_id in self._before.ids), NOTHING]
        self._by_id = self._keep_in_wrappers(plain)

    @cached_property
    def _depth_first(self) -> _Orders:
        return self._before.depth_first(), self._after.depth_first()

    def to_positions(self, nodes: Mapping[str, str]) -> list[int]:
        there = [FREE] * len(self._before)
        there.append(NOTHING)
        for before, after in nodes.items():
            there[self._before.index[before]] = self._after.index[after]
        return there

    def to_matching(self, there: list[int], cost: int) -> Matching:
        ids, other_ids = self._before.ids, self._after.ids
        nodes = {ids[node]: other_ids[other] for node, other in enumerate(there) if other >= 0}
        return Matching(nodes, tuple(sorted(self.costs.renames(there))), cost)

    def best(self) -> tuple[list[int], int]:
        found, cost = self._cheapest()
        kept = self._keep_in_wrappers(found)
        if kept == found:
            return found, cost
        kept_cost = self.costs.total_cost(kept)
        # Its report is no longer than that of equal ids.
        return (kept, kept_cost) if kept_cost <= max(cost, self.costs.total_cost(self._by_id)) else (found, cost)

    def _keep_in_wrappers(self, found: list[int]) -> list[int]:
        """Return a matching with free nodes that have one name in a module and in its wrapper."""
        # As in a module that stayed in its place, a node that changed much is still one node.
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

    def _cheapest(self) -> tuple[list[int], int]:
        found = [*self._by_id]
        shares = self.costs.node_costs(found)
        rank = self._rank(found, shares)
        enough = self.costs.lower_bound() if rank[0] else 0
        if rank[0] == enough:
            return found, rank[0]
        enough += enough // _NEAR
        order, other_order = self._depth_first
        position = [*_positions(other_order), NOTHING, NOTHING]
        for candidate in self._candidates():
            if candidate == found:
                continue
            candidate_shares = self.costs.update_node_costs(candidate, found, shares)
            ranked = self._rank_nodes(found, shares), self._rank_nodes(candidate, candidate_shares)
            joined = join_matchings(found, candidate, ranked, order, position)
            tried = [(candidate, candidate_shares)]
            if joined not in (found, candidate):
                tried.append((joined, self.costs.update_node_costs(joined, candidate, candidate_shares)))
            for new, new_shares in tried:
                if self.costs.base_cost(new_shares) > rank[0]:
                    continue
                new_rank = self._rank(new, new_shares)
                if new_rank < rank:
                    found, shares, rank = new, new_shares, new_rank
            if rank[0] <= enough:
                break
        repaired = self._repair(found, shares)
        if repaired == found:
            return found, rank[0]
        repaired_rank = self._rank(repaired, self.costs.update_node_costs(repaired, found, shares))
        return (repaired, repaired_rank[0]) if repaired_rank < rank else (found, rank[0])

    def _rank(self, matching: list[int], shares: list[int]) -> tuple[int, int]:
        """Return the cost, then the number of nodes without their own id; lower is better."""
        own = sum(other == same >= 0 for other, same in zip(matching, self._by_id, strict=True))
        return self.costs.sum_costs(matching, shares), -own

    def _rank_nodes(self, matching: list[int], shares: list[int]) -> list[int]:
        weight, rows = len(self._before) + 1, zip(shares, matching, self._by_id, strict=False)
        return [share * weight - (other == same >= 0) for share, other, same in rows]

    def _repair(self, found: list[int], shares: list[int]) -> list[int]:
        pairing = self._pairing(found)
        below, above = self._before.producers, self._before.consumers
        suspects = [
            near
            for node, share in enumerate(shares)
            if share >= 0 and (found[node] < 0 or self.costs.count_rewired(node, found[node], found))
            for near in (node, *below[node], *above[node])
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
        modules = match_modules(before, after)
        around = Surroundings((before, after), shared_addresses(before, after, modules))
        in_file = list(range(len(before))), list(range(len(after)))
        named = self._pairing()
        named.add(pair_by_name(before, after, modules))
        _align(named, in_file, around)
        # What became another operation stands where it did, before it is looked for elsewhere.
        named.add_neighbours()
        named.add_changed()
        yield _complete(named, around)
        unnamed = self._pairing()
        _align(unnamed, self._depth_first, around)
        yield _complete(unnamed, around)


def _align(pairing: Pairing, orders: _Orders, around: Surroundings) -> None:
    """Match free nodes in the gaps between matched nodes, in order, the surest first."""
    there, back = pairing.partners, pairing.other_partners
    order, other_order = orders
    position = _positions(other_order)
    # Matched nodes that are out of order are no ends of a gap.
    kept = longest_increasing([(node, position[there[node]]) for node in order if there[node] >= 0])
    ends, other_ends = {node for node, _ in kept}, {other_order[y] for _, y in kept}
    order = [node for node in order if there[node] < 0 or node in ends]
    other_order = [node for node in other_order if back[node] < 0 or node in other_ends]
    matched = (x for x, node in enumerate(order) if there[node] >= 0)
    other_matched = (y for y, node in enumerate(other_order) if back[node] >= 0)
    gaps = gaps_between(zip(matched, other_matched, strict=True), Gap(0, len(order), 0, len(other_order)))
    for label, radius in LEVELS:
        if not gaps:
            break
        of, other_of = around.find_labels(label, radius)
        pairs, gaps = align([of[node] for node in order], [other_of[node] for node in other_order], gaps)
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
    """Return whether to search from ``b`` to ``a``, so that the result is the same both ways; ``None`` if equal."""
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
    """Return the nodes that differ, those in their modules and two edges around."""
    # It is `None` if these are many, or if entries of lists came or went: the others may have moved up, though equal.
    if min(len(a.nodes), len(b.nodes)) < _SMALL:
        return None
    there = b.nodes.get
    edited = {key for key, node in a.nodes.items() if node != there(key)} | (b.nodes.keys() - a.nodes.keys())
    most = len(a.nodes) // _SHARE
    if len(edited) > most or not _have_the_same_entries(a, b):
        return None
    near = _with_near_ones(a, b, edited)
    if len(near) > most:
        return None
    tables = ((path, a.scopes.get(path), b.scopes.get(path)) for path in {**a.scopes, **b.scopes})
    others = {path for path, old, new in tables if old != new and _kind(old) != _kind(new)}
    around = {path for scope in _scopes(a, b, near) for path in upwards(scope)}

    def part(graph: Graph) -> Graph:
        nodes = {key: node for key, node in graph.nodes.items() if key in near}
        scopes = {
            path: scope
            for path, scope in graph.scopes.items()
            if not path or path in around or (others and not others.isdisjoint(upwards(path)))
        }
        return replace(graph, nodes=nodes, scopes=scopes)

    return part(a), part(b)


def _kind(scope: Scope | None) -> object:
    return scope and (scope.class_name, scope.detail)


def _with_near_ones(a: Graph, b: Graph, edited: Set[str]) -> set[str]:
    """Return nodes with those in their modules and two edges around; a hub that is near one has no neighbours."""
    users: defaultdict[str, list[str]] = defaultdict(list)
    for node in (*a.nodes.values(), *(node for key in edited if (node := b.nodes.get(key)))):
        for key in reference_ids(node):
            users[key].append(node.id)
    scopes = _scopes(a, b, edited)
    found = {*edited, *(key for key, node in a.nodes.items() if node.scope in scopes)}
    for are_edited in (True, False):
        for key in [*found]:
            if are_edited or len(users[key]) <= _HUB:
                found.update(users[key])
                found.update(*(reference_ids(node) for graph in (a, b) if (node := graph.nodes.get(key))))
    return found


def _scopes(a: Graph, b: Graph, keys: Iterable[str]) -> set[str]:
    return {node.scope for key in keys for graph in (a, b) if (node := graph.nodes.get(key))}


def stay_in_place(a: Graph, b: Graph, nodes: Mapping[str, str]) -> bool:
    """Return whether all matched nodes of two parts have their module, and equal ones their id."""
    # Then what both graphs have elsewhere cannot make another matching cheaper.
    there = {key: node for key, node in b.nodes.items() if a.nodes.get(key) == node}
    return all(nodes.get(key) == key for key in there) and all(
        old == new or (a.nodes[old].scope == b.nodes[new].scope and _place(a.nodes[old]) == _place(b.nodes[new]))
        for old, new in nodes.items()
    )


def _have_the_same_entries(a: Graph, b: Graph) -> bool:
    before, after = ({node.scope for node in graph.nodes.values()} for graph in (a, b))
    one, other = (
        {path for scope in scopes for path in upwards(scope) if path.rpartition(".")[2].isdecimal()}
        for scopes in ((before, after) if before != after else ((), ()))
    )
    return one == other


def reference_ids(node: Node) -> list[str]:
    """Return the ids that a node refers to, and names of storages."""
    found = sources(node)
    for slot in node.saved:
        if slot.origin is not None:
            found.append(slot.origin.id)
        if slot.storage:
            found += slot.storage, split_last(slot.storage)[0]
    return found


def _place(node: Node) -> str:
    return split_id(node.id)[0] if node.op else node.id
