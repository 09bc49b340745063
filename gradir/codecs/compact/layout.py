"""What a compact document consists of, in order.

The magic number is followed by one MessagePack map. Its head is that of the JSON form; nodes and scopes are columns,
one integer per node or scope; what many nodes have in common is a `Kind`, stored once. docs/format.md has the whole
layout in words.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from gradir.ir.model import AttrValue, Count, Record, Shape, Source, TensorMeta, share_empty_tuples

__all__ = [
    "HEAD",
    "KEYS",
    "NODE_COLUMNS",
    "SCOPE_COLUMNS",
    "TRAINING",
    "TRAINING_WORDS",
    "Kind",
    "Slot",
    "zigzag",
]

HEAD: Final = ("format", "version", "requires")
KEYS: Final = (*HEAD, "producer", "cuts", "strings", "scopes", "kinds", "nodes")
"""The keys of the document, in order."""

SCOPE_COLUMNS: Final = ("path", "class", "detail", "calls", "own", "total", "trainable")

TRAINING: Final = "training"
"""A further column of scopes since GIR 1.1, left out where no scope knows: 0 unknown, 1 evaluating, 2 training."""

TRAINING_WORDS: Final = (None, False, True)

NODE_COLUMNS: Final = (
    "kind",  # one per node: an index of kinds
    "id",  # one per node: 0, or 1 + an index of strings
    "ordinal",  # one per node: the number at the end of the id, or 0
    "scope",  # one per node: an index of strings
    "names",  # one per name: an index of strings
    "in",  # one per input slot: 0, or how many places before the node the producer stands
    "in_at",  # one per input that is not output 0 of its producer: which of the entries of "in" it is
    "in_nr",  # and which output
    "base",  # one per node with a base: how many places before the node the base stands
    "origin",  # one per saved slot: 0, or 1 + zigzag(the node's place - the origin's place)
    "origin_at",  # one per origin that is not output 0 of its node: which of the entries of "origin" it is
    "origin_nr",  # and which output
    "storage",  # one per saved slot: 0, or 1 + an index of the storages
    "storage_node",  # one per storage: 0, or 1 + the place of the node whose id the key starts with
    "storage_text",  # one per storage: what follows, an index of strings
)


class Slot(Record, frozen=True, gc=False):
    """What the saved slots of many nodes have in common: a `Saved` without origin and storage."""

    slot: str
    dtype: str | None = None
    shape: Shape | None = None
    bytes: Count | None = None
    state: str = "held"


class Kind(Record, frozen=True, gc=False, rename={"inputs": "in", "outputs": "out"}):
    """What many nodes have in common: a `Node` without its id, its scope and what names other nodes.

    ``names`` and ``in`` are numbers of entries in the columns of these names, and ``base`` says whether the node has
    an entry in that column.
    """

    role: str = "function"
    op: str = ""
    native: str = ""
    names: Count = 0
    inputs: Count = 0
    outputs: tuple[TensorMeta, ...] = ()
    attrs: Mapping[str, AttrValue] = {}
    saved: tuple[Slot, ...] = ()
    base: bool = False
    opaque: bool = False
    source: Source | None = None
    ext: Mapping[str, AttrValue] = {}

    if sys.version_info < (3, 11):

        def __post_init__(self) -> None:
            share_empty_tuples(self)


def zigzag(distance: int) -> int:
    """A signed integer as an unsigned one, small where it is close to 0.

    >>> [zigzag(distance) for distance in (0, -1, 1, -2, 2)]
    [0, 1, 2, 3, 4]
    """
    return distance * 2 if distance >= 0 else -distance * 2 - 1
