"""Broken and hostile files: the only results are a graph that keeps every rule, or one clear error."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import msgpack
import pytest
from bombs import bombs
from hostile_forms import FORMS, MEMORY_PER_BYTE, PROMISED_PER_BYTE, encoded, peak_of, read, result_of
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import chain, everything, hostile
from strategies import graphs

import gradir
from gradir import codecs
from gradir.cli import main
from gradir.codecs.compact.layout import columns_of
from gradir.codecs.document import MAGIC
from gradir.errors import FormatError
from gradir.ir import Graph, Node


@st.composite
def edited(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes after a few edits like those of a bad disk, a bad program or a bad person."""
    edited = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(edited) - 1, 0)))
        match draw(st.sampled_from(["flip", "set", "delete", "insert", "repeat", "cut"])):
            case "flip" if edited:
                edited[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if edited:
                edited[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xC1, 0xC7, 0xDC, 0xDD, 0xDF, 0xFF]))
            case "delete":
                del edited[at : at + draw(st.integers(1, 9))]
            case "insert":
                edited[at:at] = draw(st.binary(min_size=1, max_size=9))
            case "repeat":
                edited[at:at] = edited[at : at + draw(st.integers(1, 99))]
            case "cut":
                del edited[at:]
    return bytes(edited)


@settings(max_examples=300)
@given(st.data(), st.sampled_from([everything(), hostile(), chain(30)]), st.sampled_from(FORMS))
def test_damaged_files(data: st.DataObject, graph: Graph, form: tuple[str, str | None]) -> None:
    found = read(data.draw(edited(encoded(graph, form))))
    if found is None:
        return
    # What can be read can be written and read again, in both encodings.
    for encoding in ("json", "msgpack"):
        assert gradir.loads(codecs.encode(found, encoding, lossy=True)).nodes == found.nodes


@settings(max_examples=300)
@given(st.data(), st.sampled_from([everything(), hostile(), chain(30)]), st.sampled_from(["json", "msgpack"]))
def test_the_fast_readers_and_the_careful_ones_agree(data: st.DataObject, graph: Graph, encoding: str) -> None:
    damaged = data.draw(edited(codecs.encode(graph, encoding)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gradir.codecs.json._PIECE", 100)
        fast = graph_or_error(damaged)
        patch.setattr("gradir.codecs.json._decode_by_lines", lambda _: None)
        assert graph_or_error(damaged) == fast


def graph_or_error(data: bytes) -> Graph | str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return codecs.decode(data)
        except FormatError as error:
            return str(error)


@settings(max_examples=200)
@given(graphs(), st.data())
def test_wrong_values_in_any_place(graph: Graph, data: st.DataObject) -> None:
    document = json.loads(gradir.dumps(graph))
    holder = document
    while True:
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        inner = holder[key]
        if not isinstance(inner, (dict, list)) or not inner or data.draw(st.booleans()):
            break
        holder = inner
    wrong = [None, True, -1, 2**63, 2**65, 1e400, 0.5, "", "\x1b[2J", "\u202e", "a" * 10_000, [], [[]], {}, {"a": [{}]}]
    holder[key] = data.draw(st.sampled_from(wrong))
    read(json.dumps(document).encode())


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    for start in (b"", b"{", MAGIC, b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"):
        read(start + data)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(filter(None, form)))
def test_every_truncation(form: tuple[str, str | None]) -> None:
    data = encoded(everything(), form).rstrip(b"\n")
    for end in range(len(data)):
        assert read(data[:end]) is None, end


@pytest.mark.parametrize("form", [form for form in FORMS if form[1]], ids="-".join)
def test_every_flipped_bit_of_a_compressed_file_is_noticed_or_harmless(form: tuple[str, str]) -> None:
    data = bytearray(encoded(everything(), form))
    for at in range(len(data) * 8):
        data[at // 8] ^= 1 << at % 8
        found = read(bytes(data))
        assert found is None or found == everything()
        data[at // 8] ^= 1 << at % 8


@pytest.mark.parametrize(
    ("column", "packed"),
    [("id", b"\x01\xff"), ("scope", b"\x01\xff"), ("kind", b"\x01\xff")],
)
def test_a_compact_file_whose_columns_name_what_is_not_there(column: str, packed: bytes) -> None:
    document = msgpack.unpackb(gradir.dumps(everything(), format="msgpack")[len(MAGIC) :])
    columns = document["nodes"]
    columns[column] = packed[:1] + packed[1:] * (len(columns[column]) - 1)
    data = MAGIC + msgpack.packb(document)
    for function in (codecs.decode, codecs.survey):
        with pytest.raises(FormatError, match=rf"column nodes\.{column} names entry"):
            function(data)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_every_damaged_byte(encoding: str) -> None:
    data = bytearray(codecs.encode(everything(), encoding))
    for at, was in enumerate(data):
        for value in {0, 0xFF, was ^ 1, was ^ 0x80}:
            data[at] = value
            read(bytes(data))
        data[at] = was


@pytest.mark.parametrize("column", columns_of(Node))
@pytest.mark.parametrize("packed", [b"\x00", b"\x00\x01", b"\x03\x01\x01\x01", b"\x02\x01"])
def test_a_column_of_no_width_is_refused_or_not_looked_at(column: str, packed: bytes) -> None:
    document = msgpack.unpackb(gradir.dumps(everything(), format="msgpack")[len(MAGIC) :])
    document["nodes"][column] = packed
    assert read(MAGIC + msgpack.packb(document)) is None


@pytest.mark.parametrize("key", ["in", "names"])
@pytest.mark.parametrize("count", [50, 50_000])
def test_a_kind_that_asks_for_more_than_there_is(key: str, count: int) -> None:
    document = msgpack.unpackb(gradir.dumps(everything(), format="msgpack")[len(MAGIC) :])
    kind = next(kind for kind in document["nodes"]["kinds"] if kind.get(key))
    kind[key] += [hole for hole in kind[key] if hole is not None] * count
    data = MAGIC + msgpack.packb(document)
    for function in (codecs.decode, codecs.survey):
        with pytest.raises(FormatError, match=rf"column nodes\.{key} has \d+ entries, not one per"):
            function(data)


def test_lone_surrogates_in_a_file() -> None:
    assert read(b'{"format":"gir","version":"1.0","nodes":[{"id":"a","op":"\\ud800"}]}') is None
    packed = msgpack.unpackb(gradir.dumps(Graph.of([Node("a", op="b")]), format="msgpack")[len(MAGIC) :])
    packed["nodes"]["kinds"][0]["op"] = "\ud800"
    assert read(MAGIC + msgpack.packb(packed, unicode_errors="surrogatepass")) is None


@pytest.mark.parametrize(
    "opening", [b"[", b'{"a":', b'{"format":"gir","version":"1.0","nodes":[{"id":"a","attrs":{"a":[']
)
def test_deep_nesting_in_json(opening: bytes) -> None:
    assert read(opening * 100_000) is None
    assert read(b'{"format":"gir","version":"1.0","nodes":[],"later":' + b"[" * 500 + b"]" * 500 + b"}") is not None


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\x81\xa6format\xa3gir\xa7version\xa31.0"])
def test_deep_nesting_in_messagepack(opening: bytes) -> None:
    assert read(MAGIC + opening * 100_000) is None


@pytest.mark.parametrize(
    "code", ["dc ffff", "dd ffffffff", "de ffff", "df ffffffff", "db ffffffff", "c6 ffffffff", "c9 ffffffff 01"]
)
def test_huge_declared_lengths(code: str) -> None:
    part = bytes.fromhex(code)
    whole = gradir.dumps(everything(), format="msgpack")
    for data in (MAGIC + part, MAGIC + b"\x88\xa6format" + part, whole.replace(b"\xa5kinds\x9a", b"\xa5kinds" + part)):
        assert peak_of(data) < 1 << 20
    assert b"\xa5kinds\x9a" in whole


def test_a_magic_number_alone_reserves_nothing() -> None:
    with pytest.raises(gradir.FormatError):
        gradir.loads(MAGIC)
    assert peak_of(MAGIC) < 1 << 18


@pytest.mark.parametrize(
    ("name", "data"), bombs(8_000).items(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_memory_is_in_proportion_to_the_file(name: str, data: bytes) -> None:
    assert peak_of(data) < MEMORY_PER_BYTE * len(data) + (1 << 20), name


@pytest.mark.parametrize(
    ("name", "data"),
    [(name, data) for name, data in bombs(8_000).items() if data.endswith(b"}") and b'"later"' not in data],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_memory_is_in_proportion_to_a_file_with_a_key_that_nobody_knows(name: str, data: bytes) -> None:
    data = data[:-1] + b',"later":0}'
    assert peak_of(data) < MEMORY_PER_BYTE * len(data) + (1 << 20), name


def test_the_worst_document_found_keeps_the_promise() -> None:
    # So many nodes that their dict has just grown, in the fewest bytes, with ids as long as they may be.
    data = bombs(88_000)["compact wide ids"]
    assert 80 * len(data) < peak_of(data) < PROMISED_PER_BYTE * len(data) + (1 << 20)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_an_error_keeps_nothing_of_the_document_once_it_is_gone(encoding: str) -> None:
    data = codecs.encode(chain(3000), encoding)[:-2]
    # What is loaded and made once for all errors is not counted.
    assert result_of(gradir.loads, data) is None
    gc.collect()
    gc.disable()
    try:
        assert result_of(gradir.loads, data) is None
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("command", ["info", "validate", "convert", "export", "diff"])
def test_the_command_line_says_which_file_is_broken(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.gir"
    path.write_bytes(gradir.dumps(everything())[:300])
    words = {"convert": [str(tmp_path / "out.gir")], "export": ["--to", "tree"], "diff": [str(path)]}
    assert main([command, str(path), *words.get(command, [])]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gradir: {path}: line 5, byte 300: broken JSON: ")
    assert error.count("\n") == 1
    assert "truncated" in error
    assert list(tmp_path.iterdir()) == [path]


SAVING = """
import sys
sys.path[:0] = sys.argv[2:]
import gradir
from samples import chain
graphs = [chain(20_000), chain(20_001)]
print("ready", flush=True)
while True:
    for graph in graphs:
        gradir.save(graph, sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be killed like this")
def test_a_kill_while_saving_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "model.gir"
    whole = {gradir.dumps(chain(length)) for length in (20_000, 20_001)}
    chance = random.Random(0)
    gradir.save(chain(20_000), path)
    for _ in range(8):
        line = [sys.executable, "-c", SAVING, str(path), str(Path(__file__).parent / "support")]
        with subprocess.Popen(line, stdout=subprocess.PIPE, env=dict(os.environ)) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
        assert path.read_bytes() in whole
