"""The records of distributed training: the process of a graph, and the messages between processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec.structs import force_setattr

from gradir.ir.frozen import NOTHING, frozen
from gradir.ir.model import HAS_MANY_EMPTY_TUPLES, About, Count, Record, Shape, Source, TensorMeta, share_empty_tuples

# msgspec omits a field only if it holds the very object that is its default.
_CPU: Final = "cpu"


class Rank(Record, frozen=True):
    """The process that a graph was captured in, one of several that train together.

    docs/format.md describes every field. ``wrappers`` has the state of each module that reduces gradients, by path:
    ``no_sync``, ``uncalled`` (only a submodule ran), ``unfinished`` (gradients are missing), ``unused`` (it searches
    for unused parameters), ``static`` (a static graph), ``hook:NAME`` and ``made:N:GROUP`` (the Nth of several).

    ``stopped`` says why a process has no graph: ``starts`` (waits before its first module), ``waits`` (in its last
    collective), ``fails`` (there), ``raises`` (an error of its own), ``joins`` (it has no more data) or ``ends``
    (before the captured step).
    """

    rank: Count
    world: Count
    device: str = _CPU
    backend: str = ""
    coordinates: Mapping[str, Count] = NOTHING
    groups: Mapping[str, tuple[Count, ...]] = NOTHING
    local: Mapping[str, Shape] = NOTHING
    stage: Count | None = None
    stages: Count = 0
    microbatches: Count = 0
    wrappers: Mapping[str, tuple[str, ...]] = NOTHING
    unreduced: tuple[str, ...] = ()
    offsets: Mapping[str, Count] = NOTHING
    accumulates: bool = False
    stopped: str = ""

    def __post_init__(self) -> None:
        for field in ("coordinates", "groups", "local", "wrappers", "offsets"):
            force_setattr(self, field, frozen(getattr(self, field)))
        if self.device is not _CPU and self.device == _CPU:
            force_setattr(self, "device", _CPU)


class Collective(Record, frozen=True, gc=False):
    """A message among the processes of a group, as one of them issues it.

    docs/format.md describes every field.
    """

    phase: str
    op: str
    group: str
    peer: Count | None = None
    reduce: str = ""
    tensors: tuple[TensorMeta, ...] = ()
    splits: tuple[tuple[Count, ...], ...] = ()
    node: Annotated[str, About(refers=True)] = ""
    scope: str = ""
    source: Source | None = None
    operands: Annotated[tuple[str, ...], About(refers=True)] = ()
    microbatch: Count | None = None

    def __post_init__(self) -> None:
        if HAS_MANY_EMPTY_TUPLES:
            share_empty_tuples(self)
