"""Every way in which a file can be broken: one line with the file, the place, what is wrong and what to do."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest
import zstandard
from samples import chain, everything

import gradir
from gradir import codecs
from gradir.cli import main
from gradir.codecs.strict import check_canonical, check_keys
from gradir.errors import FormatError
from gradir.ir import Graph

MARK = b"\xef\xbb\xbf"
TEXT = gradir.dumps(everything())
PACKED = gradir.dumps(everything(), format="msgpack")
HEAD = b'{"format":"gir","version":"1.0","nodes":['

AGAIN = "fetch the file again, or write it again"
UNDO = "undo the last edit of the file, or capture the graph again"
CAPTURE = "gradir capture writes one"
UPGRADE = "upgrade gradir"


def packed(**changes: object) -> bytes:
    return msgpack.packb(msgpack.unpackb(PACKED) | changes)


def nodes(text: str) -> bytes:
    return HEAD + text.encode() + b"]}"


SQUEEZED = gzip.compress(TEXT, mtime=0)

BROKEN: dict[str, tuple[bytes, str, str, str]] = {
    "empty": (b"", "", "the file is empty", AGAIN),
    "an exported program": (b"PK\x03\x04...", "", "a zip archive, not a GIR document", f"{CAPTURE} of a .pt2 file"),
    "something else": (b"digraph {}", "", "not a GIR document: it starts with neither", CAPTURE),
    "other json": (b'{"a":1}', "", "not a GIR document: its head", CAPTURE),
    "truncated json": (TEXT[:300], "line 5, byte 300", "broken JSON: it was truncated", AGAIN),
    "truncated json with a mark": (MARK + TEXT[:300], "line 5, byte 303", "broken JSON: it was truncated", AGAIN),
    "broken json": (HEAD + b"x", "byte 41", "broken JSON: ", UNDO),
    "broken json with a mark": (MARK + HEAD + b"x", "byte 44", "broken JSON: ", UNDO),
    "no text": (nodes('{"id":"%"}').replace(b"%", b"\xff"), "byte 48", "not UTF-8", AGAIN),
    "no text with a mark": (MARK + nodes('{"id":"%"}').replace(b"%", b"\xff"), "byte 51", "not UTF-8", AGAIN),
    "half a pair with a mark": (MARK + nodes('{"id":"\\ud800"}'), "byte 51", "surrogate", UNDO),
    "compressed json": (gzip.compress(TEXT[:300]), "line 5, byte 300 after decompression", "it was truncated", AGAIN),
    "deep json": (b'{"a":' * 10_000, "", "broken JSON: ", UNDO),
    "wrong type": (nodes('{"id":1}'), "$.nodes[0].id", "expected `str`, got `int`", UNDO),
    "missing field": (nodes('{"op":"a"}'), "$.nodes[0]", "object missing required field `id`", UNDO),
    "version 7": (TEXT.replace(b'"version":"1.0"', b'"version":"7.0"'), "$.version", "newer than 1.0", UPGRADE),
    "version 7, msgpack": (packed(version="7.0"), "$.version", "newer than 1.0", UPGRADE),
    "no version": (packed(version="one"), "$.version", "expected MAJOR.MINOR", UNDO),
    "no such version": (packed(version="0.9"), "$.version", "unknown GIR version 0.9", UNDO),
    "requires": (packed(requires=["x"]), "$.requires", "requires 'x', unknown", UPGRADE),
    "requires nothing": (packed(requires=1), "$.requires", "not a list of names", UNDO),
    "dangling edge": (nodes('{"id":"a","in":[["b",0]]}'), "node 'a'", "names 'b', which is not a node", UNDO),
    "cycle": (nodes('{"id":"a","in":[["a",0]]}'), "node 'a'", "comes after it", UNDO),
    "no such output": (nodes('{"id":"a","out":[{}]},{"id":"b","in":[["a",1]]}'), "node 'b'", "no such output", UNDO),
    "dangling base": (nodes('{"id":"a","base":"b"}'), "node 'a'", "its base names 'b'", UNDO),
    "dangling origin": (nodes('{"id":"a","saved":[{"slot":"s","origin":["b",0]}]}'), "node 'a'", "names 'b'", UNDO),
    "strange id": (nodes('{"id":"a\\n"}'), "node 'a", "printable characters only", UNDO),
    "id twice": (nodes('{"id":"a"},{"id":"a"}'), "node id 'a'", "occurs twice", UNDO),
    "damaged gzip": (SQUEEZED[:20] + b"\0" * 50 + SQUEEZED[70:], "byte 0", "damaged gzip data, in the ", AGAIN),
    "truncated gzip": (SQUEEZED[:90], "byte 90", "damaged gzip data: it was truncated", AGAIN),
    "more after gzip": (SQUEEZED + b"more", f"byte {len(SQUEEZED):,}", "something else follows it", AGAIN),
    "truncated zstd": (zstandard.compress(TEXT)[:90], "byte 90", "damaged zstd data: it was truncated", AGAIN),
    "compressed twice": (gzip.compress(SQUEEZED), "", "compressed twice", "decompress it once"),
    "bomb": (
        gzip.compress(TEXT + b" " * (4 << 20)),
        "",
        "the limit for a graph",
        "if you trust the file, decompress it first",
    ),
    "white space": (gzip.compress(b" " * (4 << 20)), "", "not a GIR document", "gradir capture writes one"),
    "truncated msgpack": (PACKED[:202], "byte 199", "a length leads past the end of the file", AGAIN),
    "truncated msgpack, between values": (PACKED[:52], "byte 52", "it was truncated", AGAIN),
    "more after msgpack": (PACKED + b"x", f"byte {len(PACKED):,}", "more bytes after the document", AGAIN),
    "compressed msgpack": (gzip.compress(PACKED[:52]), "byte 52 after decompression", "it was truncated", AGAIN),
    "no value": (PACKED.replace(b"\xa4cuts", b"\xa4cuts\xc1"), "byte ", "no value starts with this byte", AGAIN),
    "no text, msgpack": (PACKED.replace(b"norm.bias", b"norm.b\xffas"), "byte ", "a text is not UTF-8, invalid", AGAIN),
    "number for a key": (packed(producer={1: 1}), "byte ", "broken MessagePack: a key is not a text", AGAIN),
    "deep msgpack": (b"\x81\xa1a" * 10_000, "byte 3,072", "nested too deeply", AGAIN),
    "missing version": (b'{"format":"gir","nodes":[]}', "$", 'no "version"', UNDO),
    "large number": (nodes('{"id":"a","opaque":1e999}'), "$.nodes[0].opaque", "number out of range", UNDO),
    "large number in a row": (nodes('{"id":"a","in":[["a",1e999]]}'), "$.nodes[0].in[0][1]", "out of range", UNDO),
    "broken json of several lines": (HEAD + b"\n\n{},\nx\n]}\n", "line 4, byte 47", "broken JSON: ", UNDO),
    "wrong type, msgpack": (packed(nodes=[{"id": 7}]), "$.nodes[0].id", "expected `str`, got `int`", UNDO),
    "extension": (packed(producer=msgpack.ExtType(1, b"")), "byte ", "extension type 1", AGAIN),
}


@pytest.mark.parametrize(("data", "place", "problem", "advice"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_one_line_with_place_and_advice(
    data: bytes, place: str, problem: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.gir"
    path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        gradir.load(path)
    error = caught.value
    line = str(error)
    assert error.file == str(path)
    assert error.advice == advice
    assert line.startswith(f"{path}: {place}" if place[:1] in "bcln" else f"{path}: ")
    assert place in line
    assert problem in line
    assert line.endswith(f"; {advice}")
    assert line.count(advice) == 1
    assert line.isprintable()
    assert main(["validate", str(path)]) == 2
    assert capsys.readouterr().err == f"gradir: {line}\n"


@pytest.mark.parametrize(
    ("check", "data", "line"),
    [
        (check_keys, nodes('{"id":"a","op":"b","op":"c"}'), "$.nodes[0]: the key 'op' occurs twice in one obj"),
        (check_canonical, TEXT.replace(b"\n", b"\r\n"), "line 1: valid, but not in canonical form"),
        (check_canonical, gzip.compress(TEXT.replace(b"\n", b"\r\n"), mtime=0), "line 1 after decompression: valid"),
        (check_canonical, TEXT + b"\n", ": valid, but not in canonical form: ''; gradir convert makes it so"),
        (check_canonical, PACKED.replace(b"\xa3gir", b"\xd9\x03gir"), "byte 8: valid, but not in canonical form"),
        (check_keys, MARK + HEAD + b'],"x":"\xff"}', "byte 51: broken JSON: not UTF-8"),
        (check_keys, gzip.compress(HEAD + b'],"x":"\xff"}', mtime=0), "byte 48 after decompression: broken JSON"),
        (check_keys, MARK + '{"é": x'.encode(), "byte 10: broken JSON: expecting value"),
    ],
)  # fmt: skip
def test_only_a_strict_reader_reports_these_faults(check: Callable[[bytes], object], data: bytes, line: str) -> None:
    with pytest.raises(FormatError) as caught:
        check(data)
    assert line in str(caught.value)
    assert caught.value.advice


def test_bytes_are_counted_in_the_file_whatever_it_starts_with() -> None:
    found = []
    for start in (b"", MARK, b" \n", MARK + b" "):
        data = start + HEAD + b'{"id":"a" "op"'
        with pytest.raises(FormatError) as caught:
            gradir.loads(data)
        found.append(data[int(caught.value.place.rpartition("byte ")[2]) :])
    assert found == [b'"op"'] * 4


def test_a_mark_changes_no_graph() -> None:
    graph: Graph = chain(3)
    assert gradir.loads(MARK + gradir.dumps(graph)) == graph
    assert codecs.survey(MARK + gradir.dumps(graph)) == codecs.survey(gradir.dumps(graph))
