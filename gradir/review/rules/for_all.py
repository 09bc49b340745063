"""What changed in the same way for most of the changed nodes, as the batch, the dtype or the width."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.changes import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gradir.diffs.changes import Change, FieldChange
    from gradir.review.evidence import Evidence

_FEWEST: Final = 5
"""Fewer changed nodes are read as they are."""

_PROPERTIES: Final = ("dtype", "device", "layout", "shape")

_OF_OUTPUT: Final = 3
"""Keys in the path of a property of an output."""


def for_all(evidence: Evidence) -> Iterator[Finding]:
    """The properties and sizes that most changed nodes share, with the changes that only follow from that.

    >>> from gradir.ir import Graph, Node, TensorMeta
    >>> from gradir.review.reviewing import reviewed
    >>> def cast(dtype): return Graph.of([Node(f"exp:{n}", outputs=(TensorMeta(dtype, (2,)),)) for n in range(1, 6)])
    >>> [found.text for found in reviewed(cast("float32"), cast("bfloat16")).findings if found.text][:1]
    ['all 5 changed nodes: dtype float32 -> bfloat16']
    """
    same = list(_uniform(evidence.changes))
    yield from same
    found = evidence.of_all
    following = tuple(at for at in evidence.left if at in found.follow)
    if found.sizes and not any(each.subjects[0].startswith("dimension ") for each in same):
        yield Finding("sizes", "change", details={"sizes": found.sizes})
    if found.casts:
        yield Finding("casts", "change", details={"casts": found.casts})
    if following:
        yield Finding("following", "note", changes=(following,), count=len(following))


class _Same(NamedTuple):
    """One change of a node's outputs: of a property, or of the size of one dimension."""

    what: str
    before: str | int
    after: str | int


def _uniform(changes: Sequence[Change]) -> Iterator[Finding]:
    """Each change of outputs that more than half of the changed nodes have; a node counts only where it has no other.

    A node has a change when the property is another for one or more of its outputs, and became the same other for all
    of these. Of shapes, only those count that differ in one dimension alone. Where that is most of them, nodes in which
    other sizes changed in the same ratio, as those of a batch that is folded into another dimension, are counted apart.
    """
    changed = [change for change in changes if (change.subject, change.kind) == ("node", "changed")]
    if len(changed) < _FEWEST:
        return
    counts: Counter[_Same] = Counter()
    for change in changed:
        counts.update(_of_a_node(change))
    for same, count in counts.items():
        if 2 * count > len(changed):
            details = {"of": len(changed), "in_ratio": _in_ratio(same, changed)}
            yield Finding("uniform", "change", (same.what,), (), same.before, same.after, count, details)


def _of_a_node(change: Change) -> Iterator[_Same]:
    found: dict[str, set[_Same | None]] = {}
    for field in change.fields:
        what = _property(field)
        if what == "shape":
            found.setdefault(what, set()).add(_dimension(_sizes(field.before), _sizes(field.after)))
        elif what:
            known = isinstance(field.before, str) and isinstance(field.after, str)
            found.setdefault(what, set()).add(_Same(what, field.before, field.after) if known else None)
    for values in found.values():
        if len(values) == 1:
            yield from filter(None, values)


def _in_ratio(same: _Same, changed: Iterable[Change]) -> int:
    """In how many more nodes other sizes changed as this one did."""
    before, after = same.before, same.after
    if not (isinstance(before, int) and isinstance(after, int) and before and after):
        return 0
    return sum(same not in _of_a_node(change) and _is_in_ratio(change, before, after) for change in changed)


def _is_in_ratio(change: Change, before: int, after: int) -> bool:
    """Whether every size of a node's outputs that changed is a multiple, and as many times another as this one."""
    shapes = [(_sizes(field.before), _sizes(field.after)) for field in change.fields if _property(field) == "shape"]
    return bool(shapes) and all(
        len(was) == len(now) > 0
        and all(
            old % before == 0 and old * after == new * before for old, new in zip(was, now, strict=True) if old != new
        )
        for was, now in shapes
    )


def _property(field: FieldChange) -> str:
    """The property of an output that a field is; nothing for any other field."""
    if len(field.path) != _OF_OUTPUT or field.path[0] != "out":
        return ""
    return str(field.path[-1]) if field.path[-1] in _PROPERTIES else ""


def _sizes(shape: object) -> tuple[int, ...]:
    """The sizes of a shape of numbers; none for any other value."""
    return shape if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape) else ()


def _dimension(before: tuple[int, ...], after: tuple[int, ...]) -> _Same | None:
    """The only dimension in which two shapes differ, with both sizes."""
    if len(before) != len(after):
        return None
    other = [at for at, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    return _Same(f"dimension {other[0]}", before[other[0]], after[other[0]]) if len(other) == 1 else None
