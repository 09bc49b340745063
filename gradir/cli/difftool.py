"""What ``git difftool`` calls, once for each file that changed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gradir.errors import FormatError, GradirError

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Say which file it is, and how its graph changed; git goes on to the next file whatever the status.

    A file that was added or deleted is shown as a graph of which every part was.
    """
    from gradir import files
    from gradir.cli.comparing import compared, show
    from gradir.ir.text import printable

    if Path(options.local).is_dir() or Path(options.remote).is_dir():
        raise GradirError("folders are not compared: run git difftool without --dir-diff")
    before, after = _content(options.local), _content(options.remote)
    if not before and not after:
        raise FormatError(f"{options.name}: the file is empty")
    a, b = (_graph(data, options.name, side) for data, side in ((before, "before"), (after, "after")))
    change = "" if before and after else " (added)" if after else " (deleted)"
    found = compared(a, b, options)
    try:
        files.write_bytes("-", f"{printable(options.name)}{change}\n\n".encode())
        show(found, options)
        files.write_bytes("-", b"\n")
    except BrokenPipeError:
        # git takes a status of 126 and above for a tool that is not there, and says so.
        files.silence_stdout()
    return 0


def _content(path: str) -> bytes:
    """The bytes of one side; none where the file is not there, which git tells by the null device or an empty file."""
    from gradir import files

    return b"" if path in {"/dev/null", os.devnull} else files.read_bytes(path)


def _graph(data: bytes, name: str, side: str) -> Graph:
    from gradir import api
    from gradir.ir import Graph

    if not data:
        return Graph.of([])
    try:
        return api.loads(data)
    except FormatError as error:
        # The path is that of a temporary file, which says nothing.
        raise FormatError(f"{name} ({side}): {error}") from error
