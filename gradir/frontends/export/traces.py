"""The line of the user's program in the text of a stack trace."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gradir.files import working_folder
from gradir.frontends.texts import plain_text
from gradir.ir import Source
from gradir.ir.text import printable

_FRAME: Final = re.compile(r'^[ \t]*File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)$', re.MULTILINE)
_INTERNAL: Final = re.compile(r"[/\\](site|dist)-packages[/\\](torch|gradir)[/\\]|^<")
_INSTALLED: Final = re.compile(r"/(?:site|dist)-packages/")


class Traces:
    """Gives the place of a trace: its innermost line that is neither torch's nor of code without a file."""

    def __init__(self, shown: Callable[[str], str], internal: tuple[str, ...] = ()) -> None:
        """``shown`` gives how a file is shown, and ``internal`` are folders of torch."""
        self._shown, self._internal = shown, internal
        self._known: dict[str, Source | None] = {}

    def __call__(self, trace: str) -> Source | None:
        """The place, or ``None`` where there is none."""
        if trace not in self._known:
            frames = [frame for frame in _FRAME.findall(trace) if not self._is_internal(frame[0])]
            self._known[trace] = None
            if frames:
                file, line, function = frames[-1]
                self._known[trace] = Source(self._shown(file), int(line), printable(plain_text(function)))
        return self._known[trace]

    def _is_internal(self, file: str) -> bool:
        return file.startswith(self._internal) or _INTERNAL.search(file) is not None


def foreign_path(file: str) -> str:
    r"""How a file is shown that another machine may have: no file of this one is looked at.

    >>> foreign_path("/venv/lib/site-packages/timm/layers/mlp.py"), foreign_path("C:\\work\\net.py")
    ('timm/layers/mlp.py', 'net.py')
    """
    path, folder = file.replace("\\", "/"), f"{working_folder()}/".replace("\\", "/")
    installed = _INSTALLED.split(path, maxsplit=1)
    if len(installed) > 1:
        return printable(plain_text(installed[-1]))
    return printable(plain_text(path[len(folder) :] if path.startswith(folder) else path.rpartition("/")[2]))
