"""Find the parameters that custom Functions may reach in their backward without taking them as inputs.

Such a backward may run modules and a nested backward, as in reversible layers, adjoints of solvers and reentrant
checkpoints. It can reach the attributes of its context, its saved tensors, and the closures and globals of its code.
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

# A function that refers to the whole program would cost more than its capture.
_MAX_STEPS: Final = 300_000
_T = TypeVar("_T")

# Objects of these types lead to nothing, or to everything.
_END: Final = (type, ModuleType, FrameType, str, bytes, bytearray, int, float, complex, type(None))


def find_instances(kind: type[_T]) -> list[_T]:
    """Return all living objects of a class."""
    # By type: isinstance on every object is slower, and may run the user's code.
    kinds: dict[int, type] = {id(kind): kind}
    waiting: list[type] = [kind]
    # By id(), since a metaclass may make its classes unhashable.
    for each in waiting:
        derived: list[type] = type.__subclasses__(each)
        waiting += [new for new in derived if id(new) not in kinds]
        kinds |= {id(new): new for new in derived}
    return [thing for thing in gc.get_objects() if id(type(thing)) in kinds]


def find_hidden(
    tensors: Iterable[torch.Tensor], grad_fns: Collection[GradFn], inside: Iterable[nn.Module], *, is_recorded: bool
) -> Collection[int]:
    """Return the parameters, by id(), that a function of the graph may reach without taking them as inputs."""
    functions = find_hiding_functions(grad_fns)
    wanted = {id(tensor) for tensor in tensors}
    if not functions or not wanted:
        return ()
    if not is_recorded and any(map(is_reentrant_checkpoint, functions)):
        # It surely runs a forward again, of unknown modules.
        return wanted
    ran = {id(tensor) for module in inside for tensor in private.own_parameters(module).values()}
    search = _Search(grad_fns, wanted - ran)
    # All of them if the search is too long.
    return (wanted & ran) | (search.found.keys() if search.search_from(functions) else wanted - ran)


def find_hiding_functions(grad_fns: Iterable[GradFn]) -> list[GradFn]:
    """Return the grad_fns whose backward may run unknown code."""
    # The few types show that most graphs have none.
    if not any(issubclass(kind, FunctionCtx) for kind in set(map(type, grad_fns))):
        return []
    return [fn for fn in grad_fns if isinstance(fn, FunctionCtx) and not is_torch_module(class_of(fn).__module__)]


def is_reentrant_checkpoint(fn: GradFn) -> bool:
    """Return whether a grad_fn surely runs its forward again during backward."""
    return type(fn).__name__ == private.CHECKPOINT


def class_of(fn: GradFn) -> type:
    """Return the class of the custom Function of a grad_fn."""
    return getattr(type(fn), private.FORWARD_CLASS, type(fn))


def is_torch_module(module: object) -> bool:
    """Return whether a module of this name belongs to torch and runs only torch's code."""
    name = str(module)
    return name.startswith("torch.") and not name.startswith(private.RUN_ANYTHING)


def find_reachable_leaves(functions: Iterable[GradFn], known: Collection[GradFn]) -> list[torch.Tensor]:
    """Return the leaves that the functions can reach, up to the limit of the search."""
    search = _Search(known, None)
    search.search_from(functions)
    return list(search.found.values())


class _Search:
    """The objects visited so far; ``found`` has the wanted tensors among them, or all leaves if none are wanted."""

    def __init__(self, known: Collection[GradFn], wanted: Collection[int] | None) -> None:
        self._known = known
        self._wanted = wanted
        self.found: dict[int, torch.Tensor] = {}
        # By id(), with the objects, since the id() of a dead one may be used again.
        self._met: dict[int, Any] = {}
        self._steps = _MAX_STEPS
        self._elsewhere: list[Captured] = []
        self._searched: dict[GradFn, None] = {}

    def search_from(self, functions: Iterable[GradFn]) -> bool:
        """Search everything that the functions lead to, and return whether the search ended within its limit."""
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
        # Breadth first, since most wanted tensors are near.
        pending = deque(things)
        while pending and not self._has_all():
            if not self._steps:
                return False
            self._steps -= 1
            thing = pending.popleft()
            if id(thing) in self._met:
                continue
            self._met[id(thing)] = thing
            if not issubclass(type(thing), torch.Tensor):
                # Numbers and names, perhaps millions, do not count as steps.
                pending.extend(other for other in _referents(thing) if not issubclass(type(other), _END))
                continue
            if id(thing) in self._wanted if self._wanted is not None else thing.is_leaf and thing.requires_grad:
                self.found[id(thing)] = thing
            producer = thing.grad_fn
            if producer is not None and producer not in self._known:
                self._elsewhere.append(Captured("output", "", thing, (producer, private.output_nr_of(thing))))
        return True

    def _has_all(self) -> bool:
        return self._wanted is not None and len(self.found) == len(self._wanted)

    def _functions_of_other_graphs(self) -> list[GradFn]:
        """Add the leaves of other graphs of visited tensors, and return their hiding functions."""
        if not self._elsewhere or self._has_all():
            return []
        walked = walk(self._elsewhere)
        self._elsewhere = []
        self._look_through(fn.variable for fn in walked.edges if type(fn).__name__ == private.ACCUMULATOR)
        new = [fn for fn in find_hiding_functions(walked.edges) if fn not in self._searched and fn not in self._known]
        self._searched.update(dict.fromkeys(new))
        return new


def backward_code(fn: GradFn) -> Iterator[Any]:
    """Yield the functions of a custom Function's class that run in its backward."""
    cls = class_of(fn)
    for name in ("backward", "vjp"):
        code = getattr(cls, name, None)
        if code is not None and not is_torch_module(getattr(code, "__module__", "")):
            yield code


def _referents(thing: Any) -> Iterable[Any]:
    kind = type(thing)
    if kind is FunctionType:
        # Only the globals that it names, since all globals lead to the whole program.
        own = () if is_torch_module(thing.__module__) else _find_globals(names_in(thing), thing.__globals__)
        return (thing.__closure__, thing.__defaults__, thing.__kwdefaults__, *own)
    if issubclass(kind, weakref.ReferenceType):
        return (weakref.ReferenceType.__call__(thing),)
    return gc.get_referents(thing)


def _find_globals(names: Collection[str], namespace: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the globals that some code names, and the named members of modules and classes among them."""
    for name in names:
        thing = namespace.get(name)
        if not issubclass(type(thing), (type, ModuleType)):
            yield thing
            continue
        # getattr on a lazy module would import more.
        members = vars(thing)
        if not is_torch_module(f"{members.get('__module__') or members.get('__name__')}."):
            yield from (members[member] for member in names if member in members)


def names_in(function: FunctionType) -> KeysView[str]:
    """Return the globals and attributes that a function and its inner functions name."""
    return dict.fromkeys(name for code in codes_in(function.__code__) for name in code.co_names).keys()
