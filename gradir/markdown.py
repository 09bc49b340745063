"""Text inside Markdown: fenced blocks, and blocks between two markers that a program keeps up to date."""

from __future__ import annotations

import re

from gradir.errors import ExportError

__all__ = ["embedded", "fenced"]


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

    What stood there is replaced; line ends are those of the document.

    Raises:
        ExportError: the two lines are not there once each and in this order.

    >>> print(embedded("<!-- gradir: a -->\nold\n<!-- /gradir: a -->\n", "a", "new\n"), end="")
    <!-- gradir: a -->
    new
    <!-- /gradir: a -->
    """
    lines = document.splitlines(keepends=True)
    begin, end = f"<!-- gradir: {marker} -->", f"<!-- /gradir: {marker} -->"
    begins = [number for number, line in enumerate(lines) if line.strip() == begin]
    ends = [number for number, line in enumerate(lines) if line.strip() == end]
    if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
        raise ExportError(f"it needs the lines {begin} and {end}, once each and in this order")
    newline = "\r\n" if lines[begins[0]].endswith("\r\n") else "\n"
    kept = lines[: begins[0] + 1], lines[ends[0] :]
    return "".join(kept[0]) + newline.join(block.split("\n")) + "".join(kept[1])
