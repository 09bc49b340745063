"""One sentence that says what a change was for, made of the findings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gradir.diffs.changes import Finding
from gradir.ir.name_ranges import ranges
from gradir.ir.text import counted, word
from gradir.review.kinds import KINDS
from gradir.review.wording import module_name, operation_text, settings, what_text, words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gradir.diffs.changes import Change, FieldChange, Level

_MOST: Final = 3
"""Findings beyond these, and operations beyond these of one finding, are counted."""

_FIRST: Final = ("two-models", "cuts", "lost-inputs", "unowned", "frozen", "unfrozen", "tied", "untied")
_OF_ALL: Final = ("uniform", "sizes", "casts")
_LONGEST: Final = 80
_MODULES: Final = frozenset({"same", "module-added", "module-removed"})
_EDGES: Final = frozenset({"in", "names"})
_OF_SAVED: Final = frozenset({"origin", "storage"})
_COUNTS: Final = frozenset({"own", "total", "trainable", "calls"})


def summary(findings: Sequence[Finding], changes: Sequence[Change]) -> Iterator[Finding]:
    """The sentence, where it says more than the only change that there is.

    What costs gradient stands first, then what was frozen, tied or changed for all, renames, and the modules.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.reviewing import reviewed
    >>> a, b = (Graph.of([Node(f"h.{n}/f:1", op=op, scope=f"h.{n}") for n in range(12)]) for op in ("exp", "sin"))
    >>> reviewed(a, b).findings[0].text
    'exp became sin in h.{0..11}; nothing else.'
    """
    if any(each.kind == "nodes" and not (each.before and each.after) for each in findings):
        # Of an empty graph all of the other one came or went.
        return
    of_kind = {kind: [each for each in findings if each.kind == kind] for kind in KINDS}
    phrases = [each.text for kind in (*_FIRST, *_OF_ALL) for each in of_kind[kind] if each.text]
    if not of_kind["two-models"]:
        phrases += [_renames(of_kind[kind]) for kind in ("renamed", "wrapped", "unwrapped") if of_kind[kind]]
        phrases += [f"{word(each.subjects[0])} changed" for each in of_kind["graph"]]
        phrases += _edits(
            [each for each in findings if each.kind in _MODULES],
            changes,
            follow=bool(phrases),
            is_cut=bool(of_kind["cut-added"]),
        )
    if len(phrases) < 2 and not any(sum(map(len, each.changes)) > 1 and len(each.subjects) > 1 for each in findings):
        return
    more = len(phrases) - _MOST
    rest = f"and {more:,} more" if more > 0 else "nothing else"
    level: Level = "error" if any(each.level == "error" for each in findings) else "change"
    yield Finding("summary", level, text=f"{'; '.join([*phrases[:_MOST], rest])}.")


def _renames(findings: Sequence[Finding]) -> str:
    was = [name for finding in findings for name in finding.before]
    now = [name for finding in findings for name in finding.subjects]
    both = f"{_modules(was)} {'is' if len(now) == 1 else 'are'} now {_modules(now)}"
    # The star stands for every index and is no name.
    return both.replace('"*"', "*")


def _edits(findings: Sequence[Finding], changes: Sequence[Change], *, follow: bool, is_cut: bool) -> list[str]:
    """What was done in which modules, but for nodes that only read from elsewhere, where something explains that."""
    places: dict[tuple[str, str], list[str]] = {}
    following: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        own = [changes[at] for at in finding.changes[0]]
        follows = all(_only_reads(each) or _only_counts(each) for each in own) or (
            is_cut and all(map(_is_cut_off, own))
        )
        if all(map(_only_reads, own)):
            edit = ("other inputs in", "")
        elif finding.kind == "same":
            edit = _edit(own)
        else:
            edit = _whole_module(finding, own)
        (following if follows else places).setdefault(edit, []).extend(finding.subjects)
    if not (places or follow):
        places = following
    return [f"{before} {_modules(dict.fromkeys(paths))}{after}" for (before, after), paths in places.items()]


def _is_cut_off(change: Change) -> bool:
    """Whether an operation left the graph or an input of it did, as where gradient ends before it now."""
    if change.subject != "node" or change.kind == "added":
        return False
    return change.kind == "removed" or any(field.path[0] == "in" and field.after is None for field in change.fields)


def _only_reads(change: Change) -> bool:
    return change.kind == "changed" and change.subject == "node" and all(map(_is_edge, change.fields))


def _only_counts(change: Change) -> bool:
    return (
        change.kind == "changed"
        and change.subject == "scope"
        and all(each.path[0] in _COUNTS for each in change.fields)
    )


def _is_edge(field: FieldChange) -> bool:
    return field.path[0] in _EDGES or (field.path[0] == "saved" and field.path[-1] in _OF_SAVED)


def _whole_module(finding: Finding, changes: Sequence[Change]) -> tuple[str, str]:
    is_gone = finding.kind == "module-removed"
    if not finding.details["itself"]:
        return "all of", " left out" if is_gone else " put in"
    own = (change for change in changes if change.subject == "scope" and change.id == finding.subjects[0])
    name = next((what_text(change) for change in own if change.what), "module")
    return (name, " left out") if is_gone else (f"{name} put in as", "")


def _edit(changes: Sequence[Change]) -> tuple[str, str]:
    """What was done to a module, to its class, its operations or a setting, as words before its path and behind it."""
    for change in changes:
        for field in change.fields:
            if change.subject == "scope" and field.path == ("class",):
                return _became(change, field), ""
    gone, came = ([what_text(each) for each in changes if each.kind == kind] for kind in ("removed", "added"))
    became = [(change, field) for change in changes for field in change.fields if field.path == ("op",)]
    if became and len({(field.before, field.after) for _, field in became}) == 1 and not (gone or came):
        return _became(*became[0]), ""
    gone += [words(field.path, field.before) for _, field in became]
    came += [words(field.path, field.after) for _, field in became]
    if gone or came:
        texts = [_counted(names) for names in (gone, came) if names]
        if gone and came:
            return f"{texts[0]} became {texts[1]} in", ""
        return f"{texts[0]} {'put into' if came else 'left out of'}", ""
    fields = [
        field
        for change in changes
        for field in change.fields
        if not _is_edge(field) and (change.subject == "node" or field.path[0] not in _COUNTS)
    ]
    text = settings(fields)
    return f"{text if 0 < len(text) <= _LONGEST else counted(len(changes), 'change')} in", ""


def _became(change: Change, field: FieldChange) -> str:
    """An operation or a class with its settings, before and after."""
    before = operation_text(change, field.before, before=True)
    return f"{before} became {operation_text(change, field.after, before=False)} in"


def _counted(names: Sequence[str]) -> str:
    """Operations with how often each is there: ``mul ×3, tanh and 2 more``."""
    counts = Counter(names).most_common()
    texts = [f"{name} ×{count}" if count > 1 else name for name, count in counts[:_MOST]]
    more = sum(count for _, count in counts[_MOST:])
    return f"{', '.join(texts)}{f' and {more} more' if more else ''}"


def _modules(names: Collection[str]) -> str:
    return ranges(names) if len(names) > 1 and all(names) else ", ".join(map(module_name, names))
