"""The same change of most changed nodes, such as another dtype or another size of the batch, in one line."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.review.values import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.diffs.model import Change, Diff, FieldChange

__all__ = ["uniform"]

_FEWEST: Final = 5
"""Fewer changed nodes are read as they are."""

_PROPERTIES: Final = ("dtype", "device", "layout", "shape")
_OF_OUTPUT: Final = 3
"""Keys in the path of a property of an output."""


class _Same(NamedTuple):
    """One change of a node's outputs: of a property, or of the size of one dimension."""

    what: str
    before: str | int
    after: str | int

    def text(self) -> str:
        before, after = (words((self.what,), value) for value in (self.before, self.after))
        if self.what.startswith("dimension"):
            return f"{self.what} is {after}, was {before}"
        return f"{self.what} {before} -> {after}"


def uniform(diff: Diff) -> Iterator[str]:
    """Each change of outputs that more than half of the changed nodes have; a node counts only where it has no other.

    A node has a change when the property is another for one or more of its outputs, and became the same other for all
    of these. Of shapes, only those count that differ in one dimension alone. Where that is most of them, nodes in which
    other sizes changed in the same ratio, as those of a batch that is folded into another dimension, are counted apart.

    >>> from gradir.diffs.model import Change, Diff, FieldChange, Totals
    >>> field = FieldChange(("out", 0, "shape"), (2, 8), (4, 8))
    >>> changes = tuple(Change("changed", "node", f"exp:{n}", fields=(field,)) for n in range(1, 7))
    >>> list(uniform(Diff(Totals(), Totals(), changes)))
    ['all 6 changed nodes: dimension 0 is 4, was 2']
    """
    changed = [change for change in diff.changes if (change.subject, change.kind) == ("node", "changed")]
    if len(changed) < _FEWEST:
        return
    counts: Counter[_Same] = Counter()
    for change in changed:
        counts.update(_of_a_node(change))
    for same, count in counts.items():
        if 2 * count > len(changed):
            which = f"all {count:,}" if count == len(changed) else f"{count:,} of {len(changed):,}"
            yield f"{which} changed nodes: {same.text()}{_in_ratio_text(same, changed)}"


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


def _in_ratio_text(same: _Same, changed: Iterable[Change]) -> str:
    before, after = same.before, same.after
    if not (isinstance(before, int) and isinstance(after, int) and before and after):
        return ""
    count = sum(same not in _of_a_node(change) and _is_in_ratio(change, before, after) for change in changed)
    return f"; in {count:,} more, other sizes changed in that ratio" if count else ""


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
    return next((what for what in _PROPERTIES if field.path[-1] == what), "")


def _sizes(shape: object) -> tuple[int, ...]:
    """The sizes of a shape of numbers; none for any other value."""
    return shape if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape) else ()


def _dimension(before: tuple[int, ...], after: tuple[int, ...]) -> _Same | None:
    """The only dimension in which two shapes differ, with both sizes."""
    if len(before) != len(after):
        return None
    other = [at for at, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    return _Same(f"dimension {other[0]}", before[other[0]], after[other[0]]) if len(other) == 1 else None
