"""Keep a graph fit for a second backward: refuse what can run only once, and put back what a first one took away."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd.function import FunctionCtx

from gradir.errors import CaptureError, warn
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.reach import backward_code, class_of, hiding_functions, is_torchs_own, names_in
from gradir.frontends.pytorch.reading.unpacked import clears_what_is_read
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.walks import reached

if TYPE_CHECKING:
    from gradir.frontends.pytorch.reading.assemble import LiveGraph

__all__ = ["refuse_what_runs_once", "state_kept"]

_ONCE: Final = (
    "{node}: {why}, so that verifying would leave no graph for a backward of your own: {remedy}verify with "
    "keep_graph=False, which uses the graph up"
)
_FREE: Final = frozenset({"resize_", private.RESIZE})
_STORAGES: Final = frozenset({"storage", "untyped_storage", private.TYPED_STORAGE})
_DICTS: Final = (dict, OrderedDict, defaultdict)
_CONTAINERS: Final = (*_DICTS, list, set, deque)


def refuse_what_runs_once(live: LiveGraph) -> None:
    """Refuse a graph of which it can be seen that some function runs backward only once.

    Raises:
        CaptureError: the message names the function, and says what to do.
    """
    met: set[int] = set()
    for fn, node_id in live.grad_fns.items():
        why, remedy = _why_once(fn) if isinstance(fn, FunctionCtx) else ("", "")
        saved = live.graph.nodes[node_id].saved
        if not why and any(slot.state == "hooked" for slot in saved) and _is_selective(fn, met):
            why = "lies in a region of selective activation checkpointing, which runs backward once"
        if why:
            raise CaptureError(_ONCE.format(node=node_id, why=why, remedy=remedy))


def _why_once(fn: GradFn) -> tuple[str, str]:
    cls: Any = class_of(fn)
    if clears_what_is_read(fn):
        return "has clear_saved_tensors_on_access, and can read what it saved once", ""
    if _donates(cls):
        return (
            "was compiled with donated buffers, which its backward can use once",
            f"set {private.DONATES} = False before compiling, or ",
        )
    if any(names & _FREE and names & _STORAGES for names in map(names_in, _own_functions(fn))):
        return "frees storages in its backward", ""
    return "", ""


def _donates(cls: Any) -> bool:
    if not cls.__module__.startswith(private.COMPILED):
        return False
    # What was never run is compiled for the backward that runs it first, and torch then donates nothing.
    if getattr(cls, "compiled_bw", None) is None or not getattr(cls.metadata, "bw_donated_idxs", None):
        return False
    return private.donates_buffers()


def _own_functions(fn: GradFn) -> Iterator[FunctionType]:
    """The functions of a backward: what its decorators wrap, and what it names in its own file."""

    def functions(things: Iterable[object]) -> Iterator[FunctionType]:
        bare = (getattr(thing, "__func__", thing) for thing in things)
        return (thing for thing in bare if isinstance(thing, FunctionType))

    def named_by(function: FunctionType) -> list[FunctionType]:
        named = functions(function.__globals__.get(name) for name in names_in(function))
        own = [other for other in named if other.__globals__ is function.__globals__]
        return [*functions(_closed_over(function).values()), *own]

    return reached(functions(backward_code(fn)), named_by)


def _is_selective(fn: GradFn, met: set[int]) -> bool:
    """Whether what a grad_fn saved is computed again by a selective checkpoint; each hook is looked at once."""
    for name in dir(fn):
        if not name.startswith(private.PACKED):
            continue
        packed = getattr(fn, name)
        for raw in packed if isinstance(packed, tuple) else (packed,):
            unpack = getattr(raw, "unpack_hook", None)
            if unpack is None or id(unpack) in met:
                continue
            met.add(id(unpack))
            again = getattr(_closed_over(unpack).get("frame"), "recompute_fn", None)
            if isinstance(_closed_over(again).get("recompute_context"), private.SelectiveCheckpoint):
                return True
    return False


def _closed_over(function: Any) -> dict[str, Any]:
    if type(function) is not FunctionType:
        return {}
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


@contextmanager
def state_kept(live: LiveGraph) -> Iterator[None]:
    """Put back, afterwards, what the backwards of custom Functions took from their contexts.

    That are the attributes, and what is in the lists, dicts and sets among them; of other objects, attributes that were
    deleted or set to None. Functions and objects of torch itself manage their own. What changed in the tensors among
    them cannot be put back, and is told by a warning.
    """
    states = [(_State(fn), live.grad_fns[fn]) for fn in hiding_functions(live.grad_fns)]
    try:
        yield
    finally:
        for state, _ in states:
            state.put_back()
    changed = [node_id for state, node_id in states if state.has_changed_tensors()]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        warn(
            f"the backward that verified the graph changed tensors that {changed[0]}{more} kept: run the forward again "
            "before a backward of your own"
        )


class _State:
    """What the context of a custom Function holds."""

    def __init__(self, fn: GradFn) -> None:
        self._containers: list[tuple[Any, dict[Any, Any] | list[Any]]] = []
        self._objects: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._tensors: list[tuple[torch.Tensor, tuple[int | None, int | None]]] = []
        met: set[int] = set()
        pending: list[Any] = [vars(fn), *_saved(fn)]
        while pending:
            thing = pending.pop()
            if id(thing) in met:
                continue
            met.add(id(thing))
            kind = type(thing)
            if kind in _CONTAINERS:
                self._containers.append((thing, dict(thing) if kind in _DICTS else list(thing)))
            if kind in _CONTAINERS or kind is tuple:
                pending.extend(thing.values() if kind in _DICTS else thing)
            elif issubclass(kind, torch.Tensor):
                self._tensors.append((thing, _fingerprint(thing)))
            elif not issubclass(kind, type) and not is_torchs_own(kind.__module__):
                attributes = private.fields_of(thing)
                self._objects.append((attributes, dict(attributes)))

    def put_back(self) -> None:
        """Make the containers what they were, and give the objects what they lost."""
        for container, kept in self._containers:
            container.clear()
            (container.extend if isinstance(container, (list, deque)) else container.update)(kept)
        for attributes, before in self._objects:
            lost = [name for name, value in before.items() if attributes.get(name) is None and value is not None]
            attributes.update((name, before[name]) for name in lost)

    def has_changed_tensors(self) -> bool:
        """Whether a tensor was changed in place, or lost its storage."""
        return any(_fingerprint(tensor) != before for tensor, before in self._tensors)


def _saved(fn: GradFn) -> list[Any]:
    try:
        return [getattr(packed, "data", None) for packed in private.packed_tensors(fn) if packed.unpack_hook is None]
    except (AttributeError, RuntimeError):
        return []


def _fingerprint(tensor: torch.Tensor) -> tuple[int | None, int | None]:
    version = size = None
    # Inference tensors have no version, and some tensors no storage.
    with suppress(RuntimeError, NotImplementedError):
        version = private.version_of(tensor)
    with suppress(RuntimeError, NotImplementedError):
        size = tensor.untyped_storage().nbytes()
    return version, size
