"""Node-link JSON for networkx and d3.

``networkx.node_link_graph(json.loads(text), edges="edges")`` returns a ``MultiDiGraph``; an edge's key is its slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Annotated, ClassVar, Literal

import msgspec

from gradir.ir import Graph
from gradir.ir.jsontext import json_lines
from gradir.protocols import Options
from gradir_exporters._flat_json import DetailOptions, FlatNodes, graph_facts


class NodelinkOptions(DetailOptions, frozen=True, kw_only=True):
    """The details of each node, and the key of the edges."""

    edges: Annotated[
        Literal["edges", "links"], msgspec.Meta(description="the key of the edges; d3 and older readers want links")
    ] = "edges"


class NodelinkExporter:
    """Node-link JSON: nodes and edges with all they carry, as networkx reads them."""

    suffix: ClassVar[str] = ".json"
    options: ClassVar[type[Options]] = NodelinkOptions

    def export(self, graph: Graph, options: NodelinkOptions) -> str:
        """Return one JSON object, with one node or edge a line."""
        edges = (_Edge(src, dst, slot, output_nr, slot, kind) for src, output_nr, dst, slot, kind in graph.edges)
        pieces: tuple[Iterable[str], ...] = (
            ('{"directed":true,"multigraph":true,\n"graph":{',),
            graph_facts(graph),
            ('},\n"nodes":[',),
            json_lines(map(FlatNodes(options), graph.nodes.values())),
            (f'],\n"{options.edges}":[',),
            json_lines(edges),
            ("]}\n",),
        )
        return "".join(chain.from_iterable(pieces))


class _Edge(msgspec.Struct, gc=False):
    source: str
    target: str
    key: int
    output_nr: int
    input_nr: int
    kind: str
