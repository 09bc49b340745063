"""Gradients that vanish, or grow, from module to module on their way back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from gradir.explanations.model import Cause

_STEPS: Final = 10
_FAR: Final = 1e6
"""So many times smaller, or larger, in so many steps in a row."""

_LEAST: Final = 6
"""Of fewer modules the sizes tell of the modules, and not of the way."""


class Norms:
    """Compares the norms of modules in the order in which a program made them, as long as an optimizer steps."""

    def __init__(self) -> None:
        self._vanishing, self._growing = 0, 0

    def after_step(self, norms: Mapping[str, float]) -> Iterator[Cause]:
        """What the norms of a step prove, after so many like it."""
        sizes = {path: norm for path, norm in norms.items() if norm and math.isfinite(norm)}
        if len(sizes) < _LEAST:
            return
        smallest, largest = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        is_far = sizes[largest] > _FAR * sizes[smallest]
        order = [*sizes]
        first, last = order[: len(order) // 3], order[-(len(order) // 3) :]
        self._vanishing = self._vanishing + 1 if is_far and smallest in first and largest in last else 0
        self._growing = self._growing + 1 if is_far and largest in first and smallest in last else 0
        for kind, count, at in (
            ("vanishing", self._vanishing, smallest),
            ("exploding_gradient", self._growing, largest),
        ):
            if count == _STEPS:
                start, end = (largest, smallest) if kind == "vanishing" else (smallest, largest)
                detail = f"from {sizes[start]:.2g} at {start} to {sizes[end]:.2g} at {end}"
                yield Cause(kind, "info", names=(at,), detail=detail)
