"""Compact bytes to Graph.

A record is a copy of its kind with the holes filled, which costs a third of a constructor's call, and every loop over
records that can runs inside `map`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, islice, pairwise, repeat
from operator import sub
from typing import Any, Final

from msgspec.structs import force_setattr

from gradir.codecs.compact.columns import placed, shares_of, spread
from gradir.codecs.compact.layout import NODE, ORDINAL
from gradir.codecs.compact.reader import read
from gradir.codecs.compact.tables import Plan, Table, Tables, is_hole
from gradir.codecs.document import Beside, graph_of, to_graph
from gradir.codecs.faults import damaged
from gradir.errors import FormatError
from gradir.gcpause import paused_gc
from gradir.ir import Graph, Node, Ref
from gradir.ir.frozen import FrozenDict, grow
from gradir.ir.ids import function_prefix

__all__ = ["Filler", "decode", "ids_of"]

_BLOCK: Final = 512
"""So few records are made at a time that the processor still has them at hand when the last of their fields is set."""


def decode(data: bytes) -> Graph:
    """The graph in a compact document.

    Raises:
        FormatError: it is broken, of a version that cannot be read, or breaks a rule of the IR.
    """
    with paused_gc():
        tables = read(data)
        ids = ids_of(tables)
        filler = Filler(tables, ids)
        nodes: FrozenDict[str, Node] = FrozenDict()
        rest_of_ids = iter(ids)
        for block in filler.blocks(tables.nodes):
            grow(nodes, zip(islice(rest_of_ids, len(block)), block, strict=True))
        scopes, cuts = filler.records(tables.scopes), tuple(filler.records(tables.cuts))
        beside = Beside(scopes, cuts, tables.producer, tables.rank, tables.collectives)
        rest = beside, tables.version
        if len(nodes) != len(ids):
            # All that can be wrong are ids, and it is said of the first of them.
            return to_graph(list(map(Node, ids)), *rest, unknown=tables.unknown)
        if filler.in_doubt or not all(ids) or not _printable(tables, ids):
            return to_graph(list(nodes.values()), *rest, unknown=tables.unknown)
        return graph_of(nodes, *rest, unknown=tables.unknown)


def _printable(tables: Tables, ids: Sequence[str]) -> bool:
    # The ids are made of few texts, and these are nearly always printable themselves.
    texts = "".join([*tables.strings, *[kind.op for kind in tables.nodes.kinds]])
    return texts.isprintable() or all(map(str.isprintable, ids))


def ids_of(tables: Tables, places: Sequence[int] | None = None) -> list[str]:
    """The ids of the nodes, or of those at some places."""
    strings, nodes = tables.strings, tables.nodes
    stems = ["" if kind.id else function_prefix("", kind.op) for kind in nodes.kinds]
    columns = [nodes.kind_of, nodes.columns["scope"], nodes.columns[ORDINAL]]
    heads = nodes.columns["id"]
    if places is not None:
        shares = shares_of(nodes.kind_of, [int(not stem) for stem in stems])
        before = accumulate(shares[start:end].count(1) for start, end in pairwise([0, *places]))
        heads = [heads[at] for at, place in zip(before, places, strict=True) if shares[place]]
        columns = [[column[place] for place in places] for column in columns]
    texts, (kind_of, scopes, ordinals) = map(strings.__getitem__, heads), columns
    return [
        (f"{scope}/{stem}{ordinal}" if scope else f"{stem}{ordinal}") if stem else f"{next(texts)}{ordinal or ''}"
        for stem, scope, ordinal in zip(
            map(stems.__getitem__, kind_of), map(strings.__getitem__, scopes), ordinals, strict=True
        )
    ]


class Filler:
    """Fills the holes of the records of a document."""

    def __init__(self, tables: Tables, ids: Sequence[str]) -> None:
        self.in_doubt = False
        """Whether a node may name what it must not; that others do not shows by how they are written."""
        self._strings = tables.strings
        self._nodes = tables.nodes
        self._ids = ids
        self._refs = list(map(Ref, ids, repeat(0)))

    def records(self, table: Table) -> list[Any]:
        """The records of a table."""
        return list(chain.from_iterable(self.blocks(table)))

    def blocks(self, table: Table) -> Iterator[list[Any]]:
        """The records of a table, some at a time."""
        return self._filled(table, table.plans, table.kinds, table.kind_of, None)

    def _filled(
        self,
        table: Table,
        plans: Iterable[Plan],
        kinds: Sequence[Any],
        kind_of: Sequence[int],
        places: Sequence[int] | None,
    ) -> Iterator[list[Any]]:
        """Records of these kinds, some at a time; ``places`` is where those stand that they are in, if they are."""
        fillings = []
        for plan in plans:
            # Where the id of a node is not in a column, it is found by other means.
            counts = [1] * len(kinds) if plan.hole.sort == "id" else plan.counts
            shares = shares_of(kind_of, counts)
            if any(shares):
                fillings.append((plan.hole.name, shares, self._values(table, plan, kind_of, shares, places)))
        for start in range(0, len(kind_of), _BLOCK):
            block = slice(start, start + _BLOCK)
            made = list(map(type(kinds[0]).__copy__, map(kinds.__getitem__, kind_of[block])))
            for name, shares, values in fillings:
                deque(map(force_setattr, compress(made, shares[block]), repeat(name), values), 0)
            yield made

    def _values(
        self, table: Table, plan: Plan, kind_of: Sequence[int], shares: Sequence[int], places: Sequence[int] | None
    ) -> Iterator[Any]:
        """The values of a field, for each record that has holes in it."""
        hole = plan.hole
        if hole.sort == "id":
            return iter(self._ids)
        if hole.sort == "text":
            flat: Iterator[Any] = map(self._strings.__getitem__, table.columns[hole.path])
        else:
            holders = placed(shares)
            if places is not None:
                holders = list(map(places.__getitem__, holders))
            if hole.inner:
                rows = list(spread(range(len(plan.rows)), plan.counts, kind_of))
                flat = chain.from_iterable(self._filled(table, plan.inner, plan.rows, rows, holders))
            else:
                flat = self._referred(table, plan, kind_of, holders, are_before=places is None)
        return _dealt(flat, plan, kind_of, shares) if hole.is_list else flat

    def _referred(
        self, table: Table, plan: Plan, kind_of: Sequence[int], holders: Sequence[int], *, are_before: bool
    ) -> Iterator[Any]:
        """The references in a column; those of a node itself name what stands before it."""
        column, rows = table.columns[plan.hole.path], plan.rows
        if plan.hole.sort == "reference" and set(rows) != {NODE}:
            self.in_doubt |= are_before
            return self._texts(table, plan, zip(spread(rows, plan.counts, kind_of), holders, column, strict=True))
        targets = list(map(sub, holders, column))
        if min(targets) < 0 or (min(column) < 0 and max(targets) >= len(self._ids)):
            raise self._nowhere(table, plan, min(targets))
        self.in_doubt |= are_before and min(column) < 1
        if plan.hole.sort == "reference":
            return map(self._ids.__getitem__, targets)
        if not any(ref.output_nr for ref in rows):
            return map(self._refs.__getitem__, targets)
        found = list(map(self._refs.__getitem__, targets))
        numbers = list(spread([ref.output_nr for ref in rows], plan.counts, kind_of))
        for at in compress(range(len(numbers)), numbers):
            found[at] = Ref(found[at].id, numbers[at])
            outputs = self._nodes.kinds[self._nodes.kind_of[targets[at]]].outputs
            self.in_doubt |= are_before and 0 < len(outputs) <= numbers[at]
        return iter(found)

    def _texts(self, table: Table, plan: Plan, rows: Iterable[tuple[str, int, int]]) -> Iterator[str]:
        """References that are text: the id of a node and what follows it, or any other text."""
        made: dict[str, str] = {}
        for part, holder, code in rows:
            is_node = part.startswith(NODE)
            at, known = (holder - code, self._ids) if is_node else (code, self._strings)
            if not 0 <= at < len(known):
                raise self._nowhere(table, plan, at)
            text = known[at] + part[len(NODE) :] if is_node else known[at]
            yield made.setdefault(text, text)

    def _nowhere(self, table: Table, plan: Plan, place: int) -> FormatError:
        where = "before the first node" if place < 0 else "behind the last one"
        return damaged(f"column {table.title(plan.hole.path)} names a place {where}")


def _dealt(flat: Iterator[Any], plan: Plan, kind_of: Sequence[int], shares: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """The entries of a column as tuples, for each record that has some."""
    take = flat.__next__
    # Some kinds have, beside holes, entries that are the same in all records.
    mixed = {
        number: [(part, is_hole(part, plan.hole)) for part in value]
        for number, (value, count) in enumerate(zip(plan.values, plan.counts, strict=True))
        if 0 < count < len(value)
    }
    if not mixed:
        if max(plan.counts) == 1:
            return zip(flat)
        return ((take(),) if share == 1 else tuple(islice(flat, share)) for share in shares if share)
    return (
        tuple([take() if is_open else part for part, is_open in mixed[kind]])
        if kind in mixed
        else tuple(islice(flat, share))
        for kind, share in zip(kind_of, shares, strict=True)
        if share
    )
