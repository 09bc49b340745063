"""Two models that have hardly anything in common are told as that; a long text ends with a count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from reports import findings_of_kinds

import gradir
from gradir.ir import Graph, Node, Producer, Ref
from gradir.review.reviewing import review_graphs


def chain(ops: list[str], scope: str = "") -> Graph:
    before = [None, *(f"{op}:{at}" for at, op in enumerate(ops))]
    nodes = zip(before, enumerate(ops), strict=False)
    return Graph.of(
        [Node(f"{op}:{at}", op=op, scope=scope, inputs=(Ref(last, 0),) if last else ()) for last, (at, op) in nodes]
    )


def ops(word: str, count: int) -> list[str]:
    return [f"{word}{at}" for at in range(count)]


@pytest.mark.parametrize(("producer", "who"), [(Producer(framework="torch"), "torch"), (Producer(), "the framework")])
def test_one_graph_without_data_is_recorded_with_who_ran_it(producer: Producer, who: str) -> None:
    nodes = chain(["a", "b", "c"]).nodes.values()
    fake = replace(producer, options={"fake": True})
    for at, producers in (("first", (fake, producer)), ("second", (producer, fake))):
        (note,) = gradir.diff(*(Graph.of(nodes, producer=each) for each in producers)).findings
        assert note.text == f"without data: the {at} graph (--fake), where {who} runs some operations in other ways"


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


@pytest.mark.parametrize("changed", [3, 20, 1_000])
def test_a_text_that_is_long_is_a_list_and_its_details_are_on_demand(changed: int) -> None:
    found = gradir.diff(chain(ops("a", 1_000)), chain([*ops("b", changed), *ops("a", 1_000)]))
    lines, details = str(found).splitlines(), found.to("text", details=True).splitlines()
    # Sentence, counts, a blank, a heading, each new node, the one behind them with its input, and shifted indices.
    assert len(details) == 2 + changed + 8
    if changed == 3:
        assert lines == details[:-4]
    else:
        assert lines == [
            *details[:2],
            "",
            "(by module)",
            f"  ~ (top level)  +{changed:,} ~1 nodes (in[0]: (absent) -> b{changed - 1}:{changed - 1})",
            "--details shows these changes, of equal modules once",
        ]
    assert len(found.to("text", full=True).splitlines()) >= changed


def test_a_list_of_very_many_modules_ends_with_their_number() -> None:
    a, b = (
        Graph.of([Node(f"m_{n}/f:{k}", "f", scope=f"m_{n}", attrs={"p": p}) for n in range(60) for k in range(n + 1)])
        for p in (1, 2)
    )
    lines = str(review_graphs(a, b)).splitlines()
    at = lines.index("(by module)")
    assert lines[at + 1] == "  ~ m_0  ~1 node (attrs.p: 1 -> 2)"
    assert lines[-3:] == [
        "  ~ m_37  ~38 nodes (attrs)",
        "… 22 more lines",
        "--details shows these changes, of equal modules once",
    ]


@given(st.lists(st.sampled_from("abcdef"), max_size=40), st.lists(st.sampled_from("defghi"), max_size=40))
def test_it_is_the_same_in_both_directions_and_never_of_a_graph_and_itself(a: list[str], b: list[str]) -> None:
    there, back = (
        findings_of_kinds(review_graphs(*sides), "two-models") for sides in ((chain(a), chain(b)), (chain(b), chain(a)))
    )
    assert all(0 <= found.count <= min(len(a), len(b)) for found in (*there, *back))
    if there and back:
        assert there[0].count == back[0].count
    assert not findings_of_kinds(review_graphs(chain(a), chain(a)), "two-models")
