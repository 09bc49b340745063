"""Take a compact document apart, one value after the other, so that an error has its place.

The bytes of a value are walked over before anything is made of them, so what is declared to be long is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

import msgpack
import msgspec

from gradir.codecs.compact.bounds import excess
from gradir.codecs.compact.layout import HEAD, KEYS, KIND, KINDS, RANKS, TABLES, columns_of
from gradir.codecs.compact.tables import Table, Tables
from gradir.codecs.document import MAGIC, check_head
from gradir.codecs.faults import byte, damaged, mismatched, placed
from gradir.codecs.values import check_attributes
from gradir.codecs.versions import Version, needs_steps, upgrade
from gradir.errors import FormatError
from gradir.ir import Collective, Producer, Rank
from gradir.ir.excerpt import excerpt, said
from gradir.ir.model import Record
from gradir.ir.unknown import tolerant

__all__ = ["read", "trouble_of"]

T = TypeVar("T")

_PAST_THE_END: Final = "a length leads past the end of the file: it is damaged, or the file was truncated"
_EMPTY: Final[dict[str, Any]] = {}


def read(data: bytes) -> Tables:
    """The tables of a compact document.

    Raises:
        FormatError: it is broken, of a version that cannot be read, a table or column is missing or mistyped, or it
            says more than its size allows.
    """
    reader = _Reader(data)
    version = reader.head()
    if needs_steps("msgpack", version):
        old = _Reader(data).value()
        reader = _Reader(MAGIC + reader.call(partial(msgpack.packb, upgrade("msgpack", old, version))))
        reader.head()
    tables = reader.tables(version)
    problem = excess(tables)
    if problem:
        raise damaged(f"{problem}: what it says is out of proportion to its bytes")
    return tables


def trouble_of(error: Exception) -> str:
    """What an error of the reader of MessagePack says of the document.

    >>> trouble_of(msgpack.StackError())
    'broken MessagePack: nested too deeply'
    """
    text = said(error)
    if "exceeds max_" in text:
        return _PAST_THE_END
    if isinstance(error, (msgpack.StackError, RecursionError)):
        text = "nested too deeply"
    elif isinstance(error, msgpack.FormatError) or "type header" in text:
        text = "no value starts with this byte"
    elif isinstance(error, UnicodeDecodeError):
        text = f"a text is not UTF-8, {error.reason} {error.object[error.start]:#04x}"
    elif "map key" in text:
        text = "a key is not a text"
    return f"broken MessagePack: {text or 'it makes no sense'}"


def _refuse_extension(code: int, _: bytes) -> NoReturn:
    raise FormatError(f"extension type {code} has no place in a GIR document")


def _unpacker(data: bytes | memoryview, **options: Any) -> msgpack.Unpacker:
    # msgpack reserves a megabyte where it may hold nothing.
    most = max(len(data), 1)
    options |= {"raw": False, "strict_map_key": True, "max_buffer_size": most, "ext_hook": _refuse_extension}
    unpacker = msgpack.Unpacker(**options)
    unpacker.feed(data)
    return unpacker


def _mapped(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # One byte says an empty map, which alone would take 64 in memory.
    return dict(pairs) if pairs else _EMPTY


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._unpacker = _unpacker(memoryview(data)[len(MAGIC) :])
        self._keys = 0
        self._unknown = ""

    def head(self) -> Version:
        """The version of the document, which this release can read."""
        self._keys = self.call(self._unpacker.read_map_header)
        head: dict[str, Any] = {}
        for expected in HEAD[: self._keys]:
            if self.value() != expected:
                break
            head[expected] = self.value()
        version = check_head(head)
        if len(head) != len(HEAD):
            self._fail(f"the document does not start with its head: {', '.join(HEAD)}")
        return version

    def tables(self, version: Version) -> Tables:
        """What follows the head."""
        found: dict[str, Any] = {}
        parts: dict[str, Callable[[], Any]] = {
            "producer": partial(self._record, Producer, "producer"),
            "rank": partial(self._record, Rank, "rank"),
            "collectives": self._collectives,
            "strings": self._strings,
            **{name: partial(self._table, name, found) for name in TABLES},
        }
        left = list(parts)
        for name in self._names(self._keys - len(HEAD)):
            if name not in KEYS:
                self._ignore("$", name)
                continue
            while left and left[0] != name and left[0] in RANKS:
                left.pop(0)
            if not left or left.pop(0) != name:
                self._fail(f"the key {name!r} is repeated or out of order; the order is {', '.join(KEYS)}")
            found[name] = parts[name]()
        missing = [name for name in left if name not in RANKS]
        if missing:
            self._fail(f"the document has no {missing[0]!r}")
        if self._at() != len(self._data):
            self._fail("there are more bytes after the document")
        return Tables(len(self._data), version, unknown=self._unknown, **found)

    def _names(self, count: int) -> Iterator[str]:
        """The next keys of a map; what reads them reads their values too."""
        for _ in range(count):
            name = self.value()
            yield name if isinstance(name, str) else self._fail(f"a key is not a text but {type(name).__name__}")

    def _ignore(self, place: str, name: str) -> None:
        # Not skipped: what nobody knows is data too, in which a text is a text and there is no extension.
        self.value()
        self._unknown = self._unknown or placed(f"object contains unknown field {excerpt(name)}", place)

    def value(self) -> Any:
        """The next value."""
        return self.call(self._unpacker.unpack)

    def call(self, function: Callable[[], T]) -> T:
        """What a function that reads makes, or the one error that tells why it does not."""
        try:
            return function()
        except msgpack.OutOfData:
            # The reader stops behind the length of what is not all there, or where the next value would start.
            place, end = self._at(), len(self._data)
            problem = "the file ends before its document does: it was truncated"
            raise (damaged(_PAST_THE_END, byte(place - 1)) if place < end else damaged(problem, byte(end))) from None
        except FormatError as error:
            self._fail(str(error))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            self._fail(trouble_of(error), error)

    def _at(self) -> int:
        found: int = len(MAGIC) + self._unpacker.tell()
        return found

    def _fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        raise damaged(message, byte(self._at())) from cause

    def _record(self, kind: type[T], place: str) -> T:
        """The next value, which is a record."""
        start = self._at()
        self.call(self._unpacker.skip)
        row = self._data[start : self._at()]
        try:
            found = msgspec.msgpack.decode(row, type=kind)
        except (ValueError, RecursionError) as surplus:
            # Not as gradir writes it: as plain data, what nobody knows in it is looked at too.
            plain = self.call(_unpacker(row, object_pairs_hook=_mapped).unpack)
            try:
                row = msgspec.msgpack.encode(msgspec.convert(plain, tolerant(kind)))
                found = msgspec.msgpack.decode(row, type=kind)
            except msgspec.ValidationError as error:
                problem, path = mismatched(error, f".{place}")
                raise damaged(problem, f"{byte(self._at())}, {path}") from error
            if isinstance(surplus, msgspec.ValidationError):
                self._unknown = self._unknown or placed(*mismatched(surplus, f".{place}"))
        check_attributes(place, found)
        return found

    def _collectives(self) -> list[Collective]:
        count = self.call(self._unpacker.read_array_header)
        return [self._record(Collective, f"collectives[{number}]") for number in range(count)]

    def _strings(self) -> list[str]:
        strings = self.value()
        if not isinstance(strings, list) or {*map(type, strings)} - {str}:
            self._fail("strings: an entry is not a text")
        if not strings or strings[0]:
            self._fail("strings: the first entry is not the empty text")
        return strings

    def _table(self, table: str, before: Mapping[str, Any]) -> Table:
        known = columns_of(TABLES[table])
        found: dict[str, Any] = {}
        for name in self._names(self.call(self._unpacker.read_map_header)):
            if name in found:
                self._fail(f"column {table}.{name} is repeated")
            if name == KINDS:
                found[name] = self._kinds(table)
            elif name not in known:
                self._ignore(f"$.{table}", name)
            elif not isinstance(column := self.value(), bytes):
                self._fail(f"column {table}.{name} is not a byte string")
            else:
                found[name] = column
        for name in (KIND, KINDS):
            if name not in found:
                self._fail(f"column {table}.{name} is missing")
        return Table(table, TABLES[table], found.pop(KINDS), found, before["strings"])

    def _kinds(self, table: str) -> list[Record]:
        kinds: dict[bytes, Record] = {}
        for number in range(self.call(self._unpacker.read_array_header)):
            start, place = self._at(), f"{table}.{KINDS}[{number}]"
            kind = self._record(TABLES[table], place)
            # A kind takes hundreds of bytes in memory, so a file of small kinds must not be read to its end.
            if kinds.setdefault(self._data[start : self._at()], kind) is not kind:
                self._fail(f"{place} repeats an earlier kind")
        return list(kinds.values())
