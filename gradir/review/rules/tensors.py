"""Changes that most nodes have, nodes in which tensors alone changed, and saved tensors that hooks hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gradir.diffs.changes import UNSET, Finding
from gradir.diffs.field_changes import names_field
from gradir.ir import Node, Saved
from gradir.ir.edges import sources
from gradir.review.of_all import uniform

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


def for_all(evidence: Evidence) -> Iterator[Finding]:
    """Report the properties and sizes that most changed nodes share, with the changes that only follow from that."""
    same = list(uniform(evidence.changes))
    yield from same
    found = evidence.of_all
    following = tuple(at for at in evidence.left if at in found.follow)
    if found.sizes and not any(each.subjects[0].startswith("dimension ") for each in same):
        yield Finding("sizes", "change", details={"sizes": found.sizes})
    if found.casts:
        yield Finding("casts", "change", details={"casts": found.casts})
    if following:
        yield Finding("following", "note", changes=(following,), count=len(following))


def hooked(evidence: Evidence) -> Iterator[Finding]:
    """Report nodes that changed only in that a hook holds what they saved, or holds it no more."""
    for kind, state in (("hooked", "after"), ("unhooked", "before")):
        found = {
            at: len(change.fields)
            for at in evidence.left
            if _is_changed_node(change := evidence.changes[at])
            and all(_is_hooked(field, state) for field in change.fields)
        }
        if len(found) >= _FEWEST:
            modules = tuple(dict.fromkeys(evidence.changes[at].scope for at in found))
            yield Finding(kind, "note", modules, (tuple(found),), count=sum(found.values()))


def _is_hooked(field: FieldChange, side: str) -> bool:
    """Return whether a hook holds a saved tensor on this side, and nothing but the node on the other."""
    values = field.before, field.after
    here, there = values if side == "before" else values[::-1]
    return isinstance(here, Saved) and isinstance(there, Saved) and here.state == "hooked" != there.state


def tensors(evidence: Evidence) -> Iterator[Finding]:
    """Report nodes that read something that changed and differ in the sizes, dtypes or devices of tensors alone.

    The parameters of a module with another description are among them. The node where such a change begins is not.
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
    """Return the pairs of values of each property of tensors, of shapes those of sizes; the commonest first."""
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
