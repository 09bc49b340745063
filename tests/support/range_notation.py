"""Reads the notation of `gradir.ir.name_ranges` back, by its grammar and not by how it is written."""

from __future__ import annotations

import json
import re
from itertools import product

_PLAIN = re.compile(r"[^{},.:\"\s]+")
_RUN = re.compile(r"(\d+)\.\.(\d+)")


def expanded(text: str) -> tuple[list[str], str]:
    """The names at the start of a text, and what follows them."""
    return _sequence(text, braced=False)


def _sequence(text: str, *, braced: bool) -> tuple[list[str], str]:
    names = [""]
    while text:
        run = _RUN.match(text) if braced else None
        if text[0] == "{":
            found, text = _alternatives(text[1:])
        elif text[0] == '"':
            value, end = json.JSONDecoder().raw_decode(text)
            found, text = [value], text[end:]
        elif run is not None:
            found, text = [str(number) for number in range(int(run[1]), int(run[2]) + 1)], text[run.end() :]
        elif text[0] == ".":
            found, text = ["."], text[1:]
        elif plain := _PLAIN.match(text):
            found, text = [plain[0]], text[plain.end() :]
        else:
            break
        names = [before + after for before, after in product(names, found)]
    return names, text


def _alternatives(text: str) -> tuple[list[str], str]:
    names: list[str] = []
    while True:
        found, text = _sequence(text, braced=True)
        names += found
        end, text = text[0], text[1:]
        if end == "}":
            return names, text
        assert end == ","
