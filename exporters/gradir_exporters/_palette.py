"""The colours of static pictures, as in the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gradir_exporters._overlay_looks import FILLS

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
