"""The text inside the boxes of the ``dot`` exporter, and the one place where text is escaped for DOT.

What the functions here return stands between the quotes of a DOT string and shows on one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.ir import AttrValue, Node, NonFinite, Saved
from gradir.ir.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["caption", "saved_caption", "scope_caption", "table", "tooltip"]

_TENSOR_ROLES: Final = frozenset({"leaf", "parameter", "buffer", "output", "view_base", "saved"})

# dot refuses more than 16,384 characters without a break, and a box wider than a screen is of no use.
_MAX_LINE_CHARS: Final = 200
_MAX_KEY_CHARS: Final = 60
# A label of some 50,000 lines crashes dot.
_MAX_ROWS: Final = 100


def caption(node: Node) -> list[str]:
    """The lines of a node's box: name and shape of a tensor; name, if any, and native name of a function."""
    name = node.names[0] if node.names else ""
    if node.role in _TENSOR_ROLES:
        return [_shown(name or node.id), _shape(node.shape)]
    title = _shown(node.native or node.op or node.id)
    lines = [_shown(name), title] if name else [title]
    return [*lines, "(opaque)"] if node.opaque else lines


def saved_caption(saved: Saved) -> list[str]:
    """The lines of the box of a saved slot; its state is shown when it is not simply held."""
    lines = [_shown(saved.slot), _shape(saved.shape)]
    return lines if saved.state == "held" else [*lines, _shown(saved.state)]


def scope_caption(part: str, class_name: str) -> str:
    """The line of a module's frame: the last part of its path, and its class when known."""
    return _shown(f"{part}: {class_name}" if class_name else part)


def table(node: Node, max_chars: int) -> Iterator[str]:
    """A rule and one row for each attribute and saved slot, all of one width, so that centred rows line up.

    The rule is at least as wide as the node's title; a value is cut to ``max_chars``.
    """
    cells = [(key, _value(value)) for key, value in node.attrs.items()]
    cells.extend((saved.slot, "[saved tensor]") for saved in node.saved)
    if not cells:
        return
    cells.sort()
    rows = [
        (_cut(printable(key), _MAX_KEY_CHARS), _cut(printable(value), max_chars)) for key, value in cells[:_MAX_ROWS]
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
    r"""Any text as a tooltip, with backslashes percent-encoded, as gradir's own ids have them.

    dot 2.43 unescapes the tooltip of a frame once and that of a box twice, and then takes ``\N`` for the box's name.
    """
    shown = _shown(text)
    return shown.replace("\\\\", "%5C") if "\\" in shown else shown


def _shape(shape: tuple[int | str, ...] | None) -> str:
    return "(?)" if shape is None else _shown(f"({', '.join(map(str, shape))})")


def _value(value: AttrValue) -> str:
    if isinstance(value, NonFinite):
        return value.float
    if isinstance(value, tuple):
        return f"({', '.join(map(_value, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def _shown(text: str) -> str:
    return _escape(_cut(printable(text), _MAX_LINE_CHARS))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _escape(text: str) -> str:
    r"""Printable text as the inside of a quoted DOT string that shows it as it is.

    >>> print(_escape('<b> & "q" \\N'))
    <b> &amp; \"q\" \\N
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
