"""Which of several processes a document is of, what it exchanges, and whether the rest is that of another's document.

A thousand ranks leave a thousand documents, of which few differ. So no graph is made here: the bytes tell.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import msgspec

from gradir.codecs.codec import encoding_of
from gradir.codecs.compression import opened
from gradir.codecs.document import BOM, MAGIC, check_head
from gradir.codecs.faults import broken, mismatched
from gradir.ir import Collective, Rank

__all__ = ["Parted", "collectives_in", "parted"]

_BROKEN: Final = (msgspec.DecodeError, RecursionError)


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
    with opened(data) as document:
        encoding = encoding_of(document)
        library = msgspec.json if encoding == "json" else msgspec.msgpack
        body = document.removeprefix(BOM).removeprefix(MAGIC)
        try:
            found = library.decode(body, type=_Spelled)
            rank = library.decode(found.rank, type=Rank) if found.rank else None
        except _BROKEN as error:
            problem, place = mismatched(error)
            raise broken(problem, place) from error
        check_head({"format": found.format, "version": found.version, "requires": found.requires})
        digest, start = hashlib.sha256(), 0
        for part in sorted(filter(None, (bytes(found.rank), bytes(found.collectives))), key=body.index):
            end = body.index(part, start)
            digest.update(memoryview(body)[start:end])
            start = end + len(part)
        digest.update(memoryview(body)[start:])
        return Parted(rank, bytes(found.collectives), digest.digest(), encoding)


def collectives_in(spelled: bytes, encoding: str) -> tuple[Collective, ...]:
    """The collectives of a document, as `Parted` has them.

    Raises:
        FormatError: they are broken.
    """
    if not spelled:
        return ()
    library = msgspec.json if encoding == "json" else msgspec.msgpack
    try:
        found: tuple[Collective, ...] = library.decode(spelled, type=tuple[Collective, ...])
    except _BROKEN as error:
        problem, place = mismatched(error, ".collectives")
        raise broken(problem, place) from error
    return found
