"""Node-link JSON: the form that networkx reads, and d3 and many others with it.

``networkx.node_link_graph(json.loads(text), edges="edges")`` makes a ``MultiDiGraph`` of it. Its nodes are the graph's
ids; an edge's key is its input slot, which tells parallel edges apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from gradir.ir import Graph, Node
from gradir.ir.fields import fields_of
from gradir.ir.jsontext import json_lines, json_text
from gradir.protocols import Options

__all__ = ["NodelinkExporter", "NodelinkOptions"]

_ALWAYS: Final = 5
"""The first fields of a node, to its scope, are its words: what a reader of such files looks for in every node."""


class NodelinkOptions(Options, frozen=True, kw_only=True):
    """What is written of each node, and how the list of edges is called."""

    edges: Annotated[
        Literal["edges", "links"], msgspec.Meta(description="the key of the edges; d3 and older readers want links")
    ] = "edges"
    attrs: Annotated[bool, msgspec.Meta(description="write the attributes of operations")] = True
    saved: Annotated[bool, msgspec.Meta(description="write the tensors saved for backward")] = True


class NodelinkExporter:
    """Node-link JSON: nodes and edges with all they carry, as networkx reads them.

    >>> from gradir.ir import Ref, TensorMeta
    >>> graph = Graph.of([Node("x", role="leaf", outputs=(TensorMeta("float32", (3,)),)),
    ...                   Node("exp:1", op="exp", native="ExpBackward0", inputs=(Ref("x", 0),))])
    >>> print(NodelinkExporter().export(graph, NodelinkOptions()), end="")
    {"directed":true,"multigraph":true,
    "graph":{"producer":{},
    "scopes":[],
    "cuts":[]},
    "nodes":[
    {"id":"x","label":"x","role":"leaf","op":"","native":"","scope":"","outputs":[{"dtype":"float32","shape":[3]}]},
    {"id":"exp:1","label":"exp","role":"function","op":"exp","native":"ExpBackward0","scope":"","slots":1}
    ],
    "edges":[
    {"source":"x","target":"exp:1","key":0,"output_nr":0,"input_nr":0,"kind":"data"}
    ]}
    """

    suffix: ClassVar[str] = ".json"
    options: ClassVar[type[Options]] = NodelinkOptions

    def export(self, graph: Graph, options: NodelinkOptions) -> str:
        """One JSON object, with one node or edge a line."""
        return "".join(_pieces(graph, options))


class _Edge(msgspec.Struct, gc=False):
    source: str
    target: str
    key: int
    output_nr: int
    input_nr: int
    kind: str


def _pieces(graph: Graph, options: NodelinkOptions) -> Iterator[str]:
    yield f'{{"directed":true,"multigraph":true,\n"graph":{{"producer":{json_text(graph.producer)},\n"scopes":['
    yield from json_lines(graph.scopes.values())
    yield '],\n"cuts":['
    yield from json_lines(graph.cuts)
    yield ']},\n"nodes":['
    yield from json_lines(_nodes(graph, options))
    yield f'],\n"{options.edges}":['
    yield from json_lines(_edges(graph))
    yield "]}\n"


@cache
def _node(*left_out: str) -> Callable[[Node], msgspec.Struct]:
    """Makes what is written of a node: all that it says, with a label, and a number of slots in place of its inputs."""
    fields = [field for field in fields_of(Node) if field.name not in left_out]
    members: list[Any] = [
        ("slots", int, 0) if field.name == "inputs" else (field.name, Any, field.default) for field in fields
    ]
    # What every node has is written even where it is empty.
    members[:_ALWAYS] = [(field.name, Any) for field in fields[:_ALWAYS]]
    members.insert(1, ("label", str))
    struct = msgspec.defstruct("_Node", members, omit_defaults=True, gc=False)
    names = [field.name for field in fields]
    values, slots = attrgetter(*names), names.index("inputs")

    def made(node: Node) -> msgspec.Struct:
        row = values(node)
        return struct(row[0], node.label, *row[1:slots], len(row[slots]), *row[slots + 1 :])

    return made


def _nodes(graph: Graph, options: NodelinkOptions) -> Iterator[msgspec.Struct]:
    left_out = [name for name, wanted in (("attrs", options.attrs), ("saved", options.saved)) if not wanted]
    return map(_node(*left_out), graph.nodes.values())


def _edges(graph: Graph) -> Iterator[_Edge]:
    for src, output_nr, dst, input_nr, kind in graph.edges:
        yield _Edge(src, dst, input_nr, output_nr, input_nr, kind)
