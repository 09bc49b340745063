"""Which modules of a page are alike and follow each other, as `gradir.passes.rollup.rollup` finds them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gradir.ir.ids import numbered
from gradir.passes.blocks import OUTSIDE, Blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.ir.module_tree import ModuleTree
    from gradir.passes.blocks import NodeColumns

__all__ = ["equal_layers"]

_DEEPEST: Final = 16

_Entry = tuple[int, str, int]


def equal_layers(tree: ModuleTree, scopes: Sequence[int], columns: NodeColumns) -> tuple[list[int], list[int]]:
    """By module and by node the one of the first layer that stands for it, or itself."""
    first, nodes = [*range(len(tree.scopes))], [*range(len(scopes))]
    for level in range(1, min(max(tree.levels), _DEEPEST) + 1):
        there = (place for place, at in enumerate(tree.levels) if at == level)
        entries = {place: found for place in there if (found := _entry(tree, place))}
        layers = sorted(entries, key=entries.__getitem__)
        after = {one: other for one, other in pairwise(layers) if _is_next(entries[one], entries[other])}
        if not after:
            continue
        layer_of, below = _insides(tree, layers)
        blocks = Blocks(columns, [below[scope] for scope in scopes], [layer_of[scope] for scope in scopes], after)
        # What stands for a node of an outer layer may lie in an inner one.
        stands = [*range(len(nodes))]
        for run in blocks.runs():
            for layer in run[1:]:
                first[layer] = run[0]
                for number, equal in zip(blocks.members[layer], blocks.members[run[0]], strict=True):
                    stands[number] = equal
        nodes = [stands[number] for number in nodes]
    return _all_modules(tree, first), nodes


def _entry(tree: ModuleTree, place: int) -> _Entry | None:
    """The list that a module is an entry of, by the module that holds it and the name, and the index."""
    found = numbered(tree.names[place])
    return None if found is None else (tree.parents[place], *found)


def _is_next(one: _Entry, other: _Entry) -> bool:
    return (*one[:2], one[2] + 1) == other


def _insides(tree: ModuleTree, layers: Sequence[int]) -> tuple[list[int], list[str]]:
    """By module the layer that it is in, and its path there."""
    layer_of, below = [OUTSIDE] * len(tree.scopes), [""] * len(tree.scopes)
    for layer in layers:
        layer_of[layer] = layer
    for place, parent in enumerate(tree.parents):
        if layer_of[place] == OUTSIDE and parent != OUTSIDE and layer_of[parent] != OUTSIDE:
            layer_of[place] = layer_of[parent]
            below[place] = f"{below[parent]}.{tree.names[place]}"
    return layer_of, below


def _all_modules(tree: ModuleTree, first: Sequence[int]) -> list[int]:
    """The same for the modules within layers, of which only what stands for the layers is known."""
    within = {(parent, name): place for place, (parent, name) in enumerate(zip(tree.parents, tree.names, strict=True))}
    found: list[int] = []
    for place, (parent, name) in enumerate(zip(tree.parents, tree.names, strict=True)):
        above = parent if parent == OUTSIDE else found[parent]
        found.append(first[within.get((above, name), place)])
    return found
