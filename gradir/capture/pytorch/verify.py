"""Check a captured graph against the autograd engine itself, by running a backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import torch

from gradir.capture.pytorch.asking import asked_for, in_process_group, refuse_addition, refuse_lasting, undisturbed
from gradir.capture.pytorch.assemble import LiveGraph
from gradir.capture.pytorch.metadata import dtype_name, shape_of
from gradir.capture.pytorch.walk import GradFn
from gradir.errors import CaptureError
from gradir.ir import TensorMeta
from gradir.ir.text import tensor_text
from gradir.protocols import Verification
from gradir.spec import own_error

__all__ = ["verify"]

_autograd: Any = torch._C._autograd
_profiler: Any = torch._C._profiler

_register_accumulated: Any = torch.Tensor.register_post_accumulate_grad_hook

_EVENT: Final = "autograd::engine::evaluate_function: "

_ENGINES_OWN: Final = "torch::autograd::GraphRoot"
"""The node from which the engine starts when there is more than one output."""


class _Arrived(NamedTuple):
    """The gradients with which the engine ran a node."""

    gradients: tuple[torch.Tensor | None, ...]


def verify(live: LiveGraph) -> Verification:
    """Run a real backward, and compare.

    Every captured node must run, and nothing else: the nodes are counted by hooks on each of them and, independently,
    by the engine's own profile. The gradient that arrives at each output must have the recorded dtype and shape. The
    leaves of the graph, and no other parameter of the model, must receive a gradient.

    The gradients in ``.grad`` of the leaves, of the model's parameters and of the outputs are as before afterwards, and
    the graph is kept. What else runs in a backward runs in this one: hooks that the user put on tensors and nodes,
    `retain_grad` of intermediate tensors, the recomputation of checkpoints with the gradients of what a reentrant one
    hides. Where a profiler is on already, the nodes are counted by the hooks alone. In a process group the engine is
    asked for what would be added to the leaves: see `gradir.capture.pytorch.asking`.

    Raises:
        CaptureError: backward cannot run, because an earlier one freed the graph, say, or in a process group would
            change the next one.
    """
    arrived: dict[GradFn, _Arrived] = {}
    received: set[int] = set()
    outputs = [found.tensor for found in live.captured if found.tensor.retains_grad]
    tensors = [*live.leaves.values(), *live.unreached]
    hooks = [fn.register_prehook(partial(_note, arrived, fn)) for fn in live.grad_fns]
    # Not asked for afterwards: a distributed model takes gradients away as they come.
    asks = in_process_group()
    if asks:
        refuse_lasting(live.grad_fns, list(live.leaves.values()))
    added = refuse_addition if asks else partial(_note_gradient, received)
    hooks += [_register_accumulated(tensor, added) for tensor in tensors]
    try:
        with _grads_put_aside([*tensors, *outputs]):
            engine = _run_backward(partial(_ask, live, arrived, received) if asks else partial(_backward, live))
    finally:
        for hook in hooks:
            hook.remove()
    mismatches = [
        *_missing_nodes(live, arrived),
        *_unknown_nodes(live, engine),
        *_wrong_gradients(live, arrived),
        *_wrong_leaves(live, received | _accumulated(arrived)),
    ]
    edges = sum(1 for edge in live.graph.edges if live.graph.nodes[edge.dst].role == "function")
    return Verification(len(live.grad_fns), edges, len(arrived), tuple(mismatches))


def _note_gradient(received: set[int], leaf: torch.Tensor) -> None:
    # The engine also comes to a leaf with no gradient at all.
    if leaf.grad is not None:
        received.add(id(leaf))


def _accumulated(arrived: dict[GradFn, _Arrived]) -> set[int]:
    """The leaves that a gradient came to; a hook of the user may have taken it away again."""
    return {
        id(fn.variable)
        for fn, (gradients,) in arrived.items()
        if hasattr(fn, "variable") and any(gradient is not None for gradient in gradients)
    }


def _note(arrived: dict[GradFn, _Arrived], fn: GradFn, gradients: tuple[torch.Tensor | None, ...]) -> None:
    arrived[fn] = _Arrived(gradients)


@contextmanager
def _grads_put_aside(tensors: list[torch.Tensor]) -> Iterator[None]:
    kept = [(tensor, tensor.grad) for tensor in tensors]
    for tensor in tensors:
        tensor.grad = None
    try:
        yield
    finally:
        for tensor, grad in kept:
            tensor.grad = grad


def _run_backward(backward: Callable[[], None]) -> Counter[str]:
    """Run backward; returns how often the engine ran nodes of each name, nothing where a profiler is on already."""
    if _autograd._profiler_enabled():
        backward()
        return Counter()
    # The legacy profiler prints nothing; its Python class fails on events that end in another thread.
    quiet = [False] * 5
    config = _profiler.ProfilerConfig(_profiler.ProfilerState.CPU, *quiet, _profiler._ExperimentalConfig())
    _autograd._enable_profiler_legacy(config)
    try:
        backward()
    finally:
        threads = _autograd._disable_profiler_legacy()
    begun = (event.name() for thread in threads for event in thread if event.kind() == "push")
    return Counter(name.removeprefix(_EVENT) for name in begun if name.startswith(_EVENT))


def _backward(live: LiveGraph) -> None:
    with _one_error():
        tensors, seeds = _seeded(live)
        torch.autograd.backward(tensors, seeds, retain_graph=True)


def _ask(live: LiveGraph, arrived: dict[GradFn, _Arrived], received: set[int]) -> None:
    """Note what would be added to each leaf, beside what the nodes' hooks note."""
    leaves = [*live.leaves.values(), *live.unreached]
    with _one_error(), undisturbed(live.grad_fns, live.roots.values()):
        tensors, seeds = _seeded(live)
        gradients = asked_for(leaves, tensors, seeds)
    found = {id(leaf): gradient for leaf, gradient in zip(leaves, gradients, strict=True) if gradient is not None}
    received.update(found)
    for fn in live.grad_fns:
        if type(fn).__name__ == "AccumulateGrad":
            arrived[fn] = _Arrived((found.get(id(fn.variable)),))


def _seeded(live: LiveGraph) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    tensors = [captured.tensor for captured in live.captured if captured.role == "output"]
    # Of some layouts no ones can be made; what arrives has the same shape and dtype with any values.
    return tensors, [
        torch.ones_like(tensor) if tensor.layout is torch.strided else tensor.detach().clone() for tensor in tensors
    ]


@contextmanager
def _one_error() -> Iterator[None]:
    try:
        yield
    except (CaptureError, KeyboardInterrupt):
        raise
    except BaseException as error:
        # A hook of the user may even leave the interpreter, which must not pass for success.
        raise CaptureError(f"verifying needs a backward, which failed: {own_error(error)}") from error


def _missing_nodes(live: LiveGraph, arrived: dict[GradFn, _Arrived]) -> Iterator[str]:
    for fn, node_id in live.grad_fns.items():
        if fn not in arrived:
            yield f"{node_id}: the engine did not run it"


def _unknown_nodes(live: LiveGraph, engine: Counter[str]) -> Iterator[str]:
    if live.hides:
        # The function runs a backward of its own, whose nodes are not part of this graph.
        return
    # A custom function may keep an attribute called name.
    captured = Counter(type(fn).name(fn) for fn in live.grad_fns)
    for name, count in sorted((engine - captured).items()):
        if name == _ENGINES_OWN:
            continue
        yield f"the engine ran {count} more {name} than were captured"


def _wrong_gradients(live: LiveGraph, arrived: dict[GradFn, _Arrived]) -> Iterator[str]:
    for fn, (gradients,) in arrived.items():
        node = live.graph.nodes[live.grad_fns[fn]]
        if len(gradients) != len(node.outputs):
            yield f"{node.id}: {len(gradients)} gradients arrived for {len(node.outputs)} outputs"
            continue
        for number, (gradient, meta) in enumerate(zip(gradients, node.outputs, strict=True)):
            if gradient is not None and not _agrees(gradient, meta):
                said = TensorMeta(dtype_name(gradient.dtype), shape_of(gradient))
                yield f"{node.id}: {tensor_text(said)} arrived at output {number}, recorded as {tensor_text(meta)}"


def _agrees(gradient: Any, meta: TensorMeta) -> bool:
    shape = shape_of(gradient)
    if dtype_name(gradient.dtype) != meta.dtype:
        return False
    if shape is None or meta.shape is None or len(shape) != len(meta.shape):
        return shape is None or meta.shape is None
    return all(size == recorded for size, recorded in zip(shape, meta.shape, strict=True) if isinstance(recorded, int))


def _wrong_leaves(live: LiveGraph, received: set[int]) -> Iterator[str]:
    for node_id, tensor in live.leaves.items():
        if id(tensor) not in received:
            yield f"{node_id}: said to be reached, and got no gradient"
    if live.hides:
        return
    for cut, tensor in zip(live.graph.cuts, live.unreached, strict=True):
        if id(tensor) in received:
            yield f"{', '.join(cut.names)}: said to be {cut.kind}, and got a gradient"
