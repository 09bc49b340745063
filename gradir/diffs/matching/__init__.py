"""Which node of one graph is which of another, found by the cheapest edit script."""

from __future__ import annotations

from gradir.diffs.matching.engine import Matching, edit_cost, match
from gradir.diffs.matching.renames import Rename

__all__ = ["Matching", "Rename", "edit_cost", "match"]
