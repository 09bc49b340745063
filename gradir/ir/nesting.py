"""Measure how deep a JSON text is nested, without recursion.

JSON readers recurse. If a program raised the recursion limit, the C stack overflows before Python 3.12 and ends the
process.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

# A reader gets at most this many levels. CPython's default recursion limit is the same.
DEEPEST: Final = 1000
TOO_DEEP: Final = f"broken JSON: nested deeper than {DEEPEST:,} levels"
# No document of gradir has this many levels.
_ROUNDS: Final = 16
_AS_LISTS: Final = bytes.maketrans(b"{}", b"[]")
_REST: Final = bytes(set(range(256)) - set(b'"[]{}'))
_QUOTED: Final = re.compile(rb'"[^"]*"?')


def is_too_deep(text: bytes) -> bool:
    r"""Return whether JSON has more levels of lists and objects than a reader may get.

    >>> is_too_deep(b"[" * 1000), is_too_deep(b'{"":[' * 501), is_too_deep(rb'["\"' + b"[" * 1001 + b'"]')
    (False, True, False)
    """
    # As few brackets cannot be nested too deeply, wherever they are.
    if text.count(b"[") + text.count(b"{") <= DEEPEST:
        return False
    if b"\\" in text:
        # Each escape starts where a run of backslashes does or after another escape, so these are those of a reader.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # With only brackets and quotes left, most strings are two quotes, and the regular expression has few to read.
    text = text.translate(_AS_LISTS, _REST).replace(b'""', b"")
    text = _QUOTED.sub(b"", text)
    # Each round removes the innermost level. If many rounds leave brackets, they are counted one by one.
    for rounds in range(_ROUNDS):
        if text.count(b"[") <= DEEPEST - rounds:
            return False
        text = text.replace(b"[]", b"")
    return max(accumulate(1 if bracket == ord("[") else -1 for bracket in text)) > DEEPEST - _ROUNDS
