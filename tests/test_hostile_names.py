"""Names of files and texts of a graph that would act on a terminal, forge a line, or be live in Markdown."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from git_places import change_eps, runner
from hostile_texts import HOSTILE_TEXTS, graph_of
from markdown_it import MarkdownIt
from msgspec.structs import replace
from plugins import BUILT_IN
from samples import everything
from tools import find

import gradir
from gradir.cli import main
from gradir.cli.main import COMMANDS as NAMES
from gradir.ir import Collective, Cut, Graph, Node, Rank, Scope, Source, TensorMeta

pytest_plugins = ["git_fixtures"]

FORGED = "forged.gir: valid, 1 nodes"
NAME = f"a\x1b[31m\x9b\x7f\u202e\r\n{FORGED}\u2028.gir"
SHOWN = NAME.replace("\\", "\\\\").encode("unicode_escape").decode()
HARMLESS = "\n"

COMMANDS = [
    ["debug"],
    ["info", NAME],
    ["info", "--json", "hostile.gir"],
    ["validate", NAME],
    ["validate", "--strict", NAME],
    ["validate", "broken", NAME],
    ["convert", NAME, f"new {NAME}"],
    ["export", NAME, "--to", "tree", "--drop", NAME],
    ["export", NAME, "--to", NAME],
    ["export", NAME, "--to", "tree", "-O", NAME],
    ["export", NAME, "--to", "tree", "--into", f"{NAME}.md", "--marker", "m", "--check"],
    ["export", NAME, "--to", "tree", "--into", f"{NAME}.md", "--marker", NAME],
    ["summary", NAME],
    ["explain", "hostile.gir"],
    ["summary", NAME, "--style", NAME],
    ["diff", NAME, "b.gir"],
    ["diff", NAME, f"{NAME}:{NAME}"],
    ["diff", NAME, "b.gir", "--fail-on", NAME],
    ["diff", NAME, "hostile.gir", "--full"],
    ["diff", NAME, "hostile.gir", "--format", "json"],
    ["diff", NAME, "hostile.gir", "--format", "markdown"],
    ["patch", "b.gir", NAME],
    ["patch", NAME, "missing"],
    ["merge", NAME, "hostile.gir", "missing"],
    ["merge", "hostile.gir", "b.gir", "hostile.gir", NAME],
    ["view", f"missing {NAME}"],
    ["exporters", NAME],
    ["completion", NAME],
    ["help", NAME],
    ["git", "textconv", "hostile.gir"],
    ["git", "difftool", NAME, "hostile.gir", NAME],
    ["git", "diff", NAME],
    ["git", "diff", NAME, "missing", "0", "0", "hostile.gir", "0", "0"],
    ["git", NAME],
    ["git", "status", "--local"],
    ["git", "install"],
    ["capture", f"{NAME}:loss"],
    ["export", NAME, "-o", f"{NAME}.odd"],
    ["export", NAME, "--to", "tree", "-o", f"{NAME}.svg"],
    ["run", f"absent {NAME}", "-o", NAME],
    ["ranks", NAME],
    ["ranks", "ranked.gir", "other.gir"],
    ["run", "empty.py", NAME, "-o", NAME],
    ["watch", f"absent {NAME}"],
    ["watch", "-o", f"{NAME}.jsonl", "empty.py", NAME],
    ["check", f"{NAME}:loss", "--against", NAME],
    ["check", "missing.py:loss", "--against", f"missing {NAME}"],
    [NAME],
    ["info", NAME, NAME],
    ["info", f"--{NAME}"],
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Path:
    """A repository whose path and files have hostile names."""
    root = tmp_path / f"in {NAME}"
    root.mkdir()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if find("git"):
        runner(root, environment)("git", "init", "-q")
    monkeypatch.chdir(root)
    gradir.save(everything(), NAME)
    gradir.save(change_eps(), "b.gir")
    gradir.save(
        graph_of("".join(map(HOSTILE_TEXTS.__getitem__, ("controls", "newlines", "right to left")))), "hostile.gir"
    )
    Path(f"{NAME}.md").write_text("<!-- gradir: m -->\n<!-- /gradir: m -->\n")
    hostile = Collective("forward", NAME, NAME, tensors=(TensorMeta(NAME),), node=NAME, source=Source(NAME, 1))
    for rank, name in enumerate(("ranked.gir", "other.gir")):
        told = Rank(rank, 2, NAME, groups={NAME: (0, 1)})
        gradir.save(replace(everything(), rank=told, collectives=(hostile,) * rank), name)
    Path("empty.py").touch()
    Path("broken").symlink_to(root / f"missing {NAME}")
    return root


def test_every_command_is_tried() -> None:
    assert {*NAMES} <= {command[0] for command in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command[0]}-{len(command)}")
def test_hostile_names_cannot_break_lines_of_output(
    command: list[str], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            status = main(command)
        except SystemExit as error:
            status = int(error.code or 0)
    assert status in {0, 1, 2}
    out, err = capfd.readouterr()
    assert out or err or command[0] == "convert"
    for stream in (out, err):
        assert all(char.isprintable() for char in stream if char not in HARMLESS), stream
        assert not any(line.startswith("forged") for line in stream.splitlines())
    assert "internal error" not in err


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS.keys())
@pytest.mark.parametrize("exporter", BUILT_IN)
def test_an_export_holds_nothing_that_acts_on_a_terminal(exporter: str, text: str) -> None:
    exported = graph_of(text).to(exporter)
    # DOT is indented by tabs.
    lines = [line.lstrip("\t") if exporter == "dot" else line for line in exported.split("\n")]
    assert all(map(str.isprintable, lines))


def test_a_detail_does_not_pass_for_modules() -> None:
    for detail in (
        "(b): Linear(",
        "x\n  (b): Linear()",
        "x\n)\n(b): Linear()",
        "x\n)",
        "x\r\n  (b): Linear()",
        "a\n\nb",
    ):
        for children in ([], [Scope("c", "Tanh")]):
            read = Graph.of([], [Scope("", "Net", detail), *children]).to("modules").splitlines()
            inner = [line for line in read if line.startswith("  ") or line == ")"]
            assert [line for line in inner if line.startswith("  (")] == ["  (c): Tanh()"] * len(children)
            assert [line for line in read if line.startswith(("(", ")"))] in ([], [")"])
            assert read[0].startswith("Net(")


def test_a_detail_of_real_modules_is_as_they_print_it() -> None:
    norm = Scope("", "Norm", "(5,), eps=1e-05")
    assert Graph.of([], [norm, Scope("c", "Tanh")]).to("modules") == "Norm(\n  (5,), eps=1e-05\n  (c): Tanh()\n)\n"
    assert Graph.of([], [norm]).to("modules") == "Norm((5,), eps=1e-05)\n"


LIVE = (
    "@octocat",
    "@org/team",
    "#12",
    "GH-12",
    "org/repo#1",
    "http://evil.example",
    "https://evil.example/a?b",
    "www.evil.example",
    "someone@evil.example",
    "0123456789abcdef0123456789abcdef01234567",
    "deadbee",
    ":smile:",
    "$x$",
    "[a](b)",
    "![a](b)",
    "<img src=x>",
    "*bold*",
    "~~gone~~",
    "a|b",
    "`code`",
    "``",
    " ` ",
    " both ends ",
    "\\",
    "&amp;",
    "^[note]",
    "[^1]",
    "- item",
    "# title",
)


def live_parts(markdown: str) -> list[str]:
    """What Markdown shows as anything but code."""
    found = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown):
        assert token.type != "html_block" or token.content.startswith(("<details>", "</details>")), token
        found += [child.content for child in token.children or () if child.type != "code_inline"]
        assert all(child.type in _PLAIN for child in token.children or ()), token
    return found


_PLAIN = {"code_inline", "hardbreak", "softbreak", "strong_close", "strong_open", "text"}


@pytest.mark.parametrize("text", LIVE)
def test_nothing_in_markdown_is_live(text: str) -> None:
    scopes = [Scope("m", text), Scope(f"{text}.{text}", "B", text)]
    leaf = Node("x", role="leaf", names=(text,), outputs=(TensorMeta(text, (text,)),), scope=f"{text}.{text}")
    before = Graph.of([leaf], [scopes[0]])
    after = Graph.of(
        [Node(f"{text}/exp:{n}", op=text, native=text, scope=f"{text}.{text}", attrs={text: text}) for n in range(3)],
        scopes,
        [Cut(text, (text,), text, TensorMeta(text, (text,)))],
    )
    word = text.strip(" `|\\") or text
    for a, b in ((before, after), (after, before), (Graph.of([]), after)):
        report = gradir.diff(a, b).to("markdown")
        assert report.startswith("### Autograd graph\n")
        assert not [part for part in live_parts(report) if word in part]
    for graph in (before, after):
        assert not [part for part in live_parts(graph.to("summary", style="markdown")) if word in part]


def test_a_code_span_shows_its_text_exactly() -> None:
    for text in (*LIVE, " ", "  ", " a", "a ", "`", "a`", "a``b", "|", "\\|", "`|`"):
        row = f"| a |\n|---|\n| {gradir.markdown.code_span(text)} |\n"
        tokens = MarkdownIt("commonmark").enable("table").parse(row)
        inline = [token for token in tokens if token.type == "inline"][1]
        assert [child.content for child in inline.children or () if child.content] == [text]
