"""The edits of which mutants are made: of a document as a tree, and of its bytes."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec
from document_trees import Members, Odd
from mutant_sources import good_document, graphs

from gradir.codecs.document import Document
from gradir.diffs.changes import Change, Diff, FieldChange, Growth
from gradir.diffs.hunks import Hunk, Script
from gradir.ir import Cut, Node, Producer, Saved, Scope, Source, TensorMeta

__all__ = ["bytes_edited", "tree_edited"]

_RECORDS: Final = (
    Document,
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


def tree_edited(tree: Any, chance: Random) -> Any:
    """A tree after one edit or a few."""
    source, tree = tree, _copy(tree)
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
        value = _copy(value)
        _put(holder, place, value)
        holder = value


def _copy(value: Any) -> Any:
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
        value = bytes_edited(value, chance)
    elif isinstance(value, list):
        value = value[: chance.randrange(len(value) + 1)] if type(value) is list else Members()
    _put(holder, place, value)


_VALUE_EDITS = (_replace, _replace, _touch, _touch, _touch, _nest, _exchange, _repeat, _repeat_all, _drop, _move)


_KEY_EDITS = (*_VALUE_EDITS, _repeat, _repeat, _rename, _rename, _add_key, _add_key, _odd_key)


_ENTRY_EDITS = (*_VALUE_EDITS, _add_entry, _add_entry, _drop_many)


def bytes_edited(data: bytes, chance: Random) -> bytes:
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
