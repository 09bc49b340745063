"""Find the first problem in broken JSON and its byte."""

from __future__ import annotations

import re
from codecs import utf_8_decode
from typing import Final

from gradir.codecs.document import BOM
from gradir.codecs.faults import byte, conflict, damage, decapitalize, foreign_error, invalid_error
from gradir.errors import FormatError
from gradir.ir.jsontext import TOO_DEEP, is_too_deep
from gradir.ir.text import escape_unprintable, shorten

# If fewer than 6 bytes follow the first half of a surrogate pair, msgspec reports truncated data.
_TAIL: Final = 64
_HALF_PAIR: Final = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})[^\\]")
# Decoding this many bytes at a time avoids a copy of the whole document.
_PIECE: Final = 1 << 13
_PLACE: Final = re.compile(r"(.*) \(byte ([0-9]+)\)")


def guard(data: bytes) -> None:
    """Raise FormatError for a document that is nested too deeply for a recursive reader."""
    if is_too_deep(data):
        raise invalid_error(TOO_DEEP)


def inspect(data: bytes) -> None:
    """Raise FormatError if any text is not UTF-8."""
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
    # Each line of a watch is a document, so a reader reports the second line.
    if data.startswith(b'{"type":"head","format":"gir-watch"'):
        return foreign_error("a watched training, not a graph")
    fault = conflict(data)
    if fault is not None:
        return fault
    try:
        # Readers decode one string at a time, and name a byte of the string.
        data.decode()
    except UnicodeDecodeError as wrong:
        return damage(f"broken JSON: not UTF-8, {wrong.reason} {data[wrong.start]:#04x}", _place_of(data, wrong.start))
    if "truncated" in str(error):
        halves = [*_HALF_PAIR.finditer(data, max(len(data) - _TAIL, 0))]
        if halves:
            return invalid_error("broken JSON: invalid utf-16 surrogate pair", _place_of(data, halves[-1].start(1)))
        return damage("broken JSON: it was truncated", _place_of(data, len(data)))
    return _no_json(data, error)


def _no_json(data: bytes, error: Exception) -> FormatError:
    # The json module takes milliseconds to load, and a good document does not need it.
    import json

    if isinstance(error, json.JSONDecodeError):
        start = len(BOM) if data.startswith(BOM) else 0
        return invalid_error(
            f"broken JSON: {decapitalize(error.msg)}", _place_of(data, start + len(error.doc[: error.pos].encode()))
        )
    text = escape_unprintable(" ".join(str(error).split()))
    found = _PLACE.fullmatch(text)
    if found is None:
        return invalid_error(f"broken JSON: {decapitalize(shorten(text))}")
    return invalid_error(f"broken JSON: {decapitalize(shorten(found[1]))}", _place_of(data, int(found[2])))


def _place_of(data: bytes, number: int) -> str:
    """Return a place in a document: its byte, and its line if there are several."""
    line = data.count(b"\n", 0, number) + 1
    return f"line {line:,}, {byte(number)}" if b"\n" in data else byte(number)
