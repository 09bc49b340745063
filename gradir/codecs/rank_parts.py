"""Split a document into its rank, its collectives, and a digest of the rest, without making a graph.

A thousand ranks write a thousand documents, of which few differ, so their bytes are compared.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from gradir.codecs.codec import decode
from gradir.codecs.compression import opened
from gradir.codecs.document import JSON, MSGPACK, UNREADABLE, Encoding, check_head, read, recognize
from gradir.errors import FormatError
from gradir.ir import Collective, Rank

# Stands for the nodes. It is random, so that no file can contain it.
_MARK: Final = os.urandom(16).hex().encode()
# The mark in each encoding, and what follows the nodes as gradir writes them.
_ENDS: Final = {JSON: (b'"%b"' % _MARK, b"}\n"), MSGPACK: (b"\xd9\x20" + _MARK, b"")}


class RankParts(NamedTuple):
    """A document's rank, its encoded collectives, and a digest of the rest.

    Documents with equal digests in the same encoding have equal graphs.
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
    nodes: msgspec.Raw = msgspec.Raw(b"")


class RankSplitter:
    """Split documents one after the other; nodes with the bytes of the previous ones are not read again."""

    def __init__(self) -> None:
        self._nodes = b""
        self._digest = b""

    def split(self, data: bytes) -> RankParts:
        """Return the parts of a document, compressed or not."""
        with opened(data) as inner:
            encoding, document = recognize(inner)
            found, rest = self._read(encoding, document)
            check_head({"format": found.format, "version": found.version, "requires": found.requires})
            try:
                rank = read(encoding, bytes(found.rank), Rank) if found.rank else None
            except FormatError:
                # A newer version may have more fields. If the rank is broken, this names its place in the document.
                rank = decode(document).rank
            digest, start = hashlib.sha256(self._digest), 0
            # The digest leaves both parts out, in the order in which the document has them.
            for part in sorted(filter(None, (bytes(found.rank), bytes(found.collectives))), key=rest.index):
                end = rest.index(part, start)
                digest.update(memoryview(rest)[start:end])
                start = end + len(part)
            digest.update(memoryview(rest)[start:])
            return RankParts(rank, bytes(found.collectives), digest.digest(), encoding.name)

    def _read(self, encoding: Encoding, document: bytes) -> tuple[_Spelled, bytes]:
        """Return the encoded parts, and the document with a mark in place of nodes at its end."""
        mark, end = _ENDS[encoding]
        if self._nodes and document.endswith(self._nodes):
            rest = document[: -len(self._nodes)] + mark + end
            with suppress(FormatError):
                found = read(encoding, rest, _Spelled)
                # If the mark is read as the nodes, so would be the bytes that it replaces.
                if bytes(found.nodes) == mark:
                    return found, rest
        found = read(encoding, document, _Spelled)
        self._nodes, self._digest = bytes(found.nodes) + end, b""
        if not found.nodes or not document.endswith(self._nodes):
            self._nodes = b""
            return found, document
        self._digest = hashlib.sha256(self._nodes).digest()
        return found, document[: -len(self._nodes)] + mark + end


def numbered_collectives(
    data: bytes, parts: RankParts, known: dict[bytes, int], number: Callable[[Sequence[Collective]], Iterable[int]]
) -> array[int]:
    """Return the number of each collective of a document with these parts.

    ``number`` gives numbers to records whose bytes are not among the ``known``, and these become known.
    """
    if not parts.collectives:
        return array("L")
    encoding = JSON if parts.encoding == JSON.name else MSGPACK
    try:
        spelled = [*map(bytes, read(encoding, parts.collectives, list[msgspec.Raw]))]
        new = [each for each in dict.fromkeys(spelled) if each not in known]
        known.update(zip(new, number([encoding.decode(each, type=Collective) for each in new]), strict=True))
    except (FormatError, *UNREADABLE):
        # Reading all of the document names the place of the fault in it.
        return array("L", number(decode(data).collectives))
    return array("L", map(known.__getitem__, spelled))
