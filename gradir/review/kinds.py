"""The kinds of findings: the section and the text of each in a report."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gradir.ir.ids import split_id
from gradir.ir.memo import group_by_key
from gradir.ir.name_ranges import ranges
from gradir.ir.text import amount, pluralize, short_bytes, size_text, word
from gradir.review import wording
from gradir.review.wording import change_text, field_texts, list_modules, module_name, nesting, role_text, unknown_sizes

if TYPE_CHECKING:
    from gradir.diffs.changes import Change, Diff, Finding
    from gradir.diffs.changes import Kind as KindOfChange

Section = Literal["top", "head", "note", "graph", "modules", "last"]
# In the order of a report: a sentence, the line of counts, notes, the whole graph, the modules, and minor changes.
SECTIONS: Final[tuple[Section, ...]] = ("top", "head", "note", "graph", "modules", "last")
# A list in one line names at most this many.
_MOST: Final = 4
# A longer list of modules is left out.
_LONGEST: Final = 80
_SAVED: Final = "saved-bytes"
# The line of counts lists the text of these kinds.
LISTED: Final = ("lost-inputs", "gained-inputs", "unowned")
# One edit in several modules, whose text the summary may have.
EDITS_OF_SEVERAL: Final = ("shared", "unshared", "rewritten")
# The kinds for a total, and its field in `gradir.ir.totals.Totals`.
TOTALS: Final = {"nodes": "nodes", "edges": "edges", "params": "parameters", _SAVED: "saved_bytes"}


class Kind(NamedTuple):
    """A kind of finding: its section, its text, and the kind of change with the same sign and color.

    The text is a function, or a format of the finding.
    """

    section: Section
    text: str | Callable[[Finding, Sequence[Change]], str]
    sign: KindOfChange = "changed"


def text_of(finding: Finding, changes: Sequence[Change]) -> str:
    """Return the text of a finding; ``changes`` are those of its diff."""
    text = KINDS[finding.kind].text
    return text.format(finding) if isinstance(text, str) else text(finding, changes)


def new_places(finding: Finding) -> str:
    """Return the number of new unexpected cuts and the first one."""
    places = finding.subjects
    if not places:
        return ""
    more = f", and {len(places) - 1:,} more" if len(places) > 1 else ""
    return f"{f'{len(places):,} new cuts' if more else 'a new cut'}: {places[0]}{more}"


def share(before: int, after: int, digits: str = "+.1f") -> str:
    """Return the growth of a number in percent as a suffix, or an empty text if it was 0 or rounds to 0.

    >>> share(1_000, 1_001), share(10_000, 10_001)
    (' (+0.1 %)', '')
    """
    text = format(100 * (after - before) / before, digits) if before else "0"
    return f" ({text} %)" if text.strip("+-0.") else ""


def _write_cuts(finding: Finding, _: Sequence[Change]) -> str:
    texts = [
        f"{count:,} {'parameter now gets' if count == 1 else 'parameters now get'} {lack}"
        for lack, count in finding.details.items()
        if count
    ]
    return ", ".join(filter(None, (*texts, new_places(finding))))


def _write_inputs(finding: Finding, _: Sequence[Change]) -> str:
    slots: dict[tuple[str, int], list[str]] = {}
    for node_id, slot in zip(finding.subjects, finding.details["slots"], strict=True):
        path, name = split_id(node_id)
        slots.setdefault((name, slot), []).append(path)
    texts = [f"in[{slot}] of {name} in {list_modules(paths)}" for (name, slot), paths in slots.items()]
    return f"{pluralize(finding.count, finding.kind[:-1].replace('-', ' '))}: {_join_first(texts, ', ')}"


def _write_unowned(finding: Finding, _: Sequence[Change]) -> str:
    size = pluralize(finding.details["elements"], "element")
    return f"{pluralize(finding.count, 'parameter')} not in the model: {ranges(finding.subjects)} ({size})"


def _write_same_result(finding: Finding, _: Sequence[Change]) -> str:
    but = f", with {ranges(finding.subjects)} transposed" if finding.subjects else ""
    constants = f", if its {pluralize(finding.count, 'constant')} {'is' if finding.count == 1 else 'are'} equal too"
    return f"computes the same result in other operations{but}{constants if finding.count else ''}"


def _write_total(finding: Finding, _: Sequence[Change]) -> str:
    growth = finding.after - finding.before
    if finding.kind == _SAVED:
        slots = finding.details.get("unknown", (0, 0))
        if not growth and slots[0] == slots[1]:
            return ""
        more = f"{short_bytes(growth, signed=True)}{share(finding.before, finding.after, '+,.1f')}"
        figure = f"saved bytes {more if growth else 'as before'}"
        return ", ".join(filter(None, (figure, unknown_sizes(*slots))))
    return f"{TOTALS[finding.kind]} {amount(growth, signed=True)}" if growth else ""


def _write_shared_words(finding: Finding, _: Sequence[Change]) -> str:
    texts = []
    for role, (same, before, after) in finding.details.items():
        of = f"{before:,}" if before == after else f"{before:,} -> {after:,}"
        name = "operation" if role == "function" else role
        texts.append(f"{same:,} of {of} {name}{'s'[: after != 1]}")
    return f"in shared words: {' and '.join(finding.subjects)} have {' and '.join(texts) or 'nothing'} in common"


_WITHOUT: Final = {
    "without-data": "without data: the {} graph (--fake), where {} runs some operations in other ways",
    "without-settings": "without settings of modules: the {} graph",
    "without-flow": "without flow: the {} graph (no --flow), "
    "so no place where gradients end is known to be new or gone",
}


def _write_frozen(finding: Finding, _: Sequence[Change]) -> str:
    part, parameters = finding.details.get("part"), finding.details.get("parameters")
    size = pluralize(finding.details.get("elements", 0), "element")
    figure = "" if parameters is None else f" ({pluralize(parameters, 'parameter')}, {size})"
    names = [list_modules(finding.subjects), f"part of {list_modules(part)}" if part else ""]
    return f"{finding.kind}: {', '.join(filter(None, names))}{figure}"


def _write_uniform(finding: Finding, _: Sequence[Change]) -> str:
    subject, of, in_ratio = finding.subjects[0], finding.details["of"], finding.details["in_ratio"]
    before, after = (wording.field_value_text((subject,), value) for value in (finding.before, finding.after))
    change = f"is {after}, was {before}" if subject.startswith("dimension") else f"{before} -> {after}"
    more = f"; in {in_ratio:,} more, other sizes changed in that ratio" if in_ratio else ""
    which = f"all {of:,}" if finding.count == of else f"{finding.count:,} of {of:,}"
    return f"{which} changed nodes: {subject} {change}{more}"


def _write_cut(finding: Finding, changes: Sequence[Change]) -> str:
    cuts, others = finding.changes
    edit = "removed" if finding.kind == "cut-added" else "added"
    nodes = f", {pluralize(len(others), 'node')} {edit}" if others else ""
    first = changes[cuts[0]]
    if len(cuts) == 1:
        return f"{change_text(first)}{nodes}"
    return f"{pluralize(len(cuts), 'cut')}, {word(first.label)}{nodes}: {ranges(finding.subjects)}"


def _write_renames(finding: Finding, changes: Sequence[Change]) -> str:
    first = changes[finding.changes[0][0]]
    by = ", ".join(map(word, finding.details.get("class", ())))
    by = f" {'by' if nesting(first) == 'wrapped' else 'from'} {by}" if by else ""
    if len(finding.subjects) == 1:
        return change_text(first, by=by)
    was, now = ranges(finding.before), ranges(finding.subjects)
    how = f", each {nesting(first)}{by}" if nesting(first) else ""
    subjects = f"{len(finding.subjects):,} {role_text(first)}s"
    return f"{subjects} {was} -> {now}{how}  {pluralize(finding.count, 'node')}".replace('"*"', "*")


def _write_change(finding: Finding, changes: Sequence[Change]) -> str:
    return change_text(changes[finding.changes[0][0]])


def _write_module(finding: Finding, changes: Sequence[Change]) -> str:
    count, details = len(finding.subjects), finding.details
    subject = "module" if count == 1 else f"{count:,} modules"
    title = subject if details["itself"] else "all of" if count == 1 else f"all of {subject}"
    first = [changes[at] for at in finding.changes[0]]
    own = next((each for each in first if each.subject == "scope" and each.id == finding.subjects[0]), None)
    name = f"  {word(details['class']) if own is None else wording.operation_or_class(own)}" if details["class"] else ""
    parts = [pluralize(details["nodes"], "node")]
    if details["parameters"]:
        parts.append(f"{pluralize(details['parameters'], 'parameter')} ({amount(details['elements'])})")
    if details["modules"]:
        parts.append(f"{pluralize(details['modules'], 'module')} in it")
    _, least, most = details["saved"]
    if most or details["unknown"]:
        parts.append(f"saved {f'{short_bytes(least)} to ' if least != most else ''}{short_bytes(most)}")
    parts.append(unknown_sizes(0, details["unknown"]))
    each = "each " if count > 1 else ""
    return f"{title} {list_modules(finding.subjects)}{name}  {each}{', '.join(filter(None, parts))}"


def _write_readers(finding: Finding, changes: Sequence[Change]) -> str:
    paths, of = finding.subjects, finding.details["of"]
    rest = "" if len(paths) == 1 else ", and so for each" if list(paths) == of else f", and so for {ranges(paths)}"
    readers: dict[str, list[str]] = {}
    for change in (changes[at] for at in finding.changes[0]):
        fields = group_by_key(((before, after), name) for name, before, after in field_texts(change))
        edges = "; ".join(f"{', '.join(names)}: {before} -> {after}" for (before, after), names in fields.items())
        readers.setdefault(edges, []).append(change_text(change, summary=False))
    texts = [
        (first, f" and {len(others)} more" if others else "", edges) for edges, (first, *others) in readers.items()
    ]
    return "\n".join(f"{first}{more}  {edges}{rest}" for first, more, edges in texts)


def _write_equal_modules(finding: Finding, _: Sequence[Change]) -> str:
    paths, count = finding.subjects, len(finding.changes[0])
    title = list_modules(paths, gone="gone" in finding.details)
    number = "change" if count == 1 else f"{count:,} changes"
    but = "but for sizes, " if "sizes" in finding.details else ""
    same = f": {but}the same {number} in each of {len(paths):,} modules, here in {module_name(paths[0])}"
    return f"{title}{same if len(paths) > 1 else ''}"


def _write_rewritten(finding: Finding, _: Sequence[Change]) -> str:
    is_joined, count = finding.details["joined"], finding.count
    composition, operation = (finding.before, finding.after) if is_joined else (finding.after, finding.before)
    plural = re.sub(
        "(?<=x)(?=s)", "e", re.sub(r"y?(?= with |$)", lambda end: "ies" if end[0] else "s", composition, count=1)
    )
    preposition = "as" if is_joined and finding.details["module"] else "in"
    place = f"{preposition} {list_modules(dict.fromkeys(finding.subjects))}"
    written_out = f"a written-out {composition}" if count == 1 else f"written-out {plural}"
    place += ", with scale {:g} → {:g}".format(*finding.details["scale"]) if "scale" in finding.details else ""
    if is_joined:
        return f"{written_out if count == 1 else f'{count:,} {written_out}'} became {operation} {place}"
    return f"{operation}{f' ×{count:,}' if count > 1 else ''} became {written_out} {place}"


def _write_shared(finding: Finding, _: Sequence[Change]) -> str:
    name, calls, count = word(finding.details["class"] or "module"), finding.details["calls"], finding.count
    runs = f", {'which runs' if count == 1 else 'which run'} {calls:,} times" if calls > 1 else ""
    one = f"one {name}" if count == 1 else f"{count:,} modules ({name})"
    modules = list_modules(finding.subjects)
    return f"{modules} became {one}{runs}" if finding.kind == "shared" else f"{one} became {modules}"


def _write_hooked(finding: Finding, _: Sequence[Change]) -> str:
    count = f"{pluralize(finding.count, 'saved tensor')} of {pluralize(len(finding.changes[0]), 'node')}"
    modules = list_modules(finding.subjects)
    place = f" in {modules}" if len(modules) <= _LONGEST else ""
    return f"{'no longer ' if finding.kind == 'unhooked' else ''}packed by hooks: {count}{place}"


def _write_tensors(finding: Finding, _: Sequence[Change]) -> str:
    properties = " and ".join(finding.details) or "saved tensors"
    pairs = [pair for found in finding.details.values() for pair in found]
    values = [" -> ".join("-" if each is None else size_text(each) for each in pair) for pair in pairs]
    details = f" ({_join_first(values, ' and ')})" if values else ""
    return f"{properties} alone changed: {pluralize(finding.count, 'node')}{details}"


def _join_first(texts: Sequence[str], before_rest: str) -> str:
    more = f"{before_rest}{len(texts) - _MOST:,} more" if len(texts) > _MOST else ""
    return f"{', '.join(texts[:_MOST])}{more}"


KINDS: Final[dict[str, Kind]] = {
    "graph-kinds": Kind("top", "two kinds of graphs: {0.subjects[0]} and {0.subjects[1]}, whose operations differ"),
    "same-result": Kind("top", _write_same_result),
    "summary": Kind("top", "{0.text}"),
    "cuts": Kind("head", _write_cuts),
    **dict.fromkeys(("lost-inputs", "gained-inputs"), Kind("head", _write_inputs)),
    "unowned": Kind("head", _write_unowned),
    **dict.fromkeys(TOTALS, Kind("head", _write_total)),
    "shared-words": Kind("note", _write_shared_words),
    "frameworks": Kind(
        "note",
        "the frameworks differ: {0.subjects[0]} and {0.subjects[1]} have other words; "
        "--vocabulary compares in words that both share",
    ),
    **dict.fromkeys(
        _WITHOUT,
        Kind(
            "note",
            lambda each, _: _WITHOUT[each.kind].format(("first", "second")[each.details["side"]], *each.subjects),
        ),
    ),
    "two-models": Kind("note", "two different models: {0.count:,} of {0.before:,} -> {0.after:,} nodes in common"),
    **dict.fromkeys(("frozen", "unfrozen"), Kind("note", _write_frozen)),
    **dict.fromkeys(
        ("tied", "untied"),
        Kind("note", lambda finding, _: f"{finding.kind}: {_join_first(finding.subjects, ' and ')}"),
    ),
    "uniform": Kind("note", _write_uniform),
    "sizes": Kind("note", "{0.details[sizes]}"),
    "casts": Kind("note", "{0.details[casts]}"),
    **dict.fromkeys(("hooked", "unhooked"), Kind("note", _write_hooked)),
    "tensors": Kind("note", _write_tensors),
    "following": Kind(
        "note",
        lambda finding, _: f"{pluralize(finding.count, 'change')} that only follow from that: --full lists them",
    ),
    "cut-added": Kind("graph", _write_cut, "added"),
    "cut-removed": Kind("graph", _write_cut, "removed"),
    "cut-changed": Kind("graph", _write_change),
    **dict.fromkeys(("shared", "unshared"), Kind("graph", _write_shared)),
    "rewritten": Kind("graph", _write_rewritten),
    **dict.fromkeys(("renamed", "wrapped", "unwrapped"), Kind("graph", _write_renames, "renamed")),
    "graph": Kind("graph", _write_change),
    "module-added": Kind("modules", _write_module, "added"),
    "module-removed": Kind("modules", _write_module, "removed"),
    "reads": Kind("modules", _write_readers),
    "same": Kind("modules", _write_equal_modules),
    **dict.fromkeys(("order", "indices"), Kind("last", _write_change)),
}


def sections(diff: Diff) -> dict[Section, list[Finding]]:
    """Return the findings of a diff by section; of an edited diff, whose findings do not cover all changes, none."""
    found: dict[Section, list[Finding]] = {kind.section: [] for kind in KINDS.values()}
    covered = sorted(at for finding in diff.findings for indices in finding.changes for at in indices)
    for finding in diff.findings if covered == list(range(len(diff.changes))) else ():
        # A newer release may have further kinds.
        if finding.kind in KINDS:
            found[KINDS[finding.kind].section].append(finding)
    return found
