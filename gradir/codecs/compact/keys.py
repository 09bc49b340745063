"""Texts that a compact document holds in parts: the ids of nodes and the keys of storages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradir.codecs.compact.tables import Tables
from gradir.codecs.faults import damaged

__all__ = ["node_ids", "storage_keys", "storages"]

_EXPANSION: Final = 64
_SPARE: Final = 1 << 20
"""Ids may have this many characters in all, and `_EXPANSION` more for each byte of the file. Honest files have 5."""


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
    _check_length(tables, (heads, texts), (strings, scopes), (ops, kind_of))
    return [
        f"{heads[text]}{ordinal or ''}"
        if text
        else f"{strings[scope]}/{ops[kind]}{ordinal}"
        if strings[scope]
        else f"{ops[kind]}{ordinal}"
        for text, ordinal, scope, kind in zip(*parts, strict=True)
    ]


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
    heads = ["", *ids]
    _check_length(tables, (heads, owners), (tables.strings, texts))
    return ["", *(heads[owner] + tables.strings[text] for owner, text in zip(owners, texts, strict=True))]


def _check_length(tables: Tables, *parts: tuple[list[str], Sequence[int]]) -> None:
    most = _SPARE + _EXPANSION * tables.size
    # What all of them would be if each were the longest is known faster, and nearly always little enough.
    if sum(max(map(len, texts), default=0) * len(indexes) for texts, indexes in parts) <= most:
        return
    total = sum(len(texts[index]) for texts, indexes in parts for index in indexes)
    if total > most:
        raise damaged(f"ids of {total:,} characters in all are out of proportion to {tables.size:,} bytes")
