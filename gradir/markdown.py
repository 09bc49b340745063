"""Write fenced blocks, and replace blocks between two markers in a Markdown file."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gradir.errors import ExportError

_LONGEST_NAME: Final = 120
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
# The margin of the lines in a list or a quotation.
_MARGIN: Final = re.compile(r"[ \t>]*")

_MARKER: Final = re.compile(r"<!-- /?gradir: .* -->")


def code_span(text: str, longest: int | None = _LONGEST_NAME) -> str:
    """Return text as a code span for a table cell, without its middle if it is too long.

    GitHub and others find no mention, issue, address, hash or emoji in a code span. Outside of one neither a backslash
    nor an entity hides these, since they look for them in the parsed text.
    """
    if longest is not None and len(text) > longest:
        text = f"{text[: longest // 2]}…{text[-longest // 2 :]}"
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text).replace("|", "\\|")
    ticks = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    # Markdown removes one space from both ends if both have one.
    has_spaces = shown.startswith(" ") and shown.endswith(" ") and shown.strip(" ")
    pad = " " if has_spaces or shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def fence_code(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}\n"


def replace_block(document: str, marker: str, block: str) -> str:
    """Replace the text between ``<!-- gradir: MARKER -->`` and ``<!-- /gradir: MARKER -->`` in a document.

    The line ends are those of the document, and the block is indented like the second marker. Markers in code blocks
    or other HTML do not count.
    """
    lines = _LINE.findall(document)
    begin, end = f"<!-- gradir: {marker} -->", f"<!-- /gradir: {marker} -->"
    markers = _find_markers(document)
    found = [each for each in markers if each.text in {begin, end}]
    if [each.text for each in found] != [begin, end]:
        raise ExportError(
            f"it needs the lines {begin} and {end}, once each and in this order, outside code blocks, and after other "
            "HTML with an empty line between"
        )
    first, last = found
    margin = lines[last.line].rstrip("\r\n").partition("<")[0] if last.place else ""
    if first.place != last.place or not _MARGIN.fullmatch(margin):
        raise ExportError(f"the lines {begin} and {end} are not in the same item of a list or the same quotation")
    if any(first.line < each.line < last.line for each in markers):
        raise ExportError(f"another block begins or ends between {begin} and {end}, and would be lost")
    if margin.endswith(">"):
        # Markdown takes a blank after the sign for a part of the quotation.
        margin += " "
    newline = lines[first.line][len(lines[first.line].rstrip("\r\n")) :]
    inside = [f"{margin}{line}" if line else margin.rstrip() for line in block.removesuffix("\n").split("\n")]
    text = "".join([*lines[: first.line + 1], *(f"{line}{newline}" for line in inside), *lines[last.line :]])
    after = [(each.text, each.line, len(each.place)) for each in _find_markers(text) if each.text in {begin, end}]
    depth = len(first.place)
    if after != [(begin, first.line, depth), (end, first.line + len(inside) + 1, depth)]:
        raise ExportError(f"the text between {begin} and {end} contains one of these lines or hides it")
    return text


class _Marker(NamedTuple):
    """A comment on a line of its own; ``place`` has the lists, items and quotations around it."""

    text: str
    line: int
    place: tuple[int, ...]


def _find_markers(document: str) -> list[_Marker]:
    from markdown_it import MarkdownIt

    found: list[_Marker] = []
    place: list[int] = []
    for number, token in enumerate(MarkdownIt("commonmark").parse(document.removeprefix("\ufeff"))):
        if token.nesting > 0:
            place.append(number)
        elif token.nesting < 0:
            place.pop()
        elif token.type == "html_block" and token.map and _MARKER.fullmatch(token.content.strip()):
            found.append(_Marker(token.content.strip(), token.map[0], tuple(place)))
    return found
