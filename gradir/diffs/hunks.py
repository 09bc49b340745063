"""The exact difference between two graphs, which `gradir.patch` applies in both directions.

A `Diff` is for readers, a `Script` for programs. It contains every record that differs, whole and from both graphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from gradir.diffs.sequences import count_equal_ends, longest_increasing
from gradir.errors import PatchError
from gradir.ir import Graph, Node, Scope
from gradir.ir.fields import Field, fields_of, is_list, noun
from gradir.ir.head import Head
from gradir.ir.memo import exact_key
from gradir.ir.validate import check

T = TypeVar("T")

# The fields with values that can be equal and yet differ in type.
_VALUES: Final = ("attrs", "ext", "options")


class Hunk(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run of records that gives way to another.

    ``start`` is the place of the run in the first graph, and ``new_start`` that of its replacement in the second.
    """

    start: int
    new_start: int
    before: tuple[T, ...] = ()
    after: tuple[T, ...] = ()


def _script_field(field: Field) -> tuple[str, Any, Any]:
    """Return a field for one of the head: hunks of a list, or both values."""
    kind = get_args(field.hint)[0] if get_origin(field.hint) is Annotated else field.hint
    if is_list(field):
        return field.name, tuple[Hunk[get_args(kind)[0]], ...], ()  # type: ignore[misc]
    return field.name, Union[tuple[kind, kind], None], None  # type: ignore[valid-type]


_Fields: Any = msgspec.defstruct(
    "_Fields",
    [
        ("nodes", tuple[Hunk[Node], ...], ()),
        ("scopes", tuple[Hunk[Scope], ...], ()),
        *map(_script_field, fields_of(Head)),
    ],
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
)


class Script(_Fields, frozen=True):  # type: ignore[misc,call-arg]
    """What leads from one graph to another; false when that is nothing at all.

    It has hunks for the nodes, the scopes and each list of the head. Of any other field of the head, such as
    ``producer``, it holds both values where they differ.
    """

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)


def script(a: Graph, b: Graph) -> Script:
    """Return the difference from ``a`` to ``b``: `apply` it to ``a``, or its `inverse` to ``b``."""
    # Outside of the hunks is the longest common subsequence of equal records with equal keys. For keys that occur once
    # that is a longest increasing subsequence (Fredman, On computing the length of longest increasing subsequences,
    # 1975).
    return Script(
        tuple(_hunks(a.nodes, b.nodes)),
        tuple(_hunks(a.scopes, b.scopes)),
        *(_compare_field(field, getattr(a, field.name), getattr(b, field.name)) for field in fields_of(Head)),
    )


def apply(script: Script, graph: Graph) -> Graph:
    """Return the graph with the changes of a script.

    Raises:
        PatchError: the script is for another graph.
        GraphError: the result breaks a rule of the IR.
    """
    result = Graph.of(
        _apply_hunks(list(graph.nodes.values()), script.nodes, "node"),
        _apply_hunks(list(graph.scopes.values()), script.scopes, "scope"),
        read_from=graph.read_from,
        unknown=graph.unknown,
        **{
            field.name: _apply_to_field(field, getattr(graph, field.name), getattr(script, field.name))
            for field in fields_of(Head)
        },
    )
    check(result)
    return result


def inverse(script: Script) -> Script:
    """Return the script that undoes another."""
    values = {field.name for field in fields_of(Head) if not is_list(field)}
    return Script(
        *(
            change and change[::-1]
            if name in values
            else tuple(Hunk(hunk.new_start, hunk.start, hunk.after, hunk.before) for hunk in change)
            for name, change in msgspec.structs.asdict(script).items()
        )
    )


def _compare_field(field: Field, before: Any, after: Any) -> Any:
    """Return one hunk between the common beginning and end of a list, or else both values."""
    if not is_list(field):
        return None if are_identical(before, after) else (before, after)
    start, same = count_equal_ends(before, after, are_identical)
    old, new = tuple(before[start : len(before) - same]), tuple(after[start : len(after) - same])
    return (Hunk(start, start, old, new),) if old or new else ()


def _apply_to_field(field: Field, value: Any, change: Any) -> Any:
    """Return the new value of a field of the head, or raise `PatchError` if the script expects another value."""
    if is_list(field):
        return tuple(_apply_hunks(value, change, noun(field)))
    if change is not None and not are_identical(change[0], value):
        raise PatchError(f"the diff was not made for this graph: it expects another {field.key}")
    return value if change is None else change[1]


def _hunks(before: Mapping[str, T], after: Mapping[str, T]) -> Iterator[Hunk[T]]:
    if before is after:
        return
    olds, news = list(before.values()), list(after.values())
    if olds == news and _have_same_types(olds, news):
        return
    places = {key: (at, record) for at, (key, record) in enumerate(before.items())}
    common = [
        (new_at, place[0])
        for new_at, (key, record) in enumerate(after.items())
        if (place := places.get(key)) is not None and place[1] == record
    ]
    if not _have_same_types([olds[at] for _, at in common], [news[at] for at, _ in common]):
        common = [(new_at, at) for new_at, at in common if are_identical(olds[at], news[new_at])]
    start = new_start = 0
    for new_at, at in (*longest_increasing(common), (len(news), len(olds))):
        if at > start or new_at > new_start:
            yield Hunk(start, new_start, tuple(olds[start:at]), tuple(news[new_start:new_at]))
        start, new_start = at + 1, new_at + 1


def _apply_hunks(records: Sequence[T], hunks: Sequence[Hunk[T]], noun: str) -> Iterator[T]:
    at = 0
    for hunk in hunks:
        end = hunk.start + len(hunk.before)
        fits = at <= hunk.start and end <= len(records)
        if not fits or not all(map(are_identical, records[hunk.start : end], hunk.before)):
            raise PatchError(f"the diff was not made for this graph: it expects another {noun} at {hunk.start:,}")
        yield from records[at : hunk.start]
        yield from hunk.after
        at = end
    yield from records[at:]


def are_identical(one: Any, other: Any) -> bool:
    """Return whether two records or mappings are equal in value and type: ``1``, ``1.0`` and ``true`` differ."""
    if one != other:
        return False
    if isinstance(one, Mapping):
        key = exact_key(one)
        return (key is not None and key == exact_key(other)) or repr(sorted(one.items())) == repr(sorted(other.items()))
    if type(one) is not type(other):
        return False
    for field in _VALUES:
        values = getattr(one, field, None)
        if values and not are_identical(values, getattr(other, field)):
            return False
    return True


def _have_same_types(ones: Sequence[object], others: Sequence[object]) -> bool:
    # Each getattr() for a missing field would take long.
    fields = [field for field in _VALUES if ones and hasattr(ones[0], field)]
    one, other = (
        exact_key([values for field in fields for record in records if (values := getattr(record, field))])
        for records in (ones, others)
    )
    return one is not None and one == other
