r"""The script that git runs gradir by, and git's cache of the texts that it shows.

git caches whatever the command prints, also what it prints where gradir is missing, and would show that for ever. It
cannot be told not to, but its write to the cache fails, silently, while there is a ref below the one of the cache: no
ref can be a folder too. So where gradir gives no text the script drops the cache and puts such a ref there, the *stop*,
and takes it away once gradir gives one. That must not be in the same run of git, which still holds the other text in
memory and would write both: the stop is a tree with one entry, the process id of that run.

The script lies beside git's settings, where it stays when gradir goes. A setting is what a reader expects, such as
``gradir merge``, behind the path of the script.
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

_NAME: Final = f"gradir {__version__}: graph texts, plain 1 in brief"
"""The command starts with it, and git names the commit of its cache by the command: a new form drops the cache."""


def script() -> bytes:
    """What the script holds."""
    return Path(__file__).with_name("gradir.sh").read_bytes()


def is_script(text: bytes) -> bool:
    """Whether this is a script that some gradir wrote."""
    return text.splitlines()[:2] == script().splitlines()[:2]


def commands(path: str) -> dict[str, str]:
    """The settings of git that hold a command, given a shell word for the path of the script."""
    run = f"sh {path} {_program()}"
    return {
        # With exec, so that the script sees which run of git asks.
        "diff.gradir.textconv": f": {shlex.quote(_NAME)}; exec sh {path} --text {_program()} git textconv --",
        "difftool.gradir.cmd": f'{run} git difftool -- "$LOCAL" "$REMOTE" "$MERGED"',
        "merge.gradir.driver": f"{run} merge -o %A -- %O %A %B %P",
    }


def _program() -> str:
    """How a shell runs gradir, without importing from the folder it is in, as ``python -m gradir`` does.

    A path to the program keeps what is installed for one user or through ``PYTHONPATH``, which the option -I does not,
    and Python 3.10 has no -P.
    """
    found = shutil.which("gradir")
    if found and Path(found).is_absolute():
        return "gradir"
    return shlex.join([sys.executable, str(Path(__file__).absolute().parents[1] / "__main__.py")])


def is_stopped() -> bool:
    """Whether git was run where gradir was missing, and caches nothing since.

    Raises:
        GitError: git is missing.
    """
    return _exists(_STOP)


def forget() -> None:
    """Drop the texts that git keeps, and let it keep new ones.

    Raises:
        GitError: git is missing, or cannot.
    """
    for ref in (_CACHE, _STOP):
        if _exists(ref):
            output(["update-ref", "-d", ref])


def _exists(ref: str) -> bool:
    return succeeds(["rev-parse", "--verify", "--quiet", ref])
