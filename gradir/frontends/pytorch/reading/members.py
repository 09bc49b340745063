"""Read the submodules, parameters and buffers of a module from the dicts in which torch stores them.

A model may override or shadow each method of `torch.nn.Module`, so gradir calls none. A class may make an attribute
such as ``weight`` a property, so gradir reads none by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from inspect import getattr_static
from types import FunctionType
from typing import Any, Final, TypeVar

import torch
from torch import nn

from gradir.errors import CaptureError
from gradir.frontends.pytorch.private import fields_of, own_buffers, own_modules, own_parameters

# A deeper module seems to be part of a cycle, whose paths have no end.
_DEEPEST: Final = 900
# No model has more paths unless its modules share modules on many levels, which doubles them each time.
_MOST_PATHS: Final = 200_000
_T = TypeVar("_T")


class ModuleMap(MutableMapping[nn.Module, _T]):
    """A dict by module that compares modules by identity and never calls their ``__eq__`` or ``__hash__``."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[nn.Module, _T]] = {}

    def __getitem__(self, module: nn.Module) -> _T:
        return self._entries[id(module)][1]

    def __setitem__(self, module: nn.Module, value: _T) -> None:
        self._entries[id(module)] = module, value

    def __delitem__(self, module: nn.Module) -> None:
        del self._entries[id(module)]

    def __iter__(self) -> Iterator[nn.Module]:
        return (module for module, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def modules_in(root: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and every module below it, each once, in registration order."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        module = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield module
        pending += [child for child in own_modules(module).values() if child is not None][::-1]


def has_parameters(root: nn.Module) -> bool:
    """Return whether a module or one below it has a parameter."""
    return any(tensor is not None for module in modules_in(root) for tensor in own_parameters(module).values())


def iter_named_parameters(root: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters of a module and of every module below it, with every name of each."""
    return _name_members(own_parameters, modules_at(root))


def modules_at(root: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return every module at every path, or only at its first path if the paths have no end."""
    found = _find_paths(root) or _find_paths(root, seen=set())
    if not found:
        raise CaptureError("the modules are nested too deeply")
    return found


def iter_module_tensors(modules: list[tuple[str, nn.Module]]) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Yield the parameters and then the buffers of some modules: name at each path, tensor, is it a parameter."""
    yield from ((name, tensor, True) for name, tensor in _name_members(own_parameters, modules))
    yield from ((name, tensor, False) for name, tensor in _name_members(own_buffers, modules))


def is_training(module: nn.Module) -> bool:
    """Return whether a module is in training mode."""
    fields = fields_of(module)
    if "training" in fields:
        return fields["training"] is not False
    # A scripted module stores it in C++, where no class of the user can override it.
    return bool(module.training) if isinstance(module, torch.jit.ScriptModule) else True


def details_of(module: nn.Module) -> str:
    """Return the ``extra_repr`` of a module, called on a stand-in so that no parametrization runs."""
    owner: Any = next(kind for kind in type(module).__mro__ if "extra_repr" in vars(kind))
    show = vars(owner)["extra_repr"]
    if owner is nn.Module or type(show) is not FunctionType:
        return ""
    if owner.__module__.startswith("torch."):
        # It may use special methods of the class, such as `__iter__`.
        stand_in = object.__new__(owner)
    else:
        stand_in = _StandIn()
        stand_in.class_stood_for = type(module)
    fields, parametrized = fields_of(module), own_modules(module).get("parametrizations")
    # The original tensor of each parametrization replaces its result.
    originals = {
        name: next(iter([*own_parameters(each).values(), *own_buffers(each).values()]), None)
        for name, each in (own_modules(parametrized).items() if parametrized is not None else ())
    }
    object.__setattr__(stand_in, "__dict__", {**fields, **originals})
    try:
        return str(show(stand_in))
    except Exception:  # noqa: BLE001 (a user's extra_repr must not break a capture)
        return ""


class _StandIn:
    """Has the fields of a module, and the methods and constants of its class."""

    __slots__ = ("__dict__", "class_stood_for")
    class_stood_for: type

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # `super` reads it.
        return self.class_stood_for

    def __getattr__(self, name: str) -> Any:
        for members_of in (own_parameters, own_buffers, own_modules):
            if name in (members := members_of(self)):
                return members[name]
        found = getattr_static(self.class_stood_for, name)
        if isinstance(found, (FunctionType, classmethod, staticmethod)):
            return found.__get__(self, self.class_stood_for)
        if hasattr(type(found), "__get__"):
            raise AttributeError(name)
        return found


def _find_paths(root: nn.Module, seen: set[int] | None = None) -> list[tuple[str, nn.Module]]:
    found: list[tuple[str, nn.Module]] = []
    pending = [("", root, 0)]
    while pending:
        path, module, depth = pending.pop()
        if seen is not None:
            if id(module) in seen:
                continue
            seen.add(id(module))
        if depth > _DEEPEST or (seen is None and len(found) > _MOST_PATHS):
            return []
        found.append((path, module))
        if children := own_modules(module):
            start = f"{path}." if path else ""
            below = [(start + name, child, depth + 1) for name, child in children.items() if child is not None]
            pending += reversed(below)
    return found


def _name_members(
    members_of: Callable[[object], Mapping[str, torch.Tensor | None]], modules: Iterable[tuple[str, nn.Module]]
) -> Iterator[tuple[str, torch.Tensor]]:
    for path, module in modules:
        # Most modules have none, or no buffers.
        if tensors := members_of(module):
            start = f"{path}." if path else ""
            yield from [(start + name, tensor) for name, tensor in tensors.items() if tensor is not None]
