"""Two models that have hardly anything in common are told as that; a long text ends with a count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import of_kind

import gradir
from gradir.ir import Graph, Node, Ref
from gradir.review.reviewing import reviewed


def chain(ops: list[str], scope: str = "") -> Graph:
    before = [None, *(f"{op}:{at}" for at, op in enumerate(ops))]
    nodes = zip(before, enumerate(ops), strict=False)
    return Graph.of(
        [Node(f"{op}:{at}", op=op, scope=scope, inputs=(Ref(last, 0),) if last else ()) for last, (at, op) in nodes]
    )


def ops(word: str, count: int) -> list[str]:
    return [f"{word}{at}" for at in range(count)]


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        (ops("a", 300), ops("b", 400), "two different models: 0 of 300 -> 400 nodes in common"),
        (ops("a", 100), [*ops("a", 9), *ops("b", 91)], "two different models: 9 of 100 -> 100 nodes in common"),
        (
            [*ops("c", 4), *ops("a", 60)],
            [*ops("b", 50), *ops("c", 4)],
            "two different models: 4 of 64 -> 54 nodes in common",
        ),
    ],
)
def test_models_with_hardly_a_node_in_common_are_totals(a: list[str], b: list[str], told: str) -> None:
    found = gradir.diff(chain(a), chain(b))
    lines = str(found).splitlines()
    assert lines[1:] == [told, f"{len(found.changes)} changes: --full lists them"]
    assert f"**Two different models:** `{told.partition(': ')[2]}`  \n" in found.to("markdown")
    assert "Every change by itself" not in found.to("markdown")
    assert len(found.to("text", full=True).splitlines()) > len(found.changes)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ops("a", 100), [*ops("a", 10), *ops("b", 90)]),
        (ops("a", 20), [*ops("a", 20), *ops("b", 400)]),
        (ops("a", 19), ops("b", 400)),
        ([], ops("b", 400)),
    ],
)
def test_a_tenth_in_common_a_model_that_grew_and_a_small_one_are_compared(a: list[str], b: list[str]) -> None:
    assert "two different models" not in str(gradir.diff(chain(a), chain(b)))


@pytest.mark.parametrize("changed", [20, 190, 1_000])
def test_a_text_ends_after_two_hundred_lines_with_the_number_of_the_rest(changed: int) -> None:
    found = gradir.diff(chain(ops("a", 1_000)), chain([*ops("b", changed), *ops("a", 1_000)]))
    lines = str(found).splitlines()
    # A blank and a heading, each new node, the one behind them with its input, and last the shifted indices.
    body = changed + 8
    if body <= 200:
        assert len(lines) == 1 + body
    else:
        assert lines[-2:] == ["", f"… {body - 200:,} more lines: --full shows every change"]
        assert len(lines) == 1 + 200 + 2
    assert len(found.to("text", full=True).splitlines()) >= changed


@given(st.lists(st.sampled_from("abcdef"), max_size=40), st.lists(st.sampled_from("defghi"), max_size=40))
def test_it_is_the_same_in_both_directions_and_never_of_a_graph_and_itself(a: list[str], b: list[str]) -> None:
    there, back = (of_kind(reviewed(*sides), "two-models") for sides in ((chain(a), chain(b)), (chain(b), chain(a))))
    assert all(0 <= found.count <= min(len(a), len(b)) for found in (*there, *back))
    if there and back:
        assert there[0].count == back[0].count
    assert not of_kind(reviewed(chain(a), chain(a)), "two-models")
