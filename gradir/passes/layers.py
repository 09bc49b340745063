"""Show the layers of a model: the modules without submodules, without operations on shapes."""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec.structs import replace

from gradir.gcpause import pause_gc
from gradir.ir import Graph
from gradir.ir.frames import frames
from gradir.ir.marks import WEIGHTS
from gradir.ir.model import Shape
from gradir.ir.module_tree import split_path, walk_up
from gradir.options import Options
from gradir.passes.contraction import contract_modules
from gradir.passes.drop import find_shape_operations
from gradir.passes.wiring import has_one_input, make_switch, without
from gradir.vocabulary import vocabulary_of

_OUTSIDE: Final = frozenset({"output", "view_base"})


class LayersPass:
    """One node for each module without modules in it, no shape operations."""

    order: ClassVar[int] = 65
    options: ClassVar[type[Options]] = make_switch("layers", "show each layer as one box, without operations on shapes")
    chooses: ClassVar[bool] = False

    def run(self, graph: Graph, options: Options) -> Graph:  # noqa: ARG002 (the option only turns it on)
        """See `layers`."""
        return layers(graph)


def layers(graph: Graph) -> Graph:
    """Make one node of each layer, and leave out accumulators and operations that only rearrange elements.

    A layer is a module below the model without submodules, such as a ``Linear``. Its node is one of
    `gradir.passes.fold`, with the names and shapes of its parameters in the attribute ``weights``. Each call of a
    layer is a node, of which the first has the parameters. Operations at a cut stay.

    >>> from gradir.ir import Builder, Scope, TensorMeta
    >>> b = Builder()
    >>> w = b.tensor("fc.w", TensorMeta("float32", (3, 2)), role="parameter", scope="fc")
    >>> t = b.function("t", [w], [TensorMeta("float32", (2, 3))], scope="fc")
    >>> h = b.function("mm", [None, t], [TensorMeta("float32", (4, 3))], scope="fc")
    >>> b.output(b.function("sum", [b.function("view", [h], [TensorMeta()])], [TensorMeta("float32", ())]))
    >>> shown = layers(b.build(scopes=[Scope("", "Net"), Scope("fc", "Linear", calls=1)]))
    >>> list(shown.nodes), shown.nodes["fc"].attrs["weights"]
    (['fc', 'sum:1', 'output'], (('w', (3, 2)),))
    """
    with pause_gc():
        leaves = _find_leaf_modules(graph)
        accumulators = vocabulary_of(graph).accumulators
        call_of = frames(graph, accumulators)
        places = [
            node.scope if node.scope in leaves and node.role not in _OUTSIDE else None for node in graph.nodes.values()
        ]
        if any(place is not None for place in places):
            weights: dict[str, list[tuple[str, Shape | None]]] = {}
            # Calls of a module that are not connected are separate layers.
            calls = [call_of.get(node.id, "") for node in graph.nodes.values()]
            graph, find_id, before = *contract_modules(graph, places, calls), graph
            for node, place in zip(before.nodes.values(), places, strict=True):
                if place is not None:
                    own = weights.setdefault(find_id(node.id), [])
                    if node.role == "parameter":
                        own.append((node.label.removeprefix(f"{node.scope}."), node.shape))
            boxes = {}
            for key, own in weights.items():
                # Matrices come before biases.
                own.sort(key=lambda weight: -len(weight[1] or ()))
                boxes[key] = replace(graph.nodes[key], attrs={**graph.nodes[key].attrs, WEIGHTS: tuple(own)})
            graph = replace(graph, nodes={**graph.nodes, **boxes})
        cut = {end for each in graph.cuts for end in (each.at, each.into)}
        hidden = {node.id for node in graph.nodes.values() if node.op in accumulators and has_one_input(node)}
        return without(graph, (hidden | find_shape_operations(graph)) - cut, has_one_input)


def _find_leaf_modules(graph: Graph) -> set[str]:
    paths = {*graph.scopes, *(node.scope for node in graph.nodes.values())}
    parents = {above for path in paths for above in walk_up(split_path(path)[0])}
    return {path for path, scope in graph.scopes.items() if path and scope.class_name and path not in parents}
