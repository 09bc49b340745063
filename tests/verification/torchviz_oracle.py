"""What torchviz draws for some tensors, told in the node ids of a captured graph.

torchviz names its nodes by the ``id()`` of the grad_fn or tensor that they stand for. `Correspondence` walks the live
graph and the captured one in step, so it knows which object each captured node stands for. The comparison is then
exact: no labels to trust, no isomorphism to search for.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from gradir import Graph, Node, Ref

__all__ = ["Correspondence", "Picture", "picture_of_graph", "picture_of_torchviz"]

_ROLES = {"": "function", "lightblue": "leaf", "darkolivegreen1": "output", "darkolivegreen3": "view_base"}
_SAVED = "orange"
_EDGE = re.compile(r"\t(\d+) -> (\d+)(?: \[(dir=none|style=dotted)\])?\n")
_NODE = re.compile(r'\t(\d+) \[label=(?:\w+|"(.*)")(?: fillcolor=(\w+))?\]\n', re.DOTALL)


class Picture(NamedTuple):
    """A drawing as data: each node's role, the edges as (from, to, kind), saved slots as (function, slot, shape)."""

    roles: dict[str, str]
    edges: Counter[tuple[str, str, str]]
    saved: Counter[tuple[str, str, str]]


class Correspondence:
    """Which captured node stands for which live object. Building one checks every input slot on the way."""

    def __init__(self, graph: Graph, tensors: Sequence[torch.Tensor]) -> None:
        self.graph = graph
        self.live: dict[str, Any] = {}
        self._ids: dict[int, str] = {}
        self._pending: list[tuple[Node, Any]] = []
        for output, tensor in zip(graph.outputs, tensors, strict=True):
            self._pair_tensor(output, tensor)
        while self._pending:
            self._pair_function(*self._pending.pop())

    def node(self, object_id: str) -> Node | None:
        """The captured node of a live object; ``None`` when no captured node stands for it."""
        found = self._ids.get(int(object_id))
        return None if found is None else self.graph.nodes[found]

    def id(self, object_id: str) -> str:
        """The captured id of a live object."""
        return self._ids[int(object_id)]

    def _pair(self, node: Node, live: object) -> None:
        assert self._ids.setdefault(id(live), node.id) == node.id, f"{live!r} is {self._ids[id(live)]} and {node.id}"
        assert self.live.setdefault(node.id, live) is live, f"{node.id} stands for two objects"

    def _pair_tensor(self, node: Node, tensor: torch.Tensor) -> None:
        self._pair(node, tensor)
        self._pair_slots(node, [(tensor.grad_fn, tensor.output_nr)] if tensor.grad_fn is not None else [])
        assert (node.base is not None) == tensor._is_view(), f"{node.id} has the base {node.base}"
        if node.base is None:
            return
        base = self.graph.nodes[node.base]
        if base.role == "view_base":
            self._pair_tensor(base, tensor._base)
        else:
            self._pair(base, tensor._base)

    def _pair_function(self, node: Node, fn: Any) -> None:
        known = node.id in self.live
        self._pair(node, fn)
        if known:
            return
        assert (node.role, node.native) == ("function", type(fn).__name__)
        if not hasattr(fn, "variable"):
            self._pair_slots(node, fn.next_functions)
            return
        (slot,) = node.inputs
        assert slot is not None
        assert slot.output_nr == 0
        self._pair(self.graph.nodes[slot.id], fn.variable)

    def _pair_slots(self, node: Node, live: Sequence[tuple[Any, int]]) -> None:
        assert len(node.inputs) == len(live), f"{node.id} has {node.inputs}, torch has {live}"
        for slot, (fn, output_nr) in zip(node.inputs, live, strict=True):
            assert (slot is None) == (fn is None), f"{node.id} has {node.inputs}, torch has {live}"
            if slot is not None:
                assert slot == Ref(slot.id, output_nr)
                self._pending.append((self.graph.nodes[slot.id], fn))


def picture_of_torchviz(names: Correspondence, tensors: Sequence[torch.Tensor], *, show_saved: bool) -> Picture:
    """Run torchviz and read its statements."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import torchviz

        statements = torchviz.make_dot(tuple(tensors), show_saved=show_saved).body
    picture = Picture({}, Counter(), Counter())
    owner = ""
    for statement in statements:
        edge = _EDGE.fullmatch(statement)
        if edge is None:
            _read_node(picture, names, statement, owner)
        elif edge[3] == "dir=none":
            # The node of the saved tensor is the next statement. Which end is the function depends on its kind.
            source = names.node(edge[1])
            owner = names.id(edge[1] if source is not None and source.role == "function" else edge[2])
        else:
            picture.edges[names.id(edge[1]), names.id(edge[2]), "view" if edge[3] else "data"] += 1
    return picture


def _read_node(picture: Picture, names: Correspondence, statement: str, owner: str) -> None:
    node = _NODE.fullmatch(statement)
    assert node is not None, statement
    number, label, colour = node.groups(default="")
    if colour == _SAVED:
        slot, shape = label.split("\n ")
        picture.saved[owner, slot, shape] += 1
        return
    role = _ROLES[colour]
    assert picture.roles.setdefault(names.id(number), role) == role


def picture_of_graph(names: Correspondence, *, show_saved: bool) -> Picture:
    """What torchviz should draw, going by the captured graph.

    torchviz knows no parameters (they are leaves) and no buffers. It draws what a custom Function saved always, and
    without slot names; what others saved only when asked to.
    """
    nodes = names.graph.nodes.values()
    roles = {node.id: "leaf" if node.role == "parameter" else node.role for node in nodes if node.role != "buffer"}
    edges = Counter((edge.src, edge.dst, edge.kind) for edge in names.graph.edges)
    saved: Counter[tuple[str, str, str]] = Counter()
    for node in nodes:
        custom = hasattr(names.live.get(node.id), "saved_tensors")
        for slot in node.saved if custom or show_saved else ():
            assert slot.state == "held"
            assert slot.shape is not None
            saved[node.id, "" if custom else slot.slot, f"({', '.join(map(str, slot.shape))})"] += 1
    return Picture(roles, edges, saved)
