"""Which parameters a step of training returns as they were, whatever their gradient, as optax does for frozen ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import jax
import numpy as np

from gradir.frontends.jax.live import Trace
from gradir.frontends.jax.reading.assemble import Output
from gradir.frontends.jax.reading.values import Record, Value

__all__ = ["left_out"]

_MOST_PASSES: Final = 8
"""A loop hands on what it knows from round to round; so often it is asked."""


def left_out(step: Trace, loss: Trace, *, has_numbers: bool) -> frozenset[str]:
    """The leaves of the loss inside a step whose new value does not depend on any gradient.

    Where the step has numbers, it must give them back as well. The value of a leaf that gets no gradient depends on
    none anyhow: it is left out if the optimizer keeps a state for others and none for it.
    """
    pairs = _new_values(step)
    moved = _moved(step.flat.records)
    kept = {leaf.name: path for leaf, (path, value) in pairs if not _is_moved(value, moved)}
    if kept and has_numbers:
        kept = _unchanged(step, kept)
    kept_ends = {end for name in kept for end in _ends(name)}
    states = _states(step, [leaf.name for leaf in loss.differentiated])
    return frozenset(
        leaf.name
        for leaf in loss.differentiated
        if leaf.name in kept_ends and (leaf.is_live or (states and leaf.name not in states))
    )


def _new_values(step: Trace) -> list[tuple[Value, Output]]:
    """Each leaf with the output that has its name behind the same path, the shortest that all leaves have."""
    outputs = {output.path: output for output in step.outputs}
    first = step.differentiated[0]
    starts = [path.removesuffix(first.name) for path in outputs if _is_of(path, first.name)]
    for start in sorted(starts, key=lambda start: start.count(".")):
        found = [(leaf, outputs.get(start + leaf.name)) for leaf in step.differentiated]
        pairs = [(leaf, output) for leaf, output in found if output is not None and _is_alike(leaf, output.value)]
        if len(pairs) == len(found):
            return pairs
    return []


def _is_alike(a: Value, b: Value) -> bool:
    return bool(a.aval.shape == b.aval.shape and a.aval.dtype == b.aval.dtype)


def _moved(records: Sequence[Record]) -> set[int]:
    """The identities of the values that depend on a gradient."""
    moved: set[int] = set()
    for _ in range(_MOST_PASSES):
        before = len(moved)
        for record in records:
            taken = (*record.inputs, *record.given)
            if "transpose" in record.context.phase or any(_is_moved(value, moved) for value in taken):
                moved.update(map(id, record.outputs))
        if len(moved) == before:
            break
    return moved


def _is_moved(value: Value, moved: set[int]) -> bool:
    left, seen = [value], {id(value)}
    while left:
        current = left.pop()
        if id(current) in moved:
            return True
        left += (end for end in current.ends if id(end) not in seen)
        seen.update(map(id, current.ends))
    return False


def _unchanged(step: Trace, kept: dict[str, str]) -> dict[str, str]:
    given = {leaf.name: leaf.value for leaf in step.arguments.differentiated}
    made = jax.tree_util.tree_leaves(jax.jit(step.arguments.fn)(*step.arguments.given))
    places = {output.path: number for output, number in zip(step.outputs, step.places, strict=True)}
    return {name: path for name, path in kept.items() if np.array_equal(made[places[path]], given[name])}


def _states(step: Trace, names: Sequence[str]) -> set[str]:
    """The leaves for which the step is given something beside their value, such as a momentum."""
    given = [leaf.name for leaf in (*step.arguments.differentiated, *step.arguments.others)]
    ends = Counter(end for name in given for end in _ends(name))
    return {name for name in names if ends[name] > 1}


def _ends(name: str) -> list[str]:
    """A path without its first components, one after the other.

    >>> _ends("state.mu.w")
    ['state.mu.w', 'mu.w', 'w']
    """
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def _is_of(name: str, leaf: str) -> bool:
    return name == leaf or name.endswith(f".{leaf}")
