"""The exact difference between two graphs: what to put in place of what, in both directions.

Where a `Diff` is to be read, a `Script` is to be applied. It keeps the whole of every record that differs, from both
graphs, so that it leads from each to the other and needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from gradir.diffs.sequences import equal_ends, increasing
from gradir.errors import PatchError
from gradir.ir import Collective, Cut, Graph, Node, Producer, Rank, Scope
from gradir.ir.exactkey import exact_key
from gradir.ir.validate import check

__all__ = ["Hunk", "Script", "apply", "inverse", "script"]

T = TypeVar("T")

_VALUES: Final = ("attrs", "ext", "options")
"""The fields with values that can be equal and yet differ in type."""


class Hunk(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run of records that gives way to another.

    ``start`` is the place of the run in the first graph, and ``new_start`` that of its replacement in the second.
    """

    start: int
    new_start: int
    before: tuple[T, ...] = ()
    after: tuple[T, ...] = ()


class Script(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What leads from one graph to another; false when that is nothing at all.

    ``producer`` holds both producers where they differ, and ``rank`` both ranks.
    """

    nodes: tuple[Hunk[Node], ...] = ()
    scopes: tuple[Hunk[Scope], ...] = ()
    cuts: tuple[Hunk[Cut], ...] = ()
    producer: tuple[Producer, Producer] | None = None
    rank: tuple[Rank | None, Rank | None] | None = None
    collectives: tuple[Hunk[Collective], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.scopes or self.cuts or self.producer or self.rank or self.collectives)


def script(a: Graph, b: Graph) -> Script:
    """What leads from ``a`` to ``b``: `apply` it to ``a``, or its `inverse` to ``b``.

    The records that stay are the longest common subsequence of equal records with equal keys, which for keys that
    occur once is a longest increasing subsequence (Fredman, On computing the length of longest increasing
    subsequences, 1975).

    >>> found = script(Graph.of([Node("x"), Node("y")]), Graph.of([Node("x"), Node("z")]))
    >>> [(hunk.start, hunk.before[0].id, hunk.after[0].id) for hunk in found.nodes]
    [(1, 'y', 'z')]
    """
    return Script(
        tuple(_hunks(a.nodes, b.nodes)),
        tuple(_hunks(a.scopes, b.scopes)),
        tuple(_trimmed(a.cuts, b.cuts)),
        _both(a.producer, b.producer),
        _both(a.rank, b.rank),
        tuple(_trimmed(a.collectives, b.collectives)),
    )


def apply(script: Script, graph: Graph) -> Graph:
    """The graph that a script makes of another.

    Raises:
        PatchError: the script was not made for this graph.
        GraphError: the result breaks a rule of the IR.
    """
    result = Graph.of(
        _replaced(list(graph.nodes.values()), script.nodes, "node"),
        _replaced(list(graph.scopes.values()), script.scopes, "scope"),
        _replaced(list(graph.cuts), script.cuts, "cut"),
        _exchanged(graph.producer, script.producer, "it was made by another producer"),
        read_from=graph.read_from,
        unknown=graph.unknown,
        rank=_exchanged(graph.rank, script.rank, "it is of another rank"),
        collectives=_replaced(graph.collectives, script.collectives, "collective"),
    )
    check(result)
    return result


def inverse(script: Script) -> Script:
    """The script that leads back.

    >>> there = script(Graph.of([Node("x")]), Graph.of([Node("y")]))
    >>> inverse(inverse(there)) == there
    True
    """
    return Script(
        tuple(map(_turned, script.nodes)),
        tuple(map(_turned, script.scopes)),
        tuple(map(_turned, script.cuts)),
        None if script.producer is None else (script.producer[1], script.producer[0]),
        None if script.rank is None else (script.rank[1], script.rank[0]),
        tuple(map(_turned, script.collectives)),
    )


def _both(before: T, after: T) -> tuple[T, T] | None:
    return None if _identical(before, after) else (before, after)


def _exchanged(value: T, both: tuple[T, T] | None, otherwise: str) -> T:
    """What stands in place of a value that the script may exchange.

    Raises:
        PatchError: the script expects another value.
    """
    if both is None:
        return value
    if not _identical(both[0], value):
        raise PatchError(f"the diff was not made for this graph: {otherwise}")
    return both[1]


def _turned(hunk: Hunk[T]) -> Hunk[T]:
    return Hunk(hunk.new_start, hunk.start, hunk.after, hunk.before)


def _hunks(before: Mapping[str, T], after: Mapping[str, T]) -> Iterator[Hunk[T]]:
    if before is after:
        return
    olds, news = list(before.values()), list(after.values())
    if olds == news and _have_same_types(olds, news):
        return
    position = {key: at for at, key in enumerate(before)}
    common = [
        (new_at, position[key])
        for new_at, (key, record) in enumerate(after.items())
        if key in position and _identical(before[key], record)
    ]
    start = new_start = 0
    for new_at, at in (*increasing(common), (len(news), len(olds))):
        if at > start or new_at > new_start:
            yield Hunk(start, new_start, tuple(olds[start:at]), tuple(news[new_start:new_at]))
        start, new_start = at + 1, new_at + 1


def _trimmed(before: Sequence[T], after: Sequence[T]) -> Iterator[Hunk[T]]:
    """One hunk for all between the common beginning and the common end."""
    start, same = equal_ends(before, after, _identical)
    old, new = tuple(before[start : len(before) - same]), tuple(after[start : len(after) - same])
    if old or new:
        yield Hunk(start, start, old, new)


def _replaced(records: Sequence[T], hunks: Sequence[Hunk[T]], noun: str) -> Iterator[T]:
    at = 0
    for hunk in hunks:
        end = hunk.start + len(hunk.before)
        fits = at <= hunk.start and end <= len(records)
        if not fits or not all(map(_identical, records[hunk.start : end], hunk.before)):
            raise PatchError(f"the diff was not made for this graph: it expects another {noun} at {hunk.start:,}")
        yield from records[at : hunk.start]
        yield from hunk.after
        at = end
    yield from records[at:]


def _identical(one: object, other: object) -> bool:
    """Whether two records are equal in value and in type: ``1``, ``1.0`` and ``true`` are not."""
    return one == other and (
        _have_same_types([one], [other])
        or all(
            repr(sorted(values.items())) == repr(sorted(getattr(other, field).items()))
            for field in _VALUES
            if (values := getattr(one, field, None))
        )
    )


def _have_same_types(ones: Sequence[object], others: Sequence[object]) -> bool:
    """Whether equal records are seen to be equal in type too; some that are may have a value without an exact key."""
    one, other = (
        exact_key([values for record in records for field in _VALUES if (values := getattr(record, field, None))])
        for records in (ones, others)
    )
    return one is not None and one == other
