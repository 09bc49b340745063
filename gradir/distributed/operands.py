"""Find collectives that ranks issue in the same order with different tensors, by the history of the tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gradir.distributed.reading import RankFile, graph_in, group_members
from gradir.distributed.simulation import POINT_TO_POINT, ROOTED
from gradir.ir import Collective, Graph, Node

_Issued = list[tuple[Collective, tuple[int, ...]]]


class Swapped(NamedTuple):
    """A collective by rank whose tensors others give to another collective, and the operations that differ."""

    issued: Mapping[int, Collective]
    made_by: Mapping[int, str]


def _number_nodes(graph: Graph, numbers: dict[object, int]) -> Mapping[str, int]:
    """Number the nodes of a graph by the operations, modules, lines and parameters that they depend on."""
    found: dict[str, int] = {}
    for node in graph.nodes.values():
        inputs = tuple([None if ref is None else (found.get(ref.id), ref.output_nr) for ref in node.inputs])
        found[node.id] = numbers.setdefault((_label(node), inputs), len(numbers))
    return found


def _label(node: Node) -> object:
    source = node.source and (node.source.file, node.source.line)
    return (node.op, node.scope, source) if node.role == "function" else (node.role, node.names)


def find_swapped(ranks: Sequence[RankFile]) -> Iterator[Swapped]:
    """Yield collectives of the forward whose tensors other ranks give to another collective of the group.

    A tensor that only one rank exchanges does not count: a loss is the same loss in every branch.
    """
    # Ranks with equal lists and equal graphs do the same.
    kinds = {(id(one.collectives), one.digest): one for one in reversed(ranks)}
    if len(kinds) == 1 or not any(issued.operands for one in kinds.values() for issued, _ in one.collectives.kinds()):
        return
    # Equal numbers mean equal tensors in all graphs.
    common, numbers = dict[object, int](), dict[bytes, Mapping[str, int]]()
    for one in kinds.values():
        if one.digest not in numbers:
            numbers[one.digest] = _number_nodes(graph_in(one), common)
    for (label, _), members in group_members(ranks).items():
        first, *others = (kinds[kind] for kind in dict.fromkeys((id(one.collectives), one.digest) for one in members))
        issued = _list_issued(label, first.collectives, numbers[first.digest]) if others else []
        for other in others:
            sides = [first, other]
            pairs = _find_swaps(issued, _list_issued(label, other.collectives, numbers[other.digest]))
            for number, pair in enumerate(pairs):
                # Explain the first pair only.
                nodes = (
                    []
                    if number
                    else _find_first_difference(pair, [*map(graph_in, sides)], [numbers[one.digest] for one in sides])
                )
                both = [one.rank.rank for one in sides]
                made_by = zip(both, [f"of what {node} made" for node in nodes], strict=False)
                yield Swapped(dict(zip(both, pair, strict=True)), dict(made_by))


def _list_issued(label: str, program: Iterable[Collective], known: Mapping[str, int]) -> _Issued:
    found: _Issued = []
    for each in program:
        if each.group == label and each.op not in POINT_TO_POINT:
            operands = each.operands if each.phase == "forward" and each.op not in ROOTED else ()
            found.append((each, tuple([known[one] for one in operands if one in known])))
    return found


def _find_swaps(some: _Issued, others: _Issued) -> Iterator[tuple[Collective, Collective]]:
    own, of_others = ({numbers for _, numbers in issued} for issued in (some, others))
    for (one, numbers), (other, other_numbers) in zip(some, others, strict=False):
        is_known = bool(numbers and other_numbers) and numbers in of_others and other_numbers in own
        # Several gradients may be in one flat tensor, in any order.
        if (is_known or sorted(numbers) == sorted(other_numbers)) and numbers != other_numbers:
            yield one, other


def _find_first_difference(
    issued: Iterable[Collective], graphs: Sequence[Graph], numbers: Sequence[Mapping[str, int]]
) -> Sequence[str]:
    first, second = numbers
    operands = [filter(known.__contains__, each.operands) for known, each in zip(numbers, issued, strict=True)]
    tensors = next(([a, b] for a, b in zip(*operands, strict=False) if first[a] != second[b]), [])
    while tensors:
        nodes = [graph.nodes[at] for graph, at in zip(graphs, tensors, strict=True)]
        if _label(nodes[0]) != _label(nodes[1]):
            return tensors
        pairs = ((a.id, b.id) for a, b in zip(nodes[0].inputs, nodes[1].inputs, strict=False) if a and b)
        pair = next((pair for pair in pairs if first.get(pair[0]) != second.get(pair[1])), None)
        if pair is None or pair[0] not in first or pair[1] not in second:
            return tensors
        tensors = [*pair]
    return tensors
