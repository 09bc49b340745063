"""``gradir export --into``: the block changes, and every other byte of the document stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from samples import everything

import gradir
from gradir.cli import main
from gradir.errors import ExportError
from gradir.markdown import fence_code, replace_block

BLOCK = fence_code(everything().to("tree"), "text").encode()
BEGIN, END = b"<!-- gradir: m -->", b"<!-- /gradir: m -->"

DOCUMENTS = {
    "a byte order mark": (b"\xef\xbb\xbf# Title\n\n%s\nold\n%s\n\nmore\n", b"\n"),
    "a marker behind a byte order mark": (b"\xef\xbb\xbf%s\nold\n%s\n", b"\n"),
    "CRLF": (b"# Title\r\n\r\n%s\r\nold\r\n%s\r\n\r\nmore\r\n", b"\r\n"),
    "CRLF and a byte order mark": (b"\xef\xbb\xbf%s\r\nold\r\n%s\r\n", b"\r\n"),
    "CR": (b"# Title\r%s\rold\r%s\rmore", b"\r"),
    "mixed line ends": (b"a\r\nb\n%s\nold\r\n%s\r\nc\rd\n", b"\n"),
    "no final newline": (b"# Title\n%s\nold\n%s", b"\n"),
    "no final newline and CRLF": (b"%s\r\nold\r\n%s", b"\r\n"),
    "two newlines at the end": (b"%s\nold\n%s\n\n", b"\n"),
    "blanks around the markers": (b"  %s \t\nold\n   %s  \n", b"\n"),
    "odd separators": ("a\u2028b\x0cc\x85\n%s\nold\n%s\n\x1c\x0b\n".encode(), b"\n"),
    "markers in a fence": (
        b"```html\n<!-- gradir: m -->\n<!-- /gradir: m -->\n```\n%s\nold\n%s\n~~~~ x\n~~~\n<!-- gradir: m -->\n~~~~~\n",
        b"\n",
    ),
    "markers in a fence with CRLF": (b"```\r\n<!-- gradir: m -->\r\n```\r\n%s\r\nold\r\n%s\r\n", b"\r\n"),
    "markers in an indented block": (b"So:\n\n    <!-- gradir: m -->\n\t<!-- /gradir: m -->\n\n%s\n%s\n", b"\n"),
    "a marker in a sentence": (b"Put `<!-- gradir: m -->` there.\n%s\n%s\n", b"\n"),
    "code in a line": (b"``` not a fence ``` <!-- gradir: m -->\n%s\n%s\n", b"\n"),
    "an old block with fences": (b"%s\n````text\n```\n````\n%s\n", b"\n"),
    "an old block that shows the markers": (b"%s\n```text\n<!-- /gradir: m -->\n```\n%s\n", b"\n"),
}


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    gradir.save(everything(), "model.gir")
    return tmp_path / "README.md"


def into(*more: str) -> int:
    return main(["export", "model.gir", "--to", "tree", "--into", "README.md", "--marker", "m", *more])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_all_but_the_block_is_kept(name: str, document: Path, capfd: pytest.CaptureFixture[str]) -> None:
    frame, newline = DOCUMENTS[name]
    before = frame.replace(b"%s", BEGIN, 1).replace(b"%s", END, 1)
    document.write_bytes(before)
    assert into("--check") == 1
    assert document.read_bytes() == before
    assert capfd.readouterr() == ("README.md: the block 'm' is out of date\n", "")
    assert into() == 0
    start, stop = frame.index(b"%s"), frame.rindex(b"%s")
    head_end = frame.index(newline, start) + len(newline)
    tail_start = max(frame.rfind(b"\n", 0, stop), frame.rfind(b"\r", 0, stop)) + 1
    expected = (
        frame[:head_end].replace(b"%s", BEGIN) + BLOCK.replace(b"\n", newline) + frame[tail_start:].replace(b"%s", END)
    )
    assert document.read_bytes() == expected
    assert into("--check") == into() == 0
    assert document.read_bytes() == expected
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "text",
    [
        "```\n<!-- gradir: m -->\n<!-- /gradir: m -->\n```\n",
        "    <!-- gradir: m -->\n    <!-- /gradir: m -->\n",
        "<!-- gradir: m -->\n```\n<!-- /gradir: m -->\n```\n",
        "~~~\n```\n<!-- gradir: m -->\n<!-- /gradir: m -->\n~~~\n",
        "````\n```\n<!-- gradir: m -->\n<!-- /gradir: m -->\n````\n",
        "``` \n``` x\n<!-- gradir: m -->\n<!-- /gradir: m -->\n",
        "a <!-- gradir: m -->\n<!-- /gradir: m -->\n",
        "<pre>\n<!-- gradir: m -->\n<!-- /gradir: m -->\n</pre>\n",
        "<pre>\n\n<!-- gradir: m -->\n\n<!-- /gradir: m -->\n</pre>\n",
        "<details>\n<!-- gradir: m -->\n<!-- /gradir: m -->\n</details>\n",
        "<!--\n<!-- gradir: m -->\n<!-- /gradir: m -->\n",
        "- item\n\n      <!-- gradir: m -->\n      <!-- /gradir: m -->\n",
    ],
)
def test_markers_that_are_code_or_text_do_not_count(
    text: str, document: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document.write_text(text)
    assert into() == into("--check") == 2
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 2
    assert set(errors) == {
        "gradir: README.md: it needs the lines <!-- gradir: m --> and <!-- /gradir: m -->, once each and in this "
        "order, outside code blocks, and after other HTML with an empty line between"
    }
    assert document.read_text() == text


PLACES = {
    "- item\n\n  %s\n  old\n  %s\n\n  more\n": "  ",
    "- item\n  %s\n  %s\n- next\n": "  ",
    "10. item\n\n    %s\n    %s\n": "    ",
    "- a\n  1. b\n\n     %s\n     %s\n": "     ",
    "- %s\n  %s\n": "  ",
    "> %s\n> %s\n": "> ",
    "> - a\n>\n>   %s\n>   %s\n": ">   ",
    "<details>\n\n%s\n%s\n\n</details>\n": "",
}


@pytest.mark.parametrize("frame", PLACES)
def test_in_a_list_or_a_quotation_the_block_is_part_of_it(frame: str, document: Path) -> None:
    document.write_text(frame % ("<!-- gradir: m -->", "<!-- /gradir: m -->"))
    assert into() == 0
    assert into("--check") == 0
    text = document.read_text()
    margin = PLACES[frame]
    block = "".join(f"{margin}{line}\n" if line else f"{margin.rstrip()}\n" for line in BLOCK.decode().split("\n")[:-1])
    assert f"<!-- gradir: m -->\n{block}{margin}<!-- /gradir: m -->\n" in text
    tokens = MarkdownIt("commonmark").parse(text)
    (fence,) = (token for token in tokens if token.type == "fence")
    assert fence.content == everything().to("tree")
    (before, after) = (token for token in tokens if token.type == "html_block" and "gradir: m" in token.content)
    assert before.level == fence.level == after.level


@pytest.mark.parametrize(
    "frame",
    ["- a\n\n  %s\n- b\n\n  %s\n", "- %s\n- %s\n", "> %s\n\n%s\n", "%s\n\n- a\n\n  %s\n", "- - %s\n  - %s\n"],
)
def test_markers_in_two_places_are_refused(frame: str, document: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = frame % ("<!-- gradir: m -->", "<!-- /gradir: m -->")
    document.write_text(text)
    assert into() == 2
    assert "are not in the same item of a list or the same quotation" in capfd.readouterr().err
    assert document.read_text() == text


@pytest.mark.parametrize("block", ["a\n\n<!-- /gradir: m -->\n", "<!-- gradir: m -->\n", "```\na\n", "<pre>\n"])
def test_a_block_that_would_hide_the_markers_is_refused(block: str) -> None:
    with pytest.raises(ExportError, match="contains one of these lines or hides it"):
        replace_block("<!-- gradir: m -->\n<!-- /gradir: m -->\n", "m", block)


def test_markdown_is_put_there_as_it_is(document: Path) -> None:
    document.write_text("- item\n\n  <!-- gradir: m -->\n  <!-- /gradir: m -->\n")
    line = ["export", "model.gir", "--to", "summary", "-O", "style=markdown", "--into", "README.md", "--marker", "m"]
    assert main(line) == main([*line, "--check"]) == 0
    tokens = MarkdownIt("commonmark").enable("table").parse(document.read_text())
    (table,) = (token for token in tokens if token.type == "table_open")
    assert table.level == 2
    assert not [token for token in tokens if token.type == "fence"]
    assert main([*line, "--check", "--fence"]) == 1
    assert main([*line, "--fence"]) == 0
    assert "  ```markdown\n  | layer" in document.read_text()


@pytest.mark.parametrize(
    ("style", "word"), [("table", "text"), ("csv", "csv"), ("json", "json"), ("markdown", "markdown")]
)
def test_a_fence_is_named_after_the_style(
    style: str, word: str, document: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "model.gir", "--to", "summary", "-O", f"style={style}", "--fence"]) == 0
    assert capfd.readouterr().out.startswith(f"```{word}\n")


def test_an_unfinished_fence_ends_with_the_document() -> None:
    with pytest.raises(ExportError, match="outside code blocks"):
        replace_block("```\n<!-- gradir: m -->\n<!-- /gradir: m -->\n", "m", "")


def test_a_document_in_another_encoding_is_one_line(document: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = (BEGIN + b"\n" + END).decode().encode("utf-16")
    document.write_bytes(data)
    assert into() == into("--check") == 2
    assert capfd.readouterr().err.count("\n") == 2
    assert document.read_bytes() == data


@pytest.mark.parametrize("inside", ["<!-- gradir: n -->\n", "  <!-- /gradir: n -->\n"])
def test_another_block_between_the_markers_is_not_lost(inside: str) -> None:
    with pytest.raises(ExportError, match="another block begins or ends between"):
        replace_block(f"<!-- gradir: m -->\n{inside}<!-- /gradir: m -->\n", "m", "new\n")


def test_a_quotation_without_blanks_takes_none_from_the_block(document: Path) -> None:
    document.write_text(">a\n>\n><!-- gradir: m -->\n><!-- /gradir: m -->\n")
    assert into() == 0
    assert into("--check") == 0
    (fence,) = (token for token in MarkdownIt("commonmark").parse(document.read_text()) if token.type == "fence")
    assert fence.content == everything().to("tree")
