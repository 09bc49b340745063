"""The compact form: layout, round trips, what it refuses."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgpack
import pytest
from hypothesis import given
from msgspec.structs import replace
from samples import chain, everything, hostile
from strategies import graphs

import gradir
from gradir import codecs
from gradir.codecs import encoding_of
from gradir.codecs.compact.columns import pack
from gradir.codecs.compact.layout import KEYS, KINDS, RANKS, TABLES, columns_of
from gradir.codecs.document import MAGIC
from gradir.errors import FormatError, GradirWarning
from gradir.ir import Collective, Graph, Node, NonFinite, Rank, Ref, Saved, Scope, TensorMeta
from gradir.ir.validate import check


def compacted(graph: Graph) -> bytes:
    return gradir.dumps(graph, format="msgpack")


def opened(graph: Graph) -> dict[str, object]:
    """The document as any MessagePack library reads it."""
    return msgpack.unpackb(compacted(graph)[len(MAGIC) :])


def closed(document: dict[str, object]) -> bytes:
    return MAGIC + msgpack.packb(document)


@pytest.mark.parametrize("make", [everything, hostile])
def test_golden(golden_bytes, make) -> None:
    golden_bytes(f"msgpack/{make.__name__}.gir", compacted(make()))


@given(graphs())
def test_round_trip(graph: Graph) -> None:
    data = compacted(graph)
    loaded = gradir.loads(data)
    assert loaded == graph
    assert list(loaded.nodes) == list(graph.nodes)
    assert list(loaded.scopes) == list(graph.scopes)
    assert compacted(loaded) == data
    check(loaded)


@given(graphs())
def test_json_survives_the_detour_byte_for_byte(graph: Graph) -> None:
    text = gradir.dumps(graph)
    assert gradir.dumps(gradir.loads(compacted(gradir.loads(text)))) == text


def test_an_empty_graph() -> None:
    assert gradir.loads(compacted(Graph.of([]))) == Graph.of([])


def test_a_hundred_thousand_nodes_take_a_tenth_of_the_json() -> None:
    graph = chain(100_000)
    data = compacted(graph)
    assert gradir.loads(data) == graph
    assert len(data) * 10 < len(gradir.dumps(graph))


@pytest.mark.parametrize("values", [(1, 1.0, True), (0, 0.0, -0.0, False), ("", None, ()), (1, (1,), ((1,),))])
def test_equal_values_that_are_spelled_differently_stay_apart(values: tuple[object, ...]) -> None:
    graph = Graph.of([Node(f"n:{i}", attrs={"v": v}, ext={"w": v}) for i, v in enumerate(values)])
    again = gradir.loads(compacted(graph))
    assert gradir.dumps(again) == gradir.dumps(graph)
    assert [repr(node.attrs["v"]) for node in again.nodes.values()] == [repr(value) for value in values]


@pytest.mark.parametrize(
    "node_id", ["a", "a:1", "a:0", "a:01", "1", ":1", "a:", "a:1:2", "a:9999999999", "é:٣", "s/op:1"]
)
def test_ids_of_every_form(node_id: str) -> None:
    for node in (Node(node_id), Node(node_id, op="op", scope="s"), Node(node_id, op="a"), Node(node_id, scope="s")):
        assert list(gradir.loads(compacted(Graph.of([node]))).nodes.values()) == [node]


@pytest.mark.parametrize("storage", ["", "w", "w.slot", "w.slot.b", ".", "w.", "unknown", "later:1.x"])
def test_storage_keys_of_every_form(storage: str) -> None:
    slot = Saved("self", storage=storage, origin=Ref("later:1", 3))
    graph = Graph.of([Node("w"), Node("f:1", saved=(slot, slot)), Node("later:1", saved=(slot,))])
    assert gradir.loads(compacted(graph)) == graph


@pytest.mark.parametrize("number", [1, 255, 2**31, 2**32, 2**63 - 1])
def test_the_number_of_an_output_of_a_node_that_records_none(number: int) -> None:
    ref = Ref("a", number)
    graph = Graph.of([Node("a"), Node("b", inputs=(ref, None, ref), saved=(Saved("s", origin=ref),))])
    check(graph)
    assert gradir.loads(compacted(graph)) == graph == gradir.loads(gradir.dumps(graph))


@pytest.mark.parametrize("number", [-1, 2**63, 2**64])
@pytest.mark.parametrize("field", ["inputs", "saved"])
def test_an_output_number_that_no_file_has(field: str, number: int) -> None:
    ref = Ref("a", number)
    value = {"inputs": (ref,), "saved": (Saved("s", origin=ref),)}[field]
    with pytest.raises(FormatError, match=rf"output_nr is {number}"):
        compacted(Graph.of([Node("a"), Node("b", **{field: value})]))


def test_repeated_values_are_shared() -> None:
    attrs = [{"dim": (1, 2)} for _ in range(3)]
    graph = Graph.of([Node(f"n:{i}", outputs=(TensorMeta("f", (i // 2,)),), attrs=attrs[i]) for i in range(3)])
    first, second, third = gradir.loads(compacted(graph)).nodes.values()
    assert first.outputs is second.outputs
    assert first.attrs is second.attrs
    assert first.outputs is not third.outputs


def test_defaults_are_the_default_objects() -> None:
    again = gradir.loads(compacted(everything()))
    assert gradir.dumps(again) == gradir.dumps(everything())


def of_a_rank() -> Graph:
    """One with every key."""
    return replace(everything(), rank=Rank(0, 2), collectives=(Collective("forward", "barrier", "world"),))


def test_the_document_is_plain_messagepack() -> None:
    document = opened(everything())
    assert tuple(document) == tuple(key for key in KEYS if key not in RANKS)
    assert tuple(opened(of_a_rank())) == KEYS
    for name, record in TABLES.items():
        assert {*document[name]} == {KINDS, *columns_of(record)}
    assert document["format"] == "gir"
    assert closed(document) == compacted(everything())


def test_the_magic_number_is_no_text_and_no_json() -> None:
    with pytest.raises(UnicodeDecodeError):
        MAGIC[:1].decode()
    assert encoding_of(compacted(Graph.of([]))) == "msgpack"
    assert encoding_of(gradir.dumps(Graph.of([]))) == "json"


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (Graph.of([Node("a", inputs=(Ref("b", 0),))]), "input 0 names 'b', which is not a node"),
        (Graph.of([Node("a", inputs=(Ref("a", 0),))]), "stands after it"),
        (Graph.of([Node("a", outputs=(TensorMeta(),)), Node("b", inputs=(Ref("a", 1),))]), "has no such output"),
        (Graph.of([Node("a", base="b")]), "its base names 'b'"),
        (Graph.of([Node("a", saved=(Saved("s", origin=Ref("b", 0)),))]), "saved tensor 's' names 'b'"),
        (Graph.of([Node("a\n")]), "printable"),
        (Graph({"b": Node("a")}), "stored under the id 'b'"),
        (Graph.of([Node("x", names=("\ud800",))]), "surrogate"),
        (Graph.of([Node("x", attrs={"n": 2**64})]), "64 bits"),
        (Graph.of([Node("x", attrs={"n": 2**63})]), r"node 'x': attrs\['n'\] is 9223372036854775808"),
        (Graph.of([Node("x", attrs={"n": float("nan")})]), r"NonFinite\('nan'\)"),
        (Graph.of([Node("x", ext={"n": ((1, float("-inf")),)})]), r"NonFinite\('-inf'\)"),
    ],
)
def test_what_cannot_be_read_is_not_written(graph: Graph, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        compacted(graph)


def test_tagged_floats_are_written() -> None:
    graph = Graph.of([Node("x", attrs={"n": NonFinite("nan")})])
    assert gradir.loads(compacted(graph)) == graph


def changed(**changes: object) -> bytes:
    return closed(opened(everything()) | changes)


def with_columns(table: str, **columns: bytes) -> bytes:
    document = opened(everything())
    return closed(document | {table: document[table] | columns})


def with_kinds(table: str, *kinds: object) -> bytes:
    return closed(opened(everything()) | {table: {"kinds": kinds, "kind": b""}})


def with_output(number: int) -> bytes:
    """A document in which the third output, which the last node takes, is another."""
    document = opened(everything())
    *_, last = document["nodes"]["kinds"]
    assert last["in"] == [["", 2]]
    last["in"] = [["", number]]
    return closed(document)


NODES = len(everything().nodes)
INPUTS = sum(ref is not None for node in everything().nodes.values() for ref in node.inputs)
ZEROS = pack([0] * NODES)
ALONE = dict.fromkeys(("in", "saved.origin", "saved.storage", "base"), b"") | {"names": ZEROS}
"""The columns of as many nodes of the first kind, which has a name."""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (MAGIC, "truncated"),
        (MAGIC + b"\x80", 'no "format": "gir"'),
        (MAGIC + b"\xc1", "broken MessagePack"),
        (MAGIC + b"\xdf\xff\xff\xff\xff", "broken MessagePack|truncated"),
        (MAGIC + b"\x81" * 100_000, "broken MessagePack|key is not a text"),
        (MAGIC + msgpack.packb({"version": "1.0", "format": "gir"}), 'no "format": "gir"'),
        (MAGIC + msgpack.packb({"format": "gir", "version": "1.0"}), "does not start with its head"),
        (MAGIC + msgpack.packb({"format": "gir", "version": "1.0", "requires": []}), "has no 'producer'"),
        (compacted(everything()) + b"\x00", "more bytes after"),
        (changed(version="2.0"), "2.0 is newer than 1.0"),
        (changed(requires=["warp"]), "requires 'warp'"),
        (changed(requires=[{}]), "not a list of names"),
        (changed(producer=[]), r"^byte 52, \$\.producer: expected `object`, got `array`;"),
        (changed(producer={"options": {"n": 2**63}}), r"\$.producer.options"),
        (changed(producer={"options": {"n": float("nan")}}), "NonFinite"),
        (changed(producer={"options": {"n": msgpack.ExtType(1, b"")}}), "extension type 1 has no place"),
        (changed(producer={"options": {"n": msgpack.Timestamp(1)}}), r"\$.producer.options"),
        (with_kinds("cuts", {"kind": "a"}, {}), r", \$\.cuts\.kinds\[1\]: object missing required field `kind`;"),
        (changed(strings=[]), "first entry is not the empty text"),
        (changed(strings=["", 1]), "an entry is not a text"),
        (with_kinds("nodes", {"id": ""}, {"id": ""}), r"nodes\.kinds\[1\] repeats an earlier kind"),
        (with_kinds("nodes", {"id": "", "in": -1}), r"\$\.nodes\.kinds\[0\]\.in"),
        (with_kinds("nodes", {"id": "", "attrs": {"x": float("inf")}}), "NonFinite"),
        (changed(nodes={}), "column nodes.kind is missing"),
        (changed(nodes={"kind": b""}), "column nodes.kinds is missing"),
        (changed(nodes={"kind": []}), "column nodes.kind is not a byte string"),
        (with_columns("nodes", kind=b"\x03abc"), "its width is 3"),
        (with_columns("nodes", kind=b"\x02abc"), "3 bytes are no whole number of 2-byte integers"),
        (with_columns("nodes", ordinal=b""), "nodes.ordinal has 0 entries, not one per hole of its kinds"),
        (with_columns("nodes", kind=pack([99] * NODES)), "names entry 99 of kinds"),
        (with_columns("nodes", scope=pack([2**63] * NODES)), "names entry 9,223,372,036,854,775,808 of the strings"),
        (with_columns("nodes", scope=pack([-1] * NODES)), "names entry -1 of the strings"),
        (with_columns("nodes", kind=ZEROS, ordinal=ZEROS, id=pack([1] * NODES), **ALONE), "occurs twice"),
        (with_kinds("scopes", {"path": "", "calls": 2**63}), r"\$\.scopes\.kinds\[0\]\.calls"),
        (with_columns("scopes", path=pack([0] * 3)), "occurs twice"),
        (with_columns("nodes", **{"in": pack([200] * INPUTS)}), "before the first node"),
        (with_columns("nodes", **{"in": pack([-200] * INPUTS)}), "behind the last one"),
        (with_columns("nodes", **{"in": pack([0] * INPUTS)}), r"input 0 names 'fc/t:1', which stands after it"),
        (with_columns("nodes", base=pack([0])), r"its base names 'output:0', which stands after it"),
        (with_columns("nodes", base=pack([99])), "column nodes.base names a place before the first node"),
        (with_columns("nodes", **{"saved.storage": pack([99] * 3)}), "storage names a place before the first node"),
        (with_output(9), "input 0 names output 9 of 'norm/native_batch_norm:1', which has no"),
    ],
)
def test_bad_documents_are_one_clear_error(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        gradir.loads(data)
    assert "\n" not in str(caught.value)


def repeated(key: str, value: object, place: int | None = None, document: dict[str, object] | None = None) -> bytes:
    """A document in which a key stands once more, at the end or before the key of that number."""
    pairs = list((opened(everything()) if document is None else document).items())
    pairs.insert(len(pairs) if place is None else place, (key, value))
    return MAGIC + bytes([0x80 | len(pairs)]) + b"".join(msgpack.packb(part) for pair in pairs for part in pair)


@pytest.mark.parametrize("place", [None, 7, 4])
@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_comes_again_is_refused(key: str, place: int | None) -> None:
    document = opened(of_a_rank())
    data = repeated(key, document[key], place, document)
    for read in (gradir.loads, codecs.survey):
        with pytest.raises(FormatError, match=r"the key '\w+' is repeated or out of order; the order is format, vers"):
            read(data)


@pytest.mark.parametrize("place", [None, 3, 5])
@pytest.mark.parametrize("value", [1, {"a": [None]}, "text"])
def test_a_key_that_nobody_knows_may_come_again_behind_the_head(place: int | None, value: object) -> None:
    document = dict(opened(everything()), later=value)
    assert gradir.loads(repeated("later", 2, place, document)) == everything()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\xa1\xff", "a text is not UTF-8"),
        (b"\xd4\x05\x00", "extension type 5 has no place"),
        (b"\x81\x01\x01", "a key is not a text"),
        (b"\xc1", "no value starts with this byte"),
    ],
)
@pytest.mark.parametrize("table", [None, "scopes", "nodes"])
def test_what_nobody_knows_is_data_too(table: str | None, value: bytes, message: str) -> None:
    document = opened(everything())
    (document if table is None else document[table])["later"] = "?here?"
    data = closed(document).replace(msgpack.packb("?here?"), value)
    with pytest.raises(FormatError, match=message):
        gradir.loads(data)


def test_errors_name_the_byte() -> None:
    data = with_kinds("nodes", {"id": "", "role": "leaf"}, {"id": "", "op": 7})
    with pytest.raises(FormatError) as caught:
        gradir.loads(data)
    assert caught.value.problem == "expected `str`, got `int`"
    found = re.fullmatch(r"byte ([0-9,]+), \$\.nodes\.kinds\[1\]\.op", caught.value.place)
    assert found is not None
    end = int(found[1].replace(",", ""))
    assert data[:end].endswith(msgpack.packb({"id": "", "op": 7}))


def test_every_truncation_is_an_error() -> None:
    data = compacted(everything())
    for end in range(len(data)):
        with pytest.raises(FormatError):
            gradir.loads(data[:end])


def test_a_newer_minor_version_loads_with_a_warning() -> None:
    document = opened(everything())
    later = document | {"version": "1.9", "later": [1]}
    later["nodes"] = document["nodes"] | {"colour": b""}
    with pytest.warns(GradirWarning, match=r"1\.9 is newer than 1\.0"):
        assert gradir.loads(closed(later)) == replace(everything(), read_from="1.9")


@pytest.mark.parametrize("letter", ["x", "\N{GRINNING FACE}"])
def test_short_columns_cannot_make_long_ids(monkeypatch: pytest.MonkeyPatch, letter: str) -> None:
    path = letter * 15_000
    graph = Graph.of([Node(f"{path}:{number}") for number in range(1, 600)], [Scope(path)])
    with pytest.raises(FormatError, match="too long for the compact form, which no reader would take: write JSON"):
        compacted(graph)
    monkeypatch.setattr(import_module("gradir.codecs.compact.encode"), "excess", lambda _: "")
    data = compacted(graph)
    with pytest.raises(FormatError, match="out of proportion"):
        gradir.loads(data)


def test_what_is_just_short_enough_to_be_written_can_be_read() -> None:
    # Each node saves one tensor under a key of its own, so that there are two long texts for each.
    for letter, steps in (("x", 40), ("\N{GRINNING FACE}", 40)):
        outcomes = []
        for step in range(steps):
            scope = letter * (1000 + 500 * step)
            nodes = [Node(f"{scope}/x:{n}", op="x", scope=scope, saved=(Saved("s"),)) for n in range(1, 60)]
            nodes = [replace(node, saved=(Saved("s", storage=f"{node.id}.s"),)) for node in nodes]
            try:
                data = compacted(Graph.of(nodes))
            except FormatError:
                outcomes.append(False)
                continue
            outcomes.append(True)
            assert gradir.loads(data) == Graph.of(nodes)
        assert outcomes[0]
        assert not outcomes[-1]


def test_decoding_leaves_the_collector_as_it_was() -> None:
    data = compacted(everything())
    gc.disable()
    try:
        gradir.loads(data)
        assert not gc.isenabled()
    finally:
        gc.enable()
    gradir.loads(data)
    assert gc.isenabled()


def nodes_of(count: int, **fields: Any) -> list[Node]:
    return [Node(f"f:{number}", op="f", **fields) for number in range(1, count + 1)]


REPETITIVE = {
    "a scope": lambda: nodes_of(3000, scope="s" * 40_000),
    "a name": lambda: nodes_of(3000, names=("n" * 40_000,)),
    "attributes": lambda: nodes_of(3000, attrs={"a": "v" * 40_000}),
    "an id": lambda: [Node("i" * 40_000), *nodes_of(3000, inputs=(Ref("i" * 40_000, 0),) * 2)],
    "a base": lambda: [Node("i" * 40_000), *nodes_of(3000, base="i" * 40_000)],
    "an origin": lambda: [Node("i" * 40_000), *nodes_of(3000, saved=(Saved("x", origin=Ref("i" * 40_000, 0)),))],
    "a storage": lambda: [Node("i" * 40_000), *nodes_of(3000, saved=(Saved("x", storage="i" * 40_000),))],
}


@pytest.mark.parametrize("make", REPETITIVE.values(), ids=REPETITIVE)
def test_a_short_file_does_not_say_a_long_thing_very_often(
    make: Callable[[], list[Node]], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph.of(make())
    with pytest.raises(FormatError, match=r"too much too often for the compact form, .*: write JSON"):
        codecs.encode(graph, "msgpack")
    monkeypatch.setattr(import_module("gradir.codecs.compact.encode"), "excess", lambda _: "")
    data = codecs.encode(graph, "msgpack")
    assert len(data) < 200_000
    with pytest.raises(FormatError, match="out of proportion to"):
        codecs.decode(data)
