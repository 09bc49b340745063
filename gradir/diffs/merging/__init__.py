"""Merge two edits of one graph.

`three_way` merges the records, and `values` combines their fields. `places` finds the names of modules after both
edits. `side` translates each graph to these names, and gives the result its order, ids and storages.
"""

from __future__ import annotations

from gradir.diffs.merging.three_way import Conflict, Merged, merge_graphs

__all__ = ["Conflict", "Merged", "merge_graphs"]
