"""Texts that a compact document holds in parts: the ids of nodes and the keys of storages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from gradir.codecs.compact.tables import Tables
from gradir.codecs.faults import damaged

__all__ = ["fit", "node_ids", "storage_keys", "storages"]

_EXPANSION: Final = 32
_SPARE: Final = 1 << 20
"""Ids and keys may take this many bytes of memory in all, and `_EXPANSION` more for each byte of the file."""

_EACH: Final = 76
_WIDEST: Final = 4
"""What a text takes in memory beside its characters, and for each where not all are ASCII: at most, in any Python."""

_DIGITS: Final = 20

_TOO_LONG: Final = "its ids are out of proportion to the bytes of the file"


def node_ids(tables: Tables, places: Sequence[int] | None = None) -> list[str]:
    """The ids of the nodes at these places, or of all nodes.

    Raises:
        FormatError: the columns do not fit each other, or make ids out of all proportion to the file.
    """
    columns, strings, kinds = tables.nodes, tables.strings, tables.kinds
    count = len(tables.kind_of)
    parts: tuple[Sequence[int], ...] = (
        columns.indexes("id", count, "node", len(strings) + 1, "the strings", places=places),
        columns.counted("ordinal", count, "node", places=places),
        columns.indexes("scope", count, "node", len(strings), "the strings", places=places),
        tables.kind_of if places is None else [tables.kind_of[place] for place in places],
    )
    texts, _, scopes, kind_of = parts
    heads = ["", *strings]
    ops = [f"{kind.op}:" for kind in kinds]
    most = _most(len(kind_of), (heads, texts), (strings, scopes), (ops, kind_of))
    made = (
        f"{heads[text]}{ordinal or ''}"
        if text
        else f"{strings[scope]}/{ops[kind]}{ordinal}"
        if strings[scope]
        else f"{ops[kind]}{ordinal}"
        for text, ordinal, scope, kind in zip(*parts, strict=True)
    )
    return _made(made, most, _room(tables.size))


def storages(tables: Tables) -> tuple[Sequence[int], Sequence[int]]:
    """By number less one, the two parts of the key of each storage: 0 or 1 + the place of a node, and a text.

    Raises:
        FormatError: the columns do not fit each other.
    """
    columns = tables.nodes
    count = columns.length("storage_node")
    return (
        columns.indexes("storage_node", count, "storage", columns.length("kind") + 1, "the nodes"),
        columns.indexes("storage_text", count, "storage", len(tables.strings), "the strings"),
    )


def storage_keys(tables: Tables, ids: Sequence[str]) -> list[str]:
    """The storage keys by number; number 0 is the empty key.

    Raises:
        FormatError: the columns do not fit each other, or make keys out of all proportion to the file.
    """
    owners, texts = storages(tables)
    if not owners:
        return [""]
    heads = ["", *ids]
    made = (heads[owner] + tables.strings[text] for owner, text in zip(owners, texts, strict=True))
    most = _most(len(owners), (heads, owners), (tables.strings, texts))
    room = _room(tables.size)
    if most + _most(len(ids), (heads, range(len(heads)))) > room:
        room -= sum(map(_memory, ids))
    return ["", *_made(made, most, room)]


def fit(ids: Iterable[str], keys: Iterable[str], size: int) -> bool:
    """Whether a document of so many bytes may hold these ids and keys: what its readers ask, asked by its writer.

    >>> fit(["fc/addmm:1"], [], 100), fit([100_000 * "a"] * 20, [], 100)
    (True, False)
    """
    return sum(map(_memory, chain(ids, keys))) <= _room(size)


def _room(size: int) -> int:
    return _SPARE + _EXPANSION * size


def _memory(text: str) -> int:
    return _EACH + (len(text) if text.isascii() else _WIDEST * len(text))


def _most(count: int, *parts: tuple[Sequence[str], Sequence[int]]) -> int:
    """The memory of so many texts, were each made of the longest parts."""
    longest = sum(max(map(len, texts), default=0) for texts, indexes in parts if len(indexes))
    return count * (_EACH + _WIDEST * (longest + _DIGITS))


def _made(texts: Iterator[str], most: int, room: int) -> list[str]:
    if most <= room:
        return list(texts)
    made = []
    for text in texts:
        room -= _memory(text)
        if room < 0:
            raise damaged(_TOO_LONG)
        made.append(text)
    return made
