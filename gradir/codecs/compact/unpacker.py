"""The reader of MessagePack, set so that it refuses what has no place in a document."""

from __future__ import annotations

from typing import NoReturn

import msgpack

from gradir.codecs.document import MAGIC
from gradir.errors import FormatError

__all__ = ["refuse_extension", "unpacker_of"]


def unpacker_of(data: bytes) -> msgpack.Unpacker:
    """What takes a document apart after its magic number."""
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=True, max_buffer_size=len(data), ext_hook=refuse_extension)
    unpacker.feed(memoryview(data)[len(MAGIC) :])
    return unpacker


def refuse_extension(code: int, _: bytes) -> NoReturn:
    """Refuse an extension type.

    Raises:
        FormatError: always.
    """
    raise FormatError(f"extension type {code} has no place in a GIR document")
