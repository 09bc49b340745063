"""Run a command where PATH has nothing but Python, git, make and the usual programs of POSIX.

Run as a program: ``python tests/support/bare_path.py COMMAND ...``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

_NAMES: Final = """
[ awk basename cat chmod cmp comm cp cut date dd df diff dirname du echo env expr false find git grep head id kill ln ls
make mkdir mkfifo mktemp mv nl nohup od paste printf ps pwd python3 readlink rm rmdir sed seq sh sleep sort split stty
tail tee test touch tr true tty uname uniq wc xargs
"""
PROGRAMS: Final = frozenset(_NAMES.split())
"""The programs of a bare machine: Python, git, make, and those that every POSIX system has."""


def _fill(folder: Path) -> None:
    """Link the programs of a bare machine into a folder."""
    for name in PROGRAMS - {"python3"}:
        found = shutil.which(name)
        if found is not None:
            (folder / name).symlink_to(found)
    # No link: an environment that is made here would have links to this folder, which goes.
    script = folder / "python3"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(Path(sys.executable).resolve()))} "$@"\n', encoding="utf-8")
    script.chmod(0o755)


def _main(command: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="gradir-bare-") as folder:
        _fill(Path(folder))
        return subprocess.run(command, env={**os.environ, "PATH": folder}, check=False).returncode


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
