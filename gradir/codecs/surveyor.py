"""What is in a document, found out without making its graph: a million nodes are counted, not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gradir.ir import Cut, Graph, Node, Producer, Rank, TensorMeta
from gradir.ir.totals import Tally, Totals

__all__ = ["Output", "Survey", "Surveyor", "survey_graph"]


class Output(msgspec.Struct, frozen=True):
    """An output of the graph: its id and what it is."""

    id: str
    tensors: tuple[TensorMeta, ...]


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The head and the counts of a document.

    ``encoding`` is ``json`` or ``msgpack`` and ``compression`` ``gzip``, ``zstd`` or ``None``. ``roles`` counts nodes
    by role, ``ops`` functions by operation, both most frequent first; ``scopes`` is the number of modules,
    ``collectives`` that of messages among processes.
    """

    encoding: str
    version: str
    producer: Producer
    totals: Totals
    roles: Mapping[str, int]
    ops: Mapping[str, int]
    scopes: int
    cuts: tuple[Cut, ...]
    outputs: tuple[Output, ...]
    rank: Rank | None = None
    collectives: int = 0
    compression: str | None = None


class Surveyor:
    """Counts nodes that come a few at a time."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._roles: Counter[str] = Counter()
        self._ops: Counter[str] = Counter()
        self._outputs: list[Output] = []

    def add(self, nodes: Iterable[Node]) -> None:
        """Count further nodes."""
        nodes = list(nodes)
        self._tally.add(nodes)
        self._roles.update([node.role for node in nodes])
        self._ops.update([node.op for node in nodes if node.role == "function"])
        self._outputs += [Output(node.id, node.outputs) for node in nodes if node.role == "output"]

    def survey(self, **head: Any) -> Survey:
        """What there is so far; ``head`` gives the fields that are not counted."""
        return Survey(
            totals=self._tally.totals(),
            roles=by_frequency(self._roles),
            ops=by_frequency(self._ops),
            outputs=tuple(self._outputs),
            **head,
        )


def survey_graph(graph: Graph, encoding: str, version: str) -> Survey:
    """The survey of a graph that is there already."""
    surveyor = Surveyor()
    surveyor.add(graph.nodes.values())
    return surveyor.survey(
        encoding=encoding,
        version=version,
        producer=graph.producer,
        scopes=len(graph.scopes),
        cuts=graph.cuts,
        rank=graph.rank,
        collectives=len(graph.collectives),
    )


def by_frequency(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts with the largest first, equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
