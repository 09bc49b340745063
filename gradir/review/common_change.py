"""Find the change of nearly all operations, such as another batch, dtype or width, and its consequences."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gradir.diffs.changes import ADDED_OR_REMOVED, Finding
from gradir.diffs.field_changes import names_any
from gradir.ir import Ref
from gradir.review.relative_changes import COUNTS, WHOLE_NUMBER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change, FieldChange
    from gradir.ir import Graph
    from gradir.vocabulary import Vocabulary

# Reports list fewer changed nodes one by one.
_FEWEST: Final = 5
# Without this share of changed nodes that have no other change, a report lists each change.
_LEAST_SHARE: Final = Fraction(3, 4)
# More ratios at once are no single edit.
_MOST_RATIOS: Final = 2
_MOST_SIZES: Final = 3
# A number of bytes or a stride may be a product of this many changed sizes.
_POWERS: Final = 3
_PROPERTIES: Final = ("dtype", "device", "layout", "shape")


class _ValueChange(NamedTuple):
    key: str
    before: Any
    after: Any


def find_uniform_changes(changes: Sequence[Change]) -> Iterator[Finding]:
    """Yield each change of outputs that more than half of the changed nodes have."""
    # All changed outputs of a node must change alike, and shapes in one dimension only. `in_ratio` counts nodes with
    # other sizes in the same ratio, such as a batch that is folded into another dimension.
    changed = [*filter(is_changed_node, changes)]
    if len(changed) < _FEWEST:
        return
    outputs = [[*_find_output_changes(change)] for change in changed]
    for same, count in Counter(chain.from_iterable(outputs)).items():
        if 2 * count > len(changed):
            others = (change for change, found in zip(changed, outputs, strict=True) if same not in found)
            has_sizes = isinstance(same.before, int) and same.before and same.after
            in_ratio = sum(_is_in_ratio(each, same.before, same.after) for each in others) if has_sizes else 0
            details = {"of": len(changed), "in_ratio": in_ratio}
            yield Finding("uniform", "change", (same.key,), (), same.before, same.after, count, details)


class CommonChange(NamedTuple):
    """The change of more than half of all operations, and its consequences.

    ``sizes`` is a text of sizes that changed in one ratio, and ``casts`` counts added and removed casts. ``follow`` has
    the indices of the changes that only follow from it. ``partly`` has, for other changed nodes, the index of the
    change and of a field that follows from it.
    """

    sizes: str = ""
    casts: str = ""
    follow: frozenset[int] = frozenset()
    partly: frozenset[tuple[int, int]] = frozenset()


def find_common_change(
    changes: Sequence[Change], graphs: tuple[Graph, Graph], matched: Mapping[str, str], vocabulary: Vocabulary
) -> CommonChange:
    """Return the change that explains nearly all of a diff.

    More than half of the operations that do not only prepare a parameter must have it. A change follows from it if each
    field does: the same change of a property, a size in the same ratio, saved bytes, or an input behind a cast.
    """
    changed = [*filter(is_changed_node, changes)]
    if len(changed) < _FEWEST or 2 * len(changed) <= _count_operations(graphs[1], vocabulary.accumulators):
        return CommonChange()
    found = _Common(changes, changed, graphs, matched, vocabulary)
    if not (found.same or found.ratios) or sum(map(found.explains, changed)) < _LEAST_SHARE * len(changed):
        return CommonChange()
    follow = frozenset(at for at, change in enumerate(changes) if found.explains(change))
    partly = frozenset(
        (at, number)
        for at, change in enumerate(changes)
        if at not in follow and is_changed_node(change)
        for number, field in enumerate(change.fields)
        if found.explains_field(field)
    )
    return CommonChange(found.describe_sizes(changed), found.describe_casts(), follow, partly)


def is_changed_node(change: Change) -> bool:
    """Return whether a change is of kind ``changed`` and about a node."""
    return (change.subject, change.kind) == ("node", "changed")


def _count_operations(graph: Graph, accumulators: Collection[str]) -> int:
    """Count the operations that do not depend on a single parameter alone."""
    of_parameters: set[str] = set()
    count = 0
    for node in graph.nodes.values():
        sources = [ref.id for ref in node.inputs if ref is not None]
        if node.role == "parameter" or node.op in accumulators or (len(sources) == 1 and sources[0] in of_parameters):
            of_parameters.add(node.id)
        else:
            count += node.role == "function"
    return count


class _Common:
    def __init__(
        self,
        changes: Sequence[Change],
        changed: Sequence[Change],
        graphs: tuple[Graph, Graph],
        matched: Mapping[str, str],
        vocabulary: Vocabulary,
    ) -> None:
        self._graphs = graphs
        self._matched = matched
        self._size_attributes = vocabulary.sizes
        properties: Counter[_ValueChange] = Counter()
        ratios: Counter[Fraction] = Counter()
        repeated: Counter[Fraction] = Counter()
        self._sizes: Counter[tuple[int, int]] = Counter()
        for change in changed:
            outputs = [(key, field) for field in change.fields if (key := _property(field))]
            properties.update(
                {_ValueChange(key, field.before, field.after) for key, field in outputs if key != "shape"}
            )
            shapes = [[*_list_number_pairs(field)] for key, field in outputs if key == "shape"]
            sizes = {pair for pairs in shapes for pair in pairs if pair[0]}
            self._sizes.update(sizes)
            ratios.update({Fraction(after, before) for before, after in sizes})
            in_shapes = [Counter(Fraction(after, before) for before, after in pairs if before) for pairs in shapes]
            repeated.update({ratio for found in in_shapes for ratio, count in found.items() if count > 1})
        self.same = {found for found, count in properties.items() if 2 * count > len(changed)}
        often = [ratio for ratio, count in ratios.most_common() if 2 * count > len(changed)]
        # Batch and length may both double, so a size that is their product grows to four times as much.
        often += [ratio for ratio in often if 2 * (repeated[ratio] + ratios[ratio**2]) > len(changed)]
        self.ratios = often[:_MOST_RATIOS]
        self._products = _multiply_powers(self.ratios, 1)
        self._powers = _multiply_powers(self.ratios, _POWERS)
        values = {value for _, *both in self.same for value in both}
        self._casts: tuple[set[str], set[str]] = (set(), set())
        for change in changes:
            tensor = change.tensor if change.subject == "node" and change.label in vocabulary.casts else None
            # A cast to another dtype or device does not belong to this change.
            if (
                tensor is not None
                and change.kind in ADDED_OR_REMOVED
                and not values.isdisjoint((tensor.dtype, tensor.device))
            ):
                self._casts[change.kind == "added"].add(change.id)

    def describe_sizes(self, changed: Sequence[Change]) -> str:
        """Return the most frequent changes of sizes as text, or an empty text without a common ratio."""
        if not self.ratios:
            return ""
        count = sum(
            any(_property(field) == "shape" and self._are_in_ratio(field, self._products) for field in change.fields)
            for change in changed
        )
        which = f"all {count:,}" if count == len(changed) else f"{count:,} of {len(changed):,}"
        pairs = [pair for pair, _ in self._sizes.most_common() if Fraction(pair[1], pair[0]) in self._products]
        texts = [f"{before} -> {after}" for before, after in pairs[:_MOST_SIZES]]
        texts += [f"{len(pairs) - _MOST_SIZES:,} more in that ratio"] if len(pairs) > _MOST_SIZES else []
        return f"sizes of {which} changed nodes: {', '.join(texts)}"

    def describe_casts(self) -> str:
        counts = zip(map(len, self._casts), ("left out", "put in"), strict=True)
        texts = [f"{count:,} {edit}" for count, edit in counts if count]
        return f"casts: {', '.join(texts)}" if texts else ""

    def explains(self, change: Change) -> bool:
        """Return whether a change only follows from the common change."""
        if change.subject == "scope" and change.kind == "changed":
            # Parameters of another size change the counts. A change of a description alone is an edit.
            names = {field.path[0] for field in change.fields}
            return (
                bool(self.ratios)
                and ("own" in names or "detail" not in names)
                and all(
                    field.path[0] in COUNTS
                    or (field.path == ("detail",) and self._describes(field.before, field.after))
                    for field in change.fields
                )
            )
        if change.subject != "node":
            return False
        if change.kind in ADDED_OR_REMOVED:
            return change.id in self._casts[change.kind == "added"]
        if change.kind != "changed" or not change.fields:
            return False
        explained = [field for field in change.fields if self.explains_field(field)]
        of_tensors = (field.path for field in explained if field.path[-1] in {"dtype", "shape"})
        slots = {path[:-1] for path in of_tensors if path[0] == "saved"}
        # The bytes of a slot follow from its dtype and shape.
        return all(
            field.path[0] == "saved" and field.path[-1] in {"bytes", "storage"} and field.path[:-1] in slots
            for field in change.fields
            if field not in explained
        )

    def explains_field(self, field: FieldChange) -> bool:
        key = field.path[-1]
        if field.path[0] in {"out", "saved"} and len(field.path) > 2:
            if key == "shape":
                return self._are_in_ratio(field, self._products)
            if key == "origin":
                return self._is_cast(field)
            return _ValueChange(str(key), field.before, field.after) in self.same
        if field.path[0] == "in":
            return self._is_cast(field)
        is_size = names_any(self._size_attributes, field.name)
        return is_size and self._are_in_ratio(field, self._powers)

    def _describes(self, before: object, after: object) -> bool:
        """Return whether two descriptions of a module differ only in integers, all in the common ratios."""
        if not (isinstance(before, str) and isinstance(after, str)):
            return False
        if WHOLE_NUMBER.sub("#", before) != WHOLE_NUMBER.sub("#", after):
            return False
        pairs = zip(map(int, WHOLE_NUMBER.findall(before)), map(int, WHOLE_NUMBER.findall(after)), strict=True)
        return all(one == other or (one and Fraction(other, one) in self._products) for one, other in pairs)

    def _are_in_ratio(self, field: FieldChange, allowed: set[Fraction]) -> bool:
        pairs = list(_list_number_pairs(field))
        return bool(pairs) and all(before and Fraction(after, before) in allowed for before, after in pairs)

    def _is_cast(self, field: FieldChange) -> bool:
        """Return whether the two references differ only by casts of the same node."""
        if not (isinstance(field.before, Ref) and isinstance(field.after, Ref)):
            return False
        ends = []
        for graph, casts, ref in zip(self._graphs, self._casts, (field.before, field.after), strict=True):
            name = ref.id
            while name in casts and (source := next(iter(graph.nodes[name].inputs), None)) is not None:
                name = source.id
            ends.append(name)
        is_cast = field.before.id in self._casts[0] or field.after.id in self._casts[1]
        return is_cast and self._matched.get(ends[0]) == ends[1]


def _property(field: FieldChange) -> str:
    """Return the property of an output, or an empty text for another field."""
    is_output = field.path[0] == "out" and len(field.path) > 2
    return str(field.path[-1]) if is_output and field.path[-1] in _PROPERTIES else ""


def _find_output_changes(change: Change) -> Iterator[_ValueChange]:
    found: dict[str, set[_ValueChange | None]] = {}
    for field in change.fields:
        key = _property(field)
        if key:
            are_known = isinstance(field.before, str) and isinstance(field.after, str)
            value = _ValueChange(key, field.before, field.after) if are_known else None
            found.setdefault(key, set()).add(_find_only_dimension(field) if key == "shape" else value)
    for values in found.values():
        if len(values) == 1:
            yield from filter(None, values)


def _find_only_dimension(field: FieldChange) -> _ValueChange | None:
    """Return both sizes of the only dimension that differs, or ``None``."""
    pairs = [*_list_number_pairs(field)]
    if len(pairs) != 1 or pairs == [(0, 0)]:
        return None
    sizes = enumerate(zip(field.before, field.after, strict=True))
    return _ValueChange(f"dimension {next(at for at, (before, after) in sizes if before != after)}", *pairs[0])


def _is_in_ratio(change: Change, before: int, after: int) -> bool:
    """Return whether every changed size of outputs is a multiple of ``before`` and changed in the same ratio."""
    pairs = [pair for field in change.fields if _property(field) == "shape" for pair in _list_number_pairs(field)]
    return bool(pairs) and all(old and old % before == 0 and old * after == new * before for old, new in pairs)


def _list_number_pairs(field: FieldChange) -> Iterator[tuple[int, int]]:
    """Yield the integers of a field that differ, or zeros if the values are not as many integers."""
    before, after = _numbers(field.before), _numbers(field.after)
    if len(before) != len(after) or not before:
        yield 0, 0
        return
    yield from ((old, new) for old, new in zip(before, after, strict=True) if old != new)


def _numbers(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, tuple) else (value,)
    return values if all(isinstance(each, int) and not isinstance(each, bool) for each in values) else ()


def _multiply_powers(ratios: Sequence[Fraction], most: int) -> set[Fraction]:
    """Return the products of the ratios' powers, each up to ``most``, except 1."""
    found = {Fraction(1)}
    for ratio in ratios:
        found = {each * ratio**power for each in found for power in range(most + 1)}
    return found - {Fraction(1)}
