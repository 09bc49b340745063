"""The two encodings of a document, and the boundary where what their readers raise becomes `FormatError`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from gradir.codecs.document import BOM, encoding_of
from gradir.codecs.faults import broken, mismatched
from gradir.errors import FormatError

T = TypeVar("T")

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes that it cannot read."""


class Form(NamedTuple):
    """One encoding."""

    name: str
    decode: Callable[..., Any]
    syntax: str

    def guard(self, data: bytes) -> None:
        """Refuse a document that would exhaust the stack or the memory of ``decode``.

        Raises:
            FormatError: it would.
        """
        self._syntax().guard(data)

    def inspect(self, data: bytes) -> None:
        """Refuse what ``decode`` skips without a look, in the values of unknown keys.

        Raises:
            FormatError: a value there is broken.
        """
        self._syntax().inspect(data)

    def fault(self, data: bytes, error: Exception) -> FormatError:
        """Return the error for bytes that ``decode`` refused, with its place."""
        found: FormatError = self._syntax().fault_of(data, error)
        return found

    def _syntax(self) -> Any:
        # Imported when needed: a command that reads one encoding should not wait for the other.
        return import_module(self.syntax)


JSON: Final = Form("json", msgspec.json.decode, "gradir.codecs.json_syntax")
MSGPACK: Final = Form("msgpack", msgspec.msgpack.decode, "gradir.codecs.msgpack_syntax")


def recognize(data: bytes) -> tuple[Form, bytes]:
    r"""Return the encoding of a document that is not compressed, and its bytes with spaces for a byte order mark.

    Spaces leave every byte at its place, so an error names the byte of the file.

    Raises:
        FormatError: the bytes are not a GIR document.

    >>> form, document = recognize(b"\xef\xbb\xbf{}")
    >>> form.name, document
    ('json', b'   {}')
    """
    form = JSON if encoding_of(data) == JSON.name else MSGPACK
    return form, b" " * len(BOM) + data[len(BOM) :] if data.startswith(BOM) else data


def read(form: Form, data: bytes, kind: type[T]) -> T:
    """Return the parts of a document that a record asks for.

    Raises:
        FormatError: the bytes are not in this encoding, or the parts are not of the types that the record states.

    >>> class Head(msgspec.Struct):
    ...     version: str
    >>> read(JSON, b'{"version":"1.0","nodes":[]}', Head)
    Head(version='1.0')
    """
    form.guard(data)
    try:
        found: T = form.decode(data, type=kind)
    except msgspec.ValidationError as error:
        form.inspect(data)
        raise broken(*mismatched(error)) from error
    except UNREADABLE as error:
        raise form.fault(data, error) from error
    return found
