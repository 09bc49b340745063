"""One sentence that says what a change was for, made of the findings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gradir.diffs.changes import CAME, Finding
from gradir.ir import Ref
from gradir.ir.model import ROLES
from gradir.ir.text import counted, word
from gradir.review.evidence import Evidence, find_serving
from gradir.review.kinds import KINDS
from gradir.review.relative_changes import WHOLE_NUMBER
from gradir.review.wording import field_value_text, list_modules, operation_or_class, operation_text, settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change, Diff, FieldChange, Level

# Findings beyond these, and operations beyond these of one finding, are counted.
_MOST: Final = 3
_SLOTS: Final = ("lost-inputs", "gained-inputs")
# What costs gradient stands first, then what was frozen, tied or changed for all.
_FIRST: Final = (
    "two-models",
    "cuts",
    *_SLOTS,
    "unowned",
    "frozen",
    "unfrozen",
    "tied",
    "untied",
    "uniform",
    "sizes",
    "casts",
)
_WHOLE: Final = ("module-added", "module-removed")
_LAST: Final = ("hooked", "unhooked", "tensors")
# So many changes of one module are read as they are.
_FEW: Final = 3
# Longer settings are counted.
_LONGEST: Final = 80
_COUNTS: Final = frozenset({"own", "total", "trainable", "calls"})


def summary(evidence: Evidence, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the sentence, if it says more than the only change that there is."""
    if any(each.kind == "nodes" and not (each.before and each.after) for each in findings):
        # Of an empty graph all of the other one came or went.
        return
    phrases = _phrases(evidence, findings)
    are_two_models = any(each.kind == "two-models" for each in findings)
    if len(phrases) < 2 and (
        are_two_models or not (any(map(_is_long, findings)) or _find_replaced(evidence, findings))
    ):
        return
    level: Level = "error" if any(each.level == "error" for each in findings) else "change"
    yield Finding("summary", level, text=_sentence(phrases))


def sentence(diff: Diff) -> str:
    """Return the sentence of a diff that knows its graphs, also if its report needs none; empty if nothing differs."""
    made = next((each.text for each in diff.findings if each.kind == "summary"), "")
    return made or _sentence(_phrases(Evidence.of(diff), diff.findings))


def _sentence(phrases: Sequence[str]) -> str:
    more = len(phrases) - _MOST
    rest = f"and {more:,} more" if more > 0 else "nothing else"
    return f"{'; '.join([*phrases[:_MOST], rest])}." if phrases else ""


def _phrases(evidence: Evidence, findings: Sequence[Finding]) -> list[str]:
    """Return what changed, one phrase each, without what surely follows from something else in the sentence."""
    of_kind = {kind: [each for each in findings if each.kind == kind] for kind in KINDS}
    phrases = [each.text for kind in _FIRST for each in of_kind[kind] if each.text]
    for each in of_kind["cut-removed"]:
        is_place = evidence.changes[each.changes[0][0]].cut is not None
        who = "parameter gets" if each.count == 1 else "parameters get"
        phrases.append("a cut less" if is_place else f"{each.count:,} {who} a gradient again")
    phrases += [f"{counted(len(of_kind['cut-changed']), 'cut')} changed"] * bool(of_kind["cut-changed"])
    if not of_kind["two-models"]:
        phrases += [_renames(of_kind[kind]) for kind in ("renamed", "wrapped", "unwrapped") if of_kind[kind]]
        phrases += [f"{word(each.subjects[0])} changed" for each in of_kind["graph"]]
        replaced = _find_replaced(evidence, findings)
        modules = [each for each in findings if each.kind in {"same", *_WHOLE} and each not in replaced]
        phrases += _edits(modules, evidence, _Following(evidence, of_kind), phrases)
    return phrases + [each.text for kind in _LAST for each in of_kind[kind]]


def _find_replaced(evidence: Evidence, findings: Sequence[Finding]) -> list[Finding]:
    """Return modules with other nodes since they are of another class now, which another phrase tells."""
    became = {
        name
        for change in evidence.changes
        if change.subject == "scope" and any(field.path == ("class",) for field in change.fields)
        for name in (change.id, change.was)
    }
    return [
        each
        for each in findings
        if each.kind in _WHOLE and not each.details["itself"] and became.issuperset(each.subjects)
    ]


def _is_long(finding: Finding) -> bool:
    size = sum(map(len, finding.changes))
    return size > 1 and (len(finding.subjects) > 1 or (finding.kind == "same" and size > _FEW))


def _renames(findings: Sequence[Finding]) -> str:
    was = [name for finding in findings for name in finding.before]
    now = [name for finding in findings for name in finding.subjects]
    by = dict.fromkeys(word(name) for finding in findings for name in finding.details.get("class", ()))
    how = f", {'in' if findings[0].kind == 'wrapped' else 'without'} {', '.join(by)}" if by else ""
    both = f"{list_modules(was)} {'is' if len(now) == 1 else 'are'} now {list_modules(now)}{how}"
    # The star stands for every index and is no name.
    return both.replace('"*"', "*")


class _Following:
    """Knows the changes that others bring about: what reads from what came or went, and what lies before a cut."""

    def __init__(self, evidence: Evidence, of_kind: Mapping[str, Sequence[Finding]]) -> None:
        self._has_slots = any(of_kind[kind] for kind in (*_SLOTS, "cut-added", "cut-removed", "frozen", "unfrozen"))
        edited = (
            change
            for change in evidence.changes
            if change.kind != "changed" or any(field.path == ("op",) for field in change.fields)
        )
        self._edited = {name for change in edited for name in (change.id, change.was)} - {""}
        changes = [evidence.changes[at] for each in of_kind["cut-added"] for at in each.changes[0]]
        names = {name for change in changes for name in (change.cut.names if change.cut else (change.id,))}
        self._evidence = evidence
        # What served only parameters that a new cut leaves without a gradient.
        self._behind: set[str] = set()
        if names:
            self._behind = find_serving(evidence.graphs[0], lambda node: not names.isdisjoint((node.id, *node.names)))

    def has(self, change: Change) -> bool:
        if change.subject == "scope":
            return change.kind == "changed" and all(field.path[0] in _COUNTS for field in change.fields)
        if change.kind == "removed":
            return change.id in self._behind
        lost = [field.before.id for field in change.fields if field.after is None and isinstance(field.before, Ref)]
        if (lost and self._behind.issuperset(lost)) or _is_of_text(change):
            return True
        edges = [field for field in change.fields if _is_edge(field)]
        rest = [field for field in change.fields if field not in edges and field.path != ("source",)]
        if change.kind != "changed" or not all(map(self._evidence.is_of_tensors, rest)):
            return False
        return all(map(self._explains, edges)) if edges else self._evidence.reads_a_change(change)

    def _explains(self, field: FieldChange) -> bool:
        ends = [value.id for value in (field.before, field.after) if isinstance(value, Ref)]
        if field.path[0] == "in" and None in (field.before, field.after):
            return self._has_slots
        return not ends or not self._edited.isdisjoint(ends)


def _edits(findings: Sequence[Finding], evidence: Evidence, following: _Following, phrases: Sequence[str]) -> list[str]:
    """Return what was done in which modules; what only follows stands there if nothing else does."""
    places: dict[tuple[str, str], list[str]] = {}
    left_out: dict[tuple[str, str], list[str]] = {}
    # Modules that came or went and differ in sizes alone are told together by their class.
    with_settings: dict[tuple[str, str], dict[tuple[str, str], tuple[str, str]]] = {}
    for finding in findings:
        own = [evidence.changes[at] for at in finding.changes[0]]
        into = left_out if all(map(following.has, own)) else places
        if all(map(_is_of_text, own)):
            edit = ("other source lines or variables in", "")
        elif all(each.kind == "changed" and each.subject == "node" and all(map(_is_edge, each.fields)) for each in own):
            edit = ("other inputs in", "")
        elif finding.kind == "same" and not _is_whole(own):
            if "sizes" in finding.details:
                # The sizes of the first module are not those of the others, but what else is set may be.
                alike = {_description([evidence.changes[at] for at in places]) for places in finding.changes}
                differing = {"attrs"} if len(alike) == 1 else {"attrs", "detail"}
                own = [_drop_fields(each, differing) for each in own]
            edit = (_edit(own, evidence.words.accumulators), "")
        else:
            edit, described, of_class = _whole_module(own, itself=finding.details.get("itself", True))
            with_settings.setdefault(edit, {})[described] = of_class
        into.setdefault(edit, []).extend(finding.subjects)
    if not (places or phrases):
        places = left_out
    phrases = []
    for edit, paths in places.items():
        told = with_settings.get(edit, {edit: edit})
        before, after = next(iter(told if len(told) == 1 else told.values()))
        phrases.append(f"{before} {list_modules(dict.fromkeys(paths))}{after}")
    return phrases


def _drop_fields(change: Change, names: Collection[str]) -> Change:
    return replace(change, fields=tuple(field for field in change.fields if field.path[0] not in names))


def _description(changes: Sequence[Change]) -> str:
    return settings(field for change in changes for field in change.fields if field.path == ("detail",))


def _is_of_text(change: Change) -> bool:
    """Return whether only the line or the variable of an operation is another."""
    paths = {field.path[0] for field in change.fields}
    is_of_names = paths <= {"source", "names"} and change.what not in ROLES
    return change.kind == "changed" and (paths == {"source"} or is_of_names)


def _is_edge(field: FieldChange) -> bool:
    return field.path[0] in {"in", "names"} or (field.path[0] == "saved" and field.path[-1] in {"origin", "storage"})


def _is_whole(changes: Sequence[Change]) -> bool:
    """Return whether a module came or went that has no nodes, or those of others."""
    return [(each.subject, each.kind in CAME) for each in changes if not _is_moved(each)] == [("scope", True)]


def _is_moved(change: Change) -> bool:
    return change.kind == "moved" and not change.fields


def _whole_module(changes: Sequence[Change], *, itself: bool) -> list[tuple[str, str]]:
    """Return words around the path of a module that came or went: but for sizes, with settings, and with its class."""
    is_gone = any(each.kind == "removed" for each in changes)
    if not itself:
        return [("all of", " left out" if is_gone else " put in")] * 3
    module = min((change for change in changes if change.subject == "scope"), key=lambda change: len(change.id))
    whole = operation_or_class(module) if module.what else "module"
    names = (WHOLE_NUMBER.sub("#", whole), whole, word(module.what or "module"))
    return [(name, " left out") if is_gone else (f"{name} put in as", "") for name in names]


def _edit(changes: Sequence[Change], accumulators: Collection[str]) -> str:
    for change in changes:
        for field in change.fields:
            if change.subject == "scope" and field.path == ("class",):
                return _write_became(change, field)
    if all(map(_is_moved, changes)):
        return f"{_count_operations([operation_or_class(each) for each in changes])} moved into"
    gone, came = (
        [operation_or_class(each) for each in changes if each.kind == kind and each.what not in accumulators]
        for kind in ("removed", "added")
    )
    became = [(change, field) for change in changes for field in change.fields if field.path == ("op",)]
    if became and len({(field.before, field.after) for _, field in became}) == 1 and not (gone or came):
        return _write_became(*became[0])
    gone += [field_value_text(field.path, field.before) for _, field in became]
    came += [field_value_text(field.path, field.after) for _, field in became]
    described = _description(changes)
    if gone or came:
        first = f"{described}, " if 0 < len(described) <= _LONGEST else ""
        texts = [_count_operations(names) for names in (gone, came) if names]
        how = "in" if gone and came else "put into" if came else "left out of"
        if sorted(gone) == sorted(came):
            # They are not the ones that were there.
            texts, how = texts[:1], "replaced in"
        return f"{first}{' became '.join(texts)} {how}"
    fields = [
        field
        for change in changes
        for field in change.fields
        if not _is_edge(field) and (change.subject == "node" or field.path[0] not in _COUNTS)
    ]
    # Settings that have a name say more than a count; what else changed follows from them more often than not.
    ways = (settings(fields), described if "=" in described else "", counted(len(changes), "change"))
    return f"{next(text for text in ways if 0 < len(text) <= _LONGEST)} in"


def _write_became(change: Change, field: FieldChange) -> str:
    before = operation_text(change, field.before, before=True)
    return f"{before} became {operation_text(change, field.after, before=False)} in"


def _count_operations(names: Sequence[str]) -> str:
    """Return operations with how often each is there: ``mul ×3, tanh and 2 more``."""
    counts = Counter(names).most_common()
    texts = [f"{name} ×{count}" if count > 1 else name for name, count in counts[:_MOST]]
    more = sum(count for _, count in counts[_MOST:])
    return f"{', '.join(texts)}{f' and {more} more' if more else ''}"
