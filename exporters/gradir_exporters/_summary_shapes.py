"""The output shapes of modules: those of the tensors that leave a module."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gradir.ir.module_tree import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradir.ir import Graph, Node
    from gradir.ir.model import Shape
    from gradir.ir.module_tree import ModuleTree

__all__ = ["output_shapes"]

_OPERATIONS: Final = frozenset({"function", "module"})
_NUMBER: Final = re.compile(r"_\d+\Z")

_MOST_SIZES: Final = 64
"""No tensor of torch has more; a longer shape is unknown, since it is told again for each module that it leaves."""

_MOST_SHAPES: Final = 16
"""Of a module that more distinct shapes leave they are unknown, for the same reason."""


def output_shapes(graph: Graph, tree: ModuleTree, places: Mapping[str, int]) -> list[tuple[Shape | None, ...] | None]:
    """By module number the distinct shapes of what leaves a module, in the order it is taken; ``None`` if unknown.

    A tensor leaves a module when an operation of the module, or of one below it, made it, and a node that is in
    neither takes it as an input, or it was captured. What goes from one call of a module into another stays inside.

    A tensor made of parameters alone by operations that save nothing, such as a transposed weight, is a weight made
    ready and no output. The shapes are unknown where nothing leaves (the module adds no operation, as dropout does
    in evaluation; gradient needs none of its operations; its result is not used), for a module that was never called,
    for one from which something leaves that a folded node made, for one that more than 16 shapes leave, and for the
    whole model where the captured tensor may have been made by its caller: the operations of both have the empty path
    as their scope. A shape of more than 64 sizes is unknown itself.
    """
    leaving = _Leaving(tree)
    nodes = graph.nodes
    prepared: set[str] = set()
    for node in nodes.values():
        if _is_prepared(node, nodes, prepared):
            prepared.add(node.id)
        if node.role == "view_base":
            continue
        taker = places[node.id]
        for ref in node.inputs:
            if ref is None or ref.id in prepared or places.get(ref.id, taker) == taker:
                continue
            source = nodes[ref.id]
            if source.role not in _OPERATIONS:
                continue
            shape = source.outputs[ref.output_nr].shape if ref.output_nr < len(source.outputs) else None
            if shape is not None and len(shape) > _MOST_SIZES:
                shape = None
            leaving.note(places[source.id], taker, shape, is_folded=source.role == "module")
    return leaving.shapes()


def _is_prepared(node: Node, nodes: Mapping[str, Node], prepared: set[str]) -> bool:
    """Whether a node makes something of parameters alone and saves nothing."""
    if node.role != "function" or node.saved or not node.inputs:
        return False
    return all(ref is not None and (ref.id in prepared or _is_parameter(ref.id, nodes)) for ref in node.inputs)


def _is_parameter(node_id: str, nodes: Mapping[str, Node]) -> bool:
    node = nodes.get(node_id)
    return node is not None and node.role == "parameter"


class _Leaving:
    """Collects what leaves each module."""

    def __init__(self, tree: ModuleTree) -> None:
        self._tree = tree
        self._shapes: list[dict[Shape | None, None]] = [{} for _ in tree.scopes]
        self._unknown = [not scope.calls for scope in tree.scopes]
        self._seen: set[tuple[int, int, Shape | None, bool]] = set()

    def note(self, maker: int, taker: int, shape: Shape | None, *, is_folded: bool) -> None:
        """Note that a tensor goes from one module into another."""
        key = (maker, taker, shape, is_folded)
        if key in self._seen:
            return
        self._seen.add(key)
        tree, around = self._tree, taker
        below = OUTSIDE
        for module in tree.and_above(maker):
            while around != OUTSIDE and tree.levels[around] > tree.levels[module]:
                around = tree.parents[around]
            if around == module:
                return
            if len(self._shapes[module]) <= _MOST_SHAPES:
                self._shapes[module][shape] = None
            if is_folded or (not tree.scopes[module].path and self._may_be_the_callers(below)):
                self._unknown[module] = True
            below = module

    def shapes(self) -> list[tuple[Shape | None, ...] | None]:
        """What left each module."""
        return [
            None if unknown or not shapes or len(shapes) > _MOST_SHAPES else tuple(shapes)
            for shapes, unknown in zip(self._shapes, self._unknown, strict=True)
        ]

    def _may_be_the_callers(self, below: int) -> bool:
        """Whether what leaves the whole model through this module below it may not have been made by the model.

        A module that the model's caller ran beside it, such as a criterion, has its class for its path.
        """
        if below == OUTSIDE:
            return True
        scope = self._tree.scopes[below]
        return scope.class_name in (scope.path, _NUMBER.sub("", scope.path))
