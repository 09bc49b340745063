"""Find the names, modules, storages and values of tensors."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import torch
from torch import nn

from gradir.errors import CaptureError
from gradir.frontends.pytorch.private import FLAT_PARAMETER, name_of, storage_handle, without_overrides
from gradir.frontends.pytorch.reading.members import ModuleMap, iter_module_tensors, modules_at
from gradir.frontends.pytorch.reading.outputs import attributes_of
from gradir.frontends.texts import plain_text, plain_texts, text_of
from gradir.frontends.walks import join_paths
from gradir.protocols import Names

_MOST_WORDS: Final = 2**20
# Its bits are spread out, so that products with small numbers look random.
_SPREAD: Final = -7_046_029_254_386_353_131
# Makes a named tuple in half the time of its constructor.
_made: Final = tuple.__new__


class Owned(NamedTuple):
    """A parameter or buffer of a module, with all its names."""

    tensor: torch.Tensor
    names: tuple[str, ...]
    scope: str
    is_registered: bool = False

    @property
    def is_parameter(self) -> bool:
        """Whether it is a parameter; in a loaded TorchScript module it is registered, but no `torch.nn.Parameter`."""
        return self.is_registered or isinstance(self.tensor, nn.Parameter)


class Modules(NamedTuple):
    """The first path of each module below the roots, and their parameters and buffers, each once."""

    roots: Mapping[str, nn.Module]
    paths: Mapping[nn.Module, str]
    owned: Sequence[Owned]


def modules_of(model: object) -> dict[str, nn.Module]:
    """Return the root modules by path prefix: ``{"": model}``, or the items of a dict of modules."""
    if model is None:
        return {}
    if isinstance(model, nn.Module):
        return {"": model}
    if isinstance(model, Mapping) and all(isinstance(module, nn.Module) for module in model.values()):
        named = {text_of(name): module for name, module in model.items()}
        if len(named) < len(model):
            raise CaptureError(f"two of the models have the same name: {', '.join(map(repr, model))}")
        return named
    raise CaptureError(f"model must be a torch.nn.Module or a dict of modules by name, not {type(model).__name__}")


def modules_below(roots: Mapping[str, nn.Module]) -> Modules:
    """Return all modules, parameters and buffers below the roots."""
    paths = ModuleMap[str]()
    found: dict[int, Owned] = {}
    others: defaultdict[int, list[str]] = defaultdict(list)
    for prefix, root in roots.items():
        modules = modules_at(root)
        shown = [join_paths(prefix, path) for path, _ in modules]
        for path, (_, module) in zip(plain_texts(shown), modules, strict=True):
            paths.setdefault(module, path)
        with without_overrides():
            tensors = [entry for entry in iter_module_tensors(modules) if entry[1].is_leaf]
        names = plain_texts([join_paths(prefix, name) for name, _, _ in tensors])
        for full, (_, tensor, is_registered) in zip(names, tensors, strict=True):
            if id(tensor) in found:
                others[id(tensor)].append(full)
            else:
                found[id(tensor)] = _made(Owned, (tensor, (full,), full.rpartition(".")[0], is_registered))
    if len(set(paths.values())) < len(paths):
        twice = next(path for path, count in Counter(paths.values()).items() if count > 1)
        raise CaptureError(f"two modules are called {twice!r}")
    for key, more in others.items():
        found[key] = found[key]._replace(names=(*found[key].names, *more))
    return Modules(roots, paths, list(found.values()))


def is_own(tensor: torch.Tensor) -> bool:
    """Return whether a tensor in the place of a parameter is a leaf and not computed, as by a hypernetwork."""
    return tensor.is_leaf and (tensor.requires_grad or isinstance(tensor, nn.Parameter))


class TensorNodes:
    """The nodes of tensors: of leaves from the start, and of buffers once a node saves them."""

    def __init__(self, owned: list[Owned]) -> None:
        tensors = [entry[0] for entry in owned]
        storages = list(map(storage_of, tensors))
        self.ids: dict[int, str] = {}
        self._storages = dict(zip(map(id, tensors), storages, strict=True))
        # The node of the leaf or buffer that owns a storage, or the module's tensor if it has no node yet.
        self.owners: dict[int | None, Owned | str] = dict(zip(storages, owned, strict=True))

    def place(self, nodes: dict[str, torch.Tensor]) -> None:
        """Add the nodes of tensors; the first of several tensors owns the storage that they share."""
        tensors = nodes.values()
        self.ids.update(zip(map(id, tensors), nodes, strict=True))
        storages = [self._storages.get(id(tensor)) or storage_of(tensor) for tensor in tensors]
        self.owners.update(zip(reversed(storages), reversed(nodes), strict=True))


def storage_of(tensor: torch.Tensor) -> int | None:
    """Return the identity of a living tensor's storage, or ``None`` if it has none, as a sparse tensor."""
    try:
        return storage_handle((tensor if type(tensor) in PLAIN else unwrap_tensor(tensor)).untyped_storage())
    except (NotImplementedError, RuntimeError, ValueError):
        return None


def unwrap_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the inner tensor if the tensor is a wrapper, such as a DTensor, of a single one."""
    while type(tensor) not in PLAIN:
        describe = getattr(type(tensor), "__tensor_flatten__", None)
        if describe is None:
            break
        if str(getattr(describe, "__module__", "")).startswith("torch."):
            parts = [getattr(tensor, name) for name in describe(tensor)[0]]
        else:
            # So that no code of the user runs.
            parts = [part for _, part in attributes_of(tensor)]
        inner = [part for part in parts if isinstance(part, torch.Tensor)]
        if len(inner) != 1 or inner[0] is tensor:
            break
        tensor = inner[0]
    return tensor


def checksum(tensor: torch.Tensor) -> int | None:
    """Return the sum of the 64-bit words of the values, each times its place, or ``None`` without readable values."""
    inner = unwrap_tensor(tensor).detach()
    if type(inner) not in PLAIN or inner.is_meta or inner.layout is not torch.strided:
        return None
    data = inner.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
    places = torch.arange(1, min(-(-len(data) // 8), _MOST_WORDS) + 1, device=inner.device) * _SPREAD
    places ^= places >> 32
    total = torch.zeros((), dtype=torch.int64, device=inner.device)
    # In parts, since all at once would need twice the memory of the values.
    for part in data.chunk(len(data) // (8 * _MOST_WORDS) + 1):
        words = places.new_zeros(-(-len(part) // 8))
        words.view(torch.uint8)[: len(part)] = part
        total = total * _SPREAD + (words * places[: len(words)]).sum()
    # JSON has no integers of more than 53 bits.
    return int(total >> 11) % 2**53


class Extent(NamedTuple):
    """The range of bytes of a storage that a tensor covers."""

    start: int
    end: int


def extent_of(tensor: torch.Tensor) -> Extent:
    """Return the range of bytes of its storage that a tensor covers."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    length = 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0
    start, size = int(tensor.storage_offset()), tensor.element_size()
    return Extent(start * size, (start + int(length)) * size)


class FlatParameters:
    """The flat, one-dimensional parameters among some leaves."""

    def __init__(self, leaves: Iterable[torch.Tensor]) -> None:
        found: defaultdict[int, list[Extent]] = defaultdict(list)
        self._whole: set[tuple[int, Extent]] = set()
        for leaf in leaves:
            storage = storage_of(leaf)
            if storage is not None and leaf.dim() == 1 and isinstance(leaf, nn.Parameter):
                extent = extent_of(unwrap_tensor(leaf))
                found[storage].append(extent)
                if getattr(leaf, FLAT_PARAMETER, False):
                    self._whole.add((storage, extent))
        self._starts, self._ends = dict[int, list[int]](), dict[int, list[int]]()
        for storage, extents in found.items():
            self._starts[storage] = sorted(extent.start for extent in extents)
            # The largest end of each extent and all before it.
            self._ends[storage] = list(accumulate((extent.end for extent in sorted(extents)), max))

    def contain(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is a part of a flat parameter."""
        storage = storage_of(tensor)
        if storage is None or storage not in self._starts:
            return False
        extent = extent_of(unwrap_tensor(tensor))
        starts, ends = self._starts[storage], self._ends[storage]
        # Only FSDP makes flat parameters with a part as long as the whole. Otherwise such a tensor is a detached copy.
        before, until = bisect_left(starts, extent.start), bisect_right(starts, extent.start)
        if before and ends[before - 1] >= extent.end:
            return True
        return bool(until and ends[until - 1] > extent.end) or (storage, extent) in self._whole


# The classes that wrap no other tensor.
PLAIN: Final = frozenset({torch.Tensor, nn.Parameter})


class NamedTensors:
    """Looks up the names of a tensor: those in its modules, then those in ``params``, then its own."""

    def __init__(self, owned: Sequence[Owned], params: Names | None, temporary: Iterable[Owned] = ()) -> None:
        self.owned_ids = {id(entry[0]) for entry in owned}
        # Including parameters that modules had only while they ran.
        self.owned = {id(entry[0]): entry for entry in (*owned, *temporary)}
        self._param_names: dict[int, list[str]] = {}
        self.intermediates: list[tuple[torch.Tensor, str]] = []
        for name, tensor in parse_params(params):
            self._param_names.setdefault(id(tensor), []).append(name)
            if not tensor.is_leaf:
                self.intermediates.append((tensor, name))

    def of(self, tensor: torch.Tensor) -> Owned:
        """Return the tensor with all its names, the one to show first, and the path of its module."""
        entry = self.owned.get(id(tensor)) or Owned(tensor, (), "")
        names = self._param_names.get(id(tensor), ())
        own = name_of(tensor)
        if isinstance(own, str) and own:
            names = [*names, plain_text(own)]
        return entry._replace(names=tuple(dict.fromkeys([*entry.names, *names]))) if names else entry


def parse_params(params: Names | None) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the names in ``params`` as plain text, with their tensors."""
    pairs: object = () if params is None else params.items() if isinstance(params, Mapping) else params
    for pair in pairs if isinstance(pairs, Iterable) else (pairs,):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise CaptureError(
                f"params is a {type(params).__name__} and not a mapping of names to tensors, nor pairs of these: "
                "give dict(model.named_parameters())"
            )
        name, tensor = pair
        if not text_of(name):
            raise CaptureError("params has an empty name: give the tensor one that can be shown")
        if not isinstance(tensor, torch.Tensor):
            raise CaptureError(f"params[{name!r}] is not a tensor but {type(tensor).__name__}")
        yield text_of(name), tensor


def read_stored_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values that a tensor of any layout stores, as a strided tensor."""
    values = tensor.detach()
    if values.layout is torch.sparse_coo:
        return values.coalesce().values()
    if values.is_mkldnn:
        return values.to_dense()
    # A copy, since torch treats slices of the values of a compressed layout as views of that layout.
    return values.values().clone() if values.is_nested or values.layout is not torch.strided else values


def ones_for(tensor: torch.Tensor) -> torch.Tensor:
    """Return a gradient for a tensor, in its layout, with a 1 for each stored value."""
    if tensor.layout is torch.strided:
        return torch.ones_like(tensor)
    if tensor.is_mkldnn:
        return torch.ones(tensor.shape, dtype=tensor.dtype).to_mkldnn()
    with torch.no_grad():
        ones = tensor.detach().clone()
        ones = ones.coalesce() if ones.layout is torch.sparse_coo else ones
        ones.values().fill_(1)
        return ones


def read_scalar(tensors: object) -> float | None:
    """Return the value that a backward starts from, or ``None`` unless it is a single real number."""
    tensor = tensors[0] if isinstance(tensors, tuple) and len(tensors) == 1 else tensors
    if not isinstance(tensor, torch.Tensor) or tensor.numel() != 1 or tensor.is_meta or tensor.is_complex():
        return None
    # Without overrides, so that a recording does not count this as a read of the program.
    with without_overrides():
        return float(tensor.detach())
