"""Match the nodes of two graphs by the cheapest edit script."""

from __future__ import annotations

from gradir.diffs.matching.renames import Rename
from gradir.diffs.matching.search import Matching, edit_cost, match

__all__ = ["Matching", "Rename", "edit_cost", "match"]
