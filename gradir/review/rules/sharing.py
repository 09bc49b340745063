"""The rule about modules that became one module, which runs several times, and the reverse."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradir.diffs.changes import ADDED_OR_REMOVED, Finding
from gradir.ir.ids import mask_numbers
from gradir.ir.module_tree import walk_up
from gradir.review.evidence import find_read_owner
from gradir.review.relative_changes import COUNTS, COUNTS_AND_CALLS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from gradir.diffs.changes import Change
    from gradir.ir import Graph
    from gradir.review.evidence import Evidence


@dataclass(eq=False)
class _Shared:
    """The module at ``path`` of one graph, and the modules of the other graph that it replaces."""

    path: str
    others: dict[str, None] = field(default_factory=dict)
    changes: list[int] = field(default_factory=list)
    # How many more of each operation the module runs than the others did.
    surplus: Counter[Hashable] = field(default_factory=Counter)


def report_shared_modules(evidence: Evidence) -> Iterator[Finding]:
    """Report equal modules that became one, with the changes that only follow, and the reverse."""
    # The removed modules must have other names of the remaining module's parameters, and it must run their operations.
    for is_joined in (True, False):
        many, one = evidence.graphs if is_joined else evidence.graphs[::-1]
        places = _find_places(evidence, many, one, "removed" if is_joined else "added")
        _add_changes(evidence, places, "added" if is_joined else "removed")
        grouped: defaultdict[tuple[str, int, str], list[_Shared]] = defaultdict(list)
        for each in dict.fromkeys(places.values()):
            scope = one.scopes[each.path]
            are_equal = {many.scopes[other].class_name for other in each.others} == {scope.class_name}
            if are_equal and not any(each.surplus.values()):
                grouped[scope.class_name, scope.calls, mask_numbers(each.path)].append(each)
        for (name, calls, _), found in grouped.items():
            yield Finding(
                "shared" if is_joined else "unshared",
                "change",
                tuple(path for each in found for path in (each.path, *each.others)),
                tuple(tuple(each.changes) for each in found),
                count=len(found),
                details={"class": name, "calls": calls},
            )


def _find_places(evidence: Evidence, many: Graph, one: Graph, kind: str) -> Mapping[str, _Shared]:
    """Return the shared modules by their paths in both graphs."""
    gone = {change.id for change in evidence.changes if (change.subject, change.kind) == ("scope", kind)}
    tied = {name for node in many.nodes.values() if gone and len(node.names) > 1 for name in node.names}
    found: dict[str, _Shared] = {}
    for node in one.nodes.values() if gone else ():
        for name in node.names[1:] if node.role == "parameter" else ():
            for other in [*walk_up(name.rpartition(".")[0])][::-1]:
                path = node.names[0].removesuffix(name[len(other) :])
                if other in gone and path in one.scopes and path not in {node.names[0], other}:
                    shared = found.setdefault(path, _Shared(path))
                    if found.setdefault(other, shared) is shared:
                        shared.others[other] = None
                        # The modules do not become one if both graphs share a parameter of them.
                        shared.surplus[name] += name in tied
                    break
    return found


def _add_changes(evidence: Evidence, places: Mapping[str, _Shared], own: str) -> None:
    """Add the changes that follow; those of kind ``own`` are in the shared module."""
    ends: dict[tuple[bool, str], _Shared] = {}
    around = {above: each for path, each in places.items() for above in (*walk_up(path), "")}
    for at in evidence.left if places else ():
        change = evidence.changes[at]
        place = next((path for path in walk_up(change.scope) if path in places), "")
        shared, is_added = places.get(place), change.kind == "added"
        if shared is not None and change.kind in ADDED_OR_REMOVED and (change.kind == own) == (place == shared.path):
            ends[is_added, change.id] = shared
            shared.changes.append(at)
            node = evidence.graphs[is_added].nodes.get(change.id)
            if node is not None and node.role == "function" and node.op not in evidence.vocabulary.accumulators:
                shared.surplus[change.scope[len(place) :], node.op, node.outputs] += 1 if change.kind == own else -1
        elif shared is not None and _only_follows(change, COUNTS_AND_CALLS):
            shared.changes.append(at)
        elif change.id in around and change.subject == "scope" and _only_follows(change, COUNTS):
            around[change.id].changes.append(at)
    for at in evidence.left if ends else ():
        is_reader = evidence.changes[at].subject == "node" and evidence.changes[at].kind not in ADDED_OR_REMOVED
        if is_reader and (owner := find_read_owner(evidence.changes[at], ends)) is not None:
            owner.changes.append(at)


def _only_follows(change: Change, keys: frozenset[str]) -> bool:
    """Return whether only these fields changed, or only names."""
    paths = {field.path[0] for field in change.fields}
    return change.kind not in ADDED_OR_REMOVED and (paths <= keys or paths == {"names"})
