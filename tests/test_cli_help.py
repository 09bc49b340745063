"""The help of the commands: two levels, no line wider than the terminal, and what was meant by a misspelt word."""

from __future__ import annotations

import re

import pytest

from gradir.cli import capture_command
from gradir.cli.main import COMMANDS, main

Read = pytest.CaptureFixture[str]
ORDER = ("arguments", "input", "output", "what to show", "comparison", "Markdown", "distributed", "advanced")


def status_of(words: list[str]) -> int:
    """Run a command line; returns its exit status."""
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)


def help_of(words: list[str], capfd: Read) -> str:
    """Return what a command line prints that asks for help."""
    assert status_of(words) == 0
    shown = capfd.readouterr()
    assert shown.err == ""
    return shown.out


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal(
    command: str, width: int, monkeypatch: pytest.MonkeyPatch, capfd: Read
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for words in ([command, "--help"], ["help", command]):
        lines = help_of(words, capfd).splitlines()
        assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("topic", ["program", "graph", "spec"])
def test_no_line_of_a_topic_is_wider_than_the_terminal(
    topic: str, monkeypatch: pytest.MonkeyPatch, capfd: Read
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    lines = help_of(["help", topic], capfd).splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= 70


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_usage_a_sentence_options_in_groups_and_two_examples(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: Read
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    short = help_of([command, "--help"], capfd)
    usage, sentence, *groups = short.rstrip().split("\n\n")
    assert re.fullmatch(rf"usage: gradir {command} \[OPTIONS\].*", usage, re.DOTALL)
    assert sentence.endswith(".")
    assert ". " not in sentence
    titles = [group.partition("\n")[0] for group in groups]
    order = [
        "arguments:",
        "input:",
        "output:",
        "what to show:",
        "comparison:",
        "Markdown:",
        "distributed:",
        "advanced:",
    ]
    assert [title for title in titles if title in order] == [title for title in order if title in titles]
    examples = next((group for group in groups if group.startswith("examples:\n")), "")
    assert examples.count(f"\n  gradir {command}") <= 2
    assert "front-end" not in short or "--frontend" in short
    assert all(line == line.rstrip() for line in short.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_in_full_has_all_that_the_short_help_has(command: str, capfd: Read) -> None:
    short, whole = help_of([command, "--help"], capfd), help_of(["help", command], capfd)
    for line in short.splitlines():
        assert line in whole or line.startswith("Run 'gradir help")
    if "Run 'gradir help" in short:
        assert len(whole) > len(short)


@pytest.mark.parametrize("width", range(30, 100, 7))
def test_an_example_that_is_too_long_continues_as_a_shell_reads_it(
    width: int, monkeypatch: pytest.MonkeyPatch, capfd: Read
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = help_of(["help", "capture"], capfd)
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.endswith("\\"))
    assert lines[first].startswith(("  gradir capture ", "  torchrun "))
    assert lines[first + 1].startswith("    ")
    # No option is broken at a hyphen.
    shell = re.sub(r" \\\n +", " ", text)
    assert all(f"  {example.partition('  # ')[0]}\n" in shell for example in capture_command.EXAMPLES)


def test_a_topic_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, capfd: Read) -> None:
    monkeypatch.setenv("COLUMNS", "66")
    assert 56 < max(map(len, help_of(["help", "program"], capfd).splitlines())) <= 66


@pytest.mark.parametrize(
    ("line", "what", "meant", "command"),
    [
        ("capure", "command 'capure'", "capture", ""),
        ("--versoin", "option '--versoin'", "--version", ""),
        ("diff --foramt json a b", "option '--foramt'", "--format", "diff "),
        ("summary a.gir --stlye=csv", "option '--stlye'", "--style", "summary "),
        ("export a.gir --focsu x", "option '--focsu'", "--focus", "export "),
        ("git instal", "command 'instal'", "install", "git "),
        ("git install --glbal", "option '--glbal'", "--global", "git install "),
        ("explain a.gir --format markdwn", "--format 'markdwn'", "markdown", "explain "),
        ("help sumary", "help topic 'sumary'", "summary", ""),
        ("check --agianst x a.gir", "option '--agianst'", "--against", "check "),
        ("merge --ouput x", "option '--ouput'", "--output", "merge "),
    ],
)
def test_a_misspelt_word_is_one_line_with_a_suggestion(
    line: str, what: str, meant: str, command: str, capfd: Read
) -> None:
    assert status_of(line.split()) == 2
    said = f"gradir: unknown {what} (did you mean '{meant}'?); see gradir {command}--help\n"
    assert capfd.readouterr().err == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("info a.gir b.gir", "unexpected argument 'b.gir'; see gradir info --help"),
        ("capture -x a.py:loss", "unknown option '-x'; see gradir capture --help"),
        ("", "expected a command; see gradir --help"),
    ],
)
def test_a_wrong_command_line_names_the_help_of_its_command(line: str, said: str, capfd: Read) -> None:
    assert status_of(line.split()) == 2
    assert capfd.readouterr().err == f"gradir: {said}\n"


@pytest.mark.parametrize("words", [[], ["capture"], ["git", "install"]])
def test_the_help_that_an_error_names_is_there(words: list[str], capfd: Read) -> None:
    assert status_of([*words, "--no-such-option"]) == 2
    named = re.search(r"see (gradir .*--help)$", capfd.readouterr().err)
    assert named
    assert help_of(named[1].split()[1:], capfd).startswith(" ".join(["usage: gradir", *words]))
