"""Parameters whose gradients ranks sum although their values differ."""

from __future__ import annotations

import pytest
from ranks_by_hand import make_rank

import gradir
from gradir.ir import Collective

PAIRS = {"dp": (0, 1)}, {"dp": (0, 1)}, {"dp": (2, 3)}, {"dp": (2, 3)}
WORLD = ({"world": (0, 1, 2, 3)},) * 4
HOOKED = [Collective("backward", "all_reduce", "world", node="a/accumulate_grad:1")]
SHARDS = "these are shards: reduce over the ranks that have the same one, with equal values"
SAME = (
    "give all ranks equal values before the first step, and run equal steps: equal gradients do not remove a difference"
)


def summed(group: str, *names: str, op: str = "all_reduce", reduce: str = "sum") -> Collective:
    return Collective("backward", op, group, reduce=reduce, operands=names)


@pytest.mark.parametrize(
    ("groups", "issued", "values", "fields", "found"),
    [
        (WORLD, [summed("world", "a", "b")], [{"a": 1, "b": 2}] * 4, {}, []),
        (
            WORLD,
            [summed("world", "a"), summed("world", "b", "c")],
            [{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "c": 6}, {"a": 1, "b": 2, "c": 3}],
            {},
            [((2,), ("b, c: other values than on ranks 0-1, 3, and gradients are summed on world", SAME))],
        ),
        # Each pair may have values of its own, and all that part are one finding.
        (PAIRS, [summed("dp", "a")], [{"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}], {}, []),
        (
            PAIRS,
            [summed("dp", "a")],
            [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}],
            {"local": {"a": (2,)}},
            [((1, 3), ("a: other values than on ranks 0, 2, and gradients are summed on dp", SHARDS))],
        ),
        # Of what a wrapper's hook sends, the parameter that came last is known.
        (
            WORLD,
            HOOKED,
            [{"a": 1}, {"a": 1}, {"a": 1}, {"a": 2}],
            {"wrappers": {"": ("hook:compress",)}},
            [((3,), ("a: other values than on ranks 0-2, and gradients are summed on world", SAME))],
        ),
        (WORLD, HOOKED, [{"a": rank} for rank in range(4)], {}, []),
        # Nothing says that these are copies.
        (WORLD, [summed("world", "a", reduce="max")], [{"a": rank} for rank in range(4)], {}, []),
        (WORLD, [summed("world", "a", op="reduce_scatter")], [{"a": rank} for rank in range(4)], {}, []),
        (WORLD, [summed("world", "b")], [{"a": rank, "b": 1} for rank in range(4)], {}, []),
        (WORLD, [summed("world", "a")], [{f"own.{rank}": 1} for rank in range(4)], {}, []),
    ],
)
def test_values_are_compared_among_ranks_that_sum_the_gradients(groups, issued, values, fields, found) -> None:
    ranks = gradir.ranks(
        make_rank(rank, issued, groups=own, values=values[rank], **fields) for rank, own in enumerate(groups)
    )
    told = [(finding.ranks, finding.lines) for finding in ranks.findings if finding.kind == "values"]
    assert told == found
    assert ("DIFFERENT VALUES: rank" in str(ranks)) is bool(found)


def test_values_of_steps_that_begin_at_different_collectives_are_not_compared() -> None:
    ranks = [
        make_rank(rank, [summed("world", "a")], world=2, values={"a": rank}, offsets={"world": rank})
        for rank in range(2)
    ]
    assert not gradir.ranks(ranks)
