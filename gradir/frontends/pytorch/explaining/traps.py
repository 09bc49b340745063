"""What makes a gradient infinite, NaN or zero, and what gave that first, as far as what was saved proves it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

import torch

from gradir.frontends.pytorch.explaining.gradients import Gradients
from gradir.frontends.pytorch.explaining.magnitudes import is_zero
from gradir.frontends.pytorch.private import ACCUMULATOR, SAVED, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.attributes import neutral_name, to_signed
from gradir.frontends.pytorch.reading.saved import saved_tensor
from gradir.frontends.pytorch.reading.tensors import PLAIN, numbers_in
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.steps import SHOWING
from gradir.ir import Node, Ref
from gradir.vocabulary.operations import OWN_NAMES

ITS_RESULT: Final = "its result is NaN or infinite already"

_SOFTMAXES: Final = frozenset({"LogSoftmaxBackward0", "SoftmaxBackward0"})


def why_undefined(fn: GradFn) -> str:
    """Return why the derivative of a function is not finite, if its saved tensors tell.

    >>> w = torch.zeros(2, requires_grad=True)
    >>> why_undefined(w.sqrt().grad_fn), why_undefined((w + 1).sqrt().grad_fn)
    ('its input is 0 somewhere, where its derivative is infinite', '')
    """
    found = _TRAPS.get(stem(fn))
    try:
        words = found(fn) if found is not None else ""
    except RuntimeError:
        # What was saved is of a kind that cannot be compared.
        return ""
    return words or (ITS_RESULT if _is_broken(saved_tensor(fn, "result")) else "")


def first_undefined(fns: Iterable[GradFn]) -> GradFn | None:
    """Return the first of some functions that gave what is not finite in the forward, as dividing by 0 does."""
    found = (fn for fn in fns if stem(fn) in _UNDEFINED and why_undefined(fn))
    return min(found, key=sequence_number, default=None)


def stem(fn: GradFn) -> str:
    """Return what a function is called, without its end."""
    return type(fn).__name__.removesuffix("Backward0").removesuffix("Backward1")


def why_nonfinite(
    live: LiveGraph, fn: GradFn, mask: GradFn | None, made: GradFn | None, line: Callable[[GradFn], str]
) -> tuple[str, str]:
    """Return the kind of cause that makes a gradient infinite or NaN in a function, and its details."""
    # The mask sends zeros back to the function, and the other one gave it NaN or infinity in the forward already.
    softmax = fn if made is None else made
    masking = _mask_of_all(softmax)
    if masking is not None:
        masker, at = f"`{_operation(live, masking)}` {line(masking)}".rstrip(), line(softmax)
        return "all_masked", f"{masker} leaves nothing in some row for `{_operation(live, softmax)}` {at}".rstrip()
    told = [why_undefined(fn)]
    for other, words in ((mask, "takes another value there"), (made, "gave NaN or infinity in the forward already")):
        if other is not None:
            at, why = line(other), why_undefined(other)
            told.append(f"`{_operation(live, other)}` {at}{' ' if at else ''}{words}{f', as {why}' if why else ''}")
    return "nonfinite" if mask is None else "where_trap", "; ".join(filter(None, told))


def _operation(live: LiveGraph, fn: GradFn) -> str:
    op = live.graph.nodes[live.grad_fns[fn]].op
    return OWN_NAMES.get(op, op)


def _mask_of_all(softmax: GradFn) -> GradFn | None:
    """Return the function that fills a whole row before a softmax, if its result is NaN."""
    masking = softmax.next_functions[0][0] if type(softmax).__name__ in _SOFTMAXES else None
    result, mask = saved_tensor(softmax, "result"), None
    if masking is not None and type(masking).__name__ == "WhereBackward0":
        taken = saved_tensor(masking, "condition")
        mask = None if taken is None or masking.next_functions[1][0] is not None else ~taken
    elif masking is not None:
        mask = saved_tensor(masking, "mask")
    if mask is None or result is None or mask.dtype is not torch.bool:
        return None
    nothing = mask.expand_as(result).all(to_signed(getattr(softmax, f"{SAVED}dim")), keepdim=True)
    return masking if bool((nothing & result.isnan()).any()) else None


def _of(name: str, number: float, words: str) -> Callable[[GradFn], str]:
    def describe(fn: GradFn) -> str:
        saved = saved_tensor(fn, name)
        return words if saved is not None and bool((saved.abs() == number).any()) else ""

    return describe


def _of_logarithm(fn: GradFn) -> str:
    argument = saved_tensor(fn, "self")
    if argument is None or argument.is_complex():
        return ""
    if bool((argument < 0).any()):
        return "its input is below 0 somewhere, where it is NaN"
    return f"its input is 0 somewhere{_INFINITE}" if bool((argument == 0).any()) else ""


def _of_power(fn: GradFn) -> str:
    base, is_number = saved_tensor(fn, "self"), type(fn).__name__ == "PowBackward0"
    exponent = getattr(fn, f"{SAVED}exponent", None) if is_number else saved_tensor(fn, "exponent")
    if base is None or exponent is None or isinstance(exponent, complex):
        return ""
    power = torch.as_tensor(exponent)
    if bool(((base == 0) & (power < 1) & (power != 0)).any()):
        return "its base is 0 somewhere, where the derivative of a power below 1 is infinite"
    is_unreal = bool(((base < 0) & (power != power.round())).any())
    return "its base is below 0 somewhere, where only whole powers are real" if is_unreal else ""


def _of_spread(fn: GradFn) -> str:
    values, dims = saved_tensor(fn, "self"), getattr(fn, f"{SAVED}dim", None)
    if values is None:
        return ""
    count = math.prod(values.shape[to_signed(dim)] for dim in dims) if dims else values.numel()
    return "it is over a single number, which has no spread (0 / 0)" if count == 1 else ""


_INFINITE: Final = ", where its derivative is infinite"
_DIVISOR: Final = "its input, which it divides by, is 0 or almost 0 somewhere"
_TRAPS: Final[dict[str, Callable[[GradFn], str]]] = {
    "Sqrt": _of("result", 0.0, f"its input is 0 somewhere{_INFINITE}"),
    **dict.fromkeys(("Log", "Log2", "Log10"), _of_logarithm),
    **dict.fromkeys(("Rsqrt", "Reciprocal"), _of("result", math.inf, _DIVISOR)),
    "Div": _of("other", 0.0, "what it divides by is 0 somewhere"),
    "Pow": _of_power,
    **dict.fromkeys(("Acos", "Asin"), _of("self", 1.0, f"its input is 1 or -1 somewhere{_INFINITE}")),
    **dict.fromkeys(("Std", "Var"), _of_spread),
    "Mean": lambda fn: "it is over nothing (0 / 0)" if getattr(fn, f"{SAVED}self_sym_numel", 1) == 0 else "",
}

# The result of these is spoilt, too.
_UNDEFINED: Final = _TRAPS.keys() - {"Acos", "Asin", "Pow", "Sqrt"}


def _is_broken(tensor: torch.Tensor | None) -> bool:
    return tensor is not None and tensor.is_floating_point() and not bool(torch.isfinite(numbers_in(tensor)).all())


# Saved tensors that multiply a gradient.
_FACTORS: Final = ("self", "other", "mat1", "mat2", "vec", "input", "weight", "batch1", "batch2")
_MULTIPLYING: Final = frozenset({"addmm", "bmm", "convolution", "div", "mean", "mm", "mse_loss", "mul", "mv", "pow"})
# The product of a smaller gradient with usual numbers may be too small for float16.
_SMALL: Final = 2.0**-9
_LARGE: Final = 1e15
_NEAR: Final = 2**7


def underflows(fn: GradFn, node: Node, gradients: Gradients) -> bool:
    """Return whether a function makes a gradient zero only because its type has no smaller numbers."""
    came = gradients.came_to(fn)
    if node.op == "to_copy":
        # A conversion multiplies by 1.
        return came > 0
    return 0 < came < _SMALL and _is_product_of_halves(node) and not any(map(is_zero, _factors(fn)))


def vanishes(fn: GradFn, node: Node, gradients: Gradients) -> bool:
    """Return whether a gradient comes to a function so small that next to no factor leaves anything of it."""
    dtype = getattr(torch, node.outputs[0].dtype or "", None) if node.outputs else None
    # In float16 that is a usual size; see `underflows`.
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or dtype is torch.float16:
        return False
    return 0 < gradients.came_to(fn) < _NEAR * torch.finfo(dtype).tiny


def overflows(fn: GradFn, node: Node) -> bool:
    """Return whether a function makes a gradient infinite in float16, although all that it multiplies is finite."""
    return _is_product_of_halves(node) and all(math.isfinite(_largest(factor)) for factor in _factors(fn))


def _is_product_of_halves(node: Node) -> bool:
    return bool(node.outputs) and node.outputs[0].dtype == "float16" and node.op in _MULTIPLYING


def grows(fns: Iterable[GradFn], gradients: Gradients) -> bool:
    """Return whether numbers or gradients of a loop, whose functions these are, grow to the end of their range."""
    for fn in fns:
        passed = gradients.passed(fn)
        sizes = [size.largest for size in (*passed.came, *passed.went) if size is not None]
        if any(_LARGE < size < math.inf for size in (*sizes, *map(_largest, _factors(fn)))):
            return True
    return False


def _factors(fn: GradFn) -> list[torch.Tensor]:
    found = (saved_tensor(fn, name) for name in _FACTORS)
    return [tensor for tensor in found if tensor is not None and tensor.is_floating_point() and tensor.numel()]


def _largest(tensor: torch.Tensor) -> float:
    return float(numbers_in(tensor.detach()).abs().max())


_FINITE: Final = "finite"
# Nothing but -inf beside finite numbers, as a mask fills with.
_FILLED: Final = "filled"
_BROKEN: Final = "broken"

# Functions that may leave out or replace NaN and infinity.
_CHOOSING: Final = frozenset(
    {
        *("Amax", "Amin", "Clamp", "ClampMax", "ClampMin", "Gather", "Hardtanh", "Index", "IndexSelect", "MaskedFill"),
        *("MaskedScatter", "MaskedSelect", "Max", "Maximum", "Min", "Minimum", "NanToNum", "NllLoss", "Select"),
        *("Slice", "Split", "Topk", "Unbind", "Where"),
    }
)

# Programs use these to fill with -inf what a softmax should leave out.
_FILLING: Final = frozenset({"Add", "MaskedFill", "MaskedScatter", "Where"})

# Saved tensors that are inputs of the function.
_INPUTS: Final = frozenset({"batch1", "batch2", "input", "mat1", "mat2", "other", "self", "target", "weight"})

# The saved factors of a product.
_PRODUCTS: Final[Mapping[str, tuple[str, str]]] = {
    "Addmm": ("mat1", "mat2"),
    "Bmm": ("self", "mat2"),
    "Mm": ("self", "mat2"),
    "Mul": ("self", "other"),
}

_BOUNDED: Final = frozenset({"LogSoftmax", "Relu", "Sigmoid", "Softmax", "Tanh"})


class Births:
    """Knows which values of a forward are finite, of what the functions of a graph saved."""

    def __init__(self, live: LiveGraph) -> None:
        self._live = live

    def before(self, fn: GradFn) -> GradFn | None:
        """Return the first function of the forward that provably gave another one NaN or infinity."""
        current, seen = fn, {fn}
        while below := list(self._broken_below(current, seen)):
            current = min(below, key=sequence_number)
        return None if current is fn else current

    def explain(self, fn: GradFn) -> tuple[str, str]:
        """Return the kind of cause that a function is which gave NaN or infinity first, and why, if it is known."""
        words = why_undefined(fn)
        if words and words != ITS_RESULT:
            return "born", words
        holding = self._broken_leaf(fn)
        if holding:
            return "born", f"{holding} holds NaN or infinity already, as after a step with such a gradient"
        if self._has_broken_input(fn):
            return "nonfinite_input", ""
        result = saved_tensor(fn, "result")
        large = result is not None and bool(numbers_in(result).isinf().any())
        return "born", "its result is too large for its dtype" if large or self._is_product_too_large(fn) else ""

    @cached_property
    def _states(self) -> dict[Ref, str]:
        found: dict[Ref, str] = {}
        for fn, node_id in self._live.grad_fns.items():
            for slot in self._live.graph.nodes[node_id].saved:
                tensor = saved_tensor(fn, slot.slot) if slot.origin is not None else None
                if slot.origin is not None and slot.origin not in found and tensor is not None:
                    found[slot.origin] = self._state_of(tensor)
            # What a function saved of its own has no grad_fn while it is saved.
            result = saved_tensor(fn, "result")
            if result is not None:
                found.setdefault(Ref(node_id, 0), self._state_of(result))
        return found

    def _has_broken_input(self, fn: GradFn) -> bool:
        """Return whether a function saved what is not finite, and no function of the graph gave it."""
        slots = self._live.graph.nodes[self._live.grad_fns[fn]].saved
        found = (saved_tensor(fn, slot.slot) for slot in slots if slot.origin is None and slot.slot in _INPUTS)
        return any(tensor is not None and self._state_of(tensor) == _BROKEN for tensor in found)

    def _broken_leaf(self, fn: GradFn) -> str:
        for child, _ in fn.next_functions:
            taken = child
            while taken is not None and neutral_name(type(taken).__name__) in SHOWING:
                taken = taken.next_functions[0][0]
            if taken is not None and type(taken).__name__ == ACCUMULATOR and self._state_of(taken.variable) == _BROKEN:
                ids = [id_ for id_, leaf in self._live.leaves.items() if leaf is taken.variable]
                return next((name for id_ in ids for name in self._live.graph.nodes[id_].names), "a leaf")
        return ""

    def _broken_below(self, fn: GradFn, seen: set[GradFn]) -> Iterator[GradFn]:
        """Yield the nearest functions behind another one whose results are proven to be not finite."""
        # By these it is proven that a function gives what is not finite, though nothing saved its result.
        inputs = (self._broken_leaf, self._has_broken_input, self._is_product_too_large)
        proofs = (lambda each: first_undefined([each]) is not None, *inputs)
        # Of finite numbers these make finite ones.
        given = _FILLED if stem(fn) in _BOUNDED else ""
        waiting = [(edge, given) for edge in fn.next_functions]
        while waiting:
            (child, number), shown = waiting.pop()
            if child is None or child in seen or type(child).__name__ == ACCUMULATOR:
                continue
            state = shown or self._states.get(Ref(self._live.grad_fns[child], number), "")
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
        factors = [tensor for tensor in (saved_tensor(fn, name) for name in names or ()) if tensor is not None]
        # A class of tensors may do more than multiply, such as send its part to others.
        if len(factors) < 2 or not all(type(each) in PLAIN and each.layout is torch.strided for each in factors):
            return False
        if any(self._state_of(factor) != _FINITE for factor in factors):
            return False
        one, other = factors
        with torch.no_grad():
            product = one * other if stem(fn) == "Mul" else one @ other
        return self._state_of(product) == _BROKEN

    def _state_of(self, tensor: torch.Tensor) -> str:
        numbers = numbers_in(tensor)
        if not numbers.is_floating_point() or bool(numbers.isfinite().all()):
            return _FINITE
        return _BROKEN if bool((numbers.isnan() | (numbers == torch.inf)).any()) else _FILLED


def _passes(fn: GradFn) -> bool:
    """Return whether a function gives the numbers of its input, or smaller ones, as dividing by a number does."""
    takes = [child for child, _ in fn.next_functions if child is not None]
    is_shown = neutral_name(type(fn).__name__) in SHOWING
    return is_shown or (stem(fn) == "Div" and len(takes) == 1 and not why_undefined(fn))
