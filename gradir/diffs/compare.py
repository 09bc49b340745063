"""Compare two graphs record by record, and the size of each module."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from gradir.diffs.changes import Change, Diff, FieldChange, Growth
from gradir.diffs.correspondence import Correspondence
from gradir.diffs.field_changes import descriptions, field_changes, head_fields, record_fields, setting_changes
from gradir.diffs.hunks import are_identical, script
from gradir.diffs.matching import match
from gradir.diffs.sequences import find_out_of_place, find_overtaken, number_repeats, pair_by_key
from gradir.gcpause import pause_gc
from gradir.ir import Cut, Node, Scope
from gradir.ir.cuts import find_graph_without_flow
from gradir.ir.head import Head, rename_in_head
from gradir.ir.ids import mark_as_removed
from gradir.ir.module_tree import OUTSIDE, ModuleTree
from gradir.ir.text import pluralize
from gradir.ir.totals import Size, sizes, totals, totals_of
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from gradir.diffs.changes import Kind
    from gradir.diffs.correspondence import Verdict
    from gradir.diffs.field_changes import Fields, Path
    from gradir.diffs.hunks import Script
    from gradir.ir import Graph
    from gradir.ir.model import Record
    from gradir.vocabulary import Vocabulary

K = TypeVar("K", bound="Hashable")
R = TypeVar("R", Node, Scope, Cut)


def compare(a: Graph, b: Graph, names: Callable[[], Correspondence] | None = None) -> Diff:
    """Compare two graphs record by record, except for their producers."""
    # `names` returns the correspondence of names, which equal graphs do not need.
    with pause_gc():
        exact = script(a, b)
        compared = ("nodes", "scopes", "cuts", *(field.name for field in head_fields()))
        if not any(getattr(exact, name) for name in compared):
            same = totals(a)
            return Diff(same, same, script=exact)
        correspondence = names() if names else Correspondence(a, b, match(a, b))
        changes = tuple(_Changes(a, b, correspondence, exact).list_changes())
        nodes, others = a.nodes.values(), b.nodes.values()
        before, after = sizes(nodes), sizes(others)
        growths = tuple(find_growths(before, after, correspondence.paths))
        return Diff(totals_of(nodes, before), totals_of(others, after), changes, growths, exact)


class _Changes:
    def __init__(self, a: Graph, b: Graph, correspondence: Correspondence, exact: Script) -> None:
        self._graphs = a, b
        self._names = correspondence
        self._nodes = correspondence.nodes(a.nodes), b.nodes
        self._scopes = correspondence.scopes(a.scopes), b.scopes
        self._edited = {node.id for hunk in exact.nodes for node in (*hunk.before, *hunk.after)}
        self._edited.update(scope.path for hunk in exact.scopes for scope in (*hunk.before, *hunk.after))
        keys = _cut_keys(b.cuts)
        cut_keys = _match_cut_keys(list(map(correspondence.cut, a.cuts)), b.cuts, keys)
        self._cuts = dict(zip(cut_keys, a.cuts, strict=True)), dict(zip(keys, b.cuts, strict=True))
        self._own_cut_keys = dict(zip(cut_keys, _cut_keys(a.cuts), strict=True))
        self._shifted: dict[str, tuple[str, str]] = {}
        self._vocabulary = vocabulary_of(a, b)

    def list_changes(self) -> list[Change]:
        """Return the changes: renames of modules, then scopes, cuts, nodes, and those of the whole graph."""
        found = [
            Change("renamed", "module", new, label=self._names.tensors.get((old, new), ""), old_id=old, nodes=count)
            for (old, new), count in self._names.modules.items()
        ]
        found += _compare_records(self._scopes, self._compare_scope, self._vocabulary)
        found += self._compare_cuts()
        found += _compare_records(self._nodes, self._compare_node, self._vocabulary)
        found += self._compare_head()
        if self._shifted:
            found.append(_graph_change("indices", self._shifted))
        overtaken = find_overtaken((old.path, new.path) for _, old, new in pair_by_key(*self._scopes) if old and new)
        if overtaken is not None:
            found.append(_graph_change("sequence", {"modules": overtaken}))
        found += self._compare_order()
        if not found and self._names.storages:
            # The order of the nodes decides the names of storages, so they matter only if nothing else changed.
            found.append(_graph_change("indices", {"storages": next(iter(self._names.storages.items()))}))
        return found

    def _compare_scope(self, old: Scope, new: Scope) -> tuple[Verdict, Iterable[FieldChange]]:
        if old.path == new.path and new.path not in self._edited:
            return "", ()
        verdict = self._names.scope_verdict(old, new)
        if verdict == "renumbered":
            self._shifted.setdefault("scopes", (old.path, new.path))
        fields = descriptions(Scope)
        # Counts that differ only by the counts of the module itself and its children are no news.
        if self._residual_counts[0][old.path] == self._residual_counts[1][new.path]:
            fields = {name: describe for name, describe in fields.items() if name not in COUNTS}
        return verdict, field_changes(old, new, fields, old)

    @cached_property
    def _residual_counts(self) -> list[dict[str, dict[str, int]]]:
        return [residual_counts(graph.scopes) for graph in self._graphs]

    def _compare_cuts(self) -> Iterator[Change]:
        """Yield the changes of cuts; places that only one graph records are one change of the whole graph."""
        lacking = find_graph_without_flow(*self._graphs)
        places = 0
        for change in _compare_records(self._cuts, self._compare_cut, self._vocabulary):
            if lacking is None or change.cut is None:
                yield change
            else:
                places += 1
        if places:
            old, new = ("not noted" if graph is lacking else pluralize(places, "place") for graph in self._graphs)
            yield _graph_change("flow", {"cuts": (old, new)})

    def _compare_cut(self, old: Cut, new: Cut) -> tuple[Verdict, Iterable[FieldChange]]:
        # The place of an equal cut in a program or graph is no news.
        fields = field_changes(self._names.cut(old), new, _descriptions_without(Cut, "free"), old)
        # If a module took another's name, a scope may be translated wrongly; the shown values are equal then.
        return "", (field for field in fields if field.before != field.after)

    def _compare_head(self) -> Iterator[Change]:
        a, b = self._graphs
        named = rename_in_head(a, lambda key: self._names.matched.get(key, mark_as_removed(key)), keeps_slots=True)
        old = msgspec.structs.replace(a, **named)
        for field in head_fields():
            fields = tuple(field_changes(old, b, {field.name: descriptions(Head)[field.name]}, a))
            if fields:
                yield Change("changed", "graph", field.key, fields=fields)

    def _compare_node(self, old: Node, new: Node) -> tuple[Verdict, Iterable[FieldChange]]:
        if self._names.keeps_ids and old.id == new.id and new.id not in self._edited:
            return "", ()
        translated, verdict = self._names.node(old, new), self._names.verdict(old, new)
        if verdict == "renumbered":
            self._shifted.setdefault("nodes", (old.scope, new.scope) if old.id == new.id else (old.id, new.id))
        if are_identical(translated, new):
            return verdict, ()
        if old.op == new.op or self._vocabulary.are_same(old.op, new.op):
            return verdict, field_changes(translated, new, descriptions(Node), old)
        # Another operation has other details, and so only the settings count, as for an added node.
        fields = field_changes(translated, new, _descriptions_without(Node, "detail"), old)
        return verdict, (*fields, *setting_changes(old, new, self._vocabulary))

    def _compare_order(self) -> Iterator[Change]:
        nodes, scopes, cuts = (find_out_of_place(*both) for both in (self._nodes, self._scopes, self._cuts))
        names = {
            "nodes": nodes and (self._nodes[0][nodes[0]].id, *nodes),
            "scopes": scopes and (self._scopes[0][scopes[0]].path, *scopes),
            "cuts": cuts and tuple("#".join(map(str, key[:2])) for key in (self._own_cut_keys[cuts[0]], *cuts)),
        }
        # If the old name and the new one are equal, the translated one differs.
        found = {
            key: (found[1] if found[0] == found[2] else found[0], found[2]) for key, found in names.items() if found
        }
        if found:
            yield _graph_change("order", found)


def _compare_records(
    both: tuple[Mapping[K, R], Mapping[K, R]],
    compared: Callable[[R, R], tuple[Verdict, Iterable[FieldChange]]],
    vocabulary: Vocabulary,
) -> Iterator[Change]:
    """Yield the changes of records of one kind; the keys of both graphs are those of the second."""
    for _, old, new in pair_by_key(*both):
        if new is None:
            if old is not None:
                yield _make_change("removed", old, setting_changes(old, None, vocabulary))
        elif old is None:
            yield _make_change("added", new, setting_changes(None, new, vocabulary))
        else:
            verdict, found = compared(old, new)
            fields = tuple(found)
            kind: Kind = verdict if verdict in {"renamed", "moved"} else "changed"
            if fields or kind != "changed":
                change, old_id = _make_change(kind, new, fields), _make_change(kind, old).id
                yield change if old_id == change.id else msgspec.structs.replace(change, old_id=old_id)


@cache
def _descriptions_without(kind: type[Record], compared: str) -> Fields:
    """Return the `descriptions` of the fields except for those of one kind of comparison."""
    return {
        field.name: descriptions(kind)[field.name] for field in record_fields(kind) if field.about.compared != compared
    }


def _graph_change(subject: str, fields: Mapping[str, tuple[str, str]]) -> Change:
    return Change("changed", "graph", subject, fields=tuple(FieldChange((key,), *pair) for key, pair in fields.items()))


def _cut_keys(cuts: Sequence[Cut]) -> list[Path]:
    """Return a key for each cut; keys of places differ from those of parameters."""
    names = number_repeats(cut_name(cut) for cut in cuts if not cut.is_place)
    kinds: Counter[str] = Counter()
    found: list[Path] = []
    for cut in cuts:
        kinds[cut.kind] += cut.is_place
        found.append((cut.kind, kinds[cut.kind], "place") if cut.is_place else next(names))
    return found


def _match_cut_keys(old: Sequence[Cut], new: Sequence[Cut], keys: Sequence[Path]) -> list[Path]:
    """Return the keys of cuts of the first graph; a place has the key of the most similar place."""
    # Places in the same line match first, then those in the same function, then the others in order.
    found = _cut_keys(old)
    free = {number: cut for number, cut in enumerate(new) if cut.is_place}
    unmatched = {number: cut for number, cut in enumerate(old) if cut.is_place}
    for fields in (("file", "line", "function"), ("file", "function"), ()):
        similar: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number in reversed(free):
            similar[_similarity_key(free[number], *fields)].append(number)
        for number, cut in list(unmatched.items()):
            if candidates := similar[_similarity_key(cut, *fields)]:
                partner = candidates.pop()
                found[number] = keys[partner]
                del unmatched[number], free[partner]
    for number in unmatched:
        found[number] = (*found[number], 0)
    return found


def _similarity_key(cut: Cut, *fields: str) -> Hashable:
    """Return a key that is equal for cuts that may match, with these fields of their sources."""
    return (cut.kind, cut.op, cut.scope, cut.names, *(getattr(cut.source, field, None) for field in fields))


def cut_name(cut: Cut) -> str:
    """Return the name of a cut in a change."""
    return cut.names[0] if cut.names and not cut.is_place else cut.kind


def _make_change(kind: Kind, record: Node | Scope | Cut, fields: Iterable[FieldChange] = ()) -> Change:
    fields = tuple(fields)
    if isinstance(record, Scope):
        return Change(kind, "scope", record.path, record.path, record.class_name, fields)
    if isinstance(record, Cut):
        place = record if record.is_place else None
        return Change(kind, "cut", cut_name(record), record.scope, record.kind, fields, tensor=record.tensor, cut=place)
    return Change(kind, "node", record.id, record.scope, record.op or record.role, fields, tensor=record.tensor)


# The fields of a scope that include its submodules.
COUNTS: Final = ("total", "trainable")


def residual_counts(scopes: Mapping[str, Scope]) -> dict[str, dict[str, int]]:
    """Return by path the `COUNTS` of a module minus its own and those of its children."""
    tree = ModuleTree(scopes.values())
    found = {scope.path: {count: getattr(scope, count) - scope.own for count in COUNTS} for scope in tree.scopes}
    for scope, above in zip(tree.scopes, tree.parents, strict=True):
        for count in COUNTS if above != OUTSIDE else ():
            found[tree.scopes[above].path][count] -= getattr(scope, count)
    return found


def find_growths(before: Mapping[str, Size], after: Mapping[str, Size], paths: Mapping[str, str]) -> Iterator[Growth]:
    """Yield each module whose size differs, in the order of the nodes; ``paths`` has new paths by old ones."""
    renamed = {path: paths[path] for path in before if path in paths}
    former = {new: path for path, new in renamed.items()}
    for path, size in after.items():
        old = before[former[path]] if path in former else Size()
        if old != size:
            yield Growth(path, old, size, "" if former.get(path, path) == path else former[path])
    for path, size in before.items():
        if path not in renamed:
            yield Growth(path, size, Size(), gone=True)
        elif renamed[path] not in after:
            yield Growth(renamed[path], size, Size(), "" if renamed[path] == path else path)
