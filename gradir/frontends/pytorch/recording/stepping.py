"""Exchanges between a backward and the optimizer's step, and gradients that are in none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradir.frontends.pytorch.reading.tensors import Owned, storage_of
from gradir.frontends.pytorch.recording.steps import INPLACE, named, signature_of, tensors_in
from gradir.ir import Collective, Graph, Rank
from gradir.ir.ids import split_id

if TYPE_CHECKING:
    from gradir.frontends.pytorch.recording.participants import Exchanged

_SEVERAL: Final = 2
_ONE_SIDED: Final = frozenset({"barrier", "broadcast", "gather", "recv", "reduce", "scatter", "send"})
_REDUCE_NOTHING: Final = frozenset({"no_sync", "uncalled", "unfinished"})


class UntilStep:
    """Sends nothing until an optimizer steps or the program writes to a parameter, and tells what was exchanged."""

    def __init__(self, exchanged: Exchanged, graph: Graph, stepped: Callable[[Graph | None], None]) -> None:
        self._exchanged, self._graph, self._stepped = exchanged, graph, stepped
        owned = exchanged.modules.owned
        self._storages = {*map(storage_of, (each.tensor for each in owned))} - {None}
        self._hook = register_optimizer_step_pre_hook(self._before_step)
        exchanged.stop_sending(self)

    def close(self) -> None:
        """Note no more."""
        self._hook.remove()
        self._exchanged.stop_sending(None)

    def end(self) -> None:
        """End before a step."""
        self.close()
        self._stepped(None)

    def note_write(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """End before an operation writes to a parameter, as a step by hand does: its gradient is not a real one."""
        signature = signature_of(func)
        if INPLACE not in signature.kinds.values():
            return
        for name, value in named(signature.names, args, kwargs):
            written = tensors_in(value) if signature.kinds.get(name) == INPLACE else ()
            if any(storage_of(each) in self._storages for each in written):
                self._end_at_step(None)

    def _before_step(self, optimizer: Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        # A closure computes gradients anew.
        if any(map(callable, (*args, *kwargs.values()))):
            self.end()
        self._end_at_step(optimizer)

    def _end_at_step(self, optimizer: Optimizer | None) -> None:
        graph, owned = self._exchanged.with_collectives(self._graph), self._exchanged.modules.owned
        self.close()
        if optimizer is not None:
            stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
            owned = [each for each in owned if id(each.tensor) in stepped]
        if graph.rank is not None:
            names = tuple(_unreduced(graph, graph.rank, len(self._graph.collectives), owned))
            graph = replace(graph, rank=replace(graph.rank, unreduced=names))
        self._stepped(graph)


def _unreduced(graph: Graph, rank: Rank, backward_end: int, owned: Sequence[Owned]) -> Iterator[str]:
    """Yield the trained parameters outside of every wrapper whose gradients surely were not exchanged."""
    # Without a wrapper that reduces there is no sign that gradients are to be exchanged.
    wrappers = [path for path, words in rank.wrappers.items() if _REDUCE_NOTHING.isdisjoint(words)]
    backward = [each for each in graph.collectives if each.phase == "backward"]
    if not wrappers or not any(len(rank.groups[each.group]) >= _SEVERAL for each in backward):
        return
    exchanged = {name for each in graph.collectives if each.phase == "backward" for name in each.operands}
    after = graph.collectives[backward_end:]
    exchanged.update(name for each in after for name in each.operands)
    by_hand = [each for each in backward if not each.operands and not _is_below(split_id(each.node)[0], rank.wrappers)]
    by_hand += [each for each in after if len(each.operands) < len(each.tensors) and each.op not in _ONE_SIDED]
    # A flat tensor may have several gradients in it.
    largest = max((_size(each) for each in by_hand), default=0)
    # Each rank may have its own parameters where a model is split.
    apart = {each.scope for each in graph.collectives[:backward_end] if _splits_a_model(each, graph)}
    for tensor, names, scope, _ in owned:
        is_reduced = not exchanged.isdisjoint(names) or tensor.numel() <= largest
        is_own = _is_below(scope, apart) or any(name in rank.local or _is_below(name, rank.wrappers) for name in names)
        if names[0] in graph.nodes and tensor.requires_grad and not is_reduced and not is_own:
            yield names[0]


def _splits_a_model(issued: Collective, graph: Graph) -> bool:
    """Return whether a module exchanges what it computes, as experts and tensor parallel layers do."""
    if issued.phase == "backward" or issued.op in _ONE_SIDED:
        return False
    made = [graph.nodes[name].role for name in issued.operands if name in graph.nodes]
    return issued.op == "all_to_all" or "function" in made


def _is_below(name: str, paths: Any) -> bool:
    return any(not path or f"{name}.".startswith(f"{path}.") for path in paths)


def _size(issued: Collective) -> int:
    return sum(math.prod(size for size in tensor.shape or () if isinstance(size, int)) for tensor in issued.tensors)
