"""Text inside Markdown: fenced blocks, and blocks between two markers that a program keeps up to date."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from typing import Final

from gradir.errors import ExportError

__all__ = ["code_span", "embedded", "fenced"]

_LONGEST_NAME: Final = 120
_MOST_NAMED: Final = 5
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_FENCE: Final = re.compile(r" {0,3}(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_MARKER: Final = re.compile(r"(?P<indent> {0,3})(?P<text><!-- .* -->)[ \t]*")
"""Further in, Markdown has code."""

_RAW: Final = re.compile(r" {0,3}<(?:pre|script|style|textarea)(?:[\s>]|$)", re.IGNORECASE)
_RAW_END: Final = re.compile(r"</(?:pre|script|style|textarea)>", re.IGNORECASE)
"""Between these Markdown leaves everything as it is."""

_TAG: Final = re.compile(r" {0,3}</?[A-Za-z]")


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

    What stood there is replaced; line ends are those of the document, and all the rest is kept. The block is indented
    as the first marker is, so that it stays in a list's item, and a blank line ends an HTML element before it, such as
    ``<details>``, in which Markdown would leave it as it is. A marker in a code block or in ``<pre>`` is text about
    markers, and does not count.

    Raises:
        ExportError: the two lines are not there once each and in this order.

    >>> print(embedded("<!-- gradir: a -->\nold\n<!-- /gradir: a -->\n", "a", "new\n"), end="")
    <!-- gradir: a -->
    new
    <!-- /gradir: a -->
    """
    lines = _LINE.findall(document)
    begin, end = f"<!-- gradir: {marker} -->", f"<!-- /gradir: {marker} -->"
    markers = [(number, found) for number, found in _markers(lines) if found["text"] in {begin, end}]
    if [found["text"] for _, found in markers] != [begin, end]:
        raise ExportError(
            f"it needs the lines {begin} and {end}, once each and in this order, outside code blocks"
            + _not_counted(lines, (begin, end), {number for number, _ in markers})
        )
    (first, found), (last, _) = markers
    newline = lines[first][len(lines[first].rstrip("\r\n")) :]
    indented = [f"{found['indent']}{line}" if line else line for line in block.split("\n")]
    if indented[0] and _is_in_html(lines[:first]):
        indented.insert(0, "")
    return "".join([*lines[: first + 1], newline.join(indented), *lines[last:]])


def _not_counted(lines: Sequence[str], wanted: Sequence[str], counted: Container[int]) -> str:
    """Where a marker stands and does not count."""
    others = [str(number + 1) for number, line in enumerate(lines) if number not in counted and _has(line, wanted)]
    if not others:
        return ""
    where = f"line{'s'[: len(others) != 1]} {', '.join(others[:_MOST_NAMED])}"
    return f"; {where}: not alone there, in a code block or <pre>, or indented by more than 3 blanks"


def _has(line: str, wanted: Sequence[str]) -> bool:
    return any(text in line for text in wanted)


def _is_in_html(before: Sequence[str]) -> bool:
    """Whether an element starts in the lines that no blank line parts from what follows."""
    for line in reversed(before):
        if not line.strip():
            return False
        if _TAG.match(line):
            return True
    return False


def _markers(lines: Sequence[str]) -> Iterator[tuple[int, re.Match[str]]]:
    """The lines that are a comment, outside fences and raw elements as CommonMark has them."""
    fence, is_raw = "", False
    for number, line in enumerate(lines):
        text = line.rstrip("\r\n")
        if number == 0:
            text = text.removeprefix("\ufeff")
        found = _FENCE.fullmatch(text)
        if is_raw or (not fence and _RAW.match(text)):
            is_raw = _RAW_END.search(text) is None
        elif fence:
            closes = found is not None and found["fence"].startswith(fence) and not found["info"].strip()
            fence = "" if closes else fence
        elif found is not None:
            fence = found["fence"]
        elif marker := _MARKER.fullmatch(text):
            yield number, marker
