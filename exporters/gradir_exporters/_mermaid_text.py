"""Escape text for a Mermaid picture."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gradir.ir.text import printable

# One huge name would use up all the text that a picture may have.
_MAX_LINE_CHARS = 120
_MAX_LINES = 20

_VANISHING_SPACE = re.compile(r"^ | $|(?<= ) ")

# Mermaid replaces entities by these characters while it works, and would take a label's own for an entity.
_PLACEHOLDER = re.compile("ﬂ(?=°)|¶(?=ß)")

# Tried on 9,042 labels, parsed and drawn in Chromium, with Mermaid 11.4, 11.12, 11.13, 11.17 and 12.3.
_SYNTAX = re.compile(
    r"""
      ^(?P<number>[0-9]+)[.)](?=[ ]|$)      # an item of a numbered list,
    | ^[-+]                                 # of another list, or an underline
    | (?<=\])\(                             # a link
    | (?<=www)\.                            # an address
    | (?<![a-z0-9])_ | _(?![a-z0-9])        # emphasis
    | [^a-z0-9 ,.()\[\]{}/'!?^_+\-\x80-\U0010ffff]
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


def escaped(text: str) -> str:
    r"""Return a label between the quotes of a Mermaid node or subgraph.

    Characters that Mermaid, its Markdown or HTML may read as syntax become ``#NN;``. A line break stays: where a
    label has a ``<br/>``, Mermaid up to 11.12 undoes every ``#NN;`` before it reads Markdown.

    >>> print(escaped("h.0.attn <x>"))
    h.0.attn #60;x#62;
    """
    lines = shown(text).split("\n")
    return "\n".join(_SYNTAX.sub(lambda found: f"{found['number'] or ''}#{ord(found[0][-1])};", line) for line in lines)


def joined(lines: Iterable[str]) -> str:
    """Join lines; a line break inside one is spelled out."""
    return "\n".join(map(printable, lines))


def shown(text: str) -> str:
    r"""Return the text to read, shortened, with unprintable characters spelled out.

    >>> print(shown("a\x1b\u202e"), shown(" "), shown(""))
    a\x1b\u202e ␣ (empty)
    """
    lines = text.split("\n", _MAX_LINES)
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES - 1 :] = ["…"]
    return "\n".join(map(_shown_line, lines))


def _shown_line(line: str) -> str:
    cut = line if len(line) <= _MAX_LINE_CHARS else line[: _MAX_LINE_CHARS - 1] + "…"
    seen = "".join(char if char.isprintable() else _spelled(char) for char in cut)
    seen = _PLACEHOLDER.sub(lambda mark: _spelled(mark[0]), seen)
    return _VANISHING_SPACE.sub("␣", seen) or "(empty)"


def _spelled(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
