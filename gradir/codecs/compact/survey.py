"""Counts from the columns of a compact document: what is common to many nodes is counted once, by kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import compress
from operator import mul, sub

from gradir.codecs.compact.columns import placed, shares_of, spread
from gradir.codecs.compact.decode import Filler, decode, ids_of
from gradir.codecs.compact.layout import NODE
from gradir.codecs.compact.reader import read
from gradir.codecs.compact.tables import Table
from gradir.codecs.faults import damaged
from gradir.codecs.surveyor import Output, Survey, by_frequency, survey_graph
from gradir.ir import Node
from gradir.ir.graph import Edges
from gradir.ir.saved import OWNERS, folded_bytes
from gradir.ir.totals import Totals, bounded, parameter_elements

__all__ = ["survey"]


def survey(data: bytes) -> Survey:
    """What is in a compact document.

    Raises:
        FormatError: it is broken or of a version that cannot be read. What only the whole graph shows, such as an id
            that occurs twice, goes unnoticed.
    """
    tables = read(data)
    nodes = tables.nodes
    if any(slot.storage and not slot.storage.startswith(NODE) for kind in nodes.kinds for slot in kind.saved):
        # Which storage a text names shows only beside the ids.
        return survey_graph(decode(data), "msgpack", str(tables.version))
    counted = [_counts(kind) for kind in nodes.kinds]
    edges, parameters, saved_bytes = (
        sum(map(mul, column, nodes.weights)) for column in zip(*counted, (0, 0, 0), strict=True)
    )
    kinds = [(kind, count) for kind, count in zip(nodes.kinds, nodes.weights, strict=True) if count]
    outputs = _outputs(nodes)
    return Survey(
        encoding="msgpack",
        version=str(tables.version),
        producer=tables.producer,
        totals=Totals(len(nodes.kind_of), edges, bounded(parameters), bounded(saved_bytes + _shared_bytes(nodes))),
        roles=_by_word((kind.role, count) for kind, count in kinds),
        ops=_by_word((kind.op, count) for kind, count in kinds if kind.role == "function"),
        scopes=len(tables.scopes.kind_of),
        cuts=tuple(Filler(tables, ()).records(tables.cuts)),
        outputs=tuple(map(Output, ids_of(tables, outputs), [nodes.kinds[nodes.kind_of[at]].outputs for at in outputs])),
    )


def _by_word(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for word, count in pairs:
        found[word] += count
    return by_frequency(found)


def _outputs(nodes: Table) -> list[int]:
    """The places of the outputs, of which there are few."""
    shares = shares_of(nodes.kind_of, [int(kind.role == "output") for kind in nodes.kinds])
    if isinstance(shares, bytes):
        return [found.start() for found in re.finditer(b"\1", shares)]
    return list(compress(range(len(shares)), shares))


def _counts(kind: Node) -> tuple[int, int, int]:
    """The edges, the parameters, and the bytes of saved storages that are the slots' own, of one node of a kind."""
    own = sum(slot.bytes or 0 for slot in kind.saved if not slot.storage)
    return len(Edges({"": kind})), parameter_elements(kind), folded_bytes(kind) + own


def _shared_bytes(nodes: Table) -> int:
    """What storages with a key take, beyond those slots that they are the own storages of.

    As `gradir.ir.saved` has it, with the place of a node and what follows its id for the key of a storage.
    """
    saved = next(plan for plan in nodes.plans if plan.hole.name == "saved")
    storage = next(plan for plan in saved.inner if plan.hole.name == "storage")
    if not any(storage.counts):
        return 0
    rows = spread(range(len(saved.rows)), saved.counts, nodes.kind_of)
    named = shares_of(rows, storage.counts)
    holders = compress(placed(shares_of(nodes.kind_of, saved.counts)), named)
    shared: dict[tuple[int, str], int] = {}
    for place, row in zip(map(sub, holders, nodes.column(storage.hole.path)), compress(rows, named), strict=True):
        size, key = saved.rows[row].bytes, (place, storage.values[row])
        if size is not None:
            shared[key] = max(shared.get(key, 0), size)
    total = 0
    for (place, text), size in shared.items():
        if not 0 <= place < len(nodes.kind_of):
            raise damaged(f"column {nodes.title(storage.hole.path)} names a place outside the nodes")
        kind = nodes.kinds[nodes.kind_of[place]]
        if text == NODE and kind.role in OWNERS:
            continue
        own = (slot.bytes for slot in kind.saved if not slot.storage and f"{NODE}.{slot.slot}" == text)
        total += size - min(size, next((size for size in own if size is not None), 0))
    return total
