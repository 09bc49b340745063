"""Leave out operations that only rearrange a tensor's elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from gradir.ir.marks import failure
from gradir.options import Options
from gradir.passes.wiring import has_one_input, without
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["HideShapeOpsOptions", "HideShapeOpsPass", "hide_shape_ops"]


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
    operations = vocabulary_of(graph).shape_operations
    gone = {
        node.id
        for node in graph.nodes.values()
        if node.op in operations
        and node.role == "function"
        and has_one_input(node)
        and len(node.outputs) <= 1
        and not node.opaque
        and not failure(node)
    }
    return without(graph, gone, has_one_input)
