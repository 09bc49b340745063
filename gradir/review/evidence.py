"""The input of the rules: a diff, its graphs, and the module of each change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec import UNSET

from gradir.diffs.changes import ADDED_OR_REMOVED
from gradir.diffs.field_changes import names_any
from gradir.diffs.modules import Outline
from gradir.ir import Graph, Ref
from gradir.ir.edges import sources
from gradir.ir.ids import split_last
from gradir.ir.module_tree import OUTSIDE, ModuleTree
from gradir.ir.saved import unknown_slots
from gradir.ir.totals import elements
from gradir.review.common_change import CommonChange, find_common_change
from gradir.review.relative_changes import names_a_record
from gradir.review.wording import name_values
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gradir.diffs.changes import Change, Diff, FieldChange
    from gradir.diffs.modules import ChangedModule
    from gradir.ir import Node
    from gradir.vocabulary import Vocabulary


def find_outline(diff: Diff) -> Outline:
    """Return the modules of a diff, or those that its changes name if it was read from a file."""
    if diff and diff.sides is not None:
        return diff.sides.names().outline
    removed = [change for change in diff.changes if change.kind == "removed"]
    paths = {change.scope: change.scope for change in removed}
    paths.update((growth.old_path or growth.path, growth.path) for growth in diff.modules)
    without_pair = {change.id for change in removed if change.subject == "scope"}
    without_pair.update(growth.path for growth in diff.modules if growth.gone)
    matched = {before: after for before, after in paths.items() if before not in without_pair}
    return Outline((ModuleTree([]), ModuleTree([])), matched)


# Reports list a single added or removed node as a node if its module is in both graphs.
_FEWEST_NODES: Final = 2


class WholeModule(NamedTuple):
    """A module that was added or removed with all its nodes.

    ``itself`` is false if both graphs have the module, and one has no node in it.
    """

    added: bool
    path: str
    itself: bool


class WholeModules:
    """Find the topmost added and removed modules, and their contents."""

    def __init__(self, diff: Diff) -> None:
        self.outline = find_outline(diff)
        self._graphs = (diff.sides.before, diff.sides.after) if diff.sides else (Graph.of([]), Graph.of([]))
        self.saved_bytes: Counter[WholeModule] = Counter()
        self._tops: list[list[WholeModule | None]] = [[], []]
        for added in (False, True):
            growths = [
                (growth.path, growth.after, growth.before)
                if added
                else (growth.old_path or growth.path, growth.before, growth.after)
                for growth in diff.modules
                if not (added and growth.gone)
            ]
            self._find_tops(diff, {path: (other.nodes, other.parameters) for path, _, other in growths}, added=added)
            for path, own, other in growths:
                top = self.find_top(path, added=added)
                if top is not None:
                    self.saved_bytes[top] += own.saved_bytes - other.saved_bytes

    def find_top_of(self, change: Change) -> WholeModule | None:
        """Return the topmost module that was added or removed with a node or module."""
        if change.subject in {"node", "scope"} and change.kind in ADDED_OR_REMOVED:
            return self.find_top(change.scope, added=change.kind == "added")
        return None

    def find_row(self, change: Change) -> ChangedModule | WholeModule:
        """Return the whole module that was added or removed with a change, or else the module of the change."""
        return self.find_top_of(change) or self.outline.module(change.scope, added=change.kind != "removed")

    def find_top(self, path: str, *, added: bool) -> WholeModule | None:
        """Return the topmost added module at or above a path of the second graph, or removed one of the first."""
        row = self.outline.trees[added].place(path)
        return None if row == OUTSIDE else self._tops[added][row]

    def position(self, module: ChangedModule | WholeModule) -> int:
        """Return a number that grows in the order of the model."""
        if isinstance(module, WholeModule):
            module = self.outline.module(module.path, added=module.added)
        return self.outline.position(module)

    def describe(self, whole: WholeModule, changes: Sequence[Change]) -> dict[str, Any]:
        """Return the class of a module and counts of its changes, with submodules and slots of unknown size."""
        graph = self._graphs[whole.added]
        nodes = [graph.nodes[change.id] for change in changes if change.subject == "node"]
        sizes = [elements(node) for node in nodes if node.role == "parameter"]
        return {
            "itself": whole.itself,
            "class": graph.scopes[whole.path].class_name if whole.path in graph.scopes else "",
            "nodes": len(nodes),
            "modules": sum(change.subject == "scope" and change.id != whole.path for change in changes),
            "parameters": len(sizes),
            "elements": sum(sizes),
            "unknown": unknown_slots(nodes),
        }

    def _find_tops(self, diff: Diff, sizes: Mapping[str, tuple[int, int]], *, added: bool) -> None:
        """Find the topmost whole module around each module of one graph; ``sizes`` are those in the other graph."""
        graph, tree, tops = self._graphs[added], self.outline.trees[added], self._tops[added]
        changes = [change for change in diff.changes if change.kind == ("added" if added else "removed")]
        if not changes:
            tops += [None] * len(tree.scopes)
            return
        own = {change.id for change in changes if change.subject == "scope"}
        changed = Counter(change.scope for change in changes if change.subject == "node")
        nodes = Counter(node.scope for node in graph.nodes.values())

        def sum_below(count: Callable[[str], int]) -> list[int]:
            return tree.with_below([count(scope.path) for scope in tree.scopes])

        counts = zip(
            sum_below(lambda path: nodes[path]),
            sum_below(lambda path: changed[path]),
            # Nodes in modules that were added or removed, and listed modules that were not.
            sum_below(lambda path: nodes[path] if path in own else 0),
            sum_below(lambda path: path in graph.scopes and path not in own),
            # Modules with operations or parameters in the other graph.
            sum_below(lambda path: bool(nodes[path]) and sizes.get(path, (1, 0)) != (0, 0)),
            strict=True,
        )
        for scope, above, (every, new, in_new, old, busy) in zip(tree.scopes, tree.parents, counts, strict=True):
            found = tops[above] if above != OUTSIDE else None
            is_itself = scope.path in own and not old
            # Without a table of modules, a path above nodes counts as a module.
            is_module = bool(nodes[scope.path]) or scope.path in graph.scopes or not graph.scopes
            is_emptied = is_module and not busy and every >= _FEWEST_NODES and in_new < every
            if found is None and scope.path and every == new and (is_itself or is_emptied):
                found = WholeModule(added, scope.path, is_itself)
            tops.append(found)


K = TypeVar("K")
_NO_EDGE: Final = (None, UNSET)
_OF_TENSORS: Final = frozenset({"shape", "dtype", "device", "layout", "bytes"})
# Keys in the path of a whole output or saved tensor.
_WHOLE_TENSOR: Final = 2


@dataclass(frozen=True)
class Evidence:
    """A diff with facts that several rules need; in ``changes``, known numbers have names.

    ``matched`` has the ids of matched nodes, from the first graph to the second. ``common`` is the change of nearly all
    operations, and ``left`` has the indices of the changes that no earlier rule has explained.
    """

    diff: Diff
    graphs: tuple[Graph, Graph]
    matched: Mapping[str, str]
    changes: tuple[Change, ...]
    vocabulary: Vocabulary
    wholes: WholeModules
    common: CommonChange
    left: Collection[int]

    @classmethod
    def of(cls, diff: Diff) -> Evidence:
        """Return the evidence in a diff with graphs."""
        sides = diff.sides
        assert sides is not None  # noqa: S101 (checked by the caller)
        graphs = sides.before, sides.after
        # Equal graphs need no matching.
        are_equal = not diff and not (sides.in_shared_words and diff.script)
        matched = {name: name for name in sides.before.nodes} if are_equal else sides.names().matched
        vocabulary = vocabulary_of(*graphs)
        common = find_common_change(diff.changes, graphs, matched, vocabulary)
        changes = name_values(diff)
        return cls(diff, graphs, matched, changes, vocabulary, WholeModules(diff), common, range(len(changes)))

    @cached_property
    def _changed(self) -> frozenset[str]:
        return frozenset(change.id for change in self.changes if change.subject == "node")

    @cached_property
    def instead(self) -> Mapping[str, set[str]]:
        """The nodes that an input reads in the second graph, by the node that it read in the first."""
        found: dict[str, set[str]] = {}
        for change in self.changes:
            for field in change.fields:
                if isinstance(field.before, Ref) and isinstance(field.after, Ref):
                    found.setdefault(field.before.id, set()).add(field.after.id)
        return found

    def reads_a_change(self, change: Change) -> bool:
        """Return whether a node of the second graph reads from a changed or added one."""
        node = self.graphs[1].nodes.get(change.id)
        return node is not None and not self._changed.isdisjoint(sources(node))

    def is_of_tensors(self, field: FieldChange) -> bool:
        """Return whether a field is a size, dtype or device of a tensor, which follows from the inputs."""
        if field.path[0] in {"out", "saved"} and len(field.path) > _WHOLE_TENSOR:
            return field.path[-1] in _OF_TENSORS
        return names_any(self.vocabulary.sizes, field.name)


def find_read_owner(change: Change, nodes: Mapping[tuple[bool, str], K]) -> K | None:
    """Return the only owner of nodes from which all changed fields read, in either graph, or ``None``."""
    owners = set()
    for field in change.fields:
        ends = [value for value in (field.before, field.after) if value not in _NO_EDGE]
        # A storage may become the saved tensor's own.
        if not names_a_record(field.path) or len(ends) + (field.path[-1] == "storage") < len(_NO_EDGE):
            return None
        owners.add(_find_owner(field.after, nodes, added=True) or _find_owner(field.before, nodes, added=False))
    return owners.pop() if len(owners) == 1 else None


def _find_owner(value: object, nodes: Mapping[tuple[bool, str], K], *, added: bool) -> K | None:
    """Return the owner of the node that a value names: a reference, an id, or ``id.slot`` for a storage."""
    name = value.id if isinstance(value, Ref) else str(value)
    return nodes.get((added, name)) or nodes.get((added, split_last(name)[0]))


def find_serving(graph: Graph, is_chosen: Callable[[Node], bool]) -> set[str]:
    """Return the chosen parameters of a graph, and the nodes that only depend on these."""
    found: set[str] = set()
    for node in graph.nodes.values():
        feeding = sources(node)
        if is_chosen(node) if node.role == "parameter" else bool(feeding) and found.issuperset(feeding):
            found.add(node.id)
    return found
