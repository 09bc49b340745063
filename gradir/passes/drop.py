"""Drop kinds of nodes, saved tensors and views, or operations that only rearrange elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec.structs import replace

from gradir.errors import PassError
from gradir.hints import did_you_mean
from gradir.ir import Graph
from gradir.ir.marks import failure
from gradir.ir.merged import MERGED, modules_alone
from gradir.ir.model import ROLES
from gradir.options import Options
from gradir.passes.wiring import has_one_input, without
from gradir.vocabulary import vocabulary_of

_ACCUMULATORS: Final = "accumulate_grad"
_SAVED: Final = "saved"
_VIEWS: Final = "views"


class DropOptions(Options, frozen=True, kw_only=True):
    """Names of the parts to drop; in Python one may stand alone."""

    drop: Annotated[
        tuple[Annotated[str, msgspec.Meta(title="WHAT")], ...],
        msgspec.Meta(description="leave out a role such as buffer, accumulate_grad, saved or views; repeatable"),
    ]


class DropPass:
    """All but some kinds of nodes, or what nodes say of saved tensors and views."""

    order: ClassVar[int] = 10
    options: ClassVar[type[Options]] = DropOptions

    def run(self, graph: Graph, options: DropOptions) -> Graph:
        """See `drop`."""
        return drop(graph, options.drop)


def drop(graph: Graph, what: Iterable[str]) -> Graph:
    """Leave out whatever the words in ``what`` name.

    ===================  ==============================================================================
    word                 what goes
    ===================  ==============================================================================
    a role               the nodes of that role: ``buffer``, ``view_base``, ``output``, ``leaf`` …
    ``accumulate_grad``  the nodes that accumulate a leaf's gradient
    ``saved``            what nodes say of the tensors they saved, and nodes of the role ``saved``
    ``views``            the nodes of the role ``view_base``, and the view edges from all others
    ===================  ==============================================================================

    A node with one input is passed through: its consumers take that input instead, as those of an accumulator take
    the leaf that the accumulator has for its input. No other node is, so an edge of the result joins two nodes only
    if an edge or a path of dropped nodes joined them. For what becomes of other inputs see `gradir.passes.without`.

    A graph that has nothing of it is returned as it is.

    Raises:
        PassError: a word is neither one of these, nor a role that gradir writes or the graph has.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> w = b.function("accumulate_grad", [b.tensor("w", TensorMeta(), role="parameter")], [TensorMeta()])
    >>> b.output(b.function("exp", [w], [TensorMeta()]))
    >>> for edge in drop(b.build(), ["accumulate_grad"]).edges:
    ...     print(edge.src, "->", edge.dst)
    w -> exp:1
    exp:1 -> output
    """
    words = set(_known(graph, what))
    roles = words | ({"view_base"} if _VIEWS in words else set())
    operations = vocabulary_of(graph).accumulators if _ACCUMULATORS in words else ()
    gone = {node.id for node in graph.nodes.values() if node.role in roles or node.op in operations}
    left = without(graph, gone, has_one_input)
    if _SAVED in words:
        left = _without_field(left, "saved", ())
        left = _without_marks(left)
    return _without_field(left, "base", None) if _VIEWS in words else left


def _known(graph: Graph, what: Iterable[str]) -> Iterable[str]:
    words = [*dict.fromkeys(what)]
    known = [*ROLES, _ACCUMULATORS, _VIEWS]
    if any(word not in known for word in words):
        known = [*dict.fromkeys([*known, *sorted({node.role for node in graph.nodes.values()})])]
    for word in words:
        if word not in known:
            raise PassError(f"cannot drop {word!r}{did_you_mean(word, known)}: choose from {', '.join(known)}")
    return words


def _without_field(graph: Graph, field: str, empty: object) -> Graph:
    found = {key: replace(node, **{field: empty}) for key, node in graph.nodes.items() if getattr(node, field) != empty}
    return replace(graph, nodes={**graph.nodes, **found}) if found else graph


def _without_marks(graph: Graph) -> Graph:
    """Remove marks of saved tensors from a graph."""
    found = {key: replace(node, ext=modules_alone(node)) for key, node in graph.nodes.items() if MERGED in node.ext}
    return replace(graph, nodes={**graph.nodes, **found}) if found else graph


class HideShapeOpsOptions(Options, frozen=True, kw_only=True):
    """Whether to hide them."""

    hide_shape_ops: Annotated[bool, msgspec.Meta(description="leave out views, reshapes, transposes ...")]


class HideShapeOpsPass:
    """All but views, reshapes and transposes."""

    order: ClassVar[int] = 20
    options: ClassVar[type[Options]] = HideShapeOpsOptions

    def run(self, graph: Graph, options: HideShapeOpsOptions) -> Graph:  # noqa: ARG002 (it runs where it is asked for)
        """See `hide_shape_ops`."""
        return hide_shape_ops(graph)


def hide_shape_ops(graph: Graph) -> Graph:
    """Leave out the views, reshapes and transposes that have one input: what they fed takes that input instead.

    An edge of the result joins two nodes exactly where an edge or a path of hidden nodes did. Shape operations without
    an input, with several, with several outputs, opaque ones, or one that raised stay. What a node says of itself does
    not change, so a consumer's own shape shows what the hidden operations made of the tensor. A view whose base is
    hidden has none, and neither has a saved slot an origin that is hidden: the node before it made a tensor of another
    shape.

    Which operations these are is said by the vocabulary of the framework, see `gradir.vocabulary`. A graph without them
    is returned as it is.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> w = b.tensor("w", TensorMeta("float32", (2, 3)), role="parameter")
    >>> t = b.function("t", [w], [TensorMeta("float32", (3, 2))])
    >>> b.output(b.function("mm", [None, t], [TensorMeta("float32", (4, 2))]))
    >>> hidden = hide_shape_ops(b.build())
    >>> list(hidden.nodes), hidden.nodes["mm:1"].inputs
    (['w', 'mm:1', 'output'], (None, Ref(id='w', output_nr=0)))
    """
    return without(graph, shape_operations(graph), has_one_input)


def shape_operations(graph: Graph) -> set[str]:
    """Return the ids of the nodes that `hide_shape_ops` omits."""
    operations = vocabulary_of(graph).shape_operations
    return {
        node.id
        for node in graph.nodes.values()
        if node.op in operations
        and node.role == "function"
        and has_one_input(node)
        and len(node.outputs) <= 1
        and not node.opaque
        and not failure(node)
    }
