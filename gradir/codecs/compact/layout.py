"""What a compact document consists of, found in the declarations of the records.

Each list of records is a table. What many records have in common stands once, in a kind: the record itself with holes
where one differs from the next, which are texts that name modules and places, and whatever refers to a node. What
belongs in the holes stands in columns, one for each field with holes. docs/format.md has the layout in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple

from msgspec import inspect

from gradir.ir.fields import Field, fields_of, is_list, records_in
from gradir.ir.model import Cut, Node, Record, Ref, Scope

__all__ = [
    "HEAD",
    "KEYS",
    "KIND",
    "KINDS",
    "NODE",
    "ORDINAL",
    "RANKS",
    "TABLES",
    "TEXT",
    "Hole",
    "columns_of",
    "holes_of",
]

HEAD: Final = ("format", "version", "requires")
TABLES: Final[Mapping[str, type[Record]]] = {"scopes": Scope, "cuts": Cut, "nodes": Node}
RANKS: Final = ("rank", "collectives")
"""What only a document has that says which of several processes it is of."""

KEYS: Final = (*HEAD, "producer", *RANKS, "strings", *TABLES)
"""The keys of the document, in order."""

KINDS: Final = "kinds"
KIND: Final = "kind"
ORDINAL: Final = "ordinal"
"""What every table has, its kinds and the column that says of which each record is; and what an id has behind it."""

NODE: Final = "@"
TEXT: Final = "="
"""How a kind spells a reference that is text: the id of a node, with what follows it, or any other text."""


class Hole(NamedTuple):
    """A field whose value, or a part of it, stands in a column.

    ``sort`` is what fills it: a ``text`` by its number; an ``id``, where it is not that of its operation in its module;
    a ``ref``, or a ``reference`` that is text, by how many places before the record the node stands; and ``records``,
    which have the holes ``inner``.
    """

    name: str
    path: str
    sort: str
    is_list: bool
    inner: tuple[Hole, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """What fills it."""
        if self.inner:
            return tuple(chain.from_iterable(hole.columns for hole in self.inner))
        return (self.path, ORDINAL) if self.sort == "id" else (self.path,)


@cache
def holes_of(record: type[Record], above: str = "") -> tuple[Hole, ...]:
    """The fields with holes.

    >>> [hole.path for hole in holes_of(Node)]
    ['id', 'scope', 'names', 'in', 'saved', 'base']
    """
    found = []
    for field in fields_of(record):
        inner, path = records_in(field), f"{above}{field.key}"
        below = holes_of(inner, f"{path}.") if inner and inner is not Ref else ()
        sort = "ref" if inner is Ref else "records" if below else _sort(record, field)
        if sort:
            found.append(Hole(field.name, path, sort, is_list(field), below))
    return tuple(found)


def _sort(record: type[Record], field: Field) -> str:
    if record is Node and field.name == "id":
        return "id"
    if not _is_text(field.type):
        return ""
    return "reference" if field.about.refers else "text" if field.about.compared == "place" else ""


def _is_text(kind: Any) -> bool:
    if isinstance(kind, inspect.VarTupleType):
        return _is_text(kind.item_type)
    if isinstance(kind, inspect.UnionType):
        return all(isinstance(part, (inspect.StrType, inspect.NoneType)) for part in kind.types)
    return isinstance(kind, inspect.StrType)


@cache
def columns_of(record: type[Record]) -> tuple[str, ...]:
    """The columns of a table, in order.

    >>> columns_of(Node)
    ('kind', 'id', 'ordinal', 'scope', 'names', 'in', 'saved.origin', 'saved.storage', 'base')
    """
    return (KIND, *chain.from_iterable(hole.columns for hole in holes_of(record)))
