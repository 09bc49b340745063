"""What is asked of a graph beyond its records: who takes what, what lies in a module, who keeps how many bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from gradir.errors import GradirError, GraphError
from gradir.hints import did_you_mean
from gradir.ir.edges import sources
from gradir.ir.merged import bytes_told
from gradir.ir.model import Node, Scope
from gradir.ir.saved import SavedBytes
from gradir.ir.totals import bounded

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Account", "below", "consumers", "known", "networkx_of", "producers", "saved_bytes"]

Account: TypeAlias = Literal["scope", "op", "node"]

_ACCOUNTS: Final[tuple[Account, ...]] = ("scope", "op", "node")


def known(nodes: Mapping[str, Node], node_id: str) -> Node:
    """The node of an id.

    Raises:
        GraphError: there is none.
    """
    node = nodes.get(node_id)
    if node is None:
        raise GraphError(f"no node {node_id!r}{did_you_mean(str(node_id), nodes)}")
    return node


def producers(nodes: Mapping[str, Node], node_id: str) -> tuple[Node, ...]:
    """The nodes that the edges into a node come from, each once, in the order of the edges."""
    return tuple(nodes[source] for source in dict.fromkeys(sources(known(nodes, node_id))) if source in nodes)


def consumers(nodes: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    """The ids of the nodes that the edges out of each node lead to, each once, in the order of the graph."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes.values():
        for source in dict.fromkeys(sources(node)):
            found[source].append(node.id)
    return {source: tuple(takers) for source, takers in found.items()}


def below(nodes: Mapping[str, Node], scopes: Mapping[str, Scope], path: str) -> tuple[Node, ...]:
    """The nodes of a module and of those below it, in order.

    Raises:
        GraphError: neither the scope table nor a node knows the module.
    """
    start = f"{path}." if path else ""
    found = tuple(node for node in nodes.values() if node.scope == path or node.scope.startswith(start))
    if found or not path or path in scopes or any(other.startswith(start) for other in scopes):
        return found
    paths = dict.fromkeys([*scopes, *(node.scope for node in nodes.values())])
    raise GraphError(f"no module {path!r}{did_you_mean(str(path), paths)}")


def saved_bytes(nodes: Mapping[str, Node], by: Account) -> dict[str, int]:
    """The bytes that live for backward alone, by account; a storage counts once, where it was saved first.

    Raises:
        ValueError: there is no such account.
    """
    if by not in _ACCOUNTS:
        raise ValueError(f"saved bytes are counted by {', '.join(_ACCOUNTS)}, not by {by!r}")
    kept: SavedBytes[str] = SavedBytes(nodes)
    found: dict[str, int] = {}
    for node in nodes.values():
        account = {"scope": node.scope, "op": node.op, "node": node.id}[by]
        if node.saved:
            kept.add(node, account)
        found[account] = found.get(account, 0) + bytes_told(node)
    for account, size in kept.by_account().items():
        found[account] += size
    return {account: bounded(size) for account, size in found.items() if size}


class _Id(str):
    """The id of a node: the text of one with a colon has quotes, since pydot takes what follows a colon for a port."""

    __slots__ = ()

    def __str__(self) -> str:
        plain = str.__str__(self)
        if ":" not in plain:
            return plain
        escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'


def networkx_of(text: str) -> nx.MultiDiGraph[str]:
    """The graph of networkx in a node-link JSON; what is a list or a record there is a text of JSON.

    Raises:
        GradirError: networkx is not installed.
    """
    import json

    try:
        import networkx as nx
    except ModuleNotFoundError as error:
        raise GradirError("networkx is not installed: pip install 'gradir[networkx]'") from error
    found = json.loads(text)
    for record in (found["graph"], *found["nodes"], *found["edges"]):
        record.update((key, json.dumps(value)) for key, value in record.items() if isinstance(value, (dict, list)))
    for key, records in (("id", found["nodes"]), ("source", found["edges"]), ("target", found["edges"])):
        for record in records:
            record[key] = _Id(record[key])
    # What reads the form makes the kind of graph that its text says, which is always this one.
    made: Any = nx.node_link_graph(found, edges="edges")
    linked: nx.MultiDiGraph[str] = made
    return linked
