"""What the rules read: a diff, its graphs, and where in the model each change stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.changes import CAME
from gradir.diffs.field_changes import names_field
from gradir.diffs.modules import Outline
from gradir.ir import Graph
from gradir.ir.edges import sources
from gradir.ir.module_tree import OUTSIDE, ModuleTree
from gradir.ir.saved import unknown_slots
from gradir.ir.totals import Size, elements
from gradir.review.common_change import CommonChange, find_common_change
from gradir.review.wording import name_values
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change, Diff, FieldChange
    from gradir.diffs.modules import ChangedModule
    from gradir.ir import Node
    from gradir.vocabulary import Vocabulary


def find_outline(diff: Diff) -> Outline:
    """Return the modules of a diff; of one that was read, those that its changes name."""
    if diff and diff.sides is not None:
        return diff.sides.names().outline
    removed = [change for change in diff.changes if change.kind == "removed"]
    paths = {change.scope: change.scope for change in removed}
    paths.update((growth.was or growth.path, growth.path) for growth in diff.modules)
    gone = {change.id for change in removed if change.subject == "scope"}
    gone.update(growth.path for growth in diff.modules if growth.gone)
    return Outline((ModuleTree([]), ModuleTree([])), {was: now for was, now in paths.items() if was not in gone})


# One node that came or went in a module that is still there is reported as a node.
_FEWEST_NODES: Final = 2


class WholeModule(NamedTuple):
    """A module of one side, of which all changes are of one kind.

    ``itself`` says that the module came or went too; else it is there on both sides, and without a node on the other.
    """

    added: bool
    path: str
    itself: bool


class Contents(NamedTuple):
    """How much is in a module that came or went; ``modules`` are those in it, ``unknown`` slots of unknown size."""

    nodes: int
    modules: int
    parameters: int
    elements: int
    saved_bytes: int
    unknown: int


class WholeModules:
    """Finds the topmost modules that came or went as a whole, and what belongs to them."""

    def __init__(self, diff: Diff) -> None:
        self.outline = find_outline(diff)
        self._graphs = (diff.sides.before, diff.sides.after) if diff.sides else (Graph.of([]), Graph.of([]))
        self._saved: Counter[WholeModule] = Counter()
        self._tops: list[list[WholeModule | None]] = [[], []]
        for added in (False, True):
            grown = list(_list_growth(diff, added=added))
            self._find_tops(diff, {path: (other.nodes, other.parameters) for path, other, _ in grown}, added=added)
            for path, _, size in grown:
                top = self.at(path, added=added)
                if top is not None:
                    self._saved[top] += size

    def of(self, change: Change) -> WholeModule | None:
        """Return the module that came or went with a node or a module."""
        if change.subject in {"node", "scope"} and change.kind in CAME:
            return self.at(change.scope, added=change.kind == "added")
        return None

    def row(self, change: Change) -> ChangedModule | WholeModule:
        """Return the module that a change belongs to, or the one that came or went with it."""
        return self.of(change) or self.outline.module(change.scope, added=change.kind != "removed")

    def at(self, path: str, *, added: bool) -> WholeModule | None:
        """Return the topmost module that came or went at or above a path of the second graph, or of the first."""
        row = self.outline.trees[added].place(path)
        return None if row == OUTSIDE else self._tops[added][row]

    def position(self, module: ChangedModule | WholeModule) -> int:
        """Return a number that grows in the order of the model."""
        if isinstance(module, WholeModule):
            module = self.outline.module(module.path, added=module.added)
        return self.outline.position(module)

    def contents(self, whole: WholeModule, changes: Sequence[Change]) -> Contents:
        """Return how much is in a module, given its changes."""
        nodes = [self._graphs[whole.added].nodes[change.id] for change in changes if change.subject == "node"]
        modules = sum(change.subject == "scope" and change.id != whole.path for change in changes)
        sizes = [elements(node) for node in nodes if node.role == "parameter"]
        return Contents(len(nodes), modules, len(sizes), sum(sizes), self._saved[whole], unknown_slots(nodes))

    def class_name(self, whole: WholeModule) -> str:
        """Return the class of a module, if it is known."""
        scope = self._graphs[whole.added].scopes.get(whole.path)
        return "" if scope is None else scope.class_name

    def _find_tops(self, diff: Diff, sizes: Mapping[str, tuple[int, int]], *, added: bool) -> None:
        """Find for each module of one graph the topmost whole one that it lies in; ``sizes`` are those of the other."""
        graph, tree, tops = self._graphs[added], self.outline.trees[added], self._tops[added]
        mine = [change for change in diff.changes if change.kind == ("added" if added else "removed")]
        if not mine:
            tops += [None] * len(tree.scopes)
            return
        own = {change.id for change in mine if change.subject == "scope"}
        changed = Counter(change.scope for change in mine if change.subject == "node")
        nodes = Counter(node.scope for node in graph.nodes.values())

        def below(count: Callable[[str], int]) -> list[int]:
            return tree.with_below([count(scope.path) for scope in tree.scopes])

        counts = zip(
            below(lambda path: nodes[path]),
            below(lambda path: changed[path]),
            # Nodes in modules that are changes themselves, and listed modules that are no change.
            below(lambda path: nodes[path] if path in own else 0),
            below(lambda path: path in graph.scopes and path not in own),
            # Modules with operations or parameters on the other side.
            below(lambda path: bool(nodes[path]) and sizes.get(path, (1, 0)) != (0, 0)),
            strict=True,
        )
        for scope, above, (every, new, in_new, old, busy) in zip(tree.scopes, tree.parents, counts, strict=True):
            found = tops[above] if above != OUTSIDE else None
            is_itself = scope.path in own and not old
            # A path that only lies above modules is one where no table lists the modules.
            is_module = bool(nodes[scope.path]) or scope.path in graph.scopes or not graph.scopes
            is_emptied = is_module and not busy and every >= _FEWEST_NODES and in_new < every
            if found is None and scope.path and every == new and (is_itself or is_emptied):
                found = WholeModule(added, scope.path, is_itself)
            tops.append(found)


def _list_growth(diff: Diff, *, added: bool) -> Iterator[tuple[str, Size, int]]:
    """Yield by path in one graph the size in the other, and the bytes that the module saves beyond those there."""
    for growth in diff.modules:
        if added and not growth.gone:
            yield growth.path, growth.before, growth.after.saved_bytes - growth.before.saved_bytes
        elif not added:
            more = growth.before.saved_bytes - growth.after.saved_bytes
            yield growth.was or growth.path, growth.after, more


_OF_TENSORS: Final = frozenset({"shape", "dtype", "device", "layout", "bytes"})
# Keys in the path of a whole output or saved tensor.
_WHOLE_TENSOR: Final = 2


@dataclass(frozen=True)
class Evidence:
    """A diff with all that several rules ask of it; ``changes`` are those of the diff, with numbers by their names."""

    diff: Diff
    graphs: tuple[Graph, Graph]
    matched: Mapping[str, str]
    """The nodes of the first graph that are in the second, with their ids there."""

    changes: tuple[Change, ...]
    words: Vocabulary
    wholes: WholeModules
    common: CommonChange
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
        common = find_common_change(diff.changes, graphs, matched, words)
        changes = name_values(diff)
        return cls(diff, graphs, matched, changes, words, WholeModules(diff), common, range(len(changes)))

    @cached_property
    def _changed(self) -> frozenset[str]:
        return frozenset(change.id for change in self.changes if change.subject == "node")

    def reads_a_change(self, change: Change) -> bool:
        """Return whether a node of the second graph reads from one that is another one or changed."""
        node = self.graphs[1].nodes.get(change.id)
        return node is not None and not self._changed.isdisjoint(sources(node))

    def is_of_tensors(self, field: FieldChange) -> bool:
        """Return whether a field of a node is a size, dtype or device of a tensor, which follows from the inputs."""
        if field.path[0] in {"out", "saved"} and len(field.path) > _WHOLE_TENSOR:
            return field.path[-1] in _OF_TENSORS
        return any(names_field(pattern, field.name) for pattern in self.words.sizes)


def find_serving(graph: Graph, is_one: Callable[[Node], bool]) -> set[str]:
    """Return some of the parameters of a graph, and the nodes that serve the gradients of these alone."""
    found: set[str] = set()
    for node in graph.nodes.values():
        feeding = sources(node)
        if is_one(node) if node.role == "parameter" else bool(feeding) and found.issuperset(feeding):
            found.add(node.id)
    return found
