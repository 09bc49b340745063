"""Which of several processes this is, and what is so of this one alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import distributed

from gradir.frontends.pytorch.reading.distributed import Groups, forms_of_sharded, mesh_of_tensor
from gradir.frontends.pytorch.reading.metadata import shape_of
from gradir.frontends.pytorch.reading.tensors import Modules, held_by
from gradir.frontends.texts import plain_text
from gradir.ir import Rank
from gradir.ir.model import Shape

__all__ = ["rank_of"]


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
    for tensor in parts.values():
        coordinates.update(_coordinates(mesh_of_tensor(tensor)))
    return Rank(
        rank,
        distributed.get_world_size(),
        device,
        plain_text(distributed.get_backend()),
        coordinates,
        members,
        dict(_local_shapes(parts)),
    )


def _parts(modules: Modules) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of modules that several processes hold together, by name, in the form between steps."""
    kept = {id(form): forms[-1] for forms in forms_of_sharded(modules.paths) for form in forms}
    for tensor, names, _, _ in modules.owned:
        part = kept.get(id(tensor), tensor)
        if mesh_of_tensor(part) is not None:
            yield names[0], part


def _local_shapes(parts: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, Shape]]:
    for name, tensor in parts.items():
        shape = shape_of(held_by(tensor))
        if shape is not None:
            yield name, shape


def _coordinates(mesh: Any) -> dict[str, int]:
    """Where this process is in the dimensions of a mesh that have names."""
    place = mesh.get_coordinate()
    return {} if place is None else dict(zip(mesh.mesh_dim_names or (), map(int, place), strict=False))
