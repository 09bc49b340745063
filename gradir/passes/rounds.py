"""Show equal steps in a row once: calls of one module in a loop, or operations outside modules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from operator import eq
from typing import ClassVar, Final, NamedTuple

from msgspec.structs import replace

from gradir.gcpause import pause_gc
from gradir.ir import Graph, Node, Scope
from gradir.ir.edges import EdgeColumns
from gradir.ir.ids import mask_numbers, replace_prefix
from gradir.ir.memo import Table
from gradir.ir.module_tree import common_path, module_of, walk_up
from gradir.options import Options
from gradir.passes.blocks import OUTSIDE, Blocks, NodeColumns, number_nodes
from gradir.passes.rollup import RollUp, Stack
from gradir.passes.wiring import make_switch
from gradir.vocabulary import vocabulary_of

_RUN: Final = frozenset({"function", "module"})
# The role of a gradient accumulator for `find_equal_steps`.
ACCUMULATOR: Final = "accumulator"
# Fewer equal steps are shown one by one.
_FEWEST: Final = 3
# The most frequent distances between equal operations are tried as the length of a step.
_MOST_PERIODS: Final = 8


class OncePass:
    """One of the equal steps of a loop, of a chain, or side by side."""

    order: ClassVar[int] = 75
    options: ClassVar[type[Options]] = make_switch("once", "show the first of equal steps, with their number")

    def run(self, graph: Graph, options: Options) -> Graph:  # noqa: ARG002 (the option only turns it on)
        """See `once`."""
        return once(graph)


def once(graph: Graph, *, nearly: bool = False) -> Graph:
    """Show one of at least three equal steps in a row or in parallel, as `gradir.passes.rollup` does for blocks.

    A step is a run of operations. The remaining step is in a module ``×50`` inside the step's module, whose
    ``detail`` says whether the steps are in a row or parallel. Steps are equal if their operations, shapes and wiring
    agree, and their modules except for numbers in paths. With ``nearly``, attributes may differ.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> value = b.tensor("x", TensorMeta())
    >>> for _ in range(50):
    ...     value = b.function("tanh", [b.function("mul", [value], [TensorMeta()])], [TensorMeta()])
    >>> b.output(value)
    >>> [(node.id, node.scope) for node in once(b.build()).nodes.values()]
    [('x', ''), ('mul:1', '×50'), ('tanh:1', '×50'), ('output', '')]
    """
    with pause_gc():
        accumulators = vocabulary_of(graph).accumulators
        nodes = [*graph.nodes.values()]
        roles = [ACCUMULATOR if node.role in _RUN and node.op in accumulators else node.role for node in nodes]
        places = [mask_numbers(module_of(node)) for node in nodes]
        columns = number_nodes(graph, nearly=nearly)
        order = [number for number, role in enumerate(roles) if role in _RUN]
        numbers: Table[tuple[object, ...]] = Table()
        # Operations before a loop may be between its steps in one order and not in the other.
        for steps in (order, _sort_late(order, columns.edges)):
            kinds = [numbers[_operation_kind(nodes[number], places[number])] for number in steps]
            if stacks := _make_stacks(graph, *find_equal_steps(columns, places, roles, steps, kinds)):
                return _roll_up(graph, stacks)
        return graph


def _sort_late(order: Sequence[int], edges: EdgeColumns) -> list[int]:
    """Sort operations so that each comes as late as its consumers allow."""
    heights: dict[int, int] = {}
    for number in reversed(order):
        height = heights.setdefault(number, 0) + 1
        for source in edges.sources(number):
            heights[source] = max(heights.get(source, 0), height)
    return sorted(order, key=lambda number: -heights[number])


def _operation_kind(node: Node, place: str) -> tuple[object, ...]:
    return node.op, node.native, place, len(node.inputs), tuple([(each.dtype, each.shape) for each in node.outputs])


def _make_stacks(graph: Graph, blocks: Blocks, runs: Sequence[Sequence[int]]) -> list[Stack]:
    found: list[Stack] = []
    ids, taken, counts = [*graph.nodes], set(graph.scopes), Counter[str]()
    for run in runs:
        carried = blocks.find_carried(run)
        if carried is None:
            continue
        steps = [[ids[number] for number in blocks.members[step]] for step in run]
        before = common_path(graph.nodes[key].scope for key in steps[0] + steps[-1])
        path = wanted = f"{before}.×{len(steps)}" if before else f"×{len(steps)}"
        # Another loop in the same module may have as many steps.
        while path in taken:
            counts[wanted] += 1
            path = f"{wanted} ({counts[wanted] + 1})"
        taken.add(path)
        found.append(Stack(before, path, steps, carried))
    return found


def find_equal_steps(
    columns: NodeColumns, places: Sequence[str], roles: Sequence[str], order: Sequence[int], kinds: Sequence[int]
) -> tuple[Blocks, list[list[int]]]:
    """Return the repeated steps, and runs of at least three equal ones.

    ``places`` has each node's module without numbers, ``order`` the operations to search, and ``kinds`` a number for
    the properties that equal operations share.
    """
    rank = {number: place for place, number in enumerate(order)}
    edges = (
        (rank[source], place)
        for place, number in enumerate(order)
        for source in columns.edges.sources(number)
        if source in rank
    )
    step_of, after, steps = [OUTSIDE] * len(roles), dict[int, int](), 0
    for start, period, rounds in find_repeats(kinds, edges):
        for place in range(rounds * period):
            step_of[order[start + place]] = steps + place // period
        after.update((step, step + 1) for step in range(steps, steps + rounds - 1))
        steps += rounds
    _add_parameters(step_of, columns.edges, roles)
    blocks = Blocks(columns, places, step_of, after)
    return blocks, [run for run in blocks.runs() if len(run) >= _FEWEST]


def _add_parameters(step_of: list[int], edges: EdgeColumns, roles: Sequence[str]) -> None:
    """Add parameters and their accumulators to a step if no other uses them."""
    users: dict[int, int] = {}
    for number in range(len(step_of) - 1, -1, -1):
        sources = edges.sources(number)
        if roles[number] == "parameter" or (
            roles[number] == ACCUMULATOR and all(roles[source] == "parameter" for source in sources)
        ):
            step_of[number] = users.get(number, OUTSIDE)
        for source in sources:
            users[source] = step_of[number] if users.get(source, step_of[number]) == step_of[number] else OUTSIDE


class Repeat(NamedTuple):
    """Operations from ``start`` that repeat with ``period``, ``rounds`` times in all."""

    start: int
    period: int
    rounds: int


def find_repeats(kinds: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[Repeat]:
    """Return repeated operations without overlap, those that save most first.

    ``kinds`` are numbers of the operations in order, and ``edges`` pairs of places there.
    """
    # Two equal operations vote for their distance as the length of a step.
    votes: Counter[int] = Counter()
    last: dict[int, int] = {}
    for place, kind in enumerate(kinds):
        if kind in last:
            votes[place - last[kind]] += 1
        last[kind] = place
    crossing = _count_crossing_edges(len(kinds), edges)
    found = [
        repeat
        for period, _ in sorted(votes.items(), key=lambda item: (-item[1], item[0]))[:_MOST_PERIODS]
        for start, stop in _find_runs(kinds, period)
        if (repeat := _place_repeat(start, stop, period, crossing)).rounds >= _FEWEST
    ]
    free = [True] * len(kinds)
    chosen: list[Repeat] = []
    for repeat in sorted(found, key=lambda repeat: ((1 - repeat.rounds) * repeat.period, repeat)):
        start, stop = repeat.start, repeat.start + repeat.rounds * repeat.period
        if all(free[start:stop]):
            free[start:stop] = [False] * (stop - start)
            chosen.append(repeat)
    return sorted(chosen)


def _find_runs(kinds: Sequence[int], period: int) -> Iterator[tuple[int, int]]:
    equal = bytes(map(eq, islice(kinds, period, None), kinds))
    for run in re.finditer(rb"\x01+", equal):
        if run.end() - run.start() >= (_FEWEST - 1) * period:
            yield run.start(), run.end() + period


def _place_repeat(start: int, stop: int, period: int, crossing: Sequence[int]) -> Repeat:
    """Return the repeat in a run that starts where the fewest edges cross between steps."""
    shift = min(range(period), key=lambda shift: (crossing[start + shift + period], shift))
    return Repeat(start + shift, period, (stop - start - shift) // period)


def _count_crossing_edges(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return for each place the number of producers before it with a consumer at or after it."""
    changes = [0] * (count + 1)
    # The last consumer of each producer.
    last = dict(edges)
    for source, place in last.items():
        changes[source + 1] += 1
        changes[place + 1] -= 1
    return [*accumulate(changes)]


def _roll_up(graph: Graph, stacks: Sequence[Stack]) -> Graph:
    rolled = RollUp(graph, stacks, {}, module_of).apply()
    scopes, nodes = dict(rolled.scopes), dict(rolled.nodes)
    for stack in stacks:
        scopes[stack.path] = Scope(stack.path, detail="each feeds the next" if stack.carried else "side by side")
        for path in dict.fromkeys(graph.nodes[key].scope for key in stack.blocks[0]):
            for above in walk_up(path):
                moved = _move_path(above, stack)
                if above in graph.scopes and above not in {moved, stack.before}:
                    scopes[moved] = Scope(moved, graph.scopes[above].class_name)
        if not stack.before:
            # The path of the model is empty, so `RollUp` did not move the modules below it.
            for key in stack.blocks[0]:
                nodes[key] = replace(nodes[key], scope=_move_path(graph.nodes[key].scope, stack))
    return replace(rolled, nodes=nodes, scopes=scopes)


def _move_path(path: str, stack: Stack) -> str:
    if stack.before:
        return replace_prefix(path, stack.before, stack.path)
    return f"{stack.path}.{path}" if path else stack.path
