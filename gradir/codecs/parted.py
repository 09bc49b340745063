"""Which of several processes a document is of, what it exchanges, and whether the rest is that of another's document.

A thousand ranks leave a thousand documents, of which few differ. So no graph is made here: the bytes tell.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from gradir.codecs.codec import decode
from gradir.codecs.compression import opened
from gradir.codecs.document import check_head
from gradir.codecs.forms import JSON, MSGPACK, read, recognize
from gradir.errors import FormatError
from gradir.ir import Collective, Rank

__all__ = ["Parted", "collectives_in", "parted"]


class Parted(NamedTuple):
    """A document in parts: its rank, its collectives as they are spelled, and a digest of all else.

    Documents of equal digests, in the same encoding, have equal graphs.
    """

    rank: Rank | None
    collectives: bytes
    rest: bytes
    encoding: str


class _Spelled(msgspec.Struct):
    format: str = ""
    version: str = ""
    requires: tuple[str, ...] = ()
    rank: msgspec.Raw = msgspec.Raw(b"")
    collectives: msgspec.Raw = msgspec.Raw(b"")


def parted(data: bytes) -> Parted:
    """The parts of a document, compressed or not.

    Raises:
        FormatError: it is no GIR document, of a version that cannot be read, or broken where it was looked at.
    """
    with opened(data) as inner:
        form, document = recognize(inner)
        found = read(form, document, _Spelled)
        check_head({"format": found.format, "version": found.version, "requires": found.requires})
        try:
            rank = read(form, bytes(found.rank), Rank) if found.rank else None
        except FormatError:
            # A newer version may have more in it. If it is broken, this names its place in the document.
            rank = decode(document).rank
        digest, start = hashlib.sha256(), 0
        for part in sorted(filter(None, (bytes(found.rank), bytes(found.collectives))), key=document.index):
            end = document.index(part, start)
            digest.update(memoryview(document)[start:end])
            start = end + len(part)
        digest.update(memoryview(document)[start:])
        return Parted(rank, bytes(found.collectives), digest.digest(), form.name)


def collectives_in(data: bytes, parts: Parted) -> tuple[Collective, ...]:
    """Return the collectives of a document, of which these are the parts.

    Raises:
        FormatError: they are broken.
    """
    if not parts.collectives:
        return ()
    try:
        return read(JSON if parts.encoding == JSON.name else MSGPACK, parts.collectives, tuple[Collective, ...])
    except FormatError:
        return decode(data).collectives
