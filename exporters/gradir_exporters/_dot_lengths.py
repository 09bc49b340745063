"""Choose how many ranks lines of ``dot`` span, so that frames of modules do not collide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.ir import Node

# The ranks that edges span, by their head and then their tail; an edge that is not listed spans one.
Lengths: TypeAlias = "dict[int, dict[int, int]]"
# In place of a depth: the node has an input from outside its module, or is in none.
_FED: Final = -1


def entry_lengths(nodes: Sequence[Node], tails: Sequence[Sequence[int]]) -> Lengths:
    """Return the lengths of the edges that first enter a module with its own parameters.

    dot frames modules side by side as soon as they share a rank. A longer edge at the entry keeps the parameters
    below the module before, so that modules stand in a column.
    """
    scopes = [node.scope for node in nodes]
    rises = _rises(scopes, tails)
    first: dict[str, int] = {}
    lengths: Lengths = {}
    for head, rise in rises.items():
        scope = scopes[head]
        entered = first.setdefault(scope, head)
        if rise:
            by_tail = {tail: rise + 1 for tail in tails[head] if tail < entered and not _inside(scopes[tail], scope)}
            if by_tail:
                lengths[head] = by_tail
    return lengths


def past_saved(lengths: Lengths, nodes: Sequence[Node], tails: Sequence[Sequence[int]]) -> Lengths:
    """Return the lengths with one more rank for edges that leave a module past its saved tensors."""
    scopes = [node.scope if node.saved else "" for node in nodes]
    longer = dict(lengths)
    for head, node in enumerate(nodes):
        scope = node.scope
        for tail in tails[head]:
            saver = scopes[tail]
            if saver and saver != scope and not _inside(scope, saver):
                usual = lengths.get(head, {})
                longer[head] = {**longer.get(head, usual), tail: usual.get(tail, 1) + 1}
    return longer


def _rises(scopes: Sequence[str], tails: Sequence[Sequence[int]]) -> dict[int, int]:
    rises = _own_depths(scopes, tails)
    for head in reversed(rises):
        rise = rises[head] - 1
        if rise > 0:
            for tail in tails[head]:
                if rises.get(tail, rise) < rise and scopes[tail] == scopes[head]:
                    rises[tail] = rise
    return rises


def _own_depths(scopes: Sequence[str], tails: Sequence[Sequence[int]]) -> dict[int, int]:
    own = [_FED] * len(scopes)  # of a node that only its module feeds: its distance from the top
    fed: dict[int, int] = {}
    for head, scope in enumerate(scopes):
        if not scope:
            continue
        depth, is_fed = 0, False
        for tail in tails[head]:
            above = own[tail]
            if above == _FED or scopes[tail] != scope:
                is_fed = True
            elif above >= depth:
                depth = above + 1
        if is_fed:
            fed[head] = depth
        else:
            own[head] = depth
    return fed


def _inside(scope: str, outer: str) -> bool:
    return scope.startswith(outer) and scope[len(outer) : len(outer) + 1] in {"", "."}
