"""Parameters that the graph uses and the model does not own: a headline, a line of the report and a condition."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import attach_findings, findings_of_kinds

import gradir
from gradir.cli import main
from gradir.diffs.compare import compare
from gradir.ir import Graph, Node, Ref, Scope, TensorMeta
from gradir.review.conditions import judge_conditions, parse_conditions
from gradir.review.evidence import Evidence
from gradir.review.reviewing import review_graphs
from gradir.review.rules.parameters import report_unowned

Sizes = list[tuple[int, bool]]


def graph(parameters: Sizes, scopes: tuple[Scope, ...] = (Scope(""),)) -> Graph:
    """A graph with a product of these parameters, each by its size and whether the model owns it."""
    nodes = []
    for at, (size, owned) in enumerate(parameters):
        name = f"w{at}" if owned else f"leaf:{at}"
        outputs = (TensorMeta("float32", (size,)),)
        nodes.append(Node(name, role="parameter", names=(name,) if owned else (), outputs=outputs))
    return Graph.of([*nodes, Node("f:1", op="f", inputs=tuple(Ref(node.id, 0) for node in nodes))], scopes)


def test_parameters_that_left_the_model_are_named_in_every_form() -> None:
    a, b = graph([(3, True), (4, True), (4, True)]), graph([(3, True), (4, False), (4, False)])
    found = gradir.diff(a, b)
    told = "{w1,w2} (8 elements)"
    assert str(found).startswith(f"2 parameters not in the model: {told}; ")
    assert f"**2 parameters not in the model:** `{told}`  \n" in found.to("markdown")
    assert "not in the model" not in str(gradir.diff(b, a))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([(3, False)], [(3, False), (4, True)]),
        ([(3, True), (4, False)], [(4, False)]),
        ([(3, True)], [(5, True)]),
    ],
)
def test_parameters_without_an_owner_before_are_not_reported(a: Sizes, b: Sizes) -> None:
    assert not findings_of_kinds(review_graphs(graph(a), graph(b)), "unowned")


def test_without_modules_nothing_is_known() -> None:
    a, b = [(3, True)], [(3, False)]
    assert not findings_of_kinds(review_graphs(graph(a, ()), graph(b)), "unowned")
    assert not findings_of_kinds(review_graphs(graph(a), graph(b, ())), "unowned")
    assert findings_of_kinds(review_graphs(graph(a), graph(b)), "unowned")[0].count == 1


@pytest.mark.parametrize(("sizes", "count"), [([3, 4], 0), ([3, 3], 1), ([5], 1)])
def test_unmatched_unowned_parameters_are_reported_by_size(sizes: list[int], count: int) -> None:
    sides = graph([(3, False), (4, False)]), graph([(2, True), *((size, False) for size in sizes)])
    evidence = Evidence.of(attach_findings(compare(*sides), sides))
    assert evidence.changes
    assert sum(found.count for found in report_unowned(dataclasses.replace(evidence, matched={}))) == count


@given(*[st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=6)] * 2)
def test_there_are_at_least_as_many_as_are_more_and_at_most_all(a: Sizes, b: Sizes) -> None:
    found = findings_of_kinds(review_graphs(graph(a), graph(b)), "unowned")
    had, has = (sum(not owned for _, owned in sizes) for sizes in (a, b))
    count = sum(each.count for each in found)
    assert has - had <= count <= has
    assert sum(len(each.subjects) for each in found) >= count


def test_a_condition_fails_on_it_and_without_one_a_line_says_so() -> None:
    found = review_graphs(graph([(3, True)]), graph([(3, False)]))
    told = "1 parameter not in the model: w0 (3 elements)"
    assert [(each.text, each.fails) for each in judge_conditions(found, parse_conditions("params"))] == [
        (f"{told}; --fail-on unowned fails on that", False)
    ]
    assert [(each.text, each.fails) for each in judge_conditions(found, parse_conditions("unowned"))] == [
        (f"unowned: {told}", True)
    ]
    assert not list(judge_conditions(found, parse_conditions("unowned>1")))


def _net(torch: Any, forward: Callable[[Any], Any], **parts: object) -> Any:
    made = type("Net", (torch.nn.Module,), {"forward": lambda _, x: forward(x)})()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def _plain_list(torch: Any, owned: bool) -> Any:
    layers, head = [torch.nn.Linear(4, 4) for _ in range(3)], torch.nn.Linear(4, 2)
    held = torch.nn.ModuleList(layers) if owned else layers
    return _net(torch, lambda x: head(layers[2](layers[1](layers[0](x)))), layers=held, head=head)


def _weight_in_a_list(torch: Any, owned: bool) -> Any:
    weight, head = torch.nn.Parameter(torch.ones(2)), torch.nn.Linear(4, 2)
    return _net(torch, lambda x: head(x) * weight, scale=weight if owned else [weight], head=head)


def _plain_dict(torch: Any, owned: bool) -> Any:
    parts, norm = {name: torch.nn.Linear(4, 2, bias=False) for name in "ab"}, torch.nn.LayerNorm(2)
    held = torch.nn.ModuleDict(parts) if owned else parts
    return _net(torch, lambda x: norm(parts["a"](x) + parts["b"](x)), parts=held, norm=norm)


@pytest.mark.parametrize(
    ("make", "count", "names"),
    [
        (_plain_list, 6, "layers.{0..2}.{bias,weight} (60 elements)"),
        (_weight_in_a_list, 1, "scale (2 elements)"),
        (_plain_dict, 2, "parts.{a,b}.weight (16 elements)"),
    ],
)
def test_models_that_lose_sight_of_their_parameters(
    make: Callable[[Any, bool], Any], count: int, names: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    for side, owned in (("a", True), ("b", False)):
        model = make(torch, owned)
        with gradir.record(model) as recorder:
            loss = model(torch.ones(3, 4)).sum()
        recorder.capture(loss).save(tmp_path / f"{side}.gir")
    paths = [str(tmp_path / "a.gir"), str(tmp_path / "b.gir")]
    assert main(["diff", *paths, "--fail-on", "unowned"]) == 1
    output, errors = capfd.readouterr()
    told = f"{count} parameter{'s'[: count != 1]} not in the model: {names}"
    assert output.startswith(told)
    assert errors == f"gradir: unowned: {told}\n"
    assert main(["diff", *reversed(paths), "--fail-on", "unowned"]) == 0
