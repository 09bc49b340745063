"""Write columns of numbers for the blocks of a page, and the edges in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import sub
from typing import Any

from gradir.ir import Node
from gradir.ir.edges import EdgeColumns
from gradir.ir.marks import lost_slots, status

SAME, ADDED, REMOVED = range(3)


def column(numbers: Sequence[int]) -> Any:
    """Return a column as the block has it: equal numbers are one number."""
    if not numbers:
        return 0
    return numbers[0] if numbers.count(numbers[0]) == len(numbers) else numbers


def rows(block: Any) -> Any:
    """Return a block without the names of its members, whose order `viewer/src/data/` knows."""
    if isinstance(block, dict):
        return [*map(rows, block.values())]
    return [*map(rows, block)] if block and isinstance(block, list) and isinstance(block[0], dict) else block


def steps(numbers: Sequence[int]) -> list[int]:
    """Return the first number, then the differences."""
    return [*numbers[:1], *map(sub, numbers[1:], numbers)]


def edge_block(edges: EdgeColumns, statuses: Sequence[int]) -> dict[str, Any]:
    """Return the columns of the edges.

    A source is the number of nodes between it and its consumer, a slot the excess over the edges before it.
    """
    first = edges.first
    ahead = [
        slot - edge + first[target] for edge, (slot, target) in enumerate(zip(edges.slot, edges.target, strict=True))
    ]
    return {
        "into": column(edges.counts),
        "away": column([*map(sub, edges.target, edges.source)]),
        "slot": column(ahead),
        "output": column(edges.output),
        "kind": column(edges.kind),
        "kinds": list(edges.kinds),
        "count": len(edges.source),
        "status": column(statuses),
    }


def edge_statuses(edges: EdgeColumns, nodes: Sequence[Node], new: Collection[tuple[str, int]]) -> Sequence[int]:
    """Return the status of each edge; ``new`` are the rewired slots by node id."""
    found = [status(node) for node in nodes]
    if not any(found):
        return [SAME] * len(edges.source)
    lost = {number: lost_slots(node) for number, node in enumerate(nodes)}
    statuses: list[int] = []
    for source, target, slot in zip(edges.source, edges.target, edges.slot, strict=True):
        ends = found[source], found[target]
        if "removed" in ends or slot in lost[target]:
            statuses.append(REMOVED)
        else:
            statuses.append(ADDED if "added" in ends or (nodes[target].id, slot) in new else SAME)
    return statuses
