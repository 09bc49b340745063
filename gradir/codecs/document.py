"""The head of a document and what its version allows."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Final

import msgspec

from gradir.errors import FormatError, GradirWarning, GraphError
from gradir.ir import Cut, Graph, Node, Producer, Scope
from gradir.ir.validate import check

__all__ = ["FORMAT", "VERSION", "Document", "check_head", "to_graph"]

FORMAT: Final = "gir"
VERSION: Final = (1, 0)
FEATURES: Final[frozenset[str]] = frozenset()
"""The names that ``requires`` may hold for this release to read the document."""

_VERSION_PATTERN: Final = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")


class Document(msgspec.Struct, frozen=True):
    """A whole document in the order of its keys."""

    format: str
    version: str
    nodes: tuple[Node, ...]
    requires: tuple[str, ...] = ()
    producer: Producer = Producer()
    scopes: tuple[Scope, ...] = ()
    cuts: tuple[Cut, ...] = ()


def check_head(head: object) -> None:
    """Refuse a head that this release must not read, given the document as plain data.

    Raises:
        FormatError: it is not GIR, of a newer major version, or requires a feature that this release lacks.
    """
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise FormatError(f'not a GIR document: its head has no "format": "{FORMAT}"')
    version = head.get("version")
    match = _VERSION_PATTERN.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise FormatError(f'the head\'s version is {version!r}; expected MAJOR.MINOR such as "1.0"')
    major, minor = int(match[1]), int(match[2])
    ours = ".".join(map(str, VERSION))
    if major > VERSION[0]:
        raise FormatError(f"GIR version {version} is newer than {ours}, the newest this gradir reads: upgrade gradir")
    if major < VERSION[0]:
        raise FormatError(f"there is no GIR version {version}; the first is 1.0")
    requires = head.get("requires", ())
    if not isinstance(requires, (list, tuple)) or not all(isinstance(name, str) for name in requires):
        raise FormatError("the head's requires is not a list of names")
    missing = [name for name in requires if name not in FEATURES]
    if missing:
        raise FormatError(f"the document requires {', '.join(map(repr, missing))}, unknown to this gradir: upgrade it")
    if minor > VERSION[1]:
        warnings.warn(
            f"GIR version {version} is newer than {ours}; fields that this gradir does not know are ignored",
            GradirWarning,
            stacklevel=2,
        )


def to_graph(
    nodes: Sequence[Node],
    scopes: Sequence[Scope],
    cuts: Sequence[Cut],
    producer: Producer,
    *,
    inputs_checked: bool = False,
) -> Graph:
    """The graph that a decoded document describes.

    ``inputs_checked`` says that the decoder has seen to references between nodes.

    Raises:
        FormatError: the nodes break a rule of the IR.
    """
    try:
        graph = Graph.of(nodes, scopes, cuts, producer)
        if not inputs_checked or not all(graph.nodes) or not "".join(graph.nodes).isprintable():
            check(graph)
    except GraphError as error:
        raise FormatError(str(error)) from error
    return graph
