"""Whether the columns of nodes fit the kinds, found out by counting: a short file must not make anything long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gradir.codecs.compact.columns import counts_of
from gradir.codecs.compact.layout import Kind
from gradir.codecs.compact.tables import Tables

__all__ = ["check_fit"]

_ENTRIES: Final[tuple[tuple[str, str, Callable[[Kind], int]], ...]] = (
    ("names", "name", lambda kind: kind.names),
    ("in", "input slot", lambda kind: kind.inputs),
    ("base", "node with a base", lambda kind: int(kind.base)),
    ("origin", "saved slot", lambda kind: len(kind.saved)),
    ("storage", "saved slot", lambda kind: len(kind.saved)),
)
"""The columns that hold as many entries for a node as its kind says."""


def check_fit(tables: Tables) -> None:
    """Refuse columns whose length is not what the kinds of the nodes ask for.

    A kind may ask for any number of entries, so nothing may be made of its numbers before.

    Raises:
        FormatError: a column is longer or shorter.
    """
    columns, kinds = tables.nodes, tables.kinds
    counts = counts_of(tables.kind_of)
    for name, per, entries in _ENTRIES:
        columns.check_length(name, sum([entries(kinds[number]) * count for number, count in counts.items()]), per)
