"""The law that whatever makes a graph of another keeps each field of its head, or is declared to drop it."""

from __future__ import annotations

import inspect as python
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from msgspec import inspect
from msgspec.structs import replace

import gradir
from gradir import codecs, passes
from gradir.diffs import hunks
from gradir.diffs.correspondence import Correspondence
from gradir.diffs.ignoring import drop_identities
from gradir.diffs.matching import match, search
from gradir.diffs.merging.three_way import Merged, merge_graphs
from gradir.distributed.linking import join_graphs
from gradir.explanations.from_cuts import add_verdict
from gradir.exporting import add_costs, apply_passes, plan_passes
from gradir.ir import Builder, Graph, TensorMeta
from gradir.ir.fields import Field, fields_of
from gradir.ir.head import Head, rename_in_head
from gradir.ir.model import Record
from gradir.overlays import Channel, Overlay, apply_overlay, mark_verdict
from gradir.passes.contraction import contract_modules
from gradir.passes.focus import around
from gradir.passes.fold import FoldOptions
from gradir.passes.shared_words import translate_to_shared_terms
from gradir.passes.wiring import mark_focus, within, without
from gradir.registry import run_pass
from gradir.review.reviewing import review_graphs
from gradir.review.united import UnionGraph, draw_part, drop_accumulators, unite_graphs

KEPT: Final = tuple(name for name in Graph.__struct_fields__ if name not in ("nodes", "scopes"))
"""All fields of a graph but those that passes are there to change."""

NODE: Final = "layers.1/exp:1"
"""What the head of the graph refers to; passes rename, fold and drop it."""

PASSES: Final[Mapping[str, object]] = {
    "ancestors": NODE,
    "between": ("x", "layers.2/exp:1"),
    "descendants": NODE,
    "depth": 1,
    "drop": "leaf",
    "focus": NODE,
    "fold": "layers.*",
    "hide_shape_ops": True,
    "layers": True,
    "once": True,
    "rollup": True,
}
"""An option for each pass."""


class Operation(NamedTuple):
    """What makes a graph of another, and the fields that it is declared to change or to drop."""

    run: Callable[[Graph], Graph]
    drops: frozenset[str] = frozenset()


def whole() -> Graph:
    """A graph for which every pass has something to do, and in which no field holds its default."""
    b = Builder()
    meta = TensorMeta("float32", (2, 2))
    weight = b.tensor("w", meta, role="parameter")
    value = b.function("mul", [b.tensor("x", meta), b.function("accumulate_grad", [weight], [meta])], [meta])
    for number in range(80):
        scope = f"layers.{number}"
        value = b.function("exp", [b.function("t", [value], [meta], scope=scope)], [meta], scope=scope)
    b.output(value)
    graph = b.build()
    assert NODE in graph.nodes
    head = {field.name: sample(field.type) for field in fields_of(Head)}
    head["producer"] = replace(head["producer"], framework="torch")
    return replace(graph, **head, read_from="9.9", unknown="$.later")


def _reference(field: Field) -> Any:
    """Return the value of a field that names a node, or several."""
    several = isinstance(field.type, inspect.VarTupleType)
    return field.about.refers and ((NODE,) if several else NODE)


def sample(kind: Any) -> Any:
    """Some value of a type."""
    if isinstance(kind, inspect.StructType):
        record: Any = kind.cls
        return record(**{field.name: _reference(field) or sample(field.type) for field in fields_of(record)})
    if isinstance(kind, inspect.UnionType):
        return sample(next(each for each in kind.types if not isinstance(each, inspect.NoneType)))
    if isinstance(kind, inspect.Metadata):
        return sample(kind.type)
    if isinstance(kind, inspect.VarTupleType):
        return (sample(kind.item_type),)
    if isinstance(kind, inspect.DictType):
        return {"some": sample(kind.value_type)}
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    return {inspect.StrType: "some", inspect.IntType: 3, inspect.FloatType: 0.5, inspect.BoolType: True}[type(kind)]


def _part(graph: Graph, changed: Graph) -> Graph:
    with patch.object(search, "_SMALL", 0):
        found = search.find_differing_parts(graph, changed)
    assert found is not None
    return found[0]


def operations(graph: Graph) -> Mapping[str, Operation]:
    """By name all that makes a graph of another."""
    changed, again = (
        replace(graph, nodes={**graph.nodes, key: replace(graph.nodes[key], attrs={"dim": 1})})
        for key in ("layers.0/exp:1", "layers.2/exp:1")
    )
    diff = gradir.diff(graph, changed)
    part = within(graph, {NODE})
    marks = Overlay((Channel("norm", {NODE: 0.5}),))
    places = [node.scope or None for node in graph.nodes.values()]
    return {
        "gradir.api.patch": Operation(lambda graph: gradir.patch(graph, diff)),
        "gradir.api.unpatch": Operation(lambda graph: gradir.unpatch(graph, gradir.diff(changed, graph))),
        "gradir.diffs.hunks.apply": Operation(partial(hunks.apply, diff.script)),
        "gradir.diffs.ignoring.drop_identities": Operation(
            lambda graph: drop_identities(
                replace(graph, nodes={**graph.nodes, NODE: replace(graph.nodes[NODE], op="slice")})
            )
        ),
        "gradir.review.united.unite_graphs": Operation(
            lambda graph: unite_graphs(graph, graph, diff, Correspondence(graph, graph, match(graph, graph)))
        ),
        "gradir.diffs.matching.search.find_differing_parts": Operation(lambda graph: _part(graph, changed)),
        "gradir.diffs.merging.three_way.merge_graphs": Operation(
            lambda graph: _graph_of(merge_graphs(graph, changed, again))
        ),
        "gradir.overlays.apply_overlay": Operation(partial(apply_overlay, overlay=marks)),
        "gradir.overlays.mark_verdict": Operation(partial(mark_verdict, look="alarm", sentence="It fails.")),
        "gradir.explanations.from_cuts.add_verdict": Operation(add_verdict),
        "gradir.passes.contraction.contract_modules": Operation(lambda graph: contract_modules(graph, places)[0]),
        "gradir.passes.drop.drop": Operation(partial(passes.drop, what=["leaf"])),
        "gradir.passes.focus.around": Operation(partial(around, ids=[NODE])),
        "gradir.passes.focus.between": Operation(partial(passes.between, one="x", other="layers.2/exp:1")),
        "gradir.passes.focus.focus": Operation(partial(passes.focus, pattern=NODE)),
        "gradir.passes.fold.fold": Operation(partial(passes.fold, depth=1)),
        "gradir.passes.fold.fold_modules": Operation(partial(passes.fold_modules, patterns=["layers.*"])),
        "gradir.passes.layers.layers": Operation(passes.layers),
        "gradir.passes.drop.hide_shape_ops": Operation(passes.hide_shape_ops),
        "gradir.passes.readability.readable": Operation(lambda graph: _graph_of(passes.readability.readable(graph))),
        "gradir.passes.readability.smallest": Operation(lambda graph: passes.readability.smallest(graph).graph),
        "gradir.passes.focus.ancestors": Operation(partial(passes.ancestors, pattern=NODE)),
        "gradir.passes.focus.descendants": Operation(partial(passes.descendants, pattern=NODE)),
        "gradir.passes.rollup.rollup": Operation(passes.rollup),
        "gradir.passes.rounds.once": Operation(passes.once),
        "gradir.passes.shared_words.translate_to_shared_terms": Operation(
            translate_to_shared_terms, frozenset({"producer", "cuts"})
        ),
        "gradir.passes.wiring.mark_focus": Operation(partial(mark_focus, part=part, named={NODE})),
        "gradir.passes.wiring.within": Operation(partial(within, kept={NODE})),
        "gradir.passes.wiring.without": Operation(partial(without, gone={NODE}, joins=lambda _: True)),
        "gradir.exporting.apply_passes": Operation(partial(apply_passes, plan_passes({"depth": 1}))),
        "gradir.exporting.add_costs": Operation(lambda graph: add_costs(_add_costs(graph), "flops", "dot")),
        "gradir.registry.run_pass": Operation(lambda graph: run_pass("fold", graph, FoldOptions(depth=1))),
        "gradir.review.united.drop_accumulators": Operation(lambda graph: drop_accumulators(graph).graph),
        "gradir.distributed.linking.join_graphs": Operation(
            lambda graph: join_graphs({0: ("a", graph)}, []), frozenset({"rank", "collectives", "cuts"})
        ),
        **{
            f"pass {name}": Operation(partial(apply_passes, plan_passes({name: value})))
            for name, value in PASSES.items()
        },
        "a drawn part": Operation(lambda graph: draw_part(diff := review_graphs(graph, changed), UnionGraph(diff))),
        "a file": Operation(_write_and_read, frozenset({"read_from", "unknown"})),
    }


def _add_costs(graph: Graph) -> Graph:
    node = graph.nodes[NODE]
    return replace(graph, nodes={**graph.nodes, NODE: replace(node, ext={**node.ext, "flops": 8})})


def _graph_of(found: passes.readability.Readable | Merged | None) -> Graph:
    assert found is not None
    assert found.graph is not None, found
    return found.graph


def _write_and_read(graph: Graph) -> Graph:
    for form in codecs.ENCODINGS:
        graph = codecs.decode(codecs.encode(graph, form, lossy=True))
    return graph


def find_lost_fields(graph: Graph, operation: Operation) -> set[str]:
    """The fields that an operation loses, but for those that it is declared to."""
    # A node may have another name, or be gone.
    before, after = (replace(each, **rename_in_head(each, lambda _: "")) for each in (graph, operation.run(graph)))
    return {name for name in KEPT if getattr(before, name) != getattr(after, name)} - operation.drops


def find_named_nodes(value: Any) -> Iterator[str]:
    """The nodes that a value of the head names."""
    if isinstance(value, tuple):
        for entry in value:
            yield from find_named_nodes(entry)
    elif isinstance(value, Record):
        for field in fields_of(type(value)):
            held = getattr(value, field.name)
            if field.about.refers:
                yield from held if isinstance(held, tuple) else [held]
            else:
                yield from find_named_nodes(held)


def public_operations() -> set[str]:
    """The public functions that take a graph and return one, by module; front-ends and commands make theirs."""
    found = set()
    for each in pkgutil.walk_packages(gradir.__path__, "gradir."):
        if each.name.startswith(("gradir.frontends", "gradir.cli", "gradir.__main__")):
            continue
        module = import_module(each.name)
        for name, function in python.getmembers(module, python.isfunction):
            if function.__module__ == each.name and not name.startswith("_"):
                given = dict(function.__annotations__)
                returned = str(given.pop("return", ""))
                if _GRAPH.search(returned) and _GRAPH.search(" ".join(map(str, given.values()))):
                    found.add(f"{each.name}.{name}")
    return found


_GRAPH: Final = re.compile(r"\b(Graph|Readable|DrawnUnion|Merged)\b")
