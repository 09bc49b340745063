"""Graph: nodes by id in topological order, with views of its edges and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gradir.errors import GraphError
from gradir.ir.model import Cut, Node, Producer, Scope

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["Edge", "Graph"]


class Edge(NamedTuple):
    """One edge, from producer to consumer.

    ``kind`` is ``data`` for an input slot and ``view`` from a view base to its view, whose ``input_nr`` is -1.
    """

    src: str
    output_nr: int
    dst: str
    input_nr: int
    kind: str = "data"


class Graph(msgspec.Struct, frozen=True, dict=True):
    """An autograd graph as data.

    ``nodes`` maps id to `Node` in topological order; ``scopes`` maps module path to `Scope`. Graphs compare by value.
    ``read_from`` is the version of the document that the graph was read from, where this gradir does not know all of
    it, and empty otherwise.

    >>> from gradir.ir.model import Ref
    >>> g = Graph.of([Node("x", role="leaf"), Node("exp:1", op="exp", inputs=(Ref("x", 0),))])
    >>> list(g.edges)
    [Edge(src='x', output_nr=0, dst='exp:1', input_nr=0, kind='data')]
    """

    nodes: Mapping[str, Node]
    scopes: Mapping[str, Scope] = {}
    cuts: tuple[Cut, ...] = ()
    producer: Producer = Producer()
    read_from: str = ""

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        scopes: Iterable[Scope] = (),
        cuts: Iterable[Cut] = (),
        producer: Producer = Producer(),  # noqa: B008 (frozen)
        *,
        read_from: str = "",
    ) -> Graph:
        """Make a graph of records in order.

        Raises:
            GraphError: two nodes share an id, or two scopes a path.
        """
        node_list, scope_list = list(nodes), list(scopes)
        by_id = {node.id: node for node in node_list}
        if len(by_id) != len(node_list):
            raise GraphError(f"node id {_first_repeated(n.id for n in node_list)!r} occurs twice")
        by_path = {scope.path: scope for scope in scope_list}
        if len(by_path) != len(scope_list):
            raise GraphError(f"scope {_first_repeated(s.path for s in scope_list)!r} occurs twice")
        return cls(by_id, by_path, tuple(cuts), producer, read_from)

    @property
    def edges(self) -> Iterator[Edge]:
        """Every edge, by consumer in node order and then by input slot."""
        for node in self.nodes.values():
            for slot, ref in enumerate(node.inputs):
                if ref is not None:
                    yield Edge(ref.id, ref.output_nr, node.id, slot)
            if node.base is not None:
                yield Edge(node.base, 0, node.id, -1, "view")

    @property
    def outputs(self) -> tuple[Node, ...]:
        """The nodes of role ``output``, in order."""
        return tuple(node for node in self.nodes.values() if node.role == "output")

    def to(self, exporter: str, **options: object) -> str:
        """Export to text: ``g.to("mermaid")``. The same as `gradir.export`."""
        from gradir import api

        return api.export(self, exporter, **options)

    def save(self, path: str | PathLike[str], *, format: str = "json", compress: str | None = None) -> None:
        """Write the graph to a ``.gir`` file, whole or not at all. The same as `gradir.save`."""
        from gradir import api

        api.save(self, path, format=format, compress=compress)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        """What a notebook shows: a picture, folded by module where it would be too large to read."""
        from gradir import api

        return api.mimebundle(self)

    def __repr__(self) -> str:
        edges = sum(1 for _ in self.edges)
        outputs = len(self.outputs)
        return f"<gradir.Graph: {len(self.nodes)} nodes, {edges} edges, {outputs} output{'s'[: outputs != 1]}>"


def _first_repeated(keys: Iterable[str]) -> str:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    raise AssertionError("no key is repeated")
