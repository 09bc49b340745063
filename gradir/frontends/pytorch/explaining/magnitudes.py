"""Run a backward pass, measure gradients, and find those that are zero but for rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch.utils.hooks import RemovableHandle

from gradir.errors import CaptureError
from gradir.frontends.pytorch.private import SAVED, current_backward
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.reach import is_reentrant_checkpoint
from gradir.frontends.pytorch.reading.tensors import read_stored_values, unwrap_tensor
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.verifying.verify import leave_unchanged, remove_afterwards


class Size(NamedTuple):
    """The size of a gradient: its largest finite value, whether all are finite, and the norm if they are."""

    largest: float
    is_finite: bool
    norm: float = 0.0

    @property
    def value(self) -> float | str:
        """The norm, or ``zero`` or ``nonfinite``."""
        return "nonfinite" if not self.is_finite else self.norm if self.largest else "zero"


def measure_size(gradient: torch.Tensor | None, *, is_exact: bool = True) -> Size | None:
    """Return the size of a gradient; without ``is_exact`` the norm may replace the largest value to save time."""
    if gradient is None:
        return None
    values = read_stored_values(gradient)
    if not values.numel():
        return Size(0.0, is_finite=True)
    # In dtypes of two bytes, squares soon overflow.
    norm = float(torch.linalg.vector_norm(values if values.dtype.itemsize > 2 else values.float()))
    # Squares of small values may underflow, and squares of large ones overflow.
    if not is_exact and 0 < norm < math.inf:
        return Size(norm, is_finite=True, norm=norm)
    largest = _largest(values)
    if math.isfinite(largest):
        return Size(largest, is_finite=True, norm=max(norm, largest) if math.isfinite(norm) else largest)
    finite = values[torch.isfinite(values)]
    return Size(_largest(finite) if finite.numel() else 0.0, is_finite=False)


def _largest(values: torch.Tensor) -> float:
    # In another order than that of the storage, torch takes up to fifty times as long.
    values = values.permute(sorted(range(values.dim()), key=values.stride, reverse=True))
    if values.is_complex():
        return float(values.abs().max())
    return max(abs(float(bound)) for bound in torch.aminmax(values))


def measure_grad_fields(tensors: Mapping[str, torch.Tensor]) -> dict[str, float | str]:
    """Return the norm of each leaf's `.grad`, or ``zero`` or ``nonfinite``, without leaves that have none."""
    sizes = {
        name: measure_size(leaf.grad) for name, leaf in tensors.items() if leaf.grad is None or not leaf.grad.is_meta
    }
    return {name: size.value for name, size in sizes.items() if size is not None}


LeafGradient: TypeAlias = "tuple[torch.Tensor, torch.Tensor | None]"


def run_backward(live: LiveGraph, register: Callable[[], Iterable[RemovableHandle]]) -> list[LeafGradient]:
    """Run a backward pass and return each leaf with its gradient; ``register`` adds the hooks for it."""
    leaves = list({id(tensor): tensor for tensor in live.leaves.values()}.values())
    # A reentrant checkpoint runs only in a backward pass that accumulates gradients.
    adds = any(map(is_reentrant_checkpoint, live.grad_fns))
    if any(tensor.is_meta for tensor in (*leaves, *(entry.tensor for entry in live.captured))):
        raise CaptureError("tensors on the meta device have no numbers")
    if current_backward() != -1:
        # torch would deadlock.
        raise CaptureError("a backward is running")
    with leave_unchanged(live) as leave:
        hooks = [*register(), *(fn.register_prehook(leave) for fn in live.grad_fns)]
        found: Sequence[torch.Tensor | None] = ()
        with remove_afterwards(hooks), torch.autograd.set_multithreading_enabled(False):
            starts, seeds = live.starts_and_seeds()
            if adds:
                torch.autograd.backward(starts, seeds, retain_graph=True)
                found = [leaf.grad for leaf in leaves]
            elif leaves:
                found = torch.autograd.grad(starts, leaves, seeds, retain_graph=True, allow_unused=True)
        return list(zip(leaves, found, strict=True))


def is_zero(leaf: torch.Tensor) -> bool:
    """Return whether the part of a leaf in this process is zero throughout."""
    local = unwrap_tensor(leaf.detach())
    # Between the passes, `fully_shard` frees the storage of parameters that it gathers.
    if local.layout is torch.strided and not local.untyped_storage().nbytes():
        return False
    values = read_stored_values(local)
    # torch looks at all values, but one nonzero value is enough.
    return not (values.numel() and values[(0,) * values.dim()]) and not bool(values.any())


_SHAPING: Final = frozenset({"Expand", "Squeeze", "Unsqueeze", "UnsafeView", "View"})
_CHOOSING: Final = frozenset({"Amax", "Amin", "Max", "Mean", "Min", "Sum", *_SHAPING})
_MEASURING: Final = frozenset({"Abs", "Add", "ClampMin", "LinalgVectorNorm", "Norm", *_CHOOSING})
# Functions that may make the second operand from the first one, entry by entry.
_BY_NAME: Final = {"DivBackward0": _MEASURING | {"Pow", "Sqrt"}, "SubBackward0": _CHOOSING | {"Logsumexp"}}
_SOFTMAX: Final = "SoftmaxBackward0"
# The dimensions over which the result of a function has a fixed sum.
_FIXED_SUM_DIMS: Final[Mapping[str, Callable[[Mapping[str, Any], int], Iterable[int]]]] = {
    _SOFTMAX: lambda attrs, rank: [attrs["dim"] % rank],
    "NativeLayerNormBackward0": lambda attrs, rank: range(rank - len(attrs["normalized_shape"]), rank),
    # A group of several channels has several weights.
    "NativeGroupNormBackward0": lambda attrs, rank: range(2, rank) if attrs["C"] == attrs["group"] else (),
    # With the statistics of other batches a sum is not constant.
    "NativeBatchNormBackward0": lambda attrs, rank: {*range(rank)} - {1} if attrs["training"] else (),
}

MAY_BE_CONSTANT: Final = frozenset({*_BY_NAME, *_FIXED_SUM_DIMS})
"""The names of the functions that `find_constants` looks at."""

# At most this many functions may be between the operands.
_LONGEST: Final = 20
_POWERS: Final[Mapping[str, float | None]] = {"Pow": None, "Sqrt": 0.5}


class Constant(NamedTuple):
    """A function ``fn`` that makes the gradient of output ``number`` of ``at`` zero, with the kind of cause."""

    kind: str
    fn: GradFn
    at: GradFn
    number: int


Edges: TypeAlias = "Mapping[tuple[GradFn, int], Sequence[tuple[GradFn, int]]]"
"""The consumers of each output of a function, each with its slot."""


def find_constants(live: LiveGraph, fns: Iterable[GradFn], edges: Edges) -> Iterator[Constant]:
    """Yield divisions and differences of a tensor and itself, and sums over all that is normalized."""
    takers_of: dict[tuple[GradFn, int], list[tuple[GradFn, int]]] = {}
    for fn in fns:
        name = type(fn).__name__
        child, number = fn.next_functions[0] if name in MAY_BE_CONSTANT else (None, 0)
        if child is None:
            continue
        if name not in _FIXED_SUM_DIMS:
            taker = _find_chain_start(live, fn, fn.next_functions[1][0], (child, number))
            if taker is not None:
                takers_of.setdefault((child, number), []).extend([(fn, 0), taker])
        elif len(edges[child, number]) == 1 and _is_summed(live, fn, edges.get((fn, 0), ())):
            yield Constant("adds_up" if name == _SOFTMAX else "norm_adds_up", fn, child, number)
    for (child, number), takers in takers_of.items():
        if {*takers} == {*edges[child, number]}:
            yield Constant("one_entry", takers[0][0], child, number)


def _find_chain_start(
    live: LiveGraph, fn: GradFn, at: GradFn | None, end: tuple[GradFn, int]
) -> tuple[GradFn, int] | None:
    """Return the first of the functions that compute the second operand from the first, entry by entry."""
    count, power = _count_entries(live, fn), 1.0
    if count is None or getattr(fn, f"{SAVED}alpha", 1) != 1:
        return None
    for _ in range(_LONGEST):
        name = type(at).__name__.partition("Backward")[0]
        if at is None or name not in _BY_NAME[type(fn).__name__] or _count_entries(live, at) != count:
            return None
        if name in _POWERS:
            exponent = _POWERS[name] or getattr(at, f"{SAVED}exponent", None)
            power *= exponent if isinstance(exponent, (int, float)) else 0
        inputs = [(child, number, slot) for slot, (child, number) in enumerate(at.next_functions) if child is not None]
        if len(inputs) != 1:
            return None
        child, number, slot = inputs[0]
        if (child, number) == end:
            return (at, slot) if power == 1 else None
        at = child
    return None


def _is_summed(live: LiveGraph, fn: GradFn, takers: Sequence[tuple[GradFn, int]]) -> bool:
    """Return whether all consumers of a normalization add up the dimensions with a fixed sum."""
    node = live.graph.nodes[live.grad_fns[fn]]
    shape = node.outputs[0].shape or (1,)
    fixed = set(_FIXED_SUM_DIMS[type(fn).__name__](node.attrs, len(shape)))
    if all(shape[dim] == 1 for dim in fixed):
        return False
    for taker, _ in takers:
        dims: Any = live.graph.nodes[live.grad_fns[taker]].attrs.get("dim") or range(len(shape))
        is_sum = type(taker).__name__.partition("Backward")[0] in {"Mean", "Sum"}
        if not is_sum or not fixed <= {each % len(shape) for each in dims}:
            return False
    return bool(takers)


def _count_entries(live: LiveGraph, fn: GradFn) -> int | None:
    outputs = live.graph.nodes[live.grad_fns[fn]].outputs
    shape = outputs[0].shape if outputs else None
    sizes = [size for size in shape or () if isinstance(size, int)]
    return None if shape is None or len(sizes) < len(shape) else prod(sizes)
