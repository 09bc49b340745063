"""What the rules read: a diff, its graphs, and where in the model each change stands."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.changes import CAME, Size
from gradir.diffs.field_changes import names_field
from gradir.diffs.sequences import matched
from gradir.ir import Graph, Scope
from gradir.ir.edges import sources
from gradir.ir.module_tree import OUTSIDE, ModuleTree
from gradir.ir.saved import unknown_slots
from gradir.ir.totals import elements
from gradir.review.common_change import CommonChange, common_change
from gradir.review.wording import named_changes
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change, Diff, FieldChange
    from gradir.ir import Node
    from gradir.vocabulary import Vocabulary


class ChangedModule(NamedTuple):
    """A module: its path in the second graph, or in the first where only that has it."""

    path: str
    gone: bool = False


class ModuleOrder:
    """The module that each change belongs to, in the order of the module table of the second graph.

    Modules that are gone stand where they stood, and modules that no graph knows come last.
    """

    def __init__(self, diff: Diff, trees: tuple[ModuleTree, ModuleTree]) -> None:
        self._gone = {change.id for change in diff.changes if (change.subject, change.kind) == ("scope", "removed")}
        self._gone.update(growth.path for growth in diff.modules if growth.gone)
        self._now = {growth.was: growth.path for growth in diff.modules if growth.was}
        before, after = (tree.scopes for tree in trees)
        # Twice may be said to be at one path where the diff is none of these graphs.
        there = (
            {self._before(scope.path): scope for scope in before},
            {ChangedModule(scope.path): scope for scope in after},
        )
        self._order = {module: at for at, (module, _, _) in enumerate(matched(*there))}

    def of(self, change: Change) -> ChangedModule:
        """Return the module that a change belongs to."""
        return self.of_path(change.scope, added=change.kind != "removed")

    def of_path(self, path: str, *, added: bool) -> ChangedModule:
        """Return the module at a path of the second graph, or of the first."""
        return ChangedModule(path) if added else self._before(path)

    def position(self, module: ChangedModule | WholeModule) -> int:
        """Return a number that grows in the order of the model."""
        if isinstance(module, WholeModule):
            module = self.of_path(module.path, added=module.added)
        return self._order.setdefault(module, len(self._order))

    def sections(self, changes: Sequence[Change], indices: Iterable[int]) -> list[tuple[ChangedModule, list[int]]]:
        """Return the indices of some of the changes by module, in the order of the model."""
        found: dict[ChangedModule, list[int]] = {}
        for at in indices:
            found.setdefault(self.of(changes[at]), []).append(at)
        return sorted(found.items(), key=lambda section: self.position(section[0]))

    def _before(self, path: str) -> ChangedModule:
        return ChangedModule(path, gone=True) if path in self._gone else ChangedModule(self._now.get(path, path))


def module_tree(graph: Graph) -> ModuleTree:
    """Return the modules of a graph, with those that only its nodes name."""
    unlisted = dict.fromkeys(node.scope for node in graph.nodes.values() if node.scope not in graph.scopes)
    return ModuleTree([*graph.scopes.values(), *map(Scope, unlisted)])


_INDEX: Final = re.compile(r"[0-9]+")
_ANY: Final = "*"


class Renamed:
    """Looks up paths of the second graph among the modules that a diff says were renamed.

    >>> from gradir.diffs.changes import Change
    >>> renamed = Renamed([Change("renamed", "module", "layers.*.ffn", was="h.*.mlp")])
    >>> renamed.before("layers.3.ffn.act"), renamed.before("layers.3.attn")
    ('h.3.mlp.act', 'layers.3.attn')
    """

    def __init__(self, changes: Iterable[Change]) -> None:
        self._was: dict[str, tuple[str, str]] = {}
        for change in changes:
            was, now = _components(change.was), _components(change.id)
            # Of two modules that became one, none is what all were called.
            if (change.subject, change.kind) == ("module", "renamed") and was.count(_ANY) == now.count(_ANY):
                self._was.setdefault(_any_index(now) if _ANY in now else change.id, (change.id, change.was))
        self._tree = ModuleTree(map(Scope, self._was))

    def before(self, path: str) -> str:
        """Return the path that the names of a module had, or the path itself."""
        parts = _components(path)
        # One that was renamed alone is there by its own path.
        row = self._tree.place(path)
        if row == OUTSIDE:
            row = self._tree.place(_any_index(parts))
        if row == OUTSIDE:
            return path
        now, before = map(_components, self._was[self._tree.scopes[row].path])
        own = parts[: len(now)]
        if any(mark not in {_ANY, part} for mark, part in zip(now, own, strict=True)):
            return path
        indices = (part for mark, part in zip(now, own, strict=True) if mark == _ANY)
        was = (next(indices) if part == _ANY else part for part in before)
        return ".".join([*was, *parts[len(now) :]])


def _any_index(parts: Sequence[str]) -> str:
    return ".".join([_ANY if _INDEX.fullmatch(part) else part for part in parts])


def _components(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


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

    def __init__(self, diff: Diff, graphs: tuple[Graph, Graph], trees: tuple[ModuleTree, ModuleTree]) -> None:
        self._graphs, self._trees = graphs, trees
        self._saved: Counter[WholeModule] = Counter()
        self._tops: list[list[WholeModule | None]] = [[], []]
        for added in (False, True):
            grown = list(_grown(diff, added=added))
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

    def at(self, path: str, *, added: bool) -> WholeModule | None:
        """Return the topmost module that came or went at or above a path of the second graph, or of the first."""
        row = self._trees[added].place(path)
        return None if row == OUTSIDE else self._tops[added][row]

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
        graph, tree, tops = self._graphs[added], self._trees[added], self._tops[added]
        mine = [change for change in diff.changes if change.kind == ("added" if added else "removed")]
        if not mine:
            tops += [None] * len(tree.scopes)
            return
        own = {change.id for change in mine if change.subject == "scope"}
        changed = Counter(change.scope for change in mine if change.subject == "node")
        nodes = Counter(node.scope for node in graph.nodes.values())
        counts = [
            _Count(
                nodes[path],
                changed[path],
                nodes[path] if path in own else 0,
                path in graph.scopes and path not in own,
                bool(nodes[path]) and sizes.get(path, (1, 0)) != (0, 0),
            )
            for path in (scope.path for scope in tree.scopes)
        ]
        # A module stands behind the one that it lies in.
        for row in range(len(counts) - 1, -1, -1):
            if tree.parents[row] != OUTSIDE:
                counts[tree.parents[row]] = _Count(*map(add, counts[tree.parents[row]], counts[row]))
        for scope, above, count in zip(tree.scopes, tree.parents, counts, strict=True):
            found = tops[above] if above != OUTSIDE else None
            is_itself = scope.path in own and not count.old
            if found is None and scope.path and count.is_whole(itself=is_itself):
                found = WholeModule(added, scope.path, is_itself)
            tops.append(found)


class _Count(NamedTuple):
    """Nodes at and below a module: all, those that are changes, those in modules that are changes themselves.

    ``old`` counts listed modules that are no change, ``busy`` those with operations or parameters on the other side.
    """

    nodes: int
    changed: int
    in_new: int
    old: int
    busy: int

    def is_whole(self, *, itself: bool) -> bool:
        if self.nodes != self.changed:
            return False
        return itself or (not self.busy and self.nodes >= _FEWEST_NODES and self.in_new < self.nodes)


def _grown(diff: Diff, *, added: bool) -> Iterator[tuple[str, Size, int]]:
    """Yield by path in one graph the size in the other, and the bytes that the module saves beyond those there."""
    for growth in diff.modules:
        if added and not growth.gone:
            yield growth.path, growth.before, growth.after.saved_bytes - growth.before.saved_bytes
        elif not added:
            more = growth.before.saved_bytes - growth.after.saved_bytes
            yield growth.was or growth.path, growth.after, more


class Places(NamedTuple):
    """Where in the model the changes of a diff stand."""

    trees: tuple[ModuleTree, ModuleTree]
    order: ModuleOrder
    wholes: WholeModules
    renamed: Renamed

    @classmethod
    def of(cls, diff: Diff) -> Places:
        """Return the places in the graphs of a diff; a diff that was read knows no graph."""
        sides = diff.sides
        graphs = (sides.before, sides.after) if sides else (Graph.of([]), Graph.of([]))
        trees = module_tree(graphs[0]), module_tree(graphs[1])
        return cls(trees, ModuleOrder(diff, trees), WholeModules(diff, graphs, trees), Renamed(diff.changes))


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
    places: Places
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
        common = common_change(diff.changes, graphs, matched, words)
        changes = named_changes(diff)
        return cls(diff, graphs, matched, changes, words, Places.of(diff), common, range(len(changes)))

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


def serving(graph: Graph, is_one: Callable[[Node], bool]) -> set[str]:
    """Return some of the parameters of a graph, and the nodes that serve the gradients of these alone."""
    found: set[str] = set()
    for node in graph.nodes.values():
        feeding = sources(node)
        if is_one(node) if node.role == "parameter" else bool(feeding) and found.issuperset(feeding):
            found.add(node.id)
    return found
