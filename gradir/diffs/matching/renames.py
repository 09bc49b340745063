"""What explains that a node has another id: a prefix with another name, or an index that has shifted."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.ids import encode_component, split_id, split_last, without_indices, without_ordinal

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from gradir.ir import Node

# More names than the modules of a graph of 100,000 nodes have: a cache that is too small remembers none of them.
_REMEMBERED: Final = 1 << 19


class Rename(NamedTuple):
    """A prefix of names that became another; ``*`` stands for any index, the empty prefix for every name."""

    before: str
    after: str


class Naming(NamedTuple):
    """All names of a node as patterns: its module or tensor, the rest of its id, its operation, scope and names."""

    path: str
    tail: str
    op: str
    scope: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, node: Node) -> Naming:
        """Return the patterns of a node; all of a tensor's id is a path."""
        path, tail = split_id(node.id)
        if not path and not node.op:
            path, tail = tail, ""
        return cls(
            pattern(path),
            _without_ordinal(tail),
            _encoded(node.op),
            pattern(node.scope),
            tuple([pattern(name) for name in node.names]),
        )

    def renames(self, other: Naming) -> Iterator[Rename]:
        """Yield the renames that ids and scopes show."""
        if self.path != other.path:
            yield self.rename(other)
        if self.scope != other.scope:
            yield rename(self.scope, other.scope)
        if self.tail != other.tail and not (self.tail == self.op and other.tail == other.op):
            yield Rename(self.tail, other.tail)

    def rename(self, other: Naming) -> Rename:
        """Return the prefixes in which the paths differ; a tensor with its name is renamed with its module."""
        is_tensor = split_last(self.path)[0] == self.scope and split_last(other.path)[0] == other.scope
        return tensor_rename(self.path, other.path) if is_tensor else rename(self.path, other.path)

    def explained(self, other: Naming, renames: Container[Rename]) -> bool:
        """Return whether these renames make the names of one those of the other."""
        return len(self.names) == len(other.names) and all(
            before == after or rename(before, after) in renames or tensor_rename(before, after) in renames
            for before, after in zip(self.names, other.names, strict=True)
        )


def rename(before: str, after: str) -> Rename:
    """Return the prefixes in which two patterns differ.

    A common start is no part of a common end, so a module that was wrapped below its own name is renamed by itself.

    >>> rename("layers.*.attn.weight", "blocks.*.attn.weight")
    Rename(before='layers', after='blocks')
    >>> rename("model.up", "model.model.up"), rename("up", "model.up")
    (Rename(before='model', after='model.model'), Rename(before='', after='model'))
    """
    parts, other_parts = before.split(".") if before else [], after.split(".") if after else []
    kept = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(parts, other_parts, strict=False)))
    while kept < min(len(parts), len(other_parts)) and parts[-1] == other_parts[-1]:
        del parts[-1], other_parts[-1]
    return Rename(".".join(parts), ".".join(other_parts))


def tensor_rename(before: str, after: str) -> Rename:
    """Return the prefixes in which two names of a tensor differ, without its own name if that is the same.

    >>> tensor_rename("g.g", "g.g.g"), rename("g.g", "g.g.g")
    (Rename(before='g', after='g.g'), Rename(before='g.g', after='g.g.g'))
    """
    (module, name), (other_module, other_name) = split_last(before), split_last(after)
    return rename(module, other_module) if name == other_name and module != other_module else rename(before, after)


@lru_cache(maxsize=_REMEMBERED)
def pattern(name: str) -> str:
    """Return a name with ``*`` for each index."""
    return without_indices(name)


_without_ordinal = lru_cache(maxsize=_REMEMBERED)(without_ordinal)
_encoded = lru_cache(maxsize=_REMEMBERED)(encode_component)
