"""Causes that a reader takes for one, as one: those of a line, and those of a block without gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from gradir.explanations.model import Cause

__all__ = ["united"]

_OF_BLOCKS: Final = frozenset({"no_grad", "inference_mode"})
"""Kinds that a `with` or a decorator makes, for all operations in it."""

_FEWEST: Final = 3
"""So many causes become one block; each of fewer keeps its line."""

_MOST_LINES: Final = 3


class _Named(NamedTuple):
    """A cause with all its names in order."""

    cause: Cause
    names: dict[str, None]


def united(causes: Iterable[Cause], statuses: Mapping[str, str]) -> tuple[Cause, ...]:
    """Return the causes with those of one line as one, and those of one block without gradients.

    Causes of one line differ in their names alone. A block is what follows each other in one function, or of one
    module. The names that are reached another way come last, since few are shown.

    >>> from gradir.ir import Source
    >>> one, two = (Cause("detach", "error", "detach", (name,), Source("net.py", 7)) for name in "ab")
    >>> [cause.names for cause in united([one, two, replace(one, level="info")], {"a": "reached", "b": "cut"})]
    [('b', 'a'), ('a',)]
    >>> block = [Cause("no_grad", "error", "linear", (f"t.{line}",), Source("net.py", line)) for line in (3, 4, 6)]
    >>> [(cause.names, cause.detail) for cause in united(block, {})]
    [(('t.3', 't.4', 't.6'), 'so did the operations at net.py:4, net.py:6')]
    """
    found: dict[Cause, _Named] = {}
    for number, cause in enumerate(causes):
        # Causes without a line have reasons of their own, such as a pair of weights.
        key = replace(cause, names=() if cause.source else (str(number),), excerpt=None)
        found.setdefault(key, _Named(cause, {})).names.update(dict.fromkeys(cause.names))
    blocks: list[list[_Named]] = []
    for each in found.values():
        if blocks and _belongs(each, blocks[-1][-1]):
            blocks[-1].append(each)
        else:
            blocks.append([each])
    joined = chain.from_iterable([_block(block)] if len(block) >= _FEWEST else block for block in blocks)
    return tuple(
        replace(cause, names=tuple(sorted(names, key=lambda name: statuses.get(name) == "reached")))
        for cause, names in joined
    )


def _belongs(each: _Named, before: _Named) -> bool:
    """Return whether a cause is in the same block as the one before it."""
    one, other = before.cause, each.cause
    if one.kind not in _OF_BLOCKS or one.source is None or other.source is None:
        return False
    if (one.kind, one.level, one.detail) != (other.kind, other.level, other.detail):
        return False
    modules = {name.partition(".")[0] for name in (*before.names, *each.names)}
    is_near = (one.source.file, one.source.function) == (other.source.file, other.source.function)
    return is_near or len(modules) == 1


def _block(causes: Sequence[_Named]) -> _Named:
    first, *others = (each.cause for each in causes)
    further = [*dict.fromkeys(f"{cause.source.file}:{cause.source.line}" for cause in others if cause.source)]
    lines = ", ".join(further[:_MOST_LINES]) + (" and others" if len(further) > _MOST_LINES else "")
    names = dict.fromkeys(chain(*(each.names for each in causes)))
    return _Named(replace(first, detail=f"so did the operations at {lines}"), names)
