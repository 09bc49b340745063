"""List the changes of a diff beside a picture of both graphs, in the order of the text."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from gradir.ir.ids import mask_indices
from gradir.ir.marks import ListedChange
from gradir.ir.memo import group_by_key
from gradir.ir.model import Ref
from gradir.ir.totals import sizes
from gradir.review.common_change import is_changed_node
from gradir.review.kinds import EDITS_OF_SEVERAL, sections
from gradir.review.wording import change_text, field_texts, name_values, nesting, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change, Diff, Finding, Kind, Sides
    from gradir.review.united import UnionGraph

_WHOLE: Final = "(whole graph)"
_FOLLOWING: Final = {
    "frozen": "(follows from frozen parameters)",
    "unfrozen": "(follows from unfrozen parameters)",
    "following": "(follows from a change of all)",
}
_INPUTS: Final = "in"
_ANY: Final = "*"


def list_changes(diff: Diff, sides: Sides, united: UnionGraph) -> list[ListedChange]:
    """Return the changes in the order of the text, with their nodes in the united graph."""
    # Modules with changes only of inputs, outputs and saved tensors follow the others, which are the cause. Equal
    # changes of several modules are one, with the nodes of all.
    return list(_Listing(diff, sides, united).list_changes())


def measure_modules_before(sides: Sides, united: UnionGraph) -> dict[str, tuple[int, int]]:
    """Return the size and saved bytes of each module of the first graph."""
    scopes, own = sides.before.scopes, sizes(sides.before.nodes.values())
    return {
        united.path(path): (scopes[path].total if path in scopes else 0, own[path].saved_bytes if path in own else 0)
        for path in {**scopes, **own}
    }


class _Listing:
    def __init__(self, diff: Diff, sides: Sides, united: UnionGraph) -> None:
        self._diff = diff
        self._paths = sides.names().paths
        self._united = united
        self._changes = name_values(diff)

    def list_changes(self) -> Iterator[ListedChange]:
        found = sections(self._diff)
        within = ""
        for finding in (*found["graph"], *self._sort_causes_first(found["modules"]), *found["last"], *found["note"]):
            groups = [[self._changes[at] for at in indices] for indices in finding.changes]
            if finding.kind in {"cut-added", "cut-removed"}:
                cuts, others = groups
                yield self._merge_changes(_WHOLE, cuts, others, finding.text)
            elif finding.kind in EDITS_OF_SEVERAL:
                first, *others = chain.from_iterable(groups)
                yield self._merge_changes(_WHOLE, [first], others, finding.text)._replace(kind="changed")
            elif finding.kind in {"module-added", "module-removed"}:
                within = finding.text
                is_removed = finding.kind == "module-removed"
                paths = [self._united.path(path) if is_removed else path for path in finding.subjects]
                kind: Kind = "removed" if is_removed else "added"
                nodes = self._find_nodes(chain.from_iterable(groups))
                yield ListedChange(kind, within, within, nodes, paths)
            elif finding.kind in {"same", "reads"}:
                for same in zip(*groups, strict=True):
                    yield self._merge_changes(within if finding.kind == "reads" else finding.text, same)
            else:
                for change in chain.from_iterable(groups):
                    yield self._merge_changes(_FOLLOWING.get(finding.kind, _WHOLE), [change])

    def _sort_causes_first(self, findings: Sequence[Finding]) -> Iterable[Finding]:
        blocks: list[list[Finding]] = []
        for finding in findings:
            # The readers of an added or removed module are listed below it.
            if finding.kind == "reads" and blocks:
                blocks[-1].append(finding)
            else:
                blocks.append([finding])

        lost = {node for found in self._diff.findings if found.kind == "lost-inputs" for node in found.subjects}

        def rank(block: Sequence[Finding]) -> int:
            """Return 0 for a lost input, 2 for a possible consequence of others, or 1."""
            changes = [self._changes[at] for indices in block[0].changes for at in indices]
            if any(change.id in lost for change in changes):
                return 0
            return 1 + all(
                is_changed_node(change) and all(field.path[0] in {_INPUTS, "out", "saved"} for field in change.fields)
                for change in changes
            )

        blocks.sort(key=rank)
        return chain.from_iterable(blocks)

    def _merge_changes(
        self, group: str, same: Sequence[Change], others: Sequence[Change] = (), text: str = ""
    ) -> ListedChange:
        """Return equal changes of several modules as one; ``others`` only add their nodes."""
        first = same[0]
        has_other_name = first.old_id and first.kind in {"renamed", "moved"}
        names = [("name", one_line(first.old_id), one_line(first.id))] if has_other_name else []
        return ListedChange(
            # A wrapped module has the same name inside another module.
            "moved" if nesting(first) else first.kind,
            group,
            text or change_text(first),
            self._find_nodes([*same, *others]),
            [*dict.fromkeys(chain.from_iterable(map(self._find_modules, same)))],
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

    def _find_nodes(self, changes: Iterable[Change]) -> list[str]:
        """Return the nodes of changes, with parameters that lost or gained their gradient."""
        return [*dict.fromkeys(filter(None, map(self._united.node, changes)))]

    def _find_modules(self, change: Change) -> list[str]:
        """Return the modules that a change names, with all that a renamed pattern matches."""
        if change.subject not in {"scope", "module"} or not change.id:
            return []
        if change.kind == "removed":
            return [self._united.path(change.id)]
        if change.subject == "scope" or not _is_pattern(change.id):
            return [change.id]
        pairs = self._renamed.get(mask_indices(change.id), ())
        return [new for old, new in pairs if _matches_pattern(change.old_id, old) and _matches_pattern(change.id, new)]

    @cached_property
    def _renamed(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Renamed modules as pairs of both names, by the new name without indices."""
        return group_by_key((mask_indices(new), (old, new)) for old, new in self._paths.items() if old != new)


def _is_pattern(path: str) -> bool:
    return _ANY in path.split(".")


def _matches_pattern(pattern: str, path: str) -> bool:
    entries, parts = pattern.split("."), path.split(".")
    return len(entries) == len(parts) and all(entry in {_ANY, part} for entry, part in zip(entries, parts, strict=True))
