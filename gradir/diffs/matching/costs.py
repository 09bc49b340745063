"""What a matching costs as an edit script."""

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

# Of two matchings that differ in more than one part in this many nodes, each is priced by itself.
_FEW: Final = 8


class Costs:
    """Counts edits between two graphs; it remembers what comparing two labels gave.

    A matching is a list: by position in the first graph the position in the second, `FREE` where there is none,
    and `NOTHING` at its end, where a reference to nothing leads.
    """

    def __init__(self, before: NumberedGraph, after: NumberedGraph) -> None:
        self.before, self.after = before, after
        self.addresses = Addresses(before, after)
        self._known: dict[tuple[int, int], tuple[int, bool]] = {}

    def lower_bound(self) -> int:
        """Return a lower bound of the cost of any matching: the labels that one graph has more often than the other."""
        before, after = self.before, self.after
        full = _count_unmatched(before.full, after.full)
        if full != (0, 0):
            # A pair in which both differ costs 2, as it does to remove the one node and to add the other.
            return max(
                *full,
                _count_unmatched(before.outlined, after.outlined)[0]
                + _count_unmatched(before.described, after.described)[1],
            )
        return int(Counter(before.naming_labels) != Counter(after.naming_labels))

    def total_cost(self, matching: Sequence[int]) -> int:
        """Return the number of edits, see `gradir.diffs.matching.match`."""
        return self.sum_costs(matching, self.node_costs(matching))

    def sum_costs(self, matching: Sequence[int], shares: Sequence[int]) -> int:
        """Return the number of edits, given the result of `shares`."""
        pairs = self._count_renames(matching)
        renames = set().union(*(before.renames(after) for before, after in pairs))
        names = sum(count for (before, after), count in pairs.items() if not before.explained(after, renames))
        return self.base_cost(shares) + len(renames) + names + self.addresses.count_torn(matching)

    def base_cost(self, shares: Sequence[int]) -> int:
        """Return the number of edits without renames and torn modules."""
        return sum(shares) + len(self.after)

    def node_costs(self, matching: Sequence[int]) -> list[int]:
        """Return the cost of each node of the first graph; a matched one saves the addition of the other."""
        after = self.after
        full, inputs, saved, addresses = after.full, after.inputs, after.saved_refs, after.address_labels
        before, move_cost = self.before, self.addresses.move_cost
        rows = zip(matching, before.full, before.inputs, before.saved_refs, before.address_labels, strict=False)
        return [
            1
            if other < 0
            else -1
            if (
                label == full[other]
                and (address == addresses[other] or not move_cost(node, other))
                and tuple([matching[ref] for ref in refs]) == inputs[other]
                and (not held or tuple([matching[ref] for ref in held]) == saved[other])
            )
            else self.pair_cost(node, other, matching) - 1
            for node, (other, label, refs, held, address) in enumerate(rows)
        ]

    def update_node_costs(self, matching: Sequence[int], like: Sequence[int], shares: Sequence[int]) -> list[int]:
        """Return the `shares` of a matching, given those of a similar one."""
        changed = [node for node, (one, two) in enumerate(zip(matching, like, strict=True)) if one != two]
        if len(changed) > len(matching) // _FEW:
            return self.node_costs(matching)
        found = [*shares]
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
        known = self._known.get(labels)
        if known is None:
            known = self._known[labels] = self._compare_nodes(node, other)
        total, holds_the_same = known
        total += self.count_rewired(node, other, matching) + self.addresses.move_cost(node, other)
        kept = before.saved_refs[node]
        return total + (holds_the_same and tuple([matching[ref] for ref in kept]) != after.saved_refs[other])

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
        shown = dict(zip(labels, pairs, strict=True))
        found: Counter[tuple[Naming, Naming]] = Counter()
        for pair, count in Counter(labels).items():
            if pair[0] != pair[1]:
                node, other = shown[pair]
                found[Naming.of(self.before.nodes[node]), Naming.of(self.after.nodes[other])] += count
        return found

    def _compare_nodes(self, node: int, other: int) -> tuple[int, bool]:
        """Count the fields that differ except for references, and say whether references of saved slots count."""
        old, new = self.before.nodes[node], self.after.nodes[other]
        # The operation, references and names have prices of their own.
        fields = ("role", *own_fields("structure"), *own_fields("type"), *own_fields("free"))
        changed = sum(bool(getattr(old, field) != getattr(new, field)) for field in fields)
        if old.op != new.op:
            return changed + 1, False
        changed += sum(bool(getattr(old, field) != getattr(new, field)) for field in own_fields("detail"))
        holds_the_same = self.before.slot_labels.get(node) == self.after.slot_labels.get(other)
        return changed + (not holds_the_same), holds_the_same

    def count_rewired(self, node: int, other: int, matching: Sequence[int]) -> int:
        """Count the input slots of a matched node, and other edges into it, that were rewired."""
        refs, other_refs = self.before.inputs[node], self.after.inputs[other]
        widths, other_widths = self.before.widths[node], self.after.widths[other]
        if widths == other_widths and node not in self.before.ref_details and other not in self.after.ref_details:
            return sum(map(ne, map(matching.__getitem__, refs), other_refs))
        odd, other_odd = self.before.ref_details.get(node, {}), self.after.ref_details.get(other, {})
        here = iter([(matching[ref], odd.get(place)) for place, ref in enumerate(refs)])
        there = iter([(ref, other_odd.get(place)) for place, ref in enumerate(other_refs)])
        return sum(
            one != two
            for width, other_width in zip(widths, other_widths, strict=True)
            for one, two in zip_longest(islice(here, width), islice(there, other_width))
        )


def _count_unmatched(before: Sequence[int], after: Sequence[int]) -> tuple[int, int]:
    here, there = Counter(before), Counter(after)
    return (here - there).total(), (there - here).total()


# What leaving a name that stays costs a tensor, or a function of a module with tensors: more than to remove it, add it
# and rewire a consumer.
_LEFT_NAME: Final = 3
# The same for other functions, and where the one module contains the other, as when a module is wrapped.
_LEFT_MODULE: Final = 1


class Addresses:
    """What two graphs call the same.

    The address of a node is its module, and a tensor's own name, as a pattern (``layers.*.attn``). What stands at
    an address or in a module that is on both sides is not taken for what stands elsewhere.
    """

    def __init__(self, before: NumberedGraph, after: NumberedGraph) -> None:
        self._before, self._after = before, after
        self._modules = frozenset((*before.classes, *before.modules)).intersection((*after.classes, *after.modules))
        self._addresses = frozenset(before.addresses).intersection(after.addresses)
        exact = [
            {(module, _tensor(address)) for module, address in zip(graph.modules, graph.addresses, strict=True)}
            for graph in (before, after)
        ]
        # Modules with functions, and modules with the name of a tensor in them, that both graphs have.
        self._exact = exact[0] & exact[1]
        self._owners = [
            {module for module, (_, tensor) in zip(graph.modules, graph.homes, strict=True) if tensor}
            for graph in (before, after)
        ]
        self._wrapped = _find_wrapped(before, after), _find_wrapped(after, before)
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._chains: dict[tuple[int, int], tuple[tuple[str, str], ...]] = {}

    def move_cost(self, node: int, other: int) -> int:
        """Return the cost of a node that has another address although one of both addresses remains."""
        before, after = self._before, self._after
        address, other_address = before.address_labels[node], after.address_labels[other]
        if address == other_address:
            return 0
        key = before.module_labels[node], address, after.module_labels[other], other_address
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._compute_move_cost(
                (before.modules[node], before.addresses[node]), (after.modules[other], after.addresses[other])
            )
        return known

    def find_wrapped(self) -> dict[str, str]:
        """Return the modules of the second graph by those that were wrapped, or are no more."""
        wrapped, unwrapped = self._wrapped
        return {**{inside: path for path, inside in unwrapped.items()}, **wrapped}

    def count_torn(self, matching: Sequence[int]) -> int:
        """Count the nodes that went elsewhere than most of their module, or come from elsewhere."""
        modules, other_modules = self._before.module_labels, self._after.module_labels
        counts: Counter[tuple[int, int]] = Counter()
        shown: dict[tuple[int, int], int] = {}
        for node, other in enumerate(matching):
            if other >= 0:
                pair = modules[node], other_modules[other]
                counts[pair] += 1
                shown[pair] = node
        for pair in counts.keys() - self._chains.keys():
            node = shown[pair]
            found = self._before.modules[node], self._after.modules[matching[node]]
            self._chains[pair] = tuple(_matching_ancestors(*found)) if self._may_be_one(*found) else ()
        seen: Counter[tuple[str, str]] = Counter()
        for pair, count in counts.items():
            for both in self._chains[pair]:
                seen[both] += count
        total, most, other_most = 0, dict[str, int](), dict[str, int]()
        for (old, new), count in seen.items():
            total += count
            most[old] = max(most.get(old, 0), count)
            other_most[new] = max(other_most.get(new, 0), count)
        return 2 * total - sum(most.values()) - sum(other_most.values())

    def _may_be_one(self, old: str, new: str) -> bool:
        """Return whether one module may be the other: an index shifted, or neither name is on both sides."""
        return pattern(old) == pattern(new) or self._modules.isdisjoint((old, new))

    def _compute_move_cost(self, old: tuple[str, str], new: tuple[str, str]) -> int:
        (module, address), (other_module, other_address) = old, new
        if module == other_module:
            # Its neighbours in a list may have what it has not.
            both = (module, _tensor(address)), (module, _tensor(other_address))
            return 0 if self._exact.isdisjoint(both) else _LEFT_NAME
        if pattern(module) == pattern(other_module):
            return 0 if self._addresses.isdisjoint((address, other_address)) else _LEFT_NAME
        if self._may_be_one(module, other_module):
            return 0
        adapted = self._wrapped[0].get(module, ""), self._wrapped[1].get(other_module, "")
        if any(adapted):
            # Beside it in the wrapper there may be what is like it.
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
    """Return by position the address in the words of the second graph, or nothing if one graph lacks it."""
    # `modules` are the paths of modules in the second graph by those in the first.
    renamed = {path: pattern(found) for path, found in modules.items() if pattern(path) != pattern(found)}
    addresses = before.addresses
    if renamed:
        addresses = [
            renamed[module] + address[len(pattern(module)) :] if module in renamed else address
            for address, module in zip(addresses, before.modules, strict=True)
        ]
    both = frozenset(addresses).intersection(after.addresses)
    here, there = ([address if address in both else "" for address in of] for of in (addresses, after.addresses))
    return here, there


def _tensor(address: str) -> str:
    """Return the name of a tensor in its module; nothing for a function."""
    return address.partition(TENSOR)[2]


def _find_wrapped(graph: NumberedGraph, other: NumberedGraph) -> dict[str, str]:
    """Return the module inside a wrapper by its former path, which is now that of the wrapper."""
    names = {
        path for path, name in graph.classes.items() if name and path in other.classes and other.classes[path] != name
    }
    if not names:
        return {}
    found: dict[str, list[str]] = {}
    for path, name in other.classes.items():
        above = split_path(path)[0]
        if path and above in names and (name, other.details[path]) == (graph.classes[above], graph.details[above]):
            found.setdefault(above, []).append(path)
    return {path: inside[0] for path, inside in found.items() if len(inside) == 1}


def _matching_ancestors(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield two modules, and those around them as long as their names agree."""
    while old and new:
        yield old, new
        old, name = split_path(old)
        new, other_name = split_path(new)
        if pattern(name) != pattern(other_name):
            return
