"""Find the parameters that custom Functions may reach in their backward without taking them as inputs.

Such a backward may run modules and a backward of its own, as in reversible layers, adjoints of solvers and reentrant
checkpoints. It comes to what its context has, what it saved, and what its code closes over or names.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping
from contextlib import suppress
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final, TypeVar

import torch
from torch import nn
from torch.autograd.function import FunctionCtx

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.outputs import Captured
from gradir.frontends.pytorch.reading.walk import GradFn, walk
from gradir.frontends.walks import codes_in

# A function that has the whole program would cost more than its capture.
_MAX_STEPS: Final = 300_000
_T = TypeVar("_T")

# Objects of these types lead nowhere, or everywhere.
_END: Final = (type, ModuleType, FrameType, str, bytes, bytearray, int, float, complex, type(None))


def living(kind: type[_T]) -> list[_T]:
    """Return all objects alive of a class."""
    # By their types, which are few: to ask each object for its classes takes longer, and may run code of the user's.
    kinds: dict[int, type] = {id(kind): kind}
    waiting: list[type] = [kind]
    # By id(), since a metaclass may forbid to hash its classes.
    for each in waiting:
        derived: list[type] = type.__subclasses__(each)
        waiting += [new for new in derived if id(new) not in kinds]
        kinds |= {id(new): new for new in derived}
    return [thing for thing in gc.get_objects() if id(type(thing)) in kinds]


def find_hidden(
    tensors: Iterable[torch.Tensor], grad_fns: Collection[GradFn], inside: Iterable[nn.Module], *, is_recorded: bool
) -> Collection[int]:
    """Return the parameters, by id(), that a function of the graph may reach without taking them as inputs."""
    functions = hiding_functions(grad_fns)
    wanted = {id(tensor) for tensor in tensors}
    if not functions or not wanted:
        return ()
    if not is_recorded and any(map(is_reentrant_checkpoint, functions)):
        # It surely runs something again, and what that is was not seen.
        return wanted
    ran = {id(tensor) for module in inside for tensor in private.own_parameters(module).values()}
    search = _Search(grad_fns, wanted - ran)
    # All of them if that cannot be found out.
    return (wanted & ran) | (search.found.keys() if search.search_from(functions) else wanted - ran)


def hiding_functions(grad_fns: Iterable[GradFn]) -> list[GradFn]:
    """Return those of the grad_fns whose backward may run code that is not known."""
    # Most graphs have none, which the few types tell.
    if not any(issubclass(kind, FunctionCtx) for kind in set(map(type, grad_fns))):
        return []
    return [fn for fn in grad_fns if isinstance(fn, FunctionCtx) and not is_torchs_own(class_of(fn).__module__)]


def is_reentrant_checkpoint(fn: GradFn) -> bool:
    """Return whether a grad_fn surely runs its forward again, as a part of backward."""
    return type(fn).__name__ == private.CHECKPOINT


def class_of(fn: GradFn) -> type:
    """Return the class of a custom Function that a grad_fn belongs to."""
    return getattr(type(fn), private.FORWARD_CLASS, type(fn))


def is_torchs_own(module: object) -> bool:
    """Return whether what a module of this name defines is torch's, and runs no code but torch's."""
    name = str(module)
    return name.startswith("torch.") and not name.startswith(private.RUN_ANYTHING)


def leaves_reached_by(functions: Iterable[GradFn], known: Collection[GradFn]) -> list[torch.Tensor]:
    """Return the leaves that the functions can come to, as far as that can be told."""
    search = _Search(known, None)
    search.search_from(functions)
    return list(search.found.values())


class _Search:
    """The objects met so far, and the wanted tensors or the leaves among them as ``found``."""

    def __init__(self, known: Collection[GradFn], wanted: Collection[int] | None) -> None:
        self._known = known
        self._wanted = wanted
        self.found: dict[int, torch.Tensor] = {}
        self._met: set[int] = set()
        # Whatever has an id() here has to live, or another object may get it.
        self._alive: list[Any] = []
        self._steps = _MAX_STEPS
        self._elsewhere: list[Captured] = []
        self._searched: dict[GradFn, None] = {}

    def search_from(self, functions: Iterable[GradFn]) -> bool:
        """Look at all that some functions lead to; returns whether that had an end."""
        pending = list(functions)
        while pending:
            starts: list[Any] = []
            for fn in pending:
                starts.append(vars(fn))
                # A backward that ran may have freed them.
                with suppress(RuntimeError):
                    starts += [getattr(packed, "data", None) for packed in private.packed_tensors(fn)]
                starts += backward_code(fn)
            if not self._look_through(starts):
                return False
            pending = self._functions_of_other_graphs()
        return True

    def _look_through(self, things: Iterable[Any]) -> bool:
        # Nearest first, and most that is wanted is near.
        pending = deque(things)
        while pending and not self._has_all():
            if not self._steps:
                return False
            self._steps -= 1
            thing = pending.popleft()
            if id(thing) in self._met:
                continue
            self._met.add(id(thing))
            self._alive.append(thing)
            if issubclass(type(thing), torch.Tensor):
                self._note(thing)
            else:
                # Numbers and names, of which there may be millions, are no steps.
                pending.extend(other for other in _referents(thing) if not issubclass(type(other), _END))
        return True

    def _has_all(self) -> bool:
        return self._wanted is not None and len(self.found) == len(self._wanted)

    def _note(self, tensor: torch.Tensor) -> None:
        if id(tensor) in self._wanted if self._wanted is not None else tensor.is_leaf and tensor.requires_grad:
            self.found[id(tensor)] = tensor
        producer = tensor.grad_fn
        if producer is not None and producer not in self._known:
            self._elsewhere.append(Captured("output", "", tensor, (producer, private.output_nr_of(tensor))))

    def _functions_of_other_graphs(self) -> list[GradFn]:
        """Note the leaves of the graphs of tensors that were met; returns the functions there that may run anything."""
        if not self._elsewhere or self._has_all():
            return []
        walked = walk(self._elsewhere)
        self._elsewhere = []
        self._look_through(fn.variable for fn in walked.edges if type(fn).__name__ == private.ACCUMULATOR)
        new = [fn for fn in hiding_functions(walked.edges) if fn not in self._searched and fn not in self._known]
        self._searched.update(dict.fromkeys(new))
        return new


def backward_code(fn: GradFn) -> Iterator[Any]:
    """Yield the functions of a custom Function's class that run in its backward."""
    cls = class_of(fn)
    for name in ("backward", "vjp"):
        code = getattr(cls, name, None)
        if code is not None and not is_torchs_own(getattr(code, "__module__", "")):
            yield code


def _referents(thing: Any) -> Iterable[Any]:
    kind = type(thing)
    if kind is FunctionType:
        # Not all of its globals, by which it leads to the whole program.
        own = () if is_torchs_own(thing.__module__) else _find_globals(names_in(thing), thing.__globals__)
        return (thing.__closure__, thing.__defaults__, thing.__kwdefaults__, *own)
    if issubclass(kind, weakref.ReferenceType):
        return (weakref.ReferenceType.__call__(thing),)
    return gc.get_referents(thing)


def _find_globals(names: Collection[str], namespace: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the globals that some code names, and what it names of modules and classes among them."""
    for name in names:
        thing = namespace.get(name)
        if not issubclass(type(thing), (type, ModuleType)):
            yield thing
            continue
        # Asked of a module itself, a lazy one would import more.
        members = vars(thing)
        if not is_torchs_own(f"{members.get('__module__') or members.get('__name__')}."):
            yield from (members[member] for member in names if member in members)


def names_in(function: FunctionType) -> KeysView[str]:
    """Return the globals and attributes that the code of a function names, with what is defined inside it."""
    return dict.fromkeys(name for code in codes_in(function.__code__) for name in code.co_names).keys()
