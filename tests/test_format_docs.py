"""docs/format.md is true: its tables, its example, its readers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from documented_writer import text, write_msgpack
from hypothesis import given
from samples import chain, everything, hostile
from strategies import graphs

import gradir
from gradir.codecs import encoding_of
from gradir.codecs.compression import compression_of
from gradir.codecs.document import RELEASED, layout
from gradir.ir import Collective, Cut, Graph, Node, Rank, Saved, Scope

DOCS = (Path(__file__).parents[1] / "docs" / "format.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"^```json\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)[0]
READER, COMPARISON = re.findall(r"^```python\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)


def section(heading: str) -> str:
    return DOCS.partition(f"# {heading}\n")[2].partition("\n#")[0]


def keys(heading: str) -> list[str]:
    """The keys in the first column of the table below a heading."""
    return [
        key
        for row in re.findall(r"^\| (`.*?) \|", section(heading), re.MULTILINE)
        for key in re.findall(r"`(\w+)`", row)
    ]


def fields(record: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(record)]


def test_the_example_is_a_canonical_document() -> None:
    graph = gradir.loads(EXAMPLE.encode())
    assert gradir.dumps(graph).decode() == EXAMPLE
    assert len(graph.nodes) == 5


def test_every_field_is_documented() -> None:
    assert keys("Nodes") == fields(Node)
    assert keys("Saved tensors") == fields(Saved)
    assert keys("Scopes and cuts") == [*fields(Scope), *fields(Cut)]
    rank, _, collective = section("Several processes").partition("| key of a collective |")
    assert re.findall(r"^\| `(\w+)` \|", rank, re.MULTILINE) == fields(Rank)
    assert re.findall(r"^\| `(\w+)` \|", collective, re.MULTILINE) == fields(Collective)


def test_every_key_of_the_document_is_documented() -> None:
    assert keys("The head") == [*layout()]


def test_every_version_is_documented() -> None:
    assert re.findall(r"^\| (\d+\.\d+) \|", section("Versions"), re.MULTILINE) == list(map(str, RELEASED))


def test_the_first_bytes_are_those_of_the_table() -> None:
    gzip, zstd = (bytes.fromhex(row) for row in re.findall(r"^\| `((?:[0-9a-f]{2} ?)+)` \|", DOCS, re.MULTILINE)[:2])
    assert (compression_of(gzip), compression_of(zstd)) == ("gzip", "zstd")
    low, high, *lengths = re.findall(r"`([0-9a-f]{2})`", re.findall(r"^\| (`81` .*?) \|", DOCS, re.MULTILINE)[0])
    for start in (low, high):
        assert encoding_of(bytes.fromhex(start) + b"\xa6format") == "msgpack"
    for start, size in zip(lengths, (2, 4), strict=True):
        assert encoding_of(bytes.fromhex(start) + bytes(size) + b"\xa6format") == "msgpack"


def test_the_reader_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    assert len(READER.splitlines()) <= 40
    (tmp_path / "reader.py").write_text(READER)
    (tmp_path / "model.gir").write_bytes(gradir.dumps(everything()))
    line = [sys.executable, "-I", "-S", "reader.py", "model.gir"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"{edge.src}[{edge.output_nr}] -> {edge.dst}[{edge.input_nr}]"
        for edge in everything().edges
        if edge.kind == "data"
    ]


def test_the_comparison_of_the_encodings_holds(tmp_path: Path) -> None:
    gradir.save(everything(), tmp_path / "model.gir")
    subprocess.run([sys.executable, "-c", COMPARISON], cwd=tmp_path, check=True)


@given(graph=graphs())
def test_a_writer_by_the_docs_alone_writes_the_same_bytes(graph: Graph) -> None:
    written = gradir.dumps(graph)
    document = json.loads(written)
    assert text(document) == written
    assert write_msgpack(document) == gradir.dumps(graph, format="msgpack")


@pytest.mark.parametrize("graph", [everything(), hostile(), chain(300)])
def test_a_writer_by_the_docs_alone_writes_the_samples(graph: Graph) -> None:
    document = json.loads(gradir.dumps(graph))
    assert text(document) == gradir.dumps(graph)
    assert write_msgpack(document) == gradir.dumps(graph, format="msgpack")


def test_a_writer_by_the_docs_alone_spells_floats_alike() -> None:
    floats = [1.0, -0.0, 0.1, 1e-5, 1.5e-5, 9.9e-6, 1e-7, 1e15, 1e16, 9999999999999998.0, 1e22, 1.5e300, 5e-324, -1e16]
    graph = Graph.of([Node("a", attrs={"z": tuple(floats), "é": "\b\t\n\f\r\x01\x7f\u2028/<>", "Z": 1.0})])
    assert text(json.loads(gradir.dumps(graph))) == gradir.dumps(graph)
