"""Write JSON for exporters without text that a terminal or a web page could interpret, and measure its depth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, islice
from typing import Any, Final

import msgspec

from gradir.ir.fields import other_fields
from gradir.ir.model import Cut, Node, Record, Saved, Scope, Source, TensorMeta
from gradir.ir.text import is_unicode, quote

# Exporters have their own text for these fields, and write any other by its key.
FORMATTED_FIELDS: Final[Mapping[type[Record], frozenset[str]]] = {
    Scope: frozenset({"path", "class_name", "detail", "training"}),
    Cut: frozenset({"kind", "names", "scope", "tensor", "op", "source", "via", "meant", "at", "into", "slot"}),
    Node: frozenset(
        (
            *("id", "role", "op", "native", "scope", "names", "inputs", "outputs"),
            *("attrs", "saved", "base", "opaque", "source", "ext"),
        )
    ),
    Saved: frozenset({"slot", "dtype", "shape", "bytes", "origin", "storage", "state"}),
    Source: frozenset({"file", "line", "function"}),
    TensorMeta: frozenset({"dtype", "shape", "device", "layout"}),
}

# Encoding few records at a time keeps their text in the processor's cache.
_CHUNK: Final = 512
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


def json_text(value: object) -> str:
    """Return a value on one line, safe inside an HTML ``<script>`` and in a terminal."""
    try:
        data = _ENCODER.encode(value)
    except UnicodeEncodeError:
        data = _ENCODER.encode(_escape_surrogates(msgspec.to_builtins(value)))
    return _escape_html(data)


def further_facts(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the key and JSON value of each unknown field that differs from its default."""
    for field in other_fields(type(record), FORMATTED_FIELDS[type(record)]):
        value = getattr(record, field.name)
        if value != field.default:
            yield field.key, json_text(value)


def further_text(record: Record, before: str = " ") -> str:
    """Return the `further_facts` of a record on one line, each after ``before``."""
    return "".join(f"{before}{key} {text}" for key, text in further_facts(record))


def json_texts(values: Iterable[object]) -> Iterator[str]:
    """Return each value as `json_text` does, many at a time."""
    for lines in _chunks(values):
        yield from lines.split("\n")


def json_lines(records: Iterable[object]) -> Iterator[str]:
    """Yield the items of a JSON array, one a line, without brackets."""
    separator = "\n"
    for lines in _chunks(records):
        yield separator + lines.replace("\n", ",\n")
        separator = ",\n"
    if separator != "\n":
        yield "\n"


def _chunks(values: Iterable[object]) -> Iterator[str]:
    iterator = iter(values)
    while chunk := list(islice(iterator, _CHUNK)):
        try:
            data = _ENCODER.encode_lines(chunk)
        except UnicodeEncodeError:
            data = _ENCODER.encode_lines([_escape_surrogates(msgspec.to_builtins(value)) for value in chunk])
        yield _escape_html(data[:-1])


def printable_json(data: bytes) -> str:
    """Escape every unprintable character of JSON, which changes no value."""
    text = data.decode()
    # The encoder escapes the control characters below the space itself.
    if text.isascii() and "\x7f" not in text:
        return text
    if text.replace("\n", "").isprintable():
        return text
    return "".join([char if char.isprintable() or char == "\n" else quote(char)[1:-1] for char in text])


def _escape_html(data: bytes) -> str:
    # In a web page, "<" could start "</script>" or "<!--".
    return printable_json(data.replace(b"<", b"\\u003c"))


def _escape_surrogates(value: Any) -> Any:
    # UTF-8 cannot encode a lone surrogate, but JSON can escape it.
    if isinstance(value, str):
        return value if is_unicode(value) else msgspec.Raw(quote(value).encode())
    if isinstance(value, (list, tuple)):
        return [_escape_surrogates(item) for item in value]
    if not isinstance(value, dict):
        return value
    if all(map(is_unicode, value)):
        return {key: _escape_surrogates(item) for key, item in value.items()}
    items = [quote(key).encode() + b":" + _ENCODER.encode(_escape_surrogates(value[key])) for key in sorted(value)]
    return msgspec.Raw(b"{%b}" % b",".join(items))


# A reader gets at most this many levels. CPython's default recursion limit is the same.
DEEPEST: Final = 1000
TOO_DEEP: Final = f"broken JSON: nested deeper than {DEEPEST:,} levels"
# No document of gradir has this many levels.
_ROUNDS: Final = 16
_AS_LISTS: Final = bytes.maketrans(b"{}", b"[]")
_REST: Final = bytes(set(range(256)) - set(b'"[]{}'))
_QUOTED: Final = re.compile(rb'"[^"]*"?')


def is_too_deep(text: bytes) -> bool:
    """Return whether JSON has more levels of lists and objects than a reader may get."""
    # So few brackets cannot be nested too deeply.
    if text.count(b"[") + text.count(b"{") <= DEEPEST:
        return False
    if b"\\" in text:
        # An escape starts at the beginning of a run of backslashes or after another escape, as for a reader.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # With only brackets and quotes left, most strings are two quotes, and the regular expression has few to read.
    text = _QUOTED.sub(b"", text.translate(_AS_LISTS, _REST).replace(b'""', b""))
    # Each round removes the innermost level. After many rounds, the other brackets are counted one by one.
    for rounds in range(_ROUNDS):
        if text.count(b"[") <= DEEPEST - rounds:
            return False
        text = text.replace(b"[]", b"")
    return max(accumulate(1 if bracket == ord("[") else -1 for bracket in text)) > DEEPEST - _ROUNDS
