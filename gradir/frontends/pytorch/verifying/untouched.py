"""Restore the state that a backward pass changes, or refuse to run it.

In a process group, accumulating a gradient also sends it to other processes, and DistributedDataParallel expects one
backward pass per forward pass. So gradir only computes the gradients there, with `torch.autograd.grad`.
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
from gradir.frontends.pytorch.reading.saved import clears_on_access
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.walks import closure_variables, find_reachable, replace_attribute

if TYPE_CHECKING:
    from gradir.frontends.pytorch.reading.assemble import LiveGraph


class _Replaced(private.TorchDispatchMode):  # type: ignore[misc]
    """Records the copies and sums that the engine makes between nodes for retained gradients.

    No node has these tensors, and a search of all objects takes longer than a small backward pass.
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
        """Record no operations until the engine starts the next node, which restores all modes."""
        if private.dispatch_modes()[-1:] == [self]:
            private.pop_dispatch_mode()

    def put_back(self) -> None:
        """Restore the gradient of each tensor whose gradient is a recorded result."""
        with private.without_overrides():
            # Without results, skip the slow search of all objects.
            for tensor in reach.find_instances(torch.Tensor) if self._before else ():
                while tensor.retains_grad and id(tensor.grad) in self._before:
                    _, tensor.grad = self._before[id(tensor.grad)]


@contextmanager
def keep_retained_gradients() -> Iterator[Callable[..., None]]:
    """Keep the gradients of tensors that retain them; call the result before each node runs."""
    replaced = _Replaced()
    # Entering the mode would set a flag that makes torch.compile compile nothing meanwhile.
    private.push_dispatch_mode(replaced)
    try:
        yield replaced.leave
    finally:
        replaced.leave()
        replaced.put_back()


def refuse_lasting(grad_fns: Iterable[GradFn], leaves: Sequence[torch.Tensor]) -> None:
    """Refuse a graph whose backward pass always has lasting effects."""
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
            "DistributedDataParallel with delay_all_reduce_named_params reduces gradients in every backward, so "
            "verifying would change the next one; verify the module without it"
        )


def refuse_addition(_: torch.Tensor) -> NoReturn:
    """Refuse to accumulate a gradient, as a hook of a leaf."""
    raise CaptureError(
        "cannot verify in a process group: a function of the graph runs another backward, which would send gradients; "
        "use a process without a group"
    )


@contextmanager
def pause_reductions(grad_fns: Iterable[GradFn], roots: Iterable[nn.Module]) -> Iterator[None]:
    """Keep distributed wrappers from reducing gradients."""
    parts: dict[int, tuple[Any, str, object]] = {}
    for fn in grad_fns:
        if type(fn).__name__ == private.DDP_SINK:
            wrapper = fn.ddp_weakref()
            # The first node of a static graph starts the reduction.
            if getattr(wrapper, "static_graph", False):
                parts[id(wrapper)] = wrapper, private.DDP_ENQUEUED, True
        # `fully_shard` reduces gradients in the last node of a module's backward pass.
        elif type(fn).__name__ == private.FSDP_FUNCTION:
            parts[id(fn.param_group)] = fn.param_group, "reduce_grads", False
    for group in (group for root in roots for group in sharding_groups(modules_in(root))):
        parts[id(group)] = group, "reduce_grads", False
    with ExitStack() as changes:
        for part in parts.values():
            changes.enter_context(replace_attribute(*part))
        yield


@contextmanager
def keep_buffers_and_random_state(live: LiveGraph) -> Iterator[None]:
    """Restore random state and buffers, since a checkpoint runs its modules and their normalizations again."""
    # Reading the random state of an unused device would initialize CUDA.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices):
        # An unpack hook may run code of the program, such as a checkpoint.
        is_hooked = any(slot.state == "hooked" for node in live.graph.nodes.values() for slot in node.saved)
        if not (is_hooked or reach.find_hiding_functions(live.grad_fns)):
            yield
            return
        # If the modules of the graph are unknown, it may run any module.
        known = [module for root in live.roots.values() for module in modules_in(root)]
        modules = known or reach.find_instances(nn.Module)
        saved = [(buffers, dict(buffers)) for buffers in map(own_buffers, modules) if buffers]
        tensors = {id(tensor): tensor for _, before in saved for tensor in before.values() if tensor is not None}
        with torch.no_grad(), without_dispatch_modes(), without_overrides():
            copies = [(tensor, tensor.detach().clone()) for tensor in tensors.values() if not tensor.is_meta]
        try:
            yield
        finally:
            for buffers, before in saved:
                buffers.update(before)
            with torch.no_grad(), without_dispatch_modes(), without_overrides():
                for tensor, copy in copies:
                    # `.data` keeps the version, so saved tensors of the graph stay valid.
                    tensor.data.copy_(copy)


_DICTS: Final = (dict, OrderedDict, defaultdict)
# Exact types only. A derived class may have attributes, so it counts as an object.
_CONTAINERS: Final = (*_DICTS, list, set, deque)


def refuse_single_use(live: LiveGraph) -> None:
    """Refuse a graph with a function whose backward pass visibly runs only once."""
    seen: set[int] = set()
    for fn, node_id in live.grad_fns.items():
        reason, remedy = _explain_single_use(fn) if isinstance(fn, FunctionCtx) else ("", "")
        saved = live.graph.nodes[node_id].saved
        if not reason and any(slot.state == "hooked" for slot in saved) and _is_selective(fn, seen):
            reason = "lies in a region of selective activation checkpointing, which runs backward once"
        if reason:
            raise CaptureError(
                f"{node_id}: {reason}, so that verifying would leave no graph for a backward of your own: {remedy}"
                "verify with keep_graph=False, which uses the graph up"
            )


def _explain_single_use(fn: GradFn) -> tuple[str, str]:
    """Return why a backward pass runs only once, and a remedy for the user, or empty texts."""
    cls: Any = reach.class_of(fn)
    if clears_on_access(fn):
        return "has clear_saved_tensors_on_access, and can read its saved tensors only once", ""
    # torch compiles a backward pass when it first runs. It donates no buffers if the graph is retained then.
    is_compiled = cls.__module__.startswith(private.COMPILED) and getattr(cls, "compiled_bw", None) is not None
    if is_compiled and getattr(cls.metadata, "bw_donated_idxs", None) and pkgutil.resolve_name(private.DONATES):
        remedy = f"set {private.DONATES} = False before compiling, or "
        return "was compiled with donated buffers, which its backward can use once", remedy
    resizing, storages = {"resize_", private.RESIZE}, {"storage", "untyped_storage", private.TYPED_STORAGE}
    frees = any(names & resizing and names & storages for names in map(reach.names_in, _own_functions(fn)))
    return "frees storages in its backward" if frees else "", ""


def _own_functions(fn: GradFn) -> Iterator[FunctionType]:
    """Yield the functions of a backward pass: those in its decorators, and those that it names in its own file."""

    def functions(values: Iterable[object]) -> Iterator[FunctionType]:
        bare = (getattr(value, "__func__", value) for value in values)
        return (value for value in bare if isinstance(value, FunctionType))

    def callees(function: FunctionType) -> list[FunctionType]:
        named = functions(function.__globals__.get(name) for name in reach.names_in(function))
        own = [other for other in named if other.__globals__ is function.__globals__]
        return [*functions(_closure_variables(function).values()), *own]

    return find_reachable(functions(reach.backward_code(fn)), callees)


def _is_selective(fn: GradFn, seen: set[int]) -> bool:
    """Return whether a selective checkpoint recomputes the saved tensors of a grad_fn, skipping seen hooks."""
    for name in dir(fn):
        if not name.startswith(private.PACKED):
            continue
        packed = getattr(fn, name)
        for raw in packed if isinstance(packed, tuple) else (packed,):
            unpack = getattr(raw, "unpack_hook", None)
            if unpack is None or id(unpack) in seen:
                continue
            seen.add(id(unpack))
            recompute = getattr(_closure_variables(unpack).get("frame"), "recompute_fn", None)
            if isinstance(_closure_variables(recompute).get("recompute_context"), private.SelectiveCheckpoint):
                return True
    return False


def _closure_variables(function: Any) -> dict[str, Any]:
    return dict(closure_variables(function)) if type(function) is FunctionType else {}


@contextmanager
def keep_contexts(live: LiveGraph) -> Iterator[None]:
    """Restore the contexts of custom Functions after their backward, and warn about changed tensors."""
    states = [(_State(fn), live.grad_fns[fn]) for fn in reach.find_hiding_functions(live.grad_fns)]
    try:
        yield
    finally:
        for state, _ in states:
            state.put_back()
    tensors = ((node_id, tensor, before) for state, node_id in states for tensor, before in state.tensors)
    changed = [*dict.fromkeys(node_id for node_id, tensor, before in tensors if _fingerprint(tensor) != before)]
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
        seen: set[int] = set()
        waiting: list[Any] = [vars(fn)]
        # An earlier backward pass may have freed the saved tensors. Torch before 2.11 has no access to them.
        with suppress(AttributeError, RuntimeError):
            waiting += [getattr(raw, "data", None) for raw in private.packed_tensors(fn) if raw.unpack_hook is None]
        while waiting:
            value = waiting.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            kind = type(value)
            if kind in _CONTAINERS:
                self._containers.append((value, dict(value) if kind in _DICTS else list(value)))
            if kind in _CONTAINERS or kind is tuple:
                waiting.extend(value.values() if kind in _DICTS else value)
            elif issubclass(kind, torch.Tensor):
                self.tensors.append((value, _fingerprint(value)))
            # torch manages the state of its own objects.
            elif not issubclass(kind, type) and not reach.is_torch_module(kind.__module__):
                attributes = private.fields_of(value)
                self._objects.append((attributes, dict(attributes)))

    def put_back(self) -> None:
        for container, content in self._containers:
            refill(container, content)
        for attributes, before in self._objects:
            # Restore only attributes that were deleted or set to None.
            lost = [name for name, value in before.items() if attributes.get(name) is None and value is not None]
            attributes.update((name, before[name]) for name in lost)


def refill(container: Any, content: Any) -> None:
    """Replace the content of a list, dict, set or deque."""
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
