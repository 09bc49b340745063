"""What explains that a node has another id: a prefix with another name, or an index that has shifted."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.ids import encode_component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.ir import Node

__all__ = ["Rename", "Renamer"]

_INDEX: Final = re.compile(r"(?<![^.:/~])[0-9]+(?![^.:/~])")
_ORDINAL: Final = re.compile(r"[:~][0-9]+")


class Rename(NamedTuple):
    """A prefix of names that became another; ``*`` stands for any index, the empty prefix for every name.

    >>> Renamer().path("layers.3.attn.weight", "blocks.4.attn.weight")
    Rename(before='layers', after='blocks')
    """

    before: str
    after: str


class Renamer:
    """Finds the rename between two names; it remembers the answers."""

    def __init__(self) -> None:
        self.path = cache(_path)
        """The rename that turns one dotted name into another, ``None`` when they differ in indices at most."""
        self._pattern = cache(_pattern)

    def of(self, before: Node, after: Node) -> Iterator[Rename]:
        """The renames that two matched nodes show in their ids and scopes."""
        if before.id != after.id:
            (path, tail), (other_path, other_tail) = _parts(before), _parts(after)
            found = self.path(path, other_path)
            if found is not None:
                yield found
            if not _same_tail(tail, before.op, other_tail, after.op):
                yield Rename(self._pattern(tail), self._pattern(other_tail))
        if before.scope != after.scope:
            found = self.path(before.scope, after.scope)
            if found is not None:
                yield found


def _parts(node: Node) -> tuple[str, str]:
    """Module path and the rest of an id; all of a tensor's id is a path."""
    path, slash, tail = node.id.rpartition("/")
    return (node.id, "") if not slash and not node.op else (path, tail)


def _same_tail(before: str, op: str, after: str, other_op: str) -> bool:
    tail, other_tail = _ORDINAL.sub("", before), _ORDINAL.sub("", after)
    return tail == other_tail or (tail == encode_component(op) and other_tail == encode_component(other_op))


def _pattern(name: str) -> str:
    return _INDEX.sub("*", name)


def _path(before: str, after: str) -> Rename | None:
    old, new = _pattern(before), _pattern(after)
    if old == new:
        return None
    parts, other_parts = old.split(".") if old else [], new.split(".") if new else []
    while parts and other_parts and parts[-1] == other_parts[-1]:
        del parts[-1], other_parts[-1]
    return Rename(".".join(parts), ".".join(other_parts))
