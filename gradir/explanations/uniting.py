"""Join causes of one line, and causes of one block without gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from gradir.explanations.model import Cause
from gradir.vocabulary.patterns import OF_REACHED, WITHOUT_GRADIENT

# Kinds that a `with` or a decorator makes, for all operations in it.
_OF_BLOCKS: Final = frozenset({"no_grad", "inference_mode"})
# So many causes become one block; each of fewer keeps its line.
_FEWEST: Final = 3
_MOST_LINES: Final = 3
_AT: Final = " at "


class _Named(NamedTuple):
    """A cause with all its names in order, and the places at the end of its details."""

    cause: Cause
    names: dict[str, None]
    places: dict[str, None]


def united(causes: Iterable[Cause], statuses: Mapping[str, str]) -> tuple[Cause, ...]:
    """Return the causes with those of one line as one, and those of one block without gradients.

    Causes of one line differ in names and in the place at the end of their details. Causes of a block, which follow
    each other in one function or module, differ in the operation too. Names with another gradient come last.

    >>> from gradir.ir import Source
    >>> one, two = (Cause("detach", "error", "detach", (name,), Source("net.py", 7)) for name in "ab")
    >>> [cause.names for cause in united([one, two, replace(one, level="info")], {"a": "reached", "b": "cut"})]
    [('b', 'a'), ('a',)]
    >>> block = [Cause("no_grad", "error", "linear", (f"t.{line}",), Source("net.py", line)) for line in (3, 4, 6)]
    >>> [(cause.names, cause.detail) for cause in united(block, {})]
    [(('t.3', 't.4', 't.6'), 'so did the operations at net.py:4, net.py:6')]
    >>> used = [replace(two, kind="withheld", names=(name,), detail=f"used at {name}.py:3") for name in "ab"]
    >>> [(cause.names, cause.detail) for cause in united(used, {})]
    [(('a', 'b'), 'used at a.py:3, b.py:3')]
    """
    found: dict[Cause, _Named] = {}
    for number, cause in enumerate(causes):
        # Causes without a line have reasons of their own, such as a pair of weights.
        key = replace(cause, names=() if cause.source else (str(number),), excerpt=None)
        before, at, place = cause.detail.rpartition(_AT)
        is_place = cause.source is not None and bool(at) and " " not in place
        if is_place:
            key = replace(key, detail=before)
        if cause.kind in _OF_BLOCKS and cause.source:
            key = replace(key, op="", via=None)
        each = found.setdefault(key, _Named(cause, {}, {}))
        each.names.update(dict.fromkeys(cause.names))
        each.places.update(dict.fromkeys([place] if is_place else []))
    blocks: list[list[_Named]] = []
    for each in found.values():
        if blocks and _belongs(each, blocks[-1][-1]):
            blocks[-1].append(each)
        else:
            blocks.append([each])
    joined = chain.from_iterable([_as_one(block)] if len(block) >= _FEWEST else block for block in blocks)
    found_causes = [_with_names(each, statuses) for each in joined]
    # An estimator that passes by what should learn is mended itself, and not what it replaces.
    return tuple(sorted(found_causes, key=lambda cause: (cause.level, cause.pattern) != ("error", "straight-through")))


def _with_names(each: _Named, statuses: Mapping[str, str]) -> Cause:
    cause = each.cause
    if len(each.places) > 1:
        before = cause.detail.rpartition(_AT)[0]
        cause = replace(cause, detail=f"{before}{_AT}{_listed([*each.places])}")
    reached = [name for name in each.names if statuses.get(name) == "reached"]
    cut = [name for name in each.names if statuses.get(name) != "reached"]
    if cut and cause.pattern in WITHOUT_GRADIENT:
        # The line runs others as well, which get theirs.
        reached = []
    is_kept = bool(reached) and not cut and cause.level == "info"
    pattern = OF_REACHED.get(cause.kind, "") if is_kept and not cause.pattern else cause.pattern
    return replace(cause, names=(*cut, *reached), pattern=pattern)


def _listed(places: Sequence[str]) -> str:
    return ", ".join(places[:_MOST_LINES]) + (" and others" if len(places) > _MOST_LINES else "")


def _belongs(each: _Named, before: _Named) -> bool:
    one, other = before.cause, each.cause
    if one.kind not in _OF_BLOCKS or one.source is None or other.source is None:
        return False
    if (one.kind, one.level, one.detail, one.pattern) != (other.kind, other.level, other.detail, other.pattern):
        return False
    modules = {name.partition(".")[0] for name in (*before.names, *each.names)}
    is_near = (one.source.file, one.source.function) == (other.source.file, other.source.function)
    return is_near or len(modules) == 1


def _as_one(causes: Sequence[_Named]) -> _Named:
    first, *others = (each.cause for each in causes)
    further = [*dict.fromkeys(f"{cause.source.file}:{cause.source.line}" for cause in others if cause.source)]
    names = dict.fromkeys(chain(*(each.names for each in causes)))
    return _Named(replace(first, detail=f"so did the operations at {_listed(further)}"), names, {})
