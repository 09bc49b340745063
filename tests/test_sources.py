"""Source lines and the names of variables."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402

nn = torch.nn


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.fc(x)
        for _ in range(2):
            hidden = hidden * 2
        left, right = hidden.split(1)
        return torch.tanh(left + right)


def test_sources_are_lines_of_the_users_program() -> None:
    model = Branches()
    with gradir.record(model, sources=True) as rec:
        loss = model(torch.ones(2, 3)).sum()
    graph = rec.capture(loss)
    first = Branches.forward.__code__.co_firstlineno
    lines = {node.id: node.source.line - first for node in graph.nodes.values() if node.source and node.scope == ""}
    assert {key: line for key, line in lines.items() if key != "sum:1"} == {
        "mul:1": 3,
        "mul:2": 3,
        "split:1": 4,
        "add:1": 5,
        "tanh:1": 5,
    }
    sources = {node.source for node in graph.nodes.values() if node.scope == "fc" and node.source}
    assert {source.line - first for source in sources} == {1}
    assert all(source.file.endswith("tests/test_sources.py") for source in sources)
    assert not any(source.file.startswith(("/", "..")) for source in sources)


@pytest.mark.parametrize(
    ("name", "shown"), [("<a\nb>", "<a\\nb>"), ("/nowhere/red\x1b[31m.py", "red\\x1b[31m.py"), ("a\ud800", "a\\ud800")]
)
def test_the_name_that_a_program_gives_to_code_is_shown_on_one_line(name: str, shown: str) -> None:
    space = {}
    exec(compile("def double(x):\n    return x * 2\n", name, "exec"), space)
    with gradir.record(sources=True) as rec:
        y = space["double"](torch.ones(2, requires_grad=True))
    assert rec.capture(y).nodes["mul:1"].source == gradir.Source(shown, 2, "double")


def test_results_are_named_by_the_variable_they_are_assigned_to() -> None:
    model = Branches()
    with gradir.record(model, sources=True) as rec:
        loss = model(torch.ones(2, 3)).sum()
        total = loss * 2
    nodes = rec.capture(total).nodes.values()
    assert {node.id: node.names for node in nodes if node.role == "function" and node.names} == {
        "fc/addmm:1": ("hidden",),
        "mul:1": ("hidden",),
        "mul:2": ("hidden",),
        "sum:1": ("loss",),
        "mul:3": ("total",),
    }


def test_a_given_name_comes_before_the_variable() -> None:
    x = torch.ones(2, requires_grad=True)
    with gradir.record(sources=True) as rec:
        y = x.exp()
    assert rec.capture(y, params={"mine": y}).nodes["exp:1"].names == ("mine",)


def test_sources_are_recorded_on_request_only() -> None:
    with gradir.record() as rec:
        y = torch.ones(2, requires_grad=True).exp()
    graph = rec.capture(y)
    assert all(node.source is None for node in graph.nodes.values())
    assert graph.producer.options["sources"] is False


def test_the_mode_is_left_when_the_forward_raises() -> None:
    from torch.overrides import _get_current_function_mode_stack

    with pytest.raises(ZeroDivisionError), gradir.record(sources=True):
        1 / 0  # noqa: B018
    assert _get_current_function_mode_stack() == []
