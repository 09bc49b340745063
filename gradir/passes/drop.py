"""Drop kinds of nodes, saved tensors and views, or operations that only rearrange elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from gradir.errors import PassError, did_you_mean
from gradir.ir import Graph, Node
from gradir.ir.marks import failure
from gradir.ir.model import ROLES
from gradir.ir.saved import MERGED, keep_only_modules
from gradir.options import Options
from gradir.passes.wiring import has_one_input, make_switch, without
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
    """Drop the parts of a graph that ``what`` names.

    A word is a role, ``accumulate_grad``, ``saved`` (saved tensors of nodes) or ``views`` (view bases and view
    edges). Consumers of a dropped node with one input take that input instead. See `gradir.passes.without` for other
    inputs.

    Raises:
        PassError: a word is none of these, nor a role that gradir writes or the graph has.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> w = b.function("accumulate_grad", [b.tensor("w", TensorMeta(), role="parameter")], [TensorMeta()])
    >>> b.output(b.function("exp", [w], [TensorMeta()]))
    >>> for edge in drop(b.build(), ["accumulate_grad"]).edges:
    ...     print(edge.src, "->", edge.dst)
    w -> exp:1
    exp:1 -> output
    """
    words = [*dict.fromkeys(what)]
    _check_words(graph, words)
    roles = {*words, *(("view_base",) if _VIEWS in words else ())}
    operations = vocabulary_of(graph).accumulators if _ACCUMULATORS in words else ()
    dropped = {node.id for node in graph.nodes.values() if node.role in roles or node.op in operations}
    rest = without(graph, dropped, has_one_input)
    changed: dict[str, Node] = {}
    for key, node in rest.nodes.items():
        fields: dict[str, Any] = {}
        if _SAVED in words and (node.saved or MERGED in node.ext):
            fields = {"saved": (), "ext": keep_only_modules(node)} if MERGED in node.ext else {"saved": ()}
        if _VIEWS in words and node.base is not None:
            fields["base"] = None
        if fields:
            changed[key] = replace(node, **fields)
    return replace(rest, nodes={**rest.nodes, **changed}) if changed else rest


def _check_words(graph: Graph, words: Iterable[str]) -> None:
    known = [*ROLES, _ACCUMULATORS, _VIEWS]
    # A graph may have roles that gradir does not write.
    known = [*dict.fromkeys([*known, *sorted({node.role for node in graph.nodes.values()})])]
    for word in words:
        if word not in known:
            raise PassError(f"cannot drop {word!r}{did_you_mean(word, known)}: choose from {', '.join(known)}")


class HideShapeOpsPass:
    """All but views, reshapes and transposes."""

    order: ClassVar[int] = 20
    options: ClassVar[type[Options]] = make_switch("hide_shape_ops", "leave out views, reshapes, transposes ...")

    def run(self, graph: Graph, options: Options) -> Graph:  # noqa: ARG002 (the option only turns it on)
        """See `hide_shape_ops`."""
        return hide_shape_ops(graph)


def hide_shape_ops(graph: Graph) -> Graph:
    """Drop views, reshapes and transposes with one input; their consumers take that input instead.

    Shape operations stay if they have several outputs, are opaque, or raised. A view loses a hidden base, and a saved
    slot a hidden origin. `gradir.vocabulary` lists the operations of each framework.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> w = b.tensor("w", TensorMeta("float32", (2, 3)), role="parameter")
    >>> t = b.function("t", [w], [TensorMeta("float32", (3, 2))])
    >>> b.output(b.function("mm", [None, t], [TensorMeta("float32", (4, 2))]))
    >>> hidden = hide_shape_ops(b.build())
    >>> list(hidden.nodes), hidden.nodes["mm:1"].inputs
    (['w', 'mm:1', 'output'], (None, Ref(id='w', output_nr=0)))
    """
    return without(graph, find_shape_operations(graph), has_one_input)


def find_shape_operations(graph: Graph) -> set[str]:
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
