"""Text and numbers of live objects as a file may hold them: the same in every process."""

from __future__ import annotations

import math
import re
from typing import cast

from gradir.ir.model import AttrScalar, NonFinite

_INT64 = range(-(2**63), 2**63)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
# Python writes an int as decimal slowly, and may refuse to from 640 digits on.
_MAX_DECIMAL_BITS = 2_000


def plain_int(value: int) -> AttrScalar:
    """Return an integer of 64 bits as it is, a longer one as its digits, hexadecimal ones if they are very many."""
    if value in _INT64:
        return value
    return str(value) if value.bit_length() <= _MAX_DECIMAL_BITS else hex(value)


def plain_float(value: float) -> AttrScalar:
    """Return a float as a file holds it."""
    if math.isfinite(value):
        return value
    return NonFinite("nan" if math.isnan(value) else "inf" if value > 0 else "-inf")


def text_of(value: object) -> str:
    """Return the characters of a str, whatever its class shows instead, and ``str`` of anything else.

    >>> from enum import Enum
    >>> text_of(Enum("Mode", {"SUM": "sum"}, type=str).SUM), text_of(1)
    ('sum', '1')
    """
    return plain_text(cast("str", value) if issubclass(type(value), str) else str(value))


def plain_texts(texts: list[str]) -> list[str]:
    """Return the `plain_text` of each; most texts are plain, which one look at all of them tells."""
    together = "".join(texts)
    are_plain = {*map(type, texts)} == {str} and plain_text(together) is together
    return texts if are_plain else list(map(plain_text, texts))


def plain_text(text: str) -> str:
    """A plain str without object addresses and lone surrogates, which would differ between runs or fit in no file."""
    if type(text) is not str:
        text = "".join((text,))
    if " at 0x" in text:
        text = _ADDRESS.sub("", text)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
