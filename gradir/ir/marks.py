"""Marks that a node can carry in ``ext`` for whoever draws it: what a pass left out, a diff found, an overlay says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gradir.ir.model import AttrValue, Node

__all__ = [
    "ELIDED",
    "FILLS",
    "LOOKS",
    "LOST",
    "OVERLAY",
    "SIGNS",
    "STATUS",
    "STEPS",
    "Mark",
    "amount_text",
    "lost_slots",
    "overlay_legend",
    "overlay_mark",
    "overlay_text",
    "status",
    "worst_overlay",
]

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

OVERLAY: Final = "overlay"
"""The key of ``ext`` for what an overlay says of the node, see `Mark`."""

STEPS: Final = ("step 1", "step 2", "step 3", "step 4", "step 5")
"""The looks of numbers, from the least to the greatest."""

LOOKS: Final = ("quiet", "good", *STEPS, "caution", "alarm")
"""The looks of what an overlay says, the one that most asks to be seen last."""

FILLS: Final[Mapping[str, tuple[str, str]]] = {
    "quiet": ("#e8e8e8", "#343a41"),
    "good": ("#a9d3ee", "#1f4b70"),
    "step 1": ("#ffffd9", "#23282e"),
    "step 2": ("#c7e9b4", "#1f3a45"),
    "step 3": ("#7fcdbb", "#1c4d62"),
    "step 4": ("#41b6c4", "#1b5f80"),
    "step 5": ("#35a0d0", "#1f6f9f"),
    "caution": ("#f7c873", "#755500"),
    "alarm": ("#f58a5b", "#a33d17"),
}
"""The colours of the looks under dark text and under light text.

Text on them has a contrast of 4.5 and more. The steps are those of a scale that is told apart by colour-blind people
too (YlGnBu of ColorBrewer), and an alarm has a sign beside its colour.
"""

_LOOK_SIGNS: Final = {"alarm": "x ", "caution": "! "}
_TYPES: Final = ([str, str, str, str, bool], [str, float, str, str, bool])


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


class Mark(NamedTuple):
    """What an overlay says of a node: how it looks, the number or word, what the channel is, the words of a legend.

    ``is_mixed`` is set where the node stands for several of which not all are like this.
    """

    look: str
    value: float | str
    title: str
    label: str
    is_mixed: bool = False


def overlay_mark(node: Node) -> Mark | None:
    """The mark of an overlay, or nothing.

    >>> from gradir.ir.model import Node
    >>> overlay_mark(Node("x", ext={"overlay": ("alarm", "zero", "gradient", "zero", False)})).value
    'zero'
    >>> overlay_mark(Node("x", ext={"overlay": "alarm"}))
    """
    found = node.ext.get(OVERLAY) if node.ext else None
    if not isinstance(found, tuple) or [*map(type, found)] not in _TYPES or found[0] not in LOOKS:
        return None
    return Mark._make(found)


def overlay_text(mark: Mark) -> str:
    """The words of a mark, with a sign where it is an alarm, so that no colour is needed to see it.

    >>> overlay_text(Mark("alarm", "zero", "gradient", "zero"))
    'x zero'
    >>> overlay_text(Mark("step 2", 0.012345, "gradient", "0.01 to 0.1", is_mixed=True))
    'at most 0.0123'
    """
    if isinstance(mark.value, float):
        return f"{'at most ' if mark.is_mixed else ''}{amount_text(mark.value)}"
    return f"{_LOOK_SIGNS.get(mark.look, '')}{mark.value}{' and others' if mark.is_mixed else ''}"


def overlay_legend(marks: Iterable[Mark]) -> tuple[str, dict[str, str]]:
    """What the marks of a picture say, and the words of each look, in order; nothing where there are no marks."""
    title, labels = "", dict[str, dict[str, None]]()
    for mark in marks:
        title = mark.title
        labels.setdefault(mark.look, {})[mark.label] = None
    return title, {
        look: f"{_LOOK_SIGNS.get(look, '')}{', '.join(sorted(labels[look]))}" for look in LOOKS if look in labels
    }


def worst_overlay(nodes: Iterable[Node]) -> dict[str, AttrValue]:
    """The entry of ``ext`` for what stands for several nodes: what most asks to be seen, and of numbers the largest."""
    marks = list(filter(None, map(overlay_mark, nodes)))
    if not marks:
        return {}
    worst = max(marks, key=lambda mark: (LOOKS.index(mark.look), mark.value if isinstance(mark.value, float) else 0.0))
    is_mixed = worst.is_mixed or any(mark.value != worst.value for mark in marks)
    return {OVERLAY: tuple(worst._replace(is_mixed=is_mixed))}


def amount_text(number: float) -> str:
    """A number in three digits.

    >>> amount_text(0.012345), amount_text(1e-30), amount_text(20.0)
    ('0.0123', '1e-30', '20')
    """
    return f"{number:.3g}"
