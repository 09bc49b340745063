"""Two graphs compared: what is derived from both, made once and only when somebody asks."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gradir.diffs import compare
from gradir.diffs import matching as matches
from gradir.diffs.correspondence import Correspondence
from gradir.diffs.ignoring import across, check_names, ignoring, normalized
from gradir.gcpause import paused_gc
from gradir.ir import Graph
from gradir.ir.saved import unknown_slots
from gradir.progress import stage
from gradir.review import changed_modules, frozen_parameters, headline
from gradir.review import outline as outlines
from gradir.review.lost_inputs import LostInput, gained_inputs, lost_inputs
from gradir.review.unowned_parameters import Unowned, unowned_parameters
from gradir.review.wording import with_names
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradir.diffs.changes import Change, Diff
    from gradir.ir import Cut
    from gradir.ir.module_tree import ModuleTree
    from gradir.review.drawn import DrawnUnion
    from gradir.review.whole_changes import WholeChange

__all__ = ["Comparison"]

_FEWEST: Final = 20
"""Two graphs of fewer nodes are read as they are."""

_IN_COMMON: Final = 10
"""Of two models, less than one node in so many is the same."""

_OTHER: Final = {("op",), ("role",)}
_HOPS: Final = 1
_LINK: Final = "comparison"


class Comparison:
    """Two graphs, ``before`` and ``after``, and all that is derived from both.

    Each part is made when it is first asked for, and kept. ``ignore``, ``normalize`` and ``vocabulary`` are those of
    `gradir.diff`; with the last, both graphs are as `gradir.passes.shared_words` tells them.

    Raises:
        GradirError: a field to ignore that there is not.

    >>> from gradir.ir import Node
    >>> found = Comparison(Graph.of([Node("x")]), Graph.of([Node("y", op="exp")]))
    >>> [change.kind for change in found.diff.changes], len(found.union.nodes)
    (['removed', 'added'], 2)
    """

    before: Graph
    after: Graph
    has_graphs: bool
    """Whether the graphs are known; without them, as for a diff in a file, both are empty."""

    in_shared_words: bool
    """Whether both graphs were told in the words that all frameworks share."""

    def __init__(
        self,
        before: Graph,
        after: Graph,
        *,
        ignore: Sequence[str] = (),
        normalize: bool = False,
        vocabulary: bool = False,
    ) -> None:
        check_names(ignore)
        self.before, self.after = _shared(before, after) if vocabulary else (before, after)
        self.in_shared_words = vocabulary
        self.has_graphs = True
        self._ignore, self._normalize = ignore, normalize

    @classmethod
    def of(cls, diff: Diff, before: Graph | None = None, after: Graph | None = None) -> Comparison:
        """What is to be told of a diff that there is already, between these graphs or between ones not at hand."""
        made = cls(before or Graph.of([]), after or Graph.of([]))
        made.has_graphs = before is not None and after is not None
        made.__dict__["diff"] = diff
        return made

    @classmethod
    def behind(cls, diff: Diff) -> Comparison:
        """The comparison that made a diff, or one without graphs, where it was read from a file or changed since."""
        found: Comparison | None = diff.__dict__.get(_LINK)
        return found or cls.of(diff)

    def linked_diff(self) -> Diff:
        """The diff with the way back to this comparison, which is no part of its value."""
        # Not the diff that is kept here: the two would hold each other until the garbage collector comes by.
        diff = replace(self.diff)
        diff.__dict__[_LINK] = self
        return diff

    @property
    def graphs(self) -> tuple[Graph, Graph]:
        """Both graphs."""
        return self.before, self.after

    @cached_property
    def matching(self) -> matches.Matching:
        """Which node of the one graph is which of the other."""
        with stage("matching the nodes"):
            return matches.match(self.before, self.after)

    @cached_property
    def correspondence(self) -> Correspondence:
        """The records of the first graph in the words of the second."""
        pairs = self.matching
        with paused_gc():
            return Correspondence(self.before, self.after, pairs)

    @cached_property
    def diff(self) -> Diff:
        """What changed, without what is ignored."""
        with stage("comparing the nodes"):
            found = compare.compare(self.before, self.after, lambda: self.correspondence)
        if self.in_shared_words:
            found = across(found, self.before.nodes, self.after.nodes)
        if not (self._ignore or self._normalize):
            return found
        found = ignoring(found, self._ignore)
        return normalized(found, vocabulary_of(*self.graphs)) if self._normalize else found

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes of the diff, in which numbers that stand for something are known by that."""
        words = vocabulary_of(*self.graphs)
        return tuple([with_names(change, words) for change in self.diff.changes])

    @cached_property
    def trees(self) -> tuple[ModuleTree, ModuleTree]:
        """The modules of both graphs, with those that only their nodes name."""
        return changed_modules.module_tree(self.before), changed_modules.module_tree(self.after)

    @cached_property
    def unknown_slots(self) -> tuple[int, int]:
        """How many saved slots of each graph are of unknown size."""
        return unknown_slots(self.before.nodes.values()), unknown_slots(self.after.nodes.values())

    @cached_property
    def module_order(self) -> changed_modules.ModuleOrder:
        """Where in the model each change stands."""
        return changed_modules.ModuleOrder(self)

    @cached_property
    def whole_modules(self) -> changed_modules.WholeModules:
        """The modules that came or went with all that is in them."""
        return changed_modules.WholeModules(self)

    @cached_property
    def renamed(self) -> changed_modules.Renamed:
        """What modules were called before a module around them was renamed."""
        return changed_modules.Renamed(self.diff.changes)

    @cached_property
    def entering(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """What enters the entries of lists in both graphs."""
        return outlines.entering(self.before), outlines.entering(self.after)

    @cached_property
    def frozen(self) -> Mapping[str, Sequence[frozen_parameters.Frozen]]:
        """The modules of which parameters were ``frozen``, and those of which some were ``unfrozen``."""
        return dict(frozen_parameters.frozen_modules(self))

    @cached_property
    def lost_inputs(self) -> Sequence[LostInput]:
        """The input slots that gradient went through before, and goes through no more."""
        return tuple(lost_inputs(self))

    @cached_property
    def gained_inputs(self) -> Sequence[LostInput]:
        """The input slots that gradient newly goes through."""
        return tuple(gained_inputs(self))

    @cached_property
    def unowned(self) -> Unowned:
        """The parameters that the second graph uses, and that its model does not own any more, or never did."""
        return unowned_parameters(self)

    @cached_property
    def nodes_in_common(self) -> int:
        """How many nodes both graphs have, whatever else of them changed than what they do."""
        changes = [change for change in self.diff.changes if change.subject == "node"]
        others = sum(
            change.kind == "added" or any(field.path in _OTHER for field in change.fields if change.kind != "removed")
            for change in changes
        )
        return len(self.after.nodes) - others

    @property
    def are_two_models(self) -> bool:
        """Whether so little of both is in common that a list of changes says nothing."""
        fewest = min(len(graph.nodes) for graph in self.graphs)
        return bool(self.diff) and fewest >= _FEWEST and self.nodes_in_common * _IN_COMMON < fewest

    @cached_property
    def whole_change(self) -> WholeChange:
        """What changed for nearly all operations, and what follows from that alone."""
        from gradir.review.whole_changes import whole_change

        return whole_change(self)

    @cached_property
    def outline(self) -> outlines.Outline:
        """What a reader is told: what matters most first, each thing once."""
        with stage("grouping the changes"):
            return outlines.outline(self)

    @cached_property
    def notes(self) -> Sequence[str]:
        """What many changes come to, in one line each."""
        return tuple(headline.notes(self))

    @cached_property
    def union(self) -> Graph:
        """Both graphs in one, every node marked with what became of it."""
        from gradir.diffs.marked_union import marked_union

        return marked_union(self.before, self.after, self.diff, self.correspondence)

    @cached_property
    def drawn_union(self) -> DrawnUnion:
        """The same as pictures show it, and what stands for the nodes that are not in it."""
        from gradir.review.drawn import drawn_union

        return drawn_union(self.union)

    def node_in_union(self, change: Change) -> str:
        """The node of `union` that a change of a node or a cut is about; nothing where there is none."""
        if change.subject not in {"node", "cut"}:
            return ""
        # A cut that came is a node that went.
        is_gone = (change.kind == "removed") == (change.subject == "node")
        found = self.correspondence.union_ids.get(change.id, change.id) if is_gone else change.id
        return found if found in self.union.nodes else ""

    def drawn_node(self, change: Change) -> str:
        """The same in `drawn_union`."""
        found = self.node_in_union(change)
        return self.drawn_union.instead.get(found, found)

    def cut_in_union(self, change: Change) -> Cut | None:
        """The cut that came or went, with the nodes and the module of `union`; nothing of another change."""
        if change.subject != "cut" or change.kind not in {"added", "removed"}:
            return None
        is_gone = change.kind == "removed"
        cut = change.cut or self._cuts[is_gone].get((change.what, change.id))
        if cut is None or not is_gone:
            return cut
        at, into = (self.correspondence.union_ids.get(node, "") for node in (cut.at, cut.into))
        return replace(cut, at=at, into=into, scope=self.path_in_union(cut.scope))

    @cached_property
    def _cuts(self) -> tuple[Mapping[tuple[str, str], Cut], ...]:
        """The cuts of parameters of the second graph and of the first, by their kinds and first names."""
        return tuple(
            {(cut.kind, cut.names[0]): cut for cut in graph.cuts if cut.names and not cut.is_place}
            for graph in (self.after, self.before)
        )

    def path_in_union(self, path: str) -> str:
        """Where `union` has a module of the first graph."""
        return self.correspondence.union_paths.get(path, path)

    def changed_part(self, hops: int = _HOPS) -> Graph:
        """What changed, each node marked, with what is at most ``hops`` edges away, without gradient accumulators.

        >>> from gradir.ir import Node, Ref
        >>> a = Graph.of([Node("a"), Node("b", inputs=(Ref("a", 0),)), Node("c", inputs=(Ref("b", 0),))])
        >>> b = Graph.of([*list(a.nodes.values())[:2], Node("c", op="exp", inputs=(Ref("b", 0),))])
        >>> list(Comparison(a, b).changed_part().nodes)
        ['b', 'c']
        """
        from gradir.ir.marks import status
        from gradir.passes import around

        union = self.drawn_union.graph
        return around(union, [node.id for node in union.nodes.values() if status(node)], hops)

    def drawn_part(self, hops: int = _HOPS, *, with_explained: bool = True) -> Graph:
        """The same as the outline tells it, for a picture: equal changes once, and modules that came or went folded.

        ``with_explained`` are the nodes of which a line at the top says all there is to say.
        """
        from gradir.review.drawn import drawn_part

        return drawn_part(self, hops, with_explained=with_explained)


def _shared(before: Graph, after: Graph) -> tuple[Graph, Graph]:
    """Both graphs in shared words, with modules where both know which one ran an operation."""
    from gradir.passes.shared_words import in_shared_words, tells_modules

    with stage("translating operations"):
        with_modules = tells_modules(before) and tells_modules(after)
        told = [in_shared_words(graph, with_modules=with_modules) for graph in (before, after)]
    return told[0], told[1]
