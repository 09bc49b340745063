"""Write a node as one flat record, for the formats that list nodes and edges."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET

from gradir.ir import Graph, Node
from gradir.ir.fields import fields_of
from gradir.ir.jsontext import json_lines, json_text
from gradir.protocols import Options

# Every record has the first five fields of a node, up to its scope: readers of these formats look for them first.
_ALWAYS: Final = 5


class DetailOptions(Options, frozen=True, kw_only=True):
    """The details of each node."""

    attrs: Annotated[bool, msgspec.Meta(description="write the attributes of operations")] = True
    saved: Annotated[bool, msgspec.Meta(description="write the tensors saved for backward")] = True


def graph_facts(graph: Graph) -> Iterator[str]:
    """Return the members of a JSON object about the whole graph."""
    yield f'"producer":{json_text(graph.producer)},\n"scopes":['
    yield from json_lines(graph.scopes.values())
    yield '],\n"cuts":['
    yield from json_lines(graph.cuts)
    yield "]"


class FlatNodes:
    """Makes records of the class ``kind``."""

    def __init__(self, options: DetailOptions, *derived: str, **renamed: str) -> None:
        """``derived`` are further properties, and ``renamed`` has other names of fields."""
        wanted = {"attrs": options.attrs, "saved": options.saved}
        fields = [field for field in fields_of(Node) if wanted.get(field.name, True)]
        names = [field.name for field in fields]
        slots = names.index("inputs")
        members: list[Any] = [(renamed.get(field.name, field.name), Any, field.default) for field in fields]
        members[slots : slots + 1] = [("slots", int, 0), *((name, Any, None) for name in derived)]
        # These fields are written even if they are empty.
        members[:_ALWAYS] = [("id", str), ("label", str), *names[1:_ALWAYS], ("parent", Any, UNSET)]
        self.kind = msgspec.defstruct("_Node", members, omit_defaults=True, gc=False)
        # The id fills the place of the parent, and the inputs that of their number.
        first = ["id", "label", *names[1:_ALWAYS], "id", *names[_ALWAYS : slots + 1]]
        self._values = attrgetter(*first, *derived, *names[slots + 1 :])
        self._parent, self._slots = _ALWAYS + 1, slots + 2

    def __call__(self, node: Node, parent: object = UNSET) -> msgspec.Struct:
        """Return the record of a node."""
        row = [*self._values(node)]
        row[self._parent] = parent
        row[self._slots] = len(row[self._slots])
        return self.kind(*row)
