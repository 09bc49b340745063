"""What kind of stop an operation is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from gradir.frontends.pytorch.private import CHECKPOINT
from gradir.frontends.pytorch.recording.compiled import CompiledPart
from gradir.frontends.pytorch.recording.flow import COPYING
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step

__all__ = ["DERIVING", "EXPLICIT", "Kinds", "kind_of"]

EXPLICIT: Final = frozenset(
    {"data", "detach", "inference_mode", "new_leaf", "no_create_graph", "no_grad", "rebuilt", "sample"}
)
"""Kinds that a program asks for; the others follow from what its operations are."""

DERIVING: Final = frozenset({"backward", "grad"})
_LENDING: Final = frozenset({"inplace", "view"})
_HAS_NO_DERIVATIVE: Final = "nondifferentiable"


class Kinds:
    """Of steps in a row the kind of each, known by its place.

    Each step is passed once, however many writes to one memory there are.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._detaching: dict[int, Step | None] = {}

    def of(self, number: int) -> str:
        """The kind of a step, or of the custom Function that ran it; of a write that of what gave the memory."""
        step = self._steps[number]
        if step.inside is not None:
            return "checkpoint" if f"{step.inside.called}Backward" == CHECKPOINT else _HAS_NO_DERIVATIVE
        kind = kind_of(step)
        through = self._memory_of(number) if kind == _HAS_NO_DERIVATIVE and "inplace" in step.kinds else None
        return kind if through is None else kind_of(through)

    def _memory_of(self, number: int) -> Step | None:
        """What gave a step the memory that it writes to without its graph, such as ``.data``."""
        passed, found = list[int](), None
        while number not in self._detaching:
            step = self._steps[number]
            if step.func.__name__.startswith("detach"):
                found = step
                break
            passed.append(number)
            lent = [read.value for kind, read in zip(step.kinds, step.inputs, strict=False) if kind in _LENDING]
            if not lent or lent[0].maker == FROM_OUTSIDE:
                break
            number = lent[0].maker
        else:
            found = self._detaching[number]
        self._detaching.update(dict.fromkeys(passed, found))
        return found


def kind_of(step: Step) -> str:
    """The kind of a step by itself."""
    # What takes functions has no tags.
    if torch.Tag.nondeterministic_seeded in getattr(step.func, "tags", ()):
        return "sample"
    if step.called in COPYING:
        return "rebuilt"
    if step.mode != "grad":
        return "no_create_graph" if step.called in DERIVING else step.mode
    if step.func.__name__.startswith("detach"):
        return "data" if step.called == "data" else "detach"
    return "compiled" if isinstance(step.func, CompiledPart) else _HAS_NO_DERIVATIVE
