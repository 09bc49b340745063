"""Split a document into its rank, its collectives, and a digest of the rest, without making a graph.

A thousand ranks write a thousand documents, and few of them differ, so gradir compares their bytes.
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
from gradir.codecs.compression import open_decompressed
from gradir.codecs.document import JSON, MSGPACK, UNREADABLE, Encoding, check_head, read_record, recognize
from gradir.errors import FormatError
from gradir.ir import Collective, Rank

# A random text that replaces the nodes, so that no file can contain it.
_MARK: Final = os.urandom(16).hex().encode()
# The mark in each encoding, and the bytes that gradir writes after the nodes.
_ENDS: Final = {JSON: (b'"%b"' % _MARK, b"}\n"), MSGPACK: (b"\xd9\x20" + _MARK, b"")}


class RankParts(NamedTuple):
    """A document's rank, its encoded collectives, and a digest of the rest.

    Documents with equal digests in the same encoding have equal graphs.
    """

    rank: Rank | None
    collectives: bytes
    rest: bytes
    encoding: str


class _Encoded(msgspec.Struct):
    format: str = ""
    version: str = ""
    requires: tuple[str, ...] = ()
    rank: msgspec.Raw = msgspec.Raw(b"")
    collectives: msgspec.Raw = msgspec.Raw(b"")
    nodes: msgspec.Raw = msgspec.Raw(b"")


class RankSplitter:
    """Splits documents one after the other, without reading again nodes that equal those of the document before."""

    def __init__(self) -> None:
        self._nodes = b""
        self._digest = b""

    def split(self, data: bytes) -> RankParts:
        """Return the parts of a document, compressed or not."""
        with open_decompressed(data) as inner:
            encoding, document = recognize(inner)
            found, rest = self._read(encoding, document)
            check_head({"format": found.format, "version": found.version, "requires": found.requires})
            try:
                rank = read_record(encoding, bytes(found.rank), Rank) if found.rank else None
            except FormatError:
                # A newer version may have more fields. If the rank is broken, the error names its place.
                rank = decode(document).rank
            digest, start = hashlib.sha256(self._digest), 0
            # The digest skips both parts, in the order of the document.
            for part in sorted(filter(None, (bytes(found.rank), bytes(found.collectives))), key=rest.index):
                end = rest.index(part, start)
                digest.update(memoryview(rest)[start:end])
                start = end + len(part)
            digest.update(memoryview(rest)[start:])
            return RankParts(rank, bytes(found.collectives), digest.digest(), encoding.name)

    def _read(self, encoding: Encoding, document: bytes) -> tuple[_Encoded, bytes]:
        """Return the encoded parts, and the document with a mark in place of nodes at its end."""
        mark, end = _ENDS[encoding]
        if self._nodes and document.endswith(self._nodes):
            rest = document[: -len(self._nodes)] + mark + end
            with suppress(FormatError):
                found = read_record(encoding, rest, _Encoded)
                # If the mark is read as the nodes, the bytes that it replaces would be, too.
                if bytes(found.nodes) == mark:
                    return found, rest
        found = read_record(encoding, document, _Encoded)
        self._nodes, self._digest = bytes(found.nodes) + end, b""
        if not found.nodes or not document.endswith(self._nodes):
            self._nodes = b""
            return found, document
        self._digest = hashlib.sha256(self._nodes).digest()
        return found, document[: -len(self._nodes)] + mark + end


def number_collectives(
    data: bytes, parts: RankParts, known: dict[bytes, int], number: Callable[[Sequence[Collective]], Iterable[int]]
) -> array[int]:
    """Return the number of each collective of a document with these parts.

    ``number`` returns numbers for records whose bytes are not in ``known``, and this function adds them to ``known``.
    """
    if not parts.collectives:
        return array("L")
    encoding = JSON if parts.encoding == JSON.name else MSGPACK
    try:
        encoded = [*map(bytes, read_record(encoding, parts.collectives, list[msgspec.Raw]))]
        new = [each for each in dict.fromkeys(encoded) if each not in known]
        known.update(zip(new, number([encoding.decode(each, type=Collective) for each in new]), strict=True))
    except (FormatError, *UNREADABLE):
        # The error from reading all of the document names the place of the fault.
        return array("L", number(decode(data).collectives))
    return array("L", map(known.__getitem__, encoded))
