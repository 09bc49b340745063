"""Nodes that changed only in where they read from, because a module came or went."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gradir.diffs.model import UNSET
from gradir.ir import Ref
from gradir.ir.ids import split_last
from gradir.review.relative_changes import names_a_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradir.diffs.model import Change
    from gradir.review.whole_modules import WholeModule

__all__ = ["readers"]

_MOST: Final = 4
"""More readers of one module are changes of their own modules, where equal ones are told together."""

_NO_EDGE: Final = (None, UNSET)


def readers(changes: Sequence[Change], owners: Mapping[int, WholeModule]) -> dict[int, WholeModule]:
    """By place among the changes, the module of which each such node tells no more than that it was put in or left out.

    ``owners`` are the modules that came or went, by the places of the changes in them.

    >>> from gradir.diffs.model import Change, FieldChange
    >>> from gradir.review.whole_modules import WholeModule
    >>> edge = FieldChange(("in", 0), Ref("exp:1", 0), Ref("new/exp:1", 0))
    >>> changes = [Change("added", "node", "new/exp:1"), Change("changed", "node", "sin:1", fields=(edge,))]
    >>> readers(changes, {0: WholeModule(True, "new", True)})
    {1: WholeModule(added=True, path='new', itself=True)}
    """
    if not owners:
        return {}
    nodes = {(whole.added, changes[at].id): whole for at, whole in owners.items() if changes[at].subject == "node"}
    found = {}
    for at, change in enumerate(changes):
        if change.subject == "node" and change.kind == "changed":
            whole = _read(change, nodes)
            if whole is not None:
                found[at] = whole
    many = Counter(found.values())
    return {at: whole for at, whole in found.items() if many[whole] <= _MOST}


def _read(change: Change, nodes: Mapping[tuple[bool, str], WholeModule]) -> WholeModule | None:
    """The module that all fields of a change read from now, or read from before."""
    modules = set()
    for field in change.fields:
        if not names_a_record(field.path) or field.before in _NO_EDGE or field.after in _NO_EDGE:
            return None
        modules.add(_owner(field.after, added=True, nodes=nodes) or _owner(field.before, added=False, nodes=nodes))
    return modules.pop() if len(modules) == 1 else None


def _owner(value: Ref | str, *, added: bool, nodes: Mapping[tuple[bool, str], WholeModule]) -> WholeModule | None:
    """The module of the node that a value names: a reference, an id, or ``id.slot`` for a storage."""
    name = value.id if isinstance(value, Ref) else value
    return nodes.get((added, name)) or nodes.get((added, split_last(name)[0]))
