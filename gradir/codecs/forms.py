"""The two encodings of a document, and the boundary where what their readers raise becomes `FormatError`."""

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


class Form(NamedTuple):
    """One encoding, and the name of the module that knows its syntax."""

    name: str
    decode: Callable[..., Any]
    module: str

    @property
    def syntax(self) -> Any:
        """The module: ``guard`` refuses what would exhaust the stack or the memory of ``decode``.

        ``inspect`` refuses broken values of unknown keys, which ``decode`` skips without a look, and ``fault_of`` makes
        of what ``decode`` raises an error with its place. A command that reads one encoding does not import the other.
        """
        return import_module(self.module)


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
    form.syntax.guard(data)
    try:
        found: T = form.decode(data, type=kind)
    except msgspec.ValidationError as error:
        form.syntax.inspect(data)
        raise broken(*mismatched(error)) from error
    except UNREADABLE as error:
        raise form.syntax.fault_of(data, error) from error
    return found
