"""Counts from the columns of a compact document: what is common to many nodes is counted once, by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import sub

from gradir.codecs.compact.columns import placed, shares_of, spread
from gradir.codecs.compact.decode import Filler, decode, ids_of
from gradir.codecs.compact.layout import NODE
from gradir.codecs.compact.reader import read
from gradir.codecs.compact.tables import Table
from gradir.codecs.faults import damaged
from gradir.codecs.surveyor import Output, Survey, by_frequency, survey_graph
from gradir.ir.edges import number_into
from gradir.ir.ids import storage_key
from gradir.ir.merged import bytes_told
from gradir.ir.saved import OWNERS
from gradir.ir.totals import Totals, bounded, parameter_elements

__all__ = ["survey"]

_STORAGE = "saved.storage"


def survey(data: bytes) -> Survey:
    """What is in a compact document.

    Raises:
        FormatError: it is broken or of a version that cannot be read. What only the whole graph shows, such as an id
            that occurs twice, goes unnoticed.
    """
    tables = read(data)
    nodes = tables.nodes
    if any(slot.storage[:1] not in {"", NODE} for kind in nodes.kinds for slot in kind.saved):
        # Which storage a text names shows only beside the ids.
        return survey_graph(decode(data), "msgpack", str(tables.version))
    kinds = [(kind, count) for kind, count in zip(nodes.kinds, nodes.weights, strict=True) if count]
    own = sum(count * (slot.bytes or 0) for kind, count in kinds for slot in kind.saved if not slot.storage)
    told = sum(count * bytes_told(kind) for kind, count in kinds)
    outputs = sorted(
        chain.from_iterable(_places(nodes, at) for at, kind in enumerate(nodes.kinds) if kind.role == "output")
    )
    return Survey(
        encoding="msgpack",
        version=str(tables.version),
        producer=tables.producer,
        rank=tables.rank,
        collectives=len(tables.collectives),
        totals=Totals(
            len(nodes.kind_of),
            sum(count * number_into(kind) for kind, count in kinds),
            bounded(sum(count * parameter_elements(kind) for kind, count in kinds)),
            bounded(own + told + _shared_bytes(nodes)),
        ),
        roles=_by_word((kind.role, count) for kind, count in kinds),
        ops=_by_word((kind.op, count) for kind, count in kinds if kind.role == "function"),
        scopes=len(tables.scopes.kind_of),
        cuts=tuple(Filler(tables, ()).records(tables.cuts)),
        outputs=tuple(map(Output, ids_of(tables, outputs), [nodes.kinds[nodes.kind_of[at]].outputs for at in outputs])),
    )


def _places(nodes: Table, kind: int) -> Iterator[int]:
    """Where the nodes of a kind stand; most files have few outputs, which are not looked for one by one."""
    place = -1
    for _ in range(nodes.weights[kind]):
        place = nodes.kind_of.index(kind, place + 1)
        yield place


def _by_word(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for word, count in pairs:
        found[word] += count
    return by_frequency(found)


def _shared_bytes(nodes: Table) -> int:
    """What storages with a key take, beyond those slots that they are the own storages of.

    As `gradir.ir.saved` has it, with the place of a node and what follows its id for the key of a storage.
    """
    slots = [[slot for slot in kind.saved if slot.storage] for kind in nodes.kinds]
    counts = list(map(len, slots))
    if not any(counts):
        return 0
    holders = placed(shares_of(nodes.kind_of, counts))
    shared: dict[tuple[int, str], int] = {}
    for slot, place in zip(
        spread(list(chain.from_iterable(slots)), counts, nodes.kind_of),
        map(sub, holders, nodes.columns[_STORAGE]),
        strict=True,
    ):
        if slot.bytes is not None:
            shared[place, slot.storage] = max(shared.get((place, slot.storage), 0), slot.bytes)
    total = 0
    for (place, text), size in shared.items():
        if not 0 <= place < len(nodes.kind_of):
            raise damaged(f"column {nodes.title(_STORAGE)} names a place outside the nodes")
        kind = nodes.kinds[nodes.kind_of[place]]
        if text == NODE and kind.role in OWNERS:
            continue
        own = (slot.bytes for slot in kind.saved if not slot.storage and storage_key(NODE, slot.slot) == text)
        total += size - min(size, next((size for size in own if size is not None), 0))
    return total
