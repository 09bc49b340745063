"""Marks of a node in ``ext`` for whoever draws it, set by passes, diffs and overlays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.merged import merged, merged_ext
from gradir.ir.model import AttrScalar, AttrValue, Cut, Node, bounded

if TYPE_CHECKING:
    from gradir.ir.graph import Graph

__all__ = [
    "CARRIED",
    "ELIDED",
    "FAILED",
    "FLOPS",
    "FOCUS",
    "LEFT_OUT",
    "LINE",
    "LOOKS",
    "LOST",
    "MILLISECONDS",
    "OVERLAY",
    "OVERLAYS",
    "PHASE",
    "SAVINGS",
    "SIGNS",
    "STATUS",
    "STEPS",
    "TIMES",
    "UNREAD",
    "VERDICT",
    "WAS",
    "WEIGHTS",
    "ListedChange",
    "Mark",
    "failure",
    "flops",
    "graph_kind",
    "is_backward",
    "is_focus",
    "is_layer",
    "is_lost",
    "left_out",
    "lost_slots",
    "marked_slots",
    "milliseconds",
    "operation_before",
    "overlay_mark",
    "overlay_marks",
    "overlay_verdict",
    "savings",
    "stands_for_several",
    "status",
    "times",
    "together",
    "unread",
]

CARRIED: Final = "carried_inputs"
"""The key of ``ext`` that lists the input slots which in all equal blocks but the first are fed by the block before."""

ELIDED: Final = "elided_inputs"
"""The key of ``ext`` that lists the input slots whose source a pass left out.

Without it such a slot would read as one where no gradient flows.
"""

FAILED: Final = "failed"
"""The key of ``ext`` for the error of the operation that ended a forward."""

FOCUS: Final = "focus"
"""The key of ``ext`` that is set where a node was asked for, and others are there since they are near it."""

LEFT_OUT: Final = "left_out"
"""The key of ``ext`` for how many nodes a choice of a part left out before a node and behind it."""

LINE: Final = "line"
"""The key of ``ext`` for the text of the node's source line."""

STATUS: Final = "diff"
"""The key of ``ext`` that says what became of the node from one graph to another."""

LOST: Final = "lost_inputs"
"""The key of ``ext`` for the input slots that a node had before and has no more."""

SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}
"""The marks there are, each with the sign that shows it where there are no colours."""

WAS: Final = "was"
"""The key of ``ext`` for the operation that a changed function was."""

TIMES: Final = "times"
"""The key of ``ext`` that says for how many nodes one stands."""

FLOPS: Final = "flops"
"""The key of ``ext`` for the floating-point operations that a node took in the forward; as an option of the producer,
those of operations without a node, by module."""

_KINDS: Final = frozenset({"forward", "joint", "compiled"})

PHASE: Final = "phase"
"""The key of ``ext`` for the part of training that a node is of, if that is ``backward``."""

SAVINGS: Final = "savings"
"""The option of the producer for the bytes that each of several ways to train keeps for its backward, by module."""

_MOST_WAYS: Final = 8

MILLISECONDS: Final = "ms"
"""The key of ``ext`` for the times that a node took, forward and backward. No two captures measure the same."""

WEIGHTS: Final = "weights"
"""The attribute of a node that `gradir.passes.layers` made of a layer: the name and shape of each of its parameters."""

OVERLAY: Final = "overlay"
"""The key of ``ext`` for what an overlay says of the node, see `Mark`."""

OVERLAYS: Final = "overlays"
"""The key of ``ext`` for what other channels of the overlay say of the node, a `Mark` each, for who shows them too."""

VERDICT: Final = "verdict"
"""The key of ``ext`` of outputs for what an overlay says of the whole graph: a look and a sentence."""

STEPS: Final = ("step 1", "step 2", "step 3", "step 4", "step 5")
"""The looks of numbers, from the least to the greatest."""

LOOKS: Final = ("quiet", "good", *STEPS, "caution", "alarm")
"""The looks of what an overlay says, the one that most asks to be seen last."""

_TYPES: Final = ([str, str, str, str, bool], [str, float, str, str, bool])


def status(node: Node) -> str:
    """Return the mark of a node, or an empty text.

    >>> from gradir.ir.model import Node
    >>> status(Node("x", ext={"diff": "added"})), status(Node("x", ext={"diff": 1}))
    ('added', '')
    """
    found = node.ext.get(STATUS)
    return found if isinstance(found, str) and found in SIGNS else ""


def marked_slots(node: Node, key: str) -> tuple[object, ...]:
    """Return the input slots that a mark (`CARRIED`, `ELIDED` or `LOST`) lists."""
    found = node.ext.get(key) if node.ext else None
    return found if isinstance(found, tuple) else ()


def lost_slots(node: Node) -> tuple[object, ...]:
    """Return the input slots that a node lost."""
    return marked_slots(node, LOST)


def is_lost(tail: Node, head: Node, slot: int) -> bool:
    """Return whether gradient no longer flows through a former edge."""
    return "removed" in {status(tail), status(head)} or slot in lost_slots(head)


def operation_before(node: Node) -> str:
    """Return the former operation of a changed function, or an empty text.

    >>> from gradir.ir.model import Node
    >>> operation_before(Node("x", op="relu", ext={"diff": "changed", "was": "gelu"}))
    'gelu'
    """
    found = node.ext.get(WAS) if status(node) == "changed" else ""
    return found if isinstance(found, str) and node.op else ""


def times(node: Node) -> int:
    """Return the number of nodes that one represents, which is 1 for most.

    >>> from gradir.ir.model import Node
    >>> times(Node("x", ext={"times": 12})), times(Node("x"))
    (12, 1)
    """
    found = node.ext.get(TIMES, 1) if node.ext else 1
    return found if isinstance(found, int) else 1


def flops(node: Node) -> int:
    """Return a node's floating-point operations in the forward pass, or 0 if unknown.

    >>> from gradir.ir.model import Node
    >>> flops(Node("x", ext={"flops": 128})), flops(Node("x", ext={"flops": "many"}))
    (128, 0)
    """
    found = node.ext.get(FLOPS, 0) if node.ext else 0
    return found if type(found) is int else 0


def is_backward(node: Node) -> bool:
    """Return whether a node is of the backward, in a graph of both passes.

    >>> is_backward(Node("mm:1", ext={"phase": "backward"})), is_backward(Node("mm:2"))
    (True, False)
    """
    return bool(node.ext) and node.ext.get(PHASE) == "backward"


def graph_kind(graph: Graph) -> str:
    """Return which graph it is: ``autograd``, ``forward``, ``joint`` or ``compiled``.

    >>> from gradir.ir import Graph, Producer
    >>> graph_kind(Graph.of([])), graph_kind(Graph.of([], producer=Producer(options={"graph": "joint"})))
    ('autograd', 'joint')
    """
    kind = graph.producer.options.get("graph")
    return kind if isinstance(kind, str) and kind in _KINDS else "autograd"


def savings(graph: Graph) -> Iterator[tuple[str, str, int]]:
    """Yield what each of several ways to train keeps for its backward: its name, a module and the bytes.

    >>> from gradir.ir import Graph, Producer
    >>> [*savings(Graph.of([], producer=Producer(options={"savings": (("eager", "fc", 96), ("eager",))})))]
    [('eager', 'fc', 96)]
    """
    rows = graph.producer.options.get(SAVINGS)
    names = set[str]()
    for row in rows if isinstance(rows, tuple) else ():
        # A file may hold anything there. Each way is a column of the table of modules.
        if isinstance(row, tuple) and [*map(type, row)] == [str, str, int] and len(names | {row[0]}) <= _MOST_WAYS:
            names.add(row[0])  # type: ignore[arg-type]
            yield row  # type: ignore[misc]


def milliseconds(node: Node) -> tuple[float, float]:
    """Return the milliseconds of a node, forward and backward, or 0 if unknown.

    >>> from gradir.ir.model import Node
    >>> milliseconds(Node("x", ext={"ms": (0.5, 1.5)})), milliseconds(Node("x", ext={"ms": 2.0}))
    ((0.5, 1.5), (0.0, 0.0))
    """
    found = node.ext.get(MILLISECONDS) if node.ext else None
    if isinstance(found, tuple) and [*map(type, found)] == [float, float]:
        forward, backward = found
        return forward, backward  # type: ignore[return-value]
    return 0.0, 0.0


def is_layer(node: Node) -> bool:
    """Return whether a node is a layer of `gradir.passes.layers`.

    >>> from gradir.ir.model import Node
    >>> is_layer(Node("fc", role="module", attrs={"weights": ()})), is_layer(Node("h", role="module"))
    (True, False)
    """
    return node.role == "module" and isinstance(node.attrs.get(WEIGHTS), tuple)


def stands_for_several(node: Node) -> bool:
    """Return whether a node is a folded module or represents several equal nodes."""
    return (node.role == "module" and not is_layer(node)) or (bool(node.ext) and times(node) > 1)


class ListedChange(NamedTuple):
    """A change to list beside the picture of a diff: its kind, its heading, its text.

    ``fields`` has each changed field with both values as text, and ``slots`` the rewired input slots by node.
    """

    kind: str
    group: str
    text: str
    nodes: Sequence[str] = ()
    scopes: Sequence[str] = ()
    fields: Sequence[tuple[str, str, str]] = ()
    slots: Sequence[tuple[str, int]] = ()
    cuts: Sequence[Cut] = ()


class Mark(NamedTuple):
    """The mark of an overlay on a node: its look, its value, its channel, and the text of a legend.

    ``is_mixed`` is set if the node stands for several that differ.
    """

    look: str
    value: float | str
    title: str
    label: str
    is_mixed: bool = False


def overlay_mark(node: Node) -> Mark | None:
    """Return the mark of an overlay, or ``None``.

    >>> from gradir.ir.model import Node
    >>> overlay_mark(Node("x", ext={"overlay": ("alarm", "zero", "gradient", "zero", False)})).value
    'zero'
    >>> overlay_mark(Node("x", ext={"overlay": "alarm"}))
    """
    return _mark(node.ext.get(OVERLAY)) if node.ext else None


def overlay_marks(node: Node) -> list[Mark]:
    """Return the marks of all channels of an overlay for a node, the chosen one first."""
    others = node.ext.get(OVERLAYS)
    found = [node.ext.get(OVERLAY), *(others if isinstance(others, tuple) else ())]
    return [*filter(None, map(_mark, found))]


def _mark(found: object) -> Mark | None:
    if not isinstance(found, tuple) or [*map(type, found)] not in _TYPES or found[0] not in LOOKS:
        return None
    return Mark._make(found)


def overlay_verdict(nodes: Iterable[Node]) -> tuple[str, str] | None:
    """Return the look and the sentence that an overlay has for the whole graph.

    >>> from gradir.ir.model import Node
    >>> overlay_verdict([Node("w"), Node("output", ext={"verdict": ("quiet", "Both parameters get a gradient.")})])
    ('quiet', 'Both parameters get a gradient.')
    >>> overlay_verdict([Node("output", ext={"verdict": "alarm"})])
    """
    for node in nodes:
        found = node.ext.get(VERDICT) if node.ext else None
        if isinstance(found, tuple) and [*map(type, found)] == [str, str] and found[0] in LOOKS:
            look, words = found
            return look, words  # type: ignore[return-value]
    return None


def failure(node: Node) -> str:
    """Return the error that ended the forward pass at a node, or an empty text.

    >>> from gradir.ir.model import Node
    >>> failure(Node("x", ext={"failed": "ValueError: no"})), failure(Node("x", ext={"failed": True}))
    ('ValueError: no', '')
    """
    found = node.ext.get(FAILED) if node.ext else ""
    return found if isinstance(found, str) else ""


UNREAD: Final = "never read"
"""The words for an output that `unread` names."""


def unread(nodes: Collection[Node]) -> frozenset[str]:
    """Return the ids of outputs that only end the graph because the forward pass raised before it read their values.

    >>> from gradir.ir.model import Node
    >>> [*unread([Node("output", "output"), Node("mm:1", ext={"failed": "ValueError: no"})])]
    ['output']
    """
    return frozenset(node.id for node in nodes if node.role == "output") if any(map(failure, nodes)) else frozenset()


def is_focus(node: Node) -> bool:
    """Return whether a node was selected by the option ``focus``."""
    return bool(node.ext) and node.ext.get(FOCUS) is True


def left_out(node: Node) -> tuple[int, int]:
    """Return the numbers of omitted producers and consumers of a node.

    >>> from gradir.ir.model import Node
    >>> left_out(Node("x", ext={"left_out": (0, 3)})), left_out(Node("x", ext={"left_out": "3"}))
    ((0, 3), (0, 0))
    """
    found = node.ext.get(LEFT_OUT) if node.ext else None
    if isinstance(found, tuple) and [*map(type, found)] == [int, int]:
        before, behind = found
        return before, behind  # type: ignore[return-value]
    return 0, 0


def together(nodes: Collection[Node]) -> dict[str, AttrValue]:
    """Return the marks of a node that stands for several."""
    nodes = [node for node in nodes if node.ext]
    cuts = [*filter(any, map(left_out, nodes))]
    found: dict[str, AttrValue] = {
        FOCUS: any(map(is_focus, nodes)),
        FAILED: next(filter(None, map(failure, nodes)), ""),
        LEFT_OUT: _sums(cuts),
        VERDICT: overlay_verdict(nodes),
        FLOPS: bounded(sum(map(flops, nodes))),
        MILLISECONDS: _sums([*filter(any, map(milliseconds, nodes))]),
    }
    gone = merged_ext(chain.from_iterable(map(merged, nodes)))
    return {**{key: value for key, value in found.items() if value}, **gone, **_worst_overlay(nodes)}


def _sums(pairs: Iterable[tuple[AttrScalar, ...]]) -> tuple[AttrScalar, ...]:
    return tuple(map(sum, zip(*pairs, strict=True)))


def _worst_overlay(nodes: Iterable[Node]) -> dict[str, AttrValue]:
    chosen: list[Mark] = []
    others: dict[str, list[Mark]] = {}
    for node in nodes:
        first = overlay_mark(node)
        chosen += filter(None, [first])
        for mark in overlay_marks(node)[first is not None :]:
            others.setdefault(mark.title, []).append(mark)
    found: dict[str, AttrValue] = {OVERLAY: _worst(chosen)} if chosen else {}
    return {**found, OVERLAYS: tuple(map(_worst, others.values()))} if others else found


def _worst(marks: Sequence[Mark]) -> tuple[AttrScalar, ...]:
    worst = max(marks, key=lambda mark: (LOOKS.index(mark.look), mark.value if isinstance(mark.value, float) else 0.0))
    is_mixed = worst.is_mixed or any(mark.value != worst.value for mark in marks)
    return tuple(worst._replace(is_mixed=is_mixed))
