"""Rules about added, removed and renamed modules, and about changes inside the others."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from gradir.diffs.changes import Finding
from gradir.diffs.matching.renames import rename
from gradir.ir.edges import sources
from gradir.ir.ids import mask_indices, remove_ordinal, split_index
from gradir.ir.module_tree import split_path, walk_up
from gradir.review.common_change import is_changed_node
from gradir.review.evidence import find_read_owner
from gradir.review.relative_changes import drop_sizes, make_relative, make_relative_without_feeds
from gradir.review.wording import is_renumbering, nesting

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change
    from gradir.diffs.modules import ChangedModule
    from gradir.ir import Graph
    from gradir.review.evidence import Evidence, WholeModule
    from gradir.review.relative_changes import RelativeChanges

# More readers of one module are reported with their own modules.
_MOST: Final = 4


def report_whole_modules(evidence: Evidence) -> Iterator[Finding]:
    """Report added and removed modules, equal ones together, each before the nodes that read from it."""
    # `itself` is false if only all nodes of the module were added or removed. `saved` has the bytes of the first of
    # equal modules, the fewest and the most. These differ if equal modules save one tensor, which counts once.
    wholes, outline = evidence.wholes, evidence.wholes.outline
    owners = {at: whole for at in evidence.left if (whole := wholes.find_top_of(evidence.changes[at])) is not None}
    readers = _find_readers(evidence, owners)
    inside: dict[WholeModule, list[int]] = {}
    for at, whole in owners.items():
        inside.setdefault(whole, []).append(at)
    grouped: dict[Hashable, list[WholeModule]] = {}
    details: dict[WholeModule, dict[str, Any]] = {}
    for whole in sorted(inside, key=wholes.position):
        changes = [evidence.changes[at] for at in inside[whole]]
        details[whole] = wholes.describe(whole, changes)
        # The report does not show the settings of submodules and nodes.
        own = [change if change.id == whole.path else replace(change, fields=()) for change in changes]
        key = whole.added, *details[whole].values(), drop_sizes(make_relative(own, whole.path))
        grouped.setdefault(key, []).append(whole)
    for members in grouped.values():
        first, *_ = members
        sizes = [wholes.saved_bytes[whole] for whole in members]
        yield Finding(
            "module-added" if first.added else "module-removed",
            "change",
            *_list_paths_and_changes(members, inside),
            details={**details[first], "saved": [sizes[0], min(sizes), max(sizes)]},
        )
        # Readers that differ only in sizes, and in numbers that count all layers, are reported together.
        alike: dict[Hashable, list[WholeModule]] = {}
        for whole in members:
            if whole in readers:
                reading = [evidence.changes[at] for at in readers[whole]]
                changes = [replace(each, id=remove_ordinal(each.id)) for each in reading]
                # The path that the module would have in the other graph, where its parent may have another name.
                parent, dot, name = whole.path.rpartition(".")
                above = outline.was(parent) if whole.added else outline.paths.get(parent)
                both = whole.path, whole.path if above is None else f"{above}{dot}{name}"
                relative = make_relative(changes, *(both if whole.added else both[::-1]))
                alike.setdefault(drop_sizes(relative), []).append(whole)
        paths = [whole.path for whole in members]
        for wholes_read in alike.values():
            yield Finding("reads", "change", *_list_paths_and_changes(wholes_read, readers), details={"of": paths})


def report_equal_modules(evidence: Evidence) -> Iterator[Finding]:
    """Report the other changes by module, those of equal modules together."""
    # `gone` is set if only the first graph has the modules, and `sizes` if their sizes differ.
    if not evidence.left:
        return
    outline = evidence.wholes.outline
    sections = [
        (module, module.path if module.gone else outline.was(module.path) or module.path, indices)
        for module, indices in outline.sections(evidence.changes, evidence.left)
    ]
    feeds = (
        _find_feeds(evidence.graphs[0], {_find_entry(before) for _, before, _ in sections}),
        _find_feeds(evidence.graphs[1], {_find_entry(module.path) for module, _, _ in sections}),
    )
    equal: dict[tuple[RelativeChanges, bool], dict[ChangedModule, tuple[int, ...]]] = {}
    for module, before, indices in sections:
        own_feeds = feeds[0].get(_find_entry(before), ""), feeds[1].get(_find_entry(module.path), "")
        found = [evidence.changes[at] for at in indices]
        key = make_relative_without_feeds(found, module.path, before, own_feeds), module.gone
        equal.setdefault(key, {})[module] = tuple(indices)
    alike: dict[tuple[Hashable, bool], list[dict[ChangedModule, tuple[int, ...]]]] = {}
    for (same, gone), members in equal.items():
        alike.setdefault((drop_sizes(same), gone), []).append(members)
    for (_, gone), groups in alike.items():
        members = {module: indices for group in groups for module, indices in group.items()}
        paths = tuple(module.path for module in members)
        details = {name: True for name, is_set in (("gone", gone), ("sizes", len(groups) > 1)) if is_set}
        yield Finding("same", "change", paths, tuple(members.values()), details=details)


def _list_paths_and_changes(
    wholes: Iterable[WholeModule], changes: Mapping[WholeModule, Sequence[int]]
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    return tuple(whole.path for whole in wholes), tuple(tuple(changes[whole]) for whole in wholes)


def _find_readers(evidence: Evidence, owners: Mapping[int, WholeModule]) -> dict[WholeModule, list[int]]:
    """Return by added or removed module the changes of nodes that changed only because of it."""
    if not owners:
        return {}
    changes = evidence.changes
    nodes = {(whole.added, changes[at].id): whole for at, whole in owners.items() if changes[at].subject == "node"}
    found: dict[WholeModule, list[int]] = {}
    for at in evidence.left:
        whole = find_read_owner(changes[at], nodes) if is_changed_node(changes[at]) else None
        if whole is not None:
            found.setdefault(whole, []).append(at)
    return {whole: indices for whole, indices in found.items() if len(indices) <= _MOST}


def _find_feeds(graph: Graph, paths: Collection[str]) -> dict[str, str]:
    """Return the node that each list entry reads from outside, for entries that read only one."""
    scopes = sorted({node.scope for node in graph.nodes.values()})
    entries: dict[str, str] = {}
    for path in paths if any(paths) else ():
        below = scopes[bisect_left(scopes, f"{path}.") : bisect_left(scopes, f"{path}/")]
        entries.update((scope, path) for scope in (path, *below) if path and _find_entry(scope) == path)
    found: dict[str, str] = {}
    for node in graph.nodes.values() if entries else ():
        entry = entries.get(node.scope, "")
        for source in sources(node) if entry else ():
            scope = graph.nodes[source].scope if source in graph.nodes else ""
            if scope != entry and not scope.startswith(f"{entry}."):
                found[entry] = source if found.get(entry, source) == source else ""
    return {path: source for path, source in found.items() if source}


def _find_entry(path: str) -> str:
    """Return the innermost list entry that is or contains a module, or an empty text."""
    return next((above for above in walk_up(path) if split_index(above.rpartition(".")[2])), "")


def report_graph_changes(evidence: Evidence) -> Iterator[Finding]:
    """Report renamed modules and tensors, equal renames together, and each change that is not of a node or module."""
    # The finding of a wrapped or unwrapped module includes its wrapper.
    equal: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at in evidence.left:
        if _is_rename(evidence.changes[at]):
            equal[_rename_key(evidence.changes[at])].append(at)
    grouped: defaultdict[Hashable, list[int]] = defaultdict(list)
    for key, indices in equal.items():
        # Renames that equal no other are grouped by the module around them.
        grouped[key if len(indices) > 1 else _siblings_key(evidence.changes[indices[0]])] += indices
    wrappers: set[int] = set()
    for indices in grouped.values():
        yield _make_rename_finding(evidence, indices, wrappers)
    for at in evidence.left:
        change = evidence.changes[at]
        if change.subject not in {"node", "scope", "module"}:
            is_minor = is_renumbering(change)
            kind = "cut-changed" if change.subject == "cut" else change.id if is_minor else "graph"
            yield Finding(kind, "note" if is_minor else "change", (change.id,), ((at,),))


def _is_rename(change: Change) -> bool:
    return change.subject == "module" or (change.subject, change.kind, change.fields) == ("scope", "renamed", ())


def _rename_key(change: Change) -> Hashable:
    """Return a key that is equal for equal renames: the same component changed, or the same wrapper."""
    role = change.label if change.subject == "module" else ""
    was, now = (name.split(".") for name in (change.old_id, change.id))
    how = nesting(change)
    if how:
        return role, how, max(was, now, key=len)[-1]
    pairs = {(old, new) for old, new in zip(was, now, strict=False) if old != new}
    if len(was) == len(now) and len(pairs) == 1:
        return role, *pairs
    return role, *rename(mask_indices(change.old_id), mask_indices(change.id))


def _siblings_key(change: Change) -> Hashable:
    """Return a key that is equal for renamed parts of one module without an index in the name of the part."""
    (parent, name), (new_parent, new_name) = split_path(change.old_id), split_path(change.id)
    are_names = not (nesting(change) or split_index(name) or split_index(new_name))
    return (change.subject, change.label, parent, new_parent) if are_names else (change.old_id, change.id)


def _make_rename_finding(evidence: Evidence, indices: Sequence[int], wrappers: set[int]) -> Finding:
    """Return the finding of equal renames, and add its wrappers to others."""
    changes = [evidence.changes[at] for at in indices]
    kind = nesting(changes[0]) or changes[0].kind
    own = [at for at in _find_wrappers(evidence, kind, changes) if at not in wrappers]
    wrappers.update(own)
    classes = dict.fromkeys(filter(None, (evidence.changes[at].label for at in own)))
    return Finding(
        kind,
        "note",
        tuple(change.id for change in changes),
        tuple((at, *(own if at == indices[0] else ())) for at in indices),
        [change.old_id for change in changes],
        count=sum(change.nodes for change in changes),
        details={"class": [*classes]} if classes else {},
    )


def _find_wrappers(evidence: Evidence, kind: str, changes: Sequence[Change]) -> Iterator[int]:
    """Yield the added modules around wrapped ones, or the removed modules around unwrapped ones."""
    wrapper_kind = {"wrapped": "added", "unwrapped": "removed"}.get(kind, "")
    names = [(change.old_id, change.id) for change in changes] if wrapper_kind else []
    places = {
        mask_indices(path)
        for inner, outer in (sorted(both, key=len, reverse=True) for both in names)
        for path in [*walk_up(inner), ""][1:]
        if len(path) >= len(outer)
    }
    for at in evidence.left if places else ():
        change = evidence.changes[at]
        if (change.subject, change.kind) == ("scope", wrapper_kind) and mask_indices(change.id) in places:
            yield at
