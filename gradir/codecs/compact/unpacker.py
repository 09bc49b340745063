"""The reader of MessagePack, set so that it refuses what has no place in a document."""

from __future__ import annotations

from typing import Final, NoReturn

import msgpack

from gradir.codecs.document import MAGIC
from gradir.errors import FormatError
from gradir.ir.excerpt import said

__all__ = ["PAST_THE_END", "refuse_extension", "trouble_of", "unpacker_of"]

PAST_THE_END: Final = "a length leads past the end of the file: it is damaged, or the file was truncated"


def unpacker_of(data: bytes) -> msgpack.Unpacker:
    """What takes a document apart after its magic number."""
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=True, max_buffer_size=len(data), ext_hook=refuse_extension)
    unpacker.feed(memoryview(data)[len(MAGIC) :])
    return unpacker


def trouble_of(error: Exception) -> str:
    """What an error of the reader of MessagePack says of the document.

    >>> trouble_of(msgpack.StackError())
    'broken MessagePack: nested too deeply'
    """
    text = said(error)
    if "exceeds max_" in text:
        return PAST_THE_END
    if isinstance(error, (msgpack.StackError, RecursionError)):
        text = "nested too deeply"
    elif isinstance(error, msgpack.FormatError) or "type header" in text:
        text = "no value starts with this byte"
    elif isinstance(error, UnicodeDecodeError):
        text = f"a text is not UTF-8, {error.reason} {error.object[error.start]:#04x}"
    elif "map key" in text:
        text = "a key is not a text"
    return f"broken MessagePack: {text or 'it makes no sense'}"


def refuse_extension(code: int, _: bytes) -> NoReturn:
    """Refuse an extension type.

    Raises:
        FormatError: always.
    """
    raise FormatError(f"extension type {code} has no place in a GIR document")
