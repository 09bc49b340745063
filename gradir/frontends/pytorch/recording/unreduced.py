"""Find the parameters that an optimizer's step changes although the ranks did not exchange their gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from torch import nn

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.members import iter_named_parameters
from gradir.frontends.pytorch.reading.tensors import Owned
from gradir.frontends.walks import find_reachable
from gradir.ir import Collective, Graph, Rank
from gradir.ir.ids import split_id, strip_accumulator

_ONE_SIDED: Final = frozenset({"barrier", "broadcast", "gather", "recv", "reduce", "scatter", "send"})
_REDUCE_NOTHING: Final = frozenset({"no_sync", "uncalled", "unfinished"})
_SUMS: Final = frozenset({"all_reduce", "reduce", "reduce_scatter"})


class Step(NamedTuple):
    """A step of the optimizer: the captured graph with its messages, and the number of those before its end.

    The gradients of ``untouched`` can be exchanged as copies only. The parameters ``averaged`` were exchanged.
    """

    graph: Graph
    rank: Rank
    backward_end: int
    untouched: Set[str]
    averaged: Set[str]

    def find_unreduced(self, owned: Iterable[Owned], replicas: Mapping[str, nn.Module]) -> Iterator[str]:
        """Yield the trained parameters whose gradients surely were not exchanged, even inside ``replicas``."""
        graph, rank = self.graph, self.rank
        ignored, foreign = set[int](), set[int]()
        for module in replicas.values():
            names_left = {*getattr(module, private.DDP_IGNORES, ())}
            present = [(name.partition(".")[2], id(each)) for name, each in iter_named_parameters(module)]
            ignored |= {each for name, each in present if name in names_left}
            # A wrapper reduces the parameters that it was made with.
            made_with: Any = getattr(module, private.DDP_PARAMETERS, None)
            foreign |= {each for _, each in present} - {*map(id, made_with)} if made_with else set()
        trained = [each for each in owned if each.names[0] in graph.nodes and each.tensor.requires_grad]
        silent = {path for path, words in rank.wrappers.items() if "no_sync" in words}
        reducing = {path for path, words in rank.wrappers.items() if _REDUCE_NOTHING.isdisjoint(words)}
        backward = [each for each in graph.collectives if each.phase == "backward"]
        # Without one of these, nothing shows that the program means to exchange gradients.
        gathered = [*self._find_gathered(backward)]
        shown = backward if reducing else [*self._find_sums_by_hand(trained)]
        # After a gathering, the loss may be the same on all ranks.
        outputs = [name for name, each in graph.nodes.items() if each.role == "output" and shown]
        shown = shown or ([] if rank.wrappers else gathered)
        groups = {rank.groups[each.group] for each in shown if len(rank.groups[each.group]) > 1}
        known = replicas.keys() & reducing if all(each.operands for each in filter(_is_of_gradients, backward)) else ()
        wrappers = rank.wrappers.keys() - known - silent
        exchanged, largest = self._find_exchanged(backward)
        overlapping = self._find_overlapping(groups)
        # Each rank may have its own parameters where the model is split.
        forward = [each for each in graph.collectives[: self.backward_end] if each.group in overlapping]
        split = {each.scope for each in forward if self._splits(each) and (reducing or each.op in _SUMS)}
        parts = self._find_direct((name for each in gathered for name in self._list_inputs(each.node)), overlapping)
        whole = self._find_direct(outputs, overlapping)
        for tensor, names, scope, _ in trained:
            if not exchanged.isdisjoint(names) or tensor.numel() <= largest or id(tensor) in ignored:
                continue
            is_own = any(name in rank.local or _is_below(name, wrappers) for name in names)
            is_shared = names[0] in parts or (names[0] in whole and not _is_below(scope, split))
            is_meant = bool(groups) and (id(tensor) in foreign or (is_shared and not is_own))
            if is_meant or (rank.world > 1 and any(_is_below(name, silent) for name in names)):
                yield names[0]

    def _find_sums_by_hand(self, trained: Iterable[Owned]) -> Iterator[Collective]:
        names = {name for each in trained for name in each.names}
        names = names.union(cut.names[0] for cut in self.graph.cuts if cut.names) - self.averaged
        sums = (each for each in self.graph.collectives if each.op in _SUMS and each.operands)
        return (each for each in sums if names.issuperset(each.operands))

    def _find_gathered(self, backward: Iterable[Collective]) -> Iterator[Collective]:
        """Yield the sums of gradients of parts of a sequence that the forward gathered: each rank has other parts."""
        forward = (each for each in self.graph.collectives if each.phase == "forward" and each.op == "all_gather")
        given = {name for each in forward for name in each.operands}
        for each in backward:
            # gloo scatters parts, and sums them itself.
            if each.op != "all_gather" and not given.isdisjoint(self._list_inputs(each.node)):
                yield each

    def _list_inputs(self, name: str) -> Sequence[str]:
        node = self.graph.nodes.get(name)
        return [ref.id for ref in node.inputs if ref is not None] if node is not None else []

    def _find_exchanged(self, backward: Sequence[Collective]) -> tuple[Set[str], float]:
        """Return the names of exchanged gradients, and the size of the largest tensor with unknown ones."""
        rank, after = self.rank, self.graph.collectives[self.backward_end :]
        # Only the root receives the result of some.
        returned = [
            each
            for each in after
            if each.op not in ("gather", "reduce") or rank.groups[each.group][each.peer or 0] == rank.rank
        ]
        exchanged = {name for each in returned for name in each.operands} - self.untouched
        hooked = (each for each in backward if not each.operands and _is_of_gradients(each))
        by_hand = [each for each in hooked if not _is_below(split_id(each.node)[0], rank.wrappers)]
        by_hand += [each for each in after if len(each.operands) < len(each.tensors) and each.op not in _ONE_SIDED]
        # A flat tensor may contain several gradients.
        return exchanged.union(*(each.operands for each in backward)), max(map(_size, by_hand), default=0)

    def _find_overlapping(self, groups: Set[tuple[int, ...]]) -> Set[str]:
        every = self.rank.groups.items()
        return {label for label, ranks in every if any(len({*ranks}.intersection(each)) > 1 for each in groups)}

    def _splits(self, issued: Collective) -> bool:
        """Return whether a module exchanges activations, as experts and tensor parallel layers do."""
        if issued.phase == "backward" or issued.op in _ONE_SIDED:
            return False
        made = [self.graph.nodes[name].role for name in issued.operands if name in self.graph.nodes]
        return issued.op == "all_to_all" or "function" in made

    def _find_direct(self, starts: Iterable[str], labels: Set[str]) -> Set[str]:
        """Return the nodes whose gradients come from other nodes without a message in one of the groups."""
        every = self.graph.collectives
        crossed = {each.node for each in every if each.phase == "backward" and each.group in labels}
        return {*find_reachable(starts, lambda name: () if name in crossed else self._list_inputs(name))}


def _is_of_gradients(issued: Collective) -> bool:
    is_floating = any("float" in (tensor.dtype or "") for tensor in issued.tensors)
    return is_floating and (not issued.node or strip_accumulator(issued.node, {"accumulate_grad"}) != issued.node)


def _is_below(name: str, paths: Any) -> bool:
    return any(not path or f"{name}.".startswith(f"{path}.") for path in paths)


def _size(issued: Collective) -> float:
    """Return the elements of gradients that a message with unknown ones can have at most."""
    if any(each.shape is None for each in issued.tensors):
        return math.inf
    sizes = [math.prod(size for size in each.shape or () if isinstance(size, int)) for each in issued.tensors]
    # Compressed gradients are values of some entries, or factors of a matrix.
    is_compressed = issued.op == "all_gather" or any(len(each.shape or ()) > 1 for each in issued.tensors)
    return math.inf if is_compressed and sum(sizes) > 1 else sum(sizes)
