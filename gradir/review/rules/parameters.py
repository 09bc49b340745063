"""Rules about parameters: without a gradient, frozen, tied, or no longer in the model."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import UNSET

from gradir.diffs.changes import ADDED_OR_REMOVED, Finding
from gradir.ir import Ref
from gradir.ir.cuts import cut_text, find_graph_without_flow
from gradir.ir.edges import sources
from gradir.ir.ids import strip_accumulator
from gradir.ir.module_tree import ModuleTree
from gradir.ir.name_ranges import ranges
from gradir.ir.totals import elements
from gradir.review.evidence import find_serving
from gradir.review.wording import is_renumbering

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change, Level
    from gradir.ir import Graph, Node, Scope
    from gradir.review.evidence import Evidence

# The kind of cut of a parameter that an opaque function may reach.
_MAY_BE_REACHED: Final = "hidden"
# Fields of an operation that depend on the inputs that require grad.
_OF_BACKWARD: Final = ("saved", "attrs")


def report_cuts(evidence: Evidence) -> Iterator[Finding]:
    """Report new and removed cuts, each kind with the nodes that were removed or added because of it."""
    # New cuts come first, since their parameters lost their gradient.
    changes = evidence.changes
    yield from _report_new_cuts(evidence, [change for change in changes if change.subject == "cut"])
    groups: dict[tuple[str, str | int], list[int]] = {}
    for at, change in enumerate(changes):
        if change.subject == "cut" and change.kind in ADDED_OR_REMOVED:
            # Each place has its own finding.
            groups.setdefault((change.kind, change.label if change.cut is None else at), []).append(at)
    nodes: dict[tuple[str, str], list[int]] = {}
    for at in evidence.left if groups else ():
        change = changes[at]
        if change.subject == "node" and change.kind in ADDED_OR_REMOVED:
            nodes.setdefault((change.kind, strip_accumulator(change.id, evidence.vocabulary.accumulators)), []).append(
                at
            )
    for key in sorted(groups, key=lambda key: key[0]):
        other = "removed" if key[0] == "added" else "added"
        names = [changes[at].id for at in groups[key]]
        is_place = changes[groups[key][0]].cut is not None
        others = () if is_place else tuple(node for name in names for node in nodes.pop((other, name), ()))
        level: Level = "error" if key[0] == "added" else "change"
        yield Finding(f"cut-{key[0]}", level, tuple(names), (tuple(groups[key]), others), count=len(names))


def report_inputs(evidence: Evidence) -> Iterator[Finding]:
    """Report input slots of nodes with the same operation that lost their edge, and those that gained one."""
    # If a node gained as many edges as it lost, its inputs only changed places. So did an input that an equal operation
    # of the module now reads in place of another. Edges to removed parameters do not count, since other findings report
    # these parameters.
    for kind, side, other in (("lost-inputs", "before", "after"), ("gained-inputs", "after", "before")):
        found = [(change, slot) for change in evidence.changes for slot in _find_one_sided_slots(change, side, other)]
        if not found:
            continue
        explained = _find_explained(evidence, side)
        names = evidence.matched if side == "before" else {new: old for old, new in evidence.matched.items()}
        readers = _find_new_readers(evidence, other)
        slots = [
            (change.id, slot)
            for change, (slot, source) in found
            if source not in explained and readers[change.scope, change.label, names.get(source)] <= {change.id}
        ]
        if slots:
            nodes, numbers = zip(*slots, strict=True)
            level: Level = "error" if side == "before" else "change"
            yield Finding(kind, level, subjects=nodes, count=len(slots), details={"slots": list(numbers)})


def _report_new_cuts(evidence: Evidence, changes: list[Change]) -> Iterator[Finding]:
    """Report the unexpected cuts of both graphs, without places if only one graph was captured with them."""
    before, after = evidence.graphs
    had_no_gradient = {name for cut in before.cuts if cut.is_place for name in cut.names}
    if had_no_gradient:
        had_no_gradient.difference_update(*(node.names for node in before.nodes.values()))
    new, places = [], []
    for change in changes:
        keys = {field.path[0] for field in change.fields}
        cut, is_added = change.cut, change.kind == "added"
        if cut is None:
            # A parameter that may have had a hidden gradient surely has none now.
            is_sure = "kind" in keys and change.label != _MAY_BE_REACHED
            if is_sure or (is_added and change.id not in had_no_gradient):
                new.append(change)
        elif not cut.meant and (is_added or "meant" in keys):
            places.append(cut)
    has_places = find_graph_without_flow(before, after) is None
    counts = [sum(not cut.meant for cut in graph.cuts if has_places or not cut.is_place) for graph in (before, after)]
    unsure = sum(change.label == _MAY_BE_REACHED for change in new)
    if new or places or counts[0] != counts[1]:
        yield Finding(
            "cuts",
            "error" if new or places else "change",
            tuple(cut_text(cut, count=True) for cut in places),
            before=counts[0],
            after=counts[1],
            count=max(len(new) + len(places), counts[1] - counts[0]),
            details={"no gradient": len(new) - unsure, "no gradient that can be seen": unsure},
        )


def _find_one_sided_slots(change: Change, side: str, other: str) -> list[tuple[int, str]]:
    """Return the slots of a changed node with an edge in one graph only, each with the source."""
    if (
        change.subject != "node"
        or change.kind in ADDED_OR_REMOVED
        or any(field.path == ("op",) for field in change.fields)
    ):
        return []
    slots, instead = [], 0
    for field in change.fields:
        if field.path[0] == "in":
            own, opposite = getattr(field, side), getattr(field, other)
            if isinstance(own, Ref) and opposite is None:
                slots.append((int(field.path[1]), own.id))
            instead += own in (None, UNSET) and isinstance(opposite, Ref)
    return slots if len(slots) > instead else []


def _find_new_readers(evidence: Evidence, side: str) -> Mapping[tuple[str, str, str | None], set[str]]:
    """Return the changed nodes that read another node on each side, by their module, operation and the node."""
    readers: defaultdict[tuple[str, str, str | None], set[str]] = defaultdict(set)
    for change in evidence.changes:
        for field in change.fields:
            if isinstance(field.before, Ref) and isinstance(field.after, Ref):
                readers[change.scope, change.label, getattr(field, side).id].add(change.id)
    return readers


def _find_explained(evidence: Evidence, side: str) -> Collection[str]:
    """Return the nodes of one graph that depend only on parameters whose absence other findings explain."""
    is_first = side == "before"
    own, opposite = evidence.graphs if is_first else evidence.graphs[::-1]
    kind = "removed" if is_first else "added"
    absent = {
        (change.old_id or change.id) if is_first else change.id
        for change in evidence.changes
        if change.subject == "node" and (change.kind == kind or any(field.path == ("role",) for field in change.fields))
    }
    if not (own.scopes and opposite.scopes):
        # Without a table of modules, the other model may still have and train the parameter.
        absent.intersection_update(name for cut in opposite.cuts for name in cut.names)
    return find_serving(own, lambda node: node.id in absent)


class _FrozenModule(NamedTuple):
    """A module with ``elements`` of parameters that require grad in one graph only; ``whole`` if these are all.

    ``parameters`` and ``lost`` count parameters and elements that only one graph has. ``trained`` is the path of the
    module in the graph where more parameters require grad.
    """

    path: str
    elements: int
    whole: bool
    parameters: int
    lost: int
    trained: str

    @property
    def is_proven(self) -> bool:
        """Whether one graph lacks exactly the frozen parameters."""
        return self.lost == self.elements


def report_frozen(evidence: Evidence) -> Iterator[Finding]:
    """Report frozen and unfrozen parameters, with the changes that only follow from them."""
    # The tables of modules must prove it: a module owns as many elements as before, and fewer of them require grad. In
    # a module with submodules, all must require grad in one graph and none in the other. The finding has figures if
    # each graph lacks exactly these parameters.
    modules = dict(_find_frozen_modules(evidence))
    if not modules:
        return
    explained = {word: _find_consequences(evidence, word, found) for word, found in modules.items()}
    rest = set(evidence.left).difference(*explained.values())
    if any(explained.values()) and all(is_renumbering(evidence.changes[at]) for at in rest):
        explained[next(iter(explained))] |= rest
    used: set[int] = set()
    tree = ModuleTree(evidence.graphs[1].scopes.values())
    for word, found in modules.items():
        whole = _find_topmost([module.path for module in found if module.whole], tree)
        part = [module.path for module in found if not module.whole]
        figures = {"parameters": sum(each.parameters for each in found), "elements": sum(each.lost for each in found)}
        indices = explained[word] - used
        used |= indices
        yield Finding(
            word,
            subjects=tuple(whole),
            changes=(tuple(sorted(indices)),) if indices else (),
            details={**({"part": part} if part else {}), **(figures if all(each.is_proven for each in found) else {})},
        )


def _find_frozen_modules(evidence: Evidence) -> Iterator[tuple[str, list[_FrozenModule]]]:
    before, after = (graph.scopes for graph in evidence.graphs)
    matched = [
        (before[was], after[change.id])
        for change in evidence.changes
        if change.subject == "scope" and change.kind not in ADDED_OR_REMOVED
        if (was := change.old_id or change.id) in before and change.id in after
    ]
    if not any(old.trainable != new.trainable for old, new in matched):
        return
    owned, owned_after = (_count_parameters(graph) for graph in evidence.graphs)
    for word, found in (
        ("frozen", [_compare_trainable(old, new, owned, owned_after, new.path) for old, new in matched]),
        ("unfrozen", [_compare_trainable(new, old, owned_after, owned, new.path) for old, new in matched]),
    ):
        modules = [module for module in found if module is not None]
        if modules:
            yield word, modules


def _compare_trainable(
    more: Scope, less: Scope, parameters: Counter[tuple[str, bool]], others: Counter[tuple[str, bool]], path: str
) -> _FrozenModule | None:
    """Return the frozen parameters between two tables of a module, or ``None`` if they prove none."""
    if (more.own, more.total) != (less.own, less.total) or not more.own:
        return None
    fewer = more.trainable - less.trainable
    everything = more.trainable == more.total and not less.trainable
    if fewer <= 0 or not (everything or more.own == more.total):
        return None
    count, size = (parameters[more.path, is_size] - others[less.path, is_size] for is_size in (False, True))
    return _FrozenModule(path, more.own if everything else fewer, everything, count, size, more.path)


def _count_parameters(graph: Graph) -> Counter[tuple[str, bool]]:
    """Count the parameters (False) and their elements (True) by module."""
    found: Counter[tuple[str, bool]] = Counter()
    for node in graph.nodes.values():
        if node.role == "parameter":
            found.update({(node.scope, False): 1, (node.scope, True): elements(node)})
    return found


def _find_topmost(paths: Sequence[str], tree: ModuleTree) -> list[str]:
    """Return modules, or the topmost ones around them in which no other module owns parameters."""
    listed = set(paths)
    rows = [(row, scope.path in listed, scope.own > 0) for row, scope in enumerate(tree.scopes)]
    others = tree.with_above(row for row, is_listed, owns in rows if owns and not is_listed)
    pure = tree.with_above(row for row, is_listed, _ in rows if is_listed) - others
    # A listed module that is not pure owns parameters itself, and so does an unlisted one below it.
    return [
        tree.scopes[row].path
        for row, is_listed, _ in rows
        if (tree.parents[row] not in pure if row in pure else is_listed)
    ]


def _find_consequences(evidence: Evidence, word: str, modules: Sequence[_FrozenModule]) -> set[int]:
    """Return the changes that only follow from frozen or unfrozen parameters, if the tables prove these."""
    # A frozen parameter leaves the graph, or stays as a buffer because an operation saved it. An operation with only
    # such inputs leaves too, and others lose an input and its saved tensors.
    owners = {module.trained for module in modules if module.is_proven}
    if not owners:
        return set()
    side, other, kind = ("before", "after", "removed") if word == "frozen" else ("after", "before", "added")
    trained = evidence.graphs[word != "frozen"]
    absent = {
        change.id: at for at, change in enumerate(evidence.changes) if (change.subject, change.kind) == ("node", kind)
    }
    changed: list[int] = []
    found: set[int] = set()
    dead: set[str] = set()
    for at, change in enumerate(evidence.changes):
        paths = [field.path for field in change.fields]
        if change.subject == "scope" and change.kind not in ADDED_OR_REMOVED and paths == [("trainable",)]:
            found.add(at)
        node = trained.nodes.get((change.old_id or change.id) if side == "before" else change.id)
        if change.subject != "node" or change.kind in ADDED_OR_REMOVED or node is None:
            continue
        changed.append(at)
        is_buffer = paths == [("role",)] and getattr(change.fields[0], other) == "buffer"
        if is_buffer and node.role == "parameter" and node.scope in owners:
            found.add(at)
            dead.add(node.id)
    for node in trained.nodes.values():
        if node.id not in absent:
            continue
        feeds = sources(node)
        has_dead_inputs = node.role == "function" and bool(feeds) and dead.issuperset(feeds)
        if node.scope in owners if node.role == "parameter" else has_dead_inputs:
            dead.add(node.id)
            found.add(absent[node.id])
    found.update(at for at in changed if _only_lost_inputs(evidence, at, side, dead))
    return found


def _only_lost_inputs(evidence: Evidence, at: int, side: str, dead: Collection[str]) -> bool:
    """Return whether a node only lost inputs from dead nodes, apart from the common change."""
    change = evidence.changes[at]
    fields = [field for number, field in enumerate(change.fields) if (at, number) not in evidence.common.partly]
    ends = [(field.before, field.after) for field in fields if field.path[0] == "in"]
    lost = ends if side == "before" else [(after, before) for before, after in ends]
    return (
        change.kind == "changed"
        and bool(lost)
        and all(field.path[0] == "in" or (field.path[0] in _OF_BACKWARD and len(field.path) > 1) for field in fields)
        and all(opposite is None and isinstance(own, Ref) and own.id in dead for own, opposite in lost)
    )


def report_tied(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters that became one tensor, and those that became several."""
    fields = [
        field
        for change in (evidence.changes[at] for at in evidence.left)
        if change.subject == "node" and change.label == "parameter"
        for field in change.fields
        if field.path == ("names",)
    ]
    names = [
        {name for node in graph.nodes.values() if node.role == "parameter" for name in node.names}
        for graph in evidence.graphs
        if fields
    ]
    both = [[value if isinstance(value, tuple) else () for value in (each.before, each.after)] for each in fields]
    for kind, side in (("tied", 1), ("untied", 0)):
        found = [
            ranges(pair[side])
            for pair in both
            if len(pair[side]) > 1 and names[1 - side].intersection(pair[side]).difference(pair[1 - side])
        ]
        if found:
            yield Finding(kind, "change", tuple(found))


def report_unowned(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters without an owner that only the second graph has, if both graphs list modules."""
    # An optimizer or checkpoint of the model lacks them. `subjects` are the names of the parameters that left the
    # model, if these have the same number and sizes. Otherwise they are the ids of the new nodes.
    before, after = evidence.graphs
    nameless = [node for node in after.nodes.values() if not (node.op or node.names)]
    if not (evidence.changes and before.scopes and after.scopes and nameless):
        return
    pairs = ((new, before.nodes[old]) for old, new in evidence.matched.items())
    named = {new: was for new, was in pairs if was.names and was.role == "parameter"}
    lost = [(node, named[node.id]) for node in nameless if node.id in named]
    matched = {*evidence.matched.values()}
    added = [node for node in nameless if node.role == "parameter" and node.id not in matched]
    removed = [node for node in before.nodes.values() if node.role == "parameter" and node.id not in evidence.matched]
    # Some may be parameters that already had no owner.
    unowned_before = _count_tensors(node for node in removed if not node.names)
    new = []
    for node in added:
        if unowned_before[node.tensor]:
            unowned_before[node.tensor] -= 1
        else:
            new.append(node)
    owned = [node for node in removed if node.names] if new else []
    known = owned if _count_tensors(owned) == _count_tensors(new) else new
    names = [name for node in [*(was for _, was in lost), *known] for name in node.names or (node.id,)]
    found = [*(node for node, _ in lost), *new]
    if found:
        details = {"elements": sum(map(elements, found))}
        yield Finding("unowned", "error", tuple(names), count=len(found), details=details)


def _count_tensors(nodes: Iterable[Node]) -> Counter[object]:
    return Counter(node.tensor for node in nodes)
