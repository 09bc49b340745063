"""The changes of a diff as a list beside a picture of both graphs: the outline, one change after the other."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from gradir.diffs.growth import sizes
from gradir.ir.ids import without_indices
from gradir.ir.marks import ListedChange
from gradir.ir.model import Ref
from gradir.review.outline import Group, stands_last
from gradir.review.text import cut_line, group_title, module_line
from gradir.review.wording import change_line, nesting, one_line, told_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change
    from gradir.review.comparison import Comparison
    from gradir.review.outline import Modules
    from gradir.review.wording import Line

__all__ = ["held_before", "listed"]

_WHOLE: Final = "(whole graph)"
_FOLLOWING: Final = "(follows from frozen parameters)"
_OF_ALL: Final = "(follows from what changed for all)"
_INPUTS: Final = "in"
_ANY: Final = "*"
_SIGN: Final = 2
"""Lines of the text report start with a sign and a blank."""


def listed(comparison: Comparison) -> list[ListedChange]:
    """The changes in the order of the text report, with the nodes of `Comparison.union` that each is about.

    Changes that equal modules have in common are one, with the nodes of all of them.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> a, b = (Graph.of([Node(f"h.{n}/f:1", op=op, scope=f"h.{n}") for n in range(2)]) for op in ("exp", "sin"))
    >>> found = listed(Comparison(a, b))[0]
    >>> found.kind, found.group, found.text, found.nodes, found.fields
    ('changed', 'h.{0,1}: the same change in each of 2 modules, here in h.0', 'h.0/f:1  sin', \
['h.0/f:1', 'h.1/f:1'], [('op', 'exp', 'sin')])
    """
    return list(_Listing(comparison).changes())


def held_before(comparison: Comparison) -> dict[str, tuple[int, int]]:
    """What `gradir.protocols.ListsChanges` asks of the modules of the first graph."""
    scopes, own = comparison.before.scopes, sizes(comparison.before)
    return {
        comparison.path_in_union(path): (
            scopes[path].total if path in scopes else 0,
            own[path].saved_bytes if path in own else 0,
        )
        for path in {**scopes, **own}
    }


class _Listing:
    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def changes(self) -> Iterator[ListedChange]:
        """The changes, one after the other."""
        outline = self._comparison.outline
        for cuts in outline.cuts:
            yield self._listed(_WHOLE, cut_line(cuts), cuts.changes, cuts.nodes)
        for change in outline.facts:
            if not stands_last(change):
                yield self._listed(_WHOLE, change_line(change), [change])
        for entry in outline.entries:
            if isinstance(entry, Group):
                title = group_title(entry)
                for same in zip(*entry.changes, strict=True):
                    yield self._listed(title, change_line(same[0]), same)
            else:
                yield from self._modules(entry)
        last = list(filter(stands_last, outline.facts))
        for group, changes in ((_WHOLE, last), (_FOLLOWING, outline.explained), (_OF_ALL, outline.following)):
            for change in changes:
                yield self._listed(group, change_line(change), [change])

    def _modules(self, entry: Modules) -> Iterator[ListedChange]:
        """Modules that came or went, and what reads from them."""
        paths = list(entry.paths if entry.added else map(self._comparison.path_in_union, entry.paths))
        kind, text = "added" if entry.added else "removed", module_line(entry).text[_SIGN:]
        yield ListedChange(kind, text, text, self._nodes(chain.from_iterable(entry.changes)), paths)
        for _, changes in entry.readers:
            for same in zip(*changes, strict=True):
                yield self._listed(text, change_line(same[0]), same)

    def _listed(self, group: str, line: Line, same: Sequence[Change], others: Sequence[Change] = ()) -> ListedChange:
        """Changes that are the same in several modules, as one; of ``others`` the nodes count only."""
        first = same[0]
        has_other_name = first.was and first.kind in {"renamed", "moved"}
        names = [("name", one_line(first.was), one_line(first.id))] if has_other_name else []
        return ListedChange(
            # A module that is wrapped has its name, in another one.
            "moved" if nesting(first) else first.kind,
            group,
            line.text[_SIGN:],
            self._nodes([*same, *others]),
            [*dict.fromkeys(chain.from_iterable(map(self._scopes, same)))],
            [*names, *told_fields(first)],
            [slot for change in same if change.subject == "node" for slot in _new_slots(change)],
            [cut for change in same if (cut := self._comparison.cut_in_union(change))],
        )

    def _nodes(self, changes: Iterable[Change]) -> list[str]:
        """The nodes of some changes, and of a parameter that gradient reaches no more or again, its node."""
        return [*dict.fromkeys(filter(None, map(self._comparison.node_in_union, changes)))]

    def _scopes(self, change: Change) -> list[str]:
        """The modules that a change is about by itself; of those that were renamed alike, all."""
        if change.subject not in {"scope", "module"} or not change.id:
            return []
        if change.kind == "removed":
            return [self._comparison.path_in_union(change.id)]
        return self._instances(change) if change.subject == "module" else [change.id]

    def _instances(self, change: Change) -> list[str]:
        """The modules that a rename with ``*`` in it is about."""
        path = change.id
        marks = path.split(".")
        if _ANY not in marks:
            return [path]
        before = self._comparison.renamed.before
        return [
            new
            for old, new in self._renamed.get(without_indices(path), ())
            if before(new) == old
            and all(mark in {_ANY, part} for mark, part in zip(marks, new.split("."), strict=True))
        ]

    @cached_property
    def _renamed(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """By what they are called now, but for indices, the modules that were called otherwise, with both names."""
        found: dict[str, list[tuple[str, str]]] = {}
        for old, new in self._comparison.correspondence.paths.items():
            if old != new:
                found.setdefault(without_indices(new), []).append((old, new))
        return found


def _new_slots(change: Change) -> Iterator[tuple[str, int]]:
    """The input slots of a node that take from elsewhere than before."""
    for field in change.fields:
        if isinstance(field.after, Ref) and field.path[0] == _INPUTS and len(field.path) > 1:
            yield change.id, int(field.path[1])
