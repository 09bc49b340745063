"""The records of training on several processes: which of them a graph is of, and what they send to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec.structs import force_setattr

from gradir.ir.frozen import NOTHING, frozen
from gradir.ir.model import HAS_MANY_EMPTY_TUPLES, About, Count, Record, Shape, Source, TensorMeta, share_empty_tuples

# The very object that is the default, so that msgspec leaves the field out.
_CPU: Final = "cpu"


class Rank(Record, frozen=True):
    """The process, one of several that train together, that a graph was captured in: what may differ between them.

    ``rank`` is its number among the ``world`` processes, ``device`` the kind of device that it computes on and
    ``backend`` what carries its messages. ``groups`` has the ranks of each process group that it is in and that the
    graph or its collectives name, by label, in the group's own order; ``coordinates`` says where the process is in the
    dimensions of the mesh. ``local`` has the shape of its part of each parameter that it holds with others, by name.
    Of a pipeline, ``stage`` is the number of its first stage, of ``stages`` in all, which run ``microbatches`` a step.

    ``wrappers`` has the state of each module that reduces the gradients of those below it, by path: ``no_sync`` (it
    reduces none in this backward), ``uncalled`` (its forward did not run, and that of a module in it did),
    ``unfinished`` (it waits for gradients that have not come), ``unused`` (it asks
    which are to come), ``static`` (it knows that from the first step) and ``hook:NAME`` (the function reduces them).
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

    def __post_init__(self) -> None:
        for field in ("coordinates", "groups", "local", "wrappers"):
            force_setattr(self, field, frozen(getattr(self, field)))
        if self.device is not _CPU and self.device == _CPU:
            force_setattr(self, "device", _CPU)


class Collective(Record, frozen=True, gc=False):
    """A message among the processes of a group, as one of them issues it.

    ``phase`` is ``backward`` inside a backward, else ``forward``. ``op`` is the operation, the same whichever way it
    was called (``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``broadcast``, ``send``, ``recv``,
    ``barrier`` …), ``group`` the label of its process group and ``reduce`` what a reduction does. ``peer`` is the place
    in the group of the one that it sends to or receives from, or that is the root. ``tensors`` are those that the
    process gives, or receives into where it gives none. ``splits`` are the sizes that it sends to each process of the
    group, and those that it receives, where they need not be equal.

    ``node`` is the id of the node whose backward issued it, as far as the graph has that; ``scope`` the module that ran
    and ``source`` the line of the user's program, in a forward. ``operands`` are the ids of the parameters that the
    tensors are, or of which they have the gradients, and of the nodes that made them, as far as that is known.
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

    def __post_init__(self) -> None:
        if HAS_MANY_EMPTY_TUPLES:
            share_empty_tuples(self)
