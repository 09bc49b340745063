"""Find the first problem in broken JSON and its byte."""

from __future__ import annotations

import re
from codecs import utf_8_decode
from typing import Final

from gradir.codecs.document import BOM
from gradir.codecs.faults import broken, byte, conflict, damaged, foreign, lowered
from gradir.errors import FormatError
from gradir.ir.jsontext import TOO_DEEP, is_too_deep
from gradir.ir.text import printable, shortened

# msgspec takes the end of the data for the missing half of a surrogate pair when no 6 bytes follow the first half.
_TAIL: Final = 64
_HALF_PAIR: Final = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})[^\\]")
# Decoding this many bytes at a time avoids a copy of the whole document.
_PIECE: Final = 1 << 13
_PLACE: Final = re.compile(r"(.*) \(byte ([0-9]+)\)")


def guard(data: bytes) -> None:
    """Raise FormatError for a document that is nested too deeply for a recursive reader."""
    if is_too_deep(data):
        raise broken(TOO_DEEP)


def inspect(data: bytes) -> None:
    """Raise FormatError for text that is not UTF-8, wherever it is."""
    if data.isascii():
        return
    view, at = memoryview(data), 0
    try:
        while at < len(data):
            at += utf_8_decode(view[at : at + _PIECE], "strict", at + _PIECE >= len(data))[1]
    except UnicodeDecodeError as error:
        raise fault_of(data, error) from error


def fault_of(data: bytes, error: Exception) -> FormatError:
    """Return the error of a JSON reader with its place."""
    # Each line of a watch is a document, so a reader complains of the second line.
    if data.startswith(b'{"type":"head","format":"gir-watch"'):
        return foreign("a watched training, not a graph")
    fault = conflict(data)
    if fault is not None:
        return fault
    try:
        # Readers decode one string at a time and name the byte within it.
        data.decode()
    except UnicodeDecodeError as wrong:
        return damaged(f"broken JSON: not UTF-8, {wrong.reason} {data[wrong.start]:#04x}", _at(data, wrong.start))
    if "truncated" in str(error):
        halves = [*_HALF_PAIR.finditer(data, max(len(data) - _TAIL, 0))]
        if halves:
            return broken("broken JSON: invalid utf-16 surrogate pair", _at(data, halves[-1].start(1)))
        return damaged("broken JSON: it was truncated", _at(data, len(data)))
    return _no_json(data, error)


def _no_json(data: bytes, error: Exception) -> FormatError:
    # The json module takes milliseconds to load, and a good document does not need it.
    import json

    if isinstance(error, json.JSONDecodeError):
        start = len(BOM) if data.startswith(BOM) else 0
        return broken(f"broken JSON: {lowered(error.msg)}", _at(data, start + len(error.doc[: error.pos].encode())))
    text = printable(" ".join(str(error).split()))
    found = _PLACE.fullmatch(text)
    if found is None:
        return broken(f"broken JSON: {lowered(shortened(text))}")
    return broken(f"broken JSON: {lowered(shortened(found[1]))}", _at(data, int(found[2])))


def _at(data: bytes, number: int) -> str:
    """Return a place in a text: its byte, and its line if there are several."""
    line = data.count(b"\n", 0, number) + 1
    return f"line {line:,}, {byte(number)}" if b"\n" in data else byte(number)
