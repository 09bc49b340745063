"""One graph of all stages of a pipeline, linked where one sends what another receives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from gradir.errors import GradirError
from gradir.ir import Graph, Node, TensorMeta
from gradir.ir.ids import output_path
from gradir.ir.text import counted
from gradir.ir.validate import check
from gradir.world.joining import Link, joined
from gradir.world.messages import Channel, exchanged
from gradir.world.reading import RankFile, graph_in, read
from gradir.world.spans import span

__all__ = ["Linked", "linked"]

_WITHOUT_GRADIENT: Final = ("int", "uint", "bool")
_MOST: Final = 3


class Linked(NamedTuple):
    """The graph of a pipeline, how many tensors are handed on in it, and what could not be linked, in words."""

    graph: Graph
    links: int
    troubles: tuple[str, ...]


def linked(sources: Iterable[object]) -> Linked:
    """One graph of the stages of a pipeline, from the files or graphs of its ranks.

    A module ``stage0``, or ``rank0`` where no stages are told, has what the graph of that process has. The output that
    it sends is a function ``send``, the leaf in which another receives it a function ``recv``. Of several pipelines
    side by side the one with the lowest rank is taken. What is sent is known by dtype and shape; where several
    outputs or leaves are alike, by a name that is the same on both sides, or it is not linked.

    Raises:
        GradirError: they are not the files of ranks of one run; a rank runs several stages; nothing can be linked.
    """
    ranks = read(sources)
    _check_stages(ranks)
    messages = exchanged(ranks)
    troubles = list(messages.troubles)
    files = {one.rank.rank: one for one in ranks}
    chosen, left = _first_pipeline(messages.channels)
    if left:
        troubles.append(f"{span(left)} are other pipelines, which are not drawn")
    graphs = {rank: graph_in(files[rank]) for rank in sorted(chosen)}
    links: list[Link] = []
    taken: set[tuple[int, str]] = set()
    for channel in messages.channels:
        if channel.sender in chosen:
            found, problems = _links_of(channel, graphs, files, taken)
            links += found
            troubles += problems
    if not links:
        told = [*troubles[:_MOST], *(["…"] if len(troubles) > _MOST else [])]
        raise GradirError("; ".join(["no tensor that one rank sends is a leaf of another's graph", *told]))
    order = _in_order(links)
    troubles += _unlinked_stages(order, files, chosen)
    graph = joined({rank: (_name(files[rank], files, order), graphs[rank]) for rank in order}, links)
    check(graph)
    return Linked(graph, len(links), tuple(troubles))


def _check_stages(ranks: Sequence[RankFile]) -> None:
    first = {one.rank.stage for one in ranks if one.rank.stage is not None}
    for one in ranks:
        if first and len(ranks) == one.rank.world and one.rank.stages > len(first):
            stages = f"{counted(one.rank.stages, 'stage')} on {counted(len(first), 'place')}"
            raise GradirError(f"{one.name}: a rank of this pipeline runs several stages ({stages}), and has one graph")


def _first_pipeline(channels: Sequence[Channel]) -> tuple[set[int], set[int]]:
    """The ranks that send to each other with the lowest of them, and the others that send."""
    beside: defaultdict[int, set[int]] = defaultdict(set)
    for channel in channels:
        beside[channel.sender].add(channel.receiver)
        beside[channel.receiver].add(channel.sender)
    if not beside:
        return set(), set()
    found, work = set[int](), [min(beside)]
    while work:
        rank = work.pop()
        if rank not in found:
            found.add(rank)
            work += beside[rank]
    return found, beside.keys() - found


def _links_of(
    channel: Channel, graphs: Mapping[int, Graph], files: Mapping[int, RankFile], taken: set[tuple[int, str]]
) -> tuple[list[Link], list[str]]:
    """The tensors that are handed on by a channel, each as often as there are microbatches."""
    links: list[Link] = []
    troubles: list[str] = []
    rounds = files[channel.sender].rank.microbatches
    # Of integers, such as the sizes that a schedule tells ahead, there is no gradient.
    sent = [tensor for tensors in channel.tensors for tensor in tensors]
    counts = Counter(_kind(tensor) for tensor in sent if not (tensor.dtype or "").startswith(_WITHOUT_GRADIENT))
    where = f"from rank {channel.sender} to rank {channel.receiver} on {channel.group}"
    for kind, count in counts.items():
        outputs = _alike(graphs[channel.sender], "output", kind)
        leaves = _alike(graphs[channel.receiver], "leaf", kind)
        pairs = _paired(outputs, leaves)
        tensor = str(TensorMeta(kind[0], kind[1]))
        if not outputs:
            troubles.append(f"{tensor} is sent {where}, and the graph of rank {channel.sender} has no such output")
        elif not leaves:
            troubles.append(
                f"{tensor} is sent {where}, and the graph of rank {channel.receiver} has no such leaf: capture it with "
                "an input of one microbatch that requires a gradient"
            )
        elif not pairs:
            sides = f"{counted(len(outputs), 'output')} and {counted(len(leaves), 'leaf', 'leaves')}"
            troubles.append(f"{tensor} is sent {where}, where {sides} are alike: give both sides the same names")
        elif count % (len(pairs) * (rounds or 1)):
            expected = f"{len(pairs)} for each of {counted(rounds or 1, 'microbatch', 'microbatches')}"
            troubles.append(f"{tensor} is sent {count:,} times {where}, which is not {expected}")
        else:
            for output, leaf in pairs:
                if (channel.receiver, leaf.id) in taken:
                    troubles.append(f"{tensor} is sent {where}, and another rank sends it to the same leaf {leaf.id}")
                    continue
                taken.add((channel.receiver, leaf.id))
                links.append(Link(channel, output.id, leaf.id, count // len(pairs)))
    return links, troubles


_Kind = tuple[str | None, tuple[int | str, ...] | None]


def _kind(tensor: TensorMeta) -> _Kind:
    return tensor.dtype, tensor.shape


def _alike(graph: Graph, role: str, kind: _Kind) -> list[Node]:
    return [node for node in graph.nodes.values() if node.role == role and node.tensor and _kind(node.tensor) == kind]


def _paired(outputs: Sequence[Node], leaves: Sequence[Node]) -> list[tuple[Node, Node]]:
    """Which output is which leaf, if it is beyond doubt."""
    if len(outputs) == len(leaves) == 1:
        return [(outputs[0], leaves[0])]
    by_id = {leaf.id: leaf for leaf in leaves}
    return [(node, leaf) for node in outputs if (leaf := by_id.get(output_path(node.id))) is not None]


def _in_order(links: Sequence[Link]) -> list[int]:
    """The ranks, each behind those from which it receives.

    Raises:
        GradirError: they receive from each other in a circle.
    """
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for link in links:
        sorter.add(link.channel.receiver, link.channel.sender)
    try:
        found = list(sorter.static_order())
    except CycleError as error:
        ring = ", ".join(map(str, error.args[1]))
        raise GradirError(f"ranks {ring} send to each other in a circle, which is no graph of one forward") from None
    depth: dict[int, int] = {}
    for rank in found:
        senders = [link.channel.sender for link in links if link.channel.receiver == rank]
        depth[rank] = 1 + max((depth[sender] for sender in senders), default=-1)
    return sorted(found, key=lambda rank: (depth[rank], rank))


def _unlinked_stages(order: Sequence[int], files: Mapping[int, RankFile], chosen: Iterable[int]) -> Iterator[str]:
    there = {files[rank].rank.stage for rank in order}
    # Whatever number of stages a file tells, so many are looked for as there are files and one more.
    stages = min(files[order[0]].rank.stages, len(files) + 1)
    missing = [stage for stage in range(stages) if stage not in there]
    if missing:
        yield f"stage {', '.join(map(str, missing))} is not linked, and not drawn"
    left = sorted({*chosen} - {*order})
    if left and not missing:
        yield f"{span(left)} {'is' if len(left) == 1 else 'are'} not linked, and not drawn"


def _name(one: RankFile, files: Mapping[int, RankFile], order: Iterable[int]) -> str:
    """What the module of a rank is called: by its stage, if no other has the same."""
    stages = [files[rank].rank.stage for rank in order]
    return f"rank{one.rank.rank}" if None in stages or len({*stages}) < len(stages) else f"stage{one.rank.stage}"
