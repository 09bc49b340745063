"""Marks that a node can carry in ``ext`` for whoever draws it: what a pass left out, what a diff found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gradir.ir.model import Node

__all__ = ["ELIDED", "LOST", "SIGNS", "STATUS", "lost_slots", "status"]

ELIDED: Final = "elided_inputs"
"""The key of ``ext`` that lists the input slots whose source a pass left out.

Without it such a slot would read as one where no gradient flows.
"""

STATUS: Final = "diff"
"""The key of ``ext`` that says what became of the node from one graph to another."""

LOST: Final = "lost_inputs"
"""The key of ``ext`` for the input slots that a node had before and has no more."""

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


def lost_slots(node: Node) -> tuple[object, ...]:
    """The input slots that a node has no more; nothing for most nodes."""
    if not node.ext:
        return ()
    found = node.ext.get(LOST)
    return found if isinstance(found, tuple) else ()
