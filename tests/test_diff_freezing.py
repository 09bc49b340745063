"""What follows from freezing parameters is told by the line that says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from reports import all_changes, attach_findings, render_details, render_text  # noqa: E402

import gradir  # noqa: E402

nn = torch.nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.blocks = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.LayerNorm(5))
        self.head = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x).relu())).sum()


def captured(edit: Callable[[Net], object]) -> gradir.Graph:
    model = Net()
    edit(model)
    with gradir.record(model) as recorder:
        loss = model(torch.ones(3, 4))
    return recorder.capture(loss)


FREEZES = {
    "blocks.2 (2 parameters, 35 elements)": lambda model: model.blocks[2].requires_grad_(False),
    "blocks.{2,3} (4 parameters, 45 elements)": lambda model: model.blocks[2:].requires_grad_(False),
    "part of blocks.2 (1 parameter, 30 elements)": lambda model: model.blocks[2].weight.requires_grad_(False),
    "stem (2 parameters, 20 elements)": lambda model: model.stem.requires_grad_(False),
    "stem, blocks (8 parameters, 95 elements)": lambda model: (
        model.stem.requires_grad_(False),
        model.blocks.requires_grad_(False),
    ),
}


@pytest.mark.parametrize("what", FREEZES)
def test_freezing_is_one_line_and_back_again(what: str) -> None:
    a, b = captured(lambda _: None), captured(FREEZES[what])
    for sides, word in (((a, b), "frozen"), ((b, a), "unfrozen")):
        diff = gradir.diff(*sides)
        lines = render_details(diff, sides).splitlines()
        names = {line.replace("{stem,blocks}", "stem, blocks") for line in lines[1:]}
        assert names == {f"{word}: {what}"}
        assert Counter(all_changes(attach_findings(diff, sides))) == Counter(diff.changes)
        assert "accumulate_grad" in render_text(diff, sides)
        assert gradir.patch(sides[0], diff) == sides[1]


def test_edits_beside_a_frozen_module_are_reported() -> None:
    def edit(model: Net) -> None:
        model.blocks[2].requires_grad_(False)
        model.blocks[1] = nn.ReLU()

    sides = captured(lambda _: None), captured(edit)
    lines = render_details(gradir.diff(*sides), sides).splitlines()
    assert "frozen: blocks.2 (2 parameters, 35 elements)" in lines
    assert "      op: tanh -> relu" in lines
    assert not any("accumulate_grad" in line for line in lines)


def test_parameters_that_are_cut_off_are_not_taken_for_frozen() -> None:
    class Detached(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.blocks(self.stem(x).detach())).sum()

    model = Detached()
    with gradir.record(model) as recorder:
        loss = model(torch.ones(3, 4))
    sides = captured(lambda _: None), recorder.capture(loss)
    text = render_details(gradir.diff(*sides), sides)
    assert "frozen" not in text
    assert "stem" in text
