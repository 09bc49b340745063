"""Common edits of small models: names that stay decide what is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from gradir.diffs.compare import compare
from gradir.diffs.matching import match
from gradir.ir import Graph, Node, Ref, Scope, TensorMeta

INPUT = ""
"""Where a model starts: an argument that needs no gradient."""


class Model:
    """Draws a graph as a capture of modules names it."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.scopes: dict[str, Scope] = {"": Scope("", "Net")}
        self.counts: Counter[str] = Counter()

    def op(self, op: str, scope: str, *inputs: str, shape: tuple[int, ...] = (4, 4)) -> str:
        name = f"{scope}/{op}" if scope else op
        self.counts[name] += 1
        node_id = f"{name}:{self.counts[name]}"
        refs = tuple(Ref(key, 0) if key else None for key in inputs)
        outputs = (TensorMeta("float32", shape),)
        self.nodes[node_id] = Node(node_id, op=op, native=op, scope=scope, inputs=refs, outputs=outputs)
        return node_id

    def module(self, path: str, class_name: str) -> None:
        parts = path.split(".")
        for depth in range(1, len(parts)):
            outer = ".".join(parts[:depth])
            self.scopes.setdefault(outer, Scope(outer, "Part"))
        self.scopes[path] = Scope(path, class_name)

    def linear(self, path: str, value: str, width: int = 4) -> str:
        self.module(path, "Linear")
        weight = f"{path}.weight"
        outputs = (TensorMeta("float32", (width, 4)),)
        self.nodes.setdefault(weight, Node(weight, role="parameter", scope=path, names=(weight,), outputs=outputs))
        turned = self.op("t", path, weight, shape=(4, width))
        return self.op("mm", path, value, turned, shape=(4, width))

    def block(self, path: str, value: str, width: int = 4) -> str:
        self.module(path, "Block")
        inner = self.op("gelu", f"{path}.mlp", self.linear(f"{path}.mlp.up", value, width), shape=(4, width))
        self.module(f"{path}.mlp", "Mlp")
        return self.op("add", path, value, self.linear(f"{path}.mlp.down", inner))

    def graph(self, value: str) -> Graph:
        self.op("sum", "", value, shape=())
        return Graph.of(self.nodes.values(), scopes=self.scopes.values())


def stack(prefix: str, widths: Sequence[int]) -> Graph:
    """Blocks one after another; a width of 0 is one that does nothing."""
    model = Model()
    value = model.linear("stem", INPUT)
    for number, width in enumerate(widths):
        if width:
            value = model.block(f"{prefix}.{number}", value, width)
        else:
            model.module(f"{prefix}.{number}", "Identity")
    return model.graph(model.linear("head", value))


def low_rank(*, added: bool) -> Graph:
    """A linear map, and the same frozen beside a product of two."""
    model = Model()
    if not added:
        return model.graph(model.linear("lin", INPUT))
    model.module("lin", "Linear")
    return model.graph(model.op("add", "", "", model.linear("B", model.linear("A", INPUT, 2))))


def gated(active: str, other: str) -> Graph:
    model = Model()
    values = {name: model.linear(name, INPUT) for name in ("gate", "up")}
    product = model.op("mul", "", model.op("silu", "", values[active]), values[other])
    return model.graph(model.linear("down", product))


def attention(*roles: str) -> Graph:
    model = Model()
    query, key, value = (model.linear(name, INPUT) for name in roles)
    return model.graph(model.op("bmm", "", model.op("bmm", "", query, key), value))


def joined(first: str, second: str) -> Graph:
    model = Model()
    return model.graph(model.linear("c", model.op("cat", "", model.linear(first, INPUT), model.linear(second, INPUT))))


def called(*names: str) -> Graph:
    model = Model()
    value = INPUT
    for name in names:
        value = model.op("relu", "", model.linear(name, value))
    return model.graph(value)


def shared(*paths: str) -> Graph:
    model = Model()
    value = INPUT
    for path in paths:
        value = model.linear(path, value)
    return model.graph(value)


def told(a: Graph, b: Graph) -> dict[str, list[str]]:
    """What is told of nodes and modules, by kind; what follows from an index or the order apart."""
    found: dict[str, list[str]] = {}
    for change in compare(a, b).changes:
        if change.subject in {"node", "module"}:
            found.setdefault(change.kind, []).append(f"{change.old_id}>{change.id}" if change.old_id else change.id)
    return {kind: sorted(ids) for kind, ids in found.items()}


def of_linear(path: str, call: int = 1) -> list[str]:
    return [f"{path}.weight", f"{path}/mm:{call}", f"{path}/t:{call}"]


def of_block(path: str) -> list[str]:
    return sorted([f"{path}/add:1", f"{path}.mlp/gelu:1", *of_linear(f"{path}.mlp.up"), *of_linear(f"{path}.mlp.down")])


EDITS = {
    "low rank": (
        low_rank(added=False),
        low_rank(added=True),
        {
            "added": sorted(["add:1", *of_linear("A"), *of_linear("B")]),
            "removed": of_linear("lin"),
            "changed": ["sum:1"],
        },
    ),
    "gate and up": (gated("gate", "up"), gated("up", "gate"), {"changed": ["mul:1", "silu:1"]}),
    "query and key": (attention("q", "k", "v"), attention("k", "q", "v"), {"changed": ["bmm:1"]}),
    "arguments": (joined("a", "b"), joined("b", "a"), {"changed": ["cat:1"]}),
    "one twice": (
        joined("a", "b"),
        joined("a", "a"),
        {"added": ["a/mm:2", "a/t:2"], "removed": of_linear("b"), "changed": ["cat:1"]},
    ),
    "order of calls": (
        called("fc1", "fc2", "fc3"),
        called("fc2", "fc1", "fc3"),
        {"changed": ["fc1/mm:1", "fc2/mm:1", "fc3/mm:1"]},
    ),
    "one in front": (
        called("fc1", "fc2"),
        called("fc0", "fc1", "fc2"),
        {"added": sorted(["relu:1", *of_linear("fc0")]), "changed": ["fc1/mm:1"]},
    ),
    "renamed": (called("fc1", "fc2", "fc3"), called("fc1", "mid", "fc3"), {"renamed": ["fc2>mid"]}),
    "replaced": (
        stack("blocks", [4, 4, 4, 4]),
        stack("blocks", [4, 0, 4, 4]),
        {"removed": of_block("blocks.1"), "changed": ["blocks.2.mlp.up/mm:1", "blocks.2/add:1"]},
    ),
    "wider inserted": (
        stack("blocks", [4, 4, 4, 4]),
        stack("blocks", [4, 8, 4, 4, 4]),
        {
            "added": of_block("blocks.1"),
            "changed": ["blocks.1.mlp.up/mm:1>blocks.2.mlp.up/mm:1", "blocks.1/add:1>blocks.2/add:1"],
        },
    ),
    "appended": (
        stack("blocks", [4, 4]),
        stack("blocks", [4, 4, 4]),
        {"added": of_block("blocks.2"), "changed": ["head/mm:1"]},
    ),
    "prefix": (stack("blocks", [4, 4]), stack("net.layers", [4, 4]), {"renamed": ["blocks>net.layers"]}),
    "prefix and appended": (
        stack("blocks", [4, 4]),
        stack("layers", [4, 4, 4]),
        {"renamed": ["blocks>layers"], "added": of_block("layers.2"), "changed": ["head/mm:1"]},
    ),
    "shared": (
        shared("l.0", "l.1"),
        shared("l.0", "l.0"),
        {"removed": ["l.1.weight"], "changed": ["l.1/t:1>l.0/t:2"]},
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_reported_by_the_names_that_stay(edit: str) -> None:
    before, after, expected = EDITS[edit]
    assert told(before, after) == expected
    assert not compare(before, before)


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_undone_concerns_the_same_nodes(edit: str) -> None:
    before, after, expected = EDITS[edit]
    back = told(after, before)
    turned = {"added": "removed", "removed": "added"}
    assert {turned.get(kind, kind): len(ids) for kind, ids in back.items()} == {
        kind: len(ids) for kind, ids in expected.items()
    }


def test_a_moved_node_is_reported_by_two_names() -> None:
    for before, after, _ in EDITS.values():
        for change in compare(before, after).changes:
            if (change.subject, change.id) == ("graph", "order"):
                assert all(field.before != field.after for field in change.fields)


OPERATIONS = ("relu", "tanh", "sigmoid", "sin", "cos", "exp", "gelu", "silu", "abs", "neg", "relu", "tanh")


def row(operations: Sequence[str]) -> Graph:
    model = Model()
    value = model.op("t", "")
    for op in operations:
        value = model.op(op, "", value)
    return model.graph(value)


@pytest.mark.parametrize("far", range(1, len(OPERATIONS)))
def test_operations_that_change_places_in_a_row_are_two_changes(far: int) -> None:
    for first in range(len(OPERATIONS) - far):
        edited = [*OPERATIONS]
        edited[first], edited[first + far] = edited[first + far], edited[first]
        if edited == [*OPERATIONS]:
            continue
        diff = compare(row(OPERATIONS), row(edited))
        nodes = [change for change in diff.changes if change.subject == "node"]
        assert [change.fields[0].name for change in nodes] == ["op", "op"], (first, far, diff.changes)
        assert all(change.subject == "node" or change.id == "indices" for change in diff.changes)


def added(model: Model, path: str, class_name: str, value: str, name: str = "weight") -> str:
    """Draw a module that adds its parameter."""
    model.module(path, class_name)
    weight = f"{path}.{name}"
    outputs = (TensorMeta("float32", (4, 4)),)
    model.nodes[weight] = Node(weight, role="parameter", scope=path, names=(weight,), outputs=outputs)
    return model.op("add", path, value, weight)


def test_a_module_that_was_wrapped_and_changed_places_is_what_the_wrapper_holds() -> None:
    before, after = Model(), Model()
    value = before.op("tanh", "layer.proj", added(before, "layer.norm", "Norm", before.op("t", "")))
    inner = added(after, "layer.norm.base", "Norm", after.op("tanh", "layer.proj", after.op("t", "")))
    found = match(before.graph(value), after.graph(added(after, "layer.norm", "Wrapped", inner, "lora")))
    assert found.nodes["layer.norm.weight"] == "layer.norm.base.weight"
    assert found.nodes["layer.norm/add:1"] == "layer.norm.base/add:1"


def test_a_module_that_moved_beside_a_wrapped_one_keeps_its_operations() -> None:
    before, after = Model(), Model()
    value = before.op("t", "")
    inner = added(before, "layers.0.fc", "Linear", before.op("tanh", "layers.0.act", value))
    first = before.op("add", "layers.0", inner, value)
    last = before.op("add", "layers.1", before.op("sin", "layers.1.mlp", first), first)
    value = after.op("t", "")
    first = after.op("add", "model.layers.0", after.op("tanh", "model.layers.0.act", value), value)
    inner = added(after, "model.layers.1.mlp", "Wrapped", after.op("sin", "model.layers.1.mlp.base", first))
    moved = added(after, "model.layers.1.fc", "Linear", inner)
    found = match(before.graph(last), after.graph(after.op("add", "model.layers.1", moved, first)))
    assert found.nodes["layers.0.fc.weight"] == "model.layers.1.fc.weight"
    assert found.nodes["layers.0.fc/add:1"] == "model.layers.1.fc/add:1"
