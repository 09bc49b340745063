"""What a recording knows of its process among others and of their messages, beside the graphs captured of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace
from torch import distributed

from gradir.errors import CaptureError
from gradir.frontends.pytorch.reading.attributes import device_name, shape_of
from gradir.frontends.pytorch.reading.distributed import Groups, forms_of_sharded, mesh_of_tensor
from gradir.frontends.pytorch.reading.tensors import Modules, held_by, modules_below, ones_for
from gradir.frontends.pytorch.recording.exchange import Exchange, ExchangeMode
from gradir.frontends.pytorch.recording.timelines import Timeline, path_of
from gradir.frontends.texts import plain_text
from gradir.ir import Graph, Rank
from gradir.spec import own_error

if TYPE_CHECKING:
    from gradir.frontends.pytorch.reading.assemble import LiveGraph
    from gradir.frontends.pytorch.reading.walk import GradFn

__all__ = ["Exchanged"]


class Exchanged:
    """What the threads of a recording exchanged with other processes, and what its nodes and modules are called."""

    def __init__(self) -> None:
        self._exchanges: dict[Timeline, Exchange] = {}
        self._ids: dict[GradFn, str] = {}
        self._modules: Modules = modules_below({})
        self._device = "cpu"
        self.groups = Groups()
        """Labels the groups of the graph that was captured last."""

    def noting(self, timeline: Timeline) -> ExchangeMode:
        """A context in which this thread's messages are noted."""
        return ExchangeMode(self._exchanges.setdefault(timeline, Exchange(timeline)))

    def located(self, live: LiveGraph, modules: Modules) -> LiveGraph:
        """A capture with what was exchanged so far; what comes later is told in its words, see `with_collectives`."""
        self._modules = modules
        self._device = next((device_name(entry.tensor.device) for entry in live.captured), "cpu")
        self._ids.update(live.grad_fns)
        return live._replace(graph=self.with_collectives(live.graph))

    def with_collectives(self, graph: Graph) -> Graph:
        """A graph with this process's rank, and with all that was exchanged."""
        module_of = partial(path_of, paths=self._modules.paths)
        found = [
            collective
            for exchange in self._exchanges.values()
            for collective in exchange.collectives(self.groups, self._ids, module_of)
        ]
        rank = rank_of(self.groups, self._modules, self._device)
        pipeline = next(filter(None, (exchange.pipeline for exchange in self._exchanges.values())), None)
        if rank is not None and pipeline is not None:
            stage, stages, microbatches = pipeline
            rank = replace(rank, stage=stage, stages=stages, microbatches=microbatches)
        if found and rank is None:
            raise CaptureError("the process group is gone: capture before destroy_process_group")
        return replace(graph, rank=rank, collectives=tuple(found))

    def with_dry_backward(self, live: LiveGraph) -> LiveGraph:
        """A capture with what its backward would exchange, which runs, uses the graph up, and sends nothing.

        Where a backward ran in the recording, that was noted, and none runs here.

        Raises:
            CaptureError: the backward fails.
        """
        if any(exchange.has_backward for exchange in self._exchanges.values()):
            return live
        exchange = next(iter(self._exchanges.values()))
        with ExchangeMode(exchange, sends=False), torch.autograd.set_multithreading_enabled(False):
            tensors = [entry.tensor for entry in live.captured if entry.role == "output"]
            try:
                torch.autograd.backward(tensors, list(map(ones_for, tensors)))
            except Exception as error:
                raise CaptureError(
                    f"the collectives of backward are found by one in which nothing is sent, which failed: "
                    f"{own_error(error)}"
                ) from error
        return live._replace(graph=self.with_collectives(live.graph))


def rank_of(groups: Groups, modules: Modules, device: str) -> Rank | None:
    """Which process it is that trains these modules on a kind of device; ``None`` where there are no others.

    ``groups`` are those that were met in a graph and in what was exchanged.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    rank = distributed.get_rank()
    members = {label: tuple(distributed.get_process_group_ranks(group)) for label, group in groups.met.items()}
    parts = dict(_parts(modules))
    coordinates = {label: members[label].index(rank) for label in groups.dimensions()}
    for mesh in map(mesh_of_tensor, parts.values()):
        # Where this process is in the dimensions of a mesh that have names.
        coordinates.update(zip(mesh.mesh_dim_names or (), map(int, mesh.get_coordinate() or ()), strict=False))
    shapes = {name: shape_of(held_by(tensor)) for name, tensor in parts.items()}
    return Rank(
        rank,
        distributed.get_world_size(),
        device,
        plain_text(distributed.get_backend()),
        coordinates,
        members,
        {name: shape for name, shape in shapes.items() if shape is not None},
    )


def _parts(modules: Modules) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of modules that several processes hold together, by name, in the form between steps."""
    kept = {id(form): forms[-1] for forms in forms_of_sharded(modules.paths) for form in forms}
    for tensor, names, _, _ in modules.owned:
        part = kept.get(id(tensor), tensor)
        if mesh_of_tensor(part) is not None:
            yield names[0], part
