"""Find the line of the user's program in the text of a stack trace."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gradir.files import working_folder
from gradir.frontends.texts import plain_text
from gradir.ir import Source
from gradir.ir.memo import Memo
from gradir.ir.text import escape_unprintable

_FRAME: Final = re.compile(r'^[ \t]*File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)$', re.MULTILINE)
_INTERNAL: Final = re.compile(r"[/\\](site|dist)-packages[/\\](torch|gradir)[/\\]|^<")
_INSTALLED: Final = re.compile(r"/(?:site|dist)-packages/")


def trace_places(shorten_path: Callable[[str], str], internal: tuple[str, ...] = ()) -> Memo[str, Source | None]:
    """Return a table of source lines by trace: the innermost line in a file that is not torch's.

    ``shorten_path`` returns the path to show for a file, and ``internal`` are folders of torch.
    """

    def place_of(trace: str) -> Source | None:
        frames = _FRAME.findall(trace)
        own = [each for each in frames if not each[0].startswith(internal) and not _INTERNAL.search(each[0])]
        if not own:
            return None
        file, line, function = own[-1]
        return Source(shorten_path(file), int(line), escape_unprintable(plain_text(function)))

    return Memo(place_of)


def foreign_path(file: str) -> str:
    r"""Return the path to show for a file of another machine, without looking at the files of this one.

    >>> foreign_path("/venv/lib/site-packages/timm/layers/mlp.py"), foreign_path("C:\\work\\net.py")
    ('timm/layers/mlp.py', 'net.py')
    """
    path, folder = file.replace("\\", "/"), f"{working_folder()}/".replace("\\", "/")
    installed = _INSTALLED.split(path, maxsplit=1)
    if len(installed) > 1:
        return escape_unprintable(plain_text(installed[-1]))
    return escape_unprintable(plain_text(path[len(folder) :] if path.startswith(folder) else path.rpartition("/")[2]))
