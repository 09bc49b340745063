"""Modules that have another name, or lie in another one now, and what belongs to no single record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.diffs.changes import Finding
from gradir.ir.ids import without_indices
from gradir.review.wording import nesting, stands_last

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.review.evidence import Evidence


def whole_graph(evidence: Evidence) -> Iterator[Finding]:
    """Renames of modules, those in the same way together; then each change that is about no node and no module.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.reviewing import reviewed
    >>> a, b = (Graph.of([Node(f"{name}/exp:1", op="exp", scope=name)]) for name in ("fc", "dense"))
    >>> [(found.kind, found.subjects, found.text) for found in reviewed(a, b).findings]
    [('renamed', ('dense',), 'module fc -> dense  1 node')]
    """
    together: dict[object, list[int]] = {}
    for at in evidence.left:
        change = evidence.changes[at]
        if change.subject not in {"node", "scope"}:
            same = (without_indices(change.was), without_indices(change.id)) if change.subject == "module" else at
            together.setdefault(same, []).append(at)
    for indices in together.values():
        first = evidence.changes[indices[0]]
        if first.subject == "module":
            names = tuple(evidence.changes[at].id for at in indices)
            was = [evidence.changes[at].was for at in indices]
            nodes = sum(evidence.changes[at].nodes for at in indices)
            kind = nesting(first) or first.kind
            yield Finding(kind, "note", names, tuple((at,) for at in indices), was, count=nodes)
        else:
            kind = "cut-changed" if first.subject == "cut" else first.id if stands_last(first) else "graph"
            yield Finding(kind, "note" if stands_last(first) else "change", (first.id,), (tuple(indices),))
