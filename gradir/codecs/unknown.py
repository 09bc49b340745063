"""Keys that no known version of the format has: reading ignores them, and they are nearly always misspelt."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from gradir.codecs.codec import encoding_of
from gradir.codecs.compression import opened
from gradir.codecs.document import BOM, MAGIC, Document
from gradir.codecs.faults import mismatched
from gradir.codecs.versions import NEWEST, Version, needs_steps
from gradir.errors import FormatError
from gradir.ir import Collective, Producer, Rank
from gradir.ir.unknown import closed, keys

__all__ = ["check_known", "version_in"]

_ADVICE: Final = "correct it, or leave it out"


class _Versioned(msgspec.Struct):
    version: str


def version_in(document: bytes) -> Version | None:
    """The version that a document states, whatever else is in it.

    Raises:
        ValueError: it is broken.
    """
    library = msgspec.json if encoding_of(document) == "json" else msgspec.msgpack
    text = document.removeprefix(BOM).removeprefix(MAGIC)
    return Version.parse(library.decode(text, type=_Versioned).version)


def check_known(data: bytes) -> None:
    """Refuse a document that can be read, is of a known version and has keys or entries which are ignored.

    Raises:
        FormatError: it has; the place is the path of what holds the first one.
    """
    with opened(data) as document:
        encoding = encoding_of(document)
        library = msgspec.json if encoding == "json" else msgspec.msgpack
        text = document.removeprefix(BOM).removeprefix(MAGIC)
        try:
            version = version_in(document) or NEWEST
            if version <= NEWEST and not needs_steps(encoding, version):
                library.decode(text, type=_document(encoding))
        except (ValueError, RecursionError) as error:
            # All that msgspec raises is a ValueError.
            problem, place = mismatched(error)
            raise FormatError(problem, place=place or "$", advice=_ADVICE) from error


@cache
def _document(encoding: str) -> Any:
    if encoding == "json":
        return closed(Document)
    from gradir.codecs.compact.layout import KEYS, KINDS, TABLES, columns_of

    tables = {
        name: keys(name, {**dict.fromkeys(columns_of(record), Any), KINDS: closed(tuple[record, ...])})  # type: ignore[valid-type]
        for name, record in TABLES.items()
    }
    head = {"producer": closed(Producer), "rank": closed(Rank), "collectives": closed(tuple[Collective, ...])}
    return keys("Compact", {**dict.fromkeys(KEYS, Any), **head, **tables})
