"""Join the graphs of a pipeline's stages into one graph, linked by their messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gradir.distributed.reading import RankFile, graph_in, read_ranks
from gradir.distributed.simulation import POINT_TO_POINT, Key
from gradir.distributed.words import span
from gradir.errors import GradirError
from gradir.ir import Collective, Cut, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.edges import move_edges
from gradir.ir.head import Head, rename_in_head
from gradir.ir.ids import FreeIds, nest_id, output_path, split_last, split_tensor, storage_key
from gradir.ir.model import clamp_size
from gradir.ir.text import pluralize
from gradir.ir.validate import check

_WITHOUT_GRADIENT: Final = ("int", "uint", "bool")
_MOST: Final = 3
_FORWARD: Final = "forward"

_Kind = tuple[str | None, tuple[int | str, ...] | None]


class Channel(NamedTuple):
    """The tensors that one rank sends to another in a group in the forward pass, in order."""

    sender: int
    receiver: int
    group: str
    tensors: tuple[tuple[TensorMeta, ...], ...]


_Way = tuple[Key, int, int]
"""A group, the rank that sends, and the rank that receives."""


def find_channels(ranks: Sequence[RankFile]) -> tuple[list[Channel], list[str]]:
    """Match each send with its receive, by group and in order, and return the forward channels and troubles.

    Gradients go to an earlier stage or, without stages, back to the rank that sent first.
    """
    found, troubles = _match_messages(ranks)
    stages = {one.rank.rank: one.rank.stage for one in ranks}
    channels: list[Channel] = []
    for way, tensors in found.items():
        key, sender, receiver = way
        from_stage, to_stage, back = stages[sender], stages[receiver], found.get((key, receiver, sender))
        if from_stage is not None and to_stage is not None:
            is_forward = from_stage < to_stage
        elif back is None:
            is_forward = True
        elif sorted(map(str, back)) == sorted(map(str, tensors)) and len(firsts := _find_first_ways(ranks, way)) == 1:
            is_forward = way in firsts
        else:
            is_forward = False
            if sender < receiver:
                pair = f"ranks {sender} and {receiver} send to each other on {key[0]}"
                troubles.append(f"{pair}: gradir cannot recognize the gradients and links no message")
        if is_forward:
            channels.append(Channel(sender, receiver, key[0], tensors))
    return sorted(channels, key=lambda one: one[:3]), troubles


def _match_messages(ranks: Sequence[RankFile]) -> tuple[dict[_Way, tuple[tuple[TensorMeta, ...], ...]], list[str]]:
    sent: defaultdict[_Way, list[Collective]] = defaultdict(list)
    received: defaultdict[_Way, list[Collective]] = defaultdict(list)
    for one in ranks:
        for way, issued in _messages(one):
            (sent if issued.op == "send" else received)[way].append(issued)
    known = {one.rank.rank for one in ranks}
    found: dict[_Way, tuple[tuple[TensorMeta, ...], ...]] = {}
    troubles: list[str] = []
    for way in sorted({**sent, **received}, key=lambda way: (way[1:], way[0])):
        (label, _), sender, receiver = way
        route = f"from rank {sender} to rank {receiver} on {label}"
        missing = [rank for rank in (sender, receiver) if rank not in known]
        if missing:
            count = pluralize(len(sent[way]) + len(received[way]), "message")
            troubles.append(f"{count} {route} cannot be matched: rank {missing[0]} has no file")
            continue
        pairs = list(zip(sent[way], received[way], strict=False))
        unequal = next((number for number, pair in enumerate(pairs) if len({*map(_describe, pair)}) > 1), None)
        if unequal is not None:
            sides = "sent as {} and received as {}".format(*map(_describe, pairs[unequal]))
            troubles.append(f"message {unequal + 1} {route} is {sides}: gradir links no later message")
            pairs = pairs[:unequal]
        elif len(sent[way]) != len(received[way]):
            counts = f"{pluralize(len(sent[way]), 'message')} sent and {len(received[way]):,} received"
            troubles.append(f"{counts} {route}: those that have no other side are not linked")
        forward = tuple(one.tensors for one, _ in pairs if one.phase == _FORWARD)
        if forward:
            found[way] = forward
    return found, troubles


def _messages(one: RankFile) -> Iterator[tuple[_Way, Collective]]:
    rank = one.rank.rank
    # A rank with a thousand collectives has few groups.
    keys: Mapping[str, Key] = {label: (label, members) for label, members in one.rank.groups.items()}
    for issued in one.collectives:
        if issued.peer is None or issued.op not in POINT_TO_POINT:
            continue
        key = keys[issued.group]
        other = key[1][issued.peer]
        yield ((key, rank, other) if issued.op == "send" else (key, other, rank)), issued


def _describe(issued: Collective) -> str:
    return f"{', '.join(map(str, issued.tensors))} in {issued.phase}"


def _find_first_ways(ranks: Iterable[RankFile], way: _Way) -> set[_Way]:
    """Return the ways of the first messages that two ranks exchange, as each of them issues them."""
    key, *pair = way
    both = (one for one in ranks if one.rank.rank in pair)
    return {next(each for each, _ in _messages(one) if each[0] == key and {*each[1:]} == {*pair}) for one in both}


class Linked(NamedTuple):
    """The graph of a pipeline, its number of passed tensors, and messages about missing links."""

    graph: Graph
    links: int
    troubles: tuple[str, ...]


def link_pipeline(sources: Iterable[object]) -> Linked:
    """Return one graph of the stages of a pipeline, or of several pipelines, that of the one with the lowest rank.

    gradir links an output to a leaf of the same dtype and shape, or if there are several, of the same name.

    Raises:
        GradirError: they are not the files of ranks of one run; a rank runs several stages; nothing can be linked.
    """
    ranks = read_ranks(sources)
    _check_stages(ranks)
    channels, troubles = find_channels(ranks)
    files = {one.rank.rank: one for one in ranks}
    chosen, others = _first_pipeline(channels)
    if others:
        troubles.append(f"{span(others)} are other pipelines, which are not drawn")
    graphs = {rank: graph_in(files[rank]) for rank in sorted(chosen)}
    links: list[Link] = []
    taken: set[tuple[int, str]] = set()
    for channel in channels:
        if channel.sender in chosen:
            found, problems = _find_links(channel, graphs, files, taken)
            links += found
            troubles += problems
    if not links:
        shown = [*troubles[:_MOST], *(["…"] if len(troubles) > _MOST else [])]
        raise GradirError("; ".join(["no tensor that one rank sends is a leaf of another's graph", *shown]))
    order = _sort_ranks(links)
    troubles += _report_unlinked(order, files, chosen)
    graph = join_graphs({rank: (_name(files[rank], files, order), graphs[rank]) for rank in order}, links)
    check(graph)
    return Linked(graph, len(links), tuple(troubles))


def _check_stages(ranks: Sequence[RankFile]) -> None:
    first = {one.rank.stage for one in ranks if one.rank.stage is not None}
    for one in ranks:
        if first and len(ranks) == one.rank.world and one.rank.stages > len(first):
            stages = f"{pluralize(one.rank.stages, 'stage')} on {pluralize(len(first), 'place')}"
            raise GradirError(f"{one.name}: a rank of this pipeline runs several stages ({stages}), and has one graph")


def _first_pipeline(channels: Sequence[Channel]) -> tuple[set[int], set[int]]:
    neighbours: defaultdict[int, set[int]] = defaultdict(set)
    for channel in channels:
        neighbours[channel.sender].add(channel.receiver)
        neighbours[channel.receiver].add(channel.sender)
    found, work = set[int](), sorted(neighbours)[:1]
    while work:
        rank = work.pop()
        if rank not in found:
            found.add(rank)
            work += neighbours[rank]
    return found, neighbours.keys() - found


def _find_links(
    channel: Channel, graphs: Mapping[int, Graph], files: Mapping[int, RankFile], taken: set[tuple[int, str]]
) -> tuple[list[Link], list[str]]:
    links: list[Link] = []
    troubles: list[str] = []
    rounds = files[channel.sender].rank.microbatches
    # Integers, such as the sizes that a schedule sends first, have no gradient.
    sent = [tensor for tensors in channel.tensors for tensor in tensors]
    counts = Counter(_kind(tensor) for tensor in sent if not (tensor.dtype or "").startswith(_WITHOUT_GRADIENT))
    where = f"from rank {channel.sender} to rank {channel.receiver} on {channel.group}"
    for kind, count in counts.items():
        outputs = _find_nodes(graphs[channel.sender], "output", kind)
        leaves = _find_nodes(graphs[channel.receiver], "leaf", kind)
        pairs = _pair_nodes(outputs, leaves)
        tensor = str(TensorMeta(kind[0], kind[1]))
        if not outputs:
            troubles.append(f"{tensor} is sent {where}, and the graph of rank {channel.sender} has no such output")
        elif not leaves:
            troubles.append(
                f"{tensor} is sent {where}, and the graph of rank {channel.receiver} has no such leaf: capture it with "
                "an input of one microbatch that requires a gradient"
            )
        elif not pairs:
            sides = f"{pluralize(len(outputs), 'output')} and {pluralize(len(leaves), 'leaf', 'leaves')}"
            troubles.append(f"{tensor} is sent {where}, where {sides} are alike: give both sides the same names")
        elif count % (len(pairs) * (rounds or 1)):
            expected = f"{len(pairs)} for each of {pluralize(rounds or 1, 'microbatch', 'microbatches')}"
            troubles.append(f"{tensor} is sent {count:,} times {where}, which is not {expected}")
        else:
            for output, leaf in pairs:
                if (channel.receiver, leaf.id) in taken:
                    troubles.append(f"{tensor} is sent {where}, and another rank sends it to the same leaf {leaf.id}")
                    continue
                taken.add((channel.receiver, leaf.id))
                links.append(Link(channel, output.id, leaf.id, count // len(pairs)))
    return links, troubles


def _kind(tensor: TensorMeta) -> _Kind:
    return tensor.dtype, tensor.shape


def _find_nodes(graph: Graph, role: str, kind: _Kind) -> list[Node]:
    return [node for node in graph.nodes.values() if node.role == role and node.tensor and _kind(node.tensor) == kind]


def _pair_nodes(outputs: Sequence[Node], leaves: Sequence[Node]) -> list[tuple[Node, Node]]:
    if len(outputs) == len(leaves) == 1:
        return [(outputs[0], leaves[0])]
    by_id = {leaf.id: leaf for leaf in leaves}
    return [(node, leaf) for node in outputs if (leaf := by_id.get(output_path(node.id))) is not None]


def _sort_ranks(links: Sequence[Link]) -> list[int]:
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for link in links:
        sorter.add(link.channel.receiver, link.channel.sender)
    try:
        sorter.prepare()
    except CycleError as error:
        ring = ", ".join(map(str, error.args[1]))
        raise GradirError(f"ranks {ring} send to each other in a circle, which one forward cannot do") from None
    found: list[int] = []
    while ready := sorted(sorter.get_ready()):
        sorter.done(*ready)
        found += ready
    return found


def _report_unlinked(order: Sequence[int], files: Mapping[int, RankFile], chosen: Iterable[int]) -> Iterator[str]:
    linked_stages = {files[rank].rank.stage for rank in order}
    # A file may state any number of stages, so look for one more than there are files at most.
    stages = min(files[order[0]].rank.stages, len(files) + 1)
    missing = [stage for stage in range(stages) if stage not in linked_stages]
    if missing:
        yield f"stage {', '.join(map(str, missing))} is not linked, and not drawn"
    unlinked = sorted({*chosen} - {*order})
    if unlinked and not missing:
        yield f"{span(unlinked)} {'is' if len(unlinked) == 1 else 'are'} not linked, and not drawn"


def _name(one: RankFile, files: Mapping[int, RankFile], order: Iterable[int]) -> str:
    stages = [files[rank].rank.stage for rank in order]
    return f"rank{one.rank.rank}" if None in stages or len({*stages}) < len(stages) else f"stage{one.rank.stage}"


class Link(NamedTuple):
    """A tensor that one stage sends to another: the output, the leaf, and the number of messages."""

    channel: Channel
    output: str
    leaf: str
    messages: int


def join_graphs(graphs: Mapping[int, tuple[str, Graph]], links: Iterable[Link]) -> Graph:
    """Return one graph with a module for each rank, and functions ``send`` and ``recv`` for the links."""
    sides = {rank: _Side(name, graph) for rank, (name, graph) in graphs.items()}
    for link in links:
        sender, receiver = sides[link.channel.sender], sides[link.channel.receiver]
        receiver.receive(link, sender.send(link))
    parts = list(sides.values())
    roots = [part.graph.scopes.get("", Scope("")) for part in parts]
    root = Scope(
        "",
        "Pipeline",
        total=clamp_size(sum(scope.total for scope in roots)),
        trainable=clamp_size(sum(scope.trainable for scope in roots)),
    )
    scopes = [root, *(scope for part in parts for scope in part.scopes())]
    whole = Graph.of([node for part in parts for node in part.nodes()], scopes)
    cuts = tuple(cut for part in parts for cut in part.cuts())
    # A rank and its collectives belong to one process.
    return replace(
        parts[0].graph,
        nodes=whole.nodes,
        scopes=whole.scopes,
        read_from=max(part.graph.read_from for part in parts),
        unknown=max(part.graph.unknown for part in parts),
        **{**parts[0].head(), "cuts": cuts, "rank": None, "collectives": ()},
    )


class _Side:
    def __init__(self, name: str, graph: Graph) -> None:
        self.graph = graph
        self._name = name
        self._sends: defaultdict[str, list[tuple[str, Link]]] = defaultdict(list)
        self._receives: dict[str, tuple[str, str, Link]] = {}
        self._ids = FreeIds(nest_id(id_, name) for id_ in graph.nodes)

    def send(self, link: Link) -> str:
        """Add a function ``send``, and return its id."""
        id_ = self._ids.free(f"{self._name}/send:{1 + sum(map(len, self._sends.values()))}")
        self._sends[link.output].append((id_, link))
        return id_

    def receive(self, link: Link, sent: str) -> None:
        id_ = self._ids.free(f"{self._name}/recv:{len(self._receives) + 1}")
        self._receives[link.leaf] = id_, sent, link

    def nodes(self) -> Iterator[Node]:
        for node in self.graph.nodes.values():
            copy = self._node(node)
            if node.id in self._receives:
                id_, sent, link = self._receives[node.id]
                channel = link.channel
                attrs = {"group": channel.group, "src": channel.sender, "messages": link.messages}
                yield replace(copy, id=id_, role="function", op="recv", inputs=(Ref(sent, 0),), attrs=attrs, names=())
            elif node.id in self._sends:
                for id_, link in self._sends[node.id]:
                    channel = link.channel
                    attrs = {"group": channel.group, "dst": channel.receiver, "messages": link.messages}
                    yield replace(copy, id=id_, role="function", op="send", attrs=attrs, names=())
            else:
                yield copy

    def scopes(self) -> Iterator[Scope]:
        for path, scope in {"": Scope(""), **self.graph.scopes}.items():
            yield replace(scope, path=self._path(path))

    def head(self) -> dict[str, Any]:
        return rename_in_head(self.graph, self._id, keeps_slots=True)

    def cuts(self) -> Iterator[Cut]:
        # Rename the cuts only, since a rank may have many collectives.
        head = rename_in_head(Head(cuts=self.graph.cuts), self._id, keeps_slots=True)
        for cut in head.get("cuts", self.graph.cuts):
            yield replace(cut, names=tuple(map(self._path, cut.names)), scope=self._path(cut.scope))

    def _node(self, node: Node) -> Node:
        return replace(
            node,
            id=self._id(node.id),
            scope=self._path(node.scope),
            names=node.names if node.role == "output" else tuple(map(self._path, node.names)),
            saved=tuple(map(self._rename_saved, node.saved)),
            **move_edges(node, lambda ref, _: self._ref(ref)),
        )

    def _rename_saved(self, saved: Saved) -> Saved:
        return replace(saved, origin=self._ref(saved.origin), storage=saved.storage and self._storage(saved.storage))

    def _ref(self, ref: Ref | None) -> Ref | None:
        return None if ref is None else Ref(self._id(ref.id), ref.output_nr)

    def _storage(self, key: str) -> str:
        if key in self.graph.nodes:
            return self._id(key)
        owner, slot = split_last(key)
        return storage_key(self._id(owner), slot) if owner in self.graph.nodes else self._id(key)

    def _path(self, path: str) -> str:
        return f"{self._name}.{path}" if path else self._name

    def _id(self, id_: str) -> str:
        if id_ in self._receives:
            return self._receives[id_][0]
        if id_ in self._sends:
            return self._sends[id_][0][0]
        head, rest = split_tensor(id_)
        return f"{self._receives[head][0]}{rest}" if head in self._receives else nest_id(id_, self._name)
