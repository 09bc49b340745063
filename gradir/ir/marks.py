"""Marks that a node can carry in ``ext`` for whoever draws it: what became of it from one graph to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gradir.ir.model import Node

__all__ = ["SIGNS", "STATUS", "status"]

STATUS: Final = "diff"
"""The key of ``ext`` under which the mark stands."""

SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}
"""The marks there are, each with the sign that shows it where there are no colours."""


def status(node: Node) -> str:
    """The mark of a node, or nothing.

    >>> from gradir.ir.model import Node
    >>> status(Node("x", ext={"diff": "added"})), status(Node("x", ext={"diff": 1}))
    ('added', '')
    """
    if not node.ext:
        return ""
    found = node.ext.get(STATUS)
    return found if isinstance(found, str) and found in SIGNS else ""
