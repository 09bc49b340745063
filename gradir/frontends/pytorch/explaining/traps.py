"""Explain with saved tensors why a gradient is infinite, NaN or zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Final

import torch

from gradir.frontends.pytorch.explaining.gradients import Gradients
from gradir.frontends.pytorch.explaining.magnitudes import is_zero
from gradir.frontends.pytorch.private import ACCUMULATOR, SAVED, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.attributes import neutral_name, to_signed
from gradir.frontends.pytorch.reading.saved import read_saved_tensor
from gradir.frontends.pytorch.reading.tensors import PLAIN, read_stored_values
from gradir.frontends.pytorch.reading.walk import GradFn, find_only_input
from gradir.frontends.pytorch.recording.steps import SHOWING
from gradir.frontends.walks import follow
from gradir.ir import Node, Ref
from gradir.vocabulary.operations import OWN_NAMES

_VIEWS: Final = frozenset({"Clone", "Expand", "Permute", "Transpose", "Unsqueeze", "UnsafeView", "View"})
_MOST_VIEWS: Final = 8
ITS_RESULT: Final = "its result is NaN or infinite already"


def explain_undefined(fn: GradFn) -> str:
    """Return why the derivative of a function is not finite, if its saved tensors show it.

    >>> w = torch.zeros(2, requires_grad=True)
    >>> explain_undefined(w.sqrt().grad_fn), explain_undefined((w + 1).sqrt().grad_fn)
    ('its input is 0 somewhere, where its derivative is infinite', '')
    """
    explain = _TRAPS.get(stem(fn))
    try:
        reason = explain(fn) if explain is not None else ""
    except RuntimeError:
        # Saved tensors of some kinds cannot be compared.
        return ""
    return reason or (ITS_RESULT if _is_nonfinite(read_saved_tensor(fn, "result")) else "")


def find_first_undefined(fns: Iterable[GradFn]) -> GradFn | None:
    """Return the first function with a nonfinite result in the forward pass, such as a division by 0."""
    found = (fn for fn in fns if stem(fn) in _UNDEFINED and explain_undefined(fn))
    return min(found, key=sequence_number, default=None)


def stem(fn: GradFn) -> str:
    """Return the class name of a function without its suffix."""
    return type(fn).__name__.removesuffix("Backward0").removesuffix("Backward1")


def explain_nonfinite(
    live: LiveGraph, fn: GradFn, mask: GradFn | None, made: GradFn | None, line: Callable[[GradFn], str]
) -> tuple[str, str]:
    """Return the kind of cause of an infinite or NaN gradient in a function, and its details.

    ``mask`` sends zeros back to the function, and ``made`` gave it NaN or infinity in the forward pass.
    """
    softmax = fn if made is None else made
    masking = _find_full_mask(softmax)
    if masking is not None:
        masker, at = _describe(live, masking, line), _describe(live, softmax, line)
        return "all_masked", f"{masker} leaves nothing in some row for {at}"
    details = [explain_undefined(fn)]
    for other, effect in ((mask, "takes another value there"), (made, "gave NaN or infinity in the forward already")):
        if other is not None:
            reason = explain_undefined(other)
            details.append(f"{_describe(live, other, line)} {effect}{f', as {reason}' if reason else ''}")
    return "nonfinite" if mask is None else "where_trap", "; ".join(filter(None, details))


def _describe(live: LiveGraph, fn: GradFn, line: Callable[[GradFn], str]) -> str:
    op = live.graph.nodes[live.grad_fns[fn]].op
    return f"`{OWN_NAMES.get(op, op)}` {line(fn)}".rstrip()


def _find_full_mask(softmax: GradFn) -> GradFn | None:
    """Return the function that masks a whole row before a softmax whose result is NaN."""
    masking = softmax.next_functions[0][0] if stem(softmax) in {"LogSoftmax", "Softmax"} else None
    result, mask = read_saved_tensor(softmax, "result"), None
    if masking is not None and type(masking).__name__ == "WhereBackward0":
        condition = read_saved_tensor(masking, "condition")
        mask = None if condition is None or masking.next_functions[1][0] is not None else ~condition
    elif masking is not None:
        mask = read_saved_tensor(masking, "mask")
    if mask is None or result is None or mask.dtype is not torch.bool:
        return None
    is_empty = mask.expand_as(result).all(to_signed(getattr(softmax, f"{SAVED}dim")), keepdim=True)
    return masking if bool((is_empty & result.isnan()).any()) else None


def is_saturated(fn: GradFn) -> bool:
    """Return whether every result of a softmax is 0 or 1 without a mask."""
    result = read_saved_tensor(fn, "result") if stem(fn) == "Softmax" else None
    below = islice(follow(fn, find_only_input), 1, _MOST_VIEWS)
    maker = next((each for each in below if stem(each) not in _VIEWS), None)
    if result is None or maker is None or stem(maker) in {"Add", "MaskedFill", "Where"}:
        return False
    return bool(((result == 0) | (result == 1)).all())


def _explain_if_equal(name: str, number: float, reason: str) -> Callable[[GradFn], str]:
    def explain(fn: GradFn) -> str:
        saved = read_saved_tensor(fn, name)
        return reason if saved is not None and bool((saved.abs() == number).any()) else ""

    return explain


def _explain_logarithm(fn: GradFn) -> str:
    argument = read_saved_tensor(fn, "self")
    if argument is None or argument.is_complex():
        return ""
    if bool((argument < 0).any()):
        return "its input is below 0 somewhere, where it is NaN"
    return f"its input is 0 somewhere{_INFINITE}" if bool((argument == 0).any()) else ""


def _explain_power(fn: GradFn) -> str:
    base, is_number = read_saved_tensor(fn, "self"), type(fn).__name__ == "PowBackward0"
    exponent = getattr(fn, f"{SAVED}exponent", None) if is_number else read_saved_tensor(fn, "exponent")
    if base is None or exponent is None or isinstance(exponent, complex):
        return ""
    power = torch.as_tensor(exponent)
    if bool(((base == 0) & (power < 1) & (power != 0)).any()):
        return "its base is 0 somewhere, where the derivative of a power below 1 is infinite"
    is_unreal = bool(((base < 0) & (power != power.round())).any())
    return "its base is below 0 somewhere, where only whole powers are real" if is_unreal else ""


def _explain_spread(fn: GradFn) -> str:
    values, dims = read_saved_tensor(fn, "self"), getattr(fn, f"{SAVED}dim", None)
    if values is None:
        return ""
    count = math.prod(values.shape[to_signed(dim)] for dim in dims) if dims else values.numel()
    return "it is over a single number, which has no spread (0 / 0)" if count == 1 else ""


_INFINITE: Final = ", where its derivative is infinite"
_DIVISOR: Final = "its input, which it divides by, is 0 or almost 0 somewhere"
_TRAPS: Final[dict[str, Callable[[GradFn], str]]] = {
    "Sqrt": _explain_if_equal("result", 0.0, f"its input is 0 somewhere{_INFINITE}"),
    **dict.fromkeys(("Log", "Log2", "Log10"), _explain_logarithm),
    **dict.fromkeys(("Rsqrt", "Reciprocal"), _explain_if_equal("result", math.inf, _DIVISOR)),
    "Div": _explain_if_equal("other", 0.0, "its divisor is 0 somewhere"),
    "Pow": _explain_power,
    **dict.fromkeys(("Acos", "Asin"), _explain_if_equal("self", 1.0, f"its input is 1 or -1 somewhere{_INFINITE}")),
    **dict.fromkeys(("Std", "Var"), _explain_spread),
    "Mean": lambda fn: "it is over nothing (0 / 0)" if getattr(fn, f"{SAVED}self_sym_numel", 1) == 0 else "",
}

# These also have a nonfinite result.
_UNDEFINED: Final = _TRAPS.keys() - {"Acos", "Asin", "Pow", "Sqrt"}


def _is_nonfinite(tensor: torch.Tensor | None) -> bool:
    values = None if tensor is None else read_stored_values(tensor)
    return values is not None and values.is_floating_point() and not bool(values.isfinite().all())


# Saved tensors that multiply a gradient.
_FACTORS: Final = ("self", "other", "mat1", "mat2", "vec", "input", "weight", "batch1", "batch2")
_MULTIPLYING: Final = frozenset({"addmm", "bmm", "convolution", "div", "mean", "mm", "mse_loss", "mul", "mv", "pow"})
# The product of a smaller gradient with usual values may underflow in float16.
_SMALL: Final = 2.0**-9
_LARGE: Final = 1e15
_NEAR: Final = 2**7


def underflows(fn: GradFn, node: Node, gradients: Gradients) -> bool:
    """Return whether a function makes a gradient zero because the product underflows in its dtype."""
    incoming = gradients.came_to(fn)
    if node.op == "to_copy":
        # A conversion multiplies by 1.
        return incoming > 0
    return 0 < incoming < _SMALL and _is_half_product(node) and not any(map(is_zero, _factors(fn)))


def vanishes(fn: GradFn, node: Node, gradients: Gradients) -> bool:
    """Return whether a gradient arrives at a function so small that almost any factor makes it zero."""
    dtype = getattr(torch, node.outputs[0].dtype or "", None) if node.outputs else None
    # In float16 that is a usual size; see `underflows`.
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or dtype is torch.float16:
        return False
    return 0 < gradients.came_to(fn) < _NEAR * torch.finfo(dtype).tiny


def overflows(fn: GradFn, node: Node) -> bool:
    """Return whether a function makes a gradient infinite in float16 although all its factors are finite."""
    return _is_half_product(node) and all(math.isfinite(_largest(factor)) for factor in _factors(fn))


def _is_half_product(node: Node) -> bool:
    return bool(node.outputs) and node.outputs[0].dtype == "float16" and node.op in _MULTIPLYING


def grows(fns: Iterable[GradFn], gradients: Gradients) -> bool:
    """Return whether values or gradients in the functions of a loop grow to the end of their range."""
    for fn in fns:
        passed = gradients.flow_through(fn)
        sizes = [size.largest for size in (*passed.came, *passed.went) if size is not None]
        if any(_LARGE < size < math.inf for size in (*sizes, *map(_largest, _factors(fn)))):
            return True
    return False


def _factors(fn: GradFn) -> list[torch.Tensor]:
    found = (read_saved_tensor(fn, name) for name in _FACTORS)
    return [tensor for tensor in found if tensor is not None and tensor.is_floating_point() and tensor.numel()]


def _largest(tensor: torch.Tensor) -> float:
    return float(read_stored_values(tensor.detach()).abs().max())


_FINITE: Final = "finite"
# All values are finite or -inf, the usual fill value of a mask.
_FILLED: Final = "filled"
_NONFINITE: Final = "broken"

# Functions that may leave out or replace NaN and infinity.
_CHOOSING: Final = frozenset[str]().union(
    ("Amax", "Amin", "Clamp", "ClampMax", "ClampMin", "Gather", "Hardtanh", "Index", "IndexSelect", "MaskedFill"),
    ("MaskedScatter", "MaskedSelect", "Max", "Maximum", "Min", "Minimum", "NanToNum", "NllLoss", "Select"),
    ("Slice", "Split", "Topk", "Unbind", "Where"),
)

# Programs use these to fill entries that a softmax should ignore with -inf.
_FILLING: Final = frozenset({"Add", "MaskedFill", "MaskedScatter", "Where"})

# Saved tensors that are inputs of the function.
_INPUTS: Final = frozenset({"batch1", "batch2", "input", "mat1", "mat2", "other", "self", "target", "weight"})

# The saved factors of a product.
_PRODUCTS: Final[Mapping[str, tuple[str, str]]] = {
    "Addmm": ("mat1", "mat2"),
    **dict.fromkeys(("Bmm", "Mm"), ("self", "mat2")),
    "Mul": ("self", "other"),
}

_BOUNDED: Final = frozenset({"LogSoftmax", "Relu", "Sigmoid", "Softmax", "Tanh"})


class NonfiniteOrigins:
    """Knows which forward values are finite, from the saved tensors of a graph."""

    def __init__(self, live: LiveGraph) -> None:
        self._live = live

    def find_first_nonfinite(self, fn: GradFn) -> GradFn | None:
        """Return the first function in the forward pass that provably gave another one NaN or infinity."""
        current, seen = fn, {fn}
        while inputs := list(self._find_nonfinite_inputs(current, seen)):
            current = min(inputs, key=sequence_number)
        return None if current is fn else current

    def explain(self, fn: GradFn) -> tuple[str, str]:
        """Return the cause of the first NaN or infinity, and the reason if known."""
        reason = explain_undefined(fn)
        if reason and reason != ITS_RESULT:
            return "born", reason
        leaf = self._find_nonfinite_leaf(fn)
        if leaf:
            return "born", f"{leaf} contains NaN or infinity already, as after a step with such a gradient"
        if self._has_nonfinite_input(fn):
            return "nonfinite_input", ""
        result = read_saved_tensor(fn, "result")
        large = result is not None and bool(read_stored_values(result).isinf().any())
        return "born", "its result is too large for its dtype" if large or self._is_product_too_large(fn) else ""

    @cached_property
    def _states(self) -> dict[Ref, str]:
        found: dict[Ref, str] = {}
        for fn, node_id in self._live.grad_fns.items():
            for slot in self._live.graph.nodes[node_id].saved:
                tensor = read_saved_tensor(fn, slot.slot) if slot.origin is not None else None
                if slot.origin is not None and slot.origin not in found and tensor is not None:
                    found[slot.origin] = self._state_of(tensor)
            # A result has no grad_fn yet when its function saves it.
            result = read_saved_tensor(fn, "result")
            if result is not None:
                found.setdefault(Ref(node_id, 0), self._state_of(result))
        return found

    def _has_nonfinite_input(self, fn: GradFn) -> bool:
        """Return whether a function saved a nonfinite input that no function of the graph made."""
        slots = self._live.graph.nodes[self._live.grad_fns[fn]].saved
        found = (read_saved_tensor(fn, slot.slot) for slot in slots if slot.origin is None and slot.slot in _INPUTS)
        return any(tensor is not None and self._state_of(tensor) == _NONFINITE for tensor in found)

    def _find_nonfinite_leaf(self, fn: GradFn) -> str:
        """Return the name of a nonfinite leaf that a function takes, or an empty text."""
        for child, _ in fn.next_functions:
            taken = child
            while taken is not None and neutral_name(type(taken).__name__) in SHOWING:
                taken = taken.next_functions[0][0]
            leaf = taken.variable if taken is not None and type(taken).__name__ == ACCUMULATOR else None
            if leaf is not None and self._state_of(leaf) == _NONFINITE:
                ids = [id_ for id_, each in self._live.leaves.items() if each is leaf]
                return next((name for id_ in ids for name in self._live.graph.nodes[id_].names), "a leaf")
        return ""

    def _find_nonfinite_inputs(self, fn: GradFn, seen: set[GradFn]) -> Iterator[GradFn]:
        """Yield the nearest functions below another one whose results are proven to be nonfinite."""
        # These prove a nonfinite result that no function saved.
        inputs = (self._find_nonfinite_leaf, self._has_nonfinite_input, self._is_product_too_large)
        proofs = (lambda each: find_first_undefined([each]) is not None, *inputs)
        # These have finite results for finite inputs.
        known = _FILLED if stem(fn) in _BOUNDED else ""
        waiting = [(edge, known) for edge in fn.next_functions]
        while waiting:
            (child, number), known = waiting.pop()
            if child is None or child in seen or type(child).__name__ == ACCUMULATOR:
                continue
            state = known or self._states.get(Ref(self._live.grad_fns[child], number), "")
            if state == _FINITE or (state == _FILLED and stem(child) in _FILLING):
                continue
            seen.add(child)
            if _passes(child) and (state or stem(child) not in _CHOOSING):
                waiting.extend((edge, state) for edge in child.next_functions)
            elif state or (stem(fn) not in _CHOOSING and any(proves(child) for proves in proofs)):
                yield child
            elif stem(child) not in _CHOOSING:
                waiting.extend((edge, "") for edge in child.next_functions)

    def _is_product_too_large(self, fn: GradFn) -> bool:
        names = _PRODUCTS.get(stem(fn))
        factors = [tensor for tensor in (read_saved_tensor(fn, name) for name in names or ()) if tensor is not None]
        # A tensor subclass may do more than multiply, such as communicate.
        if len(factors) < 2 or not all(type(each) in PLAIN and each.layout is torch.strided for each in factors):
            return False
        if any(self._state_of(factor) != _FINITE for factor in factors):
            return False
        one, other = factors
        with torch.no_grad():
            product = one * other if stem(fn) == "Mul" else one @ other
        return self._state_of(product) == _NONFINITE

    def _state_of(self, tensor: torch.Tensor) -> str:
        values = read_stored_values(tensor)
        if not values.is_floating_point() or bool(values.isfinite().all()):
            return _FINITE
        return _NONFINITE if bool((values.isnan() | (values == torch.inf)).any()) else _FILLED


def _passes(fn: GradFn) -> bool:
    """Return whether a function gives the values of its input, or divides them by a number."""
    is_view = neutral_name(type(fn).__name__) in SHOWING
    return is_view or (stem(fn) == "Div" and find_only_input(fn) is not None and not explain_undefined(fn))
