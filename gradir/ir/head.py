"""Fields of a graph besides nodes and modules, such as its process among others and their messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final

from msgspec.structs import force_setattr, replace

from gradir.ir import model
from gradir.ir.fields import Field, fields_of, records_in
from gradir.ir.frozen import NOTHING, freeze
from gradir.ir.ids import strip_accumulator
from gradir.ir.model import About, Count, Cut, Producer, Record, Shape, Source, TensorMeta, share_empty_tuples

# An option of the producer: the graph is a merge of two edits.
MERGED: Final = "merged"


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
        if model.HAS_MANY_EMPTY_TUPLES:
            share_empty_tuples(self)


class Head(Record, frozen=True, kw_only=True):
    """Fields that a graph and a document share besides nodes and modules.

    In a file, single values come before the modules and lists after them.
    """

    cuts: tuple[Cut, ...] = ()
    producer: Annotated[Producer, About("free", merged="either")] = Producer()
    rank: Annotated[Rank | None, About("free", merged="neither")] = None
    collectives: Annotated[tuple[Collective, ...], About("free", merged="neither")] = ()


def rename_in_head(head: Head, called: Callable[[str], str], *, keeps_slots: bool = False) -> dict[str, Any]:
    """Return the fields of a head that name nodes, with the new name of each node.

    ``called`` returns the new name, or an empty text for a removed node. Slots stay known only with ``keeps_slots``.

    >>> head = Head(cuts=(Cut("detach", at="x", into="y", slot=1),))
    >>> [(cut.at, cut.into, cut.slot) for cut in rename_in_head(head, {"x": "x", "y": "z"}.__getitem__)["cuts"]]
    [('x', 'z', None)]
    """

    def rename(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([rename(entry) for entry in value])
        if isinstance(value, Record):
            changes = find_changes(value, type(value))
            return replace(value, **changes) if changes else value
        return value and called(value)

    def find_changes(record: Record, kind: type[Record]) -> dict[str, Any]:
        values = ((field.name, getattr(record, field.name)) for field in _referring_fields(kind))
        found = {name: new for name, value in values if (new := rename(value)) != value}
        # The renamed node may have other input slots.
        if found and not keeps_slots:
            found |= {field.name: field.default for field in fields_of(kind) if field.about.inside in found}
        return found

    return find_changes(head, Head)


@cache
def _referring_fields(kind: type[Record]) -> tuple[Field, ...]:
    return tuple(
        field
        for field in fields_of(kind)
        if field.about.refers or ((inner := records_in(field)) is not None and _referring_fields(inner))
    )


def find_summed_parameters(issued: Collective, wrappers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the parameters whose gradients a message sums; for a wrapper's communication hook, the last one."""
    last = strip_accumulator(issued.node, {"accumulate_grad"})
    is_hooked = last != issued.node and any(
        state.startswith("hook:") for states in wrappers.values() for state in states
    )
    is_sum = issued.op in ("all_reduce", "reduce") and issued.reduce in ("", "avg", "premul_sum", "sum")
    return (issued.operands or (last,) * is_hooked) if is_sum else ()
