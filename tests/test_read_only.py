"""Records and graphs are read-only, whatever made them, with all that they hold."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from samples import everything

import gradir
from gradir.ir import Builder, Graph, Node, Producer, TensorMeta
from gradir.ir import model as records
from gradir.ir.model import Record
from gradir.passes.drop import drop
from gradir.passes.fold import fold
from gradir.passes.rollup import rollup

META = TensorMeta("float32", (2,))
CHANGES: dict[str, Callable[[Any], object]] = {
    "set": lambda held: held.__setitem__("a", 1),
    "delete": lambda held: held.__delitem__(next(iter(held), "a")),
    "update": lambda held: held.update(a=1),
    "in place": lambda held: held.__ior__({"a": 1}),
    "setdefault": lambda held: held.setdefault("a", 1),
    "pop": lambda held: held.pop("a", None),
    "popitem": lambda held: held.popitem(),
    "clear": lambda held: held.clear(),
}


def by_hand() -> Graph:
    return Graph({"x": Node("x", attrs={"k": (1, (2,))}, ext={"e": 1})}, producer=Producer(options={"o": 1}))


def stacked() -> Graph:
    b = Builder()
    value = b.tensor("x", META)
    for number in range(3):
        value = b.function("relu", [value], [META], scope=f"layers.{number}", attrs={"k": [number * 0, [2]]})
    b.output(value)
    return b.build()


def captured() -> Graph:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 3, requires_grad=True)
    with gradir.record():
        y = x.sum(dim=(0, 1)).softmax(0)
    return gradir.capture(y)


def replaced() -> Graph:
    graph = by_hand()
    node = msgspec.structs.replace(graph.nodes["x"], attrs={"k": 2})
    return msgspec.structs.replace(graph, nodes={"x": node})


def patched() -> Graph:
    before, after = stacked(), everything()
    return gradir.patch(before, gradir.diff(before, after))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "by hand": by_hand,
    "built": everything,
    "captured": captured,
    "json": lambda: gradir.loads(gradir.dumps(everything())),
    "msgpack": lambda: gradir.loads(gradir.dumps(everything(), format="msgpack")),
    "of a newer version": lambda: gradir.loads(gradir.dumps(everything()).replace(b'"1.', b'"1.9', 1)),
    "replaced": replaced,
    "copied": lambda: copy.copy(everything()),
    "copied deeply": lambda: copy.deepcopy(everything()),
    "unpickled": lambda: pickle.loads(pickle.dumps(everything())),
    "folded": lambda: fold(stacked(), 1),
    "rolled up": lambda: rollup(stacked()),
    "dropped": lambda: drop(stacked(), ["accumulate_grad"]),
    "patched": patched,
}


def held_by(value: object) -> Iterator[object]:
    """Every container in a graph, those in containers and in records too."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, msgspec.Struct):
            waiting += [getattr(value, field) for field in value.__struct_fields__]
        elif isinstance(value, dict):
            yield value
            waiting += value.values()
        elif isinstance(value, (tuple, list, set)):
            yield value
            waiting += value


@pytest.mark.filterwarnings("ignore:GIR version:gradir.errors.GradirWarning")
@pytest.mark.parametrize("made", GRAPHS)
def test_nothing_in_a_graph_can_be_changed(made: str) -> None:
    graph = GRAPHS[made]()
    assert graph.nodes
    was = repr(graph.nodes)
    for held in held_by(graph):
        if isinstance(held, tuple):
            continue
        for change in CHANGES.values():
            with pytest.raises(TypeError, match="read-only"):
                change(held)
    assert repr(graph.nodes) == was


def _fits(fields: dict[str, object], kind: type[Record]) -> bool:
    try:
        msgspec.convert(fields, kind)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    "kind", [kind for kind in vars(records).values() if isinstance(kind, type) and issubclass(kind, Record)]
)
def test_every_mapping_of_every_record_is_read_only(kind: type[Record]) -> None:
    plain = {"str": "x", "int": 0, "Count": 0}
    wanted = [(field.name, str(field.type)) for field in msgspec.structs.fields(kind) if field.required]
    needed = {name: plain.get(of, 0 if "[int" in of else "nan") for name, of in wanted}
    defaults = {field.name: getattr(kind(**needed), field.name) for field in msgspec.structs.fields(kind)}
    for name in [name for name, value in defaults.items() if isinstance(value, dict)]:
        value: object = next(each for each in (1, (1,), "x") if _fits({**needed, name: {"k": each}}, kind))
        given = {"k": value}
        for record in (kind(**needed), kind(**needed, **{name: given}), msgspec.convert({**needed, name: given}, kind)):
            held = getattr(record, name)
            for change in CHANGES.values():
                with pytest.raises(TypeError, match="read-only"):
                    change(held)
        kept = kind(**needed, **{name: given})
        given["k"] = 2
        assert getattr(kept, name) == {"k": value}


def test_a_read_only_mapping_is_a_mapping_as_any_other() -> None:
    node = Node("x", attrs={"b": 1, "a": (2,)})
    assert node.attrs == {"a": (2,), "b": 1}
    assert node == Node("x", attrs={"a": (2,), "b": 1})
    assert repr(node.attrs) == "{'b': 1, 'a': (2,)}"
    assert {**node.attrs, "c": 3} == node.attrs | {"c": 3} == {"a": (2,), "b": 1, "c": 3}
    assert msgspec.json.encode(node) == b'{"id":"x","attrs":{"b":1,"a":[2]}}'
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(node), type=Node) == node
    assert copy.deepcopy(node) == copy.copy(node) == pickle.loads(pickle.dumps(node)) == node
    for empty in (Node("x", attrs={}), pickle.loads(pickle.dumps(Node("x")))):
        assert msgspec.json.encode(empty) == b'{"id":"x"}'
