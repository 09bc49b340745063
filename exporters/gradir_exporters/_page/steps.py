"""Which steps of a loop or a chain are alike and follow each other, as `gradir.passes.rounds.once` finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gradir.ir.ids import without_indices
from gradir.passes.rounds import FEWEST, repeats
from gradir_exporters._page.blocks import OUTSIDE, Blocks
from gradir_exporters._page.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.ir.module_tree import ModuleTree
    from gradir_exporters._page.blocks import Known
    from gradir_exporters._page.edges import Wiring

__all__ = ["EqualSteps", "StepModule"]


class StepModule(NamedTuple):
    """What is drawn around a step, or around what of a module lies in one.

    ``parent`` counts the modules of the tree and, after them, these. ``of`` is the module of the tree that it is a part
    of, or that holds all of the step. A step has a name and stands for ``times``.
    """

    parent: int
    of: int
    name: str = ""
    times: int = 1


class EqualSteps:
    """By node the one that stands for it, and where it is drawn then; ``modules`` are drawn around steps.

    The places are numbers of modules of the tree and, after those, of ``modules``.
    """

    def __init__(self, known: Known, layers: Sequence[int], roles: Sequence[str], how: str = "") -> None:
        """Look for steps among the nodes that stand for themselves in ``layers``.

        ``roles`` are "function", "parameter" and "accumulator", other words for what is in no step by itself.
        ``how`` says behind the number of a step how equal they are.
        """
        self._tree, self._scopes, self._how = known.tree, known.scopes, how
        self.nodes, self.homes, self.modules = [*layers], [*known.scopes], list[StepModule]()
        place_in = [without_indices(scope.path) for scope in known.tree.scopes]
        steps, after = _steps(known, layers, roles, place_in)
        if not steps:
            return
        known = known._replace(wiring=known.wiring.standing(layers))
        step_of = [OUTSIDE] * len(roles)
        for step, members in enumerate(steps):
            for number in members:
                step_of[number] = step
        _add_what_feeds_one(step_of, known.wiring, roles)
        blocks = Blocks(known, step_of, after, place_in)
        stands = [*range(len(roles))]
        for run in blocks.runs(range(len(steps))):
            if len(run) >= FEWEST:
                first, *others = (blocks.members[step] for step in run)
                for members in others:
                    for number, equal in zip(members, first, strict=True):
                        stands[number] = equal
                self._put_around(first, others[-1], len(run))
        self.nodes = [stands[number] for number in layers]

    def _put_around(self, first: Sequence[int], last: Sequence[int], times: int) -> None:
        """Draw around the first of equal steps a frame of its own, within the module that holds all of them."""
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


def _steps(
    known: Known, layers: Sequence[int], roles: Sequence[str], place_in: Sequence[str]
) -> tuple[list[list[int]], dict[int, int]]:
    """The operations of each step that comes again, and the step that follows another."""
    scopes, kinds, wiring = known.scopes, known.kinds, known.wiring
    order = [number for number, role in enumerate(roles) if role == "function" and layers[number] == number]
    rank = {number: place for place, number in enumerate(order)}
    numbers: Table[tuple[int, str, int]] = Table()
    of_kind = [numbers[kinds[number], place_in[scopes[number]], wiring.counts[number]] for number in order]
    edges = (
        (rank[source], place)
        for place, number in enumerate(order)
        for source in wiring.source[wiring.first[number] : wiring.first[number + 1]]
        if source in rank
    )
    steps: list[list[int]] = []
    after: dict[int, int] = {}
    for start, period, rounds in repeats(of_kind, edges):
        after.update((step, step + 1) for step in range(len(steps), len(steps) + rounds - 1))
        steps += (order[at : at + period] for at in range(start, start + rounds * period, period))
    return steps, after


def _add_what_feeds_one(step_of: list[int], wiring: Wiring, roles: Sequence[str]) -> None:
    """Put each parameter, with its accumulator, into the step that alone takes it."""
    takers: dict[int, int] = {}
    for number in range(len(step_of) - 1, -1, -1):
        sources = wiring.source[wiring.first[number] : wiring.first[number + 1]]
        is_own = roles[number] == "parameter" or (
            roles[number] == "accumulator" and all(roles[source] == "parameter" for source in sources)
        )
        if is_own:
            step_of[number] = takers.get(number, OUTSIDE)
        for source in sources:
            takers[source] = step_of[number] if takers.get(source, step_of[number]) == step_of[number] else OUTSIDE


def _common(tree: ModuleTree, scopes: set[int]) -> int:
    """The innermost module that holds all of these."""
    while len(scopes) > 1:
        deepest = max(tree.levels[scope] for scope in scopes)
        scopes = {tree.parents[scope] if tree.levels[scope] == deepest else scope for scope in scopes}
    return scopes.pop()
