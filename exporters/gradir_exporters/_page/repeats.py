"""Find equal modules and equal steps for a page, as the passes do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gradir.ir.ids import without_indices
from gradir.ir.memo import Table
from gradir.passes.blocks import OUTSIDE, Blocks
from gradir.passes.rollup import DEEPEST_LAYERS, layers
from gradir.passes.rounds import equal_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.ir.module_tree import ModuleTree
    from gradir.passes.blocks import NodeColumns


class StepModule(NamedTuple):
    """The frame around a step, or around the part of a module in one.

    ``of`` is the module of the tree that it is a part of, or that holds all of the step.
    """

    parent: int
    of: int
    name: str = ""
    times: int = 1


class EqualSteps:
    """The node that stands for each node, and its frame; ``modules`` are the frames of steps."""

    def __init__(
        self,
        tree: ModuleTree,
        scopes: Sequence[int],
        columns: NodeColumns,
        layers: Sequence[int],
        roles: Sequence[str],
        *,
        how: str = "",
    ) -> None:
        """Look for steps among the nodes that represent themselves in ``layers``."""
        self._tree, self._scopes, self._how = tree, scopes, how
        self.homes, self.modules = [*scopes], list[StepModule]()
        columns = columns._replace(edges=columns.edges.standing(layers))
        names = [without_indices(scope.path) for scope in tree.scopes]
        places = [names[scope] for scope in scopes]
        order = [number for number, role in enumerate(roles) if role == "function" and layers[number] == number]
        numbers: Table[tuple[int, str, int]] = Table()
        kinds = [numbers[columns.kinds[number], places[number], columns.edges.counts[number]] for number in order]
        blocks, runs = equal_steps(columns, places, roles, order, kinds)
        stands = [*range(len(roles))]
        for run in runs:
            first, *others = (blocks.members[step] for step in run)
            for members in others:
                for number, equal in zip(members, first, strict=True):
                    stands[number] = equal
            self._put_around(first, others[-1], len(run))
        self.nodes = [stands[number] for number in layers]

    def _put_around(self, first: Sequence[int], last: Sequence[int], times: int) -> None:
        tree, scopes, modules, count = self._tree, self._scopes, self.modules, len(self._tree.scopes)
        before = _common(tree, {scopes[number] for number in (*first, *last)})
        taken = {tree.names[child] for child in tree.children[before]}
        taken.update(module.name for module in modules if module.parent == before)
        plain = name = f"×{times} {self._how}".strip()
        again = 1
        while name in taken:
            again += 1
            name = f"{plain} ({again})"
        made = {before: count + len(modules)}
        modules.append(StepModule(before, before, name, times))
        for number in first:
            way: list[int] = []
            scope = scopes[number]
            while scope not in made:
                way.append(scope)
                scope = tree.parents[scope]
            for inner in reversed(way):
                made[inner] = count + len(modules)
                modules.append(StepModule(made[tree.parents[inner]], inner))
            self.homes[number] = made[scopes[number]]


def _common(tree: ModuleTree, scopes: set[int]) -> int:
    while len(scopes) > 1:
        deepest = max(tree.levels[scope] for scope in scopes)
        scopes = {tree.parents[scope] if tree.levels[scope] == deepest else scope for scope in scopes}
    return scopes.pop()


def equal_layers(tree: ModuleTree, scopes: Sequence[int], columns: NodeColumns) -> tuple[list[int], list[int]]:
    """Return by module and by node the one of the first layer that stands for it, or itself."""
    first, nodes = [*range(len(tree.scopes))], [*range(len(scopes))]
    for level in range(1, min(max(tree.levels), DEEPEST_LAYERS) + 1):
        known = layers(tree, level)
        if known is None:
            continue
        blocks = Blocks(columns, [known.below[scope] for scope in scopes], [known.of[at] for at in scopes], known.after)
        # What stands for a node of an outer layer may lie in an inner one.
        stands = [*range(len(nodes))]
        for run in blocks.runs():
            for layer in run[1:]:
                first[layer] = run[0]
                for number, equal in zip(blocks.members[layer], blocks.members[run[0]], strict=True):
                    stands[number] = equal
        nodes = [stands[number] for number in nodes]
    return _all_modules(tree, first), nodes


def _all_modules(tree: ModuleTree, first: Sequence[int]) -> list[int]:
    within = {(parent, name): place for place, (parent, name) in enumerate(zip(tree.parents, tree.names, strict=True))}
    found: list[int] = []
    for place, (parent, name) in enumerate(zip(tree.parents, tree.names, strict=True)):
        above = parent if parent == OUTSIDE else found[parent]
        found.append(first[within.get((above, name), place)])
    return found
