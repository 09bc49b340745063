"""Read the tables of any compact document, one value after the other, so that an error has its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, NoReturn, TypeVar

import msgpack
import msgspec

from gradir.codecs.compact.at_once import read_at_once
from gradir.codecs.compact.layout import HEAD, KEYS, LATER_SCOPE_COLUMNS, NODE_COLUMNS, SCOPE_COLUMNS, Kind
from gradir.codecs.compact.tables import Columns, Tables
from gradir.codecs.compact.unpacker import PAST_THE_END, refuse_extension, trouble_of, unpacker_of
from gradir.codecs.document import MAGIC, check_head
from gradir.codecs.faults import byte, damaged, mismatched, placed
from gradir.codecs.values import check_finite
from gradir.codecs.versions import Version, needs_steps, upgrade
from gradir.errors import FormatError
from gradir.ir import Cut, Producer
from gradir.ir.excerpt import excerpt
from gradir.ir.unknown import converted

__all__ = ["read"]

T = TypeVar("T")

_CHUNK = 65_536
"""How many strings are read before their type is looked at, so that a table of something else stays small."""


def read(data: bytes) -> Tables:
    """The tables of a compact document.

    Raises:
        FormatError: it is broken, of a version that cannot be read, or a table or column is missing or mistyped.
    """
    found = read_at_once(data)
    if found is not None:
        return found
    reader = _Reader(data)
    version = reader.head()
    if needs_steps("msgpack", version):
        reader = _Reader(_upgraded(data, version))
        reader.head()
    return reader.tables(version)


def _upgraded(data: bytes, version: Version) -> bytes:
    """A document of an older version, rewritten as one of the newest."""
    try:
        document = msgpack.unpackb(data[len(MAGIC) :], ext_hook=refuse_extension)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise damaged(trouble_of(error)) from error
    packed: bytes = msgpack.packb(upgrade("msgpack", document, version))
    return MAGIC + packed


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._unpacker = unpacker_of(data)
        self._keys = 0
        self._unknown = ""

    def tables(self, version: Version) -> Tables:
        """What follows the head."""
        parts: dict[str, Callable[[], Any]] = {
            "producer": lambda: self._typed(Producer, "producer"),
            "cuts": lambda: tuple(self._typed(Cut, f"cuts[{number}]") for number in self._entries()),
            "strings": self._strings,
            "scopes": lambda: self._columns("scopes", SCOPE_COLUMNS, tuple(LATER_SCOPE_COLUMNS)),
            "kinds": self._kinds,
            "nodes": lambda: self._columns("nodes", NODE_COLUMNS),
        }
        found: dict[str, Any] = {}
        for _ in range(self._keys - len(HEAD)):
            name = self._name()
            if name not in KEYS:
                # Not skipped: what nobody knows is data too, in which a text is a text and there is no extension.
                self._value()
                self._note("$", name)
                continue
            if name != next(islice(parts, len(found), None), None):
                self._fail(f"the key {name!r} is repeated or out of order; the order is {', '.join(KEYS)}")
            found[name] = parts[name]()
        if len(found) != len(parts):
            self._fail(f"the document has no {list(parts)[len(found)]!r}")
        if self._unpacker.tell() != len(self._data) - len(MAGIC):
            self._fail("there are more bytes after the document")
        check_finite("the producer", found["producer"].options)
        return Tables.of(len(self._data), version, unknown=self._unknown, **found)

    def head(self) -> Version:
        """The version of the document, which this release can read."""
        self._keys = self._call(self._unpacker.read_map_header)
        head: dict[str, Any] = {}
        for expected in HEAD[: self._keys]:
            name = self._name()
            if name != expected:
                break
            head[expected] = self._value()
        version = check_head(head)
        if len(head) != len(HEAD):
            self._fail(f"the document does not start with its head: {', '.join(HEAD)}")
        return version

    def _note(self, place: str, name: str) -> None:
        """Remember a key that nobody knows, if it is the first."""
        self._unknown = self._unknown or placed(f"object contains unknown field {excerpt(name)}", place)

    def _entries(self) -> range:
        return range(self._call(self._unpacker.read_array_header))

    def _name(self) -> str:
        name = self._value()
        return name if isinstance(name, str) else self._fail(f"a key is not a text but {type(name).__name__}")

    def _value(self) -> Any:
        return self._call(self._unpacker.unpack)

    def _call(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except msgpack.OutOfData:
            raise self._cut_short() from None
        except FormatError as error:
            self._fail(str(error))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            self._fail(trouble_of(error), error)

    def _cut_short(self) -> FormatError:
        # The reader stops behind the length of what is not all there, or where the next value would start.
        stop = len(MAGIC) + self._unpacker.tell()
        if stop < len(self._data):
            return damaged(PAST_THE_END, byte(stop - 1))
        return damaged("the file ends before its document does: it was truncated", byte(len(self._data)))

    def _fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        raise damaged(message, self._place()) from cause

    def _place(self) -> str:
        return byte(len(MAGIC) + self._unpacker.tell())

    def _typed(self, kind: type[T], place: str) -> T:
        value = self._value()
        try:
            found, surplus = converted(value, kind)
        except msgspec.ValidationError as error:
            problem, path = mismatched(error, f".{place}")
            raise damaged(problem, f"{self._place()}, {path}") from error
        if surplus is not None and not self._unknown:
            self._unknown = placed(*mismatched(surplus, f".{place}"))
        return found

    def _kinds(self) -> list[Kind]:
        kinds: list[Kind] = []
        seen: set[bytes] = set()
        for number in self._entries():
            start = self._unpacker.tell()
            kind = self._typed(Kind, f"kinds[{number}]")
            row = self._data[len(MAGIC) + start : len(MAGIC) + self._unpacker.tell()]
            if row in seen:
                # A kind takes hundreds of bytes in memory, so a file of one-byte kinds must not be read to its end.
                self._fail(f"kinds[{number}] repeats an earlier kind")
            seen.add(row)
            check_finite(f"kinds[{number}]", kind.attrs)
            check_finite(f"kinds[{number}]", kind.ext)
            kinds.append(kind)
        return kinds

    def _strings(self) -> list[str]:
        count = self._call(self._unpacker.read_array_header)
        strings: list[str] = []
        while len(strings) < count:
            wanted = min(_CHUNK, count - len(strings))
            chunk: list[str] = self._call(partial(list, islice(self._unpacker, wanted)))
            if not chunk:
                self._call(self._unpacker.unpack)
            if set(map(type, chunk)) != {str}:
                self._fail("strings: an entry is not a text")
            strings += chunk
        if not strings or strings[0]:
            self._fail("strings: the first entry is not the empty text")
        return strings

    def _columns(self, table: str, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> Columns:
        columns: dict[str, bytes] = {}
        for _ in range(self._call(self._unpacker.read_map_header)):
            name = self._name()
            if name in columns:
                self._fail(f"column {table}.{name} is repeated")
            column = self._value()
            if name not in names and name not in optional:
                self._note(f"$.{table}", name)
                continue
            if not isinstance(column, bytes):
                self._fail(f"column {table}.{name} is not a byte string")
            columns[name] = column
        missing = [name for name in names if name not in columns]
        if missing:
            self._fail(f"column {table}.{missing[0]} is missing")
        return Columns(table, columns)
