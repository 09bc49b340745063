"""Graph: nodes by id in topological order, with views of its edges and outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, get_args

from msgspec.structs import force_setattr

from gradir.errors import GradirError, GraphError, did_you_mean
from gradir.ir.edges import Edge, Edges, sources
from gradir.ir.frozen import NOTHING, FrozenDict, freeze
from gradir.ir.head import Head
from gradir.ir.memo import group_by_key
from gradir.ir.model import Cut, Node, Producer, Scope, clamp_size
from gradir.ir.saved import SavedBytes, bytes_beyond_slots
from gradir.ir.text import excerpt

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Edge", "Edges", "Graph", "expect_graphs"]

R = TypeVar("R")
Account: TypeAlias = Literal["scope", "op", "node"]


# The dict is for cached properties and for the mark of a valid graph.
class Graph(Head, frozen=True, dict=True, eq=False):
    """An autograd graph as data.

    ``nodes`` maps ids to `Node` in topological order, and ``scopes`` module paths to `Scope`. Graphs compare by
    value. ``read_from`` is the newer version of the graph's file, and ``unknown`` names unknown keys; `save` would
    lose them. A diff ignores ``rank`` and ``collectives``.

    >>> from gradir.ir.model import Ref
    >>> g = Graph.of([Node("x", role="leaf"), Node("exp:1", op="exp", inputs=(Ref("x", 0),))])
    >>> len(g.edges), *g.edges
    (1, Edge(src='x', output_nr=0, dst='exp:1', input_nr=0, kind='data'))
    """

    nodes: Mapping[str, Node]
    scopes: Mapping[str, Scope] = NOTHING
    read_from: str = ""
    unknown: str = ""

    def __post_init__(self) -> None:
        for name in _MAPPINGS:
            force_setattr(self, name, freeze(getattr(self, name)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        # ``unknown`` describes the file and not the graph.
        return all(getattr(self, name) == getattr(other, name) for name in self.__struct_fields__ if name != "unknown")

    def __ne__(self, other: object) -> bool:
        # The method of msgspec.Struct does not call __eq__.
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        scopes: Iterable[Scope] = (),
        cuts: Iterable[Cut] = (),
        producer: Producer = Producer(),  # noqa: B008 (frozen)
        *,
        read_from: str = "",
        unknown: str = "",
        **head: Any,
    ) -> Graph:
        """Make a graph of records in order; ``head`` has further fields of its head, such as ``rank``.

        Raises:
            TypeError: the head has no such field.
            GraphError: two nodes share an id, or two scopes a path.
        """
        by_id = _index_records(nodes, attrgetter("id"), "node id")
        by_path = _index_records(scopes, attrgetter("path"), "scope")
        head |= {name: tuple(head[name]) for name in _LISTS & head.keys()}
        return cls(by_id, by_path, read_from, unknown, cuts=tuple(cuts), producer=producer, **head)

    @property
    def edges(self) -> Edges:
        """Return all edges, by consumer in node order and then by input slot."""
        return Edges(self.nodes)

    @property
    def outputs(self) -> tuple[Node, ...]:
        """Return the nodes of role ``output``, in order."""
        return tuple(node for node in self.nodes.values() if node.role == "output")

    def producers(self, node_id: str) -> tuple[Node, ...]:
        """Return the nodes that a node takes inputs from, each once, by input slot.

        Raises:
            GraphError: the id is unknown.

        >>> from gradir.ir.model import Ref
        >>> g = Graph.of([Node("x", role="leaf"), Node("mul:1", op="mul", inputs=(Ref("x", 0), Ref("x", 0)))])
        >>> [node.id for node in g.producers("mul:1")], [node.id for node in g.consumers("x")]
        (['x'], ['mul:1'])
        """
        found = dict.fromkeys(sources(self._find_node(node_id)))
        return tuple(self.nodes[source] for source in found if source in self.nodes)

    def consumers(self, node_id: str) -> tuple[Node, ...]:
        """Return the nodes that take an output of a node, each once, in order.

        Raises:
            GraphError: the id is unknown.
        """
        return tuple(map(self.nodes.__getitem__, self._consumers.get(self._find_node(node_id).id, ())))

    def _find_node(self, node_id: str) -> Node:
        node = self.nodes.get(node_id)
        if node is None:
            raise GraphError(f"no node {node_id!r}{did_you_mean(str(node_id), self.nodes)}")
        return node

    @cached_property
    def _consumers(self) -> Mapping[str, Iterable[str]]:
        nodes = self.nodes.values()
        return group_by_key((source, node.id) for node in nodes for source in dict.fromkeys(sources(node)))

    def in_scope(self, path: str) -> tuple[Node, ...]:
        """Return the nodes of a module and its submodules, in order.

        Raises:
            GraphError: the path is unknown.

        >>> g = Graph.of([Node("h.0.fc/mm:1", scope="h.0.fc"), Node("h.1.fc/mm:1", scope="h.1.fc")])
        >>> [node.id for node in g.in_scope("h.0")]
        ['h.0.fc/mm:1']
        """
        start = f"{path}." if path else ""
        found = tuple(node for node in self.nodes.values() if node.scope == path or node.scope.startswith(start))
        if found or not path or path in self.scopes or any(other.startswith(start) for other in self.scopes):
            return found
        paths = dict.fromkeys([*self.scopes, *(node.scope for node in self.nodes.values())])
        raise GraphError(f"no module {path!r}{did_you_mean(str(path), paths)}")

    def select(self, wanted: str | Callable[[Node], object]) -> tuple[Node, ...]:
        """Return the nodes that match a pattern or a function, in order.

        A pattern is that of ``--focus``: an id, a name, a module path, or a glob over all three.

        Raises:
            PassError: the pattern matches no node.

        >>> g = Graph.of([Node("h.0.fc/mm:1", op="mm", scope="h.0.fc"), Node("h.1.fc/mm:1", op="mm", scope="h.1.fc")])
        >>> [node.id for node in g.select("h.*.fc")] == [node.id for node in g.select(lambda node: node.op == "mm")]
        True
        """
        if callable(wanted):
            return tuple(filter(wanted, self.nodes.values()))
        found: set[str] = _import_later("passes").matching(self, wanted)
        return tuple(node for node in self.nodes.values() if node.id in found)

    def saved_bytes(self, by: Account = "scope") -> dict[str, int]:
        """Return the bytes that exist for the backward pass alone, by ``scope``, ``op`` or ``node``.

        Every storage counts once, for the first node that saved it. Those of leaves, parameters and buffers do not
        count.

        Raises:
            ValueError: ``by`` is something else.

        >>> from gradir.ir.model import Saved
        >>> once, again = (Saved("self", bytes=8, storage="exp:1.result") for _ in range(2))
        >>> g = Graph.of([Node("fc/mul:1", scope="fc", saved=(once,)), Node("b/sin:1", scope="b", saved=(again,))])
        >>> g.saved_bytes()
        {'fc': 8}
        """
        if by not in (accounts := get_args(Account)):
            raise ValueError(f"saved bytes are counted by {', '.join(accounts)}, not by {by!r}")
        saved: SavedBytes[str] = SavedBytes(self.nodes)
        found: dict[str, int] = {}
        for node in self.nodes.values():
            account = {"scope": node.scope, "op": node.op, "node": node.id}[by]
            if node.saved:
                saved.add(node, account)
            found[account] = found.get(account, 0) + bytes_beyond_slots(node)
        for account, size in saved.total_by_account().items():
            found[account] += size
        return {account: clamp_size(size) for account, size in found.items() if size}

    def to_networkx(self) -> nx.MultiDiGraph[str]:
        """Return the graph for networkx: nodes by id, and edges from producer to consumer by input slot.

        Attributes are plain values, and lists and records JSON text, so networkx can write them.

        Raises:
            GradirError: networkx is not installed; ``pip install 'gradir[networkx]'`` does it.

        >>> from gradir.ir.model import Ref
        >>> g = Graph.of([Node("x", role="leaf"), Node("mul:1", op="mul", inputs=(Ref("x", 0), Ref("x", 0)))])
        >>> list(g.to_networkx().edges(keys=True))
        [('x', 'mul:1', 0), ('x', 'mul:1', 1)]
        >>> g.to_networkx().nodes["mul:1"]["op"], str([*g.to_networkx()][1])
        ('mul', '"mul:1"')
        """
        import json

        try:
            import networkx as nx
        except ModuleNotFoundError as error:
            raise GradirError("networkx is not installed: pip install 'gradir[networkx]'") from error
        found = json.loads(self.to("nodelink"))
        for record in (found["graph"], *found["nodes"], *found["edges"]):
            record.update((key, json.dumps(value)) for key, value in record.items() if isinstance(value, (dict, list)))
        for key, records in (("id", found["nodes"]), ("source", found["edges"]), ("target", found["edges"])):
            for record in records:
                record[key] = _Id(record[key])
        # The type of the result depends on the data, so mypy cannot infer it.
        linked: Any = nx.node_link_graph(found, edges="edges")
        return linked  # type: ignore[no-any-return]

    def to(self, exporter: str, **options: object) -> str:
        """Export to text: ``g.to("mermaid")``. The same as `gradir.export`.

        Raises:
            ExportError: there is no such exporter or option, or the format cannot hold the graph.
            PassError: a pattern names no node, or a pass does not take the value.
        """
        text: str = _import_later("api").export(self, exporter, **options)
        return text

    def save(
        self,
        path: str | bytes | PathLike[str],
        *,
        format: str = "json",
        compress: str | None = None,
        lossy: bool = False,
    ) -> None:
        """Write the graph to a ``.gir`` file, whole or not at all. The same as `gradir.save`.

        Raises:
            FileError: the file cannot be written.
            GradirError: the library of the compression is not installed.
            FormatError: there is no such format or compression, or a part of the graph would be lost.
        """
        _import_later("api").save(self, path, format=format, compress=compress, lossy=lossy)

    # IPython passes both arguments by name.
    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        """Return the graph as a picture for a notebook, folded by module if large."""
        bundle: dict[str, str] = _import_later("display").mimebundle(self)
        return bundle

    def __repr__(self) -> str:
        outputs = len(self.outputs)
        return (
            f"<gradir.Graph: {len(self.nodes)} nodes, {len(self.edges)} edges, {outputs} output{'s'[: outputs != 1]}>"
        )


class _Id(str):
    """An id that pydot can write, with quotes if it has a colon, since pydot would read the rest as a port."""

    __slots__ = ()

    def __str__(self) -> str:
        plain = str.__str__(self)
        if ":" not in plain:
            return plain
        escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'


def expect_graphs(*values: object) -> None:
    """Raise TypeError if a value is not a graph."""
    for value in values:
        if not isinstance(value, Graph):
            hint = "; gradir.load reads a file" if isinstance(value, (str, PathLike)) else ""
            raise TypeError(f"expected a gradir.Graph, got {type(value).__name__}{hint}")


def _import_later(name: str) -> Any:
    # These modules import this one, so methods import them only when called.
    return import_module(f"gradir.{name}")


_DEFAULTS: Final = dict(zip(Head.__struct_fields__, Head.__struct_defaults__, strict=True))
_LISTS: Final = frozenset(name for name, default in _DEFAULTS.items() if isinstance(default, tuple))
_MAPPINGS: Final = ("nodes", "scopes", *(name for name, default in _DEFAULTS.items() if isinstance(default, Mapping)))


def _index_records(records: Iterable[R], key_of: Callable[[R], str], title: str) -> FrozenDict[str, R]:
    values = list(records)
    found = FrozenDict(zip(map(key_of, values), values, strict=True))
    if len(found) != len(values):
        repeated = next(key for key, count in Counter(map(key_of, values)).items() if count > 1)
        raise GraphError(f"{title} {excerpt(repeated)} occurs twice")
    return found
