"""What is wrong with a text that is no JSON, and at which byte."""

from __future__ import annotations

import re
from typing import Final

from gradir.codecs.excerpt import shortened

__all__ = ["fault_of", "lower"]

# msgspec takes the end of the data for the missing half of a surrogate pair when no 6 bytes follow the first half.
_TAIL: Final = 64
_HALF_PAIR: Final = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})[^\\]")


def fault_of(data: bytes, error: Exception) -> str:
    r"""The error of a JSON reader in one line.

    >>> fault_of(b'["a\xff"]', ValueError("somewhere"))
    'broken JSON: not UTF-8, invalid start byte 0xff (byte 3)'
    """
    return f"broken JSON: {_no_text(data) or _lone_half(data, error) or _cut_short(data, error) or lower(error)}"


def lower(error: Exception) -> str:
    """The text of an error as a part of a longer line."""
    text = shortened(" ".join(str(error).split()))
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _no_text(data: bytes) -> str:
    # Readers decode one string at a time and name the byte within it.
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8, {error.reason} {data[error.start]:#04x} (byte {error.start:,})"
    return ""


def _cut_short(data: bytes, error: Exception) -> str:
    return f"{lower(error)} (byte {len(data):,})" if "truncated" in str(error) else ""


def _lone_half(data: bytes, error: Exception) -> str:
    if "truncated" not in str(error):
        return ""
    start = max(len(data) - _TAIL, 0)
    found = list(_HALF_PAIR.finditer(data, start))
    return f"invalid utf-16 surrogate pair (byte {found[-1].start(1):,})" if found else ""
