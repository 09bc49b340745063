"""Rules about whole graphs: their results, producers and totals, and changes that most nodes share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from gradir.diffs.changes import ADDED_OR_REMOVED, Finding
from gradir.diffs.computing import computes_the_same
from gradir.ir import Saved
from gradir.ir.cuts import find_graph_without_flow
from gradir.ir.marks import graph_kind
from gradir.ir.model import INT64_MAX
from gradir.ir.saved import unknown_slots
from gradir.ir.text import escape_unprintable
from gradir.review.common_change import find_uniform_changes, is_changed_node
from gradir.review.kinds import TOTALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.diffs.changes import Change, FieldChange
    from gradir.review.evidence import Evidence

# Smaller graphs never count as two different models.
_FEWEST: Final = 20
# Two different models share less than one node in this many.
_IN_COMMON: Final = 10
_OTHER: Final = {("op",), ("role",)}
_SETTINGS: Final = frozenset({"detail", "training"})
# Fields that do not change the computation.
_OF_NO_OPERATION: Final = {"id", "scope", "names", "source", "ext"}


def report_same_result(evidence: Evidence) -> Iterator[Finding]:
    """Report that two edited forward graphs compute the same result."""
    # `subjects` are the parameters that one graph transposes, and `count` is the number of constants.
    is_forward = all(graph.producer.options.get("graph") == "forward" for graph in evidence.graphs)
    nodes = [change for change in evidence.changes if change.subject == "node"]
    is_edited = any(
        change.kind in ADDED_OR_REMOVED or any(field.path[0] not in _OF_NO_OPERATION for field in change.fields)
        for change in nodes
    )
    if not (is_forward and is_edited) or any(graph.cuts for graph in evidence.graphs):
        return
    same = computes_the_same(*evidence.graphs, evidence.matched)
    if same is not None:
        yield Finding("same-result", "note", same.transposed, count=same.constants)


def report_graph_kinds(evidence: Evidence) -> Iterator[Finding]:
    """Report graphs of two kinds, and settings of modules that one of the graphs lacks."""
    have_settings = [any(scope.detail for scope in graph.scopes.values()) for graph in evidence.graphs]
    scopes = [at for at in evidence.left if evidence.changes[at].subject == "scope"]
    unknown = tuple(at for at in scopes if _lacks_settings(evidence.changes[at]))
    kinds = tuple(graph_kind(graph) for graph in evidence.graphs)
    if kinds[0] != kinds[1]:
        yield Finding("graph-kinds", "note", kinds)
    if unknown and have_settings[0] != have_settings[1]:
        yield Finding("without-settings", "note", changes=(unknown,), details={"side": have_settings.index(False)})


def _lacks_settings(change: Change) -> bool:
    """Return whether a module has settings in one graph only, and no other change."""
    are_lost = [each.path[0] in _SETTINGS and UNSET in (each.before, each.after) for each in change.fields]
    return change.kind == "changed" and all(are_lost)


def report_frameworks(evidence: Evidence) -> Iterator[Finding]:
    """Report two frameworks, a graph without data or flow, and graphs with few nodes in common."""
    before, after = evidence.graphs
    producers = [graph.producer for graph in evidence.graphs]
    frameworks = [producer.framework for producer in producers]
    names = tuple(
        escape_unprintable(f"{each.framework} {each.framework_version}".strip() or "a graph without a framework")
        for each in producers
    )
    sides = evidence.diff.sides
    if sides is not None and sides.in_shared_words:
        yield Finding("shared-words", "note", names, details=_count_common(evidence))
    elif all(frameworks) and frameworks[0] != frameworks[1]:
        yield Finding("frameworks", "note", names)
    are_fake = [producer.options.get("fake") is True for producer in producers]
    if are_fake[0] != are_fake[1]:
        side = are_fake.index(True)
        yield Finding("without-data", "note", (frameworks[side] or "the framework",), details={"side": side})
    common = len(after.nodes) - sum(
        change.kind == "added" or (change.kind != "removed" and any(field.path in _OTHER for field in change.fields))
        for change in evidence.changes
        if change.subject == "node"
    )
    fewest = min(len(graph.nodes) for graph in evidence.graphs)
    if evidence.changes and fewest >= _FEWEST and common * _IN_COMMON < fewest:
        yield Finding("two-models", "note", before=len(before.nodes), after=len(after.nodes), count=common)
    lacking = find_graph_without_flow(before, after)
    if lacking is not None and any(change.subject == "graph" and change.id == "flow" for change in evidence.changes):
        yield Finding("without-flow", "note", details={"side": int(lacking is after)})


def report_totals(evidence: Evidence) -> Iterator[Finding]:
    """Report each total that differs, or may differ since it is unknown or too large to count."""
    # `details` has the numbers of saved slots of unknown size, which no total counts.
    for kind, name in TOTALS.items():
        before, after = (getattr(side, name) for side in (evidence.diff.before, evidence.diff.after))
        is_saved = kind == "saved-bytes"
        slots = [unknown_slots(graph.nodes.values()) for graph in evidence.graphs] if is_saved else [0, 0]
        if before != after or any(slots) or min(before, after) >= INT64_MAX:
            yield Finding(kind, "note", before=before, after=after, details={"unknown": slots} if any(slots) else {})


def _count_common(evidence: Evidence) -> dict[str, Any]:
    other = {each.id for each in evidence.changes if each.subject == "node" and each.kind in ("added", "changed")}
    after = evidence.graphs[1].nodes
    found = {}
    for role in ("parameter", "function"):
        numbers = [sum(node.role == role for node in graph.nodes.values()) for graph in evidence.graphs]
        if any(numbers):
            same = sum(after[node].role == role and node not in other for node in evidence.matched.values())
            found[role] = [same, *numbers]
    return found


# Reports list fewer nodes one by one.
_FEWEST_ALIKE: Final = 3
_DESCRIBES: Final = frozenset({"class", "detail"})


def report_common_change(evidence: Evidence) -> Iterator[Finding]:
    """Report changes of properties and sizes that most changed nodes share, with changes that only follow from them."""
    same = list(find_uniform_changes(evidence.changes))
    yield from same
    found = evidence.common
    following = tuple(at for at in evidence.left if at in found.follow)
    if found.sizes and not any(each.subjects[0].startswith("dimension ") for each in same):
        yield Finding("sizes", "change", details={"sizes": found.sizes})
    if found.casts:
        yield Finding("casts", "change", details={"casts": found.casts})
    if following:
        yield Finding("following", "note", changes=(following,), count=len(following))


def report_hooked(evidence: Evidence) -> Iterator[Finding]:
    """Report nodes whose only change is that a hook packs their saved tensors, or no longer does."""
    for kind in ("hooked", "unhooked"):
        found = {
            at: len(change.fields)
            for at in evidence.left
            if is_changed_node(change := evidence.changes[at])
            and all(_packing(field) == kind for field in change.fields)
        }
        if len(found) >= _FEWEST_ALIKE:
            modules = tuple(dict.fromkeys(evidence.changes[at].scope for at in found))
            yield Finding(kind, "note", modules, (tuple(found),), count=sum(found.values()))


def _packing(field: FieldChange) -> str:
    """Return ``hooked`` for a saved tensor that only the second graph packs by a hook, ``unhooked`` for the reverse."""
    if not (isinstance(field.before, Saved) and isinstance(field.after, Saved)):
        return ""
    was, now = field.before.state == "hooked", field.after.state == "hooked"
    return "" if was == now else "hooked" if now else "unhooked"


def report_tensor_changes(evidence: Evidence) -> Iterator[Finding]:
    """Report nodes that read from a change and differ only in sizes, dtypes or devices of tensors."""
    # Parameters of a module with another description belong to them, but not the first node of such a change.
    changes = evidence.changes
    described = {
        change.id
        for change in changes
        if change.subject == "scope" and any(field.path[0] in _DESCRIBES for field in change.fields)
    }

    def follows(change: Change) -> bool:
        return change.scope in described if change.label == "parameter" else evidence.reads_a_change(change)

    nodes = [at for at in evidence.left if is_changed_node(changes[at])]
    found = [at for at in nodes if all(map(evidence.is_of_tensors, changes[at].fields)) and follows(changes[at])]
    if len(found) >= _FEWEST_ALIKE:
        yield Finding(
            "tensors",
            "note",
            changes=(tuple(found),),
            count=len(found),
            details=_count_values(field for at in found for field in changes[at].fields if field.path[0] == "out"),
        )


def _count_values(fields: Iterable[FieldChange]) -> dict[str, list[list[object]]]:
    """Return the pairs of values of each property of tensors, for shapes those of sizes, the most frequent first."""
    found: dict[str, Counter[tuple[object, object]]] = {}
    for field in fields:
        before, after = (None if value is UNSET else value for value in (field.before, field.after))
        if field.path[-1] != "shape":
            found.setdefault(str(field.path[-1]), Counter())[before, after] += 1
        elif isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
            pairs = {(was, now) for was, now in zip(before, after, strict=True) if was != now}
            found.setdefault("sizes", Counter()).update(pairs)
        else:
            found.setdefault("dimensions", Counter())
    return {key: [[*pair] for pair, _ in pairs.most_common()] for key, pairs in found.items()}
