"""Take a compact document apart, one value after the other, so that an error has its place.

The bytes of a value are walked over before anything is made of them, so what is declared to be long is there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any, Final, NoReturn, TypeVar, cast

import msgpack
import msgspec

from gradir.codecs.compact.bounds import excess
from gradir.codecs.compact.layout import HEAD, KEYS, KIND, KINDS, TABLES, columns_of
from gradir.codecs.compact.tables import Table, Tables
from gradir.codecs.document import MAGIC, check_head
from gradir.codecs.faults import byte, damaged, mismatched, placed
from gradir.codecs.values import check_attributes
from gradir.codecs.versions import Version, needs_steps, upgrade
from gradir.errors import FormatError
from gradir.ir import Producer
from gradir.ir.excerpt import excerpt, said
from gradir.ir.model import Record
from gradir.ir.unknown import converted

__all__ = ["read", "trouble_of"]

T = TypeVar("T")

_PAST_THE_END: Final = "a length leads past the end of the file: it is damaged, or the file was truncated"


def read(data: bytes) -> Tables:
    """The tables of a compact document.

    Raises:
        FormatError: it is broken, of a version that cannot be read, a table or column is missing or mistyped, or it
            says more than its size allows.
    """
    reader = _Reader(data)
    version = reader.head()
    if needs_steps("msgpack", version):
        reader = _Reader(_upgraded(data, version))
        reader.head()
    tables = reader.tables(version)
    problem = excess(tables)
    if problem:
        raise damaged(f"{problem}: what it says is out of proportion to its bytes")
    return tables


def _upgraded(data: bytes, version: Version) -> bytes:
    """A document of an older version, rewritten as one of the newest."""
    try:
        document = msgpack.unpackb(data[len(MAGIC) :], ext_hook=_refuse_extension)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise damaged(trouble_of(error)) from error
    packed: bytes = msgpack.packb(upgrade("msgpack", document, version))
    return MAGIC + packed


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


def _unpacker(data: bytes | memoryview) -> msgpack.Unpacker:
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=True, max_buffer_size=len(data), ext_hook=_refuse_extension)
    unpacker.feed(data)
    return unpacker


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._unpacker = _unpacker(memoryview(data)[len(MAGIC) :])
        self._keys = 0
        self._unknown = ""

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

    def tables(self, version: Version) -> Tables:
        """What follows the head."""
        parts: dict[str, Callable[[], Any]] = {
            "producer": partial(self._typed, Producer, "producer"),
            "strings": self._strings,
            **{name: partial(self._table, name, record) for name, record in TABLES.items()},
        }
        found: dict[str, Any] = {}
        expected = iter(parts)
        for _ in range(self._keys - len(HEAD)):
            name = self._name()
            if name not in KEYS:
                # Not skipped: what nobody knows is data too, in which a text is a text and there is no extension.
                self._value()
                self._note("$", name)
                continue
            if name in found or name != next(expected, None):
                self._fail(f"the key {name!r} is repeated or out of order; the order is {', '.join(KEYS)}")
            found[name] = parts[name]()
        if len(found) != len(parts):
            self._fail(f"the document has no {next(expected)!r}")
        if self._unpacker.tell() != len(self._data) - len(MAGIC):
            self._fail("there are more bytes after the document")
        return Tables(len(self._data), version, unknown=self._unknown, **found)

    def _note(self, place: str, name: str) -> None:
        """Remember a key that nobody knows, if it is the first."""
        self._unknown = self._unknown or placed(f"object contains unknown field {excerpt(name)}", place)

    def _name(self) -> str:
        name = self._value()
        return name if isinstance(name, str) else self._fail(f"a key is not a text but {type(name).__name__}")

    def _value(self) -> Any:
        return self._call(self._unpacker.unpack)

    def _row(self) -> bytes:
        """The bytes of the next value."""
        start = len(MAGIC) + self._unpacker.tell()
        self._call(self._unpacker.skip)
        return self._data[start : len(MAGIC) + self._unpacker.tell()]

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
            return damaged(_PAST_THE_END, byte(stop - 1))
        return damaged("the file ends before its document does: it was truncated", byte(len(self._data)))

    def _fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        raise damaged(message, self._place()) from cause

    def _place(self) -> str:
        return byte(len(MAGIC) + self._unpacker.tell())

    def _typed(self, kind: type[T], place: str) -> T:
        """The next value, which is a record."""
        row = self._row()
        try:
            found: T = _decoder(cast("Hashable", kind)).decode(row)
        except (ValueError, RecursionError):
            found = self._converted(row, kind, place)
        check_attributes(place, found)
        return found

    def _converted(self, row: bytes, kind: type[T], place: str) -> T:
        """A record that is not as gradir writes it: as plain data, what nobody knows in it is looked at too."""
        value = self._call(_unpacker(row).unpack)
        try:
            found, surplus = converted(value, kind)
        except msgspec.ValidationError as error:
            problem, path = mismatched(error, f".{place}")
            raise damaged(problem, f"{self._place()}, {path}") from error
        if surplus is not None and not self._unknown:
            self._unknown = placed(*mismatched(surplus, f".{place}"))
        return found

    def _strings(self) -> list[str]:
        row = self._row()
        try:
            strings: list[str] = _decoder(list[str]).decode(row)
        except (ValueError, RecursionError):
            self._call(_unpacker(row).unpack)
            self._fail("strings: an entry is not a text")
        if not strings or strings[0]:
            self._fail("strings: the first entry is not the empty text")
        return strings

    def _table(self, table: str, record: type[Record]) -> Table:
        known = columns_of(record)
        found: dict[str, Any] = {}
        for _ in range(self._call(self._unpacker.read_map_header)):
            name = self._name()
            if name in found:
                self._fail(f"column {table}.{name} is repeated")
            if name == KINDS:
                found[name] = self._kinds(table, record)
                continue
            column = self._value()
            if name not in known:
                self._note(f"$.{table}", name)
            elif not isinstance(column, bytes):
                self._fail(f"column {table}.{name} is not a byte string")
            else:
                found[name] = column
        for name in (KIND, KINDS):
            if name not in found:
                self._fail(f"column {table}.{name} is missing")
        return Table(table, record, found.pop(KINDS), found)

    def _kinds(self, table: str, record: type[T]) -> list[T]:
        kinds: list[T] = []
        seen: set[bytes] = set()
        for number in range(self._call(self._unpacker.read_array_header)):
            start = len(MAGIC) + self._unpacker.tell()
            kind = self._typed(record, f"{table}.{KINDS}[{number}]")
            row = self._data[start : len(MAGIC) + self._unpacker.tell()]
            if row in seen:
                # A kind takes hundreds of bytes in memory, so a file of small kinds must not be read to its end.
                self._fail(f"{table}.{KINDS}[{number}] repeats an earlier kind")
            seen.add(row)
            kinds.append(kind)
        return kinds


@lru_cache(maxsize=8)
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)
