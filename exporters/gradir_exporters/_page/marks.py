"""Marks in a page: cuts, modules without a gradient, overlays and the changes of a diff."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gradir.ir import Cut, Graph, Node
from gradir.ir.cuts import FLOW
from gradir.ir.marks import LOOKS, ListedChange, Mark, overlay_mark, overlay_marks, status
from gradir.ir.memo import Table
from gradir.ir.module_tree import OUTSIDE, ModuleTree
from gradir.ir.text import escape_unprintable
from gradir.vocabulary.causes import describe_cause
from gradir_exporters._page.details import shape_text, source_text
from gradir_exporters._page.tables import column
from gradir_exporters._palette import overlay_legend, overlay_text

STATUSES: Final = ("same", "added", "removed", "changed", "renamed", "moved")
_NOWHERE: Final = -1
# If a parent has more such modules, stubs of the parent replace them.
_MOST: Final = 60


def cut_records(
    graph: Graph, numbers: Mapping[str, int], place: Callable[[str], int], changes: Sequence[ListedChange]
) -> list[dict[str, Any]]:
    """Return the cuts, then the removed ones of ``changes``, each with its text and advice."""
    added, removed = (
        [cut for change in changes if change.kind == kind for cut in change.cuts] for kind in ("added", "removed")
    )
    is_known = graph.producer.options.get(FLOW) is True
    records: list[dict[str, Any]] = []
    for cuts in (graph.cuts, removed):
        places = [cut for cut in cuts if cut.is_place]
        by_name = {name: cut for cut in places for name in cut.names}
        records += [_record(cut, by_name, numbers, place, is_known=is_known or bool(places)) for cut in cuts]
    new = Counter(added)
    for cut, record in zip(graph.cuts, records, strict=False):
        if new[cut]:
            new[cut] -= 1
            record["status"] = STATUSES.index("added")
    for record in records[len(graph.cuts) :]:
        record["status"] = STATUSES.index("removed")
    return records


def _record(
    cut: Cut, by_name: Mapping[str, Cut], numbers: Mapping[str, int], place_of: Callable[[str], int], *, is_known: bool
) -> dict[str, Any]:
    place = cut if cut.is_place else next((by_name[name] for name in cut.names if name in by_name), None)
    kind, op = (cut.kind, cut.op) if place is None else (place.kind, place.op)
    if place is None and kind == "unreached" and is_known:
        kind = "unused"
    found = describe_cause(kind, op, cut.names, pattern=cut.meant)
    return {
        "kind": cut.kind,
        "op": cut.op,
        "names": cut.names,
        "shape": shape_text(cut.tensor),
        "scope": place_of(cut.scope),
        "source": source_text(cut.source),
        "via": source_text(cut.via),
        "meant": cut.meant,
        "at": numbers.get(cut.at, _NOWHERE),
        "into": numbers.get(cut.into, _NOWHERE),
        "slot": _NOWHERE if cut.slot is None else cut.slot,
        "text": found.text,
        "advice": found.advice,
        "status": 0,
    }


def find_lost_modules(
    graph: Graph, tree: ModuleTree, scopes: Sequence[int], numbers: Mapping[str, int]
) -> dict[str, Any]:
    """Return the modules without a node whose parameters get no gradient, and lines to the nodes after their cuts."""
    used = {0, *tree.with_above(scopes)}
    owners: dict[str, int] = {}
    for cut in graph.cuts:
        place = tree.place(cut.scope)
        if not cut.is_place and cut.kind != "hidden" and place not in used:
            owners.update(dict.fromkeys(cut.names, place))
    tops = _choose_drawn(tree, tree.with_above(owners.values(), used))
    lines: dict[tuple[int, int], int] = {}
    for cut in graph.cuts:
        for name in cut.names if cut.into in numbers else ():
            if (place := owners.get(name, OUTSIDE)) in tops:
                key = tops[place], numbers[cut.into]
                lines[key] = max(place, lines.get(key, 0))
    return {"scopes": [*tops], "lines": [[place, into] for (_, into), place in lines.items()]}


def _choose_drawn(tree: ModuleTree, found: set[int]) -> dict[int, int]:
    beside = Counter(tree.parents[place] for place in found)
    tops: dict[int, int] = {}
    # A module has a higher place than its parent.
    for place in sorted(found):
        parent = tree.parents[place]
        if beside[parent] <= _MOST and (parent in tops or parent not in found):
            tops[place] = tops.get(parent, place)
    return tops


def channels(nodes: Sequence[Node], texts: Table[str]) -> list[dict[str, Any]]:
    """Return the channels of an overlay, the chosen one first."""
    marked = [(number, node) for number, node in enumerate(nodes) if node.ext]
    chosen = next((mark.title for _, node in marked if (mark := overlay_mark(node))), None)
    found: dict[str, dict[int, Mark]] = {} if chosen is None else {chosen: {}}
    for number, node in marked:
        for mark in overlay_marks(node):
            found.setdefault(mark.title, {})[number] = mark
    return [_channel(title, marks, len(nodes), texts) for title, marks in found.items()]


def _channel(title: str, marks: Mapping[int, Mark], count: int, texts: Table[str]) -> dict[str, Any]:
    looks, labels = [0] * count, [0] * count
    for number, mark in marks.items():
        looks[number], labels[number] = 1 + LOOKS.index(mark.look), texts[overlay_text(mark)]
    _, texts_of_looks = overlay_legend(marks.values())
    return {
        "name": title,
        "look": column(looks),
        "looks": ["", *LOOKS],
        "said": column(labels),
        "legend": [[1 + LOOKS.index(look), escape_unprintable(text)] for look, text in texts_of_looks.items()],
    }


def node_statuses(
    nodes: Sequence[Node], numbers: Mapping[str, int], changes: Sequence[ListedChange], tree: ModuleTree
) -> list[int]:
    """Return the status of each node, as a place in `STATUSES`; without its own, a node has that of its module."""
    found = [STATUSES.index(mark) if (mark := status(node)) else 0 for node in nodes]
    elsewhere = [change for change in changes if change.kind in {"renamed", "moved"}]
    moved = {tree.place(scope): STATUSES.index(change.kind) for change in elsewhere for scope in change.scopes}
    if moved:
        of_modules = [0] * len(tree.parents)
        for place, parent in enumerate(tree.parents):
            of_modules[place] = moved.get(place, of_modules[parent] if parent >= 0 else 0)
        found = [mark or of_modules[tree.place(node.scope)] for mark, node in zip(found, nodes, strict=True)]
    for change in elsewhere:
        for node in change.nodes:
            found[numbers[node]] = STATUSES.index(change.kind)
    return found


def change_records(
    changes: Sequence[ListedChange], numbers: Mapping[str, int], place: Callable[[str], int]
) -> list[dict[str, Any]]:
    """Return the records of the changes."""
    return [
        {
            "kind": change.kind,
            "group": change.group,
            "text": change.text,
            "nodes": [numbers[node] for node in change.nodes],
            "scopes": [place(scope) for scope in change.scopes],
            "fields": change.fields,
        }
        for change in changes
    ]
