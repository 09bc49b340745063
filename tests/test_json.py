"""The JSON form: bytes, round trips, what it refuses."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from gir_schemas import PUBLISHED
from hypothesis import given
from samples import chain, everything, hostile
from strategies import graphs

import gradir
from gradir import codecs
from gradir.errors import FormatError, GradirWarning
from gradir.ir import Graph, Node, TensorMeta

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / PUBLISHED).read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def document(**changes: object) -> bytes:
    head: dict[str, object] = {"format": "gir", "version": "1.0", "nodes": []}
    return json.dumps(head | changes).encode()


def test_golden(golden) -> None:
    golden("json/everything.gir", gradir.dumps(everything()).decode())


def test_golden_hostile(golden) -> None:
    golden("json/hostile.gir", gradir.dumps(hostile()).decode())


@given(graphs())
def test_round_trip(graph: Graph) -> None:
    data = gradir.dumps(graph)
    loaded = gradir.loads(data)
    assert loaded == graph
    assert list(loaded.nodes) == list(graph.nodes)
    assert gradir.dumps(loaded) == data


@given(graphs())
def test_schema_accepts_written_files(graph: Graph) -> None:
    VALIDATOR.validate(json.loads(gradir.dumps(graph)))


@pytest.mark.parametrize(
    "change",
    [
        {"format": "onnx"},
        {"version": "2.0"},
        {"nodes": [{"role": "leaf"}]},
        {"nodes": [{"id": "a", "in": ["b"]}]},
        {"nodes": [{"id": "a", "attrs": {"k": {"float": "big"}}}]},
        {"scopes": [{"class": "Linear"}]},
    ],
)
def test_schema_refuses_unreadable_files(change: dict[str, object]) -> None:
    data = document(**change)
    assert not VALIDATOR.is_valid(json.loads(data))
    with pytest.raises(FormatError):
        gradir.loads(data)


def test_the_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@given(graphs())
def test_one_node_per_line(graph: Graph) -> None:
    lines = gradir.dumps(graph).decode().split("\n")[:-1]
    assert [line for line in lines if line.startswith('{"id":')] == lines[-1 - len(graph.nodes) : -1]


def test_equal_text_is_left_out_like_the_default_itself() -> None:
    meta = TensorMeta("float32", (1,), "".join(["c", "pu"]), "".join(["stri", "ded"]))
    graph = Graph.of([Node("x", "".join(["func", "tion"]), outputs=(meta,))])
    assert b'{"id":"x","out":[{"dtype":"float32","shape":[1]}]}' in gradir.dumps(graph)


def test_attributes_are_written_in_one_order() -> None:
    first = Graph.of([Node("x", attrs={"a": 1, "b": 2})])
    second = Graph.of([Node("x", attrs={"b": 2, "a": 1})])
    assert gradir.dumps(first) == gradir.dumps(second)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"digraph {}", "not a GIR document"),
        (b"\x80\x04\x95", "not a GIR document"),
        (b"{}", 'no "format": "gir"'),
        (b"[]", "not a GIR document"),
        (b'{"format":"gir"', "byte 15: broken json: it was truncated"),
        (b'{"format":"gir","version":"1.0","nodes":[]} x', "trailing characters"),
        (b'{"a":' * 100_000, "broken JSON"),
        (b'{"format":"gir","version":"1.0","nodes":' + b"[" * 100_000, "broken JSON"),
        (document(nodes=None), "$.nodes"),
        (document(nodes=[{"id": 1}]), "$.nodes[0].id"),
        (document(nodes=[{"id": "a"}, {"id": "a"}]), "'a' occurs twice"),
        (document(nodes=[{"id": "a", "in": [["b", 0]]}]), "names 'b', which is not a node"),
        (document(nodes=[{"id": "a", "attrs": {"n": 2**64}}]), "$.nodes[0].attrs"),
        (document(nodes=[{"id": "\u001b[2J"}]), "printable"),
        (document(version="2.0"), "2.0 is newer than 1.0"),
        (document(version="0.9"), "unknown GIR version 0.9"),
        (document(version="one"), "expected MAJOR.MINOR"),
        (document(version=1), "expected MAJOR.MINOR"),
        (document(version="1.0\n"), "expected MAJOR.MINOR"),
        (document(requires=["columns"]), "requires 'columns'"),
        (document().replace(b"gir", b"g\xffr"), "utf-8"),
    ],
)
def test_bad_documents_are_one_clear_error(data: bytes, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        gradir.loads(data)
    assert message.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_every_truncation_is_an_error() -> None:
    data = gradir.dumps(everything()).rstrip()
    for end in range(len(data)):
        with pytest.raises(FormatError):
            gradir.loads(data[:end])


def test_a_newer_minor_version_loads_with_a_warning() -> None:
    with pytest.warns(GradirWarning, match=r"1\.9 is newer than 1\.0"):
        graph = gradir.loads(document(version="1.9", nodes=[{"id": "a", "new": 1}], later=True))
    assert list(graph.nodes) == ["a"]
    assert graph.read_from == "1.9"


def test_a_byte_order_mark_and_white_space_are_read() -> None:
    assert gradir.loads(b"\xef\xbb\xbf\n " + document(nodes=[{"id": "a"}])).nodes


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(FormatError, match="surrogate"):
        gradir.dumps(Graph.of([Node("x", names=("\ud800",))]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), (1.0, float("-inf")), ((1, float("nan")),)])
def test_floats_that_json_cannot_spell_are_refused(value: object) -> None:
    for node in (Node("x", attrs={"v": value}), Node("x", ext={"v": value})):
        with pytest.raises(FormatError, match=r"node 'x': (attrs|ext)\['v'\].* the float (nan|-?inf).*NonFinite"):
            gradir.dumps(Graph.of([node]))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, (2.0**63, 2**63), ((2**64,),), 1j, (1, 1j)])
def test_an_invalid_attribute_value_is_refused(value: object) -> None:
    for node in (Node("x", attrs={"v": value}), Node("x", ext={"v": value})):
        with pytest.raises(FormatError, match=r"node 'x': (attrs|ext)\['v'\].*expected"):
            gradir.dumps(Graph.of([Node("a", attrs={"v": (1, 2.0**63)}), node]))


def test_the_largest_integers_are_written() -> None:
    graph = Graph.of([Node("x", attrs={"v": (2**63 - 1, -(2**63), 1e300)})])
    assert gradir.loads(gradir.dumps(graph)) == graph


def test_a_hundred_thousand_nodes() -> None:
    graph = chain(100_000)
    assert gradir.loads(gradir.dumps(graph)) == graph


def test_decoding_leaves_the_collector_as_it_was() -> None:
    import gc

    data = gradir.dumps(everything())
    gc.disable()
    try:
        gradir.loads(data)
        assert not gc.isenabled()
    finally:
        gc.enable()
    gradir.loads(data)
    assert gc.isenabled()
    assert sys.getrecursionlimit() >= 1000


def test_unknown_format_names_those_there_are() -> None:
    with pytest.raises(FormatError, match="choose from json, msgpack"):
        gradir.dumps(everything(), format="xml")


def test_floats_survive_exactly() -> None:
    values = (0.1, 1e-300, 5e-324, 1.7976931348623157e308, -0.0)
    graph = Graph.of([Node("x", attrs={"v": values})])
    again = gradir.loads(gradir.dumps(graph)).nodes["x"].attrs["v"]
    assert msgspec.json.encode(again) == msgspec.json.encode(values)


START = b'{"format":"gir","version":"1.0","requires":[],\n"producer":{},\n"scopes":[],\n"cuts":[],\n"nodes":[\n'


@pytest.mark.parametrize(
    ("lines", "ids"),
    [
        (b'{"id":"a"},\n{"id":"b"}\n]}\n', ["a", "b"]),
        (b'{"id":"a",\n"op":"x"},\n{"id":"b",\n"attrs":{"k":[1,\n2]}}\n]}\n', ["a", "b"]),
        (b'{"id":"a"},{"id":"b"}\n]}\n', ["a", "b"]),
        (b'{"id":"a","ext":{"nodes":[\n1\n]}}\n]}\n', ["a"]),
        (b'\n]}\n', []),
        (b']}\n', []),
        (b'{"id":"a"}],"nodes":[\n{"id":"b"}\n]}\n', ["b"]),
        (b'{"id":"a"},\n\n]}\n', None),
        (b',\n{"id":"a"}\n]}\n', None),
        (b' ,\n{"id":"a"}\n]}\n', None),
        (b'{"id":"a"},\n ,\n{"id":"b"}\n]}\n', None),
        (b'{"id":"a"}],"later":[\n{"id":"b"}\n]}\n', ["a"]),
        (b'{"id":"a"}],"later":{"x":[\n{"id":"b"}\n]}\n', None),
        (b'{"id":"a"},\n{"id":"a"}\n]}\n', None),
        (b'{"id":"a","in":[["b",0]]},\n{"id":"b"}\n]}\n', None),
        (b'{"id":"a","saved":[{"slot":"s","origin":["b",0]}]},\n{"id":"b"}\n]}\n', ["a", "b"]),
        (b'{"id":"a","saved":[{"slot":"s","origin":["c",0]}]},\n{"id":"b"}\n]}\n', None),
        (b'{"id":"a"},\n{"id":"b","base":"c"}\n]}\n', None),
        (b'{"id":"a"},\n{"id":""}\n]}\n', None),
        (b'{"id":"a"},\n{"id":"\\u0007"}\n]}\n', None),
    ],
)  # fmt: skip
def test_lines_in_any_place_mean_the_same(lines: bytes, ids: list[str] | None) -> None:
    try:
        found = list(gradir.loads(START + lines).nodes)
    except FormatError:
        found = None
    assert found == ids


def test_a_newer_version_is_warned_of_once(recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("always")
    for lines in (b'{"id":"a"}\n]}\n', b'{"id":"a",\n"op":"b"},\n{"id":"b"}\n]}\n', b'{"id":"a"}]}'):
        for function in (codecs.decode, codecs.survey):
            recwarn.clear()
            function(START.replace(b'"1.0"', b'"1.99"') + lines)
            assert [str(warning.message)[:16] for warning in recwarn] == ["GIR version 1.99"]


@given(graphs())
def test_reading_by_line_and_as_a_whole_come_to_the_same(graph: Graph) -> None:
    data = gradir.dumps(graph)
    assert gradir.loads(data.replace(b"\n", b" ")) == gradir.loads(data) == graph


def test_the_parts_of_a_long_list_are_joined() -> None:
    graph = chain(1500)
    lines = gradir.dumps(graph).splitlines()
    assert len(lines) == 5 + len(graph.nodes) + 1
    assert all(line.endswith(b"},") for line in lines[5:-2])
    assert json.loads(b"".join(lines))["nodes"][-1]["id"] == list(graph.nodes)[-1]


@pytest.mark.parametrize("wrap", [bytearray, memoryview])
@pytest.mark.parametrize("form", [{}, {"format": "msgpack"}, {"compress": "gzip"}])
def test_bytes_of_any_kind_are_read(wrap: Callable[[bytes], bytes], form: dict[str, str]) -> None:
    assert gradir.loads(wrap(gradir.dumps(everything(), **form))) == everything()


@pytest.mark.parametrize("other", ["{}", None, Path("model.gir"), 3])
def test_loads_refuses_anything_but_bytes(other: Any) -> None:
    with pytest.raises(TypeError, match=f"the bytes of a file, not {type(other).__name__}; gradir.load takes its path"):
        gradir.loads(other)


@pytest.mark.parametrize("other", [None, "graph", {}])
def test_saving_anything_but_a_graph_is_one_clear_error(other: Any, tmp_path: Path) -> None:
    for write in (gradir.dumps, lambda graph: gradir.save(graph, tmp_path / "a.gir")):
        with pytest.raises(TypeError, match=r"expected a gradir\.Graph, got"):
            write(other)
