"""The layer table as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gradir.ir.model import Shape
from gradir.ir.module_tree import OUTSIDE, ModuleTree, scope_depth
from gradir.ir.totals import bounded, totals
from gradir_exporters._summary_saved import Savings, State, places_of
from gradir_exporters._summary_shapes import output_shapes

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["Layer", "Layers", "Row", "Totals", "layers"]


class Layer(msgspec.Struct, frozen=True, gc=False, rename={"class_name": "class"}):
    """One module.

    What is called ``own`` is of the module itself, the rest of the modules below it too. ``trainable`` counts among
    ``parameters``, and ``unsized`` the saved slots of unknown size.
    """

    path: str
    class_name: str
    calls: int
    output_shapes: tuple[Shape | None, ...] | None
    own_parameters: int
    parameters: int
    trainable: int
    own_saved_bytes: int
    saved_bytes: int
    own_unsized: int
    unsized: int


class Totals(msgspec.Struct, frozen=True, gc=False):
    """The whole graph: ``saved_bytes`` is the sum over all modules, ``outside_bytes`` and ``folded_bytes`` included.

    ``outside_bytes`` were saved by operations of no module, ``folded_bytes`` by folded modules; ``owned_bytes`` are
    parameters, buffers and leaves that slots keep, and no part of ``saved_bytes``.
    """

    parameters: int
    trainable: int
    nodes: int
    saved_bytes: int
    states: dict[str, State]
    outside_bytes: int
    folded_bytes: int
    owned_bytes: int


class Row(NamedTuple):
    """A module as a row: its name below the module above it, and how far down that is."""

    name: str
    level: int
    layer: Layer


class Layers(NamedTuple):
    """The table and what stands under it."""

    rows: list[Row]
    totals: Totals


def layers(graph: Graph, depth: int | None) -> Layers:
    """The modules of at most ``depth`` path components, in the order of the scope table, each before those below it."""
    tree = ModuleTree(graph.scopes.values())
    places = places_of(graph, tree)
    savings = Savings(graph, places)
    shapes = output_shapes(graph, tree, places)
    saved_total = _with_those_below(tree, savings.bytes)
    unsized_total = _with_those_below(tree, savings.unsized)
    rows = [
        Row(
            tree.names[place],
            tree.levels[place],
            Layer(
                scope.path,
                scope.class_name,
                scope.calls,
                shapes[place],
                scope.own,
                scope.total,
                scope.trainable,
                bounded(savings.bytes.get(place, 0)),
                saved_total[place],
                savings.unsized.get(place, 0),
                unsized_total[place],
            ),
        )
        for place, scope in enumerate(tree.scopes)
        if depth is None or scope_depth(scope.path) <= depth
    ]
    return Layers(rows, _totals(graph, tree, savings))


def _with_those_below(tree: ModuleTree, own: dict[int, int]) -> list[int]:
    sums = [own.get(place, 0) for place in range(len(tree.scopes))]
    for place in reversed(range(len(sums))):
        if tree.parents[place] != OUTSIDE:
            sums[tree.parents[place]] += sums[place]
    return [bounded(size) for size in sums]


def _totals(graph: Graph, tree: ModuleTree, savings: Savings) -> Totals:
    parameters = sum(tree.scopes[top].total for top in tree.tops)
    trainable = sum(tree.scopes[top].trainable for top in tree.tops)
    if not tree.tops:
        # Without a scope table the parameters in the graph are those that are known, and all of them are trained.
        parameters = trainable = totals(graph).parameters
    return Totals(
        bounded(parameters),
        bounded(trainable),
        len(graph.nodes),
        bounded(sum(savings.bytes.values())),
        savings.states,
        bounded(savings.bytes.get(OUTSIDE, 0)),
        bounded(savings.folded),
        bounded(savings.owned),
    )
