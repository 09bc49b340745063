"""Nodes in which nothing changed but their tensors, after something that they read, and saved tensors held by hooks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gradir.diffs.changes import UNSET, Finding
from gradir.diffs.ignoring import names_field
from gradir.ir import Node, Saved
from gradir.ir.edges import sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.diffs.changes import Change, FieldChange
    from gradir.review.evidence import Evidence

_FEWEST: Final = 3
"""Fewer nodes are read as they are."""

_OF_TENSORS: Final = frozenset({"shape", "dtype", "device", "layout", "bytes"})
_DESCRIBES: Final = frozenset({"class", "detail"})
_PARTS: Final = 2
"""Keys in the path of a whole output or saved tensor."""


def hooked(evidence: Evidence) -> Iterator[Finding]:
    """The nodes of which all that changed is that a hook holds what they saved, or holds it no more.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.reviewing import reviewed
    >>> def graph(state):
    ...     return Graph.of([Node(f"exp:{n}", op="exp", saved=(Saved("result", state=state),)) for n in range(3)])
    >>> [found.text for found in reviewed(graph("held"), graph("hooked")).findings if found.kind == "hooked"]
    ['held by hooks: 3 saved tensors of 3 nodes in (top level)']
    """
    for kind, state in (("hooked", "after"), ("unhooked", "before")):
        found = {
            at: len(change.fields)
            for at in evidence.left
            if _is_changed_node(change := evidence.changes[at])
            and all(is_hooked(field, state) for field in change.fields)
        }
        if len(found) >= _FEWEST:
            modules = tuple(dict.fromkeys(evidence.changes[at].scope for at in found))
            yield Finding(kind, "note", modules, (tuple(found),), count=sum(found.values()))


def is_hooked(field: FieldChange, side: str) -> bool:
    """Whether a saved tensor is held by a hook on this side alone, and by nothing but the node on the other."""
    values = field.before, field.after
    here, there = values if side == "before" else values[::-1]
    return isinstance(here, Saved) and isinstance(there, Saved) and here.state == "hooked" != there.state


def tensors(evidence: Evidence) -> Iterator[Finding]:
    """The nodes with tensors of other sizes or another dtype or device, and no other change, that read what changed.

    The parameters of a module of which the description changed are among them. Where such a change begins, it is told.

    >>> from gradir.ir import Graph, Node, Ref, TensorMeta
    >>> from gradir.review.reviewing import reviewed
    >>> def node(at, size):
    ...     inputs = (Ref(f"f:{at - 1}", 0),) * (at > 0)
    ...     return Node(f"f:{at}", op="f", inputs=inputs, outputs=(TensorMeta("f4", (size,)),))
    >>> a, b = (Graph.of([*(node(n, size) for n in range(5)), *(node(n, 9) for n in range(5, 20))]) for size in (4, 6))
    >>> [found.text for found in reviewed(a, b).findings if found.kind == "tensors"]
    ['sizes alone changed: 4 nodes (4 -> 6)']
    """
    changes = evidence.changes
    described = {
        change.id
        for change in changes
        if change.subject == "scope" and any(field.path[0] in _DESCRIBES for field in change.fields)
    }
    names = {change.id for change in changes if change.subject == "node"}

    def follows(change: Change) -> bool:
        node = evidence.graphs[1].nodes.get(change.id, Node(""))
        return node.scope in described if node.role == "parameter" else not names.isdisjoint(sources(node))

    alone = [at for at in evidence.left if _is_changed_node(changes[at]) and _has_other_tensors(evidence, changes[at])]
    found = [at for at in alone if follows(changes[at])]
    if len(found) >= _FEWEST:
        yield Finding(
            "tensors",
            "note",
            changes=(tuple(found),),
            count=len(found),
            details=_values(field for at in found for field in changes[at].fields if field.path[0] == "out"),
        )


def _is_changed_node(change: Change) -> bool:
    return (change.subject, change.kind) == ("node", "changed")


def _has_other_tensors(evidence: Evidence, change: Change) -> bool:
    return all(
        field.path[-1] in _OF_TENSORS
        if field.path[0] in {"out", "saved"} and len(field.path) > _PARTS
        else any(names_field(pattern, field.name) for pattern in evidence.words.sizes)
        for field in change.fields
    )


def _values(fields: Iterable[FieldChange]) -> dict[str, list[list[object]]]:
    """The pairs of values of each property of tensors, of shapes those of their sizes; the commonest first."""
    found: dict[str, Counter[tuple[object, object]]] = {}
    for field in fields:
        before, after = (None if value is UNSET else value for value in (field.before, field.after))
        if field.path[-1] != "shape":
            found.setdefault(str(field.path[-1]), Counter())[before, after] += 1
        elif isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
            pairs = {(was, now) for was, now in zip(before, after, strict=True) if was != now}
            found.setdefault("sizes", Counter()).update(pairs)
        else:
            found.setdefault("dimensions", Counter())
    return {what: [[*pair] for pair, _ in pairs.most_common()] for what, pairs in found.items()}
