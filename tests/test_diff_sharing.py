"""Modules that became one module, which runs several times, are one line; other edits of them are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import gradir  # noqa: E402
from gradir.ir import Graph  # noqa: E402


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.act: Callable[[torch.Tensor], torch.Tensor] = torch.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, edit: Callable[[nn.ModuleList], object] = list) -> None:
        super().__init__()
        self.h, self.head = nn.ModuleList(Block() for _ in range(4)), nn.Linear(8, 3)
        edit(self.h)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.h:
            x = block(x)
        return self.head(x).sum()


def captured(edit: Callable[[nn.ModuleList], object] = list) -> Graph:
    return gradir.capture(Model(edit), torch.ones(2, 8))


def share_blocks(h: nn.ModuleList) -> None:
    h[1] = h[2] = h[3] = h[0]


def share_pairs(h: nn.ModuleList) -> None:
    h[1], h[3] = h[0], h[2]


def share_parts(h: nn.ModuleList) -> None:
    h[1].up = h[0].up


def share_weights(h: nn.ModuleList) -> None:
    h[1].up.weight = h[0].up.weight


def share_another_block(h: nn.ModuleList) -> None:
    share_blocks(h)
    h[0].act = torch.tanh


def share_one_parameter_less(h: nn.ModuleList) -> None:
    share_parts(h)
    h[1].up = nn.Linear(8, 16)
    h[1].up.weight = h[0].up.weight


ONE_LINE = {
    share_blocks: ("h.{0..3} became one Block, which runs 4 times", "one Block became h.{0..3}"),
    share_pairs: ("h.{0..3} became 2 modules (Block), which run 2 times", "2 modules (Block) became h.{0..3}"),
    share_parts: ("h.{0,1}.up became one Linear, which runs 2 times", "one Linear became h.{0,1}.up"),
}


@pytest.mark.parametrize("edit", ONE_LINE)
def test_modules_that_became_one_are_one_line_in_both_directions(edit: Callable[[nn.ModuleList], None]) -> None:
    a, b = captured(), captured(edit)
    for first, second, text in ((a, b, ONE_LINE[edit][0]), (b, a, ONE_LINE[edit][1])):
        diff = gradir.diff(first, second)
        assert str(diff).splitlines()[0] == f"{text}; nothing else."
        assert len(str(diff).splitlines()) == 2
        assert f"  ~ {text}" in diff.to("text", details=True).splitlines()
        assert f"hared:** `~ {text}`" in diff.to("markdown")
        assert "h.0" in diff.to("mermaid")


@pytest.mark.parametrize("edit", [share_weights, share_another_block])
def test_modules_that_run_other_operations_did_not_become_one(edit: Callable[[nn.ModuleList], None]) -> None:
    kinds = {each.kind for each in gradir.diff(captured(), captured(edit)).findings}
    assert "tied" in kinds
    assert "shared" not in kinds


def test_modules_with_a_shared_parameter_in_both_graphs_did_not_become_one() -> None:
    a, b = captured(share_parts), captured(share_one_parameter_less)
    for first, second in ((a, b), (b, a)):
        kinds = {each.kind for each in gradir.diff(first, second).findings}
        assert kinds.isdisjoint({"shared", "unshared"})
