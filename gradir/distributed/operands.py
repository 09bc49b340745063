"""Whether ranks that issue collectives in the same order give them the same tensors, by what made these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gradir.distributed.reading import RankFile, graph_in
from gradir.distributed.simulation import POINT_TO_POINT, ROOTED, Key
from gradir.ir import Collective, Graph, Node

_Kind = tuple[int, bytes]
_Issued = list[tuple[Collective, tuple[int, ...]]]


class Swapped(NamedTuple):
    """By rank, a collective whose tensors others give to another one, and by what they are told apart."""

    issued: Mapping[int, Collective]
    made_by: Mapping[int, str]


class History:
    """Numbers tensors by the operations, modules, lines and parameters behind them, in all graphs alike."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def of(self, graph: Graph) -> Mapping[str, int]:
        """The number of each node of a graph."""
        found: dict[str, int] = {}
        for node in graph.nodes.values():
            inputs = tuple([None if ref is None else (found.get(ref.id), ref.output_nr) for ref in node.inputs])
            found[node.id] = self._numbers.setdefault((_label(node), inputs), len(self._numbers))
        return found


def _label(node: Node) -> object:
    source = node.source and (node.source.file, node.source.line)
    return (node.op, node.scope, source) if node.role == "function" else (node.role, node.names)


def swapped(ranks: Sequence[RankFile]) -> Iterator[Swapped]:
    """Yield collectives of the forward whose tensors other ranks give to another collective of the group.

    A tensor that one rank alone exchanges says nothing: a loss is the same, whichever branch led to it.
    """
    # Ranks of one list and one graph do the same.
    alike = {(id(one.collectives), one.digest): one for one in reversed(ranks)}
    if len(alike) == 1 or not any(issued.operands for one in alike.values() for issued, _ in one.collectives.kinds()):
        return
    history, made = History(), dict[bytes, Mapping[str, int]]()
    for one in alike.values():
        if one.digest not in made:
            made[one.digest] = history.of(graph_in(one))
    in_group: defaultdict[Key, dict[_Kind, None]] = defaultdict(dict)
    for one in ranks:
        for key in one.rank.groups.items():
            in_group[key][id(one.collectives), one.digest] = None
    for (label, _), (first, *others) in in_group.items():
        issued = _issued_on(label, alike[first].collectives, made[alike[first].digest]) if others else []
        for other in others:
            sides = [alike[first], alike[other]]
            pairs = [*_differing(issued, _issued_on(label, sides[1].collectives, made[sides[1].digest]))]
            for number, pair in enumerate(pairs):
                # One place is enough to tell.
                nodes = [] if number else _parting(pair, sides, history)
                both = [one.rank.rank for one in sides]
                made_by = zip(both, [f"of what {node} made" for node in nodes], strict=False)
                yield Swapped(dict(zip(both, pair, strict=True)), dict(made_by))


def _issued_on(label: str, program: Iterable[Collective], made: Mapping[str, int]) -> _Issued:
    found: _Issued = []
    for each in program:
        if each.group == label and each.op not in POINT_TO_POINT:
            is_told = each.phase == "forward" and each.op not in ROOTED
            found.append((each, tuple([made[one] for one in each.operands if one in made]) if is_told else ()))
    return found


def _differing(some: _Issued, others: _Issued) -> Iterator[tuple[Collective, Collective]]:
    known, known_to_others = ({numbers for _, numbers in issued} for issued in (some, others))
    for (one, numbers), (other, other_numbers) in zip(some, others, strict=False):
        is_known = bool(numbers and other_numbers) and numbers in known_to_others and other_numbers in known
        if is_known and numbers != other_numbers:
            yield one, other


def _parting(issued: Iterable[Collective], sides: Sequence[RankFile], history: History) -> Sequence[str]:
    """Return the first two nodes behind two collectives that differ, if any."""
    graphs = [*map(graph_in, sides)]
    made = [history.of(graph) for graph in graphs]
    operands = [filter(numbers.__contains__, each.operands) for numbers, each in zip(made, issued, strict=True)]
    tensors = next(([a, b] for a, b in zip(*operands, strict=False) if made[0][a] != made[1][b]), [])
    while tensors:
        nodes = [graph.nodes[at] for graph, at in zip(graphs, tensors, strict=True)]
        if _label(nodes[0]) != _label(nodes[1]):
            return tensors
        pairs = ((a.id, b.id) for a, b in zip(nodes[0].inputs, nodes[1].inputs, strict=False) if a and b)
        behind = next((pair for pair in pairs if made[0].get(pair[0]) != made[1].get(pair[1])), None)
        if behind is None or behind[0] not in made[0] or behind[1] not in made[1]:
            return tensors
        tensors = [*behind]
    return tensors
