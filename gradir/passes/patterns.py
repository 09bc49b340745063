"""Which nodes a pattern names."""

from __future__ import annotations

import re
from fnmatch import translate
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from gradir.errors import PassError
from gradir.hints import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.ir import Graph

__all__ = ["Pattern", "matching"]

Pattern: TypeAlias = Annotated[str, msgspec.Meta(title="PATTERN")]
"""What names nodes in the options of a pass."""

_MOST_NAMED: Final = 3


def matching(graph: Graph, pattern: str, what: str = "pattern") -> set[str]:
    """The ids of the nodes that a pattern names.

    A pattern is the id of a node, one of its names, or the path of a module, which stands for all nodes in it and
    below it. Where it is none of these it is a glob over all three: ``*`` is any text, dots and slashes included,
    ``?`` any character, ``[ab]`` one of these. Case counts.

    Raises:
        PassError: the pattern is empty or names no node; the message starts with ``what`` and names near misses.

    >>> from gradir.ir import Graph, Node
    >>> graph = Graph.of([Node("h.0.fc/mm:1", scope="h.0.fc"), Node("h.1.fc/mm:1", scope="h.1.fc"), Node("x")])
    >>> sorted(matching(graph, "h.0")), sorted(matching(graph, "*/mm:1"))
    (['h.0.fc/mm:1'], ['h.0.fc/mm:1', 'h.1.fc/mm:1'])
    """
    if not pattern:
        raise PassError(f"{what}: the pattern is empty; give the id or name of a node, a module's path, or a glob")
    found = _literal(graph, pattern) or _glob(graph, pattern)
    if not found:
        hint = did_you_mean(pattern, _candidates(graph), _MOST_NAMED)
        raise PassError(f"{what} {pattern!r}: no node, name or module with nodes matches{hint}")
    return found


def _candidates(graph: Graph) -> Iterator[str]:
    nodes = graph.nodes.values()
    return chain(
        graph.scopes, (node.scope for node in nodes), (name for node in nodes for name in node.names), graph.nodes
    )


def _literal(graph: Graph, pattern: str) -> set[str]:
    below = f"{pattern}."
    return {
        node.id
        for node in graph.nodes.values()
        if node.id == pattern or pattern in node.names or node.scope == pattern or node.scope.startswith(below)
    }


def _glob(graph: Graph, pattern: str) -> set[str]:
    if not re.search(r"[*?[]", pattern):
        return set()
    named = re.compile(translate(pattern)).match
    # A path has a prefix that matches exactly when it matches with anything below.
    below = re.compile(translate(f"{pattern}.*")).match
    scopes = {node.scope for node in graph.nodes.values()}
    held = {scope for scope in scopes if scope and (named(scope) or below(scope))}
    return {
        node.id
        for node in graph.nodes.values()
        if node.scope in held or named(node.id) or any(named(name) for name in node.names)
    }
