"""Compact bytes to Graph.

A node is a copy of its kind's node with a few fields set, which costs a third of a constructor's call, and every loop
over nodes that can runs inside `map`. That inputs exist and stand before their consumers is how they are written down;
what is left to check are the ends of the columns, the output numbers and the ids.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, islice, repeat
from operator import sub
from typing import Any, Final

import msgspec
from msgspec.inspect import StrType
from msgspec.structs import force_setattr

from gradir.codecs.compact.fit import check_fit, is_in_proportion
from gradir.codecs.compact.keys import node_ids, storage_keys
from gradir.codecs.compact.layout import FLAGS, LATER_SCOPE_COLUMNS, Kind, common_fields, is_flag
from gradir.codecs.compact.reader import read
from gradir.codecs.compact.shares import placed, shares_of
from gradir.codecs.compact.tables import Tables
from gradir.codecs.document import graph_of, to_graph
from gradir.codecs.faults import damaged
from gradir.gcpause import paused_gc
from gradir.ir import Graph, Node, Ref, Saved, Scope
from gradir.ir.excerpt import excerpt
from gradir.ir.fields import Field, fields_of
from gradir.ir.frozen import FrozenDict, grow

__all__ = ["decode"]

_LARGEST: Final = 2**63 - 1
_BLOCK: Final = 512
"""So few nodes are made at a time that the processor still has them at hand when the last of their fields is set."""

# Found once: a call through the class takes half the time of one through each record.
_COPY_NODE: Final = Node.__copy__  # type: ignore[attr-defined]
_COPY_SLOT: Final = Saved.__copy__  # type: ignore[attr-defined]


def decode(data: bytes) -> Graph:
    """The graph in a compact document.

    Raises:
        FormatError: it is broken, of a version that cannot be read, or breaks a rule of the IR.
    """
    with paused_gc():
        tables = read(data)
        check_fit(tables)
        ids = node_ids(tables)
        keys = storage_keys(tables, ids)
        longest = max(map(len, ids), default=0), max(map(len, keys))
        if not is_in_proportion(
            tables.size, tables.nodes.__getitem__, strings=tables.strings, kinds=tables.kinds, longest=longest
        ):
            raise damaged("it says the same long things too often: what it says is out of proportion to its bytes")
        nodes = _nodes(tables, ids, keys)
        rest = _scopes(tables), tables.cuts, tables.producer, tables.version
        if len(nodes) != len(ids) or not all(ids) or not _printable(tables, ids):
            # All that can be wrong are ids, and it is said of the first of them.
            del nodes
            return to_graph(list(map(Node, ids)), *rest, unknown=tables.unknown)
        return graph_of(nodes, *rest, unknown=tables.unknown)


def _printable(tables: Tables, ids: Sequence[str]) -> bool:
    # The ids are made of few texts, and these are nearly always printable themselves.
    texts = "".join([*tables.strings, *[kind.op for kind in tables.kinds]])
    return texts.isprintable() or all(map(str.isprintable, ids))


def _nodes(tables: Tables, ids: Sequence[str], keys: Sequence[str]) -> FrozenDict[str, Node]:
    """The nodes by id; fewer than there are ids where one occurs twice."""
    kinds, kind_of = tables.kinds, tables.kind_of
    templates = [_template(kind) for kind in kinds]
    refs = list(map(Ref, ids, repeat(0)))
    named = shares_of(kind_of, [kind.names for kind in kinds])
    fed = shares_of(kind_of, [kind.inputs for kind in kinds])
    holding = shares_of(kind_of, [len(kind.saved) for kind in kinds])
    scopes = map(tables.strings.__getitem__, tables.nodes["scope"])
    names = _names(tables, named)
    inputs = filter(None, _inputs(tables, fed, ids, refs))
    saved = _saved(tables, holding, ids, refs, keys)
    viewing = shares_of(kind_of, [int(kind.base) for kind in kinds])
    bases = _bases(tables, viewing, ids)
    nodes: FrozenDict[str, Node] = FrozenDict()
    for start in range(0, len(ids), _BLOCK):
        block = slice(start, start + _BLOCK)
        made = list(map(_COPY_NODE, map(templates.__getitem__, kind_of[block])))
        _set(made, "id", ids[block])
        _set(made, "scope", scopes)
        _set(compress(made, named[block]), "names", names)
        _set(compress(made, fed[block]), "inputs", inputs)
        _set(compress(made, holding[block]), "saved", saved)
        _set(compress(made, viewing[block]), "base", bases)
        grow(nodes, zip(ids[block], made, strict=True))
    return nodes


def _template(kind: Kind) -> Node:
    return Node("", **{name: getattr(kind, name) for name in common_fields(Node)})


def _set(records: Iterable[msgspec.Struct], field: str, values: Iterable[object]) -> None:
    deque(map(force_setattr, records, repeat(field), values), 0)


def _names(tables: Tables, shares: Sequence[int]) -> Iterator[tuple[str, ...]]:
    length = tables.nodes.length("names")
    names = tables.nodes.indexes("names", length, "name", len(tables.strings), "the strings")
    return _dealt(map(tables.strings.__getitem__, names), shares)


def _dealt(flat: Iterator[Any], shares: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    """The entries of a flat column, for each node that has some."""
    take = flat.__next__
    return ((take(),) if share == 1 else tuple(islice(flat, share)) for share in shares if share)


def _inputs(
    tables: Tables, shares: Sequence[int], ids: Sequence[str], refs: Sequence[Ref]
) -> list[tuple[Ref | None, ...]]:
    """The inputs by node."""
    # From the last node to the first, so that a place before the first is not one counted from the end. A node is
    # entered after its own inputs: those without a producer, at no distance, find nothing there.
    last = len(refs)
    entered: list[Ref | None] = [None] * last
    distances: Sequence[int] = tables.nodes["in"]
    take = iter(distances).__next__
    inputs: list[tuple[Ref | None, ...]] = []
    add = inputs.append
    try:
        for share, ref in zip(shares, refs, strict=True):
            last -= 1
            if share == 1:
                add((entered[last + take()],))
            elif share == 2:
                add((entered[last + take()], entered[last + take()]))
            elif share:
                add(tuple([entered[last + take()] for _ in range(share)]))
            else:
                add(())
            entered[last] = ref
    except IndexError:
        raise damaged("column nodes.in names a place before the first node") from None
    _set_numbers(tables, shares, distances, ids, inputs)
    return inputs


def _set_numbers(
    tables: Tables,
    shares: Sequence[int],
    distances: Sequence[int],
    ids: Sequence[str],
    inputs: list[tuple[Ref | None, ...]],
) -> None:
    """Put in the inputs that are not output 0 of their producer."""
    places, numbers = _exceptions(tables, "in", distances)
    if not numbers:
        return
    ends = list(accumulate(shares))
    changed: dict[int, list[Ref | None]] = {}
    for at, number in zip(places, numbers, strict=True):
        place = bisect_right(ends, at)
        producer = place - distances[at]
        outputs = tables.kinds[tables.kind_of[producer]].outputs
        if outputs and number >= len(outputs):
            raise damaged(
                f"node {excerpt(ids[place])}: an input names output {number} of {excerpt(ids[producer])}, "
                "which has no such output"
            )
        if place not in changed:
            changed[place] = list(inputs[place])
        changed[place][at - ends[place]] = Ref(ids[producer], number)
    for place, row in changed.items():
        inputs[place] = tuple(row)


def _saved(
    tables: Tables, shares: Sequence[int], ids: Sequence[str], refs: Sequence[Ref], keys: Sequence[str]
) -> Iterator[tuple[Saved, ...]]:
    templates = [
        [Saved(**{name: getattr(slot, name) for name in common_fields(Saved)}) for slot in kind.saved]
        for kind in tables.kinds
    ]
    rows = map(templates.__getitem__, compress(tables.kind_of, shares))
    slots = list(map(_COPY_SLOT, chain.from_iterable(rows)))
    codes = tables.nodes["origin"]
    places = [
        place - (code >> 1) if code & 1 else place + (code >> 1)
        for place, code in zip(placed(shares), codes, strict=True)
    ]
    if places and (min(places) < 0 or max(places) >= len(refs)):
        raise damaged("column nodes.origin names a place outside the nodes")
    _set(compress(slots, codes), "origin", map(refs.__getitem__, compress(places, codes)))
    for at, number in zip(*_exceptions(tables, "origin", codes), strict=True):
        force_setattr(slots[at], "origin", Ref(ids[places[at]], number))
    numbers = tables.nodes.indexes("storage", len(slots), "saved slot", len(keys), "the storages")
    _set(compress(slots, numbers), "storage", map(keys.__getitem__, filter(None, numbers)))
    return _dealt(iter(slots), shares)


def _exceptions(tables: Tables, column: str, flat: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Which entries of a flat column of references mean another output than the first, and which."""
    numbers = tables.nodes[f"{column}_nr"]
    at = tables.nodes.indexes(f"{column}_at", len(numbers), "output number", len(flat), f"column nodes.{column}")
    if not all(map(flat.__getitem__, at)):
        raise damaged(f"column nodes.{column}_at names an entry without a node")
    if numbers and max(numbers) > _LARGEST:
        raise damaged(f"column nodes.{column}_nr holds an integer of 64 bits")
    return at, numbers


def _bases(tables: Tables, shares: Sequence[int], ids: Sequence[str]) -> Iterator[str]:
    views, distances = placed(shares), tables.nodes["base"]
    for place, distance in zip(views, distances, strict=True):
        if not 0 < distance <= place:
            raise damaged(f"node {excerpt(ids[place])}: its base does not stand before it")
    return map(ids.__getitem__, map(sub, views, distances))


def _scopes(tables: Tables) -> list[Scope]:
    columns = tables.scopes
    count = columns.length("path")
    values: dict[str, Sequence[Any]] = {}
    for field in fields_of(Scope):
        if field.key in LATER_SCOPE_COLUMNS:
            if field.key in columns:
                values[field.name] = _later_values(tables, field, count)
        elif isinstance(field.type, StrType):
            numbers = columns.indexes(field.key, count, "scope", len(tables.strings), "the strings")
            values[field.name] = list(map(tables.strings.__getitem__, numbers))
        else:
            values[field.name] = _numbers(columns.counted(field.key, count, "scope"))
    return [Scope(**dict(zip(values, row, strict=True))) for row in zip(*values.values(), strict=True)]


def _numbers(column: Sequence[int]) -> Sequence[int]:
    if column and max(column) > _LARGEST:
        raise damaged("a column of scopes holds an integer of 64 bits")
    return column


def _later_values(tables: Tables, field: Field, count: int) -> list[Any]:
    if is_flag(field):
        return list(map(FLAGS.__getitem__, tables.scopes.indexes(field.key, count, "scope", len(FLAGS), "its words")))
    texts = tables.strings
    numbers = tables.scopes.indexes(field.key, count, "scope", len(texts), "the strings")
    try:
        return [msgspec.json.decode(texts[number], type=field.hint) if number else field.default for number in numbers]
    except msgspec.MsgspecError as error:
        raise damaged(f"column {tables.scopes.title(field.key)} names a text that is no value: {error}") from error
