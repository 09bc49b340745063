"""Modules that have another name, or lie in another one now, and what belongs to no single record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.diffs.changes import Finding
from gradir.ir.ids import without_indices
from gradir.ir.module_tree import upwards
from gradir.review.wording import nesting, stands_last

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from gradir.diffs.changes import Change
    from gradir.review.evidence import Evidence


def whole_graph(evidence: Evidence) -> Iterator[Finding]:
    """Report renames of modules and tensors, equal ones together, and each change of no node and no module.

    The finding of a module that was wrapped, or is no more, includes its wrapper.
    """
    together: dict[Hashable, list[int]] = {}
    for at in evidence.left:
        change = evidence.changes[at]
        if _is_rename(change):
            together.setdefault(_naming(change), []).append(at)
        elif change.subject not in {"node", "scope"}:
            together[at] = [at]
    wrappers: set[int] = set()
    for indices in together.values():
        first = evidence.changes[indices[0]]
        if _is_rename(first):
            yield _renamed(evidence, indices, wrappers)
        else:
            kind = "cut-changed" if first.subject == "cut" else first.id if stands_last(first) else "graph"
            yield Finding(kind, "note" if stands_last(first) else "change", (first.id,), (tuple(indices),))


def _is_rename(change: Change) -> bool:
    """Return whether a change says only that a module or a tensor has another name."""
    return change.subject == "module" or (change.subject, change.kind, change.fields) == ("scope", "renamed", ())


def _naming(change: Change) -> Hashable:
    """Return a key that is equal for renames in one way: one name became another, or wraps others."""
    role = change.what if change.subject == "module" else ""
    was, now = (name.split(".") for name in (change.was, change.id))
    how = nesting(change)
    if how:
        return role, how, max(was, now, key=len)[-1]
    pairs = {(old, new) for old, new in zip(was, now, strict=False) if old != new}
    if len(was) == len(now) and len(pairs) == 1:
        return role, *pairs
    return role, without_indices(change.was), without_indices(change.id)


def _renamed(evidence: Evidence, indices: Sequence[int], wrappers: set[int]) -> Finding:
    """Return the finding of renames in one way, and add its wrappers to those of other findings."""
    changes = [evidence.changes[at] for at in indices]
    kind = nesting(changes[0]) or changes[0].kind
    own = [at for at in _around(evidence, kind, changes) if at not in wrappers]
    wrappers.update(own)
    classes = dict.fromkeys(filter(None, (evidence.changes[at].what for at in own)))
    return Finding(
        kind,
        "note",
        tuple(change.id for change in changes),
        tuple((at, *(own if at == indices[0] else ())) for at in indices),
        [change.was for change in changes],
        count=sum(change.nodes for change in changes),
        details={"class": [*classes]} if classes else {},
    )


def _around(evidence: Evidence, kind: str, changes: Sequence[Change]) -> Iterator[int]:
    """Yield the modules that came around those that were wrapped, or that went from around others."""
    came = {"wrapped": "added", "unwrapped": "removed"}.get(kind, "")
    names = [(change.was, change.id) for change in changes] if came else []
    places = {
        without_indices(path)
        for inner, outer in (sorted(both, key=len, reverse=True) for both in names)
        for path in [*upwards(inner)][1:]
        if len(path) >= len(outer)
    }
    for at in evidence.left if places else ():
        change = evidence.changes[at]
        if (change.subject, change.kind) == ("scope", came) and without_indices(change.id) in places:
            yield at
