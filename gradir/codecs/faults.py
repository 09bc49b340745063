"""What can be wrong with a document, and what to do about it: the one home of the advice."""

from __future__ import annotations

import re
from typing import Final

from gradir.errors import FormatError, NewerFormatError
from gradir.ir.excerpt import shortened
from gradir.ir.text import printable

_DAMAGED: Final = "fetch the file again, or write it again"
_BROKEN: Final = "undo the last edit of the file, or capture the graph again"
_CONFLICT: Final = "choose a side (git checkout --ours FILE, or --theirs), or capture the graph again"
_FOREIGN: Final = "gradir capture writes one"
_TOO_NEW: Final = "upgrade gradir"
# No line of JSON starts with the marks of a merge conflict.
_CONFLICT_MARK: Final = re.compile(rb"^<{7}(?=[ \r\n])", re.MULTILINE)


def damaged(problem: str, place: str = "") -> FormatError:
    """The error for bytes that no program writes: a transfer or a disk changed them, or a program was ended."""
    return FormatError(problem, place=place, advice=_DAMAGED)


def broken(problem: str, place: str = "") -> FormatError:
    """The error for a text that can be read and means no graph, as after an edit or a merge by hand."""
    return FormatError(problem, place=place, advice=_BROKEN)


def conflict(data: bytes) -> FormatError | None:
    r"""The error for a text in which git marked both sides of a merge, if it is one.

    >>> conflict(b'{\n<<<<<<< HEAD\n').place
    'line 2'
    """
    found = _CONFLICT_MARK.search(data)
    if found is None:
        return None
    line = data.count(b"\n", 0, found.start()) + 1
    return FormatError("a merge conflict", place=f"line {line:,}", advice=_CONFLICT)


def foreign(problem: str) -> FormatError:
    """The error for a file that holds something else."""
    return FormatError(problem, advice=_FOREIGN)


def too_new(problem: str, place: str = "") -> NewerFormatError:
    """The error for what a newer gradir can read."""
    return NewerFormatError(problem, place=place, advice=_TOO_NEW)


def byte(number: int) -> str:
    """A place in the bytes of a document, counted from 0.

    >>> byte(12345)
    'byte 12,345'
    """
    return f"byte {number:,}"


def mismatched(error: Exception) -> tuple[str, str]:
    """What is wrong and where, from an error of msgspec.

    >>> mismatched(ValueError("Expected `str`, got `int` - at `$.op`"))
    ('expected `str`, got `int`', '$.op')
    """
    text, _, path = printable(" ".join(str(error).split())).rpartition(" - at `$")
    if not text:
        text, path = path, ""
    path = path.removesuffix("`")
    return lowered(shortened(text)), f"${shortened(path)}" if path else ""


def placed(problem: str, place: str) -> str:
    """What is wrong, behind where."""
    return f"{place or '$'}: {problem}"


def lowered(text: str) -> str:
    """A sentence as a part of a longer line."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
