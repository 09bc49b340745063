"""How near the edit scripts of `gradir.diffs.matching` come to the true ones, and how long they take.

python benchmarks/matching.py [--smoke]
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from edit_scripts import EDITS, Script, plan, script
from measure import is_smoke, table, time_in_turns

from gradir.diffs.matching import edit_cost, match

MIXED = {
    "insert, delete, rename": ["insert layer", "delete layer", "rename prefix"],
    "insert, swap, batch size": ["insert layer", "swap op", "change batch size"],
    "rename, shuffle": ["rename prefix", "shuffle order"],
    "rename, batch size, shuffle": ["rename prefix", "change batch size", "shuffle order"],
    "ten edits": ["insert layer", "delete layer", "widen", "rewire", "swap op"] * 2,
    "ten edits, rename": [*["insert layer", "delete layer", "widen", "rewire", "swap op"] * 2, "rename prefix"],
    "twenty edits, rename, batch size, shuffle": [
        *["insert layer", "repeat layer", "delete layer", "widen", "rewire", "swap op"] * 3,
        "rename prefix",
        "change batch size",
        "shuffle order",
    ],
}


def match_ids(made: Script) -> int:
    """The cost of matching equal ids."""
    return edit_cost(made.before, made.after, {node: node for node in made.before.nodes if node in made.after.nodes})


def ratio(found: int, true: int) -> float:
    return found / true if true else float(1 + found)


def rows(size: int, seeds: int, repetitions: int) -> list[list[str]]:
    lines = []
    for name, edits in {**{edit: [edit] for edit in EDITS}, **MIXED}.items():
        made = [script(plan(size, seed), edits, seed) for seed in range(seeds)]
        ratios = [ratio(match(each.before, each.after).cost, each.cost) for each in made]
        naive = [ratio(match_ids(each), each.cost) for each in made]
        runs = {"match": lambda each: match(each.before, each.after)}
        seconds = [time_in_turns(lambda each=each: each, runs, repetitions)["match"] for each in made]
        nodes = statistics.median(len(each.before.nodes) for each in made)
        lines.append(
            [
                name,
                f"{nodes:,.0f}",
                f"{statistics.median(each.cost for each in made):,.0f}",
                f"{max(naive):,.2f}",
                f"{statistics.median(ratios):.3f}",
                f"{max(ratios):.3f}",
                f"{statistics.median(seconds) * 1e3:,.0f}",
            ]
        )
    return lines


def main(sizes: Sequence[tuple[int, int, int]]) -> None:
    heads = ["edits", "nodes", "true cost", "by id, worst", "found / true", "worst", "ms"]
    print("\n\n".join(table(heads, rows(*size)) for size in sizes))


if __name__ == "__main__":
    main([(100, 1, 1)] if is_smoke(__doc__) else [(1_000, 8, 3), (10_000, 3, 3), (100_000, 1, 1)])
