"""The part of a diff that is drawn: what changed, equal changes once, and modules that came or went as one box."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from gradir.gcpause import paused_gc
from gradir.ir import Graph, Node, Ref
from gradir.ir.edges import rewired, sources
from gradir.ir.ids import part_name, without_numbers
from gradir.ir.marks import STATUS, TIMES, status, times
from gradir.ir.name_ranges import ranges
from gradir.ir.totals import bounded
from gradir.passes import within
from gradir.passes.contraction import contracted
from gradir.passes.focus import near
from gradir.passes.wiring import has_one_input, without
from gradir.review.outline import Group
from gradir.review.relative_changes import made_relative
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gradir.diffs.changes import Change
    from gradir.ir import Graph
    from gradir.review.comparison import Comparison
    from gradir.review.outline import Modules
    from gradir.review.relative_changes import RelativeChanges

__all__ = ["DrawnUnion", "drawn_part", "drawn_union"]

_CHANGED: Final = "changed"


def drawn_part(comparison: Comparison, hops: int, *, with_explained: bool = True) -> Graph:
    """What changed, as the outline tells it, with what is at most ``hops`` edges away.

    Of modules with the same changes, whose paths differ in numbers alone, the first is drawn: ``ext["times"]`` of what
    changed in it is the number of places where it did, and what took from one of the others takes from it. A module
    that came or went as a whole, with more than one node, is one, with what the outline says is in it.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> a, b = (Graph.of([Node(f"h.{n}/f:1", op=op, scope=f"h.{n}") for n in range(12)]) for op in ("exp", "sin"))
    >>> [(node.id, node.ext) for node in drawn_part(Comparison(a, b), 1).nodes.values()]
    [('h.0/f:1', {'diff': 'changed', 'was': 'exp', 'times': 12})]
    """
    with paused_gc():
        return _Drawing(comparison, with_explained=with_explained).graph(hops)


class _Whole(NamedTuple):
    """A module that came or went, which stands for those of the paths."""

    entry: Modules
    paths: Sequence[str]


class _Drawing:
    def __init__(self, comparison: Comparison, *, with_explained: bool) -> None:
        self._comparison = comparison
        self._union = comparison.drawn_union.graph
        self._shown: dict[str, int] = {}
        """By node that is drawn as changed for how many it stands."""
        self._instead: dict[str, str] = {}
        """By node that is not drawn the one that stands for it."""
        self._whole: dict[str, _Whole] = {}
        """By place of a module that came or went what it is, and by node below that place."""
        self._places: dict[str, str] = {}
        outline = comparison.outline
        for entry in outline.entries:
            if isinstance(entry, Group):
                self._show_alike(entry.paths, entry.changes)
                continue
            for paths, changes in _alike(entry.paths, entry.changes):
                # A tensor and what takes its gradient are one.
                nodes = dict.fromkeys(self._show_places(changes))
                if len(nodes) > 1:
                    self._fold(_Whole(entry, paths), nodes)
            for by, seen in entry.readers:
                self._show_alike(by, seen)
        for cuts in outline.cuts:
            self._show_each([*cuts.nodes, *cuts.changes])
        if with_explained:
            self._show_each([*outline.explained, *outline.following])

    def graph(self, hops: int) -> Graph:
        """The part of the union."""
        kept = near(self._union, self._shown, hops, self._instead)
        part = within(self._with_standing(kept), kept)
        counted = {key: self._counted(node) for key, node in part.nodes.items()}
        return self._folded(replace(part, nodes=counted))

    def _show_alike(self, paths: Sequence[str], changes: Sequence[Sequence[Change]]) -> None:
        for _, alike in _alike(paths, changes):
            self._show_places(alike)

    def _show_places(self, changes: Sequence[Sequence[Change]]) -> list[str]:
        """Draw the changes of the first module, which stand for those of all."""
        return [found for same in zip(*changes, strict=True) if (found := self._show(same))]

    def _show_each(self, changes: Iterable[Change]) -> None:
        """Draw changes that the outline tells in one line, those that are the same for their modules once."""
        together: dict[tuple[RelativeChanges, str], list[Change]] = {}
        for change in changes:
            node = self._comparison.drawn_node(change)
            # A parameter that was cut off may lie in a module that is gone.
            if node and node not in self._instead and node not in self._shown:
                scope = self._union.nodes[node].scope
                together.setdefault((made_relative([change], scope), without_numbers(scope)), []).append(change)
        for same in together.values():
            self._show(same)

    def _show(self, same: Sequence[Change]) -> str:
        """Draw the first of some changes that are the same; the node, if it is one that is drawn."""
        first, *others = map(self._comparison.drawn_node, same)
        if not first or not status(self._union.nodes[first]):
            return ""
        self._shown[first] = len(same)
        self._instead.update(dict.fromkeys(filter(None, others), first))
        return first

    def _fold(self, whole: _Whole, nodes: Iterable[str]) -> None:
        place = whole.paths[0] if whole.entry.added else self._comparison.path_in_union(whole.paths[0])
        self._whole[place] = whole
        self._places.update(dict.fromkeys(nodes, place))

    def _with_standing(self, kept: Iterable[str]) -> Graph:
        """The union, in which what is kept takes from what is drawn, where that stands before it."""
        if not self._instead:
            return self._union
        nodes = dict(self._union.nodes)
        place = {key: at for at, key in enumerate(nodes)}
        for key in kept:
            instead = {
                source: other
                for source in sources(nodes[key])
                if (other := self._instead.get(source)) and place[other] < place[key]
            }
            if instead:
                nodes[key] = replace(nodes[key], **rewired(nodes[key], partial(self._standing, instead)))
        return replace(self._union, nodes=nodes)

    def _standing(self, instead: Mapping[str, str], ref: Ref, _: str) -> Ref:
        other = instead.get(ref.id, ref.id)
        outputs = self._union.nodes[other].outputs
        return Ref(other, ref.output_nr) if not outputs or ref.output_nr < len(outputs) else ref

    def _counted(self, node: Node) -> Node:
        count = self._shown.get(node.id, 1)
        return replace(node, ext={**node.ext, TIMES: bounded(count * times(node))}) if count > 1 else node

    def _folded(self, part: Graph) -> Graph:
        """The part with one node of each module that came or went."""
        if not self._places:
            return part
        small, called = contracted(part, [self._places.get(key) for key in part.nodes])
        folded: dict[str, dict[str, None]] = {}
        for key, place in self._places.items():
            folded.setdefault(place, {})[called(key)] = None
        nodes = dict(small.nodes)
        for place, keys in folded.items():
            whole = self._whole[place]
            for number, key in enumerate(keys, 1):
                nodes[key] = _described(nodes[key], whole, number if len(keys) > 1 else None)
        return replace(small, nodes=nodes)


def _described(node: Node, whole: _Whole, part: int | None) -> Node:
    """A folded module with the words of the outline; where it is one of several parts, with its own counts."""
    contents, ext = whole.entry.contents, node.ext
    if len(whole.paths) > 1:
        ext = {**ext, TIMES: len(whole.paths)}
    if part is None:
        counts = (contents.nodes, contents.elements, contents.saved_bytes)
        node = replace(node, attrs=dict(zip(("nodes", "parameters", "saved_bytes"), map(bounded, counts), strict=True)))
    return replace(node, names=(part_name(ranges(whole.paths), part or 1),), native=whole.entry.class_name, ext=ext)


def _alike(
    paths: Sequence[str], changes: Sequence[Sequence[Change]]
) -> Iterable[tuple[list[str], list[Sequence[Change]]]]:
    """Modules whose paths differ in numbers alone, together, with the changes of each."""
    found: dict[str, tuple[list[str], list[Sequence[Change]]]] = {}
    for path, each in zip(paths, changes, strict=True):
        alike = found.setdefault(without_numbers(path), ([], []))
        alike[0].append(path)
        alike[1].append(each)
    return found.values()


class DrawnUnion(NamedTuple):
    """The graph, and ``instead`` by each node that is not in it the one that stands for it."""

    graph: Graph
    instead: Mapping[str, str]


def drawn_union(union: Graph) -> DrawnUnion:
    """A marked union without its gradient accumulators.

    Where an accumulator is all that changed of a tensor, the tensor is marked as changed.

    >>> from gradir.ir import Graph, Node, Producer, Ref
    >>> nodes = [
    ...     Node("w", role="parameter"),
    ...     Node("w/accumulate_grad:1", op="accumulate_grad", inputs=(Ref("w", 0),), ext={"diff": "added"}),
    ...     Node("exp:1", op="exp", inputs=(Ref("w/accumulate_grad:1", 0),)),
    ... ]
    >>> graph, instead = drawn_union(Graph.of(nodes, producer=Producer(framework="torch")))
    >>> [(node.id, node.inputs, dict(node.ext)) for node in graph.nodes.values()]
    [('w', (), {'diff': 'changed'}), ('exp:1', (Ref(id='w', output_nr=0),), {})]
    >>> instead
    {'w/accumulate_grad:1': 'w'}
    """
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
