"""Mutants: good documents with a few edits, each made from a seed alone.

Most edits know the structure of a document, so that what comes out is often still one, or nearly: a key is repeated or
stands elsewhere, a value is of another type. Some are edits of bytes.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from functools import cache, lru_cache
from random import Random
from typing import Any, Final, NamedTuple

import zstandard
from document_trees import json_bytes, msgpack_bytes, parse_json, parse_msgpack
from mutant_edits import bytes_edited, tree_edited
from mutant_sources import good_document, graphs, pairs

import gradir
from gradir import codecs
from gradir.codecs.compression import compress
from gradir.codecs.document import BOM
from gradir.diffs.diff_json import encode as encode_diff
from gradir.ir import Graph

__all__ = ["KINDS", "Mutant", "mutant", "mutate"]

KINDS: Final = ("json", "msgpack", "compressed", "diff")


class Mutant(NamedTuple):
    """What was made, and the graphs that it was made from: that of the document, or both sides of the diff."""

    kind: str
    data: bytes
    graphs: tuple[Graph, ...]


def mutant(kind: str, seed: int) -> Mutant:
    """The mutant of a kind that a seed gives: the same in every process of one Python."""
    chance = Random(f"{kind} {seed}")
    if kind == "diff":
        number = chance.randrange(len(pairs()))
        tree = _diff_tree(number)
        data = json_bytes(tree_edited(tree, chance), by_lines=False)
        return Mutant(kind, _sometimes(chance, 0.1, bytes_edited, data), pairs()[number])
    number = chance.randrange(len(graphs()))
    encoding = {"json": "json", "msgpack": "msgpack"}.get(kind) or chance.choice(["json", "msgpack"])
    if kind == "compressed":
        data = _sometimes(chance, 0.5, _change, good_document(number, encoding))
        data = _sometimes(chance, 0.5, bytes_edited, _compress(data, chance))
    else:
        data = _change(good_document(number, encoding), chance)
    return Mutant(kind, data, (graphs()[number],))


def mutate(data: bytes, chance: Random) -> bytes:
    """Any document after a few edits, its compression taken off and put on again; bytes that are none as bytes."""
    try:
        inner = codecs.decompress(data)
    except gradir.GradirError:
        return bytes_edited(data, chance)
    changed = _change(inner, chance)
    return changed if inner is data else _compress(changed, chance)


@cache
def _diff_tree(number: int) -> Any:
    return parse_json(encode_diff(gradir.diff(*pairs()[number])))


def _is_msgpack(data: bytes) -> bool:
    return b"\x80" <= data[:1] <= b"\xdf"


@lru_cache(maxsize=1024)
def _tree_of(data: bytes) -> Any:
    return parse_msgpack(data) if _is_msgpack(data) else parse_json(data)


def _change(data: bytes, chance: Random) -> bytes:
    """A document after edits of its tree, and now and then of its bytes."""
    try:
        return _tree_changed(data, chance)
    except (ValueError, RecursionError):
        # It is no document, or one that is nested deeply.
        return bytes_edited(data, chance)


def _tree_changed(data: bytes, chance: Random) -> bytes:
    tree = _tree_of(data)
    if chance.random() < 0.95:
        tree = tree_edited(tree, chance)
    if _is_msgpack(data):
        return _sometimes(chance, 0.1, bytes_edited, msgpack_bytes(tree))
    text = json_bytes(tree, by_lines=chance.random() < 0.8)
    text = chance.choice([BOM, b" ", b"\n", BOM * 2, b"\t" * 300]) + text if chance.random() < 0.03 else text
    return _sometimes(chance, 0.1, bytes_edited, text)


def _sometimes(chance: Random, share: float, edit: Callable[[bytes, Random], bytes], data: bytes) -> bytes:
    return edit(data, chance) if chance.random() < share else data


def _compress(data: bytes, chance: Random) -> bytes:
    """The document compressed in one of the many ways there are, some of them wrong."""
    cut = chance.randrange(len(data) + 1)
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: compress(data, "gzip"),
        lambda: compress(data, "zstd"),
        lambda: gzip.compress(data, chance.choice([0, 1, 9]), mtime=chance.randrange(99)),
        lambda: zstandard.ZstdCompressor(level=chance.choice([1, 3, 19]), write_content_size=False).compress(data),
        lambda: _gzip(data[:cut]) + _gzip(data[cut:]),
        lambda: zstandard.compress(data[:cut]) + zstandard.compress(data[cut:]),
        lambda: _gzip(data[:cut]) + zstandard.compress(data[cut:]),
        lambda: _gzip(_gzip(data)),
        lambda: zstandard.compress(_gzip(data)),
        lambda: _gzip(data) + data[:cut],
        lambda: b"\x1f\x8b\x08\x1c" + bytes(6) + b"\x02\x00abname\x00note\x00" + _gzip(data)[10:],
        lambda: b"\x28\xb5\x2f\xfd\x00\x58" + _make_stored_block(data) if len(data) < 1 << 17 else data,
        lambda: zlib.compress(data),
        lambda: _gzip(data + b" " * chance.choice([10, 100_000, 3_000_000])),
        lambda: zstandard.compress(data + b" " * chance.choice([10, 100_000, 3_000_000])),
        lambda: _gzip(b"") * chance.choice([1, 30]) + _gzip(data),
    )
    return chance.choice(ways)()


def _gzip(data: bytes) -> bytes:
    # Without a time of its own the file would be another each second.
    return gzip.compress(data, mtime=0)


def _make_stored_block(data: bytes) -> bytes:
    return (len(data) << 3 | 1).to_bytes(3, "little") + data
