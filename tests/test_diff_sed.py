"""One replacement in the code of a model is one line of the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import gradir  # noqa: E402

NAMES = ("g", "weight", "norm", "model", "fn", "up", "down", "net")
CLASSES = ("Layer", "Block", "Mix", "Wrap")


@dataclass(frozen=True)
class Plan:
    """A module: its class, its own parameters, and its modules by name, one after the other."""

    kind: str
    owns: tuple[str, ...] = ()
    inside: Mapping[str, Plan] = field(default_factory=dict)
    times: int = 0
    """So many equal ones in a list; no list with 0."""


class Made(nn.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        for name in plan.owns:
            setattr(self, name, nn.Parameter(torch.rand(4)))
        for name, inner in plan.inside.items():
            made = [made_of(inner) for _ in range(max(inner.times, 1))]
            setattr(self, name, nn.Sequential(*made) if inner.times else made[0])
        self.names = plan.owns, tuple(plan.inside)

    def forward(self, x: Tensor) -> Tensor:
        for name in self.names[0]:
            x = x * getattr(self, name)
        for name in self.names[1]:
            x = getattr(self, name)(x)
        return x.tanh() if self.names[0] else x


def made_of(plan: Plan) -> nn.Module:
    if plan.kind == "Linear":
        return nn.Linear(4, 4)
    return type(plan.kind, (Made,), {})(plan)


def captured(plan: Plan) -> gradir.Graph:
    torch.manual_seed(0)
    model = made_of(plan)
    with gradir.record(model) as recorder:
        loss = model(torch.rand(3, 4, requires_grad=True)).sum()
    return recorder.capture(loss)


def plans(depth: int = 3) -> st.SearchStrategy[Plan]:
    leaf = st.one_of(
        st.just(Plan("Linear")),
        st.builds(
            Plan, st.sampled_from(CLASSES[:3]), st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)
        ),
    )
    if not depth:
        return leaf
    inner = st.tuples(plans(depth - 1), st.sampled_from((0, 0, 2))).map(lambda made: replace(made[0], times=made[1]))
    holders = st.builds(
        Plan,
        st.sampled_from(CLASSES[:3]),
        st.just(()),
        st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3),
    )
    return st.one_of(leaf, holders) if depth < 3 else holders


def everywhere(plan: Plan, edit: Any) -> Plan:
    """The plan with an edit made to each module, the innermost first; the plans are three deep."""
    inside = {}
    for name, inner in plan.inside.items():
        inside.update(edit(name, everywhere(inner, edit)))
    return replace(plan, inside=inside)


def modules(plan: Plan) -> Iterator[Plan]:
    yield plan
    for inner in plan.inside.values():
        yield from modules(inner)


def lines_of(diff: gradir.Diff) -> list[str]:
    """What stands below the sentence and the counts, each change by its first line."""
    found = [
        each.text for each in diff.findings if each.kind not in {"summary", "nodes", "edges", "params", "saved-bytes"}
    ]
    return [text for text in found if text]


@given(plans(), st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_an_attribute_that_has_another_name_everywhere_is_one_line(plan: Plan, old: str, new: str) -> None:
    taken = [module for module in modules(plan) if old in module.inside and new in {*module.inside, *module.owns}]
    assume(old != new and not taken)
    after = everywhere(plan, lambda name, inner: {new if name == old else name: inner})
    before, renamed = captured(plan), captured(after)
    lines = lines_of(gradir.diff(before, renamed))
    assert len(lines) <= 1, lines


@given(plans(), st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_a_parameter_that_has_another_name_everywhere_is_one_line(plan: Plan, old: str, new: str) -> None:
    assume(
        old != new and not any(old in module.owns and new in {*module.owns, *module.inside} for module in modules(plan))
    )

    def renamed(module: Plan) -> Plan:
        return replace(
            module,
            owns=tuple(new if name == old else name for name in module.owns),
            inside={name: renamed(inner) for name, inner in module.inside.items()},
        )

    lines = lines_of(gradir.diff(captured(plan), captured(renamed(plan))))
    assert len(lines) <= 1, lines
    assert all(line.startswith("parameter") or " parameters " in line for line in lines), lines


@given(plans(), st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_modules_that_are_wrapped_everywhere_are_one_line(plan: Plan, wrapped: str, within: str) -> None:
    # Of a wrapper in a wrapper that has its name, two paths change in two ways.
    assume(
        not any(
            wrapped in each.inside
            for outer in modules(plan)
            if wrapped in outer.inside
            for each in modules(outer.inside[wrapped])
        )
    )

    def put_into(name: str, inner: Plan) -> dict[str, Plan]:
        return {name: Plan("Wrap", (), {within: replace(inner, times=0)}, inner.times) if name == wrapped else inner}

    after = everywhere(plan, put_into)
    lines = lines_of(gradir.diff(captured(plan), captured(after)))
    assert len(lines) <= 1, lines


@given(plans(), st.sampled_from(CLASSES[:3]))
def test_a_class_with_another_name_is_one_line(plan: Plan, old: str) -> None:
    def called(module: Plan) -> Plan:
        inside = {name: called(inner) for name, inner in module.inside.items()}
        return replace(module, kind="Other" if module.kind == old else module.kind, inside=inside)

    lines = lines_of(gradir.diff(captured(plan), captured(called(plan))))
    assert len(lines) <= 1, lines


def test_a_wrapper_with_the_name_of_a_module_inside_is_one_line() -> None:
    plan = Plan(
        "Layer", inside={"g": Plan("Linear"), "fn": Plan("Block", inside={name: Plan("Linear") for name in "gh"})}
    )
    after = replace(plan, inside={**plan.inside, "fn": Plan("Wrap", inside={"g": plan.inside["fn"]})})
    assert lines_of(gradir.diff(captured(plan), captured(after))) == ["module fn -> fn.g, wrapped by Wrap  12 nodes"]
    back = lines_of(gradir.diff(captured(after), captured(plan)))
    assert back == ["module fn.g -> fn, unwrapped from Wrap  12 nodes"]
