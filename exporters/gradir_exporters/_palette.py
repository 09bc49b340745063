"""The colours of static pictures, as in the page, and the text and legend of overlays in every picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from gradir.ir.marks import LOOKS, Mark
from gradir.ir.text import number_text

# The colours of looks under dark and light text, with a contrast of at least 4.5 (WCAG AA). The steps are from YlGnBu
# (ColorBrewer), which colour-blind people can distinguish. An alarm also has a sign.
FILLS: Final[Mapping[str, tuple[str, str]]] = {
    "quiet": ("#e8e8e8", "#343a41"),
    "good": ("#a9d3ee", "#1f4b70"),
    "step 1": ("#ffffd9", "#23282e"),
    "step 2": ("#c7e9b4", "#1f3a45"),
    "step 3": ("#7fcdbb", "#1c4d62"),
    "step 4": ("#41b6c4", "#1b5f80"),
    "step 5": ("#35a0d0", "#1f6f9f"),
    "caution": ("#f7c873", "#755500"),
    "alarm": ("#f58a5b", "#a33d17"),
}

# A legend lists at most this many labels of one look.
_MOST_LABELS: Final = 8
_SIGNS: Final = {"alarm": "x ", "caution": "! "}


def overlay_text(mark: Mark) -> str:
    """Return the text of a mark, with a sign for an alarm so that it does not depend on colour."""
    if isinstance(mark.value, float):
        return f"{'at most ' if mark.is_mixed else ''}{number_text(mark.value)}"
    return f"{_SIGNS.get(mark.look, '')}{mark.value}{' and others' if mark.is_mixed else ''}"


def overlay_legend(marks: Iterable[Mark]) -> tuple[str, dict[str, str]]:
    """Return the title of an overlay's legend, and the text of each look in order."""
    title, labels_of = "", defaultdict[str, set[str]](set)
    for mark in marks:
        title = mark.title
        labels_of[mark.look].add(mark.label)
    texts: dict[str, str] = {}
    for look in filter(labels_of.__contains__, LOOKS):
        labels = sorted(labels_of[look])
        more = [f"{len(labels) - _MOST_LABELS:,} more"] if len(labels) > _MOST_LABELS else []
        texts[look] = f"{_SIGNS.get(look, '')}{', '.join(labels[:_MOST_LABELS] + more)}"
    return title, texts


TEXT: Final = ("#1f2328", "#e9eef3")
LINE: Final = ("#57606a", "#8b949e")
# The border of boxes and frames, visible on light and dark pages.
RIM: Final = "#8b949e"
# The color of lines at a cut, visible on light and dark pages.
CUT: Final = "#cf222e"

# The fills by role for light and dark pages; a parameter has the color of a leaf.
PALETTE: Final[Mapping[str, tuple[str, str]]] = {
    "function": ("#ffffff", "#20262e"),
    "leaf": ("#c5e3f6", "#1d4b6e"),
    "parameter": ("#c5e3f6", "#1d4b6e"),
    "input": ("#bfe8da", "#11503f"),
    "buffer": ("#f7eca6", "#574c12"),
    "output": ("#f8d2ba", "#6e3413"),
    "view_base": ("#e4e6e9", "#3a424b"),
    "saved": ("#f9dca6", "#5f4300"),
    "module": ("#dfe5ee", "#303a48"),
    "context": ("#f6f8fa", "#21262d"),
    "bare": ("#ffffff", "#161b22"),
    "added": ("#aceebb", "#17732f"),
    "removed": ("#ffcecb", "#a40e26"),
    "changed": ("#ffe58a", "#7d4e00"),
    **FILLS,
}

# The fills of an unknown role.
UNKNOWN: Final = ("#ecd3e3", "#5c2c4b")
