"""Make the errors about broken documents, with advice for each kind."""

from __future__ import annotations

import re
from typing import Final

from gradir.errors import FormatError, NewerFormatError
from gradir.ir.text import escape_unprintable, shorten

_DAMAGED: Final = "fetch the file again, or write it again"
_BROKEN: Final = "undo the last edit of the file, or capture the graph again"
_CONFLICT: Final = "choose a side (git checkout --ours FILE, or --theirs), or capture the graph again"
_FOREIGN: Final = "gradir capture writes one"
_TOO_NEW: Final = "upgrade gradir"
# No line of JSON starts with the marks of a merge conflict.
_CONFLICT_MARK: Final = re.compile(rb"^<{7}(?=[ \r\n])", re.MULTILINE)


def damage(problem: str, place: str = "") -> FormatError:
    """Return the error for damaged bytes, such as after an interrupted transfer."""
    return FormatError(problem, place=place, advice=_DAMAGED)


def invalid_error(problem: str, place: str = "") -> FormatError:
    """Return the error for a readable document that is no valid graph, such as after an edit by hand."""
    return FormatError(problem, place=place, advice=_BROKEN)


def conflict(data: bytes) -> FormatError | None:
    r"""Return the error for a file with git's marks of a merge conflict, or ``None``.

    >>> conflict(b'{\n<<<<<<< HEAD\n').place
    'line 2'
    """
    found = _CONFLICT_MARK.search(data)
    if found is None:
        return None
    line = data.count(b"\n", 0, found.start()) + 1
    return FormatError("a merge conflict", place=f"line {line:,}", advice=_CONFLICT)


def foreign_error(problem: str) -> FormatError:
    """Return the error for a file with other contents."""
    return FormatError(problem, advice=_FOREIGN)


def newer_error(problem: str, place: str = "") -> NewerFormatError:
    """Return the error for a file that a newer gradir can read."""
    return NewerFormatError(problem, place=place, advice=_TOO_NEW)


def byte(number: int) -> str:
    """Return a place in the bytes of a document, counted from 0."""
    return f"byte {number:,}"


def split_message(error: Exception) -> tuple[str, str]:
    """Return the problem and the place in an error of msgspec."""
    text, _, path = escape_unprintable(" ".join(str(error).split())).rpartition(" - at `$")
    if not text:
        text, path = path, ""
    path = path.removesuffix("`")
    return decapitalize(shorten(text)), f"${shorten(path)}" if path else ""


def decapitalize(text: str) -> str:
    """Return a sentence as a part of a longer line. An acronym at its start stays in capitals."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
