"""The part of a diff that is drawn: what changed, equal changes once, and modules that came or went as one box."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from gradir.gcpause import paused_gc
from gradir.ir import Graph, Node, Ref
from gradir.ir.edges import rewired, sources
from gradir.ir.ids import part_name, without_numbers
from gradir.ir.marks import TIMES, status, times
from gradir.ir.name_ranges import ranges
from gradir.ir.totals import bounded
from gradir.passes import within
from gradir.passes.contraction import contracted
from gradir.passes.focus import near
from gradir.review.relative_changes import made_relative
from gradir.review.wording import told_changes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gradir.diffs.changes import Change, Diff, Finding
    from gradir.ir import Graph
    from gradir.review.relative_changes import RelativeChanges
    from gradir.review.united import United

_EXPLAINING: Final = frozenset({"frozen", "unfrozen", "following"})


def drawn_part(diff: Diff, united: United, hops: int = 1, *, with_explained: bool = True) -> Graph:
    """Return what changed, as the findings report it, with what is at most ``hops`` edges away.

    Of modules with the same changes, whose paths differ in numbers alone, the first is drawn. Its ``ext["times"]`` is
    the number of these modules, and what took from one of the others takes from it. A module that came or went as a
    whole, with more than one node, is one node with the text of its finding. ``with_explained`` adds the nodes of
    which a line at the top says everything.
    """
    with paused_gc():
        return _Drawing(diff, united, with_explained=with_explained).graph(hops)


class _Whole(NamedTuple):
    """A module that came or went, which stands for those of the paths."""

    finding: Finding
    paths: Sequence[str]


class _Drawing:
    def __init__(self, diff: Diff, united: United, *, with_explained: bool) -> None:
        self._united = united
        self._union = united.drawn.graph
        self._shown: dict[str, int] = {}
        """By node that is drawn as changed for how many it stands."""
        self._instead: dict[str, str] = {}
        """By node that is not drawn the one that stands for it."""
        self._whole: dict[str, _Whole] = {}
        """By place of a module that came or went what it is, and by node below that place."""
        self._places: dict[str, str] = {}
        changes = told_changes(diff)
        of_each = [
            (finding, [[changes[at] for at in indices] for indices in finding.changes]) for finding in diff.findings
        ]
        for finding, found in of_each:
            if finding.kind in {"same", "reads"}:
                self._show_alike(finding.subjects, found)
            elif finding.kind in {"module-added", "module-removed"}:
                for paths, alike in _alike(finding.subjects, found):
                    # A tensor and what takes its gradient are one.
                    nodes = dict.fromkeys(self._show_places(alike))
                    if len(nodes) > 1:
                        self._fold(_Whole(finding, paths), nodes)
        for finding, found in of_each:
            if finding.kind in {"cut-added", "cut-removed"}:
                cuts, nodes_of_cuts = found
                self._show_each([*nodes_of_cuts, *cuts])
        for finding, found in of_each if with_explained else ():
            if finding.kind in _EXPLAINING:
                self._show_each(chain.from_iterable(found))

    def graph(self, hops: int) -> Graph:
        """Return the part of the union."""
        kept = near(self._union, self._shown, hops, self._instead)
        part = within(self._with_standing(kept), kept)
        counted = {key: self._counted(node) for key, node in part.nodes.items()}
        return self._folded(replace(part, nodes=counted))

    def _show_alike(self, paths: Sequence[str], changes: Sequence[Sequence[Change]]) -> None:
        for _, alike in _alike(paths, changes):
            self._show_places(alike)

    def _show_places(self, changes: Sequence[Sequence[Change]]) -> list[str]:
        return [found for same in zip(*changes, strict=True) if (found := self._show(same))]

    def _show_each(self, changes: Iterable[Change]) -> None:
        """Draw changes that the text reports in one line, equal ones of several modules once."""
        together: dict[tuple[RelativeChanges, str], list[Change]] = {}
        for change in changes:
            node = self._united.drawn_node(change)
            # A parameter that was cut off may lie in a module that is gone.
            if node and node not in self._instead and node not in self._shown:
                scope = self._union.nodes[node].scope
                together.setdefault((made_relative([change], scope), without_numbers(scope)), []).append(change)
        for same in together.values():
            self._show(same)

    def _show(self, same: Sequence[Change]) -> str:
        """Draw the first of some equal changes, and return its node if one is drawn."""
        first, *others = map(self._united.drawn_node, same)
        if not first or not status(self._union.nodes[first]):
            return ""
        self._shown[first] = len(same)
        self._instead.update(dict.fromkeys(filter(None, others), first))
        return first

    def _fold(self, whole: _Whole, nodes: Iterable[str]) -> None:
        path = whole.paths[0]
        place = path if whole.finding.kind == "module-added" else self._united.path(path)
        self._whole[place] = whole
        self._places.update(dict.fromkeys(nodes, place))

    def _with_standing(self, kept: Iterable[str]) -> Graph:
        """Return the union in which each kept node takes from what is drawn, if that stands before it."""
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
    """Return a folded module with the text of its finding; one of several parts has its own counts."""
    details, ext = whole.finding.details, node.ext
    if len(whole.paths) > 1:
        ext = {**ext, TIMES: len(whole.paths)}
    if part is None:
        counts = (details["nodes"], details["elements"], details["saved"][0])
        node = replace(node, attrs=dict(zip(("nodes", "parameters", "saved_bytes"), map(bounded, counts), strict=True)))
    return replace(node, names=(part_name(ranges(whole.paths), part or 1),), native=details["class"], ext=ext)


def _alike(
    paths: Sequence[str], changes: Sequence[Sequence[Change]]
) -> Iterable[tuple[list[str], list[Sequence[Change]]]]:
    """Return modules whose paths differ in numbers alone together, with the changes of each."""
    found: dict[str, tuple[list[str], list[Sequence[Change]]]] = {}
    for path, each in zip(paths, changes, strict=True):
        alike = found.setdefault(without_numbers(path), ([], []))
        alike[0].append(path)
        alike[1].append(each)
    return found.values()
