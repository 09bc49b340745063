"""Describe the distributed objects in a graph with texts that are equal in all processes with the same program.

The name of a process group and the ranks of a device mesh differ between processes, but their purpose does not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from types import NoneType
from typing import Any, Final, cast
from weakref import ReferenceType

import torch
from torch import distributed, nn

from gradir.frontends.pytorch import private

_AS_IS: Final = frozenset({NoneType, bool, int, float, str})
_NAMES: Final = frozenset({"group_name", "pg_name"})
# torch's descriptions of groups: the prefix of a mesh dimension's name, and the text of a group without a description.
_MESH: Final = "mesh_"
_UNDESCRIBED: Final = "undefined"
# The modules with classes of objects that a custom Function stores for internal use.
_OWN: Final = ("torch.distributed.", "torch.nn.parallel.")
_DISTRIBUTED_TENSORS: Final = "torch.distributed.tensor"


def is_in_process_group() -> bool:
    """Return whether the default process group exists."""
    return distributed.is_available() and distributed.is_initialized()


class Groups:
    """Labels the process groups of one graph, and numbers groups with the same label in the order of first use."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self.met: dict[str, Any] = {}
        """The groups by label, in the order of first use."""

    def describe_attributes(self, fn: object) -> Iterator[tuple[str, object]]:
        """Yield the attributes that a custom Function's code set, such as its process group."""
        attributes = vars(fn)
        mesh = next(filter(None, map(_mesh_of, attributes.values())), None)
        group = next(filter(_is_group, attributes.values()), None)
        is_collective = _module_of(getattr(type(fn), private.FORWARD_CLASS, None)).startswith("torch.distributed.nn.")
        ranks = {"rank": group, "global_rank": None}
        for name, value in attributes.items():
            if name in ranks and (is_collective or group is not None) and value == distributed.get_rank(ranks[name]):
                # The rank of this process is no fact of the graph.
                continue
            if is_collective and name == "group" and value is None:
                yield name, "world"
            elif is_collective and name in {"src", "dst"} and group is not None:
                yield name, distributed.get_group_rank(group, cast("int", value))
            elif name in _NAMES and type(value) is str:
                named = find_group(value)
                yield name, value if named is None else self.label(named)
            elif not _is_internal(value):
                yield name, self._describe(value, mesh)

    def _describe(self, value: object, mesh: Any) -> object:
        if type(value) in _AS_IS:
            return value
        if type(value) in {tuple, list}:
            return self._describe_items(cast("Sequence[object]", value), mesh)
        if _is_group(value):
            return self.label(value)
        own_mesh, known = _mesh_of(value), cast("Any", value)
        if own_mesh is None:
            return _placement(value) if _is_placement(value) else reduction(value) or value
        if own_mesh is value:
            return tuple([f"{name}={known.size(index)}" for index, name in enumerate(_dimensions(own_mesh))])
        return _placements(known.placements, own_mesh)

    def _describe_items(self, items: Sequence[object], mesh: Any) -> Sequence[object]:
        if all(type(item) in _AS_IS for item in items):
            return items
        if all(map(_is_placement, items)):
            return _placements(items, mesh)
        return tuple([_join_words(self._describe(item, mesh)) for item in items])

    def label(self, group: Any) -> str:
        """Return the label of a process group."""
        label = self._labels.get(group.group_name)
        if label is None:
            word = _description(group)
            if word.startswith(_MESH):
                word = word.removeprefix(_MESH)
            elif group.size() == distributed.get_world_size():
                word = "world"
            elif word == _UNDESCRIBED:
                word = "group"
            count = self._counts[word] = self._counts.get(word, 0) + 1
            label = self._labels[group.group_name] = word if count == 1 else f"{word}:{count}"
        self.met[label] = group
        return label

    def number(self) -> None:
        """Label all groups of the process in the order in which they were made, which is the same on all ranks."""
        known: Any = getattr(distributed.distributed_c10d, private.GROUPS, None)
        # The name of a group is a hash if only its own ranks made it.
        numbered = [each for each in known.pg_map if each.group_name.isdecimal()] if known else []
        for group in sorted(numbered, key=lambda each: int(each.group_name)):
            self.label(group)
        self.met.clear()

    def dimensions(self) -> Iterator[str]:
        """Yield the labels of the groups that are dimensions of a mesh."""
        return (label for label, group in self.met.items() if _description(group).startswith(_MESH))


def _description(group: Any) -> str:
    return str(getattr(group, "group_desc", _UNDESCRIBED))


def find_group(name: str) -> object:
    """Return this process's group of that name, or ``None``."""
    if not is_in_process_group():
        return None
    try:
        return getattr(distributed.distributed_c10d, private.GROUP_CALLED)(name)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        return None


def reduction(value: object) -> str | None:
    """Return the name of a reduction such as ``sum``, or ``None`` for another object."""
    kinds = (distributed.ReduceOp, distributed.ReduceOp.RedOpType) if distributed.is_available() else ()
    is_reduction = issubclass(type(value), kinds)
    return str(getattr(value, "op", value)).rpartition(".")[2].lower() if is_reduction else None


def _is_group(value: object) -> bool:
    return distributed.is_available() and issubclass(type(value), distributed.ProcessGroup)


def _is_placement(value: object) -> bool:
    return _is_of(value, _DISTRIBUTED_TENSORS, "Placement")


def _is_of(value: object, module: str, name: str) -> bool:
    # Without an import of the module no value has the class, and some of these modules are slow to import.
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and issubclass(type(value), kind)


def _mesh_of(value: object) -> Any:
    if type(value) in _AS_IS:
        return None
    if _is_of(value, "torch.distributed.device_mesh", "DeviceMesh"):
        return value
    return getattr(value, "mesh", None) if _is_of(value, private.TENSOR_SPEC, "DTensorSpec") else None


def _placements(placements: Sequence[object], mesh: Any) -> tuple[str, ...]:
    dimensions = () if mesh is None else _dimensions(mesh)
    if len(dimensions) != len(placements):
        return tuple(map(_placement, placements))
    return tuple([f"{name}:{_placement(placement)}" for name, placement in zip(dimensions, placements, strict=True)])


def _dimensions(mesh: Any) -> Sequence[str]:
    return mesh.mesh_dim_names or [str(index) for index in range(mesh.ndim)]


def _placement(placement: object) -> str:
    return repr(placement).replace("dim=", "").removesuffix("()").removeprefix("_")


def _join_words(words: object) -> object:
    return ", ".join(words) if type(words) is tuple and all(type(word) is str for word in words) else words


def _is_internal(value: object) -> bool:
    if type(value) in _AS_IS:
        return False
    target = cast("ReferenceType[object]", value)() if type(value) is ReferenceType else value
    is_shown = _is_group(target) or _is_placement(target) or _mesh_of(target) is not None
    return _module_of(type(target)).startswith(_OWN) and not (is_shown or reduction(target))


def _module_of(kind: object) -> str:
    module = getattr(kind, "__module__", "")
    return module if type(module) is str else ""


def sharding_groups(modules: Iterable[nn.Module]) -> Iterator[Any]:
    """Yield the objects that gather and reduce the parameters of modules under `fully_shard`."""
    for module in modules:
        state_of: Any = getattr(type(module), private.FSDP_STATE, None)
        state = None if state_of is None else state_of(module)
        several, lone = private.FSDP_GROUPS
        groups = getattr(state, several, None) or [getattr(state, lone, None)]
        yield from (group for group in groups if group is not None)


def forms_of_sharded(modules: Iterable[nn.Module]) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield the tensors of each parameter under `fully_shard`: the whole one if it exists, and this process's part."""
    for group in sharding_groups(modules):
        for parameter in getattr(group, private.FSDP_PARAMETERS, ()):
            forms = (getattr(parameter, name, None) for name in private.FSDP_FORMS)
            yield tuple(form for form in forms if isinstance(form, torch.Tensor))


def placements_of(modules: Iterable[nn.Module], tensors: Iterable[torch.Tensor]) -> dict[int, tuple[str, ...]]:
    """Return the placements of distributed parameters and buffers on their mesh, by id()."""
    if _DISTRIBUTED_TENSORS not in sys.modules:
        return {}
    found = {id(tensor): words for tensor in tensors if (words := _placements_on_mesh(tensor))}
    for forms in forms_of_sharded(modules):
        # The whole tensor, which a forward uses, has the placements of the part, which remains between steps.
        words = _placements_on_mesh(forms[-1])
        found.update((id(form), words) for form in forms if words)
    return found


def mesh_of_tensor(tensor: torch.Tensor) -> Any:
    """Return the mesh of a distributed tensor, or ``None``."""
    return getattr(tensor, "device_mesh", None) if _is_of(tensor, _DISTRIBUTED_TENSORS, "DTensor") else None


def _placements_on_mesh(tensor: Any) -> tuple[str, ...]:
    mesh = mesh_of_tensor(tensor)
    return () if mesh is None else _placements(tensor.placements, mesh)
