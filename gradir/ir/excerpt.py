"""Shorten parts of a hostile file for an error on one line."""

from __future__ import annotations

import reprlib
from typing import Final

from gradir.ir.text import printable

_QUOTED: Final = 60
_LINE: Final = 300

# Not repr alone: what stands in the place of a text may be large, or nested deeply.
_BEGINNING: Final = reprlib.Repr()
_BEGINNING.maxlevel = 3
_BEGINNING.maxlist = _BEGINNING.maxdict = _BEGINNING.maxtuple = 20
_BEGINNING.maxstring = _BEGINNING.maxlong = _BEGINNING.maxother = 2 * _QUOTED


def excerpt(value: object) -> str:
    """Return a document's value in quotes, shortened."""
    if isinstance(value, str):
        return repr(value[:_QUOTED]) + "…" * (len(value) > _QUOTED)
    return shortened(_BEGINNING.repr(value), _QUOTED)


def said(error: Exception) -> str:
    r"""Return a library's error, which may quote a document, on one short line.

    >>> said(ValueError("no such\n key \x1b"))
    'no such key \\x1b'
    """
    return shortened(printable(" ".join(str(error).split())))


def shortened(text: str, most: int = _LINE) -> str:
    """Return a text without its middle if it is long.

    >>> shortened("a long message", 9)
    'a lo…sage'
    """
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[len(text) - half :]}"
