"""Text inside Markdown: fenced blocks, and blocks between two markers that a program keeps up to date."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gradir.errors import ExportError

__all__ = ["code_span", "embedded", "fenced"]

_LONGEST_NAME: Final = 120
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_FENCE: Final = re.compile(r" {0,3}(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_MARKER: Final = re.compile(r" {0,3}(?P<text><!-- .* -->)[ \t]*")
"""Further in, Markdown has code."""


def code_span(text: str, longest: int = _LONGEST_NAME) -> str:
    r"""Text as a code span that a table can hold, without its middle when it is longer than that.

    >>> code_span("a|b"), code_span("`")
    ('`a\\|b`', '`` ` ``')
    """
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[-longest // 2 :]}"
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text).replace("|", "\\|")
    ticks = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def fenced(text: str, language: str) -> str:
    r"""A code block; its fence is longer than any that the text holds.

    >>> print(fenced("a\n```\n", "text"), end="")
    ````text
    a
    ```
    ````
    """
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}\n"


def embedded(document: str, marker: str, block: str) -> str:
    r"""The document with a block put between the lines ``<!-- gradir: MARKER -->`` and ``<!-- /gradir: MARKER -->``.

    What stood there is replaced; line ends are those of the document, and all the rest is kept. A marker in a code
    block is text about markers, and does not count.

    Raises:
        ExportError: the two lines are not there once each and in this order.

    >>> print(embedded("<!-- gradir: a -->\nold\n<!-- /gradir: a -->\n", "a", "new\n"), end="")
    <!-- gradir: a -->
    new
    <!-- /gradir: a -->
    """
    lines = _LINE.findall(document)
    begin, end = f"<!-- gradir: {marker} -->", f"<!-- /gradir: {marker} -->"
    markers = [(number, text) for number, text in _markers(lines) if text in {begin, end}]
    if [text for _, text in markers] != [begin, end]:
        raise ExportError(f"it needs the lines {begin} and {end}, once each and in this order, outside code blocks")
    (first, _), (last, _) = markers
    newline = lines[first][len(lines[first].rstrip("\r\n")) :]
    return "".join([*lines[: first + 1], newline.join(block.split("\n")), *lines[last:]])


def _markers(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines that are a comment, outside fences as CommonMark has them."""
    fence = ""
    for number, line in enumerate(lines):
        text = line.rstrip("\r\n")
        if number == 0:
            text = text.removeprefix("\ufeff")
        found = _FENCE.fullmatch(text)
        if fence:
            closes = found is not None and found["fence"].startswith(fence) and not found["info"].strip()
            fence = "" if closes else fence
        elif found is not None:
            fence = found["fence"]
        elif marker := _MARKER.fullmatch(text):
            yield number, marker["text"]
