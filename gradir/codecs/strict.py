"""Refuse documents with repeated keys, and documents that are not canonical."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

from gradir.codecs import msgpack_syntax
from gradir.codecs.codec import decode, encode, version_in
from gradir.codecs.compression import open_decompressed
from gradir.codecs.document import JSON, encoding_of, lowest_for, recognize
from gradir.codecs.faults import byte, newer_error
from gradir.codecs.json_syntax import fault_of
from gradir.errors import FormatError
from gradir.ir import Graph
from gradir.ir.text import excerpt, shorten

_SHOWN = 60

_Hook = Callable[[list[tuple[str, Any]]], object]


def check_keys(data: bytes) -> None:
    """Raise FormatError if an object has a key twice, since readers differ in which one they use."""
    with open_decompressed(data) as inner:
        encoding, document = recognize(inner)
        encoding.syntax.guard(document)
        unpack = _unpack_json if encoding == JSON else msgpack_syntax.unpack
        try:
            unpack(document, _unique)
        except _RepeatedError:
            path, key = _find_repeated(unpack(document, _Members))
            problem = f"the key {excerpt(key)} occurs twice in one object"
            raise FormatError(problem, place=path, advice="leave one of them") from None


class _RepeatedError(Exception):
    """A key occurs twice."""


# A dict would lose a repeated key, and a plain tuple would look like a list.
class _Members(tuple[tuple[str, Any], ...]):
    __slots__ = ()


def _unpack_json(data: bytes, hook: _Hook) -> object:
    try:
        # Nobody needs the values of numbers, and a number of many digits takes quadratic time.
        return json.loads(data.decode(), object_pairs_hook=hook, parse_int=lambda _: None, parse_float=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise fault_of(data, error) from error


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _RepeatedError


def _find_repeated(document: object) -> tuple[str, str]:
    """Return the path of the first object with a key that occurs twice, and the key."""
    parts: list[str] = []
    walks: list[Iterator[tuple[str, object]]] = [iter([("$", document)])]
    while True:
        part, value = next(walks[-1], ("", None))
        if not part:
            walks.pop()
            parts.pop()
            continue
        if isinstance(value, _Members) and len(dict(value)) != len(value):
            return shorten("".join([*parts, part])), Counter(key for key, _ in value).most_common(1)[0][0]
        if isinstance(value, (list, _Members)):
            parts.append(part)
            walks.append(_entries(value))


def _entries(value: list[object] | _Members) -> Iterator[tuple[str, object]]:
    if isinstance(value, list):
        return ((f"[{number}]", entry) for number, entry in enumerate(value))
    return ((f".{key}" if key.isidentifier() else f"[{excerpt(key)}]", entry) for key, entry in value)


def check_canonical(data: bytes) -> Graph:
    """Return the graph of a document, or raise FormatError unless gradir would write the same bytes."""
    with open_decompressed(data) as document:
        graph = decode(document)
        if graph.read_from:
            raise newer_error(
                f"GIR {graph.read_from} is newer than this gradir, which does not know its canonical form"
            )
        expected = encode(graph, encoding_of(document), lossy=True)
        if expected != document:
            place, line = _first_difference(document, expected)
            version = lowest_for(graph)
            versions = f", in which its version is {version}" if version_in(document) != version else ""
            problem = f"valid, but not in canonical form{versions}{line}"
            raise FormatError(problem, place=place, advice="gradir convert makes it so")
        return graph


def _first_difference(data: bytes, expected: bytes) -> tuple[str, str]:
    """Return the place and text of the first difference from the canonical form."""
    if encoding_of(data) == "msgpack":
        pairs = enumerate(zip_longest(data, expected))
        return byte(next(number for number, (actual, wanted) in pairs if actual != wanted)), ""
    lines = enumerate(zip_longest(data.split(b"\n"), expected.split(b"\n")), 1)
    number, line = next((number, actual or b"") for number, (actual, wanted) in lines if actual != wanted)
    return f"line {number:,}", f": {line[:_SHOWN].decode(errors='replace') + ('…' if len(line) > _SHOWN else '')!r}"
