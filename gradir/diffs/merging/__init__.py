"""Merge two edits of one graph."""

from __future__ import annotations

from gradir.diffs.merging.three_way import Conflict, Merged, merge_graphs

__all__ = ["Conflict", "Merged", "merge_graphs"]
