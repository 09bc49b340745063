"""Why gradients become zero, which of them stay so whatever comes in, and which others a later step may change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from math import prod
from typing import Any, Final, TypeAlias

import torch

from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.operands import plain_name
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value
from gradir.ir import Node
from gradir.ir.model import Shape

__all__ = ["STAYING", "Origin", "Zeros"]

Origin: TypeAlias = "tuple[Node, Step | None]"
"""The node of a graph in which a gradient becomes zero, and the step that made it if it was recorded."""

STAYING: Final = frozenset({"adds_up", "flat", "one_entry", "out_of_range", "saturated", "stuck"})
"""The kinds of causes by which a gradient is zero in every step."""

_FLAT: Final = frozenset({"bernoulli", "ceil", "floor", "normal", "poisson", "round", "sgn", "sign", "trunc"})
_SATURATING: Final = frozenset({"hardsigmoid", "sigmoid", "tanh"})
_BOUNDED: Final = frozenset({"clamp", "clamp_max", "clamp_min", "hardtanh", "relu", "threshold"})
_NEAREST: Final = 1
"""The mode of interpolation that takes one entry as it is."""

_NORMALISING: Final[Mapping[str, Callable[[Mapping[str, Any], Shape], object]]] = {
    "log_softmax": lambda attrs, shape: shape[attrs["dim"]] if shape else 1,
    "softmax": lambda attrs, shape: shape[attrs["dim"]] if shape else 1,
    "native_layer_norm": lambda attrs, _: prod(attrs["normalized_shape"]),
    "native_group_norm": lambda attrs, _: attrs["C"] // attrs["group"] * attrs["HxW"],
}
"""How many entries an operation normalises at a time."""

_SUMMANDS: Final = {"addbmm": 0, "addcmul": 0, "addmm": 0, "addmv": 0, "addr": 0, "baddbmm": 0, "convolution": 2}
"""Where the operations that add a product to something have that."""

_PRODUCTS: Final = frozenset({*_SUMMANDS, "bmm", "dot", "mm", "mul", "mv"})
_SUMS: Final = frozenset({"add", "cat", "stack", "sub"})
_OF_ZERO_ZERO: Final = frozenset({"clone", "gelu", "mean", "neg", "relu", "silu", "sum", "tanh", "unsafe_view"})

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
"""The kinds of causes by which an operation gives a zero that other numbers would change."""

_ROUNDS: Final = 3
"""How often leaves are taken back that turn out to be free to change."""


class Zeros:
    """Knows of the operations in which gradients become zero whether they do so in every step.

    They do where the recorded forward says so: a derivative that is zero everywhere, one entry to normalise, a value
    outside its range which is computed of parameters alone, or factors each of which waits for the other to change.
    """

    def __init__(
        self,
        flow: Flow,
        flowing: Flowing,
        named: Collection[Value],
        starting: Set[Value],
        waiting: Mapping[Value, Sequence[Origin]],
    ) -> None:
        """``named`` are the leaves that have a name.

        ``starting`` are those that are zero throughout and get a gradient that is not; ``waiting`` those that are zero
        and get one of zero, with where that arises.
        """
        self._flow = flow
        self._flowing = flowing
        self._named = named
        self._starting = starting
        self._fixed: dict[Value, bool] = {}
        self._kept: dict[Value, bool] = {}
        self._stuck = frozenset(waiting)
        for _ in range(_ROUNDS):
            self._kept.clear()
            stuck = frozenset(leaf for leaf in self._stuck if all(map(self._is_stuck, waiting[leaf])))
            if stuck == self._stuck:
                return
            self._stuck = stuck
        self._stuck = frozenset()
        self._kept.clear()

    def kind(self, origin: Origin) -> str:
        """The kind of cause by which a gradient becomes zero here."""
        return self._kind_of_staying(*origin) or self._kind_of_now(*origin)

    def _kind_of_staying(self, node: Node, step: Step | None) -> str:
        if node.op in _FLAT or node.attrs.get("rounding_mode") or node.attrs.get("interpolation_mode") == _NEAREST:
            return "flat"
        if node.op in _SATURATING:
            return "saturated"
        if node.op in _NORMALISING and _NORMALISING[node.op](node.attrs, node.outputs[0].shape or ()) == 1:
            return "one_entry"
        if node.op in _BOUNDED and (_has_two_bounds(node) or self._is_given(step)):
            return "out_of_range"
        return "stuck" if self._is_stuck((node, step)) else ""

    def _kind_of_now(self, node: Node, step: Step | None) -> str:
        if step is not None and not self._starting.isdisjoint(self._multiplied(step)):
            return "starting"
        if step is not None and self._takes_nothing(step):
            return "empty"
        return _NOW.get(node.op, "zero")

    def _is_given(self, step: Step | None) -> bool:
        """Whether what an operation takes does not depend on what comes in."""
        return step is not None and self._is_fixed(step.inputs[0].value)

    def _takes_nothing(self, step: Step) -> bool:
        """Whether an operation takes a tensor without an entry, or gives one."""
        metas = (*(self._flow.meta_of(read.value) for read in step.inputs), *step.outputs)
        return any(0 in (meta.shape or ()) for meta in metas)

    def _multiplied(self, step: Step) -> Iterator[Value]:
        """What an operation multiplies, as it was before views of it were made."""
        return map(self._flowing.root, map(self._flow.owner_of, _factors(step)))

    def _is_stuck(self, origin: Origin) -> bool:
        """Whether an operation multiplies zeros that stay zero as long as the others do."""
        step = origin[1]
        if step is None or plain_name(step.func) not in _PRODUCTS:
            return False
        factors = _factors(step)
        return len(factors) > 1 and all(map(self._is_kept_zero, factors))

    def _is_kept_zero(self, value: Value) -> bool:
        return self._folded(value, self._kept, self._stuck, _needed_for_zero)

    def _is_fixed(self, value: Value) -> bool:
        """Whether a value is computed of parameters and constants alone."""
        return self._folded(value, self._fixed, self._named, _needed_to_be_fixed)

    def _folded(
        self,
        value: Value,
        known: dict[Value, bool],
        leaves: Collection[Value],
        needed: Callable[[Step], Sequence[Sequence[Value]] | None],
    ) -> bool:
        """Whether a value has what some leaves have; of each group of values that a step needs, one must have it."""
        waiting = [value]
        while waiting:
            at = waiting[-1]
            leaf = self._flowing.root(at)
            is_leaf = leaf.maker == FROM_OUTSIDE or leaf in self._named
            step = None if is_leaf else self._flow.steps[leaf.maker]
            groups = None if step is None else needed(step)
            missing = [one for group in groups or () for one in group if one not in known]
            if missing and at not in known:
                waiting.extend(missing)
                continue
            if at not in known:
                holds = leaf in leaves if step is None else groups is not None
                known[at] = holds and all(any(known[one] for one in group) for group in groups or ())
            waiting.pop()
        return known[value]


def _factors(step: Step) -> list[Value]:
    summand = _SUMMANDS.get(plain_name(step.func))
    return [read.value for slot, read in enumerate(step.inputs) if slot != summand]


def _needed_for_zero(step: Step) -> Sequence[Sequence[Value]] | None:
    name = plain_name(step.func)
    values = [read.value for read in step.inputs]
    if name in _PRODUCTS:
        factors = _factors(step)
        return [factors, *([value] for value in values if value not in factors)]
    if name in _SUMS or (len(values) == 1 and (name in _OF_ZERO_ZERO or "view" in step.kinds)):
        return [[value] for value in values]
    return None


def _needed_to_be_fixed(step: Step) -> Sequence[Sequence[Value]] | None:
    # What is made of nothing may be other numbers in the next step.
    is_drawn = torch.Tag.nondeterministic_seeded in getattr(step.func, "tags", ())
    return None if is_drawn or not step.inputs or "inplace" in step.kinds else [[read.value] for read in step.inputs]


def _has_two_bounds(node: Node) -> bool:
    """Whether an operation keeps values between two numbers, and is no relu with a bound."""
    if node.op == "hardtanh":
        return bool(node.attrs["min_val"] != 0)
    return node.attrs.get("min") is not None and node.attrs.get("max") is not None
