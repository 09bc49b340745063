"""The legend of the ``dot`` exporter: a box for every look of boxes in the picture, a line for every look of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.marks import SIGNS
from gradir_exporters._dot_labels import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["CONTEXT", "LEGEND_LINE", "LINE_END", "LINE_START", "OTHER", "Legend"]

_LINE_LENGTH: Final = 2
"""Ranks; over one alone, dashes are not seen."""

CONTEXT: Final = "context"
"""What stands for the role of a node that is as it was, where others are marked."""

OTHER: Final = "other"
"""What stands for every role that gradir has no look for."""

LINE_START: Final = "\0line start"
LINE_END: Final = "\0line end"
"""The roles of the ends of a line in the legend; the second has the words."""

LEGEND_LINE: Final = "legend"
"""The kind of the lines that put the entries of the legend one below the other."""

_LABELS: Final = {
    "parameter": "parameter",
    "leaf": "leaf",
    "function": "function",
    "module": "folded module",
    "buffer": "buffer",
    **{mark: f"{sign} {mark}" for mark, sign in SIGNS.items()},
    CONTEXT: "as before",
    "saved": "saved tensor",
    "view_base": "base of a view",
    "output": "output",
}
_LINES: Final = {
    "data": "data",
    "removed": "data no more",
    "view": "to its view",
    "saved": "to a tensor it saved",
    "buffer": "to where it is saved",
}


class Legend(NamedTuple):
    """What the legend has: the boxes, as of a picture, and the lines between them."""

    boxes: list[tuple[str, str, str, str]]
    lines: list[tuple[str, str, str, int]]

    @classmethod
    def of(cls, roles: Collection[str], kinds: Collection[str]) -> Legend:
        """The legend of a picture in which these are drawn. Lines that are all data need no words."""
        legend = cls([], [])
        last = ""
        for number, (role, label, kind) in enumerate(_entries(roles, kinds)):
            key = f"legend{number}"
            first = f"{key}s" if kind else key
            if last:
                legend.lines.append((last, first, LEGEND_LINE, 1))
            if kind:
                legend.boxes.append((first, LINE_START, "", f"where a line starts: {label}"))
                legend.lines.append((first, key, kind, _LINE_LENGTH))
            legend.boxes.append(
                (key, role, label, f"the look of every line: {label}" if kind else f"the look of: {label}")
            )
            last = key
        return legend


def _entries(roles: Collection[str], kinds: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """The role and label of each entry, and the kind of its line where it has one."""
    yield from ((role, label, "") for role, label in _LABELS.items() if role in roles)
    others = sorted(set(roles).difference(_LABELS))
    if others:
        yield OTHER, shown(", ".join(others)), ""
    if set(kinds) != {"data"}:
        yield from ((LINE_END, label, kind) for kind, label in _LINES.items() if kind in kinds)
        yield from ((LINE_END, shown(kind), kind) for kind in sorted(set(kinds).difference(_LINES)))
