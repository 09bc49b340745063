"""Check a captured graph against the autograd engine, by running a backward pass."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import zip_longest
from typing import Any, TypeAlias

import torch
from msgspec.structs import replace
from torch.utils.hooks import RemovableHandle

from gradir.errors import CaptureError
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.attributes import MetadataReader, bare_name
from gradir.frontends.pytorch.reading.distributed import is_in_process_group
from gradir.frontends.pytorch.reading.reach import find_hiding_functions, find_reachable_leaves
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.verifying import untouched
from gradir.frontends.walks import replace_attribute
from gradir.gcpause import pause_gc
from gradir.ir import TensorMeta
from gradir.ir.edges import number_into
from gradir.ir.text import tensor_text
from gradir.progress import stage
from gradir.protocols import Verification
from gradir.spec import describe_error

_register_accumulated: Any = torch.Tensor.register_post_accumulate_grad_hook
# The gradients themselves would use memory until the end.
_Gradients: TypeAlias = tuple[TensorMeta | None, ...]


class _Watch:
    """Watches one backward pass, and ignores passes that functions and hooks run inside it, with higher numbers."""

    def __init__(self, leave: Callable[..., None]) -> None:
        self._leave = leave
        self._thread = threading.get_ident()
        self._number: int | None = None
        self._metadata = MetadataReader()
        self.arrived: dict[GradFn, _Gradients] = {}
        self.received: dict[int, set[int | None]] = {}

    def note(self, fn: GradFn, gradients: tuple[torch.Tensor | None, ...]) -> None:
        self._leave()
        # Profile nodes only: the operations inside are ten times as many. The engine resets this for the next node.
        private.record_functions(False)
        number = private.current_backward()
        if threading.get_ident() != self._thread or (self._number is not None and number > self._number):
            return
        if number != self._number:
            # The nodes so far ran in an inner backward pass, before the first node of this one.
            self.arrived.clear()
            self._number = number
        read = self._metadata.read_tensor
        self.arrived[fn] = tuple([None if each is None else read(each) for each in gradients])

    def note_gradient(self, leaf: torch.Tensor) -> None:
        """Record that a leaf has a gradient, as a hook after the accumulation."""
        # The engine also runs the accumulation of a leaf without any gradient.
        if leaf.grad is not None:
            self.received.setdefault(id(leaf), set()).add(private.current_backward())

    def compute(self, live: LiveGraph, starts: list[Any], seeds: list[torch.Tensor], *, retain_graph: bool) -> None:
        """Compute the gradients of all leaves without accumulating them, and record these."""
        leaves = [*live.leaves.values(), *live.unreached]
        found: Any = ()
        if leaves:
            found = torch.autograd.grad(starts, leaves, seeds, retain_graph=retain_graph, allow_unused=True)
        gradients = {id(leaf): gradient for leaf, gradient in zip(leaves, found, strict=True)}
        for fn in live.grad_fns:
            if type(fn).__name__ == private.ACCUMULATOR:
                gradient = gradients.get(id(fn.variable))
                self.arrived[fn] = (None if gradient is None else self._metadata.read_tensor(gradient),)
        self.received = {leaf: {self._number} for leaf, gradient in gradients.items() if gradient is not None}

    def is_from_inner_pass(self, leaf: int) -> bool:
        """Return whether only an inner backward pass gave a leaf its gradient."""
        return self._number not in self.received.get(leaf, {self._number})


def verify(live: LiveGraph, *, keep_graph: bool = True) -> Verification:
    """Run a real backward pass, and compare.

    Every captured node must run, and nothing else. The gradient at each output must have the recorded dtype and shape.
    The engine must reach every leaf of the graph, and give no gradient to a parameter that the graph calls unreached.

    All gradients in ``.grad`` stay unchanged. With ``keep_graph`` the graph stays too, and gradir refuses a graph that
    can run only once.
    """
    is_grouped = is_in_process_group()
    with _convert_errors():
        starts, seeds = live.starts_and_seeds()
    # The garbage collector would traverse the hooks and the whole graph, which takes longer than the rest.
    with pause_gc(), leave_unchanged(live, keep_graph=keep_graph) as leave:
        watch = _Watch(leave)
        hooks = [fn.register_prehook(partial(watch.note, fn)) for fn in live.grad_fns]
        # A hook, since a distributed model removes gradients as soon as they arrive.
        leaves = () if is_grouped else (*live.leaves.values(), *live.unreached)
        hooks += [_register_accumulated(leaf, watch.note_gradient) for leaf in leaves]
        # In a process group gradir computes gradients without accumulating them: see `untouched`.
        run: Callable[..., None] = partial(watch.compute, live) if is_grouped else torch.autograd.backward
        backward = partial(run, starts, seeds, retain_graph=keep_graph)
        with (
            remove_afterwards(hooks),
            stage("running a backward", len(live.grad_fns), watch.arrived.__len__),
            _convert_errors(),
        ):
            engine = _run_backward(backward)
    # By the class, since a custom function may have an attribute `name`.
    captured = Counter(type(fn).name(fn) for fn in live.grad_fns)
    unknown = engine - captured
    del unknown[private.ENGINES_OWN]
    mismatches = [
        *(f"{node_id}: the engine did not run it" for fn, node_id in live.grad_fns.items() if fn not in watch.arrived),
        *(f"the engine ran {count} more {name} than were captured" for name, count in sorted(unknown.items())),
        *_check_gradients(live, watch.arrived),
        *_check_leaves(live, watch),
    ]
    functions = [node for node in live.graph.nodes.values() if node.role == "function"]
    edges = sum(map(number_into, functions))
    return Verification(len(live.grad_fns), edges, len(watch.arrived), tuple(mismatches))


@contextmanager
def leave_unchanged(live: LiveGraph, *, keep_graph: bool = True) -> Iterator[Callable[..., None]]:
    """Make a backward pass keep all gradients, and with ``keep_graph`` the graph; call the result before each node."""
    if keep_graph:
        untouched.refuse_single_use(live)
    tensors = [*live.leaves.values(), *live.unreached]
    is_grouped = is_in_process_group()
    with private.without_overrides():
        # Also leaves of modules that the user did not pass.
        others = find_reachable_leaves(find_hiding_functions(live.grad_fns), live.grad_fns)
    if is_grouped:
        untouched.refuse_lasting(live.grad_fns, list(live.leaves.values()))
    refused = tensors if is_grouped else []
    with (
        remove_afterwards([_register_accumulated(tensor, untouched.refuse_addition) for tensor in refused]),
        ExitStack() as without_gradients,
        untouched.keep_contexts(live) if keep_graph else nullcontext(),
        untouched.keep_buffers_and_random_state(live),
        untouched.pause_reductions(live.grad_fns, live.roots.values()) if is_grouped else nullcontext(),
        untouched.keep_retained_gradients() as leave,
    ):
        for tensor in {id(tensor): tensor for tensor in (*tensors, *others)}.values():
            without_gradients.enter_context(replace_attribute(tensor, "grad", None))
        yield leave


def remove_afterwards(hooks: Iterable[RemovableHandle]) -> ExitStack:
    """Return a context that removes hooks at its end."""
    entered = ExitStack()
    for hook in hooks:
        entered.enter_context(hook)
    return entered


def _run_backward(backward: Callable[[], None]) -> Counter[str]:
    """Run backward; return how often the engine ran nodes of each name, or nothing if a profiler runs already."""
    if private.profiler_enabled():
        backward()
        return Counter()
    private.start_profile()
    try:
        backward()
    finally:
        threads = private.stop_profile()
    return Counter(name for thread in threads for name in _outermost_nodes(thread))


def _outermost_nodes(events: list[Any]) -> Iterator[str]:
    """Yield the nodes that a thread ran, without nodes that ran inside another one."""
    # Deeply nested backward passes continue in another thread, whose profile has no start.
    if not any(event.name() == private.BEGUN for event in events):
        return
    running: set[int] = set()
    for event in events:
        kind, name = event.kind(), event.name()
        if kind == "pop":
            running.discard(event.handle())
        elif kind == "push" and name.startswith(private.EVENT):
            if not running:
                yield name.removeprefix(private.EVENT)
            running.add(event.handle())


@contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        with torch.autograd.set_multithreading_enabled(False):
            yield
    except (CaptureError, KeyboardInterrupt):
        raise
    except BaseException as error:
        # A hook of the user may even call sys.exit, which must not look like success.
        raise CaptureError(f"verifying needs a backward, which failed: {describe_error(error)}") from error


def _check_gradients(live: LiveGraph, arrived: dict[GradFn, _Gradients]) -> Iterator[str]:
    for fn, gradients in arrived.items():
        node = live.graph.nodes[live.grad_fns[fn]]
        if len(gradients) != len(node.outputs):
            yield f"{node.id}: {len(gradients)} gradients arrived for {len(node.outputs)} outputs"
            continue
        wrong = [
            f"{node.id}: {tensor_text(gradient)} arrived at output {number}, recorded as {tensor_text(meta)}"
            for number, (gradient, meta) in enumerate(zip(gradients, node.outputs, strict=True))
            # Most are equal, which takes less time to find out.
            if gradient is not None and gradient != meta and not _agrees(gradient, meta)
        ]
        is_leaf = type(fn).__name__ == private.ACCUMULATOR
        if wrong and not (is_leaf and _asks_for(fn.variable, gradients[0], node.outputs[0])):
            yield from wrong


def _asks_for(leaf: torch.Tensor, gradient: TensorMeta | None, meta: TensorMeta) -> bool:
    """Return whether a gradient has the shape of its leaf, and the leaf's ``grad_dtype``."""
    with private.without_overrides():
        wanted: torch.dtype | None = getattr(leaf, "grad_dtype", leaf.dtype)
    if gradient is None or (wanted is not None and bare_name(wanted) != gradient.dtype):
        return False
    return _agrees(gradient, replace(meta, dtype=gradient.dtype))


def _agrees(gradient: TensorMeta, meta: TensorMeta) -> bool:
    if gradient.dtype != meta.dtype or gradient.shape is None or meta.shape is None:
        return gradient.dtype == meta.dtype
    sizes = zip_longest(gradient.shape, meta.shape)
    # A symbolic size matches every size.
    return all(size == recorded for size, recorded in sizes if not (isinstance(recorded, str) and size is not None))


def _check_leaves(live: LiveGraph, watch: _Watch) -> Iterator[str]:
    leaves = ((fn, each) for fn, each in watch.arrived.items() if type(fn).__name__ == private.ACCUMULATOR)
    reached = {id(fn.variable): gradients[0] for fn, gradients in leaves}
    # Also gradients that a hook has removed.
    received = {*watch.received, *(leaf for leaf, gradient in reached.items() if gradient is not None)}
    for node_id, tensor in live.leaves.items():
        # If a function returns no gradient for an input, the engine still reaches its leaf.
        if id(tensor) not in received and id(tensor) not in reached:
            yield f"{node_id}: reached in the graph, but got no gradient"
    for cut, tensor in zip(live.graph.cuts, live.unreached, strict=False):
        if cut.kind == "unreached" and id(tensor) in received:
            inside = ", by a backward inside this one" if watch.is_from_inner_pass(id(tensor)) else ""
            yield f"{', '.join(cut.names)}: {cut.kind} in the graph, but got a gradient{inside}"
