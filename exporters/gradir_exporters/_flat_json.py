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
    """Return a function that writes a node, with a label, and a number of slots in place of its inputs.

    It takes the node and a parent. ``derived`` are further properties, and ``renamed`` has other names of fields.
    """
    left_out = {name for name, wanted in (("attrs", attrs), ("saved", saved)) if not wanted}
    fields = [field for field in fields_of(Node) if field.name not in left_out]
    names = [field.name for field in fields]
    slots = names.index("inputs")
    members: list[Any] = [(renamed.get(field.name, field.name), Any, field.default) for field in fields]
    members[slots : slots + 1] = [("slots", int, 0), *((name, Any, None) for name in derived)]
    # What every node has is written even where it is empty.
    members[:_ALWAYS] = [("id", str), ("label", str), *names[1:_ALWAYS], ("parent", Any, UNSET)]
    struct = msgspec.defstruct("_Node", members, omit_defaults=True, gc=False)
    # The id stands in the parent's place, and the inputs in that of their number.
    words, others = names[1:_ALWAYS], names[_ALWAYS : slots + 1]
    values = attrgetter("id", "label", *words, "id", *others, *derived, *names[slots + 1 :])
    behind, place = _ALWAYS + 1, slots + 2

    def made(node: Node, parent: object = UNSET) -> msgspec.Struct:
        row = [*values(node)]
        row[behind] = parent
        row[place] = len(row[place])
        return struct(*row)

    return made
