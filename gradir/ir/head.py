"""Fields of a graph besides nodes and modules."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final

from msgspec.structs import replace

from gradir.ir.fields import Field, fields_of, records_in
from gradir.ir.model import About, Cut, Producer, Record
from gradir.ir.ranks import Collective, Rank

# The producer's option of a graph that a merge of two edits made, and no capture.
MERGED: Final = "merged"


class Head(Record, frozen=True, kw_only=True):
    """Fields that a graph and a document share besides nodes and modules.

    In a file, single values come before the modules and lists after them.
    """

    cuts: tuple[Cut, ...] = ()
    producer: Annotated[Producer, About("free", merged="either")] = Producer()
    rank: Annotated[Rank | None, About("free", merged="neither")] = None
    collectives: Annotated[tuple[Collective, ...], About("free", merged="neither")] = ()


def renamed_head(head: Head, called: Callable[[str], str], *, keeps_slots: bool = False) -> dict[str, Any]:
    """Return the fields of a head that name nodes, with each node as it is called now.

    ``called`` returns an empty text for a removed node. Slots stay known only with ``keeps_slots``.

    >>> head = Head(cuts=(Cut("detach", at="x", into="y", slot=1),))
    >>> [(cut.at, cut.into, cut.slot) for cut in renamed_head(head, {"x": "x", "y": "z"}.__getitem__)["cuts"]]
    [('x', 'z', None)]
    """

    def renamed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([renamed(entry) for entry in value])
        if isinstance(value, Record):
            changes = changed(value, type(value))
            return replace(value, **changes) if changes else value
        return value and called(value)

    def changed(record: Record, kind: type[Record]) -> dict[str, Any]:
        values = ((field.name, getattr(record, field.name)) for field in _referring(kind))
        found = {name: now for name, value in values if (now := renamed(value)) != value}
        # A slot is a place in a node that may have other inputs now.
        if found and not keeps_slots:
            found |= {field.name: field.default for field in fields_of(kind) if field.about.inside in found}
        return found

    return changed(head, Head)


@cache
def _referring(kind: type[Record]) -> tuple[Field, ...]:
    return tuple(
        field
        for field in fields_of(kind)
        if field.about.refers or ((inner := records_in(field)) is not None and _referring(inner))
    )
