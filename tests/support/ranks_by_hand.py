"""Graphs of ranks that are built by hand, with what these exchange."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gradir.ir import Builder, Collective, Cut, Graph, Rank, Scope, TensorMeta


def reduce(size: int = 4, group: str = "world", node: str = "mm:1", **more: object) -> Collective:
    tensors = (TensorMeta("float32", (size,)),)
    return Collective("backward", "all_reduce", group, reduce="sum", tensors=tensors, node=node, **more)


def net(*, size: int = 2, start: int = 0, branch: bool = True) -> Graph:
    b = Builder()
    meta = TensorMeta("float32", (size, 2))
    attrs = {"self_sym_numel": size, "start": start, "end": size, "pad": [0, 3 - size]}
    value = b.function("mm", [b.tensor("a.w", meta, role="parameter", scope="a")], [meta], scope="a")
    if branch:
        weight = b.tensor("b.w", meta, role="parameter", scope="b")
        value = b.function("mul", [value, weight], [meta], scope="b", attrs=attrs)
    b.output(value, "0")
    cuts = [] if branch else [Cut("unreached", ("b.w",), "b"), Cut("unreached", ("b.bias",), "b")]
    return b.build(scopes=[Scope(""), Scope("a"), Scope("b")], cuts=[Cut("unreached", ("c",)), *cuts])


def make_rank(
    rank: int,
    collectives: Sequence[Collective] = (),
    *,
    graph: Graph | None = None,
    groups=None,
    world: int = 4,
    **more: object,
) -> Graph:
    record = Rank(rank, world, groups=groups or {"world": tuple(range(world))}, **more)
    return replace(net() if graph is None else graph, rank=record, collectives=tuple(collectives))
