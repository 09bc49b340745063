"""Gradients that are zero but for rounding, since what comes of an operation is constant by how it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from gradir.frontends.pytorch.private import SAVED
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.walk import GradFn

_SHAPING: Final = frozenset({"Expand", "Squeeze", "Unsqueeze", "UnsafeView", "View"})
_CHOOSING: Final = frozenset({"Amax", "Amin", "Max", "Mean", "Min", "Sum", *_SHAPING})
_MEASURING: Final = frozenset({"Abs", "Add", "ClampMin", "LinalgVectorNorm", "Norm", *_CHOOSING})
# Functions that may make the second operand from the first one, entry by entry.
_BY_NAME: Final = {"DivBackward0": _MEASURING | {"Pow", "Sqrt"}, "SubBackward0": _CHOOSING | {"Logsumexp"}}
_SOFTMAX: Final = "SoftmaxBackward0"
# The dimensions over which the result of a function has a fixed sum.
_NORMALISING: Final[Mapping[str, Callable[[Mapping[str, Any], int], Iterable[int]]]] = {
    _SOFTMAX: lambda attrs, rank: [attrs["dim"] % rank],
    "NativeLayerNormBackward0": lambda attrs, rank: range(rank - len(attrs["normalized_shape"]), rank),
    # A group of several channels has several weights.
    "NativeGroupNormBackward0": lambda attrs, rank: range(2, rank) if attrs["C"] == attrs["group"] else (),
    # With numbers of other batches a sum is not constant.
    "NativeBatchNormBackward0": lambda attrs, rank: {*range(rank)} - {1} if attrs["training"] else (),
}

MAY_BE_CONSTANT: Final = frozenset({*_BY_NAME, *_NORMALISING})
"""What the functions are called of which `constants` finds some."""

# How many functions to look at between the operands.
_LONGEST: Final = 20
_POWERS: Final[Mapping[str, float | None]] = {"Pow": None, "Sqrt": 0.5}
_ADDING: Final = frozenset({"Mean", "Sum"})


class Constant(NamedTuple):
    """A function by which what comes to output ``number`` of another is nothing, and the kind of cause that it is."""

    kind: str
    fn: GradFn
    at: GradFn
    number: int


Edges: TypeAlias = "Mapping[tuple[GradFn, int], Sequence[tuple[GradFn, int]]]"
"""Of each output of a function those that take it, each with its slot."""


def constants(live: LiveGraph, fns: Iterable[GradFn], edges: Edges) -> Iterator[Constant]:
    """Yield divisions and differences of an entry and itself, and sums over everything that is normalised."""
    taken: dict[tuple[GradFn, int], list[tuple[GradFn, int]]] = {}
    for fn in fns:
        name = type(fn).__name__
        is_normal = name in _NORMALISING
        child, number = fn.next_functions[0] if name in MAY_BE_CONSTANT else (None, 0)
        if child is None:
            continue
        if not is_normal:
            taker = _first_of_chain(live, fn, fn.next_functions[1][0], (child, number))
            if taker is not None:
                taken.setdefault((child, number), []).extend([(fn, 0), taker])
        elif len(edges[child, number]) == 1 and _is_added_up(live, fn, edges.get((fn, 0), ())):
            yield Constant("adds_up" if name == _SOFTMAX else "norm_adds_up", fn, child, number)
    for (child, number), takers in taken.items():
        if {*takers} == {*edges[child, number]}:
            yield Constant("one_entry", takers[0][0], child, number)


def _first_of_chain(
    live: LiveGraph, fn: GradFn, at: GradFn | None, end: tuple[GradFn, int]
) -> tuple[GradFn, int] | None:
    """Return the first of the functions that make the second operand from the first, entry by entry."""
    entries, power = _entries(live, fn), 1.0
    if entries is None or getattr(fn, f"{SAVED}alpha", 1) != 1:
        return None
    for _ in range(_LONGEST):
        name = type(at).__name__.partition("Backward")[0]
        if at is None or name not in _BY_NAME[type(fn).__name__] or _entries(live, at) != entries:
            return None
        if name in _POWERS:
            exponent = _POWERS[name] or getattr(at, f"{SAVED}exponent", None)
            power *= exponent if isinstance(exponent, (int, float)) else 0
        below = [(child, number, slot) for slot, (child, number) in enumerate(at.next_functions) if child is not None]
        if len(below) != 1:
            return None
        child, number, slot = below[0]
        if (child, number) == end:
            return (at, slot) if power == 1 else None
        at = child
    return None


def _is_added_up(live: LiveGraph, fn: GradFn, takers: Sequence[tuple[GradFn, int]]) -> bool:
    """Return whether all that takes what a function normalises adds up what has a fixed sum."""
    node = live.graph.nodes[live.grad_fns[fn]]
    shape = node.outputs[0].shape or (1,)
    fixed = set(_NORMALISING[type(fn).__name__](node.attrs, len(shape)))
    if all(shape[dim] == 1 for dim in fixed):
        return False
    for taker, _ in takers:
        dims: Any = live.graph.nodes[live.grad_fns[taker]].attrs.get("dim") or range(len(shape))
        is_sum = type(taker).__name__.partition("Backward")[0] in _ADDING
        if not is_sum or not fixed <= {each % len(shape) for each in dims}:
            return False
    return bool(takers)


def _entries(live: LiveGraph, fn: GradFn) -> int | None:
    outputs = live.graph.nodes[live.grad_fns[fn]].outputs
    shape = outputs[0].shape if outputs else None
    known = [size for size in shape or () if isinstance(size, int)]
    return None if shape is None or len(known) < len(shape) else prod(known)
