"""The commands in processes of their own: what they print, their exit status, and their streams."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Run, fails, runner
from plugins import BUILT_IN
from samples import chain, everything

import gradir
from gradir.cli.main import COMMANDS


@pytest.fixture
def run(tmp_path: Path, clean_environment: dict[str, str]) -> Run:
    """Run the gradir command in a fresh directory that holds everything.gir."""
    gradir.save(everything(), tmp_path / "everything.gir")
    return runner(tmp_path, clean_environment)


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout == f"gradir {gradir.__version__}\n"
    top = run("--help").stdout
    for command in COMMANDS:
        assert command in top
        assert run(command, "--help").stdout.startswith(f"usage: gradir {command}")


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["export", "everything.gir"], ["info"], ["summary"], ["diff", "a"]]
)
def test_a_wrong_command_line_is_one_line(run: Run, arguments: list[str]) -> None:
    fails(run(*arguments), "--help")


def test_info(run: Run, golden: Callable[[str, str], None]) -> None:
    done = run("info", "everything.gir")
    assert (done.returncode, done.stderr) == (0, "")
    golden("cli/info.txt", done.stdout)


def test_validate(run: Run, tmp_path: Path) -> None:
    assert run("validate", "everything.gir").stdout == "everything.gir: valid, 10 nodes\n"
    assert run("validate", "--strict", "everything.gir").returncode == 0
    (tmp_path / "loose.gir").write_bytes((tmp_path / "everything.gir").read_bytes() + b" ")
    assert run("validate", "loose.gir").returncode == 0
    fails(run("validate", "--strict", "loose.gir"), "loose.gir", "not in canonical form")


@pytest.mark.parametrize("command", ["info", "summary", "validate", "export", "diff"])
def test_bad_files_are_one_line(run: Run, tmp_path: Path, command: str) -> None:
    more = {"export": ["--to", "plain"], "diff": ["everything.gir"]}.get(command, [])
    (tmp_path / "text.gir").write_text("digraph {}")
    (tmp_path / "empty.gir").touch()
    (tmp_path / "cut.gir").write_bytes((tmp_path / "everything.gir").read_bytes()[:500])
    absent = "neither a file nor a revision" if command == "diff" else "cannot be read: No such file or directory"
    fails(run(command, "missing.gir", *more), f"missing.gir: {absent}")
    fails(run(command, "text.gir", *more), "text.gir: not a GIR document")
    fails(run(command, "empty.gir", *more), "empty.gir: the file is empty")
    fails(run(command, "cut.gir", *more), "cut.gir: line 8, byte 500: broken JSON: it was truncated")
    fails(run(command, ".", *more), ".: cannot be read: Is a directory")


def test_export_to_a_file_and_to_stdout(run: Run, tmp_path: Path) -> None:
    printed = run("export", "everything.gir", "--to", "plain")
    assert run("export", "everything.gir", "--to", "plain", "-o", "x.txt").stdout == ""
    assert (tmp_path / "x.txt").read_text() == printed.stdout
    assert len(printed.stdout) > 100


def test_export_reads_stdin(run: Run, tmp_path: Path) -> None:
    text = (tmp_path / "everything.gir").read_text()
    assert (
        run("export", "-", "--to", "plain", input=text).stdout
        == run("export", "everything.gir", "--to", "plain").stdout
    )


def test_export_folds_with_depth(run: Run) -> None:
    full, folded = (run("export", "everything.gir", "--to", "plain", *more).stdout for more in ([], ["--depth", "1"]))
    assert "fc/addmm:1 " in full
    assert "fc/addmm:1 " not in folded


def test_export_errors_are_one_line(run: Run, tmp_path: Path) -> None:
    fails(run("export", "everything.gir", "--to", "mermiad"), "did you mean 'mermaid'", *BUILT_IN)
    fails(run("export", "everything.gir", "--to", "dot", "-O", "colour=red"), "no option 'colour'", "its options are")
    fails(run("export", "everything.gir", "--to", "dot", "-O", "direction=UP"), "direction")
    fails(run("export", "everything.gir", "--to", "dot", "-O", "direction"), "KEY=VALUE")
    fails(run("export", "everything.gir", "--to", "dot", "--depth", "-1"), "0 or more")
    fails(run("export", "everything.gir", "--to", "dot", "-o", "no/such/dir.dot"), "no/such/dir.dot: cannot be written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["everything.gir"]


def test_summary_equals_the_exporter(run: Run, tmp_path: Path) -> None:
    for options in ({}, {"depth": "0"}, {"style": "json"}, {"depth": "1", "style": "csv"}):
        given = [word for name, value in options.items() for word in (f"--{name}", value)]
        done = run("summary", "everything.gir", *given)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == gradir.export(everything(), "summary", **options)
    text = (tmp_path / "everything.gir").read_text()
    assert run("summary", "-", "--style", "markdown", "-o", "x.md", input=text).stdout == ""
    assert (tmp_path / "x.md").read_text() == gradir.export(everything(), "summary", style="markdown")


def test_summary_errors_are_one_line(run: Run, tmp_path: Path) -> None:
    fails(run("summary", "everything.gir", "--style", "latex"), "style: expected csv|json|markdown|table, not 'latex'")
    fails(run("summary", "everything.gir", "--depth", "-1"), "depth: expected integer, 0 or more, not '-1'")
    fails(run("summary", "missing.gir", "--depth", "deep"), "depth: expected integer, 0 or more, not 'deep'")
    fails(run("summary", "everything.gir", "-o", "no/such.txt"), "no/such.txt: cannot be written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["everything.gir"]


def test_a_full_disk_behind_stdout_is_one_line(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    gradir.save(everything(), tmp_path / "a.gir")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gradir", "export", "a.gir", "--to", "plain"],
            cwd=tmp_path,
            env=clean_environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        2,
        "gradir: standard output: cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("words", ["exporters", "validate a.gir", "--help", "export --to dot --help", "summary a.gir"])
def test_a_full_disk_behind_what_is_printed_is_one_line(
    words: str, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    expected = "gradir: standard output: cannot be written: No space left on device\n"
    for unbuffered in ("", "1"):
        environment = clean_environment | {"PYTHONUNBUFFERED": unbuffered}
        done = in_shell(f"{words} > /dev/full", tmp_path, environment)
        assert (done.returncode, done.stderr) == (2, expected)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("info - <&-", "standard input: cannot be read: it is closed"),
        ("info a.gir >&-", "standard output: cannot be written: it is closed"),
        ("exporters >&-", "standard output: cannot be written: it is closed"),
        ("validate a.gir >&-", "standard output: cannot be written: it is closed"),
    ],
)
def test_a_closed_stream_is_one_line(words: str, said: str, tmp_path: Path, clean_environment: dict[str, str]) -> None:
    done = in_shell(words, tmp_path, clean_environment)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gradir: {said}\n")


def test_a_command_that_prints_nothing_needs_no_stream(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    done = in_shell("convert a.gir b.gir <&- >&- 2>&-", tmp_path, clean_environment)
    assert done.returncode == 0
    assert gradir.load(tmp_path / "b.gir") == everything()


def in_shell(words: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run gradir with the redirections of a shell, in a folder that then holds a.gir."""
    gradir.save(everything(), folder / "a.gir")
    line = ["sh", "-c", f"{sys.executable} -m gradir {words}"]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["", "export", "summary", "diff", "view"])
def test_help_needs_no_encoding(command: str, tmp_path: Path, clean_environment: dict[str, str]) -> None:
    done = in_shell(f"{command} --help", tmp_path, clean_environment | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: gradir")


def test_a_warning_that_is_an_error_is_one_line(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    (tmp_path / "new.gir").write_bytes(gradir.dumps(everything()).replace(b'"version":"1.0"', b'"version":"1.7"'))
    for command in ("info", "validate"):
        line = [sys.executable, "-W", "error", "-m", "gradir", command, "new.gir"]
        done = subprocess.run(line, cwd=tmp_path, env=clean_environment, capture_output=True, text=True, check=False)
        fails(done, "GIR version 1.7 is newer than 1.0")
        assert "internal" not in done.stderr


def test_a_wrong_value_names_the_right_ones(run: Run) -> None:
    fails(
        run("export", "everything.gir", "--to", "dot", "-O", "show_saved=maybe"),
        "show_saved: expected true|false, not 'maybe'",
    )
    fails(
        run("export", "everything.gir", "--to", "dot", "-O", "direction=UP"),
        "direction: expected BT|LR|RL|TB, not 'UP'",
    )
    fails(
        run("export", "everything.gir", "--to", "tree", "-O", "max_depth=0"),
        "max_depth: expected integer, 1 to 1,000, not '0'",
    )


def test_exporters_lists_names_and_options(run: Run) -> None:
    done = run("exporters")
    *listed, pictures, _, hint = done.stdout.splitlines()
    assert [line.split()[0] for line in listed] == sorted([*BUILT_IN, *(["edges"] if "\nedges" in done.stdout else [])])
    assert pictures.startswith("svg, png, pdf  pictures")
    assert hint == "'gradir exporters NAME' lists the options of one."
    described = run("exporters", *BUILT_IN).stdout
    assert "direction=BT|LR|RL|TB" in described
    assert "null" not in described


def test_diff_statuses(run: Run, tmp_path: Path) -> None:
    gradir.save(chain(3), tmp_path / "a.gir")
    gradir.save(chain(4), tmp_path / "b.gir")
    assert run("diff", "a.gir", "a.gir").returncode == 0
    different = run("diff", "a.gir", "b.gir")
    assert different.returncode == 1
    assert "add:4" in different.stdout
    assert run("diff", "a.gir", "b.gir", "--exit-zero").returncode == 0
    assert run("diff", "a.gir", "b.gir", "--format", "json").stdout.startswith("{")
    assert "\x1b[" in run("diff", "a.gir", "b.gir", "--color", "always").stdout
    assert "\x1b[" not in different.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_quiet(unbuffered: str, tmp_path: Path, clean_environment: dict[str, str]) -> None:
    gradir.save(chain(50_000), tmp_path / "a.gir")
    command = f"{{ {sys.executable} -m gradir export a.gir --to plain; echo $? >&2; }} | head -1"
    environment = {**clean_environment, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.count("\n") == 1
    # As a shell reports it of diff(1), which dies of SIGPIPE.
    assert done.stderr == "141\n"
