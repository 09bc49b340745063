"""The cost of a matching as an edit script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from operator import ne
from typing import TYPE_CHECKING, Final

from gradir.diffs.matching.numbered import TENSOR, own_fields
from gradir.diffs.matching.renames import Naming, Rename, pattern
from gradir.ir.module_tree import split_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.diffs.matching.numbered import NumberedGraph

# The costs of nodes are computed anew if two matchings differ in more than one node of this many.
_FEW: Final = 8


class Costs:
    """Counts edits between two graphs, with a cache of compared labels.

    A matching is a list with the position in the second graph by position in the first, and `FREE` for an unmatched
    node. Its last entry is `NOTHING`, for references to nothing.
    """

    def __init__(self, before: NumberedGraph, after: NumberedGraph) -> None:
        self.before, self.after = before, after
        self.addresses = Addresses(before, after)
        self._cache: dict[tuple[int, int], tuple[int, bool]] = {}

    def lower_bound(self) -> int:
        """Return a lower bound of the cost of any matching: the number of labels without a partner."""
        before, after = self.before, self.after
        full = _count_unmatched(before.full, after.full)
        if full != (0, 0):
            # A pair with both labels different costs 2, as do a removal and an addition.
            return max(
                *full,
                _count_unmatched(before.outlined, after.outlined)[0]
                + _count_unmatched(before.described, after.described)[1],
            )
        return int(Counter(before.naming_labels) != Counter(after.naming_labels))

    def total_cost(self, matching: Sequence[int], node_costs: Sequence[int] | None = None) -> int:
        """Return the number of edits, see `gradir.diffs.matching.match`; ``node_costs`` may be known."""
        node_costs = self.node_costs(matching) if node_costs is None else node_costs
        pairs = self._count_renames(matching)
        renames = set().union(*(before.renames(after) for before, after in pairs))
        names = sum(count for (before, after), count in pairs.items() if not before.is_explained(after, renames))
        return self.base_cost(node_costs) + len(renames) + names + self.addresses.count_torn(matching)

    def base_cost(self, node_costs: Sequence[int]) -> int:
        """Return the number of edits without renames and torn modules."""
        return sum(node_costs) + len(self.after)

    def node_costs(self, matching: Sequence[int]) -> list[int]:
        """Return the cost of each node of the first graph; a matched one saves the addition of the other."""
        before, after, move_cost = self.before, self.after, self.addresses.move_cost
        full, inputs, saved, addresses = after.full, after.inputs, after.saved_refs, after.address_labels
        rows = zip(matching, before.full, before.inputs, before.saved_refs, before.address_labels, strict=False)
        return [
            1
            if other < 0
            else -1
            if (
                label == full[other]
                and (address == addresses[other] or not move_cost(node, other))
                and tuple([matching[ref] for ref in refs]) == inputs[other]
                and (not saved_refs or tuple([matching[ref] for ref in saved_refs]) == saved[other])
            )
            else self.pair_cost(node, other, matching) - 1
            for node, (other, label, refs, saved_refs, address) in enumerate(rows)
        ]

    def update_node_costs(self, matching: Sequence[int], like: Sequence[int], node_costs: Sequence[int]) -> list[int]:
        """Return the `node_costs` of a matching, given those of a similar one."""
        changed = [node for node, (one, two) in enumerate(zip(matching, like, strict=True)) if one != two]
        if len(changed) > len(matching) // _FEW:
            return self.node_costs(matching)
        found = [*node_costs]
        above, keepers = self.before.consumers, self.before.savers
        for node in {*changed, *chain.from_iterable((*above[node], *keepers[node]) for node in changed)}:
            found[node] = self.node_cost(node, matching)
        return found

    def node_cost(self, node: int, matching: Sequence[int]) -> int:
        """Return the cost of one node of the first graph."""
        other = matching[node]
        return 1 if other < 0 else self.pair_cost(node, other, matching) - 1

    def pair_cost(self, node: int, other: int, matching: Sequence[int]) -> int:
        """Return the number of edits of one matched node, without names."""
        before, after = self.before, self.after
        labels = before.full[node], after.full[other]
        known = self._cache.get(labels)
        if known is None:
            known = self._cache[labels] = self._compare_nodes(node, other)
        total, compares_refs = known
        total += self.count_rewired(node, other, matching) + self.addresses.move_cost(node, other)
        refs = tuple([matching[ref] for ref in before.saved_refs[node]])
        return total + (compares_refs and refs != after.saved_refs[other])

    def renames(self, matching: Sequence[int]) -> set[Rename]:
        """Return the renames that explain the ids and scopes of matched nodes."""
        return set().union(*(before.renames(after) for before, after in self._count_renames(matching)))

    def _count_renames(self, matching: Sequence[int]) -> Counter[tuple[Naming, Naming]]:
        names, other_names = self.before.name_labels, self.after.name_labels
        pairs = [
            (node, other) for node, other in enumerate(matching) if other >= 0 and names[node] != other_names[other]
        ]
        if not pairs:
            return Counter()
        before, after = self.before.naming_labels, self.after.naming_labels
        labels = [(before[node], after[other]) for node, other in pairs]
        examples = dict(zip(labels, pairs, strict=True))
        found: Counter[tuple[Naming, Naming]] = Counter()
        for (label, other_label), count in Counter(labels).items():
            if label != other_label:
                node, other = examples[label, other_label]
                found[Naming.of(self.before.nodes[node]), Naming.of(self.after.nodes[other])] += count
        return found

    def _compare_nodes(self, node: int, other: int) -> tuple[int, bool]:
        """Return the number of different fields but references, and whether references of saved slots count."""
        old, new = self.before.nodes[node], self.after.nodes[other]
        # The operation, references and names have costs of their own.
        fields = ("role", *own_fields("structure"), *own_fields("type"), *own_fields("free"))
        changed = sum(bool(getattr(old, field) != getattr(new, field)) for field in fields)
        if old.op != new.op:
            return changed + 1, False
        changed += sum(bool(getattr(old, field) != getattr(new, field)) for field in own_fields("detail"))
        has_same_slots = self.before.slot_labels.get(node) == self.after.slot_labels.get(other)
        return changed + (not has_same_slots), has_same_slots

    def count_rewired(self, node: int, other: int, matching: Sequence[int]) -> int:
        """Count the input slots of a matched node, and other edges into it, that were rewired."""
        refs, other_refs = self.before.inputs[node], self.after.inputs[other]
        widths, other_widths = self.before.widths[node], self.after.widths[other]
        if widths == other_widths and node not in self.before.ref_details and other not in self.after.ref_details:
            return sum(map(ne, map(matching.__getitem__, refs), other_refs))
        details, other_details = self.before.ref_details.get(node, {}), self.after.ref_details.get(other, {})
        olds = iter([(matching[ref], details.get(place)) for place, ref in enumerate(refs)])
        news = iter([(ref, other_details.get(place)) for place, ref in enumerate(other_refs)])
        return sum(
            old != new
            for width, other_width in zip(widths, other_widths, strict=True)
            for old, new in zip_longest(islice(olds, width), islice(news, other_width))
        )


def _count_unmatched(before: Sequence[int], after: Sequence[int]) -> tuple[int, int]:
    olds, news = Counter(before), Counter(after)
    return (olds - news).total(), (news - olds).total()


# The cost if a tensor, or a function of a module with tensors, leaves a name that both graphs have. It is more than the
# cost to remove it, add it and rewire a consumer.
_LEFT_NAME: Final = 3
# The same cost for other functions, and if one module contains the other, such as a wrapper.
_LEFT_MODULE: Final = 1


class Addresses:
    """The common addresses of two graphs.

    The address of a node is its module, and a tensor's own name, as a pattern (``layers.*.attn``). A node whose address
    or module is in both graphs should not match a node elsewhere.
    """

    def __init__(self, before: NumberedGraph, after: NumberedGraph) -> None:
        self._before, self._after = before, after
        self._modules = frozenset((*before.classes, *before.modules)).intersection((*after.classes, *after.modules))
        self._addresses = frozenset(before.addresses).intersection(after.addresses)
        exact = [
            {(module, _tensor(address)) for module, address in zip(graph.modules, graph.addresses, strict=True)}
            for graph in (before, after)
        ]
        # The modules with functions, and with the name of a tensor, that are in both graphs.
        self._exact = exact[0] & exact[1]
        self._owners = [
            {module for module, (_, tensor) in zip(graph.modules, graph.homes, strict=True) if tensor}
            for graph in (before, after)
        ]
        self._wrapped = _find_wrapped(before, after), _find_wrapped(after, before)
        self._cache: dict[tuple[int, int, int, int], int] = {}
        self._ancestors: dict[tuple[int, int], tuple[tuple[str, str], ...]] = {}

    def move_cost(self, node: int, other: int) -> int:
        """Return the cost of another address of a node if both graphs have one of the two addresses."""
        before, after = self._before, self._after
        address, other_address = before.address_labels[node], after.address_labels[other]
        if address == other_address:
            return 0
        key = before.module_labels[node], address, after.module_labels[other], other_address
        known = self._cache.get(key)
        if known is None:
            known = self._cache[key] = self._compute_move_cost(
                (before.modules[node], before.addresses[node]), (after.modules[other], after.addresses[other])
            )
        return known

    def find_wrapped(self) -> dict[str, str]:
        """Return modules of the second graph by those of the first that got or lost a wrapper."""
        wrapped, unwrapped = self._wrapped
        return {**{inside: path for path, inside in unwrapped.items()}, **wrapped}

    def count_torn(self, matching: Sequence[int]) -> int:
        """Count the nodes that match a node of another module than most of their module, seen from both graphs."""
        modules, other_modules = self._before.module_labels, self._after.module_labels
        counts: Counter[tuple[int, int]] = Counter()
        examples: dict[tuple[int, int], int] = {}
        for node, other in enumerate(matching):
            if other >= 0:
                pair = modules[node], other_modules[other]
                counts[pair] += 1
                examples[pair] = node
        for pair in counts.keys() - self._ancestors.keys():
            node = examples[pair]
            found = self._before.modules[node], self._after.modules[matching[node]]
            self._ancestors[pair] = tuple(_matching_ancestors(*found)) if self._may_be_one(*found) else ()
        seen: Counter[tuple[str, str]] = Counter()
        for pair, count in counts.items():
            for both in self._ancestors[pair]:
                seen[both] += count
        most, other_most = Counter[str](), Counter[str]()
        for (old, new), count in seen.items():
            most[old] = max(most[old], count)
            other_most[new] = max(other_most[new], count)
        return 2 * seen.total() - most.total() - other_most.total()

    def _may_be_one(self, old: str, new: str) -> bool:
        """Return whether one module may be the other: an index shifted, or neither name is in both graphs."""
        return pattern(old) == pattern(new) or self._modules.isdisjoint((old, new))

    def _compute_move_cost(self, old: tuple[str, str], new: tuple[str, str]) -> int:
        (module, address), (other_module, other_address) = old, new
        if module == other_module:
            # Other entries of a list may have another address.
            both = (module, _tensor(address)), (module, _tensor(other_address))
            return 0 if self._exact.isdisjoint(both) else _LEFT_NAME
        if pattern(module) == pattern(other_module):
            return 0 if self._addresses.isdisjoint((address, other_address)) else _LEFT_NAME
        if self._may_be_one(module, other_module):
            return 0
        adapted = self._wrapped[0].get(module, ""), self._wrapped[1].get(other_module, "")
        if any(adapted):
            # The wrapper may have similar modules beside it.
            return 0 if adapted in {(other_module, ""), ("", module)} else _LEFT_NAME
        if module not in self._owners[0] and other_module not in self._owners[1]:
            return _LEFT_MODULE
        # The root contains every module.
        outer, inner = sorted((module, other_module), key=len)
        nested = not outer or inner.startswith(f"{outer}.")
        return _LEFT_MODULE if nested and _tensor(address) == _tensor(other_address) else _LEFT_NAME


def shared_addresses(
    before: NumberedGraph, after: NumberedGraph, modules: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return by position the address in the second graph, empty if one graph lacks it."""
    # `modules` has paths of modules in the second graph by those in the first.
    renamed = {path: pattern(found) for path, found in modules.items() if pattern(path) != pattern(found)}
    addresses = before.addresses
    if renamed:
        addresses = [
            renamed[module] + address[len(pattern(module)) :] if module in renamed else address
            for address, module in zip(addresses, before.modules, strict=True)
        ]
    both = frozenset(addresses).intersection(after.addresses)
    olds, news = ([address if address in both else "" for address in each] for each in (addresses, after.addresses))
    return olds, news


def _tensor(address: str) -> str:
    """Return the name of a tensor in its module, empty for a function."""
    return address.partition(TENSOR)[2]


def _find_wrapped(graph: NumberedGraph, other: NumberedGraph) -> dict[str, str]:
    """Return the module inside a wrapper by its former path, which is now that of the wrapper."""
    changed = {path for path, name in graph.classes.items() if name and other.classes.get(path, name) != name}
    found: dict[str, list[str]] = {}
    for path, name in other.classes.items() if changed else ():
        above = split_path(path)[0]
        if path and above in changed and (name, other.details[path]) == (graph.classes[above], graph.details[above]):
            found.setdefault(above, []).append(path)
    return {path: inside[0] for path, inside in found.items() if len(inside) == 1}


def _matching_ancestors(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield two modules, and those around them while their names agree."""
    while old and new:
        yield old, new
        old, name = split_path(old)
        new, other_name = split_path(new)
        if pattern(name) != pattern(other_name):
            return
