"""The changes of a diff as a list beside a picture of both graphs, in the order of the text."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from gradir.ir.ids import without_indices
from gradir.ir.marks import ListedChange
from gradir.ir.model import Ref
from gradir.ir.totals import sizes
from gradir.review.kinds import sections
from gradir.review.wording import change_text, field_texts, name_values, nesting, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change, Diff, Finding, Kind, Sides
    from gradir.review.united import United

_WHOLE: Final = "(whole graph)"
_FOLLOWING: Final = {
    "frozen": "(follows from frozen parameters)",
    "unfrozen": "(follows from unfrozen parameters)",
    "following": "(follows from what changed for all)",
}
_INPUTS: Final = "in"
_ANY: Final = "*"


def list_changes(diff: Diff, sides: Sides, united: United) -> list[ListedChange]:
    """Return the changes in the order of the text, with the nodes of the united graph that each is about."""
    # Modules in which nothing but inputs, outputs and saved tensors changed follow the others, which are the cause.
    # Equal changes of several modules are one, with the nodes of all.
    return list(_Listing(diff, sides, united).changes())


def held_before(sides: Sides, united: United) -> dict[str, tuple[int, int]]:
    """Return the size and saved bytes of each module of the first graph."""
    scopes, own = sides.before.scopes, sizes(sides.before.nodes.values())
    return {
        united.path(path): (scopes[path].total if path in scopes else 0, own[path].saved_bytes if path in own else 0)
        for path in {**scopes, **own}
    }


class _Listing:
    def __init__(self, diff: Diff, sides: Sides, united: United) -> None:
        self._diff = diff
        self._paths = sides.names().paths
        self._united = united
        self._changes = name_values(diff)

    def changes(self) -> Iterator[ListedChange]:
        found = sections(self._diff)
        within = ""
        for finding in (*found["graph"], *self._causes_first(found["modules"]), *found["last"], *found["note"]):
            of_each = [[self._changes[at] for at in indices] for indices in finding.changes]
            if finding.kind in {"cut-added", "cut-removed"}:
                cuts, others = of_each
                yield self._listed(_WHOLE, cuts, others, finding.text)
            elif finding.kind in {"module-added", "module-removed"}:
                within = finding.text
                is_gone = finding.kind == "module-removed"
                paths = [self._united.path(path) if is_gone else path for path in finding.subjects]
                kind: Kind = "removed" if is_gone else "added"
                nodes = self._nodes(chain.from_iterable(of_each))
                yield ListedChange(kind, within, within, nodes, paths)
            elif finding.kind in {"same", "reads"}:
                for same in zip(*of_each, strict=True):
                    yield self._listed(within if finding.kind == "reads" else finding.text, same)
            else:
                for change in chain.from_iterable(of_each):
                    yield self._listed(_FOLLOWING.get(finding.kind, _WHOLE), [change])

    def _causes_first(self, findings: Sequence[Finding]) -> Iterable[Finding]:
        together: list[list[Finding]] = []
        for finding in findings:
            # What reads a module that came or went stands below it.
            if finding.kind == "reads" and together:
                together[-1].append(finding)
            else:
                together.append([finding])

        def only_follows(findings: Sequence[Finding]) -> bool:
            """Return whether the first finding is of fields that change with the nodes before."""
            changes = (self._changes[at] for indices in findings[0].changes for at in indices)
            return all(
                (change.subject, change.kind) == ("node", "changed")
                and all(field.path[0] in {_INPUTS, "out", "saved"} for field in change.fields)
                for change in changes
            )

        ordered: list[list[Finding]] = sorted(together, key=only_follows)
        return chain.from_iterable(ordered)

    def _listed(
        self, group: str, same: Sequence[Change], others: Sequence[Change] = (), text: str = ""
    ) -> ListedChange:
        """Return equal changes of several modules as one; ``others`` only add their nodes."""
        first = same[0]
        has_other_name = first.was and first.kind in {"renamed", "moved"}
        names = [("name", one_line(first.was), one_line(first.id))] if has_other_name else []
        return ListedChange(
            # A module that is wrapped has its name, in another one.
            "moved" if nesting(first) else first.kind,
            group,
            text or change_text(first),
            self._nodes([*same, *others]),
            [*dict.fromkeys(chain.from_iterable(map(self._scopes, same)))],
            [*names, *field_texts(first)],
            [
                (change.id, int(field.path[1]))
                for change in same
                if change.subject == "node"
                for field in change.fields
                if isinstance(field.after, Ref) and field.path[0] == _INPUTS and len(field.path) > 1
            ],
            [cut for change in same if (cut := self._united.cut(change))],
        )

    def _nodes(self, changes: Iterable[Change]) -> list[str]:
        """Return the nodes of some changes, and those of parameters that lost or gained their gradient."""
        return [*dict.fromkeys(filter(None, map(self._united.node, changes)))]

    def _scopes(self, change: Change) -> list[str]:
        """Return the modules that a change is about by itself; all of those that were renamed alike."""
        if change.subject not in {"scope", "module"} or not change.id:
            return []
        if change.kind == "removed":
            return [self._united.path(change.id)]
        if change.subject == "scope" or not _is_of_several(change.id):
            return [change.id]
        pairs = self._renamed.get(without_indices(change.id), ())
        return [new for old, new in pairs if _matches_pattern(change.was, old) and _matches_pattern(change.id, new)]

    @cached_property
    def _renamed(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """The modules with another name as pairs of both names, by the new name without indices."""
        found: dict[str, list[tuple[str, str]]] = {}
        for old, new in self._paths.items():
            if old != new:
                found.setdefault(without_indices(new), []).append((old, new))
        return found


def _is_of_several(name: str) -> bool:
    return _ANY in name.split(".")


def _matches_pattern(marks: str, path: str) -> bool:
    both = marks.split("."), path.split(".")
    return len(both[0]) == len(both[1]) and all(mark in {_ANY, part} for mark, part in zip(*both, strict=True))
