"""The records of distributed training: the process of a graph, and the messages between processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec.structs import force_setattr

from gradir.ir.frozen import NOTHING, freeze
from gradir.ir.ids import strip_accumulator
from gradir.ir.model import HAS_MANY_EMPTY_TUPLES, About, Count, Record, Shape, Source, TensorMeta, share_empty_tuples


class Rank(Record, frozen=True):
    """The process that a graph was captured in, one of several that train together.

    ``rank`` is its number among ``world`` processes. ``groups`` has the ranks of each process group by label,
    ``coordinates`` its place in the mesh, and ``local`` the shapes of its shards by parameter. In a pipeline,
    ``stage`` is its first stage of ``stages``, with ``microbatches`` a step.

    ``wrappers`` has the state of each module that reduces gradients, by path: ``no_sync``, ``uncalled`` (only a
    submodule ran), ``unfinished`` (gradients are missing), ``unused`` (it searches for unused parameters), ``static``
    (a static graph) and ``hook:NAME``. ``unreduced`` has the
    parameters that the optimizer's step changes without an exchange, and ``values`` a checksum of each parameter, or
    shard, whose gradient ranks sum.

    ``offsets`` counts each group's collectives in earlier steps. ``accumulates`` is set if no optimizer's step
    followed.

    ``stopped`` says why there is no graph. The process ``starts`` (waits before its first module), ``waits`` (in its
    last collective), ``fails`` there, has ``left`` (the others there were captured), ``raises`` an error, ``joins``
    (has no more data) or ``ends`` early.
    """

    rank: Count
    world: Count
    backend: str = ""
    coordinates: Mapping[str, Count] = NOTHING
    groups: Mapping[str, tuple[Count, ...]] = NOTHING
    local: Mapping[str, Shape] = NOTHING
    stage: Count | None = None
    stages: Count = 0
    microbatches: Count = 0
    wrappers: Mapping[str, tuple[str, ...]] = NOTHING
    unreduced: tuple[str, ...] = ()
    values: Mapping[str, Count] = NOTHING
    offsets: Mapping[str, Count] = NOTHING
    accumulates: bool = False
    stopped: str = ""

    def __post_init__(self) -> None:
        for field in ("coordinates", "groups", "local", "wrappers", "values", "offsets"):
            force_setattr(self, field, freeze(getattr(self, field)))


class Collective(Record, frozen=True, gc=False):
    """A message among the processes of a group, as one of them issues it.

    ``phase`` is ``forward`` or ``backward``, ``op`` the operation such as ``all_reduce``, ``group`` the label of its
    process group and ``reduce`` the reduction. ``peer`` is the root, sender or receiver, by its place in the group.
    ``tensors`` are those sent, or those received into. ``splits`` are unequal sizes sent and received.

    ``node`` is the node whose backward issued it. In a forward pass, ``scope`` is the module and ``source`` the line.
    ``operands`` are the ids of the parameters or nodes that the tensors belong to, and ``microbatch`` is the one that a
    pipeline's schedule sends or receives, if known.
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


def find_summed_parameters(issued: Collective, wrappers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the parameters whose gradients a message sums; for a wrapper's communication hook, the last one."""
    last = strip_accumulator(issued.node, {"accumulate_grad"})
    is_hooked = last != issued.node and any(
        state.startswith("hook:") for states in wrappers.values() for state in states
    )
    is_sum = issued.op == "all_reduce" and issued.reduce in ("", "avg", "premul_sum", "sum")
    return (issued.operands or (last,) * is_hooked) if is_sum else ()
