"""Parameters that were frozen or unfrozen, and what follows from that alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.changes import Finding
from gradir.ir.edges import sources
from gradir.ir.totals import elements

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change
    from gradir.ir import Graph, Node, Scope
    from gradir.ir.module_tree import ModuleTree
    from gradir.review.evidence import Evidence


class _Size(NamedTuple):
    parameters: int
    elements: int


_NONE: Final = _Size(0, 0)


class _Frozen(NamedTuple):
    """A module of whose own parameters some require grad on one side alone: how many elements, and whether all.

    ``lost`` are the parameters that one graph has of it and the other has not. ``trained`` is its path in the graph
    where more of it is trained.
    """

    path: str
    elements: int
    whole: bool
    lost: _Size
    trained: str

    @property
    def proven(self) -> bool:
        """Whether what one graph lacks of its parameters is exactly what is not trained."""
        return self.lost.elements == self.elements


def frozen(evidence: Evidence) -> Iterator[Finding]:
    """The parameters that were frozen, and those that were unfrozen, with the changes that are no more than that.

    The tables of modules have to prove it: a module owns as many elements as before, and fewer of them require grad. Of
    a module with others in it that shows only where all of them did before and none does now, or the other way round.
    How much that is is said where the parameters that one graph has more of each module are exactly these elements.

    >>> from gradir.ir import Graph, Scope
    >>> from gradir.review.reviewing import reviewed
    >>> before, after = (Graph.of([], [Scope("fc", "Linear", own=6, total=6, trainable=count)]) for count in (6, 0))
    >>> [found.text for found in reviewed(before, after).findings]
    ['frozen: fc', 'fc']
    """
    modules = dict(_frozen_modules(evidence))
    explained = {word: _consequences(evidence, word, found) for word, found in modules.items()}
    rest = set(evidence.left).difference(*explained.values())
    if any(explained.values()) and all(_is_order(evidence.changes[at]) for at in rest):
        explained[next(iter(explained))] |= rest
    taken: set[int] = set()
    for word, found in modules.items():
        whole = _topmost([module.path for module in found if module.whole], evidence.trees[1])
        part = [module.path for module in found if not module.whole]
        count, size = (sum(sizes) for sizes in zip(*(module.lost for module in found), strict=True))
        figures = {"parameters": count, "elements": size} if all(module.proven for module in found) else {}
        indices = explained[word] - taken
        taken |= indices
        yield Finding(
            word,
            subjects=tuple(whole),
            changes=(tuple(sorted(indices)),) if indices else (),
            details={**({"part": part} if part else {}), **figures},
        )


def _is_order(change: Change) -> bool:
    return change.subject == "graph" and change.id in _ORDER


def _frozen_modules(evidence: Evidence) -> Iterator[tuple[str, list[_Frozen]]]:
    """The modules of whose own parameters some were ``frozen``, and those of whose some were ``unfrozen``."""
    matched = list(_changed_scopes(evidence))
    if not any(old.trainable != new.trainable for old, new in matched):
        return
    before, after = (_parameters(graph) for graph in evidence.graphs)
    for word, found in (
        ("frozen", [_frozen(old, new, before, after, new.path) for old, new in matched]),
        ("unfrozen", [_frozen(new, old, after, before, new.path) for old, new in matched]),
    ):
        modules = [module for module in found if module is not None]
        if modules:
            yield word, modules


def _changed_scopes(evidence: Evidence) -> Iterator[tuple[Scope, Scope]]:
    """Modules of both graphs that the diff says have changed."""
    before, after = (graph.scopes for graph in evidence.graphs)
    for change in evidence.changes:
        if change.subject == "scope" and change.kind not in {"added", "removed"}:
            old, new = before.get(change.was or change.id), after.get(change.id)
            if old is not None and new is not None:
                yield old, new


def _frozen(
    more: Scope, less: Scope, parameters: Mapping[str, _Size], others: Mapping[str, _Size], path: str
) -> _Frozen | None:
    """A module in the table where more of it is trained and in the one where less is, with the parameters of both."""
    if (more.own, more.total) != (less.own, less.total) or not more.own:
        return None
    fewer = more.trainable - less.trainable
    everything = more.trainable == more.total and not less.trainable
    if fewer <= 0 or not (everything or more.own == more.total):
        return None
    count, size = parameters.get(more.path, _NONE)
    count_left, size_left = others.get(less.path, _NONE)
    lost = _Size(count - count_left, size - size_left)
    return _Frozen(path, more.own if everything else fewer, everything, lost, more.path)


def _topmost(paths: Sequence[str], tree: ModuleTree) -> list[str]:
    """These modules, or those above them in which no other module owns parameters."""
    listed = set(paths)
    rows = [(row, scope.path in listed, scope.own > 0) for row, scope in enumerate(tree.scopes)]
    others = _with_above((row for row, is_listed, owns in rows if owns and not is_listed), tree)
    among = _with_above((row for row, is_listed, _ in rows if is_listed), tree) - others
    # One that is not among these owns parameters itself, and so does one below it that is not listed.
    return [
        tree.scopes[row].path
        for row, is_listed, _ in rows
        if (tree.parents[row] not in among if row in among else is_listed)
    ]


def _with_above(rows: Iterable[int], tree: ModuleTree) -> set[int]:
    """Modules by number, and all that they lie in."""
    found: set[int] = set()
    for row in rows:
        for above in tree.and_above(row):
            if above in found:
                break
            found.add(above)
    return found


def _parameters(graph: Graph) -> dict[str, _Size]:
    """The parameters that a graph has of each module itself."""
    found: dict[str, _Size] = {}
    for node in graph.nodes.values():
        if node.role == "parameter":
            size = found.get(node.scope, _NONE)
            found[node.scope] = _Size(size.parameters + 1, size.elements + elements(node))
    return found


_ORDER: Final = frozenset({"order", "indices"})
_OF_BACKWARD: Final = ("saved", "attrs")
"""What an operation keeps for a backward to more or fewer of its inputs."""


def _consequences(evidence: Evidence, word: str, modules: Sequence[_Frozen]) -> set[int]:
    """The indices of the changes that are no more than a consequence of parameters that were frozen or unfrozen.

    That is: the parameter leaves the graph, or is in it as what an operation saved; what accumulated its gradient goes;
    an operation goes whose every input has gone so; and one that had such an input has none there any more, with what
    it keeps for that, be there also what changed for all. Only where the tables of modules prove that all these
    parameters are frozen.
    """
    owners = {module.trained for module in modules if module.proven}
    return set(_Explained(evidence, owners, is_frozen=word == "frozen").indices()) if owners else set()


class _Explained:
    """The changes on the side of the graph in which the parameters are trained."""

    def __init__(self, evidence: Evidence, owners: Collection[str], *, is_frozen: bool) -> None:
        self._changes = evidence.changes
        self._of_all = evidence.of_all.partly
        self._trained: Graph = evidence.graphs[0 if is_frozen else 1]
        self._owners = owners
        self._is_frozen = is_frozen

    def indices(self) -> Iterator[int]:
        kind = "removed" if self._is_frozen else "added"
        gone = {
            change.id: at for at, change in enumerate(self._changes) if change.subject == "node" and change.kind == kind
        }
        changed = [at for at, change in enumerate(self._changes) if change.kind not in {"added", "removed"}]
        roles = {self._name(self._changes[at]): at for at in changed if self._is_role(self._changes[at])}
        dead = set(roles)
        yield from roles.values()
        for node in self._trained.nodes.values():
            if node.id in gone and self._goes(node, dead):
                dead.add(node.id)
                yield gone[node.id]
        for at in changed:
            fields = [field.path for field in self._changes[at].fields]
            is_count = self._changes[at].subject == "scope" and fields == [("trainable",)]
            if is_count or self._is_reader(at, dead):
                yield at

    def _name(self, change: Change) -> str:
        return change.was or change.id if self._is_frozen else change.id

    def _goes(self, node: Node, dead: Collection[str]) -> bool:
        """Whether a node is there for the gradients of these parameters alone."""
        if node.role == "parameter":
            return node.scope in self._owners
        found = sources(node)
        return node.role == "function" and bool(found) and all(source in dead for source in found)

    def _is_role(self, change: Change) -> bool:
        """Whether a parameter is now in the graph because an operation saved it, and for nothing else."""
        if change.subject != "node" or [field.path for field in change.fields] != [("role",)]:
            return False
        node = self._trained.nodes.get(self._name(change))
        other = change.fields[0].after if self._is_frozen else change.fields[0].before
        return node is not None and node.role == "parameter" and other == "buffer" and node.scope in self._owners

    def _is_reader(self, at: int, dead: Collection[str]) -> bool:
        """Whether a node changed only in that it has no input where one of the gone nodes was, and as all did."""
        change = self._changes[at]
        node = self._trained.nodes.get(self._name(change)) if change.subject == "node" else None
        if node is None or change.kind != "changed":
            return False
        fields = [field for number, field in enumerate(change.fields) if (at, number) not in self._of_all]
        slots = [field for field in fields if field.path[0] == "in"]
        if not slots or not all(
            (field.after if self._is_frozen else field.before) is None
            if field.path[0] == "in"
            else field.path[0] in _OF_BACKWARD and len(field.path) > 1
            for field in fields
        ):
            return False
        return all(_source(node, field.path[-1]) in dead for field in slots)


def _source(node: Node, slot: object) -> str:
    ref = node.inputs[slot] if isinstance(slot, int) and slot < len(node.inputs) else None
    return "" if ref is None else ref.id
