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
from pathlib import Path

import msgpack
import pytest
from bombs import bombs
from hostile_forms import FORMS, encode_form, peak_of, read, result_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from samples import chain, everything, hostile
from strategies import graphs, many

import gradir
from gradir import codecs
from gradir.cli import main
from gradir.codecs.strict import check_canonical
from gradir.ir import Graph, Node

MEMORY_PER_BYTE = 100
"""What every document here but the worst known may take."""


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


def check_law(graph: Graph) -> None:
    """Whatever is loaded can be saved in every encoding and compression, and loads as an equal graph."""
    known = replace(graph, read_from="", unknown="")
    for encoding, compression in FORMS:
        data = codecs.encode(graph, encoding, compression, lossy=True)
        again = gradir.loads(data)
        assert again == known
        assert codecs.encode(again, encoding, compression) == data
        assert check_canonical(data) == known


@given(graphs(), st.sampled_from(FORMS))
def test_a_loaded_graph_can_be_saved_in_every_form(graph: Graph, form: tuple[str, str | None]) -> None:
    check_law(gradir.loads(encode_form(graph, form)))


@pytest.mark.parametrize("name", bombs(10))
def test_a_bomb_that_loads_can_be_saved_in_every_form(name: str) -> None:
    found = read(bombs(300)[name])
    if found is not None:
        check_law(found)


@many
@given(st.data(), st.sampled_from([everything(), hostile(), chain(30)]), st.sampled_from(FORMS))
def test_damaged_files(data: st.DataObject, graph: Graph, form: tuple[str, str | None]) -> None:
    found = read(data.draw(edited(encode_form(graph, form))))
    if found is None:
        return
    check_law(found)


@many
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
    outcomes = [read(json.dumps(document).encode())]
    if not isinstance(holder[key], int) or holder[key] < 2**64:
        outcomes.append(read(msgpack.packb(document)))
        assert outcomes[0] == outcomes[1]
    if outcomes[0] is not None:
        check_law(outcomes[0])


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    for start in (b"", b"{", b"\x87\xa6format", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"):
        read(start + data)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(filter(None, form)))
def test_every_truncation(form: tuple[str, str | None]) -> None:
    data = encode_form(everything(), form).rstrip(b"\n")
    for end in range(len(data)):
        assert read(data[:end]) is None, end


@pytest.mark.parametrize("form", [form for form in FORMS if form[1]], ids="-".join)
def test_a_flipped_bit_of_any_byte_of_a_compressed_file_is_noticed_or_harmless(form: tuple[str, str]) -> None:
    data = bytearray(encode_form(everything(), form))
    for at in range(0, len(data) * 8, 5):
        data[at // 8] ^= 1 << at % 8
        found = read(bytes(data))
        assert found is None or found == everything()
        data[at // 8] ^= 1 << at % 8


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_every_damaged_byte(encoding: str) -> None:
    data = bytearray(codecs.encode(everything(), encoding))
    for at, was in enumerate(data):
        for value in {0xFF, was ^ 1}:
            data[at] = value
            read(bytes(data))
        data[at] = was


def test_lone_surrogates_in_a_file() -> None:
    assert read(b'{"format":"gir","version":"1.0","nodes":[{"id":"a","op":"\\ud800"}]}') is None
    packed = msgpack.unpackb(gradir.dumps(Graph.of([Node("a", op="b")]), format="msgpack"))
    packed["nodes"][0]["op"] = "\ud800"
    assert read(msgpack.packb(packed, unicode_errors="surrogatepass")) is None


@pytest.mark.parametrize(
    "opening", [b"[", b'{"a":', b'{"format":"gir","version":"1.0","nodes":[{"id":"a","attrs":{"a":[']
)
def test_deep_nesting_in_json(opening: bytes) -> None:
    assert read(opening * 100_000) is None
    assert read(b'{"format":"gir","version":"1.0","nodes":[],"later":' + b"[" * 500 + b"]" * 500 + b"}") is not None


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\x81\xa6format\xa3gir\xa7version\xa31.0"])
def test_deep_nesting_in_messagepack(opening: bytes) -> None:
    assert read(opening * 100_000) is None


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
