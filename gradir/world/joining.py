"""Graphs of several processes put into one, each below a module of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from gradir.ir import Cut, Graph, Node, Ref, Saved, Scope
from gradir.ir.ids import behind, claim, split_last, storage_key, within
from gradir.ir.model import bounded
from gradir.world.messages import Channel

__all__ = ["Link", "joined"]


class Link(NamedTuple):
    """A tensor that is handed on: which output is sent, which leaf it is received in, and by how many messages."""

    channel: Channel
    output: str
    leaf: str
    messages: int


def joined(graphs: Mapping[int, tuple[str, Graph]], links: Iterable[Link]) -> Graph:
    """One graph of those of several ranks, whose modules are called as is said, in this order.

    Each rank stands behind those that it receives from. An output that is sent becomes a function ``send`` for each
    receiver, and the leaf in which it is received a function ``recv``.
    """
    sides = {rank: _Side(name, graph) for rank, (name, graph) in graphs.items()}
    for link in links:
        sender, receiver = sides[link.channel.sender], sides[link.channel.receiver]
        receiver.receive(link, sender.send(link))
    parts = list(sides.values())
    whole = [part.graph.scopes.get("", Scope("")) for part in parts]
    root = Scope(
        "",
        "Pipeline",
        total=bounded(sum(scope.total for scope in whole)),
        trainable=bounded(sum(scope.trainable for scope in whole)),
    )
    return Graph.of(
        [node for part in parts for node in part.nodes()],
        [root, *(scope for part in parts for scope in part.scopes())],
        [part.cut(cut) for part in parts for cut in part.graph.cuts],
        parts[0].graph.producer,
    )


class _Side:
    """The graph of one rank, by the names that it has in that of all."""

    def __init__(self, name: str, graph: Graph) -> None:
        self.graph = graph
        self._name = name
        self._sends: defaultdict[str, list[tuple[str, Link]]] = defaultdict(list)
        self._receives: dict[str, tuple[str, str, Link]] = {}
        self._taken = {within(id_, name) for id_ in graph.nodes}

    def send(self, link: Link) -> str:
        """Note that an output is sent; gives the id of the function that sends it."""
        id_ = claim(f"{self._name}/send:{1 + sum(map(len, self._sends.values()))}", self._taken)
        self._sends[link.output].append((id_, link))
        return id_

    def receive(self, link: Link, sent: str) -> None:
        """Note that a leaf is received from what is sent."""
        id_ = claim(f"{self._name}/recv:{len(self._receives) + 1}", self._taken)
        self._receives[link.leaf] = id_, sent, link

    def nodes(self) -> Iterator[Node]:
        """The nodes in order, with what sends and receives."""
        for node in self.graph.nodes.values():
            copy = self._node(node)
            if node.id in self._receives:
                id_, sent, link = self._receives[node.id]
                channel = link.channel
                attrs = {"group": channel.group, "src": channel.sender, "messages": link.messages}
                yield replace(copy, id=id_, role="function", op="recv", inputs=(Ref(sent, 0),), attrs=attrs, names=())
            elif node.id in self._sends:
                for id_, link in self._sends[node.id]:
                    channel = link.channel
                    attrs = {"group": channel.group, "dst": channel.receiver, "messages": link.messages}
                    yield replace(copy, id=id_, role="function", op="send", attrs=attrs, names=())
            else:
                yield copy

    def scopes(self) -> Iterator[Scope]:
        """The modules, that of the whole first."""
        yield replace(self.graph.scopes.get("", Scope("")), path=self._name)
        for path, scope in self.graph.scopes.items():
            if path:
                yield replace(scope, path=self._path(path))

    def cut(self, cut: Cut) -> Cut:
        """A cut in the names of all."""
        return replace(
            cut,
            names=tuple(map(self._path, cut.names)),
            scope=self._path(cut.scope),
            at=cut.at and self._id(cut.at),
            into=cut.into and self._id(cut.into),
        )

    def _node(self, node: Node) -> Node:
        return replace(
            node,
            id=self._id(node.id),
            scope=self._path(node.scope),
            names=node.names if node.role == "output" else tuple(map(self._path, node.names)),
            inputs=tuple(map(self._ref, node.inputs)),
            saved=tuple(map(self._saved, node.saved)),
            base=None if node.base is None else self._id(node.base),
        )

    def _saved(self, saved: Saved) -> Saved:
        return replace(saved, origin=self._ref(saved.origin), storage=saved.storage and self._storage(saved.storage))

    def _ref(self, ref: Ref | None) -> Ref | None:
        return None if ref is None else Ref(self._id(ref.id), ref.output_nr)

    def _storage(self, key: str) -> str:
        """A key of a storage: the node that owns it, or its slot behind the id of another."""
        if key in self.graph.nodes:
            return self._id(key)
        owner, slot = split_last(key)
        return storage_key(self._id(owner), slot) if owner in self.graph.nodes else self._id(key)

    def _path(self, path: str) -> str:
        return f"{self._name}.{path}" if path else self._name

    def _id(self, id_: str) -> str:
        """What a node is called: below the module of its rank, and what follows from a received leaf as that is."""
        if id_ in self._receives:
            return self._receives[id_][0]
        if id_ in self._sends:
            return self._sends[id_][0][0]
        head, rest = behind(id_)
        return f"{self._receives[head][0]}{rest}" if head in self._receives else within(id_, self._name)
