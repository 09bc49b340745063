"""The line of the user's program that made an equation."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

from gradir.frontends.jax.reading.jaxprs import function_place
from gradir.frontends.paths import ShownPaths, is_installed
from gradir.frontends.texts import plain_text
from gradir.ir import Source

__all__ = ["Sources", "place_text"]

_OWN: Final = f"{Path(sys.modules['gradir'].__file__ or '').parent}{os.sep}"
_AROUND: Final = f"{Path(__file__).parents[1] / 'modules'}{os.sep}"
"""What runs between two functions of the user, around the call of a module."""

_USER, _LIBRARY, _GRADIR = range(3)


class Sources:
    """Lines as they are shown, each file looked at once."""

    def __init__(self) -> None:
        self._shown = ShownPaths()
        self._kinds: dict[str, int] = {}

    def of(self, eqn: Any, library: str | None = None) -> Source | None:
        """The innermost line of the user's own that made an equation; ``None`` where the capture began below all.

        In a function of a ``library``, which is a file, it is the line of something that this calls.
        """
        trace = eqn.source_info.traceback
        for frame in trace.frames if trace is not None and library != "" else ():
            kind = self._kind(frame.file_name)
            if kind == _GRADIR or frame.file_name == library:
                return None
            if kind == _USER:
                return self._source(frame.file_name, frame.line_num, frame.function_name)
        return None

    def of_frame(self, frame: FrameType | None) -> Source | None:
        """The innermost line of the user's own that runs."""
        while frame is not None and self._kind(frame.f_code.co_filename) != _USER:
            frame = frame.f_back
        return frame and self._source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)

    def _source(self, file: str, line: int, function: str) -> Source:
        return Source(self._shown(file), line, plain_text(function.rpartition("<locals>.")[2]))

    def library_of(self, jaxpr: Any) -> str | None:
        """The file of the function that a jaxpr was traced of, if it is a library's; ``None`` if it is the user's."""
        file = function_place(jaxpr)[1]
        return None if file and self._kind(file) == _USER else file

    def _kind(self, file: str) -> int:
        kind = self._kinds.get(file)
        if kind is None:
            kind = self._kinds[file] = _kind_of(file)
        return kind


def _kind_of(file: str) -> int:
    if file.startswith(_OWN):
        return _LIBRARY if file.startswith(_AROUND) else _GRADIR
    return _LIBRARY if is_installed(file) else _USER


def place_text(source: Source | None) -> str:
    """Where something is, for an error.

    >>> place_text(Source("train.py", 7)), place_text(None)
    ('at train.py:7', 'at a line that is not known')
    """
    return f"at {source.file}:{source.line}" if source is not None else "at a line that is not known"
