"""Mutants: good documents with a few edits, each made from a seed alone.

Most edits know the structure of a document, so that what comes out is often still one, or nearly: a key is repeated or
stands elsewhere, a value is of another type, a column is shorter than the others. Some are edits of bytes.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from functools import cache, lru_cache
from random import Random
from typing import Any, Final, NamedTuple

import msgspec
import zstandard
from document_trees import Members, Odd, compact_bytes, json_bytes, parsed_compact, parsed_json
from mutant_sources import graphs, pairs

import gradir
from gradir import codecs
from gradir.codecs.compact.columns import pack, unpack
from gradir.codecs.compact.layout import KEYS, TABLES, columns_of
from gradir.codecs.compression import compress
from gradir.codecs.document import BOM, MAGIC
from gradir.diffs.changes import Change, Diff, FieldChange, Growth
from gradir.diffs.diff_json import encode as encode_diff
from gradir.diffs.hunks import Hunk, Script
from gradir.ir import Cut, Graph, Node, Producer, Saved, Scope, Source, TensorMeta

__all__ = ["KINDS", "Mutant", "good_document", "mutant", "mutated"]

KINDS: Final = ("json", "compact", "compressed", "diff")


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
        data = json_bytes(_edited(tree, chance), by_lines=False)
        return Mutant(kind, _sometimes(chance, 0.1, _bytes_edited, data), pairs()[number])
    number = chance.randrange(len(graphs()))
    encoding = {"json": "json", "compact": "msgpack"}.get(kind) or chance.choice(["json", "msgpack"])
    if kind == "compressed":
        data = _sometimes(chance, 0.5, _changed, good_document(number, encoding))
        data = _sometimes(chance, 0.5, _bytes_edited, _compressed(data, chance))
    else:
        data = _changed(good_document(number, encoding), chance)
    return Mutant(kind, data, (graphs()[number],))


def mutated(data: bytes, chance: Random) -> bytes:
    """Any document after a few edits, its compression taken off and put on again; bytes that are none as bytes."""
    try:
        inner = codecs.decompress(data)
    except gradir.GradirError:
        return _bytes_edited(data, chance)
    changed = _changed(inner, chance)
    return changed if inner is data else _compressed(changed, chance)


@cache
def good_document(number: int, encoding: str) -> bytes:
    """A document of a sample graph."""
    return codecs.encode(graphs()[number], encoding)


@cache
def _diff_tree(number: int) -> Any:
    return parsed_json(encode_diff(gradir.diff(*pairs()[number])))


@lru_cache(maxsize=1024)
def _tree_of(data: bytes) -> Any:
    return parsed_compact(data) if data.startswith(MAGIC) else parsed_json(data)


def _changed(data: bytes, chance: Random) -> bytes:
    """A document after edits of its tree, and now and then of its bytes."""
    try:
        return _tree_changed(data, chance)
    except (ValueError, RecursionError):
        # It is no document, or one that is nested deeply.
        return _bytes_edited(data, chance)


def _tree_changed(data: bytes, chance: Random) -> bytes:
    tree = _tree_of(data)
    if chance.random() < 0.95:
        tree = _edited(tree, chance)
    if data.startswith(MAGIC):
        return _sometimes(chance, 0.1, _bytes_edited, compact_bytes(tree))
    text = json_bytes(tree, by_lines=chance.random() < 0.8)
    text = chance.choice([BOM, b" ", b"\n", BOM * 2, b"\t" * 300]) + text if chance.random() < 0.03 else text
    return _sometimes(chance, 0.1, _bytes_edited, text)


def _sometimes(chance: Random, share: float, edit: Callable[[bytes, Random], bytes], data: bytes) -> bytes:
    return edit(data, chance) if chance.random() < share else data


# Edits of trees. A tree is shared by all its mutants: what is changed is copied, and what leads to it.

_RECORDS: Final = (
    Node,
    Saved,
    Scope,
    Cut,
    Producer,
    Source,
    TensorMeta,
    Diff,
    Change,
    FieldChange,
    Growth,
    Hunk,
    Script,
)
_NAMES: Final[tuple[str, ...]] = (
    *KEYS,
    "kinds",
    *(column for record in TABLES.values() for column in columns_of(record)),
    *(field.encode_name for record in _RECORDS for field in msgspec.structs.fields(record)),
    "float",
    "later",
    "",
    "Op",
    "op ",
    "a\x1b[2J\nb\u202e",
    "__proto__",
    "k" * 5000,
)

_VERSIONS: Final = ("1.0", "1.1", "1.2", "1.999999", "1.9999999", "2.0", "0.9", "01.1", "1", "1.1\n", "9" * 5000, 1.0)

_STRANGE: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    *(0, 1, 2, 3, 255, 256, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63)),
    *(Odd(b"%d" % number, msgspec.msgpack.encode(number % 2**64)) for number in (2**64, -(2**63) - 1, 10**400)),
    Odd(b"9" * 5000, b"\xcb" + b"\x7f" * 8),
    *(Odd(text, msgspec.msgpack.encode(float(text))) for text in (b"0.5", b"1.0", b"-0.0", b"1e308", b"5e-324")),
    Odd(b"1e999", msgspec.msgpack.encode(float("inf"))),
    Odd(b"NaN", msgspec.msgpack.encode(float("nan"))),
    Odd(b"1E2", b"\xca\x00\x00\x00\x00"),
    *("", "a", "x", "s0", "1", "a.b.c", "a/b:1", "output", "function", "parameter", "module", "nan", "unreached"),
    *("\x1b[2J\x9b\x7f", "line\nend\r\u2028", "\u202eevil\u2066", "\ufffe", "é🔥", "x" * 5000, "0." * 300, "7" * 400),
    Odd(b'"\\ud800"', b"\xa3\xed\xa0\x80"),
    Odd(b'"\\u0041\\/"', b"\xd9\x01a"),
    Odd(b'"\xff"', b"\xa1\xff"),
    b"",
    b"\x01\x00",
    b"\x01" + bytes(range(20)),
    [],
    [[]],
    [[[[]]]],
    [None],
    ["x", 0],
    [["x", 0]],
    [2**63 - 1] * 17,
    [0] * 300,
    Members(),
    Members([("a", Members([("a", [])]))]),
    Members([("float", "nan")]),
    Members([("float", "x")]),
    [Members()],
    [Members([("kind", "")])] * 3,
    Odd(b"[" * 500 + b"]" * 500, b"\x91" * 500 + b"\xc0"),
    Odd(b'{"a":' * 1500 + b"1" + b"}" * 1500, b"\x81\xa1a" * 1500 + b"\xc0"),
    Odd(b"", b"\xd4\x05\x00"),
    Odd(b"x", b"\xc1"),
    Odd(b"[1,]", b"\xdd\x7f\xff\xff\xff"),
    Odd(b"\xe2\x80\xa8", b"\xd6\xff\x00\x00\x00\x01"),
)
_NUMBERS: Final = (0, 1, 2, 3, 7, 255, 256, 65_535, 65_536, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)


def _edited(tree: Any, chance: Random) -> Any:
    """A tree after one edit or a few."""
    source, tree = tree, _copied(tree)
    while True:
        if chance.random() < 0.04:
            _edit_head(tree, chance)
        else:
            _edit(tree, chance, source)
        if chance.random() < 0.6:
            return tree


def _edit_head(tree: Any, chance: Random) -> None:
    if not isinstance(tree, Members):
        return
    key, value = "version", chance.choice(_VERSIONS)
    if chance.random() < 0.3:
        key, value = "requires", chance.choice([[], ["x"], ["a"] * 90, ["y" * 5000], "x", [1]])
    places = [place for place, (name, _) in enumerate(tree) if name == key]
    if places:
        tree[places[0]] = (key, value)


def _edit(tree: Any, chance: Random, source: Any) -> None:
    holder = tree
    while isinstance(holder, list) and holder:
        place = chance.randrange(len(holder))
        value = _value(holder, place)
        if not isinstance(value, list) or not value or chance.random() < 0.2:
            edits = _KEY_EDITS if isinstance(holder, Members) else _ENTRY_EDITS
            chance.choice(edits)(holder, place, chance, source)
            return
        value = _copied(value)
        _put(holder, place, value)
        holder = value


def _copied(value: Any) -> Any:
    if isinstance(value, Members):
        return Members(value)
    return list(value) if isinstance(value, list) else value


def _value(holder: list[Any], place: int) -> Any:
    return holder[place][1] if isinstance(holder, Members) else holder[place]


def _put(holder: list[Any], place: int, value: Any) -> None:
    holder[place] = (holder[place][0], value) if isinstance(holder, Members) else value


def _other_value(source: Any, chance: Random) -> Any:
    """A value from anywhere in the tree as it was, or a strange one."""
    if chance.random() < 0.4:
        return chance.choice(_STRANGE)
    value = source
    while isinstance(value, list) and value and chance.random() < 0.85:
        value = _value(value, chance.randrange(len(value)))
    return value


def _repeat(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    value = holder[place]
    if isinstance(holder, Members) and chance.random() < 0.5:
        value = (value[0], _other_value(source, chance))
    holder.insert(chance.choice([0, place, place + 1, len(holder)]), value)


def _repeat_all(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    holder += holder[:50] if chance.random() < 0.5 else holder[place : place + 1] * chance.choice([2, 20, 300])


def _drop(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    del holder[place]


def _drop_many(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    holder[:] = holder[:place] if chance.random() < 0.5 else holder[place:]


def _move(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    holder.insert(chance.randrange(len(holder)), holder.pop(place))


def _rename(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    holder[place] = (chance.choice(_NAMES), holder[place][1])


def _odd_key(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    holder[place] = (chance.choice(_STRANGE), holder[place][1])


def _add_key(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    holder.insert(chance.randrange(len(holder) + 1), (chance.choice(_NAMES), _other_value(source, chance)))


def _add_entry(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    holder.insert(place, _other_value(source, chance))


def _exchange(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    other = chance.randrange(len(holder))
    value = _value(holder, place)
    _put(holder, place, _value(holder, other))
    _put(holder, other, value)


def _replace(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    _put(holder, place, _other_value(source, chance))


def _nest(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    value = _value(holder, place)
    _put(holder, place, Members([("a", value)]) if chance.random() < 0.3 else [value])


def _touch(holder: list[Any], place: int, chance: Random, source: Any) -> None:
    """Change a value a little, so that it stays what it is."""
    value = _value(holder, place)
    if isinstance(value, bool):
        value = not value
    elif isinstance(value, int):
        value = chance.choice([value + 1, value - 1, -value, value * 2, 10 * value + 1, chance.choice(_NUMBERS)])
    elif isinstance(value, str):
        at = chance.randrange(len(value) + 1)
        added = chance.choice(["", "x", ".", "/", ":1", ":2", "~2", "%", "\n", "\x00", "é", "."])
        value = value[:at] + added + value[at + chance.choice([0, 1, 9]) :]
    elif isinstance(value, bytes):
        value = _column_edited(value, chance)
    elif isinstance(value, list):
        value = value[: chance.randrange(len(value) + 1)] if type(value) is list else Members()
    _put(holder, place, value)


_VALUE_EDITS = (_replace, _replace, _touch, _touch, _touch, _nest, _exchange, _repeat, _repeat_all, _drop, _move)
_KEY_EDITS = (*_VALUE_EDITS, _repeat, _repeat, _rename, _rename, _add_key, _add_key, _odd_key)
_ENTRY_EDITS = (*_VALUE_EDITS, _add_entry, _add_entry, _drop_many)


def _column_edited(column: bytes, chance: Random) -> bytes:
    try:
        values = list(unpack(column))
    except ValueError:
        return _bytes_edited(column, chance)
    place = chance.randrange(len(values)) if values else 0
    match chance.randrange(9):
        case 0:
            values.insert(place, chance.choice(_NUMBERS))
        case 1:
            values += values[place:] * chance.choice([1, 9])
        case 2:
            del values[place : place + chance.choice([1, 1, 9])]
        case 3:
            return b"".join([b"\x08", *((value % 2**64).to_bytes(8, "little") for value in values)])
        case 4:
            return _bytes_edited(column, chance)
        case 5:
            values[place:] = reversed(values[place:])
        case 6 if values:
            values[place] = chance.choice(values)
        case 7 if values:
            values[place] += chance.choice([-1, 1])
        case _:
            values[place : place + 1] = [chance.choice(_NUMBERS)]
    # No width holds both a number below zero and one of 64 bits.
    return pack([min(value, 2**63 - 1) for value in values] if min(values, default=0) < 0 else values)


# Edits of bytes.


def _bytes_edited(data: bytes, chance: Random) -> bytes:
    """The bytes after a few edits like those of a bad disk or a bad program."""
    edited = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 4])):
        at = chance.randrange(len(edited)) if edited else 0
        end = at + chance.choice([1, 2, 5, 9, 99])
        match chance.randrange(7):
            case 0 if edited:
                edited[at] ^= 1 << chance.randrange(8)
            case 1 if edited:
                edited[at] = chance.choice(
                    [0, 1, 0x22, 0x2C, 0x5B, 0x7D, 0x7F, 0x80, 0xC1, 0xC7, 0xDC, 0xDD, 0xDF, 0xFF]
                )
            case 2:
                del edited[at:end]
            case 3:
                edited[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 4:
                edited[at:at] = edited[at:end]
            case 5:
                del edited[at:]
            case _:
                number = chance.randrange(len(graphs()))
                other = good_document(number, chance.choice(["json", "msgpack"]))
                start = chance.randrange(len(other))
                edited[at : chance.choice([at, end, len(edited)])] = other[start : start + chance.choice([9, 99, 9999])]
    return bytes(edited)


def _compressed(data: bytes, chance: Random) -> bytes:
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
        lambda: b"\x28\xb5\x2f\xfd\x00\x58" + _stored_block(data) if len(data) < 1 << 17 else data,
        lambda: zlib.compress(data),
        lambda: _gzip(data + b" " * chance.choice([10, 100_000, 3_000_000])),
        lambda: zstandard.compress(data + b" " * chance.choice([10, 100_000, 3_000_000])),
        lambda: _gzip(b"") * chance.choice([1, 30]) + _gzip(data),
    )
    return chance.choice(ways)()


def _gzip(data: bytes) -> bytes:
    # Without a time of its own the file would be another each second.
    return gzip.compress(data, mtime=0)


def _stored_block(data: bytes) -> bytes:
    return (len(data) << 3 | 1).to_bytes(3, "little") + data
