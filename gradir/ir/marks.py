"""Marks of a node in ``ext`` for drawing, set by passes, diffs and overlays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from gradir.ir.graph import Graph
from gradir.ir.model import AttrScalar, AttrValue, Cut, Node, clamp_size
from gradir.ir.saved import read_merged, sum_merged

# These are keys of ``ext`` unless a comment says otherwise.
# The previous block feeds these input slots, in all equal blocks but the first.
CARRIED: Final = "carried_inputs"
# A pass omitted the sources of these input slots. Without the mark, they would look as if no gradient flowed.
ELIDED: Final = "elided_inputs"
# The error of the operation that ended a forward pass.
FAILED: Final = "failed"
# The option ``focus`` selected this node, and its neighbors are there for context.
FOCUS: Final = "focus"
# The numbers of omitted producers and consumers of a node.
LEFT_OUT: Final = "left_out"
# The text of the node's source line.
LINE: Final = "line"
# The change of the node from one graph to another: a key of `SIGNS`.
STATUS: Final = "diff"
# The input slots that a node lost from one graph to another.
LOST: Final = "lost_inputs"
# The signs of changes where there are no colors.
SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}
# The former operation of a changed function.
WAS: Final = "was"
# The number of nodes that a node represents.
TIMES: Final = "times"
# The floating-point operations of a node in the forward pass. The producer's option of this name has those of
# operations without a node, by module.
FLOPS: Final = "flops"
# The phase of training if that is ``backward``.
PHASE: Final = "phase"
# An option of the producer: the bytes that each of several ways to train keeps for its backward pass, by module.
SAVINGS: Final = "savings"
# The milliseconds of a node, forward and backward. No two captures measure the same.
MILLISECONDS: Final = "ms"
# An attribute of a layer that `gradir.passes.layers` made: the name and shape of each of its parameters.
WEIGHTS: Final = "weights"
# The `Mark` of an overlay's chosen channel.
OVERLAY: Final = "overlay"
# The marks of an overlay's other channels, for exporters that show them too.
OVERLAYS: Final = "overlays"
# The look and sentence of an overlay for the whole graph, on an output.
VERDICT: Final = "verdict"
# The looks of numbers, from the least to the greatest.
STEPS: Final = ("step 1", "step 2", "step 3", "step 4", "step 5")
# The looks of overlays in the order of their urgency.
LOOKS: Final = ("quiet", "good", *STEPS, "caution", "alarm")
# The text of an output whose value was never read.
UNREAD: Final = "never read"

_KINDS: Final = frozenset({"forward", "joint", "compiled"})
# Each way to train is a column in the table of modules, and a hostile file could have many.
_MOST_WAYS: Final = 8
_MARK_TYPES: Final = ((str, str, str, str, bool), (str, float, str, str, bool))


def _entry(node: Node, key: str, *types: type) -> Any:
    """Return a tuple in ``ext`` if its entries have exactly these types, else ``None``."""
    found = node.ext.get(key) if node.ext else None
    # A file may have any value there.
    return found if isinstance(found, tuple) and tuple(map(type, found)) == types else None


def status(node: Node) -> str:
    """Return the change of a node, or an empty text.

    >>> status(Node("x", ext={"diff": "added"})), status(Node("x", ext={"diff": 1}))
    ('added', '')
    """
    found = node.ext.get(STATUS)
    return found if isinstance(found, str) and found in SIGNS else ""


def get_marked_slots(node: Node, key: str) -> tuple[object, ...]:
    """Return the input slots that a mark (`CARRIED`, `ELIDED` or `LOST`) lists."""
    found = node.ext.get(key) if node.ext else None
    return found if isinstance(found, tuple) else ()


def lost_slots(node: Node) -> tuple[object, ...]:
    """Return the input slots that a node lost."""
    return get_marked_slots(node, LOST)


def is_lost(tail: Node, head: Node, slot: int) -> bool:
    """Return whether an edge into a slot exists only in the first graph."""
    return "removed" in {status(tail), status(head)} or slot in lost_slots(head)


def operation_before(node: Node) -> str:
    """Return the former operation of a changed function, or an empty text.

    >>> operation_before(Node("x", op="relu", ext={"diff": "changed", "was": "gelu"}))
    'gelu'
    """
    found = node.ext.get(WAS) if status(node) == "changed" else ""
    return found if isinstance(found, str) and node.op else ""


def times(node: Node) -> int:
    """Return the number of nodes that one represents, which is 1 for most."""
    found = node.ext.get(TIMES, 1) if node.ext else 1
    return found if isinstance(found, int) else 1


def flops(node: Node) -> int:
    """Return a node's floating-point operations in the forward pass, or 0 if unknown.

    >>> flops(Node("x", ext={"flops": 128})), flops(Node("x", ext={"flops": "many"}))
    (128, 0)
    """
    found = node.ext.get(FLOPS, 0) if node.ext else 0
    return found if type(found) is int else 0


def is_backward(node: Node) -> bool:
    """Return whether a node belongs to the backward pass, in a graph of both passes."""
    return bool(node.ext) and node.ext.get(PHASE) == "backward"


def graph_kind(graph: Graph) -> str:
    """Return the kind of a graph: ``autograd``, ``forward``, ``joint`` or ``compiled``.

    >>> from gradir.ir import Graph, Producer
    >>> graph_kind(Graph.of([])), graph_kind(Graph.of([], producer=Producer(options={"graph": "joint"})))
    ('autograd', 'joint')
    """
    kind = graph.producer.options.get("graph")
    return kind if isinstance(kind, str) and kind in _KINDS else "autograd"


def savings(graph: Graph) -> Iterator[tuple[str, str, int]]:
    """Yield the bytes that each way to train saves for its backward pass: its name, a module and the bytes.

    >>> from gradir.ir import Graph, Producer
    >>> [*savings(Graph.of([], producer=Producer(options={"savings": (("eager", "fc", 96), ("eager",))})))]
    [('eager', 'fc', 96)]
    """
    rows = graph.producer.options.get(SAVINGS)
    names = set[str]()
    for row in rows if isinstance(rows, tuple) else ():
        # A file may have any value there.
        if isinstance(row, tuple) and [*map(type, row)] == [str, str, int] and len(names | {row[0]}) <= _MOST_WAYS:
            names.add(row[0])  # type: ignore[arg-type]
            yield row  # type: ignore[misc]


def milliseconds(node: Node) -> tuple[float, float]:
    """Return the milliseconds of a node, forward and backward, or 0 if unknown.

    >>> milliseconds(Node("x", ext={"ms": (0.5, 1.5)})), milliseconds(Node("x", ext={"ms": 2.0}))
    ((0.5, 1.5), (0.0, 0.0))
    """
    return _entry(node, MILLISECONDS, float, float) or (0.0, 0.0)


def is_layer(node: Node) -> bool:
    """Return whether a node is a layer of `gradir.passes.layers`."""
    return node.role == "module" and isinstance(node.attrs.get(WEIGHTS), tuple)


def stands_for_several(node: Node) -> bool:
    """Return whether a node is a folded module or represents several equal nodes."""
    return (node.role == "module" and not is_layer(node)) or (bool(node.ext) and times(node) > 1)


class ListedChange(NamedTuple):
    """A change to list beside the picture of a diff: its kind, its heading, its text.

    ``fields`` has each changed field with both values as text, and ``slots`` the changed input slots by node.
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

    ``is_mixed`` is set if the node represents several with different values.
    """

    look: str
    value: float | str
    title: str
    label: str
    is_mixed: bool = False


def overlay_mark(node: Node) -> Mark | None:
    """Return the mark of an overlay on a node, or ``None``.

    >>> overlay_mark(Node("x", ext={"overlay": ("alarm", "zero", "gradient", "zero", False)})).value
    'zero'
    >>> overlay_mark(Node("x", ext={"overlay": "alarm"}))
    """
    return _mark(node.ext.get(OVERLAY)) if node.ext else None


def overlay_marks(node: Node) -> list[Mark]:
    """Return the marks of all channels of an overlay on a node, the chosen one first."""
    others = node.ext.get(OVERLAYS)
    found = [node.ext.get(OVERLAY), *(others if isinstance(others, tuple) else ())]
    return [*filter(None, map(_mark, found))]


def _mark(found: object) -> Mark | None:
    is_mark = isinstance(found, tuple) and tuple(map(type, found)) in _MARK_TYPES and found[0] in LOOKS
    return Mark._make(found) if is_mark else None  # type: ignore[arg-type]


def overlay_verdict(nodes: Iterable[Node]) -> tuple[str, str] | None:
    """Return the look and the sentence of an overlay for the whole graph, or ``None``.

    >>> overlay_verdict([Node("w"), Node("output", ext={"verdict": ("quiet", "Both parameters get a gradient.")})])
    ('quiet', 'Both parameters get a gradient.')
    >>> overlay_verdict([Node("output", ext={"verdict": "alarm"})])
    """
    for node in nodes:
        found: tuple[str, str] | None = _entry(node, VERDICT, str, str)
        if found and found[0] in LOOKS:
            return found
    return None


def failure(node: Node) -> str:
    """Return the error that ended the forward pass at a node, or an empty text.

    >>> failure(Node("x", ext={"failed": "ValueError: no"})), failure(Node("x", ext={"failed": True}))
    ('ValueError: no', '')
    """
    found = node.ext.get(FAILED) if node.ext else ""
    return found if isinstance(found, str) else ""


def find_unread_outputs(nodes: Collection[Node]) -> frozenset[str]:
    """Return the ids of outputs whose values were never read because the forward pass raised an error.

    >>> [*find_unread_outputs([Node("output", "output"), Node("mm:1", ext={"failed": "ValueError: no"})])]
    ['output']
    """
    return frozenset(node.id for node in nodes if node.role == "output") if any(map(failure, nodes)) else frozenset()


def is_focus(node: Node) -> bool:
    """Return whether the option ``focus`` selected a node."""
    return bool(node.ext) and node.ext.get(FOCUS) is True


def left_out(node: Node) -> tuple[int, int]:
    """Return the numbers of omitted producers and consumers of a node.

    >>> left_out(Node("x", ext={"left_out": (0, 3)})), left_out(Node("x", ext={"left_out": "3"}))
    ((0, 3), (0, 0))
    """
    return _entry(node, LEFT_OUT, int, int) or (0, 0)


def combine_marks(nodes: Collection[Node]) -> dict[str, AttrValue]:
    """Return the marks of a node that represents several."""
    nodes = [node for node in nodes if node.ext]
    found: dict[str, AttrValue] = {
        FOCUS: any(map(is_focus, nodes)),
        FAILED: next(filter(None, map(failure, nodes)), ""),
        LEFT_OUT: _sums(map(left_out, nodes)),
        VERDICT: overlay_verdict(nodes),
        FLOPS: clamp_size(sum(map(flops, nodes))),
        MILLISECONDS: _sums(map(milliseconds, nodes)),
    }
    slots = sum_merged(chain.from_iterable(map(read_merged, nodes)))
    return {**{key: value for key, value in found.items() if value}, **slots, **_worst_overlay(nodes)}


def _sums(pairs: Iterable[tuple[AttrScalar, ...]]) -> tuple[AttrScalar, ...]:
    return tuple(map(sum, zip(*filter(any, pairs), strict=True)))


def _worst_overlay(nodes: Iterable[Node]) -> dict[str, AttrValue]:
    chosen: list[Mark] = []
    others: dict[str, list[Mark]] = {}
    for node in nodes:
        first = overlay_mark(node)
        chosen += [first] if first else []
        for mark in overlay_marks(node)[first is not None :]:
            others.setdefault(mark.title, []).append(mark)
    found: dict[str, AttrValue] = {OVERLAY: _worst(chosen)} if chosen else {}
    return {**found, OVERLAYS: tuple(map(_worst, others.values()))} if others else found


def _worst(marks: Sequence[Mark]) -> tuple[AttrScalar, ...]:
    worst = max(marks, key=lambda mark: (LOOKS.index(mark.look), mark.value if isinstance(mark.value, float) else 0.0))
    return tuple(worst._replace(is_mixed=worst.is_mixed or any(mark.value != worst.value for mark in marks)))
