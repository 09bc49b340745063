"""Rules about modules that came or went, that have another name, and about the changes within the others."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gradir.diffs.changes import UNSET, Finding
from gradir.diffs.matching.renames import rename
from gradir.ir import Ref
from gradir.ir.edges import sources
from gradir.ir.ids import numbered, split_last, without_indices
from gradir.ir.module_tree import upwards
from gradir.review.relative_changes import drop_sizes, make_relative, make_relative_without_feeds, names_a_record
from gradir.review.wording import is_renumbering, nesting

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change
    from gradir.diffs.modules import ChangedModule
    from gradir.ir import Graph
    from gradir.review.evidence import Contents, Evidence, WholeModule
    from gradir.review.relative_changes import RelativeChanges

# More readers of one module are changes of their own modules, where equal ones are reported together.
_MOST: Final = 4
_NO_EDGE: Final = (None, UNSET)


def report_whole_modules(evidence: Evidence) -> Iterator[Finding]:
    """Report modules that came or went, equal ones together, each before the nodes that read from it now or before."""
    # `itself` says that the module came or went too, not only all nodes in it. `saved` has the bytes of the first of
    # equal modules, the fewest and the most: the first of those that save one tensor counts it.
    wholes = evidence.wholes
    owners = {at: whole for at in evidence.left if (whole := wholes.of(evidence.changes[at])) is not None}
    reading = _find_readers(evidence, owners)
    inside: dict[WholeModule, list[int]] = {}
    for at, whole in owners.items():
        inside.setdefault(whole, []).append(at)
    together: dict[Hashable, dict[WholeModule, Contents]] = {}
    for whole in sorted(inside, key=wholes.position):
        changes = [evidence.changes[at] for at in inside[whole]]
        # Of what lies in it, no settings are told.
        own = [change if change.id == whole.path else replace(change, fields=()) for change in changes]
        contents = wholes.contents(whole, changes)
        but_for_bytes = contents._replace(saved_bytes=0)
        relative = drop_sizes(make_relative(own, whole.path))
        key = whole.added, whole.itself, wholes.class_name(whole), but_for_bytes, relative
        together.setdefault(key, {})[whole] = contents
    for members in together.values():
        yield _make_module_finding(evidence, members, inside)
        # The sizes of what reads are not told.
        readers: dict[Hashable, list[WholeModule]] = {}
        for whole in members:
            if whole in reading:
                changes = [evidence.changes[at] for at in reading[whole]]
                readers.setdefault(drop_sizes(make_relative(changes, whole.path)), []).append(whole)
        of = [whole.path for whole in members]
        for by in readers.values():
            yield Finding("reads", "change", *_list_paths_and_changes(by, reading), details={"of": of})


def report_equal_modules(evidence: Evidence) -> Iterator[Finding]:
    """Report the changes that nothing else explains by module, those of equal modules together."""
    # `gone` is there if only the first graph has the modules, and `sizes` if their sizes differ.
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
    together: dict[tuple[RelativeChanges, bool], dict[ChangedModule, tuple[int, ...]]] = {}
    for module, before, indices in sections:
        fed = feeds[0].get(_find_entry(before), ""), feeds[1].get(_find_entry(module.path), "")
        found = [evidence.changes[at] for at in indices]
        key = make_relative_without_feeds(found, module.path, before, fed), module.gone
        together.setdefault(key, {})[module] = tuple(indices)
    but: dict[tuple[Hashable, bool], list[dict[ChangedModule, tuple[int, ...]]]] = {}
    for (same, gone), members in together.items():
        but.setdefault((drop_sizes(same), gone), []).append(members)
    for (_, gone), groups in but.items():
        members = {module: indices for group in groups for module, indices in group.items()}
        paths = tuple(module.path for module in members)
        details = {name: True for name, holds in (("gone", gone), ("sizes", len(groups) > 1)) if holds}
        yield Finding("same", "change", paths, tuple(members.values()), details=details)


def _make_module_finding(
    evidence: Evidence, members: Mapping[WholeModule, Contents], inside: Mapping[WholeModule, Sequence[int]]
) -> Finding:
    first = next(iter(members))
    sizes = [contents.saved_bytes for contents in members.values()]
    figures = members[first]._asdict()
    saved = [figures.pop("saved_bytes"), min(sizes), max(sizes)]
    return Finding(
        "module-added" if first.added else "module-removed",
        "change",
        *_list_paths_and_changes(members, inside),
        details={"itself": first.itself, "class": evidence.wholes.class_name(first), **figures, "saved": saved},
    )


def _list_paths_and_changes(
    wholes: Iterable[WholeModule], changes: Mapping[WholeModule, Sequence[int]]
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    return tuple(whole.path for whole in wholes), tuple(tuple(changes[whole]) for whole in wholes)


def _find_readers(evidence: Evidence, owners: Mapping[int, WholeModule]) -> dict[WholeModule, list[int]]:
    """Return by module that came or went the changes of nodes that changed only because of that."""
    if not owners:
        return {}
    changes = evidence.changes
    nodes = {(whole.added, changes[at].id): whole for at, whole in owners.items() if changes[at].subject == "node"}
    found: dict[WholeModule, list[int]] = {}
    for at in evidence.left:
        if (changes[at].subject, changes[at].kind) == ("node", "changed"):
            whole = _find_read_module(changes[at], nodes)
            if whole is not None:
                found.setdefault(whole, []).append(at)
    return {whole: indices for whole, indices in found.items() if len(indices) <= _MOST}


def _find_read_module(change: Change, nodes: Mapping[tuple[bool, str], WholeModule]) -> WholeModule | None:
    """Return the module that all fields of a change read from now, or read from before."""
    modules = set()
    for field in change.fields:
        if not names_a_record(field.path) or field.before in _NO_EDGE or field.after in _NO_EDGE:
            return None
        modules.add(
            _find_owner(field.after, added=True, nodes=nodes) or _find_owner(field.before, added=False, nodes=nodes)
        )
    return modules.pop() if len(modules) == 1 else None


def _find_owner(value: Ref | str, *, added: bool, nodes: Mapping[tuple[bool, str], WholeModule]) -> WholeModule | None:
    """Return the module of the node that a value names: a reference, an id, or ``id.slot`` for a storage."""
    name = value.id if isinstance(value, Ref) else value
    return nodes.get((added, name)) or nodes.get((added, split_last(name)[0]))


def _find_feeds(graph: Graph, among: Collection[str]) -> dict[str, str]:
    """Return for some entries of lists the only node that each reads from outside; none if there are several."""
    scopes = sorted({node.scope for node in graph.nodes.values()})
    entries: dict[str, str] = {}
    for path in among if any(among) else ():
        below = scopes[bisect_left(scopes, f"{path}.") : bisect_left(scopes, f"{path}/")]
        entries.update((scope, path) for scope in (path, *below) if path and _find_entry(scope) == path)
    found: dict[str, str] = {}
    for node in graph.nodes.values() if entries else ():
        here = entries.get(node.scope, "")
        for source in sources(node) if here else ():
            there = graph.nodes[source].scope if source in graph.nodes else ""
            if there != here and not there.startswith(f"{here}."):
                found[here] = source if found.get(here, source) == source else ""
    return {path: source for path, source in found.items() if source}


def _find_entry(path: str) -> str:
    """Return the innermost entry of a list that a module lies in, or is; nothing if it lies in none."""
    return next((above for above in upwards(path) if numbered(above.rpartition(".")[2])), "")


def report_graph_changes(evidence: Evidence) -> Iterator[Finding]:
    """Report renames of modules and tensors, equal ones together, and each change of no node and no module."""
    # The finding of a module that was wrapped, or is no more, includes its wrapper.
    together: dict[Hashable, list[int]] = {}
    for at in evidence.left:
        change = evidence.changes[at]
        if _is_rename(change):
            together.setdefault(_rename_key(change), []).append(at)
        elif change.subject not in {"node", "scope"}:
            together[at] = [at]
    wrappers: set[int] = set()
    for indices in together.values():
        first = evidence.changes[indices[0]]
        if _is_rename(first):
            yield _make_rename_finding(evidence, indices, wrappers)
        else:
            kind = "cut-changed" if first.subject == "cut" else first.id if is_renumbering(first) else "graph"
            yield Finding(kind, "note" if is_renumbering(first) else "change", (first.id,), (tuple(indices),))


def _is_rename(change: Change) -> bool:
    return change.subject == "module" or (change.subject, change.kind, change.fields) == ("scope", "renamed", ())


def _rename_key(change: Change) -> Hashable:
    """Return a key that is equal for renames in one way: one name became another, or wraps others."""
    role = change.what if change.subject == "module" else ""
    was, now = (name.split(".") for name in (change.was, change.id))
    how = nesting(change)
    if how:
        return role, how, max(was, now, key=len)[-1]
    pairs = {(old, new) for old, new in zip(was, now, strict=False) if old != new}
    if len(was) == len(now) and len(pairs) == 1:
        return role, *pairs
    return role, *rename(without_indices(change.was), without_indices(change.id))


def _make_rename_finding(evidence: Evidence, indices: Sequence[int], wrappers: set[int]) -> Finding:
    """Return the finding of renames in one way, and add its wrappers to those of other findings."""
    changes = [evidence.changes[at] for at in indices]
    kind = nesting(changes[0]) or changes[0].kind
    own = [at for at in _find_wrappers(evidence, kind, changes) if at not in wrappers]
    wrappers.update(own)
    classes = dict.fromkeys(filter(None, (evidence.changes[at].what for at in own)))
    return Finding(
        kind,
        "note",
        tuple(change.id for change in changes),
        tuple((at, *(own if at == indices[0] else ())) for at in indices),
        [change.was for change in changes],
        count=sum(change.nodes for change in changes),
        details={"class": [*classes]} if classes else {},
    )


def _find_wrappers(evidence: Evidence, kind: str, changes: Sequence[Change]) -> Iterator[int]:
    """Yield the modules that came around those that were wrapped, or that went from around others."""
    came = {"wrapped": "added", "unwrapped": "removed"}.get(kind, "")
    names = [(change.was, change.id) for change in changes] if came else []
    places = {
        without_indices(path)
        for inner, outer in (sorted(both, key=len, reverse=True) for both in names)
        for path in [*upwards(inner), ""][1:]
        if len(path) >= len(outer)
    }
    for at in evidence.left if places else ():
        change = evidence.changes[at]
        if (change.subject, change.kind) == ("scope", came) and without_indices(change.id) in places:
            yield at
