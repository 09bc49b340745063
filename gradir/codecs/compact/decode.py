"""Compact bytes to Graph.

A node is a copy of its kind's node with a few fields set, which costs a third of a constructor's call, and every loop
over nodes that can runs inside `map`. That inputs exist and stand before their consumers is how they are written down;
what is left to check are the ends of the columns, the output numbers and the ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, compress, pairwise, repeat
from operator import methodcaller, sub
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from gradir.codecs.compact.fit import check_fit
from gradir.codecs.compact.keys import node_ids, storage_keys
from gradir.codecs.compact.layout import SCOPE_COLUMNS, TRAINING, TRAINING_WORDS, Kind
from gradir.codecs.compact.reader import Tables, read
from gradir.codecs.document import to_graph
from gradir.codecs.excerpt import excerpt
from gradir.errors import FormatError
from gradir.gcpause import paused_gc
from gradir.ir import Graph, Node, Ref, Saved, Scope

__all__ = ["decode", "placed"]

_LARGEST: Final = 2**63 - 1
_COPY: Final = methodcaller("__copy__")


def decode(data: bytes) -> Graph:
    """The graph in a compact document.

    Raises:
        FormatError: it is broken, of a version that cannot be read, or breaks a rule of the IR.
    """
    with paused_gc():
        tables = read(data)
        check_fit(tables)
        kinds, strings = tables.kinds, tables.strings
        ids = node_ids(tables)
        kind_of: Sequence[int] = tables.nodes["kind"]
        templates = [_template(kind) for kind in kinds]
        nodes: list[Node] = list(map(_COPY, map(templates.__getitem__, kind_of)))
        _set(nodes, "id", ids)
        _set(nodes, "scope", map(strings.__getitem__, tables.nodes["scope"]))
        refs = list(map(Ref, ids, repeat(0)))
        _deal(nodes, kind_of, "names", [kind.names for kind in kinds], _names(tables, kind_of))
        _deal(nodes, kind_of, "inputs", [kind.inputs for kind in kinds], _inputs(tables, nodes, refs))
        _deal(nodes, kind_of, "saved", [len(kind.saved) for kind in kinds], _saved(tables, refs))
        _set_bases(nodes, tables)
        return to_graph(nodes, _scopes(tables), tables.cuts, tables.producer, tables.version)


def placed(kind_of: Sequence[int], counts: Sequence[int]) -> list[int]:
    """The place of the node that each entry of a flat column belongs to, given the number of entries by kind."""
    if not any(counts):
        return []
    return list(chain.from_iterable(map(repeat, range(len(kind_of)), map(counts.__getitem__, kind_of))))


def _template(kind: Kind) -> Node:
    return Node(
        "",
        kind.role,
        kind.op,
        kind.native,
        outputs=kind.outputs,
        attrs=kind.attrs,
        opaque=kind.opaque,
        source=kind.source,
        ext=kind.ext,
    )


def _set(records: Iterable[msgspec.Struct], field: str, values: Iterable[object]) -> None:
    deque(map(force_setattr, records, repeat(field), values), 0)


def _deal(
    nodes: Sequence[Node], kind_of: Sequence[int], field: str, counts: Sequence[int], flat: tuple[Any, ...]
) -> None:
    """Give each node its share of a flat column."""
    if not flat:
        return
    shares = list(map(counts.__getitem__, kind_of))
    ends = accumulate(filter(None, shares), initial=0)
    _set(compress(nodes, shares), field, [flat[start:end] for start, end in pairwise(ends)])


def _names(tables: Tables, kind_of: Sequence[int]) -> tuple[str, ...]:
    count = sum(map([kind.names for kind in tables.kinds].__getitem__, kind_of))
    names = tables.nodes.indexes("names", count, "name", len(tables.strings), "the strings")
    return tuple(map(tables.strings.__getitem__, names))


def _inputs(tables: Tables, nodes: Sequence[Node], refs: Sequence[Ref]) -> tuple[Ref | None, ...]:
    consumers = placed(tables.nodes["kind"], [kind.inputs for kind in tables.kinds])
    distances = tables.nodes.counted("in", len(consumers), "input slot")
    producers = list(map(sub, consumers, distances))
    if producers and min(producers) < 0:
        raise FormatError("column nodes.in names a place before the first node")
    flat = [refs[place] if distance else None for place, distance in zip(producers, distances, strict=True)]
    for at, number in _exceptions(tables, "in", flat):
        producer = nodes[producers[at]]
        if producer.outputs and number >= len(producer.outputs):
            raise FormatError(
                f"node {excerpt(refs[consumers[at]].id)}: an input names output {number} of {excerpt(producer.id)}, "
                "which has no such output"
            )
        flat[at] = Ref(producer.id, number)
    return tuple(flat)


def _saved(tables: Tables, refs: Sequence[Ref]) -> tuple[Saved, ...]:
    templates = [
        [Saved(slot.slot, slot.dtype, slot.shape, slot.bytes, state=slot.state) for slot in kind.saved]
        for kind in tables.kinds
    ]
    slots: list[Saved] = list(map(_COPY, chain.from_iterable(map(templates.__getitem__, tables.nodes["kind"]))))
    holders = placed(tables.nodes["kind"], [len(kind.saved) for kind in tables.kinds])
    codes = tables.nodes.counted("origin", len(slots), "saved slot")
    places = [
        place - (code >> 1) if code & 1 else place + (code >> 1) for place, code in zip(holders, codes, strict=True)
    ]
    if places and (min(places) < 0 or max(places) >= len(refs)):
        raise FormatError("column nodes.origin names a place outside the nodes")
    origins = [refs[place] if code else None for place, code in zip(places, codes, strict=True)]
    for at, number in _exceptions(tables, "origin", origins):
        origins[at] = Ref(refs[places[at]].id, number)
    _set(slots, "origin", origins)
    keys = storage_keys(tables, [ref.id for ref in refs])
    numbers = tables.nodes.indexes("storage", len(slots), "saved slot", len(keys), "the storages")
    _set(compress(slots, numbers), "storage", map(keys.__getitem__, filter(None, numbers)))
    return tuple(slots)


def _exceptions(tables: Tables, column: str, flat: Sequence[Ref | None]) -> list[tuple[int, int]]:
    """Which entries of a flat column of references mean another output than the first, and which."""
    numbers = tables.nodes[f"{column}_nr"]
    at = tables.nodes.indexes(f"{column}_at", len(numbers), "output number", len(flat), f"column nodes.{column}")
    if not all(map(flat.__getitem__, at)):
        raise FormatError(f"column nodes.{column}_at names an entry without a node")
    if numbers and max(numbers) > _LARGEST:
        raise FormatError(f"column nodes.{column}_nr holds an integer of 64 bits")
    return list(zip(at, numbers, strict=True))


def _set_bases(nodes: Sequence[Node], tables: Tables) -> None:
    views = placed(tables.nodes["kind"], [int(kind.base) for kind in tables.kinds])
    distances = tables.nodes.counted("base", len(views), "node with a base")
    for place, distance in zip(views, distances, strict=True):
        if not 0 < distance <= place:
            raise FormatError(f"node {excerpt(nodes[place].id)}: its base does not stand before it")
        force_setattr(nodes[place], "base", nodes[place - distance].id)


def _scopes(tables: Tables) -> list[Scope]:
    columns, strings = tables.scopes, tables.strings
    count = len(columns["path"])
    texts = [
        map(strings.__getitem__, columns.indexes(name, count, "scope", len(strings), "the strings"))
        for name in SCOPE_COLUMNS[:3]
    ]
    counts = [columns.counted(name, count, "scope") for name in SCOPE_COLUMNS[3:]]
    if any(column and max(column) > _LARGEST for column in counts):
        raise FormatError("a column of scopes holds an integer of 64 bits")
    training = (
        columns.indexes(TRAINING, count, "scope", len(TRAINING_WORDS), "its words") if TRAINING in columns else []
    )
    return list(map(Scope, *texts, *counts, *([map(TRAINING_WORDS.__getitem__, training)] if training else ())))
