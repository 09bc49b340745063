"""Text in the boxes of ``dot``, and the one place that escapes text for DOT."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from typing import Final

from gradir.ir import AttrValue, Node, NonFinite, TensorMeta
from gradir.ir.memo import Memo, exact_key
from gradir.ir.text import escape_unprintable
from gradir_exporters._box_words import Words

LINE_BREAK: Final = "\\n"
# dot refuses more than 16,384 characters without a break, and a box wider than a screen is of no use.
_MAX_LINE_CHARS: Final = 200
_MAX_KEY_CHARS: Final = 60
# A label of some 50,000 lines crashes dot.
_MAX_ROWS: Final = 100


class Labels:
    """The cached labels of boxes; attribute values have at most ``attr_chars``, or ``None`` for no attributes."""

    def __init__(self, words: Words, attr_chars: int | None) -> None:
        self._words, self._attr_chars = words, attr_chars
        self._below: dict[object, str] = {}
        self._tables: dict[bytes, str] = {}
        self.saved: Memo[tuple[str, TensorMeta, str], str] = Memo(lambda slot: _join(words.slot_lines(*slot)))

    def node(self, node: Node) -> str:
        """Return the text of a node, and its table."""
        outputs = node.outputs
        if node.ext or node.opaque or len(outputs) != 1 or node.role == "module":
            label = _join(self._words.lines(node))
        else:
            # The text below the name depends on these fields alone.
            gaps = (node.role, *[ref is None for ref in node.inputs]) if None in node.inputs else None
            key = node.op, node.native, outputs[0], gaps
            below = self._below.get(key)
            if below is None:
                below = self._below[key] = _join(self._words.lines_below(node))
            label = below
            if title := self._words.title(node):
                label = f"{display_text(title)}{LINE_BREAK}{below}" if below else display_text(title)
        if self._attr_chars is None or not (node.attrs or node.saved) or node.role == "module":
            return label
        return label + self._table(node, self._attr_chars)

    def _table(self, node: Node, max_chars: int) -> str:
        key = exact_key((node.native or node.op, node.attrs, [saved.slot for saved in node.saved]))
        text = self._tables.get(key) if key is not None else None
        if text is None:
            text = "".join([f"{LINE_BREAK}{line}" for line in table(node, max_chars)])
            if key is not None:
                self._tables[key] = text
        return text


def _join(lines: Iterable[str]) -> str:
    return LINE_BREAK.join(map(display_text, lines))


def table(node: Node, max_chars: int) -> Iterator[str]:
    """Yield a rule and a row for each attribute and saved slot, of equal width, since dot centers each row."""
    cells = [(key, _value(value)) for key, value in node.attrs.items()]
    cells += [(saved.slot, "[saved tensor]") for saved in node.saved if saved.slot not in node.attrs]
    if not cells:
        return
    cells.sort()
    rows = [
        (_cut(escape_unprintable(key), _MAX_KEY_CHARS), _cut(escape_unprintable(value), max_chars))
        for key, value in cells[:_MAX_ROWS]
    ]
    key_width = max(len(key) for key, _ in rows)
    title_width = min(len(node.native or node.op), _MAX_LINE_CHARS)
    width = max(key_width + 2 + max(len(value) for _, value in rows), title_width)
    yield "-" * width
    for key, value in rows:
        yield _escape(f"{key:<{key_width}}: {value:>{width - key_width - 2}}")
    if len(cells) > _MAX_ROWS:
        yield f"... and {len(cells) - _MAX_ROWS} more".ljust(width)


def tooltip(text: str) -> str:
    r"""Return text as a tooltip, with backslashes percent-encoded as in ids.

    dot 2.43 unescapes the tooltip of a frame once and that of a box twice, and then takes ``\N`` for the box's name.
    """
    label = display_text(text)
    return label.replace("\\\\", "%5C") if "\\" in label else label


def _value(value: AttrValue) -> str:
    if isinstance(value, NonFinite):
        return value.float
    if isinstance(value, tuple):
        return f"({', '.join(map(_value, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def display_text(text: str) -> str:
    """Return text as the reader sees it, cut if it is too long for a line."""
    if len(text) <= _MAX_LINE_CHARS and _is_plain(text):
        return text
    return _escape(_cut(escape_unprintable(text), _MAX_LINE_CHARS))


def cell(text: str, look: str = "", colour: str = "") -> str:
    """Return text in a cell of a table; ``look`` has the attributes of the cell, and ``colour`` that of the text."""
    escaped = html.escape(_cut(escape_unprintable(text), _MAX_LINE_CHARS))
    return f'<td{look}><font color="{colour}">{escaped}</font></td>' if colour else f"<td{look}>{escaped}</td>"


def _is_plain(text: str) -> bool:
    return text.isprintable() and "\\" not in text and '"' not in text and "&" not in text


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
