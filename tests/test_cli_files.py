"""The commands that read and write files in every encoding, in one process."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from functools import partial
from pathlib import Path

import msgpack
import pytest
from diff_pairs import edit_sample
from samples import everything, hostile

import gradir
from gradir.cli import main
from gradir.codecs.codec import check_known
from gradir.codecs.compression import compression_of
from gradir.diffs.diff_json import encode as encode_diff
from gradir.errors import FormatError
from gradir.ir import Graph, Node
from gradir.passes import fold, hide_shape_ops

PAIRS = [(form, compression) for form in ("json", "msgpack") for compression in ("none", "gzip", "zstd")]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds everything.gir, and is the working directory."""
    monkeypatch.chdir(tmp_path)
    gradir.save(everything(), "everything.gir")
    return tmp_path


@pytest.mark.parametrize(("form", "compression"), PAIRS)
def test_convert_and_back_is_the_same_file(form: str, compression: str, files: Path) -> None:
    assert main(["convert", "everything.gir", "other.gir", "--format", form, "--compress", compression]) == 0
    assert main(["convert", "other.gir", "again.gir"]) == 0
    assert (files / "again.gir").read_bytes() == (files / "everything.gir").read_bytes()
    for command in (["validate", "--strict"], ["info"], ["diff", "everything.gir"]):
        assert main([*command, "other.gir"]) == 0


@pytest.mark.parametrize(("name", "compression"), [("a.gir", None), ("a.gir.gz", "gzip"), ("a.gir.zst", "zstd")])
def test_the_name_asks_for_compression(name: str, compression: str | None, files: Path) -> None:
    assert main(["convert", "everything.gir", name]) == 0
    assert compression_of((files / name).read_bytes()) == compression
    assert main(["convert", "everything.gir", name, "--compress", "none"]) == 0
    assert (files / name).read_bytes() == (files / "everything.gir").read_bytes()


def test_the_name_says_nothing_to_a_reader(files: Path) -> None:
    (files / "everything.gir").rename(files / "everything.gir.gz")
    assert gradir.load("everything.gir.gz") == everything()


def test_from_standard_input_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = gradir.dumps(everything(), compress="gzip")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["convert", "-", "-", "--format", "msgpack"]) == 0
    assert capfdbinary.readouterr().out == gradir.dumps(everything(), format="msgpack")


@pytest.mark.parametrize(
    "words", [["export", "--to", "tree"], ["export", "--to", "svg"], ["export", "--to", "tree", "--fence"], ["summary"]]
)
@pytest.mark.parametrize("target", ["everything.gir", "./everything.gir", "link.gir", "hard.gir"])
def test_the_file_that_is_read_is_not_overwritten(
    words: list[str], target: str, files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (files / "link.gir").symlink_to("everything.gir")
    (files / "hard.gir").hardlink_to("everything.gir")
    assert main([*words, "everything.gir", "-o", target]) == 2
    assert capfd.readouterr().err == f"gradir: {target}: is the input file; write to another\n"
    assert gradir.load("everything.gir") == everything()


def test_an_older_picture_is_overwritten(files: Path) -> None:
    (files / "old.txt").write_text("old")
    assert main(["summary", "everything.gir", "-o", "old.txt"]) == 0
    assert (files / "old.txt").read_text() != "old"


def test_a_name_as_long_as_the_file_system_takes(files: Path) -> None:
    name = "\u5716" * 83 + ".gir"
    gradir.save(everything(), name)
    assert gradir.load(name) == everything()
    assert sorted(path.name for path in files.iterdir()) == ["everything.gir", name]


@pytest.mark.parametrize("seconds", ["nan", "0", "-1", "inf", "1e300", "soon"])
def test_seconds_are_a_time(seconds: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["export", "everything.gir", "--to", "svg", "--seconds", seconds])
    error = capfd.readouterr().err
    assert error.startswith("gradir: argument --seconds: ")
    assert error.count("\n") == 1


def test_info_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "everything.gir", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["encoding"], found["version"], found["compression"]) == ("json", "1.0", None)
    assert found["totals"] == {"nodes": 10, "edges": 10, "parameters": 12, "saved_bytes": 48}
    assert [output["id"] for output in found["outputs"]] == ["output:0", "output:1.var"]


def test_info_of_a_file_that_is_not_laid_out_as_gradir_does(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["info", "everything.gir"])
    expected = capfd.readouterr().out
    document = json.loads((files / "everything.gir").read_bytes())
    (files / "everything.gir").write_text("\ufeff" + json.dumps(document, indent=4))
    assert main(["info", "everything.gir"]) == 0
    assert capfd.readouterr().out == expected


def test_validate_reports_every_file(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (files / "broken.gir").write_bytes(b"{")
    (files / "twice.gir").write_bytes(b'{"format":"gir","version":"1.0","nodes":[{"id":"a","op":"x","op":"y"}]}')
    assert main(["validate", "broken.gir", "everything.gir", "twice.gir", "missing.gir"]) == 2
    out, err = capfd.readouterr()
    assert out == "everything.gir: valid, 10 nodes\n"
    assert [line.split(": ")[1] for line in err.splitlines()] == ["broken.gir", "twice.gir", "missing.gir"]
    assert "the key 'op' occurs twice" in err


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"role":', b'"rule":', "$.nodes[0]: object contains unknown field `rule`"),
        (b'"in":', b'"inn":', "$.nodes[2]: object contains unknown field `inn`"),
        (b'"dtype":', b'"dtipe":', "$.cuts[0].tensor: object contains unknown field `dtipe`"),
        (b'"calls":', b'"call":', "$.scopes[0]: object contains unknown field `call`"),
        (b'"framework":', b'"frame":', "$.producer: object contains unknown field `frame`"),
        (b'"line":', b'"end":9,"line":', "$.nodes[3].source: object contains unknown field `end`"),
        (b'{"float":"nan"}', b'{"float":"nan","x":1}', "$.nodes[5].attrs[...]: object contains unknown field `x`"),
        (b'["fc.weight",0]', b'["fc.weight",0,7]', "$.nodes[2].in[0]: expected `array` of length 2"),
        (b'"requires":', b'"needs":[],"requires":', "$: object contains unknown field `needs`"),
    ],
)
def test_validate_refuses_faults_that_reading_ignores(
    old: bytes, new: bytes, message: str, compression: str, files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = (files / "everything.gir").read_bytes().replace(old, new)
    (files / "odd.gir").write_bytes(data if compression == "none" else gzip.compress(data))
    gradir.load(files / "odd.gir")
    assert main(["validate", "odd.gir"]) == 2
    assert capfd.readouterr().err == f"gradir: odd.gir: {message}; correct it, or leave it out\n"
    (files / "odd.gir").write_bytes(data.replace(b'"version":"1.0"', b'"version":"1.9"'))
    assert main(["validate", "odd.gir"]) == 0
    assert capfd.readouterr().err.startswith("gradir: warning: GIR version 1.9 is newer than 1.0")


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize(
    ("known", "message"),
    [
        (b"\xa9framework\xa5torch", "$.producer: the key 'framework' occurs twice in one object"),
        (b"\xa4slot\xa4mat2", "$.nodes[3].saved[1]: the key 'slot' occurs twice in one object"),
        (b"\xa5alpha\x01", "$.nodes[3].attrs: the key 'alpha' occurs twice in one object"),
        (b"\xa4kind\xa9unreached", "$.cuts[0]: the key 'kind' occurs twice in one object"),
    ],
)
def test_validate_minds_keys_that_come_again_in_messagepack(
    known: bytes, message: str, compression: str, files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = gradir.dumps(everything(), format="msgpack")
    at = data.index(known)
    header = next(place for place in range(at - 1, 0, -1) if _is_map_around(data, place, at))
    data = data[:header] + bytes([data[header] + 1]) + data[header + 1 : at] + known + data[at:]
    (files / "odd.gir").write_bytes(data if compression == "none" else gzip.compress(data))
    assert gradir.load(files / "odd.gir") == everything()
    assert main(["validate", "odd.gir"]) == 2
    assert capfd.readouterr().err == f"gradir: odd.gir: {message}; leave one of them\n"


def _is_map_around(data: bytes, place: int, at: int) -> bool:
    """Whether a map starts at a place, of which a key stands at another."""
    if data[place] >> 4 != 8:
        return False
    unpacker = msgpack.Unpacker()
    unpacker.feed(data[place:])
    for _ in range(unpacker.read_map_header()):
        if place + unpacker.tell() == at:
            return True
        unpacker.skip()
        unpacker.skip()
    return False


@pytest.mark.parametrize("make", [everything, hostile])
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_validate_minds_nothing_that_gradir_writes(encoding: str, make, files: Path) -> None:
    gradir.save(make(), files / "written.gir", format=encoding)
    assert main(["validate", "written.gir"]) == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"role":"leaf",', b'"role": "leaf",', ": valid, but not in canonical form: '"),
        (b'"opaque":true', b'"opaque":true,"base":null', ": valid, but not in canonical form: '"),
        (b'"requires":[],', b'"requires":[ ],', "line 1: valid, but not in canonical form"),
        (b'"eps":0.00001', b'"eps":1e-5', ": valid, but not in canonical form: '"),
    ],
)
def test_strict_means_the_canonical_bytes(
    old: bytes, new: bytes, message: str, files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = files / "everything.gir"
    data = path.read_bytes()
    assert data.count(old) >= 1
    path.write_bytes(data.replace(old, new))
    assert main(["validate", "everything.gir"]) == 0
    assert main(["validate", "--strict", "everything.gir"]) == 2
    error = capfd.readouterr().err
    assert message in error
    assert "gradir convert makes it so" in error
    assert main(["convert", "everything.gir", "everything.gir"]) == 0
    assert path.read_bytes() == data


def test_strict_compact_bytes(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = gradir.dumps(everything(), format="msgpack")
    (files / "packed.gir").write_bytes(data.replace(b"\xa8requires\x90", b"\xa8requires\xdc\x00\x00"))
    assert main(["validate", "packed.gir"]) == 0
    assert main(["validate", "--strict", "packed.gir"]) == 2
    assert ": valid, but not in canonical form;" in capfd.readouterr().err


def test_a_file_of_a_newer_version_is_not_converted_unasked(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = files / "everything.gir"
    data = path.read_bytes().replace(b'"version":"1.0"', b'"version":"1.7"')
    path.write_bytes(data)
    assert main(["convert", "everything.gir", "everything.gir"]) == 2
    assert path.read_bytes() == data
    error = capfd.readouterr().err
    assert "warning: GIR version 1.7 is newer than 1.0" in error
    assert "--lossy" in error
    assert main(["validate", "--strict", "everything.gir"]) == 2
    assert main(["convert", "everything.gir", "everything.gir", "--lossy"]) == 0
    assert gradir.load(path) == everything()


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize(
    "command", [["convert", "odd.gir", "out.gir"], ["patch", "odd.gir", "no.diff", "-o", "out.gir"]]
)
def test_keys_that_nobody_knows_are_not_lost_unasked(
    files: Path, capfd: pytest.CaptureFixture[str], command: list[str], encoding: str
) -> None:
    (files / "no.diff").write_bytes(encode_diff(gradir.diff(everything(), everything())))
    data = gradir.dumps(everything(), format=encoding)
    known, odd = (b'"native":', b'"Native":') if encoding == "json" else (b"\xa6native", b"\xa6Native")
    (files / "odd.gir").write_bytes(data.replace(known, odd))
    with pytest.raises(FormatError):
        check_known((files / "odd.gir").read_bytes())
    assert main(command) == 2
    assert re.search(r"gradir: odd\.gir: .*Native.*; it would be lost: .* --lossy\n", capfd.readouterr().err)
    assert not (files / "out.gir").exists()
    assert main([*command, "--lossy"]) == 0
    assert gradir.load(files / "out.gir") == gradir.load(files / "odd.gir")


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_keys_that_nobody_knows_are_not_lost_by_a_save_unasked(encoding: str, files: Path) -> None:
    data = gradir.dumps(everything(), format=encoding)
    known, odd = (b'"native":', b'"Native":') if encoding == "json" else (b"\xa6native", b"\xa6Native")
    graph = gradir.loads(data.replace(known, odd))
    patched = gradir.patch(graph, gradir.diff(graph, edit_sample()))
    folded, hidden = fold(graph, 1), hide_shape_ops(graph)
    for unsaved in (graph, patched, gradir.unpatch(patched, gradir.diff(graph, edit_sample())), folded, hidden):
        for save in (gradir.dumps, partial(gradir.save, path="out.gir"), lambda graph: graph.save("out.gir")):
            with pytest.raises(FormatError, match=r"would be lost: \$.*: .* unknown field `Native`; .*lossy"):
                save(unsaved)
    assert not (files / "out.gir").exists()
    graph.save("out.gir", lossy=True)
    again = gradir.load("out.gir")
    assert again == graph
    assert gradir.dumps(again) == gradir.dumps(graph, lossy=True)


@pytest.mark.parametrize("key", ["a\x1b[2J", "line\nend", "\u202e", "x" * 5000])
def test_a_key_that_nobody_knows_is_quoted_in_print_and_cut_short(
    key: str, files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(gradir.dumps(everything()))
    document["nodes"][1][key] = 1
    (files / "odd.gir").write_text(json.dumps(document))
    assert main(["validate", "odd.gir"]) == 2
    line = capfd.readouterr().err.removesuffix("\n")
    assert line.isprintable()
    assert len(line) < 500
    with pytest.raises(FormatError, match="would be lost") as caught:
        gradir.dumps(gradir.load("odd.gir"))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_file_of_a_newer_version_is_not_patched_unasked(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = files / "everything.gir"
    path.write_bytes(path.read_bytes().replace(b'"version":"1.0"', b'"version":"1.7"'))
    (files / "no.diff").write_bytes(encode_diff(gradir.diff(everything(), everything())))
    command = ["patch", "everything.gir", "no.diff", "-o", "out.gir"]
    assert main(command) == 2
    assert (
        "gradir: everything.gir: GIR version 1.7 is newer than this gradir, and its new fields"
        in capfd.readouterr().err
    )
    assert main([*command, "--lossy"]) == 0
    assert gradir.load(files / "out.gir") == everything()


def test_a_wrong_encoding_names_the_right_ones(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["convert", "everything.gir", "b.gir", "--format", "xml"])
    assert "json, msgpack" in capfd.readouterr().err


def test_a_failed_save_leaves_the_old_file(files: Path) -> None:
    graph = Graph.of([Node("a", names=("\ud800",))])
    for form in ("json", "msgpack"):
        with pytest.raises(gradir.GradirError, match="surrogate"):
            gradir.save(graph, "everything.gir", format=form)
    assert gradir.load("everything.gir") == everything()
    assert [path.name for path in files.iterdir()] == ["everything.gir"]


@pytest.mark.parametrize("name", ["x.svg", "x.HTML", "x.mermaid", "x.gv", "x.pdf", "x.graphml", "x.svg.gz"])
@pytest.mark.parametrize(
    "command", ["convert everything.gir", "capture no.py:loss -o", "run no.py -o", "patch everything.gir d.json -o",
                "merge no.gir no.gir no.gir -o"]
)  # fmt: skip
def test_a_graph_is_not_written_under_the_name_of_another_format(
    command: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in Path().iterdir())
    # It is said before anything is read or run.
    assert main([*command.split(), name]) == 2
    read = capfd.readouterr()
    assert read.out == ""
    assert re.fullmatch(
        f"gradir: -o {re.escape(name)} means [a-z, ]+, but this command writes a graph; "
        f"give it a name that ends in .gir, then gradir export FILE.gir -o {re.escape(name)}\n",
        read.err,
    )
    assert sorted(path.name for path in Path().iterdir()) == before


@pytest.mark.parametrize("command", ["convert everything.gir", "capture no.py:loss -o", "run no.py -o"])
def test_a_graph_is_not_written_under_the_name_of_a_report(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "x.md"]) == 2
    assert capfd.readouterr().err == (
        "gradir: -o x.md means markdown, but this command writes a graph; give it a name that ends in .gir\n"
    )
    assert not Path("x.md").exists()


@pytest.mark.parametrize("name", ["x", "x.gir", "x.gir.gz", "x.json", "x.txt", "x.zst", "x.model", ".svg", "x.v2"])
def test_a_graph_may_be_called_as_one_likes_otherwise(name: str) -> None:
    assert main(["convert", "everything.gir", name]) == 0
    assert gradir.load(name) == everything()
