"""The same change of most changed nodes, such as another dtype or another size of the batch, in one line."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.review.lines import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.diff.model import Change, Diff

__all__ = ["uniform"]

_FEWEST: Final = 5
"""Fewer changed nodes are read as they are."""

_OUTPUT: Final = re.compile(r"out\[\d+\]\.(?P<what>dtype|device|layout|shape)")
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,17}")


class _Same(NamedTuple):
    """One change of a node's outputs: of a property, or of the size of one dimension."""

    what: str
    before: str
    after: str

    def text(self) -> str:
        before, after = one_line(self.before), one_line(self.after)
        if self.what.startswith("dimension"):
            return f"{self.what} is {after}, was {before}"
        return f"{self.what} {before} -> {after}"


def uniform(diff: Diff) -> Iterator[str]:
    """Each change of outputs that more than half of the changed nodes have; a node counts only where it has no other.

    A node has a change when the property is another for one or more of its outputs, and became the same other for all
    of these. Of shapes, only those count that differ in one dimension alone. Where that is most of them, nodes in which
    other sizes changed in the same ratio, as those of a batch that is folded into another dimension, are counted apart.

    >>> from gradir.diff.model import Change, Diff, FieldChange, Totals
    >>> field = FieldChange("out[0].shape", "[2, 8]", "[4, 8]")
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
        match = _OUTPUT.fullmatch(field.path)
        if match is None:
            continue
        before, after = field.before, field.after
        if before is None or after is None:
            same = None
        elif match["what"] == "shape":
            same = _dimension(_sizes(before), _sizes(after))
        else:
            same = _Same(match["what"], before, after)
        found.setdefault(match["what"], set()).add(same)
    for values in found.values():
        if len(values) == 1:
            yield from filter(None, values)


def _in_ratio_text(same: _Same, changed: Iterable[Change]) -> str:
    if not same.what.startswith("dimension") or "0" in (same.before, same.after):
        return ""
    ratio = int(same.before), int(same.after)
    count = sum(same not in _of_a_node(change) and _is_in_ratio(change, *ratio) for change in changed)
    return f"; in {count:,} more, other sizes changed in that ratio" if count else ""


def _is_in_ratio(change: Change, before: int, after: int) -> bool:
    """Whether every size of a node's outputs that changed is a multiple, and as many times another as this one."""
    shapes = [
        (_sizes(field.before or ""), _sizes(field.after or ""))
        for field in change.fields
        if (match := _OUTPUT.fullmatch(field.path)) is not None and match["what"] == "shape"
    ]
    return bool(shapes) and all(
        len(was) == len(now) > 0
        and all(
            int(old) % before == 0 and int(old) * after == int(new) * before
            for old, new in zip(was, now, strict=True)
            if old != new
        )
        for was, now in shapes
    )


def _sizes(text: str) -> list[str]:
    """The sizes of a shape of numbers; none for any other text."""
    sizes = text[1:-1].split(", ") if text[:1] == "[" and text[-1:] == "]" else []
    return sizes if all(map(_WHOLE.fullmatch, sizes)) else []


def _dimension(before: list[str], after: list[str]) -> _Same | None:
    """The only dimension in which two shapes differ, with both sizes."""
    if len(before) != len(after):
        return None
    other = [at for at, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    return _Same(f"dimension {other[0]}", before[other[0]], after[other[0]]) if len(other) == 1 else None
