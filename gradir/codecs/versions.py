"""The versions of the format: which there are, which one a graph needs, and the way from each to the newest.

A minor version adds an optional field or a new word of an open vocabulary, so a document of an older minor version is
one of the newer too. Anything else makes a major version, and a step here that rewrites documents of the version
before. Steps work on plain data: the records of past versions are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

from gradir.ir import Graph, Node, Scope
from gradir.ir.fields import fields_of, records_in
from gradir.ir.head import Head
from gradir.ir.model import Record

# Few digits, since int() of a long number takes quadratic time.
_PATTERN: Final = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")


class Version(NamedTuple):
    """A version of the format."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: object) -> Version | None:
        """Return the version in a text, or ``None``."""
        match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
        return None if match is None else cls(int(match[1]), int(match[2]))


Step = Callable[[dict[str, Any]], dict[str, Any]]
# Every version, oldest first.
RELEASED: Final = (Version(1, 0),)
NEWEST: Final = RELEASED[-1]
# The function by version that rewrites a document for the next version. Versions without one need no change.
STEPS: Final[Mapping[Version, Step]] = {}


def lowest_for(graph: Graph) -> Version:
    """Return the lowest version that can express a graph, which writers state."""
    # Documents of a version that needs steps are read, and not written.
    first = next(version for version in RELEASED if not needs_steps(version))
    held: tuple[tuple[type[Record], Iterable[Record]], ...] = (
        (Node, graph.nodes.values()),
        (Scope, graph.scopes.values()),
        (Head, (graph,)),
    )
    return max([first, *(since for kind, records in held for since in _needed(kind, records, first))])


def _needed(kind: type[Record], records: Iterable[Record], first: Version) -> Iterator[Version]:
    """Yield the versions of newer fields than the first version's that these records, or those in them, use."""
    for field in fields_of(kind):
        since = Version(*field.about.since)
        inner = records_in(field)
        if since > first and any(getattr(record, field.name) != field.default for record in records):
            yield since
        if inner is not None and _is_recent(inner, first):
            values = (getattr(record, field.name) for record in records)
            lists = (value if isinstance(value, tuple) else (value,) for value in values if value)
            yield from _needed(inner, [*chain.from_iterable(lists)], first)


@cache
def _is_recent(kind: type[Record], first: Version) -> bool:
    """Return whether a record of this kind, or one in it, has a field that the first version lacks."""
    return any(
        field.about.since > first or ((inner := records_in(field)) is not None and _is_recent(inner, first))
        for field in fields_of(kind)
    )


def needs_steps(version: Version) -> bool:
    """Return whether a document of this version must be rewritten before the newest records can hold it."""
    return any(version <= changed < NEWEST for changed in STEPS)


def upgrade(document: dict[str, Any], version: Version) -> dict[str, Any]:
    """Rewrite a document as plain data from its version to the newest, one version at a time."""
    for older, newer in pairwise(RELEASED):
        if older >= version:
            document = {**STEPS.get(older, dict)(document), "version": str(newer)}
    return document
