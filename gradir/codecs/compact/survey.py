"""Counts from the columns of a compact document: what is common to many nodes is counted once, by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, compress

from gradir.codecs.compact.columns import counts_of
from gradir.codecs.compact.fit import check_fit
from gradir.codecs.compact.keys import node_ids, storages
from gradir.codecs.compact.layout import Kind
from gradir.codecs.compact.reader import read
from gradir.codecs.compact.shares import marked, placed, shares_of
from gradir.codecs.compact.tables import Tables
from gradir.codecs.surveyor import Output, Survey, by_frequency
from gradir.ir.saved import OWNERS, whole_number
from gradir.ir.totals import Totals, bounded, tensor_elements

__all__ = ["survey"]


def survey(data: bytes) -> Survey:
    """What is in a compact document.

    Raises:
        FormatError: it is broken or of a version that cannot be read. What only the whole graph shows, such as an id
            that occurs twice, goes unnoticed.
    """
    tables = read(data)
    check_fit(tables)
    kinds = tables.kinds
    kind_of = tables.kind_of
    counts = counts_of(kind_of)
    outputs = marked(kind_of, [kind.role == "output" for kind in kinds])
    inputs = counts_of(tables.nodes["in"])
    return Survey(
        encoding="msgpack",
        version=str(tables.version),
        producer=tables.producer,
        totals=Totals(
            len(kind_of),
            tables.nodes.length("in") - inputs.get(0, 0) + tables.nodes.length("base"),
            bounded(sum(_parameters(kinds[kind]) * count for kind, count in counts.items())),
            bounded(
                _saved_bytes(tables, kind_of) + sum(_folded(kinds[kind]) * count for kind, count in counts.items())
            ),
        ),
        roles=_counted((kinds[kind].role, count) for kind, count in counts.items()),
        ops=_counted((kinds[kind].op, count) for kind, count in counts.items() if kinds[kind].role == "function"),
        scopes=len(tables.scopes["path"]),
        cuts=tables.cuts,
        outputs=tuple(map(Output, node_ids(tables, outputs), [kinds[kind_of[place]].outputs for place in outputs])),
    )


def _counted(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for word, count in pairs:
        found[word] += count
    return by_frequency(found)


def _parameters(kind: Kind) -> int:
    if kind.role == "module":
        return whole_number(kind.attrs, "parameters")
    return tensor_elements(kind.outputs[0]) if kind.role == "parameter" and kind.outputs else 0


def _folded(kind: Kind) -> int:
    return whole_number(kind.attrs, "saved_bytes") if kind.role == "module" else 0


def _saved_bytes(tables: Tables, kind_of: Sequence[int]) -> int:
    """As `gradir.ir.totals.saved_bytes`, with a place and a text for the key of a storage."""
    if not tables.nodes.length("storage"):
        return 0
    slots = [kind.saved for kind in tables.kinds]
    shares = shares_of(kind_of, [len(kind) for kind in slots])
    holding: Sequence[int] = list(compress(kind_of, shares))
    sizes = list(chain.from_iterable(map([[slot.bytes for slot in kind] for kind in slots].__getitem__, holding)))
    places, texts = storages(tables)
    numbers = tables.nodes.indexes("storage", len(sizes), "saved slot", len(places) + 1, "the storages")
    shared: dict[tuple[int, int], int] = {}
    for number, size in compress(zip(numbers, sizes, strict=True), numbers):
        if size is not None:
            key = places[number - 1], texts[number - 1]
            shared[key] = max(shared.get(key, 0), size)
    text_numbers = {tables.strings[number]: number for number in sorted(set(texts))}
    own_texts = [[text_numbers.get(f".{slot.slot}") for slot in kind] for kind in slots]
    alone = 0
    holders = placed(shares)
    own_keys = chain.from_iterable(map(own_texts.__getitem__, holding))
    seen: set[tuple[int, int]] = set()
    for holder, text, number, size in zip(holders, own_keys, numbers, sizes, strict=True):
        if number or size is None:
            continue
        key = holder + 1, -1 if text is None else text
        if text is None or key in seen or key not in shared:
            alone += size
        else:
            seen.add(key)
            shared[key] = max(shared[key], size)
    return alone + sum(size for key, size in shared.items() if not _owned(tables, kind_of, key))


def _owned(tables: Tables, kind_of: Sequence[int], key: tuple[int, int]) -> bool:
    place, text = key
    return place > 0 and text == 0 and tables.kinds[kind_of[place - 1]].role in OWNERS
