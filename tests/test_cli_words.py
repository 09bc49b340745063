"""What commands share: the words for standard input and output, and lists that stand where they are declared."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from diff_pairs import edit_sample
from samples import everything

import gradir
from gradir import codecs, registry
from gradir.cli import main
from gradir.diffs import ignoring
from gradir.diffs.diff_json import encode as encode_diff
from gradir.protocols import Options
from gradir.review import conditions

Read = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds a.gir, other.gir and a.json, the diff of both, and is the working directory."""
    monkeypatch.chdir(tmp_path)
    gradir.save(everything(), "a.gir")
    gradir.save(edit_sample(), "other.gir")
    Path("a.json").write_bytes(encode_diff(gradir.diff(edit_sample(), everything())))
    Path("program.py").write_text("loss = None\n")
    return tmp_path


def reads(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


READERS = {
    "export": "export - --to tree",
    "export with a pass": "export - --to tree --focus x",
    "view": "view -",
    "summary": "summary -",
    "diff before": "diff - a.gir",
    "diff after": "diff a.gir -",
    "patch": "patch - a.json",
    "patch, the diff": "patch a.gir -",
    "merge, the base": "merge - a.gir a.gir",
    "merge, theirs": "merge a.gir a.gir -",
    "check": "check program.py:loss --against -",
    "info": "info -",
    "info as JSON": "info - --json",
    "validate": "validate -",
    "validate strictly": "validate --strict -",
    "convert": "convert - b.gir",
    "convert with loss": "convert - b.gir --lossy",
}


@pytest.mark.parametrize("words", READERS.values(), ids=READERS)
def test_standard_input_has_one_name(words: str, monkeypatch: pytest.MonkeyPatch, capfd: Read) -> None:
    reads(b'{"format":', monkeypatch)
    assert main(words.split()) == 2
    assert capfd.readouterr().err.startswith("gradir: standard input: ")
    monkeypatch.setattr(sys, "stdin", None)
    assert main(words.split()) == 2
    assert capfd.readouterr().err == "gradir: standard input: cannot be read: it is closed\n"


def test_standard_input_has_its_name_where_the_graph_is_good(monkeypatch: pytest.MonkeyPatch, capfd: Read) -> None:
    good = Path("a.gir").read_bytes()
    for words, status, said in (
        ("validate -", 0, "standard input: valid, "),
        ("export - --to tree --focus nothing", 2, "gradir: standard input: "),
        ("patch - a.json", 2, "gradir: standard input: "),
    ):
        reads(good, monkeypatch)
        assert main(words.split()) == status
        told = capfd.readouterr()
        assert (told.err if status else told.out).startswith(said)


@pytest.mark.parametrize(
    "command", ["export", "view", "summary", "diff", "patch", "merge", "info", "validate", "convert"]
)
def test_the_help_has_the_same_words(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "standard input" in said
    assert "stdin" not in said
    assert "stdout" not in said


def help_of(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", ["capture", "convert", "patch"])
def test_a_new_encoding_or_compression_is_in_the_help_and_taken(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "json, msgpack (default: json)" in help_of(command, capsys=capsys)
    monkeypatch.setitem(codecs.ENCODINGS, "rows", codecs.ENCODINGS["json"])
    monkeypatch.setattr(codecs, "COMPRESSIONS", (*codecs.COMPRESSIONS, "lz9"))
    said = help_of(command, capsys=capsys)
    assert "json, msgpack, rows (default: json)" in said
    assert "gzip, zstd, lz9, none" in said
    if command == "convert":
        assert main(["convert", "a.gir", "b.gir", "--format", "rows"]) == 0
        assert gradir.load("b.gir") == everything()


@pytest.mark.parametrize("option", ["--format", "--compress"])
def test_an_unknown_encoding_or_compression_is_one_line(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["convert", "a.gir", "b.gir", option, "nothing"])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"gradir: unknown {option} 'nothing': choose from ")
    assert said.count("\n") == 1


def test_new_names_of_a_comparison_are_in_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ignoring, "WHOLE", (*ignoring.WHOLE, "streams"))
    monkeypatch.setattr(conditions, "METRICS", (*conditions.METRICS, "hops"))
    for command in ("diff", "check"):
        said = help_of(command, capsys=capsys)
        assert "indices, sequence, streams" in said
        assert "unowned, hops" in said


class Wider(Options, frozen=True, kw_only=True):
    style: Annotated[Literal["table", "html"], msgspec.Meta(description="how")] = "table"
    most_rows: Annotated[int, msgspec.Meta(description="at most 100% of them")] = 5


def test_a_new_option_of_the_layer_table_is_one_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[object] = []
    exporter = registry.exporter("summary")
    monkeypatch.setattr(type(exporter), "options", Wider)
    monkeypatch.setattr(type(exporter), "export", lambda self, graph, options: given.append(options) or "")
    assert "--most-rows integer at most 100% of them (default: 5)" in help_of("summary", capsys=capsys)
    assert main(["summary", "a.gir", "--most-rows", "7"]) == 0
    assert main(["summary", "a.gir", "-O", "most_rows=8", "--style", "html"]) == 0
    assert given == [Wider(most_rows=7), Wider(most_rows=8, style="html")]


@pytest.mark.parametrize("values", [{"depth": "0"}, {"style": "csv"}])
def test_the_layer_table_takes_options_as_export_does(
    values: Mapping[str, str], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (name, value), *_ = values.items()
    assert main(["summary", "a.gir", "-O", f"{name}={value}"]) == 0
    assert capsysbinary.readouterr().out.decode() == gradir.export(everything(), "summary", **values)


def test_a_diff_is_written_to_a_file(capfd: Read) -> None:
    difference = gradir.diff(gradir.load("a.gir"), gradir.load("other.gir"))
    for form in ("text", "markdown", "json"):
        assert main(["diff", "a.gir", "other.gir", "--format", form, "-o", "found"]) == 1
        assert Path("found").read_text() == difference.to(form)
    assert main(["diff", "a.gir", "a.gir", "-o", "found"]) == 0
    assert Path("found").read_text().startswith("no difference in the autograd graph; ")
    assert capfd.readouterr() == ("", "")


def test_a_diff_does_not_overwrite_its_inputs(capfd: Read) -> None:
    for name in ("a", "other"):
        Path(f"{name}.txt").write_bytes(Path(f"{name}.gir").read_bytes())
    for words in (["a.txt", "other.gir", "-o", "a.txt"], ["a.gir", "other.txt", "-o", "./other.txt"]):
        assert main(["diff", *words]) == 2
        assert capfd.readouterr() == ("", f"gradir: {words[-1]}: is the input file; write to another\n")
    assert gradir.load("a.txt") == everything()
    assert gradir.load("other.txt") == edit_sample()
