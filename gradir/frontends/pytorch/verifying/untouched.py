"""Restore or refuse what a backward changes beside the gradients it is for.

Adding a gradient to a leaf also sends it to other processes: hooks behind the addition count it, and a wrapper such as
DistributedDataParallel takes each forward for one such backward. So in a process group the engine is asked for the
gradients, and adds up none.
"""

from __future__ import annotations

import pkgutil
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch
from torch import nn
from torch.autograd.function import FunctionCtx
from torch.nn.parallel import DistributedDataParallel

from gradir.errors import CaptureError, warn
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.private import own_buffers, without_dispatch_modes, without_overrides
from gradir.frontends.pytorch.reading import reach
from gradir.frontends.pytorch.reading.distributed import sharding_groups
from gradir.frontends.pytorch.reading.members import modules_in
from gradir.frontends.pytorch.reading.saved import clears_what_is_read
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.walks import closed_over, reached, substituted

if TYPE_CHECKING:
    from gradir.frontends.pytorch.reading.assemble import LiveGraph


class _Replaced(private.TorchDispatchMode):  # type: ignore[misc]
    """Records the copies and sums that are made while no node runs, as the engine makes each retained gradient.

    No node knows these tensors, and a look at all objects takes longer than a small backward.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.clone.default:
            self._before[id(result)] = result, None
        elif func is torch.ops.aten.add.Tensor:
            self._before[id(result)] = result, args[0]
        return result

    def leave(self, *_: object) -> None:
        """See no more operations until the engine takes up the next node, for which it puts all modes back."""
        if private.dispatch_modes()[-1:] == [self]:
            private.pop_dispatch_mode()

    def put_back(self) -> None:
        """Give each tensor that has a recorded result for its gradient the one that it had."""
        with private.without_overrides():
            # Without a result this would look at all objects for nothing.
            for tensor in reach.living(torch.Tensor) if self._before else ():
                while tensor.retains_grad and id(tensor.grad) in self._before:
                    _, tensor.grad = self._before[id(tensor.grad)]


@contextmanager
def keep_retained_gradients() -> Iterator[Callable[..., None]]:
    """Keep the gradients of tensors that retain them; call the result before each node runs."""
    replaced = _Replaced()
    # To enter it would set a flag by which torch.compile compiles nothing meanwhile.
    private.push_dispatch_mode(replaced)
    try:
        yield replaced.leave
    finally:
        replaced.leave()
        replaced.put_back()


def refuse_lasting(grad_fns: Iterable[GradFn], leaves: Sequence[torch.Tensor]) -> None:
    """Refuse a graph on which every backward leaves something behind."""
    if any(map(reach.is_reentrant_checkpoint, grad_fns)):
        raise CaptureError(
            "a reentrant checkpoint adds up gradients that a process group then sends, so verifying would change the "
            "next backward: use checkpoint(..., use_reentrant=False), or verify in a process without a group"
        )
    if any(getattr(leaf, private.FLAT_PARAMETER, False) for leaf in leaves):
        raise CaptureError(
            "FullyShardedDataParallel runs one backward for each forward, so verifying would break the next: "
            "verify the module without it, or under fully_shard"
        )
    delayed = getattr(DistributedDataParallel, private.DDP_DELAYED, None)
    hooks = [hook for leaf in leaves for hook in (private.hooks_of(leaf) or {}).values()]
    if delayed is not None and any(getattr(hook, "__func__", None) is delayed for hook in hooks):
        raise CaptureError(
            "DistributedDataParallel with delay_all_reduce_named_params reduces what it has in every backward, so "
            "verifying would change the next one: verify the module without it"
        )


def refuse_addition(_: torch.Tensor) -> NoReturn:
    """Refuse to add to a leaf, as its hook."""
    raise CaptureError(
        "a function of the graph runs a backward of its own, whose gradients a process group would send: "
        "verify in a process without a group"
    )


@contextmanager
def pause_reductions(grad_fns: Iterable[GradFn], roots: Iterable[nn.Module]) -> Iterator[None]:
    """Keep distributed wrappers from reducing gradients."""
    parts: dict[int, tuple[Any, str, object]] = {}
    for fn in grad_fns:
        if type(fn).__name__ == private.DDP_SINK:
            wrapper = fn.ddp_weakref()
            # The top of a static graph reduces at first.
            if getattr(wrapper, "static_graph", False):
                parts[id(wrapper)] = wrapper, private.DDP_ENQUEUED, True
        # `fully_shard` reduces in the functions that end a module's backward.
        elif type(fn).__name__ == private.FSDP_FUNCTION:
            parts[id(fn.param_group)] = fn.param_group, "reduce_grads", False
    for group in (group for root in roots for group in sharding_groups(modules_in(root))):
        parts[id(group)] = group, "reduce_grads", False
    with ExitStack() as changed:
        for part in parts.values():
            changed.enter_context(substituted(*part))
        yield


@contextmanager
def keep_buffers_and_random_state(live: LiveGraph) -> Iterator[None]:
    """Restore random numbers and buffers, since a checkpoint runs its modules and their normalizations again."""
    # Before anything ran on it, a device has no random numbers, and asking would start it.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices):
        # A hook that unpacks may run code of the program as a function may, such as that of a checkpoint.
        is_hooked = any(slot.state == "hooked" for node in live.graph.nodes.values() for slot in node.saved)
        if not (is_hooked or reach.hiding_functions(live.grad_fns)):
            yield
            return
        # Without the modules of the graph it may be any.
        modules = [module for root in live.roots.values() for module in modules_in(root)] or reach.living(nn.Module)
        kept = [(buffers, dict(buffers)) for buffers in map(own_buffers, modules) if buffers]
        tensors = {id(tensor): tensor for _, before in kept for tensor in before.values() if tensor is not None}
        with torch.no_grad(), without_dispatch_modes(), without_overrides():
            copies = [(tensor, tensor.detach().clone()) for tensor in tensors.values() if not tensor.is_meta]
        try:
            yield
        finally:
            for buffers, before in kept:
                buffers.update(before)
            with torch.no_grad(), without_dispatch_modes(), without_overrides():
                for tensor, copy in copies:
                    # What the graph saved of it would be stale if its version changed.
                    tensor.data.copy_(copy)


_DICTS: Final = (dict, OrderedDict, defaultdict)
# Of these very types: a derived class may hold more, and is an object.
_CONTAINERS: Final = (*_DICTS, list, set, deque)


def refuse_single_use(live: LiveGraph) -> None:
    """Refuse a graph with a function whose backward visibly runs only once."""
    met: set[int] = set()
    for fn, node_id in live.grad_fns.items():
        why, remedy = _explain_single_use(fn) if isinstance(fn, FunctionCtx) else ("", "")
        saved = live.graph.nodes[node_id].saved
        if not why and any(slot.state == "hooked" for slot in saved) and _is_selective(fn, met):
            why = "lies in a region of selective activation checkpointing, which runs backward once"
        if why:
            raise CaptureError(
                f"{node_id}: {why}, so that verifying would leave no graph for a backward of your own: {remedy}verify "
                "with keep_graph=False, which uses the graph up"
            )


def _explain_single_use(fn: GradFn) -> tuple[str, str]:
    cls: Any = reach.class_of(fn)
    if clears_what_is_read(fn):
        return "has clear_saved_tensors_on_access, and can read what it saved once", ""
    # What was never run is compiled for the backward that runs it first, and torch then donates nothing.
    is_compiled = cls.__module__.startswith(private.COMPILED) and getattr(cls, "compiled_bw", None) is not None
    if is_compiled and getattr(cls.metadata, "bw_donated_idxs", None) and pkgutil.resolve_name(private.DONATES):
        remedy = f"set {private.DONATES} = False before compiling, or "
        return "was compiled with donated buffers, which its backward can use once", remedy
    resizing, storages = {"resize_", private.RESIZE}, {"storage", "untyped_storage", private.TYPED_STORAGE}
    frees = any(names & resizing and names & storages for names in map(reach.names_in, _own_functions(fn)))
    return "frees storages in its backward" if frees else "", ""


def _own_functions(fn: GradFn) -> Iterator[FunctionType]:
    """Yield the functions of a backward: what its decorators wrap, and what it names in its own file."""

    def functions(things: Iterable[object]) -> Iterator[FunctionType]:
        bare = (getattr(thing, "__func__", thing) for thing in things)
        return (thing for thing in bare if isinstance(thing, FunctionType))

    def named_by(function: FunctionType) -> list[FunctionType]:
        named = functions(function.__globals__.get(name) for name in reach.names_in(function))
        own = [other for other in named if other.__globals__ is function.__globals__]
        return [*functions(_captured_variables(function).values()), *own]

    return reached(functions(reach.backward_code(fn)), named_by)


def _is_selective(fn: GradFn, met: set[int]) -> bool:
    """Return whether what a grad_fn saved is computed again by a selective checkpoint; each hook is looked at once."""
    for name in dir(fn):
        if not name.startswith(private.PACKED):
            continue
        packed = getattr(fn, name)
        for raw in packed if isinstance(packed, tuple) else (packed,):
            unpack = getattr(raw, "unpack_hook", None)
            if unpack is None or id(unpack) in met:
                continue
            met.add(id(unpack))
            again = getattr(_captured_variables(unpack).get("frame"), "recompute_fn", None)
            if isinstance(_captured_variables(again).get("recompute_context"), private.SelectiveCheckpoint):
                return True
    return False


def _captured_variables(function: Any) -> dict[str, Any]:
    return dict(closed_over(function)) if type(function) is FunctionType else {}


@contextmanager
def keep_contexts(live: LiveGraph) -> Iterator[None]:
    """Restore what the backwards of custom Functions take from their contexts, or warn about changed tensors."""
    states = [(_State(fn), live.grad_fns[fn]) for fn in reach.hiding_functions(live.grad_fns)]
    try:
        yield
    finally:
        for state, _ in states:
            state.put_back()
    kept = ((node_id, tensor, before) for state, node_id in states for tensor, before in state.tensors)
    changed = [*dict.fromkeys(node_id for node_id, tensor, before in kept if _fingerprint(tensor) != before)]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        warn(
            f"the backward that verified the graph changed tensors that {changed[0]}{more} kept: run the forward again "
            "before a backward of your own"
        )


class _State:
    def __init__(self, fn: GradFn) -> None:
        self._containers: list[tuple[Any, dict[Any, Any] | list[Any]]] = []
        self._objects: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.tensors: list[tuple[torch.Tensor, tuple[int | None, int | None]]] = []
        met: set[int] = set()
        pending: list[Any] = [vars(fn)]
        # A backward that ran may have freed them, and torch before 2.11 does not show them.
        with suppress(AttributeError, RuntimeError):
            pending += [getattr(raw, "data", None) for raw in private.packed_tensors(fn) if raw.unpack_hook is None]
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
                self.tensors.append((thing, _fingerprint(thing)))
            # torch's own objects manage themselves.
            elif not issubclass(kind, type) and not reach.is_torchs_own(kind.__module__):
                attributes = private.fields_of(thing)
                self._objects.append((attributes, dict(attributes)))

    def put_back(self) -> None:
        for container, kept in self._containers:
            refill(container, kept)
        for attributes, before in self._objects:
            # Other objects than containers get back what was deleted or set to None.
            lost = [name for name, value in before.items() if attributes.get(name) is None and value is not None]
            attributes.update((name, before[name]) for name in lost)


def refill(container: Any, content: Any) -> None:
    """Have a list, dict, set or deque contain this and nothing else."""
    container.clear()
    (container.extend if isinstance(container, (list, deque)) else container.update)(content)


def _fingerprint(tensor: torch.Tensor) -> tuple[int | None, int | None]:
    version = size = None
    # Inference tensors have no version, and some tensors no storage.
    with suppress(RuntimeError, NotImplementedError):
        version = private.version_of(tensor)
    with suppress(RuntimeError, NotImplementedError):
        size = tensor.untyped_storage().nbytes()
    return version, size
