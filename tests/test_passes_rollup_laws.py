"""The pass ``rollup`` on stacks that are drawn at random."""

from __future__ import annotations

import re

from hypothesis import given, settings
from strategies import stacks

from gradir.ir import Graph, TensorMeta
from gradir.ir.validate import check
from gradir.passes import rollup

META = TensorMeta("float32", (2, 3))


@given(stacks())
def test_the_edges_of_a_rolled_stack_are_those_of_its_blocks(case: tuple[Graph, int]) -> None:
    graph, _ = case
    rolled = rollup(graph)
    check(rolled)
    if rolled is graph:
        return

    def block(key: str) -> int | None:
        match = re.match(r"h\.(\d+)\.", key)
        return int(match[1]) if match else None

    rolled_ids = [key for key in rolled.nodes if re.match(r"h\.\d+-\d+\.", key)]
    (name,) = {re.match(r"h\.(\d+-\d+)\.", key)[1] for key in rolled_ids}  # type: ignore[index]
    first, last = map(int, name.split("-"))

    def shown(key: str) -> str:
        number = block(key)
        rest = key.split(".", 2)[-1]
        return f"h.{name}.{rest}" if number is not None and first <= number <= last else key

    expected = {
        (shown(edge.src), edge.output_nr, shown(edge.dst), edge.input_nr)
        for edge in graph.edges
        if not first < (block(edge.dst) if block(edge.dst) is not None else -1) <= last
    }
    assert {edge[:4] for edge in rolled.edges} == expected
    carried = {
        (shown(edge.dst), edge.input_nr)
        for edge in graph.edges
        if block(edge.src) is not None
        and block(edge.dst) is not None
        and first <= block(edge.src) < block(edge.dst) <= last
    }
    assert carried == {(key, slot) for key in rolled_ids for slot in rolled.nodes[key].ext.get("carried_inputs", ())}
    assert all(rolled.nodes[key].ext["times"] == last - first + 1 for key in rolled_ids)


def test_the_recipes_do_make_stacks() -> None:
    found = []

    # The same stacks in each run: how many of others are alike is left to chance.
    @settings(derandomize=True)
    @given(stacks())
    def look(case: tuple[Graph, int]) -> None:
        graph, length = case
        found.append(f"-{length - 1}." in " ".join(rollup(graph).nodes))

    look()
    assert sum(found) > len(found) / 4
