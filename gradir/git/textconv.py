r"""The script with which git runs gradir, and git's cache of the texts.

git caches whatever the command prints, also if gradir is missing, and would show that for ever. Its write to the
cache fails silently while there is a ref below the cache's ref. So if gradir gives no text, the script drops the
cache and creates such a ref, the *stop*, and removes it once gradir gives one. That must be another run of git, since
the old one still has the other text in memory. So the stop is a tree with the process id of its run.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from gradir.git.repository import output, succeeds
from gradir.version import __version__

_CACHE: Final = "refs/notes/textconv/gradir"
_STOP: Final = f"{_CACHE}/stop"

# The command starts with it, and git names the commit of its cache by the command: a new form drops the cache.
_NAME: Final = f"gradir {__version__}: graph texts, plain 1 in brief"


def script() -> bytes:
    """Return the script's text."""
    return Path(__file__).with_name("gradir.sh").read_bytes()


def is_script(text: bytes) -> bool:
    """Return whether some gradir wrote this script."""
    return text.splitlines()[:2] == script().splitlines()[:2]


def commands(path: str) -> dict[str, str]:
    """Return the settings of git that hold a command, given the quoted path of the script."""
    run = f"sh {path} {_program()}"
    return {
        # With exec, so that the script sees which run of git asks.
        "diff.gradir.textconv": f": {shlex.quote(_NAME)}; exec sh {path} --text {_program()} git textconv --",
        "difftool.gradir.cmd": f'{run} git difftool -- "$LOCAL" "$REMOTE" "$MERGED"',
        "merge.gradir.driver": f"{run} merge -o %A -- %O %A %B %P",
    }


def _program() -> str:
    """Return how a shell runs gradir without importing from the working directory.

    A path to the program keeps ``PYTHONPATH``, which the option -I does not, and Python 3.10 has no -P.
    """
    found = shutil.which("gradir")
    if found and Path(found).is_absolute():
        return "gradir"
    return shlex.join([sys.executable, str(Path(__file__).absolute().parents[1] / "__main__.py")])


def is_stopped() -> bool:
    """Return whether git ran without gradir and caches nothing since.

    Raises:
        GitError: git is missing.
    """
    return _exists(_STOP)


def forget() -> None:
    """Drop git's cached texts, and let it cache new ones.

    Raises:
        GitError: git is missing, or cannot.
    """
    for ref in (_CACHE, _STOP):
        if _exists(ref):
            output(["update-ref", "-d", ref])


def _exists(ref: str) -> bool:
    return succeeds(["rev-parse", "--verify", "--quiet", ref])
