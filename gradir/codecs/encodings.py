"""The two encodings of a document. The errors of their readers become `FormatError` here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from gradir.codecs.document import BOM, encoding_of
from gradir.codecs.faults import broken, mismatched

T = TypeVar("T")
# msgspec raises these for bytes that it cannot read.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Encoding(NamedTuple):
    """One encoding, with its reader and the name of the module that knows its syntax."""

    name: str
    decode: Callable[..., Any]
    module: str

    @property
    def syntax(self) -> Any:
        """Return the module. Only the one that a file needs is imported.

        ``guard`` refuses data that would exhaust the stack or the memory of ``decode``. ``inspect`` refuses broken
        values of unknown keys, which ``decode`` skips. ``fault_of`` adds the place to an error of ``decode``.
        """
        return import_module(self.module)


JSON: Final = Encoding("json", msgspec.json.decode, "gradir.codecs.json_syntax")
MSGPACK: Final = Encoding("msgpack", msgspec.msgpack.decode, "gradir.codecs.msgpack_syntax")


def recognize(data: bytes) -> tuple[Encoding, bytes]:
    r"""Return the encoding of a document that is not compressed, and its bytes with spaces for a byte order mark.

    Spaces leave every byte at its place, so an error names the byte of the file.

    >>> encoding, document = recognize(b"\xef\xbb\xbf{}")
    >>> encoding.name, document
    ('json', b'   {}')
    """
    encoding = JSON if encoding_of(data) == JSON.name else MSGPACK
    return encoding, b" " * len(BOM) + data[len(BOM) :] if data.startswith(BOM) else data


def read(encoding: Encoding, data: bytes, kind: type[T]) -> T:
    """Return the parts of a document that a record declares."""
    encoding.syntax.guard(data)
    try:
        found: T = encoding.decode(data, type=kind)
    except msgspec.ValidationError as error:
        encoding.syntax.inspect(data)
        raise broken(*mismatched(error)) from error
    except UNREADABLE as error:
        raise encoding.syntax.fault_of(data, error) from error
    return found
