"""Which operation of a forward gave NaN or infinity first, as far as what the functions saved proves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import torch

from gradir.frontends.pytorch.explaining.traps import ITS_RESULT, first_undefined, stem, trap
from gradir.frontends.pytorch.private import ACCUMULATOR, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.saved import saved_tensor
from gradir.frontends.pytorch.reading.tensors import PLAIN, numbers_in
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.ir import Ref

__all__ = ["Births"]

_FINITE: Final = "finite"
_FILLED: Final = "filled"
"""Nothing but -inf beside what is finite, as a mask fills with."""
_BROKEN: Final = "broken"

_CHOOSING: Final = frozenset(
    {
        *("Amax", "Amin", "Clamp", "ClampMax", "ClampMin", "Gather", "Hardtanh", "Index", "IndexSelect", "MaskedFill"),
        *("MaskedScatter", "MaskedSelect", "Max", "Maximum", "Min", "Minimum", "NanToNum", "NllLoss", "Select"),
        *("Slice", "Split", "Topk", "Unbind", "Where"),
    }
)
"""Functions that may leave out or replace what is not finite."""

_FILLING: Final = frozenset({"Add", "MaskedFill", "MaskedScatter", "Where"})
"""Functions by which a program fills with -inf what a softmax is to leave out."""

_SHOWING: Final = frozenset(
    {
        *("Alias", "Clone", "Expand", "Permute", "Select", "Slice", "Split", "Squeeze", "T", "ToCopy", "Transpose"),
        *("Unbind", "UnsafeView", "Unsqueeze", "View"),
    }
)
"""Functions that give numbers of their input and no others."""

_INPUTS: Final = frozenset({"batch1", "batch2", "input", "mat1", "mat2", "other", "self", "target", "weight"})
"""What functions save of what they take."""

_PRODUCTS: Final[Mapping[str, tuple[str, str]]] = {
    "Addmm": ("mat1", "mat2"),
    "Bmm": ("self", "mat2"),
    "Mm": ("self", "mat2"),
    "Mul": ("self", "other"),
}
"""By function the factors that it saved."""


_BOUNDED: Final = frozenset({"LogSoftmax", "Relu", "Sigmoid", "Softmax", "Tanh"})


class Births:
    """Knows which values of a forward are finite, of what the functions of a graph saved."""

    def __init__(self, live: LiveGraph) -> None:
        self._live = live

    def before(self, fn: GradFn) -> GradFn | None:
        """Return the function of the forward that first gave what reached another one as NaN or infinity.

        Nothing is returned where what the other one took is finite, or where nothing saved proves that it is not.
        """
        current, seen = fn, {fn}
        while below := list(self._broken_below(current, seen)):
            current = min(below, key=sequence_number)
        return None if current is fn else current

    def told(self, fn: GradFn) -> tuple[str, str]:
        """Return the kind of cause that a function is which gave NaN or infinity first, and why, if it is known."""
        words = trap(fn)
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
        """What is known of the results of functions, of what they and their consumers saved."""
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
        """Return the name of a leaf that a function takes, itself or through a view, if it is not finite."""
        for child, _ in fn.next_functions:
            taken = child
            while taken is not None and stem(taken) in _SHOWING:
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
    return stem(fn) in _SHOWING or (stem(fn) == "Div" and len(takes) == 1 and not trap(fn))
