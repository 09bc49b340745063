"""Keys that no known version of the format has: reading ignores them, and they are nearly always misspelt."""

from __future__ import annotations

from typing import Final

import msgspec

from gradir.codecs.compression import opened
from gradir.codecs.document import Document
from gradir.codecs.forms import read, recognize
from gradir.codecs.versions import NEWEST, Version, needs_steps
from gradir.errors import FormatError
from gradir.ir.unknown import closed

__all__ = ["check_known", "version_in"]

_ADVICE: Final = "correct it, or leave it out"


class _Versioned(msgspec.Struct):
    version: str


def version_in(document: bytes) -> Version | None:
    """The version that a document states, whatever else is in it.

    Raises:
        FormatError: it is broken.
    """
    return Version.parse(read(*recognize(document), _Versioned).version)


def check_known(data: bytes) -> None:
    """Refuse a document that can be read, is of a known version and has keys or entries which are ignored.

    Raises:
        FormatError: it has; the place is the path of what holds the first one.
    """
    with opened(data) as document:
        version = version_in(document) or NEWEST
        if version > NEWEST or needs_steps(version):
            return
        try:
            read(*recognize(document), closed(Document))
        except FormatError as error:
            raise FormatError(error.problem, place=error.place or "$", advice=_ADVICE) from error
