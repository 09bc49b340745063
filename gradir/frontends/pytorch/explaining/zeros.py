"""Explain why gradients become zero, and whether they stay zero in every step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from math import prod
from typing import Any, Final, TypeAlias

import torch

from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.explaining.roles import FLAT
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value, plain_name
from gradir.frontends.walks import compute_bottom_up, find_reachable
from gradir.ir import Node
from gradir.ir.model import Shape

Origin: TypeAlias = "tuple[Node, Step | None]"
"""The node of a graph in which a gradient becomes zero, and the step that made it if it was recorded."""

LASTING_KINDS: Final = frozenset[str]().union(
    ("adds_up", "cancel", "closed", "dropped", "flat", "flat_slope", "given_zero", "norm_adds_up", "one_entry"),
    ("out_of_range", "saturated", "stuck", "weighed_out"),
)
"""The kinds of causes that make a gradient zero in every step."""

_BOUNDED: Final = frozenset({"clamp", "clamp_max", "clamp_min", "hardtanh", "relu", "threshold"})
SLOPES: Final = {"hardtanh_backward": "hardtanh", "leaky_relu_backward": "leaky_relu", "threshold_backward": "relu"}
"""The piecewise linear functions, by the operations of their derivatives."""

# The kind of cause of operations that always have the same one.
_BY_OPERATION: Final = {
    **dict.fromkeys(("hardsigmoid", "sigmoid", "tanh"), "saturated"),
    **dict.fromkeys(SLOPES, "flat_slope"),
}

_SOFTMAXES: Final = ("log_softmax", "safe_softmax", "softmax")
# The number of entries that an operation normalizes at a time.
_NORMALISING: Final[Mapping[str, Callable[[Mapping[str, Any], Shape], object]]] = {
    **dict.fromkeys(_SOFTMAXES, lambda attrs, shape: shape[attrs["dim"]] if shape else 1),
    "native_layer_norm": lambda attrs, _: prod(attrs["normalized_shape"]),
    "native_group_norm": lambda attrs, _: attrs["C"] // attrs["group"] * attrs["HxW"],
}

_ATTENTION: Final = "scaled_dot_product"
# Attention normalizes along this dimension of the keys.
_KEYS: Final = -2
# The input slot of the summand, for operations that add a product to it.
_SUMMANDS: Final = {"addbmm": 0, "addcmul": 0, "addmm": 0, "addmv": 0, "addr": 0, "baddbmm": 0, "convolution": 2}
_PRODUCTS: Final = frozenset({*_SUMMANDS, "bmm", "dot", "mm", "mul", "mv"})
_ZEROS: Final = frozenset({"new_zeros", "zero", "zeros", "zeros_like"})
_SUMS: Final = frozenset({"add", "cat", "stack", "sub"})
# With this many inputs, the second one scales the result and the third shifts it.
_NORMS: Final = {"native_batch_norm": 5, "native_group_norm": 3, "native_layer_norm": 3}

_ZERO_PRESERVING: Final = frozenset[str]().union(
    ("abs", "clone", "detach", "gelu", "leaky_relu", "mean", "mul", "neg", "pow", "relu", "silu", "sum", "tanh"),
    ("threshold_backward", "to_copy", "unsafe_view"),
)

# The kind of cause of an operation that gives zero now, but not for other inputs.
_NOW: Final[Mapping[str, str]] = {
    **dict.fromkeys(_BOUNDED, "dead"),
    **dict.fromkeys(("abs", "huber_loss", "linalg_vector_norm", "mse_loss", "norm", "smooth_l1_loss"), "equal"),
    **dict.fromkeys(("amax", "amin", "max", "maximum", "min", "minimum"), "not_chosen"),
    **dict.fromkeys(_PRODUCTS, "factor"),
    **dict.fromkeys(("masked_fill", "masked_select", "where"), "masked"),
    "embedding": "padding",
    "nll_loss": "ignored",
    "nll_loss2d": "ignored",
}

# At most this many rounds drop leaves that may change.
_ROUNDS: Final = 3


class Zeros:
    """Tells whether operations make a gradient zero in every step.

    The recorded forward shows derivatives that are zero everywhere and normalizations of one entry. It also shows
    values out of range that depend only on parameters, and zero factors that each need the other to change first.
    """

    def __init__(
        self,
        flowing: Flowing,
        named: Collection[Value],
        starting: Set[Value],
        waiting: Mapping[Value, Sequence[Origin]],
        frozen: frozenset[Value],
    ) -> None:
        """Take leaves with a nonzero gradient, those with a zero one and its origins, and those without a gradient."""
        self._flow, self._flowing = flowing.flow, flowing
        self._named, self._starting, self._frozen = named, starting, frozen
        self._suppose(frozenset(waiting) | frozen)
        for _ in range(_ROUNDS):
            stuck = frozen | {leaf for leaf in self._stuck - frozen if all(map(self._lasts, waiting[leaf]))}
            if stuck == self._stuck:
                return
            self._suppose(stuck)
        self._suppose(frozen)

    def _suppose(self, stuck: frozenset[Value]) -> None:
        """Assume that these leaves never change, and forget all answers that depend on it."""
        self._stuck = stuck
        self._stays_zero: dict[Value, bool] = {}
        self._fixed: dict[Value, bool] = {}
        self._has_changing_reads: bool | None = None

    def _lasts(self, origin: Origin) -> bool:
        return origin[1] is not None and self._kind_of_staying(*origin) in LASTING_KINDS

    def kind(self, origin: Origin) -> str:
        """Return the kind of cause of a gradient that becomes zero here."""
        return self._kind_of_staying(*origin) or self._kind_of_now(*origin)

    def _kind_of_staying(self, node: Node, step: Step | None) -> str:
        kind = "flat" if _is_flat(node) else _BY_OPERATION.get(node.op, "")
        if not kind and _count_normalised(node) == 1:
            kind = "one_entry" if step is None or not self._is_single_now(node, step) else "single"
        if not kind and step is not None:
            kind = self._kind_of_zeros(step)
            factors = _factors(step) if plain_name(step.func) in _PRODUCTS else []
            # Each factor stays zero as long as the others do.
            is_stuck = kind in {"", "closed"} and len(factors) > 1 and all(map(self._is_kept_zero, factors))
            kind = "stuck" if is_stuck else kind
        if kind:
            return kind
        # The operand may be the same for every input of the model.
        is_fixed = step is not None and node.op in _BOUNDED and self._is_fixed(step.inputs[0].value)
        return "out_of_range" if node.op in _BOUNDED and (is_fixed or _has_two_bounds(node)) else ""

    def _is_single_now(self, node: Node, step: Step) -> bool:
        """Return whether an operation normalizes one entry only because an input of the model has one."""
        is_attention = node.op.startswith(_ATTENTION)
        value, dim = (step.inputs[1].value, _KEYS) if is_attention else (step.inputs[0].value, node.attrs.get("dim"))
        return isinstance(dim, int) and is_of_input(self._flow, value, dim)

    def _kind_of_zeros(self, step: Step) -> str:
        """Return the kind of cause of an operation that multiplies by zero or only takes zeros."""
        name, value = plain_name(step.func), step.inputs[0].value if step.inputs else None
        given = dict(step.constants)
        if name in _PRODUCTS:
            if name == "mul" and given.get("other") == 0:
                # A program adds a zero product of parameters to have them in the graph.
                is_intended = value is not None and self._is_fixed(value)
                return "" if is_intended or self._reads_changing_values() else "weighed_out"
            factors = _factors(step)
            makers = {factor: self._flow.step_of(self._flow.owner_of(factor)) for factor in factors}
            zeros = {factor: maker for factor, maker in makers.items() if maker and plain_name(maker.func) in _ZEROS}
            is_masked = name in {"addcmul", "mul"} and bool(zeros)
            if is_masked and not all(factor in zeros or self._is_fixed(factor) for factor in factors):
                return "dropped" if any(map(_is_inner, zeros.values())) else "weighed_out"
            # A leaf that is zero may change once the other factor does.
            closing = (factor for factor in factors if self._flowing.owner_of(factor) not in self._stuck - self._frozen)
            return "closed" if any(map(self._is_kept_zero, closing)) else ""
        if name in _SUMS:
            return "weighed_out" if given.get("alpha") == 0 else ""
        if value is None or len(step.inputs) > 1:
            return ""
        # A zero parameter may be at its optimum, such as one whose norm is part of a loss.
        is_leaf = name not in _BOUNDED and self._flowing.owner_of(value) in self._named
        return "closed" if not is_leaf and self._is_kept_zero(value) else ""

    def makers(self, step: Step) -> Iterator[int]:
        """Yield the numbers of the steps that make the zero factors of an operation."""
        found = (self._flow.owner_of(factor).maker for factor in _factors(step))
        return (index for index in found if index != FROM_OUTSIDE and _gives_zeros(self._flow.steps[index]))

    def _reads_changing_values(self) -> bool:
        """Return whether the program read values that may change, from which it may have computed a factor."""
        if self._has_changing_reads is None:
            # Reads without a place are gradir's own.
            reads = (read for found in self._flow.exits if found.place is not None for read in found.reads)
            self._has_changing_reads = not all(self._is_fixed(read.value) for read in reads)
        return self._has_changing_reads

    def _kind_of_now(self, node: Node, step: Step | None) -> str:
        if step is None:
            return _NOW.get(node.op, "zero")
        if not self._starting.isdisjoint(self._find_factors(step)):
            return "starting"
        metas = (*(self._flow.meta_of(read.value) for read in step.inputs), *step.outputs)
        return "empty" if any(0 in (meta.shape or ()) for meta in metas) else _NOW.get(node.op, "zero")

    def _find_factors(self, step: Step) -> Iterator[Value]:
        """Return the factors of an operation, without views."""
        if plain_name(step.func).startswith("native_"):
            # A normalization adds its bias.
            return map(self._flowing.root, (read.value for read in step.inputs[1:2]))
        return map(self._flowing.owner_of, _factors(step))

    def _is_kept_zero(self, value: Value) -> bool:
        return self._decide(value, self._stays_zero, self._stuck, _list_zero_conditions)

    def _is_fixed(self, value: Value) -> bool:
        return self._decide(value, self._fixed, self._named, self._list_fixed_conditions)

    def _list_fixed_conditions(self, step: Step) -> Sequence[Sequence[Value]] | None:
        if plain_name(step.func) in _PRODUCTS:
            factors = _factors(step)
            if any(map(self._is_kept_zero, factors)):
                return [[read.value] for read in step.inputs if read.value not in factors]
        is_drawn = torch.Tag.nondeterministic_seeded in getattr(step.func, "tags", ())
        # An operation without inputs may give other values in the next step.
        varies = is_drawn or not step.inputs or "inplace" in step.kinds
        return None if varies else [[read.value] for read in step.inputs]

    def _decide(
        self,
        value: Value,
        known: dict[Value, bool],
        leaves: Collection[Value],
        conditions: Callable[[Step], Sequence[Sequence[Value]] | None],
    ) -> bool:
        """Return whether a value has a property of some leaves; a step needs one such value in each of its groups."""

        def groups(at: Value) -> Sequence[Sequence[Value]]:
            leaf = self._flowing.root(at)
            is_leaf = leaf.maker == FROM_OUTSIDE or leaf in self._named
            found = None if is_leaf else conditions(self._flow.steps[leaf.maker])
            # An empty group cannot be met.
            return [] if is_leaf and leaf in leaves else [[]] if found is None else found

        def meets_all(at: Value) -> bool:
            return all(any(map(known.__getitem__, group)) for group in groups(at))

        return compute_bottom_up(value, known, lambda at: chain(*groups(at)), meets_all)


def _factors(step: Step) -> list[Value]:
    summand = _SUMMANDS.get(plain_name(step.func))
    return [read.value for slot, read in enumerate(step.inputs) if slot != summand]


def _is_inner(step: Step) -> bool:
    """Return whether a torch function, such as a dropout, or a derivative ran an operation."""
    return step.called.strip("_") not in {"", *_ZEROS}


def _gives_zeros(step: Step) -> bool:
    name, given = plain_name(step.func), dict(step.constants)
    return name in _ZEROS or given.get("fill_value") == 0 or (name == "mul" and given.get("other") == 0)


def _list_zero_conditions(step: Step) -> Sequence[Sequence[Value]] | None:
    name = plain_name(step.func)
    values = [read.value for read in step.inputs]
    # Zeros that the program makes may be an input or an initial state.
    if _is_inner(step) if name in _ZEROS else name == "mul" and dict(step.constants).get("other") == 0:
        return [] if name in _ZEROS or step.inputs[0].carries else None
    if name == "threshold_backward":
        return [values[:1]]
    if name in _NORMS:
        return [[value] for value in values[1:3]] if len(values) >= _NORMS[name] else None
    if name in _PRODUCTS:
        factors = _factors(step)
        return [factors, *([value] for value in values if value not in factors)]
    if name in _SUMS or (len(values) == 1 and (name in _ZERO_PRESERVING or "view" in step.kinds)):
        return [[value] for value in values]
    return None


def _is_flat(node: Node) -> bool:
    # Interpolation mode 1 copies the nearest entry.
    if node.op in FLAT or node.attrs.get("rounding_mode") or node.attrs.get("interpolation_mode") == 1:
        return True
    return node.attrs.get("exponent" if node.op == "pow" else "p") == 0 and node.op in {"cdist", "pdist", "pow"}


def _count_normalised(node: Node) -> object:
    """Return the number of entries that an operation normalizes at a time, if any."""
    if node.op.startswith(_ATTENTION):
        keys = next((slot.shape for slot in node.saved if slot.slot == "key"), None)
        return keys[_KEYS] if keys else None
    return _NORMALISING[node.op](node.attrs, node.outputs[0].shape or ()) if node.op in _NORMALISING else None


def _has_two_bounds(node: Node) -> bool:
    """Return whether an operation limits values on both sides, unlike a relu with an upper bound."""
    if node.op == "hardtanh":
        return bool(node.attrs["min_val"] != 0)
    return node.attrs.get("min") is not None and node.attrs.get("max") is not None


_MOST_STEPS: Final = 1000
# The input slot of the first of the two matrices.
_MATRICES: Final[Mapping[str, int]] = {"addbmm": 1, "addmm": 1, "baddbmm": 1, "bmm": 0, "mm": 0}
Sizes: TypeAlias = "tuple[int, ...]"
# A value and one of its dimensions, ``None`` if unknown.
_At: TypeAlias = "tuple[Value, int | None]"


def is_of_input(flow: Flow, value: Value, dim: int) -> bool:
    """Return whether a value has one entry along a dimension because an input of the forward has one."""
    start: _At = value, dim % max(len(_shape(flow, value)), 1)
    for at, place in islice(find_reachable([start], partial(_trace_single_entry, flow)), _MOST_STEPS):
        step = flow.step_of(at)
        # A step without inputs makes an input, as in `model(torch.randn(1, 3))`.
        is_input = not step.inputs if step is not None else flow.outside[at.number].role == "input"
        shape = _shape(flow, at) if is_input else ()
        # If a view hides the dimension, any dimension of one entry counts.
        ones = [each for each, size in enumerate(shape) if size == 1] if place is None else [place]
        # With several sequences of one entry, the program itself chose that length.
        if is_input and any(prod(size for each, size in enumerate(shape[:-1]) if each != one) == 1 for one in ones):
            return True
    return False


def _trace_single_entry(flow: Flow, at: _At) -> Iterator[_At]:
    """Yield the inputs that give a value its single entry, with their dimensions."""
    (value, dim), step = at, flow.step_of(at[0])
    if step is None:
        return
    shapes = [_shape(flow, read.value) for read in step.inputs]
    places: list[int | None] = [None] * len(shapes)
    if dim is not None:
        # Some overloads have other arguments.
        with suppress(IndexError, KeyError, TypeError, ZeroDivisionError):
            places = _map_dims(step, _shape(flow, value), dim, shapes)
    for read, shape, place in zip(step.inputs, shapes, places, strict=False):
        # If an input has more entries, the operation itself reduced them to one.
        if place is None or (0 <= place < len(shape) and shape[place] == 1):
            yield read.value, place


def _map_dims(step: Step, shape: Sizes, dim: int, shapes: list[Sizes]) -> list[int | None]:
    """Return the dimension of each input that an output dimension comes from; -1 for none, ``None`` if unknown."""
    name, given = plain_name(step.func), dict[str, Any](step.constants)
    if name in _MATRICES:
        last = len(shape) - 1
        left, right = (-1, dim) if dim == last else (dim, -1) if dim == last - 1 else (dim, dim)
        return [*[-1] * _MATRICES[name], left, right]
    if name in _BY_NAME:
        return _BY_NAME[name](given, shape, dim, shapes)
    if len(shapes) == 1 and len(shape) < len(shapes[0]):
        reduced, rank = given.get("dim", ()), len(shapes[0])
        dims = {each % rank for each in (reduced if isinstance(reduced, (tuple, list)) else (reduced,))}
        remaining = [each for each in range(rank) if each not in dims]
        return [remaining[dim] if len(remaining) == len(shape) else None]
    return [dim - (len(shape) - len(each)) for each in shapes]


def _swap_dims(given: Mapping[str, Any], shape: Sizes, dim: int, _: list[Sizes]) -> list[int | None]:
    one, other = (given[key] % len(shape) for key in ("dim0", "dim1"))
    return [{one: other, other: one}.get(dim, dim)]


def _drop_new_dim(given: Mapping[str, Any], shape: Sizes, dim: int, shapes: list[Sizes]) -> list[int | None]:
    new = given.get("dim", 0) % len(shape)
    return [-1 if dim == new else dim - (dim > new)] * len(shapes)


_VIEWS: Final = ("reshape", "unsafe_view", "view")
# Take arguments, output shape, dimension and input shapes, and return the dimension of each input.
_BY_NAME: Final[Mapping[str, Callable[[Mapping[str, Any], Sizes, int, list[Sizes]], list[int | None]]]] = {
    **dict.fromkeys(_VIEWS, lambda _, shape, dim, shapes: [_map_view_dim(shapes[0], shape, dim)]),
    **dict.fromkeys(("stack", "unsqueeze"), _drop_new_dim),
    "convolution": lambda _, __, dim, ___: [-1, 0] if dim == 1 else [dim, -1],
    "embedding": lambda _, shape, dim, __: [1, -1] if dim == len(shape) - 1 else [-1, dim],
    "permute": lambda given, shape, dim, _: [given["dims"][dim] % len(shape)],
    "t": lambda _, __, dim, ___: [1 - dim],
    "transpose": _swap_dims,
}


def _map_view_dim(source: Sizes, shape: Sizes, dim: int) -> int | None:
    from_end = len(shape) - dim
    found = {dim} if source[: dim + 1] == shape[: dim + 1] else set[int]()
    if source[-from_end:] == shape[dim:]:
        found.add(len(source) - from_end)
    return found.pop() if len(found) == 1 else None


def _shape(flow: Flow, value: Value) -> Sizes:
    return tuple(size if isinstance(size, int) else 0 for size in flow.meta_of(value).shape or ())
