"""Which of several processes a document is of, what it exchanges, and whether the rest is that of another's document.

A thousand ranks leave a thousand documents, of which few differ. So no graph is made here: the bytes tell.
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
from gradir.codecs.document import check_head
from gradir.codecs.forms import JSON, MSGPACK, UNREADABLE, Form, read, recognize
from gradir.errors import FormatError
from gradir.ir import Collective, Rank

_MARK: Final = os.urandom(16).hex().encode()
"""Text that no file can foresee, to stand for nodes."""

_ENDS: Final = {JSON: (b'"%b"' % _MARK, b"}\n"), MSGPACK: (b"\xd9\x20" + _MARK, b"")}
"""The mark in each encoding, and what follows the nodes as gradir writes them."""


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
    nodes: msgspec.Raw = msgspec.Raw(b"")


class Parter:
    """Takes documents apart, one after the other; nodes with the bytes of those before are not looked at again."""

    def __init__(self) -> None:
        self._nodes = b""
        self._digest = b""

    def parted(self, data: bytes) -> Parted:
        """Return the parts of a document, compressed or not.

        Raises:
            FormatError: it is no GIR document, of a version that cannot be read, or broken where it was looked at.
        """
        with opened(data) as inner:
            form, document = recognize(inner)
            found, rest = self._read(form, document)
            check_head({"format": found.format, "version": found.version, "requires": found.requires})
            try:
                rank = read(form, bytes(found.rank), Rank) if found.rank else None
            except FormatError:
                # A newer version may have more in it. If it is broken, this names its place in the document.
                rank = decode(document).rank
            digest, start = hashlib.sha256(self._digest), 0
            for part in sorted(filter(None, (bytes(found.rank), bytes(found.collectives))), key=rest.index):
                end = rest.index(part, start)
                digest.update(memoryview(rest)[start:end])
                start = end + len(part)
            digest.update(memoryview(rest)[start:])
            return Parted(rank, bytes(found.collectives), digest.digest(), form.name)

    def _read(self, form: Form, document: bytes) -> tuple[_Spelled, bytes]:
        """Return the parts as they are spelled, and the document with a mark for the nodes if these stand at its end.

        Where the mark is read as the nodes, so would be the bytes that it stands for.
        """
        mark, end = _ENDS[form]
        if self._nodes and document.endswith(self._nodes):
            rest = document[: -len(self._nodes)] + mark + end
            with suppress(FormatError):
                found = read(form, rest, _Spelled)
                if bytes(found.nodes) == mark:
                    return found, rest
        found = read(form, document, _Spelled)
        self._nodes, self._digest = bytes(found.nodes) + end, b""
        if not found.nodes or not document.endswith(self._nodes):
            self._nodes = b""
            return found, document
        self._digest = hashlib.sha256(self._nodes).digest()
        return found, document[: -len(self._nodes)] + mark + end


def numbered_collectives(
    data: bytes, parts: Parted, known: dict[bytes, int], number: Callable[[Sequence[Collective]], Iterable[int]]
) -> array[int]:
    """Return the number of each collective of a document, of which these are the parts.

    ``number`` gives numbers to records whose bytes are not among the ``known``, and these become known.

    Raises:
        FormatError: they are broken.
    """
    if not parts.collectives:
        return array("L")
    form = JSON if parts.encoding == JSON.name else MSGPACK
    try:
        spelled = [*map(bytes, read(form, parts.collectives, list[msgspec.Raw]))]
        new = [each for each in dict.fromkeys(spelled) if each not in known]
        known.update(zip(new, number([form.decode(each, type=Collective) for each in new]), strict=True))
    except (FormatError, *UNREADABLE):
        # Reading all of the document names the place of the fault in it.
        return array("L", number(decode(data).collectives))
    return array("L", map(known.__getitem__, spelled))
