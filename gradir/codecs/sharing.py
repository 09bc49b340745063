"""One object for the equal outputs of many nodes: a tensor's metadata is most of what a node takes in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import force_setattr

from gradir.ir import Node, TensorMeta

__all__ = ["SharedOutputs"]

_MOST: Final = 256
"""So many different ones are kept: numbers can be chosen so that all have one hash, and each is compared with all."""


class SharedOutputs:
    """Outputs that were met before, given to nodes that were just made and that nobody else knows.

    >>> first, second = (Node(name, outputs=(TensorMeta("float32", (2,)),)) for name in "ab")
    >>> SharedOutputs().give([first, second])
    >>> first.outputs is second.outputs
    True
    """

    def __init__(self) -> None:
        self._known: dict[tuple[TensorMeta, ...], tuple[TensorMeta, ...]] = {}

    def give(self, nodes: Iterable[Node]) -> None:
        """Replace the outputs of each node by equal ones."""
        known = self._known
        for node in nodes:
            outputs = node.outputs
            if outputs:
                force_setattr(node, "outputs", known.setdefault(outputs, outputs))
            if len(known) > _MOST:
                known.clear()
