r"""The command by which git asks for the text of a graph, and git's cache of the answers.

git caches whatever the command prints, also what it prints where gradir is missing, and would show that for ever. It
cannot be told not to, but its write to the cache fails, silently, while there is a ref below the one of the cache: no
ref can be a folder too. So where gradir gives no text the command drops the cache and puts such a ref there, the
*stop*, and takes it away once gradir gives one. That must not be in the same run of git, which still holds the other
text in memory and would write both: the stop is a tree with one entry, the process id of that run.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from gradir.git.repository import output, succeeds
from gradir.version import __version__

__all__ = ["command", "difftool_command", "forget", "is_stopped"]

_CACHE: Final = "refs/notes/textconv/gradir"
_STOP: Final = f"{_CACHE}/stop"

_FORM: Final = f"plain 1, gradir {__version__}"
"""What the text of a graph depends on: git drops its cache when the command becomes another."""

_UNSHOWABLE: Final = r"\000-\010\013\014\016-\037\177"
_BEFORE_TEXT: Final = r"\357\273\277 \t\r\n"
_UNSEEN: Final = 'echo "$(git hash-object --stdin <"$1"): no text; gradir shows it, and is missing here or failed"'
"""With its id, as git shows nothing of two files that have the same text."""

# git runs where the files of other people are. Python would import from there what PYTHONPATH names by an empty entry,
# which one colon too many makes, or by a relative one.
_NOTHING_OF_THIS_FOLDER: Final = "case :$PYTHONPATH: in *::* | *:[!/]*) unset PYTHONPATH;; esac"

# $PPID is the run of git. Trouble of git is no reason to show nothing.
_STOPPED_BY: Final = f"by=$(git ls-tree --full-tree --name-only {_STOP} 2>/dev/null)"
_GO_ON: Final = f"""{_STOPPED_BY} && test "$by" != $PPID && git update-ref -d {_STOP} 2>/dev/null; return 0"""
_PUT_STOP: Final = (
    f"git update-ref -d {_CACHE}; entry=$(git hash-object -w --stdin </dev/null); "
    rf"""tree=$(printf '100644 blob %s\t%s\n' "$entry" $PPID | git mktree); git update-ref {_STOP} $tree"""
)
_STOP_CACHE: Final = f"""{_STOPPED_BY}; test "$by" = $PPID || {{ {_PUT_STOP}; }} >/dev/null 2>&1"""

# A merge that was not finished may leave its first mark in place of the first brace.
_FIRST: Final = f"""LC_ALL=C tr -d '{_BEFORE_TEXT}' <"$1" 2>/dev/null | head -c 1"""
_SHOW_RAW: Final = (
    f"""case $({_FIRST}) in '' | '{{' | '<') LC_ALL=C tr -d '{_UNSHOWABLE}' <"$1";; *) {_UNSEEN};; esac"""
)


def command() -> str:
    """A shell command that prints a file as text, with gradir or, where that fails, as far as it is text."""
    convert = f'{_program()} git textconv -- "$1" 2>/dev/null'
    show = f"{_NOTHING_OF_THIS_FOLDER}; {convert} && {{ {_GO_ON}; }}; {_STOP_CACHE}; {_SHOW_RAW};"
    return f": {shlex.quote(_FORM)}; show() {{ {show} }}; show"


def difftool_command() -> str:
    """A shell command that prints how a file changed, of which git difftool tells the sides."""
    return f'{_NOTHING_OF_THIS_FOLDER}; {_program()} git difftool -- "$LOCAL" "$REMOTE" "$MERGED"'


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
