"""Write a node as one flat JSON record, for the formats that list nodes and edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import UNSET

from gradir.ir import Graph, Node
from gradir.ir.fields import fields_of
from gradir.ir.jsontext import json_lines, json_text

# Every record has the first five fields of a node, up to its scope: readers of these formats look for them first.
_ALWAYS: Final = 5


def graph_facts(graph: Graph) -> Iterator[str]:
    """Return the members of a JSON object about the whole graph."""
    yield f'"producer":{json_text(graph.producer)},\n"scopes":['
    yield from json_lines(graph.scopes.values())
    yield '],\n"cuts":['
    yield from json_lines(graph.cuts)
    yield "]"


@cache
def flat_node(attrs: bool, saved: bool, *derived: str, **renamed: str) -> Callable[..., msgspec.Struct]:
    """Return a function that takes a node and a parent, and returns a record with a label and the number of inputs.

    ``derived`` are further properties, and ``renamed`` has other names of fields.
    """
    wanted = {"attrs": attrs, "saved": saved}
    fields = [field for field in fields_of(Node) if wanted.get(field.name, True)]
    names = [field.name for field in fields]
    slots = names.index("inputs")
    members: list[Any] = [(renamed.get(field.name, field.name), Any, field.default) for field in fields]
    members[slots : slots + 1] = [("slots", int, 0), *((name, Any, None) for name in derived)]
    # These fields are written even if they are empty.
    members[:_ALWAYS] = [("id", str), ("label", str), *names[1:_ALWAYS], ("parent", Any, UNSET)]
    struct = msgspec.defstruct("_Node", members, omit_defaults=True, gc=False)
    # The id fills the place of the parent, and the inputs that of their number.
    words, others = names[1:_ALWAYS], names[_ALWAYS : slots + 1]
    values = attrgetter("id", "label", *words, "id", *others, *derived, *names[slots + 1 :])
    parent_at, slots_at = _ALWAYS + 1, slots + 2

    def make_record(node: Node, parent: object = UNSET) -> msgspec.Struct:
        row = [*values(node)]
        row[parent_at] = parent
        row[slots_at] = len(row[slots_at])
        return struct(*row)

    return make_record
