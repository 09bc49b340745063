"""Long work tells how far it is, on a terminal alone, and an interrupt ends every command cleanly."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
from samples import chain, everything

import gradir
from gradir import progress
from gradir.cli import main
from gradir.cli import progress as shown
from gradir.cli.report import can_redraw
from gradir.progress import Stage, stage, steps

INTERRUPTED = "gradir: interrupted\n"


class Told(list[Stage]):
    """The stages of some work, with what each was when it began and how far when it ended."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.ended: dict[str, tuple[int, int]] = {}

    def append(self, each: Stage) -> None:
        self.seen.append(each.what)
        super().append(each)

    def remove(self, each: Stage) -> None:
        self.ended[each.what] = each.done(), each.total
        super().remove(each)


@pytest.fixture
def told() -> Iterator[Told]:
    """What is told of the work of a test."""
    found = Told()
    token = progress._stages.set(found)
    yield found
    progress._stages.reset(token)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where there are two files, to be in."""
    monkeypatch.chdir(tmp_path)
    gradir.save(everything(), "a.gir")
    gradir.save(chain(3), "b.gir")
    return tmp_path


def test_progress_is_not_counted_without_a_terminal() -> None:
    items = [1, 2]
    assert steps("counting", items) is items
    with stage("working", 3, lambda: pytest.fail("asked")):
        pass


def test_a_loop_that_was_left_early_ends_its_own_stage(told: Told) -> None:
    loop = iter(steps("outer", [1, 2, 3]))
    assert next(loop) == 1
    with stage("inner"):
        del loop
        assert [each.what for each in told] == ["inner"]
    assert told.ended["outer"] == (1, 3)


@pytest.mark.parametrize(
    ("line", "stages"),
    [
        ("export a.gir --to dot -o a.dot", ("reading the graph", "writing: exporter 'dot'", "writing lines")),
        ("export a.gir --to plain -o a.txt", ("writing the nodes",)),
        ("export a.gir --to html -o a.html", ("collecting the data of the page", "packing the page")),
        ("export a.gir --to tree --depth 1 -o a.txt", ("pass fold",)),
        ("diff a.gir b.gir -o d.txt", ("matching the nodes", "comparing the nodes", "grouping the changes")),
        ("convert a.gir c.gir", ("writing the graph",)),
    ],
)
def test_commands_show_their_stages(line: str, stages: tuple[str, ...], folder: Path, told: Told) -> None:
    assert main(line.split()) in {0, 1}
    assert set(stages) <= set(told.seen)
    assert told == []


def test_drawing_shows_the_layout_of_dot(folder: Path, told: Told, dot_program: str) -> None:
    assert main(["export", "b.gir", "--to", "svg", "-o", "b.svg"]) == 0
    assert "dot lays out 5 boxes and 4 arrows" in told.seen


def test_a_capture_counts_its_nodes_and_a_backward_its_functions(folder: Path, told: Told) -> None:
    pytest.importorskip("torch")
    Path("net.py").write_text("import torch\ndef loss(): return torch.ones(2, requires_grad=True).exp().sum()\n")
    assert main(["capture", "net.py:loss", "--verify", "-o", "net.gir"]) == 0
    counted = ("walking the graph", "naming the nodes", "reading the nodes", "running a backward")
    assert [told.ended[what] for what in counted] == [(3, 0), (3, 4), (5, 4), (3, 3)]


class Terminal:
    """A terminal in place of standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._own, there = pty.openpty()
        self.said = ""
        for name in ("NO_COLOR", "TERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(sys, "stderr", open(there, "w", buffering=1))  # noqa: PTH123, SIM115

    def wait(self, text: str) -> None:
        """Read until some text was drawn; a bar goes on drawing others."""
        end = time.monotonic() + 60
        while text not in self.said:
            assert select.select([self._own], [], [], max(0.0, end - time.monotonic()))[0], self.said[-1000:]
            self.said += os.read(self._own, 1 << 16).decode()


def test_a_bar_is_drawn_on_a_terminal_and_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(monkeypatch)
    monkeypatch.setattr(shown, "_AFTER", 0.0)
    assert can_redraw(sys.stderr)
    done = 3
    with shown.show_progress():
        with stage("matching the nodes", 1000, lambda: done):
            terminal.wait("3 of 1,000 ")
            done = 2000
            terminal.wait("1,000 of 1,000 ")
        with stage("reading [bold]names"):
            terminal.wait("reading [bold]names")
        after = len(terminal.said)
    print("the end", file=sys.stderr)
    terminal.wait("the end")
    # The line is erased, and the cursor is there again.
    left = terminal.said[terminal.said.rindex("\x1b[2K") :]
    assert left.replace("\x1b[?25h", "").replace("\x1b[2K", "").replace("\r", "") == "the end\n"
    assert terminal.said.count("\x1b[?25h") == terminal.said.count("\x1b[?25l") == 1
    assert "\x1b[2K" in terminal.said[after:]
    assert capfd.readouterr().out == ""


def test_a_short_step_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with shown.show_progress(), stage("reading"):
        pass
    print("the end", file=sys.stderr)
    terminal.wait("the end\r\n")
    assert terminal.said == "the end\r\n"


@pytest.mark.parametrize("names", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_none_gets_none(names: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    Terminal(monkeypatch)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert not can_redraw(sys.stderr)


def test_a_pipe_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (None, open(os.devnull, "w")):  # noqa: PTH123, SIM115
        monkeypatch.setattr(sys, "stderr", stream)
        assert not can_redraw(sys.stderr)


def started(*arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gradir", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


@pytest.mark.parametrize(
    "line",
    ["export - --to dot -o x", "diff - a.gir -o x", "view - --to html", "convert - x", "info -", "summary -"],
)
def test_an_interrupt_ends_a_command_with_one_line_and_no_file(line: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    running = started(*line.split())
    assert running.stdin is not None
    # More than a pipe holds: once it is written the command is there to read it.
    running.stdin.write(b" " * (1 << 20))
    running.stdin.flush()
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said.decode()) == (130, INTERRUPTED)
    assert sorted(folder.iterdir()) == before


def test_an_interrupt_leaves_no_dot_behind(folder: Path) -> None:
    program = folder / "dot"
    # It reads its source first: gradir waits for it by then, and no longer starts it.
    program.write_text("#!/bin/sh\ncat >source; echo $$ >pid.new; mv pid.new pid; exec sleep 600\n")
    program.chmod(0o755)
    searched = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    running = started("export", "b.gir", "--to", "svg", "-o", "b.svg", env=searched)
    while not Path("pid").exists():
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said.decode()) == (130, INTERRUPTED)
    assert not Path("b.svg").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("pid").read_text()), 0)


def test_an_interrupt_of_a_backward_ends_a_capture(folder: Path) -> None:
    pytest.importorskip("torch")
    Path("net.py").write_text(
        "import os, signal, torch\n"
        "def loss():\n"
        "    y = torch.ones(2, requires_grad=True).exp()\n"
        "    y.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGINT))\n"
        "    return y.sum()\n"
    )
    done = forked.run([sys.executable, "-m", "gradir", "capture", "net.py:loss", "--verify", "-o", "net.gir"])
    assert (done.returncode, done.stderr.decode()) == (130, INTERRUPTED)
    assert not Path("net.gir").exists()
