"""Modules that came or went with all that is in them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gradir.diffs.changes import UNSET, Finding
from gradir.ir import Ref
from gradir.ir.ids import split_last
from gradir.review.relative_changes import but_for_sizes, made_relative, names_a_record

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change
    from gradir.review.evidence import Evidence
    from gradir.review.places import Contents, WholeModule
    from gradir.review.relative_changes import RelativeChanges


def modules(evidence: Evidence) -> Iterator[Finding]:
    """Modules that came or went, equal ones together, each before the nodes that read from it now, or did before.

    Of modules that keep the same tensor the first one counts it: ``saved`` has the bytes of the first, the fewest and
    the most. ``itself`` says that the module came or went too; else it is there on both sides, and without a node on
    the other.

    >>> from gradir.ir import Graph, Node, Scope
    >>> from gradir.review.reviewing import reviewed
    >>> a, b = Graph.of([]), Graph.of([Node("m/exp:1", scope="m")], [Scope("m", "Exp")])
    >>> [found.text for found in reviewed(a, b).findings if found.kind == "module-added"]
    ['module m  Exp  1 node']
    """
    owners = {at: whole for at in evidence.left if (whole := evidence.wholes.of(evidence.changes[at])) is not None}
    inside, reading = _by_module(owners), _by_module(_readers(evidence, owners))
    together: dict[Hashable, dict[WholeModule, Contents]] = {}
    for whole in sorted(inside, key=evidence.order.position):
        changes = [evidence.changes[at] for at in inside[whole]]
        # Of what lies in it, no settings are told.
        own = [change if change.id == whole.path else replace(change, fields=()) for change in changes]
        contents = evidence.wholes.contents(whole, changes)
        but_for_bytes = contents._replace(saved_bytes=0)
        relative = but_for_sizes(made_relative(own, whole.path))
        key = whole.added, whole.itself, evidence.wholes.class_name(whole), but_for_bytes, relative
        together.setdefault(key, {})[whole] = contents
    for members in together.values():
        yield _came_or_went(evidence, members, inside)
        readers: dict[RelativeChanges, list[WholeModule]] = {}
        for whole in members:
            if whole in reading:
                changes = [evidence.changes[at] for at in reading[whole]]
                readers.setdefault(made_relative(changes, whole.path), []).append(whole)
        of = [whole.path for whole in members]
        for by in readers.values():
            yield Finding("reads", "change", *_with_changes(by, reading), details={"of": of})


def _came_or_went(
    evidence: Evidence, members: Mapping[WholeModule, Contents], inside: Mapping[WholeModule, Sequence[int]]
) -> Finding:
    first = next(iter(members))
    sizes = [contents.saved_bytes for contents in members.values()]
    figures = members[first]._asdict()
    saved = [figures.pop("saved_bytes"), min(sizes), max(sizes)]
    return Finding(
        "module-added" if first.added else "module-removed",
        "change",
        *_with_changes(members, inside),
        details={"itself": first.itself, "class": evidence.wholes.class_name(first), **figures, "saved": saved},
    )


def _by_module(owners: Mapping[int, WholeModule]) -> dict[WholeModule, list[int]]:
    found: dict[WholeModule, list[int]] = {}
    for at, whole in owners.items():
        found.setdefault(whole, []).append(at)
    return found


def _with_changes(
    wholes: Iterable[WholeModule], changes: Mapping[WholeModule, Sequence[int]]
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    return tuple(whole.path for whole in wholes), tuple(tuple(changes[whole]) for whole in wholes)


_MOST: Final = 4
"""More readers of one module are changes of their own modules, where equal ones are told together."""

_NO_EDGE: Final = (None, UNSET)


def _readers(evidence: Evidence, owners: Mapping[int, WholeModule]) -> dict[int, WholeModule]:
    """By place among the changes, the module of which each such node tells no more than that it was put in or left out.

    ``owners`` are the modules that came or went, by the places of the changes in them.
    """
    if not owners:
        return {}
    changes = evidence.changes
    nodes = {(whole.added, changes[at].id): whole for at, whole in owners.items() if changes[at].subject == "node"}
    found = {}
    for at in evidence.left:
        if changes[at].subject == "node" and changes[at].kind == "changed":
            whole = _read(changes[at], nodes)
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
