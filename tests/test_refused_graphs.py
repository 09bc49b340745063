"""A graph that could not be read back as it is: refused by save in both encodings, and by the builder at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from samples import everything

import gradir
from gradir.errors import FormatError, GraphError
from gradir.ir import Builder, Cut, Graph, Node, NonFinite, Producer, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.validate import check_all


class _Word(str):
    __slots__ = ()


class _Number(IntEnum):
    ONE = 1


def node(**fields: Any) -> Graph:
    return Graph.of([Node("w"), Node("x", **fields)])


def with_meta(*arguments: Any) -> Graph:
    return node(outputs=(TensorMeta(*arguments),))


def with_scope(**fields: Any) -> Graph:
    return Graph.of([Node("x")], [Scope("fc", **fields)])


WRONG: list[tuple[Graph, str]] = [
    (node(inputs=(Ref("y", 0),)), "node 'x': input 0 names 'y', which is not a node"),
    (node(inputs=(Ref("x", 0),)), "node 'x': input 0 names 'x', which comes after it"),
    (
        Graph.of([Node("a", outputs=(TensorMeta(),)), Node("x", inputs=(Ref("a", 1),))]),
        "node 'x': input 0 names output 1 of 'a'",
    ),
    (node(inputs=(Ref("w", -1),)), "node 'x': inputs[0].output_nr is -1"),
    (node(inputs=(Ref("w", 2**63),)), "node 'x': inputs[0].output_nr is 9223372036854775808"),
    (node(inputs=(Ref("w", True),)), "node 'x': inputs[0].output_nr is True"),
    (node(inputs=[Ref("w", 0)]), "node 'x': inputs is [Ref"),
    (node(base="y"), "node 'x': its base names 'y'"),
    (node(saved=(Saved("s", origin=Ref("y", 0)),)), "node 'x': saved tensor 's' names 'y'"),
    (node(saved=(Saved("s", origin=Ref("w", -1)),)), "node 'x': saved[0].origin.output_nr is -1"),
    (Graph.of([Node("")]), "node '': an id is not empty"),
    (Graph.of([Node("a\n")]), "node 'a\\n': an id is not empty"),
    (Graph.of([Node(1)]), "node 1: id is 1; expected text"),  # type: ignore[arg-type]
    (Graph({"b": Node("a")}), "node 'a' is stored under the id 'b'"),
    # Nodes are checked in chunks, and the number counts all of them.
    (Graph({**{f"n{at}": Node(f"n{at}") for at in range(514)}, "x": 1}), "node 514: is 1; expected a Node"),  # type: ignore[dict-item]
    (Graph({"a": Node("a")}, {"q": Scope("p")}), "scope 'p' is stored under the path 'q'"),
    (Graph({"a": Node("a")}, cuts=[Cut("hidden")]), "the cuts of the graph are of type list"),  # type: ignore[arg-type]
    (with_meta("f", (-1, 3)), "node 'x': outputs[0].shape[0] is -1; expected an integer from 0"),
    (with_meta("f", (-1, 3)), "or text for a size that is not known, such as 'batch'"),
    (with_meta("f", (True,)), "node 'x': outputs[0].shape[0] is True"),
    (with_meta("f", (1.0,)), "node 'x': outputs[0].shape[0] is 1.0"),
    (with_meta("f", (2**63,)), "node 'x': outputs[0].shape[0] is 9223372036854775808"),
    (with_meta("f", [1]), "node 'x': outputs[0].shape is [1] of type list; expected a tuple"),
    (with_meta(3), "node 'x': outputs[0].dtype is 3; expected text or None"),
    (with_meta("f", (), 3), "node 'x': outputs[0].device is 3; expected text or None"),
    (node(saved=(Saved("s", bytes=-1),)), "node 'x': saved[0].bytes is -1"),
    (node(saved=(Saved("s", state=None),)), "node 'x': saved[0].state is None"),  # type: ignore[arg-type]
    (node(source=Source("f", -1)), "node 'x': source.line is -1"),
    (node(names="ab"), "node 'x': names is 'ab'; expected a tuple of text"),
    (node(role=None), "node 'x': role is None"),
    (node(opaque=1), "node 'x': opaque is 1"),
    (node(names=("\ud800",)), "node 'x': names[0] is '\\ud800', with a lone surrogate"),
    (with_scope(calls=-1), "scope 'fc': calls is -1"),
    (with_scope(calls=2**64), "scope 'fc': calls is 18446744073709551616"),
    (with_scope(calls=1.0), "scope 'fc': calls is 1.0"),
    (with_scope(training="x"), "scope 'fc': training is 'x'"),
    (with_scope(training=1), "scope 'fc': training is 1"),
    (Graph.of([Node("x")], cuts=[Cut(None)]), "cut 0: kind is None"),  # type: ignore[arg-type]
    (Graph.of([Node("x")], producer=Producer(options={"k": [1]})), "the producer: options['k'] is [1]"),  # type: ignore[dict-item]
    (node(attrs={1: 1, "a": 2}), "node 'x': a key of attrs is 1; expected text"),
    *(
        (node(**{field: {"k": value}}), f"node 'x': {field}['k'] {said}")
        for field in ("attrs", "ext")
        for value, said in (
            (_Word("q"), "is 'q' of type _Word"),
            (_Number.ONE, "is <_Number.ONE: 1> of type _Number"),
            (Decimal(1), "is Decimal('1') of type Decimal"),
            ([1], "is [1] of type list"),
            ({1}, "is {1} of type set"),
            ({"float": "nan"}, "is {'float': 'nan'} of type dict"),
            (1j, "is 1j of type complex"),
        )
    ),
    (node(attrs={"k": NonFinite("zzz")}), "node 'x': attrs['k'].float is 'zzz'; expected 'nan', 'inf' or '-inf'"),  # type: ignore[arg-type]
    (node(attrs={"k": (1, (2**63,))}), "node 'x': attrs['k'][1][0] is 9223372036854775808"),
]


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize(("graph", "message"), WRONG)
def test_an_unreadable_graph_is_not_written(graph: Graph, message: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.gir"
    path.write_bytes(b"as it was")
    with pytest.raises(FormatError, match=re.escape(message)):
        gradir.save(graph, path, format=encoding)
    assert path.read_bytes() == b"as it was"


META = TensorMeta("float32", (2,))


def built(**parts: Any) -> Graph:
    b = Builder()
    b.output(b.function("f", [b.tensor("w", META)], [META], **parts))
    return b.build()


def ended(**parts: Any) -> Graph:
    b = Builder()
    b.output(b.tensor("w", META))
    return b.build(**parts)


def tensor(name: Any, meta: Any) -> Graph:
    b = Builder()
    b.output(b.tensor(name, meta))
    return b.build()


def function(inputs: Any, outputs: Any) -> object:
    return Builder().function("f", inputs, outputs)


def of_another(use: Callable[[Builder, Any], object]) -> object:
    other, b = Builder(), Builder()
    b.tensor("a", META)
    return use(b, other.tensor("b", META))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tensor("w", TensorMeta("f", (-1, 3))), "node 'w': outputs[0].shape[0] is -1"),
        (lambda: tensor("w", TensorMeta("f", (), 3)), "node 'w': outputs[0].device is 3"),  # type: ignore[arg-type]
        (lambda: tensor("\ud800", META), "the name of a tensor is '\\ud800', with a lone surrogate"),
        (lambda: tensor(1, META), "the name of a tensor is 1; expected text"),
        (lambda: tensor("w", "float32"), "tensor 'w': expected a TensorMeta, got 'float32'"),
        (lambda: built(saved=[(Saved("s", bytes=-1), None)]), "node 'f:1': saved[0].bytes is -1"),
        (lambda: built(saved=[Saved("s")]), "function 'f': saved[0] is Saved("),
        (lambda: built(source=Source("f", -1)), "node 'f:1': source.line is -1"),
        (lambda: built(names="ab"), "function 'f': names: expected a list of text, got 'ab'"),
        (lambda: built(attrs={"k": {1}}), "function 'f': attrs['k'] is {1} of type set"),
        (lambda: built(attrs={"k": Decimal(1)}), "function 'f': attrs['k'] is Decimal('1')"),
        (lambda: built(attrs={"k": {"float": "nan"}}), "function 'f': attrs['k'] is {'float': 'nan'}"),
        (lambda: built(attrs={"k": NonFinite("zzz")}), "function 'f': attrs['k'].float is 'zzz'"),  # type: ignore[arg-type]
        (lambda: built(attrs={"k": float("nan")}), "write it as NonFinite('nan')"),
        (lambda: built(attrs={1: 1}), "function 'f': a key of attrs is 1"),
        (lambda: ended(scopes=[Scope("fc", calls=-1)]), "scope 'fc': calls is -1"),
        (lambda: ended(scopes=[Scope("fc", training=1)]), "scope 'fc': training is 1"),  # type: ignore[arg-type]
        (lambda: ended(cuts=[Cut(None)]), "cut 0: kind is None"),  # type: ignore[arg-type]
        (lambda: function(["w"], [META]), "function 'f': inputs[0] is 'w'; expected a value"),
        (lambda: function([], META), "function 'f': outputs: expected a list of TensorMeta, got TensorMeta("),
        (lambda: Builder().output("w"), "output '': the value is 'w'; expected a value"),  # type: ignore[arg-type]
        (lambda: of_another(lambda b, value: b.function("f", [value], [META])), "inputs[0] is not of this builder"),
        (lambda: of_another(lambda b, value: b.output(value)), "the value is not of this builder"),
        (
            lambda: of_another(lambda b, value: b.function("f", [], [META], saved=[(Saved("s"), value)])),
            "the value of saved[0] is not of this builder",
        ),
    ],
)
def test_the_builder_refuses(build: Callable[[], object], message: str) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        build()


def test_only_output_0_can_be_a_base() -> None:
    b = Builder()
    pair = b.function("pair", [], [META, META])
    with pytest.raises(GraphError, match="the base is output 1 of its node; only output 0 can be a base"):
        b.output(pair, base=pair.output(1))


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_lists_given_to_the_builder_come_back_as_the_tuples_they_became(encoding: str) -> None:
    graph = built(attrs={"k": [1, [2, "a"]]})
    assert graph.nodes["f:1"].attrs["k"] == (1, (2, "a"))
    assert gradir.loads(gradir.dumps(graph, format=encoding)) == graph


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_graph_made_of_one_that_was_good_is_looked_at_again(encoding: str) -> None:
    graph = everything()
    gradir.dumps(graph, format=encoding)
    more = {**graph.nodes, "bad": Node("bad", inputs=(Ref("nothing", 0),))}
    with pytest.raises(FormatError, match="node 'bad': input 0 names 'nothing'"):
        gradir.dumps(msgspec.structs.replace(graph, nodes=more), format=encoding)
    changed = msgspec.structs.replace(graph.nodes["fc/addmm:1"], attrs={"k": float("nan")})
    with pytest.raises(FormatError, match=re.escape("node 'fc/addmm:1': attrs['k'] is the float nan")):
        gradir.dumps(msgspec.structs.replace(graph, nodes={**graph.nodes, changed.id: changed}), format=encoding)


def test_that_a_graph_is_known_to_be_good_shows_nowhere() -> None:
    known, unknown = everything(), msgspec.structs.replace(everything())
    check_all(known)
    assert known == unknown
    assert repr(known) == repr(unknown)
    assert msgspec.json.encode(known) == msgspec.json.encode(unknown)
    assert not vars(msgspec.structs.replace(known))
