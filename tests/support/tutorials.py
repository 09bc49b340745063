"""The tutorials of the site as sessions: their files, and what their commands print.

Run as a program, this file writes below each command what it prints now. With the paths of a page and a folder it
writes what the page is after its session in that folder to standard output.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import forked

DOCS = Path(__file__).resolve().parents[2] / "docs"
TUTORIALS = (
    "first-picture.md",
    "training.md",
    *(f"tutorials/{path.name}" for path in sorted((DOCS / "tutorials").glob("*.md"))),
)

_BLOCK = re.compile(r'^```(?:\w+ title="(?P<file>[\w.]+)"|console)\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE)
_SHELL = re.compile(r"[|&;<>$`]")


def play_page(page: Path, folder: Path) -> str:
    """The page as it is after its files were written to the folder and its commands run there, in order."""
    programs = folder / ".programs"
    programs.mkdir()
    forked.program(programs / "gradir")
    forked.program(programs / "python", ())
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "GRADIR", "GIT"))
    }
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "120", "NO_COLOR": "1"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
    done = forked.run([sys.executable, __file__, page, folder], cwd=folder, env=environment)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    return done.stdout.decode()


def _play_here(page: str, folder: Path) -> str:
    """The same in this process, which is started for it."""

    def play(block: re.Match[str]) -> str:
        if block["file"]:
            (folder / block["file"]).write_text(block["text"], encoding="utf-8")
            return block[0]
        commands = re.findall(r"^\$ (.+)$", block["text"], re.MULTILINE)
        return "```console\n" + "".join(f"$ {command}\n{_output(command, folder)}" for command in commands) + "```"

    return _BLOCK.sub(play, page)


def _output(command: str, folder: Path) -> str:
    """What a command prints, with its errors."""
    program, *arguments = [command] if _SHELL.search(command) else shlex.split(command)
    if program == "gradir":
        text = _run_forked(_gradir, arguments, folder)
    elif program == "python" and arguments[0].endswith(".py"):
        text = _run_forked(_script, arguments, folder)
    else:
        text = subprocess.run(
            ["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120
        ).stdout.decode()
    return text if not text or text.endswith("\n") else f"{text}\n"


def _run_forked(run: Callable[[list[str]], object], arguments: list[str], folder: Path) -> str:
    """What a function prints in a process of its own that need not import torch again."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if not child:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            # As Python has it for a program: the folder of a script, or none for a command.
            sys.path[0] = str(folder) if run is _script else sys.path[1]
            try:
                run(arguments)
            except SystemExit:
                pass
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
        os.waitpid(child, 0)
        file.seek(0)
        return file.read().decode()


def _gradir(arguments: list[str]) -> None:
    from gradir.cli import main

    sys.argv = ["gradir", *arguments]
    main()


def _script(arguments: list[str]) -> None:
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


def _main(arguments: list[str]) -> None:
    if arguments:
        # For the processes that are forked. Every optimizer imports the second.
        import torch
        import torch._dynamo  # noqa: F401

        import gradir.cli.main
        import gradir.frontends.pytorch.frontend  # noqa: F401

        page, folder = map(Path, arguments)
        sys.stdout.write(_play_here(page.read_text(encoding="utf-8"), folder))
        return
    for tutorial in TUTORIALS:
        with tempfile.TemporaryDirectory() as work:
            (DOCS / tutorial).write_text(play_page(DOCS / tutorial, Path(work)), encoding="utf-8")


if __name__ == "__main__":
    _main(sys.argv[1:])
