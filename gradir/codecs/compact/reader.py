"""The top level of a compact document: its head, tables and packed columns, checked for type but not put together."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final, NoReturn, TypeVar

import msgpack
import msgspec

from gradir.codecs.compact.columns import unpack
from gradir.codecs.compact.layout import HEAD, NODE_COLUMNS, SCOPE_COLUMNS, TRAINING, Kind
from gradir.codecs.document import MAGIC, check_head
from gradir.codecs.excerpt import shortened
from gradir.codecs.values import check_finite
from gradir.codecs.versions import Version, needs_steps, upgrade
from gradir.errors import FormatError
from gradir.ir import Cut, Producer

__all__ = ["Columns", "Tables", "read"]

T = TypeVar("T")

_ARRAY: Final = struct.Struct(">BI")
"""The header of a MessagePack array: a byte and the number of its entries."""

_CHUNK: Final = 65_536
"""How many strings are read before their type is looked at, so that a table of something else stays small."""


class Columns:
    """The packed columns of one table, unpacked when asked for."""

    def __init__(self, table: str, packed: Mapping[str, bytes]) -> None:
        self._table = table
        self._packed = packed

    def __getitem__(self, name: str) -> Any:
        """The integers of a column."""
        try:
            return unpack(self._packed[name])
        except ValueError as error:
            raise FormatError(f"column {self.title(name)}: {error}") from error

    def __contains__(self, name: str) -> bool:
        """Whether the document has the column."""
        return name in self._packed

    def length(self, name: str) -> int:
        """The number of entries of a column, which is not unpacked for it."""
        packed = self._packed[name]
        return (len(packed) - 1) // (packed[0] or 1) if packed else 0

    def check_length(self, name: str, count: int, per: str) -> None:
        """Refuse a column that has not ``count`` entries."""
        length = self.length(name)
        if length != count:
            raise FormatError(f"column {self.title(name)} has {length:,} entries, not one per {per} ({count:,})")

    def counted(self, name: str, count: int, per: str) -> Any:
        """A column that must have ``count`` entries."""
        column = self[name]
        self.check_length(name, count, per)
        return column

    def indexes(self, name: str, count: int, per: str, limit: int, table: str) -> Any:
        """A column of ``count`` indexes into a table of ``limit`` entries."""
        column = self.counted(name, count, per)
        if column and max(column) >= limit:
            raise FormatError(
                f"column {self.title(name)} names entry {max(column):,} of {table}, of which there are {limit:,}"
            )
        return column

    def title(self, name: str) -> str:
        """The column as an error names it."""
        return f"{self._table}.{name}"


class Tables(msgspec.Struct):
    """Everything in a compact document."""

    size: int
    version: Version
    producer: Producer
    cuts: tuple[Cut, ...]
    strings: list[str]
    scopes: Columns
    kinds: list[Kind]
    nodes: Columns
    kind_of: Sequence[int]
    """By place of a node, an index of ``kinds``."""


def read(data: bytes) -> Tables:
    """The tables of a compact document.

    Raises:
        FormatError: it is broken, of a version that cannot be read, or a table or column is missing or mistyped.
    """
    reader = _Reader(data)
    version = reader.head()
    if needs_steps("msgpack", version):
        reader = _Reader(_upgraded(data, version))
        reader.head()
    return reader.tables(version)


def _upgraded(data: bytes, version: Version) -> bytes:
    """A document of an older version, rewritten as one of the newest."""
    try:
        document = msgpack.unpackb(data[len(MAGIC) :], ext_hook=_refuse_extension)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(f"broken MessagePack: {' '.join(str(error).split()) or type(error).__name__}") from error
    packed: bytes = msgpack.packb(upgrade("msgpack", document, version))
    return MAGIC + packed


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._unpacker = _unpacker(data)
        self._keys = 0

    def tables(self, version: Version) -> Tables:
        """What follows the head."""
        parts: dict[str, Callable[[], Any]] = {
            "producer": lambda: self._typed(Producer, "producer"),
            "cuts": lambda: tuple(self._typed(Cut, f"cuts[{number}]") for number in self._entries()),
            "strings": self._strings,
            "scopes": lambda: self._columns("scopes", SCOPE_COLUMNS, (TRAINING,)),
            "kinds": self._kinds,
            "nodes": lambda: self._columns("nodes", NODE_COLUMNS),
        }
        found: dict[str, Any] = {}
        for _ in range(self._keys - len(HEAD)):
            name = self._name()
            if name not in parts:
                self._call(self._unpacker.skip)
                continue
            if name != list(parts)[len(found)]:
                self._fail(f"the key {name!r} is repeated or out of order; the order is {', '.join((*HEAD, *parts))}")
            found[name] = parts[name]()
        if len(found) != len(parts):
            self._fail(f"the document has no {list(parts)[len(found)]!r}")
        if self._unpacker.tell() != len(self._data) - len(MAGIC):
            self._fail("there are more bytes after the document")
        check_finite("the producer", found["producer"].options)
        nodes, kinds = found["nodes"], found["kinds"]
        kind_of = nodes.indexes("kind", nodes.length("kind"), "node", len(kinds), "kinds")
        return Tables(len(self._data), version, **found, kind_of=kind_of)

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
            self._fail("the file ends before its document does: it was truncated")
        except FormatError as error:
            self._fail(str(error))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            self._fail(f"broken MessagePack: {' '.join(str(error).split()) or type(error).__name__}", error)

    def _fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        raise FormatError(f"{message} (byte {len(MAGIC) + self._unpacker.tell():,})") from cause

    def _typed(self, kind: type[T], place: str) -> T:
        value = self._value()
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            message, _, path = shortened(str(error)).partition(" - at `$")
            self._fail(f"{message} - at `$.{place}{path or '`'}", error)

    def _kinds(self) -> list[Kind]:
        count = self._call(self._unpacker.read_array_header)
        start = self._unpacker.tell()
        seen: set[bytes] = set()
        for number in range(count):
            row = self._row()
            if row in seen:
                # A kind takes hundreds of bytes in memory, so a file of one-byte kinds must not be read to its end.
                self._fail(f"kinds[{number}] repeats an earlier kind")
            seen.add(row)
        data = self._data[len(MAGIC) + start : len(MAGIC) + self._unpacker.tell()]
        try:
            kinds = _kinds_decoder().decode(_ARRAY.pack(0xDD, count) + data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            kinds = self._kinds_one_by_one(data, count)
        for number, kind in enumerate(kinds):
            if kind.attrs or kind.ext:
                check_finite(f"kinds[{number}]", kind.attrs)
                check_finite(f"kinds[{number}]", kind.ext)
        return kinds

    def _row(self) -> bytes:
        """The bytes of the next value, which is complete."""
        start = self._unpacker.tell()
        self._call(self._unpacker.skip)
        return self._data[len(MAGIC) + start : len(MAGIC) + self._unpacker.tell()]

    def _kinds_one_by_one(self, data: bytes, count: int) -> list[Kind]:
        """Kinds of which one is broken, to say which and where."""
        end = self._unpacker.tell()
        self._unpacker = _unpacker(self._data, end - len(data))
        return [self._typed(Kind, f"kinds[{number}]") for number in range(count)]

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
            if name not in names and name not in optional:
                self._call(self._unpacker.skip)
                continue
            column = self._value()
            if not isinstance(column, bytes):
                self._fail(f"column {table}.{name} is not a byte string")
            columns[name] = column
        missing = [name for name in names if name not in columns]
        if missing:
            self._fail(f"column {table}.{missing[0]} is missing")
        return Columns(table, columns)


def _unpacker(data: bytes, skipped: int = 0) -> msgpack.Unpacker:
    """What takes a document apart after its magic number; the first values are skipped, up to a byte after it."""
    unpacker = msgpack.Unpacker(
        raw=False, strict_map_key=True, max_buffer_size=len(data), ext_hook=_refuse_extension
    )
    unpacker.feed(memoryview(data)[len(MAGIC) :])
    if skipped:
        unpacker.read_bytes(skipped)
    return unpacker


@lru_cache(maxsize=1)
def _kinds_decoder() -> msgspec.msgpack.Decoder[list[Kind]]:
    return msgspec.msgpack.Decoder(list[Kind])


def _refuse_extension(code: int, _: bytes) -> NoReturn:
    raise FormatError(f"extension type {code} has no place in a GIR document")
