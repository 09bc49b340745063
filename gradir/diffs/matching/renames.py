"""Explain other ids of nodes: by renamed prefixes and shifted indices."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.ids import encode_component, mask_indices, remove_ordinal, split_id, split_last

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from gradir.ir import Node

# Larger than the number of names in a graph of 100,000 nodes, since a smaller cache would never hit.
_CACHE_SIZE: Final = 1 << 19


class Rename(NamedTuple):
    """A prefix of names that became another; ``*`` is any index, the empty prefix for every name."""

    before: str
    after: str


class Naming(NamedTuple):
    """All names of a node as patterns; ``path`` is its module or tensor, and ``tail`` the rest of its id."""

    path: str
    tail: str
    op: str
    scope: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, node: Node) -> Naming:
        """Return the patterns of a node; the whole id of a tensor is its path."""
        path, tail = split_id(node.id)
        if not path and not node.op:
            path, tail = tail, ""
        return cls(
            pattern(path),
            _remove_ordinal(tail),
            _encode(node.op),
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
        """Return the different prefixes of the paths; a tensor that kept its own name follows its module."""
        is_tensor = split_last(self.path)[0] == self.scope and split_last(other.path)[0] == other.scope
        return tensor_rename(self.path, other.path) if is_tensor else rename(self.path, other.path)

    def is_explained(self, other: Naming, renames: Container[Rename]) -> bool:
        """Return whether these renames turn the names into those of the other."""
        return len(self.names) == len(other.names) and all(
            before == after or rename(before, after) in renames or tensor_rename(before, after) in renames
            for before, after in zip(self.names, other.names, strict=True)
        )


def rename(before: str, after: str) -> Rename:
    """Return the different prefixes of two patterns.

    A common start is no part of a common end, so a module wrapped below its own name has a rename of its own.

    >>> rename("layers.*.attn.weight", "blocks.*.attn.weight")
    Rename(before='layers', after='blocks')
    >>> rename("model.up", "model.model.up"), rename("up", "model.up")
    (Rename(before='model', after='model.model'), Rename(before='', after='model'))
    """
    parts, other_parts = before.split(".") if before else [], after.split(".") if after else []
    common = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(parts, other_parts, strict=False)))
    while common < min(len(parts), len(other_parts)) and parts[-1] == other_parts[-1]:
        del parts[-1], other_parts[-1]
    return Rename(".".join(parts), ".".join(other_parts))


def tensor_rename(before: str, after: str) -> Rename:
    """Return the different prefixes of two names of a tensor, without its own name if both have it."""
    (module, name), (other_module, other_name) = split_last(before), split_last(after)
    return rename(module, other_module) if name == other_name and module != other_module else rename(before, after)


@lru_cache(maxsize=_CACHE_SIZE)
def pattern(name: str) -> str:
    """Return a name with ``*`` for each index."""
    return mask_indices(name)


_remove_ordinal = lru_cache(maxsize=_CACHE_SIZE)(remove_ordinal)
_encode = lru_cache(maxsize=_CACHE_SIZE)(encode_component)
