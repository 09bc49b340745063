"""``gradir export --into``: the block changes, and every other byte of the document stays."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from samples import everything

import gradir
from gradir.cli import main
from gradir.errors import ExportError
from gradir.markdown import embedded, fenced

BLOCK = fenced(everything().to("tree"), "text").encode()
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
    "blanks behind the markers": (b"%s \t\nold\n   %s  \n", b"\n"),
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
        "<PRE class=x>\n\n<!-- gradir: m -->\n```\n<!-- /gradir: m -->\n</PRE>\n",
        "1. a\n   - b\n\n     <!-- gradir: m -->\n     <!-- /gradir: m -->\n",
    ],
)
def test_markers_that_are_code_or_text_do_not_count(
    text: str, document: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document.write_text(text)
    assert into() == into("--check") == 2
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 2
    (error,) = set(errors)
    assert error.startswith(
        "gradir: README.md: it needs the lines <!-- gradir: m --> and <!-- /gradir: m -->, once each and in this "
        "order, outside code blocks; line"
    )
    assert error.endswith(": not alone there, in a code block or <pre>, or indented by more than 3 blanks")
    assert document.read_text() == text


def test_an_unfinished_fence_ends_with_the_document() -> None:
    with pytest.raises(ExportError, match="outside code blocks"):
        embedded("```\n<!-- gradir: m -->\n<!-- /gradir: m -->\n", "m", "")


def test_a_document_in_another_encoding_is_one_line(document: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = (BEGIN + b"\n" + END).decode().encode("utf-16")
    document.write_bytes(data)
    assert into() == into("--check") == 2
    assert capfd.readouterr().err.count("\n") == 2
    assert document.read_bytes() == data


def html(text: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(text)


def test_a_block_in_an_item_of_a_list_stays_in_it(document: Path) -> None:
    document.write_text("1. one\n\n   <!-- gradir: m -->\n   <!-- /gradir: m -->\n\n2. two\n")
    assert into() == 0
    assert into("--check") == 0
    shown = html(document.read_text())
    assert shown.count("<ol>") == 1
    code = "".join(re.findall(r'<code class="language-text">(.*?)</code>', shown, re.DOTALL))
    assert unescape(code) == everything().to("tree")


@pytest.mark.parametrize(
    "before", ["<details>\n<summary>graph</summary>\n", "<div>\n\n", "text\n", "<pre>a</pre>\n", ""]
)
def test_a_block_in_an_element_is_read_as_markdown(before: str, document: Path) -> None:
    document.write_text(f"{before}<!-- gradir: m -->\nold\n<!-- /gradir: m -->\n</details>\n")
    assert into() == 0
    assert into("--check") == 0
    written = document.read_bytes()
    assert into() == 0
    assert document.read_bytes() == written
    assert html(written.decode()).count('<code class="language-text">') == 1


def test_a_markdown_table_is_no_code(document: Path, capfd: pytest.CaptureFixture[str]) -> None:
    document.write_text("# Title\n<!-- gradir: m -->\nold\n<!-- /gradir: m -->\nmore\n")
    line = ["export", "model.gir", "--to", "summary", "-O", "style=markdown"]
    assert main([*line, "--into", "README.md", "--marker", "m"]) == 0
    assert main([*line, "--into", "README.md", "--marker", "m", "--check"]) == 0
    shown = html(document.read_text())
    assert "<code" not in shown
    assert "<th>layer</th>" in shown
    assert "<p>more</p>" in shown
    assert capfd.readouterr() == ("", "")
    for style, language in (("markdown", "markdown"), ("csv", "csv"), ("json", "json"), ("table", "text")):
        assert main([*line[:-1], f"style={style}", "--fence"]) == 0
        assert capfd.readouterr().out.startswith(f"```{language}\n")
