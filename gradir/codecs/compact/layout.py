"""What a compact document consists of, in order.

The magic number is followed by one MessagePack map. Its head is that of the JSON form; nodes and scopes are columns,
one integer per node or scope; what many nodes have in common is a `Kind`, stored once. docs/format.md has the whole
layout in words.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import inspect

from gradir.ir.fields import Field, fields_of, is_list, records_in
from gradir.ir.model import Count, Node, Record, Saved, Scope, share_empty_tuples

__all__ = [
    "FLAGS",
    "HEAD",
    "KEYS",
    "LATER_SCOPE_COLUMNS",
    "NODE_COLUMNS",
    "SCOPE_COLUMNS",
    "Kind",
    "Slot",
    "common_fields",
    "is_flag",
    "zigzag",
]

HEAD: Final = ("format", "version", "requires")
KEYS: Final = (*HEAD, "producer", "cuts", "strings", "scopes", "kinds", "nodes")
"""The keys of the document, in order."""

_FIRST: Final = (1, 0)

SCOPE_COLUMNS: Final = tuple(field.key for field in fields_of(Scope) if field.about.since == _FIRST)
"""One integer per scope: the number itself, or for a text an index of strings."""

LATER_SCOPE_COLUMNS: Final = {field.key: field for field in fields_of(Scope) if field.about.since != _FIRST}
"""Further columns by key, each left out where every scope has the default: of a flag, also of one that may be unknown,
an index of `FLAGS`; of anything else 0 for the default, or an index of strings, where the value stands as JSON."""

FLAGS: Final = (None, False, True)

NODE_COLUMNS: Final = (
    "kind",  # one per node: an index of kinds
    "id",  # one per node: 0, or 1 + an index of strings
    "ordinal",  # one per node: the number at the end of the id, or 0
    "scope",  # one per node: an index of strings
    "names",  # one per name: an index of strings
    "in",  # one per input slot: 0, or how many places before the node the producer stands
    "in_at",  # one per input that is not output 0 of its producer: which of the entries of "in" it is
    "in_nr",  # and which output
    "base",  # one per node with a base: how many places before the node the base stands
    "origin",  # one per saved slot: 0, or 1 + zigzag(the node's place - the origin's place)
    "origin_at",  # one per origin that is not output 0 of its node: which of the entries of "origin" it is
    "origin_nr",  # and which output
    "storage",  # one per saved slot: 0, or 1 + an index of the storages
    "storage_node",  # one per storage: 0, or 1 + the place of the node whose id the key starts with
    "storage_text",  # one per storage: what follows, an index of strings
)


_COLUMNS: Final = frozenset({"id", "scope", "names", "inputs", "base", "origin", "storage"})

_SLOT: Final = "What the saved slots of many nodes have in common: a `Saved` without origin and storage."
_KIND: Final = """What many nodes have in common: a `Node` without its id, its scope and what names other nodes.

``names`` and ``in`` are numbers of entries in the columns of these names, and ``base`` says whether the node has
an entry in that column."""


def _in_common(record: type[Record], name: str, doc: str) -> type[Record]:
    """What many records have in common, made of the declarations: a record without names and references.

    Names and references are columns. Where there is any number of them the record has a number, and where there may be
    one a flag; those that every record has are left out.
    """
    members: list[Any] = [member for field in fields_of(record) for member in _members(field)]
    keys = {field.name: field.key for field in fields_of(record)}
    extra: dict[str, Any] = {"__post_init__": share_empty_tuples} if sys.version_info < (3, 11) else {}
    made: Any = msgspec.defstruct(
        name,
        members,
        bases=(Record,),
        namespace={**extra, "__doc__": doc},
        module=__name__,
        frozen=True,
        gc=False,
        rename={member: keys[member] for member, *_ in members},
    )
    return cast("type[Record]", made)


def _in_columns(field: Field) -> bool:
    """Whether the columns of nodes hold a field; any other stands in what many have in common, references too."""
    return field.name in _COLUMNS


def _is_counted(field: Field) -> bool:
    """Whether there is less in common than the field itself: a number, a flag, or slots without their references."""
    return _in_columns(field) or records_in(field) is Saved


def _members(field: Field) -> Iterator[tuple[Any, ...]]:
    inner = records_in(field)
    if _in_columns(field):
        if is_list(field):
            yield field.name, Count, 0
        elif field.default is None and inner is None:
            yield field.name, bool, False
    elif inner is Saved:
        yield field.name, tuple[Slot, ...], ()
    elif field.default is msgspec.NODEFAULT:
        yield field.name, field.hint
    else:
        yield field.name, field.hint, field.default


if TYPE_CHECKING:

    class Slot(Record, frozen=True):
        """What the saved slots of many nodes have in common: a `Saved` without origin and storage."""

        def __init__(self, **values: object) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

    class Kind(Record, frozen=True):
        """What many nodes have in common."""

        def __init__(self, **values: object) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

else:
    Slot = _in_common(Saved, "Slot", _SLOT)
    Kind = _in_common(Node, "Kind", _KIND)


def common_fields(record: type[Record]) -> tuple[str, ...]:
    """The fields that what many records have in common holds as the record itself does.

    >>> common_fields(Saved)
    ('slot', 'dtype', 'shape', 'bytes', 'state')
    """
    kept = {Node: Kind, Saved: Slot}[record].__struct_fields__
    return tuple(field.name for field in fields_of(record) if field.name in kept and not _is_counted(field))


def is_flag(field: Field) -> bool:
    """Whether a field is true, false or perhaps unknown."""
    kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
    return all(isinstance(kind, (inspect.BoolType, inspect.NoneType)) for kind in kinds)


def zigzag(distance: int) -> int:
    """A signed integer as an unsigned one, small where it is close to 0.

    >>> [zigzag(distance) for distance in (0, -1, 1, -2, 2)]
    [0, 1, 2, 3, 4]
    """
    return distance * 2 if distance >= 0 else -distance * 2 - 1
