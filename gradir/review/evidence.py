"""What the rules read: a diff, its graphs, and where in the model each change stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradir.ir.edges import sources
from gradir.review.of_all import WholeChange, whole_change
from gradir.review.places import Places
from gradir.review.wording import told_changes
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gradir.diffs.changes import Change, Diff
    from gradir.ir import Graph, Node
    from gradir.vocabulary import Vocabulary


@dataclass(frozen=True)
class Evidence:
    """A diff with all that several rules ask of it; ``changes`` are those of the diff, with numbers by their names."""

    diff: Diff
    graphs: tuple[Graph, Graph]
    matched: Mapping[str, str]
    """The nodes of the first graph that are in the second, with their ids there."""

    changes: tuple[Change, ...]
    words: Vocabulary
    places: Places
    of_all: WholeChange
    """What changed for nearly all operations."""

    left: Collection[int]
    """The indices of the changes that no rule before has explained."""

    @classmethod
    def of(cls, diff: Diff) -> Evidence:
        """Return the evidence in a diff that knows its graphs."""
        sides = diff.sides
        assert sides is not None  # noqa: S101 (the caller has looked)
        graphs = sides.before, sides.after
        # Equal graphs are not matched, since nobody has to know more of them.
        is_known = not diff and not (sides.in_shared_words and diff.script)
        matched = {name: name for name in sides.before.nodes} if is_known else sides.names().matched
        words = vocabulary_of(*graphs)
        of_all = whole_change(diff.changes, graphs, matched, words)
        changes = told_changes(diff)
        return cls(diff, graphs, matched, changes, words, Places.of(diff), of_all, range(len(changes)))


def serving(graph: Graph, is_one: Callable[[Node], bool]) -> set[str]:
    """Return some of the parameters of a graph, and the nodes that serve the gradients of these alone."""
    found: set[str] = set()
    for node in graph.nodes.values():
        feeding = sources(node)
        if is_one(node) if node.role == "parameter" else bool(feeding) and found.issuperset(feeding):
            found.add(node.id)
    return found
