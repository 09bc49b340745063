"""Fields of a graph besides nodes and modules."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final

from msgspec.structs import replace

from gradir.ir.fields import Field, fields_of, records_in
from gradir.ir.model import About, Cut, Producer, Record
from gradir.ir.ranks import Collective, Rank

# An option of the producer: the graph is a merge of two edits.
MERGED: Final = "merged"


class Head(Record, frozen=True, kw_only=True):
    """Fields that a graph and a document share besides nodes and modules.

    In a file, single values come before the modules and lists after them.
    """

    cuts: tuple[Cut, ...] = ()
    producer: Annotated[Producer, About("free", merged="either")] = Producer()
    rank: Annotated[Rank | None, About("free", merged="neither")] = None
    collectives: Annotated[tuple[Collective, ...], About("free", merged="neither")] = ()


def rename_in_head(head: Head, called: Callable[[str], str], *, keeps_slots: bool = False) -> dict[str, Any]:
    """Return the fields of a head that name nodes, with the new name of each node.

    ``called`` returns the new name, or an empty text for a removed node. Slots stay known only with ``keeps_slots``.

    >>> head = Head(cuts=(Cut("detach", at="x", into="y", slot=1),))
    >>> [(cut.at, cut.into, cut.slot) for cut in rename_in_head(head, {"x": "x", "y": "z"}.__getitem__)["cuts"]]
    [('x', 'z', None)]
    """

    def rename(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([rename(entry) for entry in value])
        if isinstance(value, Record):
            changes = find_changes(value, type(value))
            return replace(value, **changes) if changes else value
        return value and called(value)

    def find_changes(record: Record, kind: type[Record]) -> dict[str, Any]:
        values = ((field.name, getattr(record, field.name)) for field in _referring_fields(kind))
        found = {name: new for name, value in values if (new := rename(value)) != value}
        # The renamed node may have other input slots.
        if found and not keeps_slots:
            found |= {field.name: field.default for field in fields_of(kind) if field.about.inside in found}
        return found

    return find_changes(head, Head)


@cache
def _referring_fields(kind: type[Record]) -> tuple[Field, ...]:
    return tuple(
        field
        for field in fields_of(kind)
        if field.about.refers or ((inner := records_in(field)) is not None and _referring_fields(inner))
    )
