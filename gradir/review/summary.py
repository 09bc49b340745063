"""Summarize the findings of a diff in one sentence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gradir.diffs.changes import ADDED_OR_REMOVED, Finding
from gradir.ir import Ref
from gradir.ir.edges import sources
from gradir.ir.model import ROLES
from gradir.ir.text import pluralize, word
from gradir.review.evidence import Evidence, find_serving
from gradir.review.kinds import EDITS_OF_SEVERAL, KINDS
from gradir.review.relative_changes import COUNTS_AND_CALLS, WHOLE_NUMBER
from gradir.review.wording import field_value_text, list_modules, operation_or_class, operation_text, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change, Diff, FieldChange, Level

# Further findings, and further operations of one finding, are counted.
_MOST: Final = 3
_SLOTS: Final = ("lost-inputs", "gained-inputs")
_FREEZING: Final = ("frozen", "unfrozen")
# Lost gradients come first, then frozen or tied parameters and changes of all operations.
_FIRST: Final = (
    *("two-models", "cuts", *_SLOTS, "unowned", *_FREEZING, "tied", "untied", "uniform", "sizes", "casts"),
    *EDITS_OF_SEVERAL,
)
_WHOLE: Final = ("module-added", "module-removed")
_LAST: Final = ("hooked", "unhooked", "tensors")
# A report lists this many changes without a summary.
_FEW: Final = 3
# Longer settings are counted.
_LONGEST: Final = 80


def summary(evidence: Evidence, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the sentence if it says more than the text of a single change."""
    if any(each.kind == "nodes" and not (each.before and each.after) for each in findings):
        # If one graph is empty, all of the other one was added or removed.
        return
    phrases = _phrases(evidence, findings)
    kinds = {each.kind for each in findings}
    of_several = (each for each in findings if sum(map(len, each.changes)) > 1 and len(each.subjects) > 1)
    is_long = any(of_several) or not kinds.isdisjoint(EDITS_OF_SEVERAL) or bool(_find_replaced(evidence, findings))
    is_long |= sum(len(each.changes[0]) for each in findings if each.kind in {"same", "reads"}) > _FEW
    if len(phrases) < 2 and ("two-models" in kinds or not is_long):
        return
    level: Level = "error" if any(each.level == "error" for each in findings) else "change"
    yield Finding("summary", level, text=_sentence(phrases))


def sentence(diff: Diff) -> str:
    """Return the sentence of a diff with graphs, also if its report needs none; empty if nothing differs."""
    text = next((each.text for each in diff.findings if each.kind == "summary"), "")
    return text or _sentence(_phrases(Evidence.of(diff), diff.findings))


def _sentence(phrases: Sequence[str]) -> str:
    more = len(phrases) - _MOST
    rest = f"and {more:,} more" if more > 0 else "nothing else"
    return f"{'; '.join([*phrases[:_MOST], rest])}." if phrases else ""


def _phrases(evidence: Evidence, findings: Sequence[Finding]) -> list[str]:
    """Return a phrase for each change, without changes that surely follow from others in the sentence."""
    of_kind = {kind: [each for each in findings if each.kind == kind] for kind in KINDS}
    phrases = [each.text for kind in _FIRST for each in of_kind[kind] if each.text]
    for each in of_kind["cut-removed"]:
        is_place = evidence.changes[each.changes[0][0]].cut is not None
        who = "parameter gets" if each.count == 1 else "parameters get"
        phrases.append("a cut less" if is_place else f"{each.count:,} {who} a gradient again")
    phrases += [f"{pluralize(len(of_kind['cut-changed']), 'cut')} changed"] * bool(of_kind["cut-changed"])
    if not of_kind["two-models"]:
        phrases += [_renames(of_kind[kind]) for kind in ("renamed", "wrapped", "unwrapped") if of_kind[kind]]
        phrases += [f"{word(each.subjects[0])} changed" for each in of_kind["graph"]]
        replaced = _find_replaced(evidence, findings)
        modules = [each for each in findings if each.kind in {"same", *_WHOLE} and each not in replaced]
        phrases += _edits(modules, evidence, _Consequences(evidence, of_kind), phrases)
    return phrases + [each.text for kind in _LAST for each in of_kind[kind]]


def _find_replaced(evidence: Evidence, findings: Sequence[Finding]) -> list[Finding]:
    """Return the modules whose nodes differ because their class changed, which has its own phrase."""
    with_new_class = {
        name
        for change in evidence.changes
        if change.subject == "scope" and any(field.path == ("class",) for field in change.fields)
        for name in (change.id, change.old_id)
    }
    return [
        each
        for each in findings
        if each.kind in _WHOLE and not each.details["itself"] and with_new_class.issuperset(each.subjects)
    ]


def _renames(findings: Sequence[Finding]) -> str:
    was = [name for finding in findings for name in finding.before]
    now = [name for finding in findings for name in finding.subjects]
    by = dict.fromkeys(word(name) for finding in findings for name in finding.details.get("class", ()))
    how = f", {'in' if findings[0].kind == 'wrapped' else 'without'} {', '.join(by)}" if by else ""
    both = f"{list_modules(was)} {'is' if len(now) == 1 else 'are'} now {list_modules(now)}{how}"
    # The star means every index and is not a name.
    return both.replace('"*"', "*")


class _Consequences:
    """Find changes that follow from others, such as those of readers of a new node or of nodes before a cut."""

    def __init__(self, evidence: Evidence, of_kind: Mapping[str, Sequence[Finding]]) -> None:
        self._has_slots = any(of_kind[kind] for kind in (*_SLOTS, *_FREEZING, "cut-added", "cut-removed"))
        edited = (
            change
            for change in evidence.changes
            if change.kind != "changed" or any(field.path == ("op",) for field in change.fields)
        )
        self._edited = {name for change in edited for name in (change.id, change.old_id)} - {""}
        changes = [evidence.changes[at] for each in of_kind["cut-added"] for at in each.changes[0]]
        names = {name for change in changes for name in (change.cut.names if change.cut else (change.id,))}
        self._evidence = evidence
        # The parameters that a new cut leaves without a gradient, and the nodes that depend only on them.
        self._cut_off: set[str] = set()
        if names:
            self._cut_off = find_serving(evidence.graphs[0], lambda node: not names.isdisjoint((node.id, *node.names)))

    def include(self, change: Change) -> bool:
        if change.subject == "scope":
            return change.kind == "changed" and all(field.path[0] in COUNTS_AND_CALLS for field in change.fields)
        if change.kind == "removed":
            return change.id in self._cut_off
        lost = [field.before.id for field in change.fields if field.after is None and isinstance(field.before, Ref)]
        if (lost and self._cut_off.issuperset(lost)) or _is_of_text(change):
            return True
        edges = [field for field in change.fields if _is_edge(field)]
        rest = [field for field in change.fields if field not in edges and field.path != ("source",)]
        if change.kind != "changed" or not all(map(self._evidence.is_of_tensors, rest)):
            return False
        return all(map(self._is_consequence, edges)) if edges else self._evidence.reads_a_change(change)

    def _is_consequence(self, field: FieldChange) -> bool:
        ends = [value.id for value in (field.before, field.after) if isinstance(value, Ref)]
        if field.path[0] == "in" and None in (field.before, field.after):
            return self._has_slots
        return not ends or not self._edited.isdisjoint(ends)


def _edits(
    findings: Sequence[Finding], evidence: Evidence, consequences: _Consequences, phrases: Sequence[str]
) -> list[str]:
    """Return phrases for the edits of modules; consequences only if there is nothing else to say."""
    places: dict[tuple[str, str], list[str]] = {}
    following: dict[tuple[str, str], list[str]] = {}
    # Added or removed modules that differ only in sizes share a phrase with their class.
    with_settings: dict[tuple[str, str], dict[tuple[str, str], tuple[str, str]]] = {}
    for finding in findings:
        own = [evidence.changes[at] for at in finding.changes[0]]
        into = following if all(map(consequences.include, own)) else places
        # The only change is an added or removed module, apart from nodes that moved.
        is_whole = [(each.subject, each.kind in ADDED_OR_REMOVED) for each in own if not _is_moved(each)] == [
            ("scope", True)
        ]
        if all(map(_is_of_text, own)):
            edit = ("other source lines or variables in", "")
        elif all(_has_other_inputs(each, evidence) for each in own):
            edit = ("other inputs in", "")
        elif finding.kind == "same" and not is_whole:
            if "sizes" in finding.details:
                # The modules differ in sizes, but may share other settings.
                descriptions = {_description([evidence.changes[at] for at in indices]) for indices in finding.changes}
                differing = {"attrs"} if len(descriptions) == 1 else {"attrs", "detail"}
                own = [
                    replace(each, fields=tuple(field for field in each.fields if field.path[0] not in differing))
                    for each in own
                ]
            edit = (_edit(own, evidence), "")
        else:
            edit, described, of_class = _whole_module(own, itself=finding.details.get("itself", True))
            with_settings.setdefault(edit, {})[described] = of_class
        into.setdefault(edit, []).extend(finding.subjects)
    if not (places or phrases):
        places = following
    found = []
    for edit, paths in places.items():
        texts = with_settings.get(edit, {edit: edit})
        before, after = next(iter(texts if len(texts) == 1 else texts.values()))
        found.append(f"{before} {list_modules(dict.fromkeys(paths))}{after}")
    return found


def _description(changes: Sequence[Change]) -> str:
    return settings((change, field) for change in changes for field in change.fields if field.path == ("detail",))


def _is_of_text(change: Change) -> bool:
    """Return whether only the line or the variable name of an operation changed."""
    paths = {field.path[0] for field in change.fields}
    is_of_names = paths <= {"source", "names"} and change.label not in ROLES
    return change.kind == "changed" and (paths == {"source"} or is_of_names)


def _has_other_inputs(change: Change, evidence: Evidence) -> bool:
    """Return whether an operation differs only in inputs, and in sizes."""
    rest = [field for field in change.fields if not _is_edge(field)]
    is_only_that = len(rest) < len(change.fields) and all(map(evidence.is_of_tensors, rest))
    return (change.kind, change.subject) == ("changed", "node") and is_only_that


def _is_edge(field: FieldChange) -> bool:
    return field.path[0] in {"in", "names"} or (field.path[0] == "saved" and field.path[-1] in {"origin", "storage"})


def _is_moved(change: Change) -> bool:
    return change.kind == "moved" and not change.fields


def _whole_module(changes: Sequence[Change], *, itself: bool) -> list[tuple[str, str]]:
    """Return the text around the path of an added or removed module: without sizes, with settings, with its class."""
    is_removed = any(each.kind == "removed" for each in changes)
    if not itself:
        return [("all of", " left out" if is_removed else " put in")] * 3
    module = min((change for change in changes if change.subject == "scope"), key=lambda change: len(change.id))
    whole = operation_or_class(module) if module.label else "module"
    names = (WHOLE_NUMBER.sub("#", whole), whole, word(module.label or "module"))
    return [(name, " left out") if is_removed else (f"{name} put in as", "") for name in names]


def _edit(changes: Sequence[Change], evidence: Evidence) -> str:
    for change in changes:
        for field in change.fields:
            if change.subject == "scope" and field.path == ("class",):
                return _write_became(change, field)
    if all(map(_is_moved, changes)):
        return f"{_count_operations(Counter(map(operation_or_class, changes)))} moved into"
    removed, added = (
        [each for each in changes if each.kind == kind and each.label not in evidence.vocabulary.accumulators]
        for kind in ("removed", "added")
    )
    was, now = (Counter(map(operation_or_class, each)) for each in (removed, added))
    replaced = [(change, field) for change in changes for field in change.fields if field.path == ("op",)]
    if len({(field.before, field.after) for _, field in replaced}) == 1 and not (removed or added):
        return _write_became(*replaced[0])
    was.update(field_value_text(field.path, field.before) for _, field in replaced)
    now.update(field_value_text(field.path, field.after) for _, field in replaced)
    description = _description(changes)
    if was or now:
        texts = [_count_operations(names) for names in (was - now, now - was) if names]
        how, where = ("", "in") if len(texts) > 1 else (" put", "into") if now - was else (" left out", "of")
        if was == now:
            # The new operations only have the same names.
            texts, how, where = [_count_operations(was)], " replaced", "in"
        elif len(texts) > 1 and not (replaced or _share_an_edge(removed, added, evidence)):
            # These operations are of another computation.
            texts, how, where = [" left out and ".join(texts)], " put", "into"
        text = f"{' became '.join(texts)}{how}"
        return f"{description} ({text}) in" if 0 < len(description) <= _LONGEST else f"{text} {where}"
    fields = [
        (change, field)
        for change in changes
        for field in change.fields
        if not _is_edge(field) and (change.subject == "node" or field.path[0] not in COUNTS_AND_CALLS)
    ]
    # Named settings say more than a count, and usually cause the other changes.
    texts = [settings(fields), description if "=" in description else "", pluralize(len(changes), "change")]
    return f"{next(text for text in texts if 0 < len(text) <= _LONGEST)} in"


def _share_an_edge(removed: Sequence[Change], added: Sequence[Change], evidence: Evidence) -> bool:
    """Return whether removed and added operations may read the same node, or feed the same input of a node."""
    old, new = ({change.id for change in changes if change.subject == "node"} for changes in (removed, added))
    was_read, read = (
        {source for key in keys & graph.nodes.keys() for source in sources(graph.nodes[key])}
        for keys, graph in zip((old, new), evidence.graphs, strict=True)
    )
    fed = {source for key in old for source in evidence.instead.get(key, ())}
    return not (was_read and read and read.isdisjoint(map(evidence.matched.get, was_read)) and fed.isdisjoint(new))


def _write_became(change: Change, field: FieldChange) -> str:
    before = operation_text(change, field.before, before=True)
    return f"{before} became {operation_text(change, field.after, before=False)} in"


def _count_operations(names: Counter[str]) -> str:
    """Return operations with their counts: ``mul ×3, tanh and 2 more``."""
    counts = names.most_common()
    texts = [f"{name} ×{count}" if count > 1 else name for name, count in counts[:_MOST]]
    more = sum(count for _, count in counts[_MOST:])
    return f"{', '.join(texts)}{f' and {more} more' if more else ''}"
