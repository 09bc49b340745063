"""Read and rewrite the file that a graph is compared with.

An update also replaces a broken file, but not one of a newer gradir, which is not broken.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from gradir import api, codecs, files
from gradir.errors import FileError, FormatError, GradirError, NewerFormatError
from gradir.ir import Graph


class Found(NamedTuple):
    """The content of a file: its graph, its error, or neither if it is missing; and its encoding."""

    name: str
    graph: Graph | None = None
    fault: str = ""
    format: str = "json"
    compress: str | None = None


def read(path: str | os.PathLike[str], update: str) -> Graph:
    """Return the graph of a file; errors suggest the command ``update``, which rewrites it."""
    if os.fspath(path) != "-" and not Path(path).exists():
        raise FileError(os.fspath(path), "read", f"no such file; {update} writes it")
    try:
        return api.load(path)
    except NewerFormatError:
        raise
    except FormatError as error:
        advice = f"{update} rewrites it" if _is_named_as_graph(path) else error.advice
        raise error.replace(advice=advice) from error


def read_to_update(path: str | os.PathLike[str]) -> Found:
    """Read a file that may be rewritten, broken or missing."""
    name = os.fspath(path)
    if not Path(path).exists():
        return Found(name)
    data = files.read_bytes(path)
    try:
        return Found(name, codecs.decode(data), "", *_form(data))
    except NewerFormatError as error:
        raise error.replace(file=name, advice=f"{error.advice}, or delete the file first") from error
    except FormatError as error:
        if not _is_named_as_graph(path):
            raise error.replace(file=name, advice="a file not named .gir is left as it is: delete it first") from error
        return Found(name, None, str(error.replace(advice="")), *_form(data))


def write(graph: Graph, path: str | os.PathLike[str], stored: Found) -> None:
    """Write a graph in place of the content found, in its encoding and compression if known."""
    if stored.graph is not None and stored.graph.read_from:
        raise NewerFormatError(
            f"GIR version {stored.graph.read_from} is newer than this gradir, and the file is left as it is",
            file=stored.name,
            advice="upgrade gradir, or delete the file first",
        )
    api.save(graph, path, format=stored.format, compress=stored.compress)


def _is_named_as_graph(path: str | os.PathLike[str]) -> bool:
    return ".gir" in Path(path).suffixes


def _form(data: bytes) -> tuple[str, str | None]:
    try:
        encoding = codecs.encoding_of(codecs.decompress(data))
    except GradirError:
        return "json", None
    return encoding, codecs.compression_of(data) or "none"
