"""What the forward tells of the nodes of a graph, where it was recorded."""

from __future__ import annotations

from typing import Protocol

from gradir.ir import Source

__all__ = ["NotedSources"]


class NotedSources(Protocol):
    """The source lines that were noted, by autograd sequence number."""

    def source(self, number: int) -> Source | None:
        """Where the node of this number was made."""
        ...

    def variable(self, number: int) -> str | None:
        """The variable that was assigned the result of the node of this number."""
        ...
