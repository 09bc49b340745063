"""Sums in which a value without its gradient cancels the value itself, so that only its gradient is left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import torch

from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.operands import plain_name
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value

__all__ = ["FLAT", "SAME_NUMBERS", "STOP_GRADIENT", "STRAIGHT_THROUGH", "Sums", "Use", "is_plain"]

STRAIGHT_THROUGH: Final = "straight-through"
STOP_GRADIENT: Final = "stop-gradient"

SAME_NUMBERS: Final = frozenset({"alias", "detach", "expand", "squeeze", "unsqueeze", "view"})
FLAT: Final = frozenset({"bernoulli", "ceil", "floor", "normal", "poisson", "round", "sgn", "sign", "trunc"})
"""Operations whose derivative is zero everywhere."""

_MOST_TERMS: Final = 24
_MOST_SUMS: Final = 4
"""How many sums around one are looked at."""


class Use(NamedTuple):
    """The step that takes a value, and its input slot."""

    step: int
    slot: int


class Sums:
    """Recognises ``x + (q - x).detach()`` and ``x - x.detach()`` in every order of the terms."""

    def __init__(self, flow: Flow, flowing: Flowing, uses: Mapping[Value, Sequence[Use]]) -> None:
        self._flow = flow
        self._flowing = flowing
        self._uses = uses
        self._originals: dict[Value, Value] = {}
        # What is computed twice of the same by the same has equal numbers.
        known: dict[object, Value] = {}
        for index, step in enumerate(flow.steps):
            if len(step.inputs) != 1:
                continue
            value, source = Value(index, 0), self.original(step.inputs[0].value)
            if plain_name(step.func) in SAME_NUMBERS:
                self._originals[value] = source
                continue
            is_drawn = torch.Tag.nondeterministic_seeded in getattr(step.func, "tags", ())
            if "inplace" not in step.kinds and not is_drawn:
                try:
                    first = known.setdefault((step.func, source, step.constants), value)
                except TypeError:
                    # Some constant has no hash.
                    continue
                if first != value:
                    self._originals[value] = first

    def original(self, value: Value) -> Value:
        """The value whose numbers a value has."""
        return self._originals.get(value, value)

    def pattern(self, value: Value) -> str:
        """What all sums are that a value without its gradient is added to; nothing where it is taken otherwise."""
        waiting, seen, found = [value], {value}, set[str]()
        while waiting and len(seen) <= _MOST_TERMS:
            value = waiting.pop()
            uses = self._uses.get(value, ())
            if not uses or value in self._flowing.ends:
                return ""
            for use in uses:
                step, made = self._flow.steps[use.step], Value(use.step, 0)
                if made in self._flowing.carrying and is_plain(step):
                    found.add(self._pattern_of(made))
                elif is_plain(step) or (plain_name(step.func) in SAME_NUMBERS and len(step.inputs) == 1):
                    waiting += [made] * (made not in seen)
                    seen.add(made)
                else:
                    return ""
        return found.pop() if len(found) == 1 and not waiting else ""

    def _pattern_of(self, total: Value) -> str:
        found = ""
        for _ in range(_MOST_SUMS):
            with_gradient, without = self._terms(total)
            cancelled = [one for one, count in with_gradient.items() if count == 1 and without.get(one) == -1]
            # What is subtracted as well is compared, such as a return of an advantage and the value itself.
            if cancelled and any(count > 0 for one, count in without.items() if one not in cancelled):
                return STRAIGHT_THROUGH
            found = STOP_GRADIENT if cancelled else found
            uses = self._uses.get(total, ())
            if len(uses) != 1 or total in self._flowing.ends or not is_plain(self._flow.steps[uses[0].step]):
                break
            total = Value(uses[0].step, 0)
        return found

    def _terms(self, total: Value) -> tuple[dict[Value, int], dict[Value, int]]:
        """How often each value is in a sum with its gradient, and without."""
        counts: tuple[dict[Value, int], dict[Value, int]] = {}, {}
        waiting = [(total, 1, True)]
        for _ in range(_MOST_TERMS):
            if not waiting:
                return counts
            value, sign, carries = waiting.pop()
            carries = carries and value in self._flowing.carrying
            step = None if value.maker == FROM_OUTSIDE else self._flow.steps[value.maker]
            if step is not None and is_plain(step):
                first, second = (read.value for read in step.inputs)
                is_less = plain_name(step.func).startswith("sub")
                waiting += [(first, sign, carries), (second, -sign if is_less else sign, carries)]
            elif step is not None and step.func.__name__.startswith("detach"):
                waiting.append((step.inputs[0].value, sign, False))
            else:
                numbers = self.original(value)
                # A gradient that is zero is none.
                is_flat = step is not None and plain_name(step.func) in FLAT
                count = counts[not carries or is_flat]
                count[numbers] = count.get(numbers, 0) + sign
        return {}, {}


def is_plain(step: Step, names: Collection[str] = frozenset({"add", "sub"})) -> bool:
    """Whether a step adds or subtracts two tensors as they are."""
    has_name = plain_name(step.func) in names and len(step.inputs) == 2
    return has_name and dict(step.constants).get("alpha", 1) == 1
