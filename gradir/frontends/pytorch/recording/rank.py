"""Describe this process as a rank: its messages until the optimizer's step, its groups and its wrappers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import torch
from msgspec.structs import replace
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradir.errors import CaptureError
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.attributes import shape_of
from gradir.frontends.pytorch.reading.distributed import (
    Groups,
    forms_of_sharded,
    is_in_process_group,
    mesh_of_tensor,
    sharding_groups,
)
from gradir.frontends.pytorch.reading.members import has_parameters, iter_named_parameters
from gradir.frontends.pytorch.reading.saved import raises
from gradir.frontends.pytorch.reading.tensors import Modules, Owned, checksum, modules_below, storage_of, unwrap_tensor
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.collectives import OperandNames
from gradir.frontends.pytorch.recording.exchange import Exchange, ExchangeMode
from gradir.frontends.pytorch.recording.steps import INPLACE, name_arguments, signature_of, tensors_in
from gradir.frontends.pytorch.recording.timelines import Timeline
from gradir.frontends.pytorch.recording.unreduced import Step
from gradir.frontends.texts import plain_text
from gradir.ir import Graph, Producer, Rank
from gradir.ir.head import find_summed_parameters
from gradir.spec import describe_error
from gradir.version import __version__

# The ranks that were captured and send no more set keys that begin so in the store of the process group.
_STORE_KEY: Final = "gradir/captured"
_STORE_TIMEOUT: Final = timedelta(seconds=2)


class Exchanged:
    """The messages of all threads of a recording, and the ids of its nodes and the paths of its modules."""

    def __init__(self, *, is_dry: bool = False) -> None:
        self._is_dry = is_dry
        self._exchanges: dict[Timeline, Exchange] = {}
        self.ids: dict[GradFn, str] = {}
        self.modules: Modules = modules_below({})
        self.names = OperandNames(self.modules, {})
        self._synced: dict[int, bool] = {}
        self._until: UntilStep | None = None
        # The groups of the graph that was captured last.
        self.groups = Groups()
        self.values: dict[str, int] = {}

    def record_thread(self, timeline: Timeline) -> ExchangeMode:
        """Return a context that records this thread's messages."""
        return ExchangeMode(self._exchanges.setdefault(timeline, Exchange(timeline, is_dry=self._is_dry)))

    def record_call(self, module: nn.Module) -> None:
        """Record whether a DistributedDataParallel will reduce the gradients of this call."""
        if self._until is not None and has_parameters(module):
            self._until.end()
        if isinstance(module, DistributedDataParallel):
            self._synced[id(module)] = getattr(module, private.DDP_SYNCS, True)

    def begin(self, *, is_dry: bool) -> None:
        """Begin another step, and forget the messages so far."""
        self._is_dry = is_dry
        for exchange in self._exchanges.values():
            exchange.begin(is_dry=is_dry)

    def stop_sending(self, until: UntilStep | None) -> None:
        """Send no more messages, and report writes to ``until``, if any."""
        self._until = until
        for exchange in self._exchanges.values():
            exchange.stop_sending(until)

    def number_groups(self) -> None:
        """Label the groups again."""
        self.groups = Groups()
        if is_in_process_group():
            self.groups.number()

    def attach_collectives(self, live: LiveGraph, modules: Modules) -> LiveGraph:
        """Return a capture with the messages so far; `with_collectives` uses its ids for later messages."""
        self.modules = modules
        self.ids.update(live.grad_fns)
        if self._is_dry and not any(each.pipeline for each in self._exchanges.values()):
            live = live.with_options({"dry": True})
        self.names = OperandNames(modules, live.grad_fns)
        # A dry step does not even send the initial values of replicas.
        if is_in_process_group() and distributed.get_backend() != private.NOT_SENDING and not self._is_dry:
            self.values = dict(_checksums(modules, live.graph))
        return live._replace(graph=self.with_collectives(live.graph))

    def with_collectives(self, graph: Graph) -> Graph:
        """Return a graph with this process's rank and all messages."""
        found = [each for exchange in self._exchanges.values() for each in exchange.collectives(self)]
        rank = rank_of(self.groups, self.modules)
        pipeline = next(filter(None, (exchange.pipeline for exchange in self._exchanges.values())), None)
        if rank is not None:
            wrappers = self._wrappers(graph)
            # Without the many values of shards, which differ between ranks.
            summed = {name for each in found for name in find_summed_parameters(each, wrappers)} - self.names.exchanged
            values = {name: value for name, value in self.values.items() if name in summed}
            counts = sum((each.offsets for each in self._exchanges.values()), Counter[str]())
            labels = {label: counts[group.group_name] for label, group in self.groups.met.items()}
            offsets = {label: count for label, count in labels.items() if count}
            rank = replace(rank, wrappers=wrappers, values=values, offsets=offsets)
        elif found:
            raise CaptureError("the process group is gone: capture before destroy_process_group")
        if rank is not None and pipeline is not None:
            stage, stages, microbatches = pipeline
            rank = replace(rank, stage=stage, stages=stages, microbatches=microbatches)
        return replace(graph, rank=rank, collectives=tuple(found))

    def _wrappers(self, graph: Graph) -> dict[str, tuple[str, ...]]:
        paths = self.modules.paths
        made = (reference() for each in self._exchanges.values() for reference in each.wrappers.values())
        silent = (each for each in made if isinstance(each, DistributedDataParallel) and id(each) not in self._synced)
        # A wrapper that did not run has the path of the module inside it.
        around = [(each, paths[each.module]) for each in silent if each not in paths and each.module in paths]
        return dict(describe_wrappers((*paths.items(), *around), self.modules.owned, self._synced, graph))

    @property
    def sends_by_hand(self) -> bool:
        """Whether the step sent or received messages, and no DistributedDataParallel waits in its backward."""
        every = self._exchanges.values()
        return any(each.sends_by_hand for each in every) and not any(each.wrappers for each in every)

    @property
    def waiting(self) -> int | None:
        """The number of operations so far, or ``None`` unless a thread waits for other processes."""
        every = self._exchanges.values()
        return sum(each.operations for each in every) if any(each.waits for each in every) else None

    def capture_stopped(self, why: str, modules: Modules) -> Graph | None:
        """Return a graph without nodes but with the messages of a step that stopped before its backward."""
        self.number_groups()
        for each in self._exchanges.values():
            each.note_new_group()
        self.modules, self.names = modules, OperandNames(modules, {})
        empty = Graph({}, producer=Producer(__version__, "torch", str(torch.__version__)))
        graph = self.with_collectives(empty) if distributed.is_initialized() else empty
        if graph.rank is None:
            return None
        if why == "waits" and not any(any(line.frames) for line in self._exchanges):
            why = "starts"
        why = "joins" if any(each.has_joined for each in self._exchanges.values()) else why
        if why in ("waits", "fails") and graph.collectives:
            last = graph.collectives[-1]
            members = graph.rank.groups.get(last.group, ())
            if _are_captured(members if last.peer is None else members[last.peer : last.peer + 1]):
                why = "left"
        return replace(graph, rank=replace(graph.rank, wrappers={}, values={}, stopped=why))

    def with_dry_backward(self, live: LiveGraph) -> LiveGraph:
        """Return a capture with the messages of its backward, which runs now without sending if none ran."""
        if any(exchange.has_backward for exchange in self._exchanges.values()):
            return live
        exchange = next(iter(self._exchanges.values()))
        with ExchangeMode(exchange, sends=False), torch.autograd.set_multithreading_enabled(False):
            try:
                torch.autograd.backward(*live.starts_and_seeds())
            except Exception as error:
                why = "the collectives of backward are found by one in which nothing is sent, which failed"
                raise CaptureError(f"{why}: {describe_error(error)}") from error
        return live._replace(graph=self.with_collectives(live.graph))


def rank_of(groups: Groups, modules: Modules) -> Rank | None:
    """Return this process's rank, with its ``groups``, or ``None`` outside of a process group."""
    if not is_in_process_group():
        return None
    rank = distributed.get_rank()
    members = {label: tuple(distributed.get_process_group_ranks(group)) for label, group in groups.met.items()}
    shards = {id(form): forms[-1] for forms in forms_of_sharded(modules.paths) for form in forms}
    owned = ((names[0], shards.get(id(tensor), tensor)) for tensor, names, _, _ in modules.owned)
    parts = {name: part for name, part in owned if mesh_of_tensor(part) is not None}
    coordinates = {label: members[label].index(rank) for label in groups.dimensions()}
    for mesh in map(mesh_of_tensor, parts.values()):
        # The coordinates of this process in the named dimensions of the mesh.
        coordinates.update(zip(mesh.mesh_dim_names or (), map(int, mesh.get_coordinate() or ()), strict=False))
    shapes = {name: shape_of(unwrap_tensor(tensor)) for name, tensor in parts.items()}
    local = {name: shape for name, shape in shapes.items() if shape is not None}
    world, backend = distributed.get_world_size(), plain_text(distributed.get_backend())
    return Rank(rank, world, backend, coordinates, members, local)


def _checksums(modules: Modules, graph: Graph) -> Iterator[tuple[str, int]]:
    with private.disable_modes(), private.without_overrides():
        for tensor, names, _, _ in modules.owned:
            found = checksum(tensor) if names[0] in graph.nodes and tensor.requires_grad else None
            if found is not None:
                yield names[0], found


def describe_wrappers(
    modules: Iterable[tuple[nn.Module, str]], owned: Iterable[Owned], synced: Mapping[int, bool], graph: Graph
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each module that reduces gradients with its state; ``synced`` has whether its last call was to reduce."""
    trained = {id(each.tensor) for each in owned if each.names[0] in graph.nodes}
    for module, path in modules:
        if isinstance(module, DistributedDataParallel):
            hooks = getattr(module, private.DDP_HOOKS, ())
            words = {
                "no_sync": not synced.get(id(module), True),
                "uncalled": id(module) not in synced
                and any(id(parameter) in trained for _, parameter in iter_named_parameters(module)),
                # torch refuses another forward while a bucket waits for a gradient.
                "unfinished": raises(getattr(module.reducer, private.DDP_FINISHED, bool)),
                "unused": module.find_unused_parameters,
                "static": module.static_graph,
            }
            names = [plain_text(getattr(hook, "__name__", type(hook).__name__)) for hook, _ in hooks]
            yield path, (*(word for word, holds in words.items() if holds), *(f"hook:{name}" for name in names))
        for group in sharding_groups([module]):
            yield path, () if getattr(group, private.FSDP_REDUCES, True) else ("no_sync",)


class UntilStep:
    """Records messages until an optimizer steps, or another forward or backward begins.

    Unless it ``sends``, no message is sent, and a write to a parameter ends it too.
    """

    def __init__(self, exchanged: Exchanged, graph: Graph, stepped: Callable[[Graph], None], *, sends: bool) -> None:
        self._exchanged, self._graph, self._stepped, self.sends = exchanged, graph, stepped, sends
        self.is_over = False
        self.owned = exchanged.modules.owned
        self._storages = {*map(storage_of, (each.tensor for each in self.owned))} - {None}
        self._gradients = {
            id(each.tensor): storage_of(each.tensor.grad) for each in self.owned if each.tensor.grad is not None
        }
        # The storages that the program wrote to or sent since the backward.
        self.written: set[int | None] = set()
        self._hook = register_optimizer_step_pre_hook(self._handle_step)
        if not sends:
            exchanged.stop_sending(self)
            # Other ranks learn that this one sends no more.
            with suppress(AttributeError, RuntimeError, ValueError):
                _store().set(f"{_STORE_KEY}/{distributed.get_rank()}", "")

    def close(self) -> None:
        """Stop recording."""
        self.is_over = True
        self._hook.remove()
        if not self.sends:
            self._exchanged.stop_sending(None)

    @property
    def graph(self) -> Graph:
        """The captured graph, with the messages so far."""
        return self._exchanged.with_collectives(self._graph)

    def end(self) -> None:
        """End before a step, because another forward or backward begins."""
        graph = self.graph
        self.close()
        self._stepped(graph if graph.rank is None else replace(graph, rank=replace(graph.rank, accumulates=True)))

    def record_write(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """End before an operation writes to a parameter, as a step by hand does: the gradients are no real ones."""
        signature = signature_of(func)
        if INPLACE not in signature.kinds.values():
            return
        for name, value in name_arguments(signature.names, args, kwargs):
            written = {*map(storage_of, tensors_in(value))} if signature.kinds.get(name) == INPLACE else set()
            self.written |= written
            if not self._storages.isdisjoint(written):
                self._end_at_step(None)

    def _handle_step(self, optimizer: Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        # A closure runs another forward and backward.
        if any(map(callable, (*args, *kwargs.values()))):
            self.end()
        self._end_at_step(optimizer)

    def _find_untouched(self) -> Iterator[str]:
        """Yield the parameters whose gradients are as the backward left them, and were not sent."""
        for tensor, names, _, _ in self.owned:
            storage = None if tensor.grad is None else storage_of(tensor.grad)
            if storage is not None and storage not in self.written and self._gradients.get(id(tensor)) == storage:
                yield from names

    def _end_at_step(self, optimizer: Optimizer | None) -> None:
        graph, owned = self.graph, self.owned
        self.close()
        if optimizer is not None:
            stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
            for forms in forms_of_sharded(self._exchanged.modules.paths):
                stepped.update(map(id, forms if id(forms[-1]) in stepped else ()))
            owned = [each for each in owned if id(each.tensor) in stepped]
        # Between pipeline stages, the count of messages does not show the end of the backward.
        if graph.rank is not None and not self.sends:
            paths = self._exchanged.modules.paths.items()
            replicas = {path: module for module, path in paths if isinstance(module, DistributedDataParallel)}
            # A step by hand may take gradients from a reduced copy.
            untouched = {*self._find_untouched()} if optimizer is not None else set[str]()
            step = Step(graph, graph.rank, len(self._graph.collectives), untouched, self._exchanged.names.exchanged)
            found = tuple(step.find_unreduced(owned, replicas))
            # Only equal values show that the ranks of a program without wrappers have copies.
            known = {} if graph.rank.wrappers else self._exchanged.values
            values = {name: known[name] for name in found if name in known}
            rank = replace(graph.rank, unreduced=found, values={**graph.rank.values, **values})
            graph = replace(graph, rank=rank)
        self._stepped(graph)


def _are_captured(ranks: Iterable[int]) -> bool:
    with suppress(AttributeError, RuntimeError, ValueError):
        store = _store()
        return any(store.check([f"{_STORE_KEY}/{rank}"]) for rank in ranks)
    return False


def _store() -> Any:
    """Return a second connection, since the main thread may wait on the first in C++."""
    known: Any = distributed
    store = getattr(distributed.distributed_c10d, private.STORE)()
    while isinstance(store, known.PrefixStore):
        store = store.underlying_store
    return known.TCPStore(store.host, store.port, timeout=_STORE_TIMEOUT, wait_for_workers=False)
