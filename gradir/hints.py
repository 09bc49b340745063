"""Suggest the name that a misspelt one may stand for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

# To compare a wrong pattern with every name of a graph of a million nodes would take a minute.
_MOST_COMPARED: Final = 20_000


def did_you_mean(wanted: str, known: Iterable[str], most: int = 1) -> str:
    """Return a suggestion of similar names for the end of an error, or an empty text.

    >>> did_you_mean("bufer", ["buffer", "output"]), did_you_mean("x", ["buffer"])
    (" (did you mean 'buffer'?)", '')
    """
    # It compiles patterns when it is imported.
    import difflib

    close = difflib.get_close_matches(wanted, list(islice(dict.fromkeys(known), _MOST_COMPARED)), n=most)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
