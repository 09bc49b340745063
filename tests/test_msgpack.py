"""The document in MessagePack: the document of the JSON form, its golden files, and what a reader refuses."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from bombs import bombs
from documented_writer import write_msgpack
from hostile_forms import peak_of, read
from hypothesis import given
from msgspec.structs import replace
from samples import chain, everything, hostile
from strategies import graphs

import gradir
from gradir import codecs
from gradir.cli import main
from gradir.codecs import encoding_of
from gradir.codecs.strict import check_canonical, check_keys
from gradir.errors import FormatError, GradirWarning
from gradir.ir import Collective, Graph, Node, NonFinite, Rank, Ref, Saved, Scope, TensorMeta
from gradir.ir.validate import check

FLOATS = (0.0, -0.0, 0.1, 1e-5, 1e16, 5e-324, 1.7976931348623157e308, NonFinite("nan"), NonFinite("-inf"))


def dumped(graph: Graph) -> bytes:
    return gradir.dumps(graph, format="msgpack")


def of_a_rank() -> Graph:
    """A graph whose document has every key."""
    rank = Rank(0, 2, groups={"world": (0, 1)})
    return replace(everything(), rank=rank, collectives=(Collective("forward", "barrier", "world"),))


def document(**changes: object) -> dict[str, Any]:
    return msgpack.unpackb(dumped(everything())) | changes


def changed(**changes: object) -> bytes:
    data: bytes = msgpack.packb(document(**changes))
    return data


def node(**fields: object) -> bytes:
    return changed(nodes=[{"id": "a", **fields}])


@pytest.mark.parametrize("make", [everything, hostile])
def test_golden(golden_bytes, make) -> None:
    golden_bytes(f"msgpack/{make.__name__}.gir", dumped(make()))


@given(graphs())
def test_another_reader_reads_the_document_of_the_json_form(graph: Graph) -> None:
    assert msgpack.unpackb(dumped(graph)) == json.loads(gradir.dumps(graph))


@pytest.mark.parametrize("make", [everything, hostile, of_a_rank, lambda: chain(300), lambda: Graph.of([])])
def test_another_reader_reads_the_samples(make: Callable[[], Graph]) -> None:
    found = msgpack.unpackb(dumped(make()))
    text = json.loads(gradir.dumps(make()))
    assert found == text
    assert list(found) == list(text)


def test_another_reader_reads_floats_as_json_spells_them() -> None:
    graph = Graph.of([Node("a", attrs={"v": FLOATS, "n": -(2**63), "m": 2**63 - 1})])
    assert repr(msgpack.unpackb(dumped(graph))) == repr(json.loads(gradir.dumps(graph)))


@given(graphs())
def test_another_writer_writes_the_same_bytes(graph: Graph) -> None:
    assert write_msgpack(json.loads(gradir.dumps(graph))) == dumped(graph)


@given(graphs())
def test_round_trip(graph: Graph) -> None:
    data = dumped(graph)
    loaded = gradir.loads(data)
    assert loaded == graph
    assert list(loaded.nodes) == list(graph.nodes)
    assert list(loaded.scopes) == list(graph.scopes)
    assert dumped(loaded) == data
    assert gradir.dumps(loaded) == gradir.dumps(graph)
    assert check_canonical(data) == graph
    check_keys(data)
    check(loaded)


@pytest.mark.parametrize("values", [(1, 1.0, True), (0, 0.0, -0.0, False), ("", None, ()), (1, (1,), ((1,),))])
def test_equal_values_of_different_types_stay_apart(values: tuple[object, ...]) -> None:
    graph = Graph.of([Node(f"n:{i}", attrs={"v": v}, ext={"w": v}) for i, v in enumerate(values)])
    again = gradir.loads(dumped(graph))
    assert gradir.dumps(again) == gradir.dumps(graph)
    assert [repr(found.attrs["v"]) for found in again.nodes.values()] == [repr(value) for value in values]


@pytest.mark.parametrize("count", [15, 16, 65_535, 65_536])
def test_lists_of_every_length_of_header(count: int) -> None:
    graph = Graph.of([Node("a", attrs={"v": (7,) * count, "t": "x" * count})])
    assert gradir.loads(dumped(graph)) == graph


def test_the_encoding_shows_in_the_first_bytes() -> None:
    assert encoding_of(dumped(Graph.of([]))) == encoding_of(dumped(of_a_rank())) == "msgpack"
    assert encoding_of(gradir.dumps(Graph.of([]))) == "json"
    assert dumped(everything())[1:8] == b"\xa6format"


@pytest.mark.parametrize("header", ["87", "de 0007", "df 00000007"])
def test_other_writers_may_use_other_headers_and_another_order(header: str) -> None:
    pairs = sorted(document().items())
    data = bytes.fromhex(header) + b"".join(msgpack.packb(part) for pair in pairs for part in pair)
    assert gradir.loads(data) == everything()
    with pytest.raises(FormatError, match="valid, but not in canonical form"):
        check_canonical(data)


@pytest.mark.parametrize(
    "start", [b"\x80", b"\x80\x04\x95", b"\x89PNG\r\n", b"\xde\x00", b"\xc0", b"\xff\xfe{\x00", b"\x91\xa1a"]
)
def test_other_files_are_not_taken_for_messagepack(start: bytes) -> None:
    with pytest.raises(FormatError, match="not a GIR document: it starts with neither"):
        gradir.loads(start)


def test_a_file_in_columns_is_one_clear_error() -> None:
    with pytest.raises(FormatError, match=r"^MessagePack in columns, .*; capture the graph again$"):
        gradir.loads(b"\x89GIR\r\n\x1a\n\x88\xa6format\xa3gir")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (Graph.of([Node("a", inputs=(Ref("b", 0),))]), "input 0 names 'b', which is not a node"),
        (Graph.of([Node("a", inputs=(Ref("a", 0),))]), "comes after it"),
        (Graph.of([Node("a", outputs=(TensorMeta(),)), Node("b", inputs=(Ref("a", 1),))]), "has no such output"),
        (Graph.of([Node("a", base="b")]), "its base names 'b'"),
        (Graph.of([Node("a", saved=(Saved("s", origin=Ref("b", 0)),))]), "saved tensor 's' names 'b'"),
        (Graph.of([Node("a\n")]), "printable"),
        (Graph({"b": Node("a")}), "stored under the id 'b'"),
        (Graph.of([Node("x", names=("\ud800",))]), "surrogate"),
        (Graph.of([Node("x", attrs={"n": 2**63})]), r"node 'x': attrs\['n'\] is 9223372036854775808"),
        (Graph.of([Node("x", attrs={"n": float("nan")})]), r"NonFinite\('nan'\)"),
        (Graph.of([Node("x", ext={"n": ((1, float("-inf")),)})]), r"NonFinite\('-inf'\)"),
    ],
)
def test_a_graph_that_no_reader_would_take_is_not_written(graph: Graph, message: str) -> None:
    for encoding in codecs.ENCODINGS:
        with pytest.raises(FormatError, match=message):
            codecs.encode(graph, encoding)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x81\xa6format", "it was truncated"),
        (b"\xdf\xff\xff\xff\xff\xa1a", "truncated"),
        (b"\x81\xa6format\xc1", "byte 8: broken MessagePack: no value starts with this byte"),
        (b"\x81\xa1a" * 100_000, "nested too deeply"),
        (dumped(everything()) + b"\x00", "more bytes after"),
        (msgpack.packb({"a": 1}), 'no "format": "gir"'),
        (msgpack.packb({"format": "gir"}), 'no "version"'),
        (msgpack.packb({"format": "gir", "version": "1.0"}), "object missing required field `nodes`"),
        (changed(version="2.0"), "2.0 is newer than 1.0"),
        (changed(version=1.0), "the version is 1.0; expected MAJOR.MINOR"),
        (changed(requires=["warp"]), "requires 'warp'"),
        (changed(requires=[{}]), "not a list of names"),
        (changed(producer=[]), r"\$\.producer: expected `object`, got `array`"),
        (changed(producer={"options": {"n": 2**63}}), r"\$\.producer\.options\[\.\.\.\]: expected `int` <= 9223372036"),
        (
            changed(producer={"options": {"n": math.nan}}),
            r"\$\.producer\.options\[\.\.\.\]: expected `float` >= -1\.79",
        ),
        (node(attrs={"x": math.inf}), r"\$\.nodes\[0\]\.attrs\[\.\.\.\]: expected `float` <= 1\.79"),
        (node(ext={"x": [[-math.inf]]}), r"\$\.nodes\[0\]\.ext\[\.\.\.\]\[0\]\[0\]: expected `float` >= -1\.79"),
        (node(op=b"raw"), r"\$\.nodes\[0\]\.op: expected `str`, got `bytes`"),
        (node(op=msgpack.ExtType(1, b"")), r"extension type 1 has no place"),
        (node(attrs={"t": msgpack.Timestamp(1)}), r"\$\.nodes\[0\]\.attrs\[\.\.\.\]: expected .*, got `ext`"),
        (node(**{"in": -1}), r"\$\.nodes\[0\]\.in: expected `array`, got `int`"),
        (node(**{"in": [["a", -1]]}), r"\$\.nodes\[0\]\.in\[0\]\[1\]: expected `int` >= 0"),
        (node(opaque=1), r"\$\.nodes\[0\]\.opaque: expected `bool`, got `int`"),
        (changed(scopes=[{"path": ""}, {"path": ""}]), "occurs twice"),
        (changed(nodes=[{"id": "a"}, {"id": "a"}]), "node id 'a' occurs twice"),
        (changed(nodes=[{"id": ""}]), "an id is not empty"),
        (node(base=""), "its base names '', which is not a node"),
        (node(attrs={1: 1}), "a key is not a text"),
        (node(later={1: 1}), "a key is not a text"),
        (node(later={b"a": 1}), "a key is not a text"),
        (node(later=msgpack.ExtType(5, b"")), "extension type 5 has no place"),
    ],
)
def test_bad_documents_are_one_clear_error(data: bytes, message: str) -> None:
    for function in (gradir.loads, codecs.survey, check_canonical):
        if function is codecs.survey and ("occurs" in message or "id" in message or "names" in message):
            continue
        with pytest.raises(FormatError, match=message) as caught:
            function(data)
        assert "\n" not in str(caught.value)
        assert caught.value.advice


@pytest.mark.parametrize("command", ["info", "validate", "convert", "export", "diff", "ranks", "summary"])
@pytest.mark.parametrize("place", ["an id", "a group", "a key", "an unknown value", "the rank", "a collective"])
def test_text_that_is_not_utf_8_is_one_line_in_every_command(
    place: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = msgpack.unpackb(dumped(of_a_rank()))
    holder = {"the rank": whole["rank"], "a collective": whole["collectives"][0]}.get(place, whole["nodes"][0])
    key, value = {
        "an id": ("id", "?here?"),
        "a group": ("ext", {"a": "?here?"}),
        "a key": ("?here?", 1),
        "an unknown value": ("later", ["?here?"]),
        "the rank": ("backend", "?here?"),
        "a collective": ("op", "?here?"),
    }[place]
    holder[key] = value
    data: bytes = msgpack.packb(whole)
    assert data.count(b"?here?") == 1
    path = tmp_path / "broken.gir"
    path.write_bytes(data.replace(b"?here?", b"?he\xffe?"))
    words = {"convert": [str(tmp_path / "out.gir")], "export": ["--to", "tree"], "diff": [str(path)]}
    assert main([command, str(path), *words.get(command, [])]) == 2
    at = data.index(b"?here?") + 3
    problem = f"byte {at:,}: broken MessagePack: a text is not UTF-8, invalid start byte 0xff"
    error = capsys.readouterr().err
    assert error == f"gradir: {path}: {problem}; fetch the file again, or write it again\n"
    assert list(tmp_path.iterdir()) == [path]


def with_twice(key: str, value: object) -> bytes:
    """A document in which a key occurs once more, at the end."""
    pairs = [*msgpack.unpackb(dumped(of_a_rank())).items(), (key, value)]
    return bytes([0x80 | len(pairs)]) + b"".join(msgpack.packb(part) for pair in pairs for part in pair)


@pytest.mark.parametrize("key", ["format", "version", "nodes", "rank"])
def test_a_key_that_occurs_twice_is_refused_by_validate(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "twice.gir"
    path.write_bytes(with_twice(key, msgpack.unpackb(dumped(of_a_rank()))[key]))
    assert gradir.load(path) == of_a_rank()
    assert main(["validate", str(path)]) == 2
    problem = f"$: the key {key!r} occurs twice in one object; leave one of them"
    assert capsys.readouterr().err == f"gradir: {path}: {problem}\n"


def test_the_last_of_two_equal_keys_counts_as_in_json() -> None:
    assert gradir.loads(with_twice("nodes", [])).nodes == {}


@pytest.mark.parametrize("place", ["$", "$.producer", "$.scopes[1]", "$.nodes[2]", "$.nodes[2].out[0]"])
def test_unknown_keys_are_ignored_and_refused_by_validate(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole: Any = document()
    holder = {
        "$": whole,
        "$.producer": whole["producer"],
        "$.scopes[1]": whole["scopes"][1],
        "$.nodes[2]": whole["nodes"][2],
        "$.nodes[2].out[0]": whole["nodes"][2]["out"][0],
    }[place]
    holder["odd"] = [b"", {"a": None}]
    path = tmp_path / "odd.gir"
    path.write_bytes(msgpack.packb(whole))
    graph = gradir.load(path)
    assert graph == replace(everything(), unknown=graph.unknown)
    assert graph.unknown == f"{place}: object contains unknown field `odd`"
    assert main(["validate", str(path)]) == 2
    assert capsys.readouterr().err == f"gradir: {path}: {graph.unknown}; correct it, or leave it out\n"
    with pytest.raises(FormatError, match="which would be lost"):
        dumped(graph)


def test_a_newer_minor_version_loads_with_a_warning() -> None:
    later = document(version="1.9", later=[1])
    later["nodes"][0]["colour"] = "red"
    with pytest.warns(GradirWarning, match=r"1\.9 is newer than 1\.0"):
        assert gradir.loads(msgpack.packb(later)) == replace(everything(), read_from="1.9")


def test_every_truncation_is_an_error_that_says_so() -> None:
    data = dumped(of_a_rank())
    for end in range(3, len(data)):
        with pytest.raises(FormatError, match="truncated"):
            gradir.loads(data[:end])


@pytest.mark.parametrize("code", ["dc ffff", "dd ffffffff", "de ffff", "df ffffffff", "db ffffffff", "c6 ffffffff"])
@pytest.mark.parametrize("key", ["nodes", "scopes", "requires", "producer", "rank", "later"])
def test_a_declared_length_reserves_nothing(code: str, key: str) -> None:
    whole = dumped(everything())
    start = b"\x88\xa6format\xa3gir\xa7version\xa31.0" + msgpack.packb(key)
    for data in (start + bytes.fromhex(code), start + bytes.fromhex(code) + whole):
        assert read(data) is None
        assert peak_of(data) < 1 << 18


@pytest.mark.parametrize("field", ["in", "out", "saved", "names", "kinds", "attrs", "ext", "source"])
def test_a_declared_length_inside_a_node_reserves_nothing(field: str) -> None:
    for code in ("dd 7fffffff", "df 7fffffff", "db 7fffffff"):
        data = node(**{field: "?"}).replace(b"\xa1?", bytes.fromhex(code))
        assert read(data) is None
        assert peak_of(data) < 1 << 18


@pytest.mark.parametrize("name", [name for name in bombs(10) if name.startswith("msgpack")])
def test_bombs_are_read_or_refused_alike_by_every_reader(name: str) -> None:
    data = bombs(2_000)[name]
    found = read(data)
    if found is None:
        with pytest.raises(FormatError):
            check_canonical(data)


def test_reading_leaves_the_collector_as_it_was() -> None:
    data = dumped(everything())
    gc.disable()
    try:
        gradir.loads(data)
        assert not gc.isenabled()
    finally:
        gc.enable()
    gradir.loads(data)
    assert gc.isenabled()


def test_defaults_are_the_default_objects() -> None:
    assert gradir.dumps(gradir.loads(dumped(everything()))) == gradir.dumps(everything())


def test_scopes_are_read_in_their_order() -> None:
    graph = Graph.of([Node("a")], [Scope("b"), Scope("a")])
    assert list(gradir.loads(dumped(graph)).scopes) == ["b", "a"]
