"""Names of tensors: whose parameter or buffer each one is, and what the user calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import torch
from torch import nn

from gradir.errors import CaptureError
from gradir.frontends.pytorch.private import own_buffers, own_parameters, storage_handle
from gradir.frontends.pytorch.reading.attributes import plain_text, text_of
from gradir.protocols import Names

__all__ = [
    "NamedTensors",
    "Owned",
    "TensorNodes",
    "held_by",
    "modules_of",
    "named_modules",
    "owned_tensors",
    "storage_of",
]

T = TypeVar("T")


class Owned(NamedTuple):
    """A parameter or buffer of a module, with every name it has."""

    tensor: torch.Tensor
    names: tuple[str, ...]
    scope: str


def modules_of(model: object) -> dict[str, nn.Module]:
    """The root modules by path prefix: ``{"": model}``, or the items of a dict of modules.

    Raises:
        CaptureError: ``model`` is neither, or two names read the same.
    """
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


def owned_tensors(roots: Mapping[str, nn.Module]) -> list[Owned]:
    """Every parameter and buffer below the roots, tied ones once, in registration order."""
    found: dict[int, tuple[torch.Tensor, list[str]]] = {}
    for prefix, root in roots.items():
        for name, tensor in _named_tensors(root):
            full = f"{prefix}.{name}" if prefix else name
            found.setdefault(id(tensor), (tensor, []))[1].append(plain_text(full))
    return [Owned(tensor, tuple(names), names[0].rpartition(".")[0]) for tensor, names in found.values()]


def _named_tensors(root: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    modules = _every_path(root)
    if modules is None:
        yield from _every_name(root.named_parameters)
        yield from _every_name(root.named_buffers)
        return
    # Parameters and buffers of one walk over the modules: torch's own methods would walk once for each.
    for members_of in (own_parameters, own_buffers):
        for path, module in modules:
            for name, tensor in members_of(module).items():
                if tensor is not None:
                    yield f"{path}.{name}" if path else name, tensor


def _every_path(root: nn.Module) -> list[tuple[str, nn.Module]] | None:
    """Every module at every path; ``None`` if these do not tell the names, or modules contain each other."""
    for method in ("named_parameters", "named_buffers"):
        if getattr(getattr(root, method), "__func__", None) is not getattr(nn.Module, method):
            return None
    try:
        return list(root.named_modules(remove_duplicate=False))
    except (RecursionError, TypeError):
        return None


def _every_name(named: Callable[..., Iterable[tuple[str, torch.Tensor]]]) -> list[tuple[str, torch.Tensor]]:
    try:
        return list(named(remove_duplicate=False))
    except (RecursionError, TypeError):
        # Modules that contain each other have names without end; a user's own method may not know the argument.
        return _finite(named())


def _finite(members: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    try:
        return list(members)
    except RecursionError as error:
        raise CaptureError("the modules are nested too deeply") from error


def named_modules(root: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every module below a root once, with its path.

    Raises:
        CaptureError: they are nested too deeply.
    """
    return _finite(root.named_modules())


class TensorNodes:
    """Which tensors have a node: leaves as they are met, buffers once something saves them."""

    def __init__(self, owned: list[Owned]) -> None:
        self._ids: dict[int, str] = {}
        self._alive: list[torch.Tensor] = []
        self._owners: dict[int, Owned | str] = {
            storage: entry for entry in owned if (storage := storage_of(entry.tensor)) is not None
        }

    def place(self, tensor: torch.Tensor, node_id: str) -> None:
        """Note that a tensor has a node."""
        self._alive.append(tensor)
        self._ids[id(tensor)] = node_id
        storage = storage_of(tensor)
        if storage is not None and not isinstance(self._owners.get(storage), str):
            self._owners[storage] = node_id

    def id_of(self, tensor: torch.Tensor) -> str | None:
        """The node of this very tensor."""
        return self._ids.get(id(tensor))

    def owner_of(self, storage: int) -> Owned | str | None:
        """The node of the leaf or buffer that owns a storage, or the module's tensor that does and has no node yet."""
        return self._owners.get(storage)


def storage_of(tensor: torch.Tensor) -> int | None:
    """What identifies a tensor's storage while it lives; ``None`` for a tensor that has none, such as a sparse one."""
    try:
        return storage_handle(held_by(tensor).untyped_storage())
    except (NotImplementedError, RuntimeError, ValueError):
        return None


def held_by(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the data: where a class only wraps another tensor, that one.

    A distributed tensor has its global size, and the memory of its local part.
    """
    while type(tensor) not in _PLAIN:
        describe = getattr(type(tensor), "__tensor_flatten__", None)
        if describe is None:
            break
        try:
            parts = [getattr(tensor, name) for name in describe(tensor)[0]]
        except Exception:  # noqa: BLE001 (a user's class must not break a capture)
            break
        inner = [part for part in parts if isinstance(part, torch.Tensor)]
        if len(inner) != 1 or inner[0] is tensor:
            break
        tensor = inner[0]
    return tensor


_PAIR: Final = 2
_PLAIN: Final = frozenset({torch.Tensor, nn.Parameter})


class NamedTensors:
    """Looks up the names of a tensor by identity.

    The module's names come first, then the names in ``params``, then the tensor's own.
    """

    def __init__(self, owned: list[Owned], params: Names | None) -> None:
        self._owned = {id(entry.tensor): entry for entry in owned}
        self._given: dict[int, list[str]] = {}
        self.intermediates: list[tuple[torch.Tensor, str]] = []
        for name, tensor in _pairs(params):
            if not text_of(name):
                raise CaptureError("params has an empty name: give the tensor one that can be shown")
            if not isinstance(tensor, torch.Tensor):
                raise CaptureError(f"params[{name!r}] is not a tensor but {type(tensor).__name__}")
            self._given.setdefault(id(tensor), []).append(text_of(name))
            if not tensor.is_leaf:
                self.intermediates.append((tensor, text_of(name)))

    def owner(self, tensor: torch.Tensor) -> Owned | None:
        """The module entry that holds this very tensor."""
        return self._owned.get(id(tensor))

    def names(self, tensor: torch.Tensor) -> tuple[str, ...]:
        """Every name of the tensor, the one to show first."""
        entry = self._owned.get(id(tensor))
        given = self._given.get(id(tensor), ())
        own = _own_name(tensor)
        if entry is not None and not given and not own:
            return entry.names
        names = [*(entry.names if entry else ()), *given]
        if isinstance(own, str) and own:
            names.append(plain_text(own))
        return tuple(dict.fromkeys(names))


def _pairs(params: Names | None) -> Iterator[tuple[str, Any]]:
    if params is None:
        return
    pairs: object = params.items() if isinstance(params, Mapping) else params
    for pair in pairs if isinstance(pairs, Iterable) else (pairs,):
        if not isinstance(pair, (tuple, list)) or len(pair) != _PAIR:
            raise CaptureError(
                f"params is a {type(params).__name__} and not a mapping of names to tensors, nor pairs of these: "
                "give dict(model.named_parameters())"
            )
        yield pair[0], pair[1]


def _own_name(tensor: torch.Tensor) -> object:
    try:
        return getattr(tensor, "name", None)
    except Exception:  # noqa: BLE001 (a user's property must not break a capture)
        return None
