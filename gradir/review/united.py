"""Unite both graphs of a diff, find each change in the union, and choose the part to draw."""

from __future__ import annotations

from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from gradir.diffs.changes import ADDED_OR_REMOVED
from gradir.diffs.sequences import pair_by_key
from gradir.errors import ExportError
from gradir.gcpause import pause_gc
from gradir.ir import Graph, Node, Ref
from gradir.ir.edges import DATA, edges_into, move_edges, sources
from gradir.ir.ids import mask_numbers, part_name
from gradir.ir.marks import LOST, STATUS, TIMES, WAS, status, times
from gradir.ir.model import clamp_size
from gradir.ir.name_ranges import ranges
from gradir.passes import around, within
from gradir.passes.contraction import contract_modules
from gradir.passes.focus import find_near
from gradir.passes.wiring import has_one_input, without
from gradir.review.kinds import EDITS_OF_SEVERAL
from gradir.review.relative_changes import make_relative
from gradir.review.wording import name_values
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change, Diff, Finding
    from gradir.diffs.correspondence import Correspondence
    from gradir.ir import Cut
    from gradir.review.relative_changes import RelativeChanges

_CHANGED: Final = "changed"


class UnionGraph:
    """Both graphs of a diff as one; each node of ``graph`` has a mark of its change, see `gradir.ir.marks`.

    Raises:
        ExportError: the diff was read from a file or edited since, so its graphs are not known.
    """

    def __init__(self, diff: Diff) -> None:
        sides = diff.sides
        if sides is None:
            raise ExportError("a picture needs both graphs, and a diff from a file has none; compare them again")
        self._before, self._after, self._names = sides.before, sides.after, sides.names()
        self.graph: Graph = unite_graphs(sides.before, sides.after, diff, self._names)

    @cached_property
    def drawn(self) -> DrawnUnion:
        """The union for pictures, and the nodes that represent hidden ones."""
        return drop_accumulators(self.graph)

    def node(self, change: Change) -> str:
        """Return the id of a changed or cut node, or an empty text."""
        if change.subject not in {"node", "cut"}:
            return ""
        # An added cut removes a node.
        is_removed = (change.kind == "removed") == (change.subject == "node")
        found = self._names.union_ids.get(change.id, change.id) if is_removed else change.id
        return found if found in self.graph.nodes else ""

    def drawn_node(self, change: Change) -> str:
        """Return the id of a changed or cut node in `drawn`, or an empty text."""
        found = self.node(change)
        return self.drawn.instead.get(found, found)

    def cut(self, change: Change) -> Cut | None:
        """Return an added or removed cut with the ids and paths of the union, or ``None`` for another change."""
        if change.subject != "cut" or change.kind not in ADDED_OR_REMOVED:
            return None
        is_removed = change.kind == "removed"
        cut = change.cut or self._cuts[is_removed].get((change.label, change.id))
        if cut is None or not is_removed:
            return cut
        at, into = (self._names.union_ids.get(node, "") for node in (cut.at, cut.into))
        return replace(cut, at=at, into=into, scope=self.path(cut.scope))

    @cached_property
    def _cuts(self) -> tuple[Mapping[tuple[str, str], Cut], ...]:
        """The cuts of parameters of the second graph and of the first, by kind and first name."""
        return tuple(
            {(cut.kind, cut.names[0]): cut for cut in graph.cuts if cut.names and not cut.is_place}
            for graph in (self._after, self._before)
        )

    def path(self, path: str) -> str:
        """Return the path of a module of the first graph in the union."""
        return self._names.union_paths.get(path, path)

    def changed_part(self, hops: int = 1) -> Graph:
        """Return the changed nodes with neighbors at most ``hops`` edges away, without gradient accumulators."""
        union = self.drawn.graph
        return around(union, [node.id for node in union.nodes.values() if status(node)], hops)


class DrawnUnion(NamedTuple):
    """The graph, and ``instead`` with the node that represents each hidden one."""

    graph: Graph
    instead: Mapping[str, str]


def drop_accumulators(union: Graph) -> DrawnUnion:
    """Return a marked union without its gradient accumulators."""
    # If only the accumulator of a tensor changed, the tensor is marked as changed.
    accumulators = vocabulary_of(union).accumulators
    instead: dict[str, str] = {}
    changed: dict[str, None] = {}
    for node in union.nodes.values():
        if node.op in accumulators and has_one_input(node) and (source := node.inputs[0]) is not None:
            tensor = instead[node.id] = instead.get(source.id, source.id)
            if status(node) and not status(union.nodes[tensor]):
                changed[tensor] = None
    graph = without(union, instead, lambda _: True)
    if not changed:
        return DrawnUnion(graph, instead)
    marked = {key: replace(graph.nodes[key], ext={**graph.nodes[key].ext, STATUS: _CHANGED}) for key in changed}
    return DrawnUnion(replace(graph, nodes={**graph.nodes, **marked}), instead)


def unite_graphs(a: Graph, b: Graph, diff: Diff, correspondence: Correspondence) -> Graph:
    """Return the nodes of ``b``, with those that only ``a`` has in their former places."""
    # Each changed node has a mark, see `gradir.ir.marks`; a renamed or moved node counts as changed. An input that only
    # the node of `a` has becomes a further slot, unless its source comes later.
    names, shown = correspondence.union_ids, correspondence.union_paths
    # A removed node may have the name of a node of `b`.
    kinds = {change.id: change.kind for change in diff.changes if change.subject == "node" and change.kind != "removed"}
    nodes: dict[str, Node] = {}
    for _, old, node in pair_by_key(correspondence.nodes(a.nodes), b.nodes):
        if node is None:
            if old is not None:
                edges = move_edges(old, lambda ref, kind: _find_output(ref, names, nodes) if kind == DATA else None)
                own = {"id": names[old.id], "scope": shown.get(old.scope, old.scope)}
                saved = tuple(replace(slot, origin=None, storage="") for slot in old.saved)
                nodes[own["id"]] = replace(old, **own, saved=saved, ext={**old.ext, STATUS: "removed"}, **edges)
            continue
        lost = list(_find_lost(old, node, names, nodes)) if old else []
        kind = kinds.get(node.id)
        ext = {**node.ext, STATUS: "added" if kind == "added" else _CHANGED} if kind else node.ext
        if kind and old is not None and old.op and node.op and old.op != node.op:
            ext = {**ext, WAS: old.op}
        if lost:
            ext = {**ext, LOST: tuple(range(len(node.inputs), len(node.inputs) + len(lost)))}
        nodes[node.id] = replace(node, inputs=(*node.inputs, *lost), ext=ext)
    removed_scopes = {
        shown[path]: replace(scope, path=shown[path]) for path, scope in a.scopes.items() if shown[path] not in b.scopes
    }
    return replace(b, nodes=nodes, scopes={**b.scopes, **removed_scopes})


def _find_lost(old: Node, new: Node, names: Mapping[str, str], nodes: Mapping[str, Node]) -> Iterator[Ref]:
    present = {edge.src for edge in edges_into(new) if edge.input_nr >= 0}
    for edge in edges_into(old):
        found = _find_output(edge.ref, names, nodes) if edge.input_nr >= 0 else None
        if found is not None and found.id not in present:
            present.add(found.id)
            yield found


def _find_output(ref: Ref, names: Mapping[str, str], nodes: Mapping[str, Node]) -> Ref | None:
    source = nodes.get(names[ref.id])
    fits = source is not None and (not source.outputs or ref.output_nr < len(source.outputs))
    return Ref(source.id, ref.output_nr) if source is not None and fits else None


def draw_part(diff: Diff, united: UnionGraph, hops: int = 1, *, with_explained: bool = True) -> Graph:
    """Return the changes, as the findings report them, with neighbors at most ``hops`` edges away."""
    # Of modules with the same changes and paths that differ only in numbers, the part has the first. Its `ext["times"]`
    # is the number of these modules, and readers of the others read from it. An added or removed module of several
    # nodes is one node with the text of its finding. `with_explained` adds the nodes that a line at the top explains.
    with pause_gc():
        return _Drawing(diff, united, with_explained=with_explained).make_graph(hops)


class _Whole(NamedTuple):
    finding: Finding
    paths: Sequence[str]


class _Drawing:
    def __init__(self, diff: Diff, united: UnionGraph, *, with_explained: bool) -> None:
        self._united = united
        self._union = united.drawn.graph
        # The number of changed nodes that each drawn one represents.
        self._counts: dict[str, int] = {}
        # The node that represents each hidden one.
        self._instead: dict[str, str] = {}
        # The added and removed modules by path, and the path for each node in them.
        self._whole: dict[str, _Whole] = {}
        self._places: dict[str, str] = {}
        changes = name_values(diff)
        findings = [
            (finding, [[changes[at] for at in indices] for indices in finding.changes]) for finding in diff.findings
        ]
        for finding, found in findings:
            if finding.kind in {"same", "reads", "module-added", "module-removed"}:
                for paths, alike in _group_alike(finding.subjects, found):
                    # The changes of a tensor and of its accumulator have the same node.
                    nodes = dict.fromkeys(filter(None, [self._draw(same) for same in zip(*alike, strict=True)]))
                    if finding.kind in {"module-added", "module-removed"} and len(nodes) > 1:
                        place = paths[0] if finding.kind == "module-added" else united.path(paths[0])
                        self._whole[place] = _Whole(finding, paths)
                        self._places.update(dict.fromkeys(nodes, place))
        for finding, found in findings:
            if finding.kind in {"cut-added", "cut-removed"}:
                cuts, nodes_of_cuts = found
                self._draw_once([*nodes_of_cuts, *cuts])
        for kinds in (EDITS_OF_SEVERAL, ("frozen", "unfrozen", "following") if with_explained else ()):
            for finding, found in findings:
                if finding.kind in kinds:
                    self._draw_once(chain.from_iterable(found))

    def make_graph(self, hops: int) -> Graph:
        chosen = find_near(self._union, self._counts, hops, self._instead)
        part = within(self._redirect_inputs(chosen), chosen)
        repeated = {
            key: replace(node, ext={**node.ext, TIMES: clamp_size(count * times(node))})
            for key, node in part.nodes.items()
            if (count := self._counts.get(key, 1)) > 1
        }
        return self._fold_modules(replace(part, nodes={**part.nodes, **repeated}))

    def _draw_once(self, changes: Iterable[Change]) -> None:
        """Draw changes that the text reports on one line, equal ones of several modules once."""
        grouped: dict[tuple[RelativeChanges, str], list[Change]] = {}
        for change in changes:
            node = self._united.drawn_node(change)
            # A parameter that was cut off may belong to a removed module.
            if node and node not in self._instead and node not in self._counts:
                scope = self._union.nodes[node].scope
                grouped.setdefault((make_relative([change], scope), mask_numbers(scope)), []).append(change)
        for same in grouped.values():
            self._draw(same)

    def _draw(self, same: Sequence[Change]) -> str:
        """Draw the first of equal changes, and return its node or an empty text."""
        first, *others = map(self._united.drawn_node, same)
        if not first or not status(self._union.nodes[first]):
            return ""
        self._counts[first] = len(same)
        self._instead.update(dict.fromkeys(filter(None, others), first))
        return first

    def _redirect_inputs(self, chosen: Iterable[str]) -> Graph:
        """Return the union in which the chosen nodes read from drawn nodes, if these come earlier."""
        if not self._instead:
            return self._union
        nodes = dict(self._union.nodes)
        place = {key: at for at, key in enumerate(nodes)}
        for key in chosen:
            instead = {
                source: other
                for source in sources(nodes[key])
                if (other := self._instead.get(source)) and place[other] < place[key]
            }
            if instead:
                nodes[key] = replace(nodes[key], **move_edges(nodes[key], partial(self._redirect, instead)))
        return replace(self._union, nodes=nodes)

    def _redirect(self, instead: Mapping[str, str], ref: Ref, _: str) -> Ref:
        other = instead.get(ref.id, ref.id)
        outputs = self._union.nodes[other].outputs
        return Ref(other, ref.output_nr) if not outputs or ref.output_nr < len(outputs) else ref

    def _fold_modules(self, part: Graph) -> Graph:
        if not self._places:
            return part
        small, called = contract_modules(part, [self._places.get(key) for key in part.nodes])
        folded: dict[str, dict[str, None]] = {}
        for key, place in self._places.items():
            folded.setdefault(place, {})[called(key)] = None
        nodes = dict(small.nodes)
        for place, keys in folded.items():
            whole = self._whole[place]
            for number, key in enumerate(keys, 1):
                nodes[key] = _describe_folded(nodes[key], whole, number if len(keys) > 1 else None)
        return replace(small, nodes=nodes)


def _describe_folded(node: Node, whole: _Whole, part: int | None) -> Node:
    """Return a folded module with the text of its finding; each of several parts has its own counts."""
    details, ext = whole.finding.details, node.ext
    if len(whole.paths) > 1:
        ext = {**ext, TIMES: len(whole.paths)}
    if part is None:
        counts = (details["nodes"], details["elements"], details["saved"][0])
        node = replace(
            node, attrs=dict(zip(("nodes", "parameters", "saved_bytes"), map(clamp_size, counts), strict=True))
        )
    return replace(node, names=(part_name(ranges(whole.paths), part or 1),), native=details["class"], ext=ext)


def _group_alike(
    paths: Sequence[str], changes: Sequence[Sequence[Change]]
) -> Iterable[tuple[list[str], list[Sequence[Change]]]]:
    """Group modules whose paths differ only in numbers, with the changes of each."""
    found: dict[str, tuple[list[str], list[Sequence[Change]]]] = {}
    for path, each in zip(paths, changes, strict=True):
        alike_paths, alike_changes = found.setdefault(mask_numbers(path), ([], []))
        alike_paths.append(path)
        alike_changes.append(each)
    return found.values()
