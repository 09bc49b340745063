"""Whether the columns of nodes fit the kinds, found out by counting: a short file must not make anything long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from gradir.codecs.compact.columns import counts_of
from gradir.codecs.compact.layout import Kind
from gradir.codecs.compact.tables import Tables

__all__ = ["check_fit", "is_in_proportion"]

_EXPANSION: Final = 200
_SPARE: Final = 1 << 20

_ENTRIES: Final[tuple[tuple[str, str, Callable[[Kind], int]], ...]] = (
    ("names", "name", lambda kind: kind.names),
    ("in", "input slot", lambda kind: kind.inputs),
    ("base", "node with a base", lambda kind: int(kind.base)),
    ("origin", "saved slot", lambda kind: len(kind.saved)),
    ("storage", "saved slot", lambda kind: len(kind.saved)),
)
"""The columns that hold as many entries for a node as its kind says."""


def check_fit(tables: Tables) -> None:
    """Refuse columns whose length is not what the kinds of the nodes ask for.

    A kind may ask for any number of entries, so nothing may be made of its numbers before.

    Raises:
        FormatError: a column is longer or shorter.
    """
    columns, kinds = tables.nodes, tables.kinds
    counts = counts_of(tables.kind_of)
    for name, per, entries in _ENTRIES:
        columns.check_length(name, sum([entries(kinds[number]) * count for number, count in counts.items()]), per)


def is_in_proportion(
    size: int,
    column: Callable[[str], Sequence[int]],
    *,
    strings: Sequence[str],
    kinds: Sequence[Any],
    longest: tuple[int, int],
) -> bool:
    """Whether what a document of so many bytes says is about 200 times as long at most, or a mebibyte.

    A node says in a few bytes that it is of a kind, stands in a module and takes another's output. What is done with a
    graph takes memory by how long these are when they are spelled. JSON is up to some 30 times the document. A
    reference counts as the ``longest`` id, or the longest key of a storage.
    """
    room = max(_SPARE, _EXPANSION * size)
    references = sum(len(column(name)) for name in ("in", "base", "origin"))
    room -= references * longest[0] + len(column("storage")) * longest[1]
    texts = column("scope"), column("names")
    widest = max(map(len, strings))
    if widest * sum(map(len, texts)) <= room // 2:
        room //= 2
    else:
        room -= sum(len(strings[at]) * count for counts in map(counts_of, texts) for at, count in counts.items())
    # Those of which there are few take no more than that many times the document.
    often = [(at, count) for at, count in counts_of(column("kind")).items() if count > _EXPANSION // 4]
    return sum(len(msgspec.msgpack.encode(kinds[at])) * count for at, count in often) <= room
