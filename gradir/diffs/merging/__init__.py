"""Both edits of a graph in one: the merge of three graphs.

`three_way` puts together what `values` combines field by field; `places` says what modules are called after both edits,
and `side` reads each graph in these words and gives the result its order, ids and storages.
"""

from __future__ import annotations

from gradir.diffs.merging.three_way import Conflict, Merged, merged

__all__ = ["Conflict", "Merged", "merged"]
