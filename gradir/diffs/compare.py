"""Compare two graphs: nodes as `gradir.diffs.matching` pairs them, scopes and cuts after them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from gradir.diffs.changes import Change, Diff, FieldChange
from gradir.diffs.correspondence import Correspondence
from gradir.diffs.field_changes import compared_fields, descriptions, field_changes, numbered
from gradir.diffs.growth import growth
from gradir.diffs.hunks import script
from gradir.diffs.ignoring import same_operation
from gradir.diffs.matching import match
from gradir.diffs.sequences import matched, out_of_place, overtaken
from gradir.gcpause import paused_gc
from gradir.ir import Cut, Node, Scope
from gradir.ir.module_tree import OUTSIDE, ModuleTree
from gradir.ir.totals import totals

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from gradir.diffs.changes import Kind
    from gradir.diffs.correspondence import Verdict
    from gradir.diffs.field_changes import Fields, Path
    from gradir.ir import Graph, Scope

__all__ = ["COUNTS", "Subtotals", "compare"]


K = TypeVar("K", bound="Hashable")
T = TypeVar("T")


def compare(a: Graph, b: Graph, names: Correspondence | None = None) -> Diff:
    """What changed from ``a`` to ``b``. The producers are not compared: what made a graph is no part of it.

    ``names`` is what is called how in both, where that is known already.

    >>> from gradir.ir import Graph, Node
    >>> diff = compare(Graph.of([Node("exp:1", op="exp")]), Graph.of([Node("exp:1", op="exp", attrs={"dim": 1})]))
    >>> diff.changes[0].fields
    (FieldChange(path=('attrs', 'dim'), before=UNSET, after=1),)
    """
    with paused_gc():
        names = names or Correspondence(a, b, match(a, b))
        changes = tuple(_Changes(a, b, names).found())
        return Diff(totals(a), totals(b), changes, tuple(growth(a, b, names.paths)), script(a, b))


class _Changes:
    """Both graphs, the records of the first by the keys of the second."""

    def __init__(self, a: Graph, b: Graph, correspondence: Correspondence) -> None:
        self._names = correspondence
        self._nodes = correspondence.nodes(a.nodes), b.nodes
        self._scopes = correspondence.scopes(a.scopes), b.scopes
        self._subtotals = Subtotals(a.scopes, b.scopes)
        cut_keys = _cut_keys(map(correspondence.cut, a.cuts))
        self._cuts = dict(zip(cut_keys, a.cuts, strict=True)), dict(zip(_cut_keys(b.cuts), b.cuts, strict=True))
        self._own_cut_keys = dict(zip(cut_keys, _cut_keys(a.cuts), strict=True))
        self._shifted: dict[str, tuple[str, str]] = {}

    def found(self) -> list[Change]:
        """Renames of modules, scopes, cuts, nodes, and what belongs to no single record."""
        found = [
            *(
                Change("renamed", "module", renamed.after, was=renamed.before, nodes=count)
                for renamed, count in self._names.modules.items()
            ),
            *self._scope_changes(),
            *self._cut_changes(),
            *self._node_changes(),
        ]
        if self._shifted:
            found.append(_of_graph("indices", self._shifted))
        passed = overtaken((old.path, new.path) for old, new in _pairs(*self._scopes) if old and new)
        if passed is not None:
            found.append(_of_graph("sequence", {"modules": passed}))
        found += self._order()
        if not found and self._names.storages:
            # What a storage is called follows from the order of the nodes, unless nothing else is another.
            found.append(_of_graph("indices", {"storages": next(iter(self._names.storages.items()))}))
        return found

    def _scope_changes(self) -> Iterator[Change]:
        for old, new in _pairs(*self._scopes):
            if old is None or new is None:
                yield from _one_sided(_scope_change, old, new)
                continue
            kind = self._names.scope_verdict(old, new)
            fields = field_changes(old, new, self._scope_fields(old, new), old)
            if kind == "renumbered":
                self._shifted.setdefault("scopes", (old.path, new.path))
            yield from _changed(_scope_change, new, kind, tuple(fields), old.path)

    def _scope_fields(self, old: Scope, new: Scope) -> Fields:
        return _without_counts() if self._subtotals.follow(old, new) else descriptions(Scope)

    def _cut_changes(self) -> Iterator[Change]:
        for old, new in _pairs(*self._cuts):
            if old is None or new is None:
                yield from _one_sided(_cut_change, old, new)
                continue
            fields = field_changes(self._names.cut(old), new, descriptions(Cut), old)
            # A module that takes another's name may translate a scope to what it is not called; what is shown is equal.
            told = tuple(field for field in fields if field.before != field.after)
            yield from _changed(_cut_change, new, "", told, _cut_name(old))

    def _node_changes(self) -> Iterator[Change]:
        for old, new in _pairs(*self._nodes):
            if old is None or new is None:
                yield from _one_sided(_node_change, old, new)
                continue
            translated = self._names.node(old, new)
            kind = self._names.verdict(old, new)
            compared = descriptions(Node) if same_operation(old.op, new.op) else _without_details()
            fields = () if _same_node(translated, new) else field_changes(translated, new, compared, old)
            if kind == "renumbered":
                shifted = (old.scope, new.scope) if old.id == new.id else (old.id, new.id)
                self._shifted.setdefault("nodes", shifted)
            yield from _changed(_node_change, new, kind, tuple(fields), old.id)

    def _order(self) -> Iterator[Change]:
        """One change for all that stands elsewhere: in canonical order that is because an edge changed."""
        nodes, scopes, cuts = (out_of_place(*sides) for sides in (self._nodes, self._scopes, self._cuts))
        found = {}
        if nodes:
            found["nodes"] = _apart(self._nodes[0][nodes[0]].id, *nodes)
        if scopes:
            found["scopes"] = _apart(self._scopes[0][scopes[0]].path, *scopes)
        if cuts:
            found["cuts"] = _apart(*map(_cut_label, (self._own_cut_keys[cuts[0]], *cuts)))
        if found:
            yield _of_graph("order", found)


@cache
def _without_details() -> Fields:
    """What is compared where the operation is another: its details are another's, as those of a node put in are."""
    details = {field.name for field in compared_fields(Node) if field.about.compared == "detail"}
    return {name: describe for name, describe in descriptions(Node).items() if name not in details}


@cache
def _without_counts() -> Fields:
    return {name: describe for name, describe in descriptions(Scope).items() if name not in COUNTS}


def _of_graph(what: str, found: Mapping[str, tuple[str, str]]) -> Change:
    """A change of the whole graph, with an example of each kind."""
    return Change("changed", "graph", what, fields=tuple(FieldChange((name,), *pair) for name, pair in found.items()))


def _apart(old: str, now: str, new: str) -> tuple[str, str]:
    """What stood in a place and what stands there; where both are called the same, the first as it is called now."""
    return (now if old == new else old), new


def _pairs(before: Mapping[K, T], after: Mapping[K, T]) -> Iterator[tuple[T | None, T | None]]:
    return ((old, new) for _, old, new in matched(before, after))


def _one_sided(change: Callable[[Kind, T], Change], old: T | None, new: T | None) -> Iterator[Change]:
    if new is not None:
        yield change("added", new)
    elif old is not None:
        yield change("removed", old)


def _changed(
    change: Callable[[Kind, T], Change], record: T, verdict: Verdict, fields: tuple[FieldChange, ...], was: str
) -> Iterator[Change]:
    """The change of a matched record, if it says anything; ``was`` is left out where the name is the same."""
    kind: Kind = verdict if verdict in {"renamed", "moved"} else "changed"
    if fields or kind != "changed":
        found = change(kind, record)
        yield msgspec.structs.replace(found, fields=fields, was="" if was == found.id else was)


def _same_node(old: Node, new: Node) -> bool:
    """Whether two nodes are certainly equal: values of attributes in type too (``1``, ``1.0`` and ``true`` are not)."""
    if old != new:
        return False
    return not (old.attrs or old.ext) or (repr(old.attrs) == repr(new.attrs) and repr(old.ext) == repr(new.ext))


def _cut_keys(cuts: Iterable[Cut]) -> list[Path]:
    return list(numbered(map(_cut_name, cuts)))


def _cut_label(key: Path) -> str:
    return "#".join(map(str, key))


def _cut_name(cut: Cut) -> str:
    return cut.names[0] if cut.names else cut.kind


def _scope_change(kind: Kind, scope: Scope) -> Change:
    return Change(kind, "scope", scope.path, scope.path, scope.class_name)


def _cut_change(kind: Kind, cut: Cut) -> Change:
    return Change(kind, "cut", _cut_name(cut), cut.scope, cut.kind, tensor=cut.tensor)


def _node_change(kind: Kind, node: Node) -> Change:
    return Change(kind, "node", node.id, node.scope, node.op or node.role, tensor=node.tensor)


COUNTS: Final = ("total", "trainable")
"""The fields of a scope that count what is below it too."""


class Subtotals:
    """What the counts of both scope tables say beyond what the modules below say already.

    >>> from gradir.ir import Scope
    >>> tables = [{"": Scope("", total=total), "fc": Scope("fc", own=total, total=total)} for total in (3, 4)]
    >>> Subtotals(*tables).follow(tables[0][""], tables[1][""])
    True
    """

    def __init__(self, before: Mapping[str, Scope], after: Mapping[str, Scope]) -> None:
        self._below = _below(before), _below(after)

    def follow(self, old: Scope, new: Scope) -> bool:
        """Whether the counts of a matched scope, ``total`` and ``trainable``, differ by what other changes say.

        Those are the scope's ``own``, and the same counts of the scopes right below it. Where they do not add up, as
        with a parameter that two modules share or one that is frozen, the counts say something.
        """
        return self._beyond(old, self._below[0]) == self._beyond(new, self._below[1])

    @staticmethod
    def _beyond(scope: Scope, below: Mapping[tuple[str, str], int]) -> list[int]:
        return [getattr(scope, count) - scope.own - below[count, scope.path] for count in COUNTS]


def _below(scopes: Mapping[str, Scope]) -> Counter[tuple[str, str]]:
    """By count and path, the sum over the scopes right below."""
    sums: Counter[tuple[str, str]] = Counter()
    tree = ModuleTree(scopes.values())
    for scope, above in zip(tree.scopes, tree.parents, strict=True):
        for count in COUNTS if scope.path else ():
            sums[count, "" if above == OUTSIDE else tree.scopes[above].path] += getattr(scope, count)
    return sums
