"""Whether what a document says is in proportion to its bytes: a short file must not make anything long.

A record says in a few bytes that it is of a kind, stands in a module and takes another's output. Reading makes records
and ids of it, and what is done with the graph then takes memory by how long all this is when it is spelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress
from operator import mul
from typing import Final

import msgspec

from gradir.codecs.compact.columns import counts_of, shares_of
from gradir.codecs.compact.layout import NODE, ORDINAL, TEXT
from gradir.codecs.compact.tables import Plan, Table, Tables, weighted

__all__ = ["excess"]

_SPARE: Final = 1 << 20
_MADE: Final = 110
_SAID: Final = 200
"""How much memory may be made for each byte of the columns, beside `_SPARE`; and how many bytes a document may say for
each of its own, `_SPARE` at least. JSON is up to some 30 times as long."""

_RECORD: Final = 246
_TEXT: Final = 76
_LIST: Final = 56
_REF: Final = 48
_WORD: Final = 8
_WIDEST: Final = 4
"""What is taken in memory by a record and its place, its fields left out; a text, its characters left out; a tuple;
what it holds; and a character where not all are ASCII."""


def excess(tables: Tables) -> str:
    """What is out of proportion, if anything is; none of it is made to find that out."""
    return _excess(tables, exactly=False) and _excess(tables, exactly=True)


def _excess(tables: Tables, *, exactly: bool) -> str:
    strings, nodes = tables.strings, tables.nodes
    widest = max(map(len, strings))

    def spelled(table: Table, name: str, used: Sequence[int] = ()) -> tuple[int, int]:
        """The length of all texts that a column names, and of the longest."""
        if not exactly:
            return widest * len(table.columns[name]), widest
        column = list(compress(table.columns[name], used)) if used else table.columns[name]
        counted = [(len(strings[at]), count) for at, count in counts_of(column).items()]
        return sum([length * count for length, count in counted]), max(counted, default=(0, 0))[0]

    # Where the id of a kind is empty, it is that of an operation in a module.
    ops = [0 if kind.id else len(kind.op) for kind in nodes.kinds]
    derived = shares_of(nodes.kind_of, [int(not kind.id) for kind in nodes.kinds])
    (heads, head), (scopes, scope) = spelled(nodes, "id"), spelled(nodes, "scope", derived)
    digits = len(f"/:{256 ** (len(nodes.packed.get(ORDINAL, b'')) // max(len(nodes.kind_of), 1))}")
    longest = max(head, scope + max(ops, default=0)) + digits
    plain = all(map(str.isascii, strings)) and all(kind.op.isascii() for kind in nodes.kinds)
    width = 1 if plain else _WIDEST
    ids = heads + scopes + sum(map(mul, ops, nodes.weights)) + len(nodes.kind_of) * digits
    made, said = width * ids + _TEXT * len(nodes.kind_of), 0
    for table in (tables.scopes, tables.cuts, nodes):
        for kind, weight in zip(table.kinds, table.weights, strict=True):
            made += weight * (_RECORD + _WORD * len(kind.__struct_fields__))
            # Those of which there are few say no more than that many times the document.
            if weight > _SAID // 4:
                said += weight * len(msgspec.msgpack.encode(kind))
        for plan, weights, of_rows in weighted(table.plans, table.weights):
            entries = sum(of_rows)
            made += _made(plan, weights, of_rows, _TEXT + width * longest) if entries else 0
            if plan.hole.sort == "text":
                said += spelled(table, plan.hole.path)[0]
            elif plan.hole.sort in ("ref", "reference"):
                said += entries * longest
    columns = chain(tables.scopes.packed.values(), tables.cuts.packed.values(), nodes.packed.values())
    if made > _SPARE + _MADE * sum(map(len, columns)):
        return "its ids are too long"
    return "it says too much too often" if said > max(_SPARE, _SAID * tables.size) else ""


def _made(plan: Plan, weights: Sequence[int], of_rows: Sequence[int], text: int) -> int:
    """What is made to fill the holes of a field."""
    hole, made, rows = plan.hole, 0, zip(plan.rows, of_rows, strict=True)
    if hole.is_list:
        kinds = zip(plan.values, plan.counts, weights, strict=True)
        made = sum(weight * (_LIST + _WORD * len(value)) for value, count, weight in kinds if count)
    if hole.inner:
        made += sum(of_rows) * (_LIST + _WORD * len(plan.rows[0].__struct_fields__))
    elif hole.sort == "ref":
        made += sum(weight * _REF for ref, weight in rows if ref.output_nr)
    elif hole.sort == "reference":
        made += sum(weight * (text + len(part)) for part, weight in rows if part not in (NODE, TEXT))
    return made
