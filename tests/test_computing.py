"""Two graphs are said to compute the same only where they do, and where they are other spellings of one program."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import many

torch = pytest.importorskip("torch")

from msgspec.structs import replace  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import gradir  # noqa: E402
from gradir.errors import GradirError  # noqa: E402

Function = Callable[[dict[str, Tensor]], Tensor]
SIZES = {"x": (2, 4, 4), "y": (2, 4, 4), "w": (4, 4), "v": (4, 4), "b": (4,), "s": (3, 4)}


class Model(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        torch.manual_seed(0)
        for name, size in SIZES.items():
            setattr(self, name, nn.Parameter(torch.randn(size)))
        self.function = function

    def forward(self, _: Tensor | None = None) -> Tensor:
        return self.function(dict(self.named_parameters()))


def compared(one: Function, other: Function) -> gradir.Diff:
    return gradir.diff(
        *(gradir.capture(Model(function), torch.zeros(()), graph="forward") for function in (one, other))
    )


def verdict(one: Function, other: Function) -> bool:
    found = compared(one, other)
    return not found or any(finding.kind == "same-result" for finding in found.findings)


def largest_difference(one: Function, other: Function) -> float:
    results = [Model(function).double()() for function in (one, other)]
    if results[0].shape != results[1].shape:
        return float("inf")
    return float((results[0] - results[1]).detach().abs().max())


def levels(t: Tensor) -> Tensor:
    return (t.abs() * 99 + 60).byte()


def heads(t: Tensor) -> Tensor:
    return t.view(2, 4, 2, 2).transpose(1, 2)


SAME: dict[str, tuple[Function, Function]] = {
    "linear": (lambda p: F.linear(p["x"], p["w"], p["b"]), lambda p: p["x"] @ p["w"].T + p["b"]),
    "einsum": (lambda p: p["x"] @ p["w"], lambda p: torch.einsum("btc,cd->btd", p["x"], p["w"])),
    "transposed product": (lambda p: (p["w"] @ p["v"]).T, lambda p: p["v"].T @ p["w"].T),
    "a batch as rows": (lambda p: p["x"] @ p["w"], lambda p: (p["x"].reshape(8, 4) @ p["w"]).reshape(2, 4, 4)),
    "attention": (
        lambda p: F.scaled_dot_product_attention(*(heads(p["x"] @ p[n]) for n in ("w", "v", "w"))),
        lambda p: (
            (heads(p["x"] @ p["w"]) @ heads(p["x"] @ p["v"]).transpose(-1, -2) / 2**0.5).softmax(-1)
            @ heads(p["x"] @ p["w"])
        ),
    ),
    "scale before": (
        lambda p: (p["x"] @ p["y"].transpose(1, 2) / 2).softmax(-1),
        lambda p: ((p["x"] * 0.5) @ p["y"].transpose(1, 2)).softmax(-1),
    ),
    "order of a sum": (lambda p: p["x"] + p["y"], lambda p: p["y"] + p["x"]),
    "mean": (lambda p: p["x"].mean(-1), lambda p: p["x"].sum(-1) / 4),
    "difference": (lambda p: p["x"] - p["y"], lambda p: -p["y"] + p["x"]),
    "view and permute": (lambda p: p["x"].permute(2, 0, 1), lambda p: p["x"].transpose(0, 2).transpose(1, 2)),
    "expanded": (lambda p: p["x"] * p["b"], lambda p: p["x"] * p["b"].view(1, 1, 4).expand(2, 4, 4)),
    "norm": (
        lambda p: F.layer_norm(p["x"], (4,)).relu(),
        lambda p: F.layer_norm(p["x"].transpose(0, 1).transpose(0, 1), (4,)).relu(),
    ),
}
OTHER: dict[str, tuple[Function, Function]] = {
    "softmax of the other side": (
        lambda p: p["w"].softmax(-1).T @ p["v"],
        lambda p: p["w"].T.softmax(-1) @ p["v"],
    ),
    "not transposed": (lambda p: p["x"] @ p["w"], lambda p: p["x"] @ p["w"].T),
    "other heads": (
        lambda p: p["x"].view(2, 4, 2, 2).transpose(1, 2).reshape(2, 4, 4).exp(),
        lambda p: p["x"].view(2, 2, 4, 2).reshape(2, 4, 4).exp(),
    ),
    "eps": (lambda p: F.layer_norm(p["x"], (4,)), lambda p: F.layer_norm(p["x"], (4,), eps=1e-2)),
    "fill": (
        lambda p: p["w"].masked_fill(torch.ones(4, 4).tril() == 0, -1.0).exp(),
        lambda p: p["w"].masked_fill(torch.ones(4, 4).tril() == 0, -2.0).exp(),
    ),
    "mask": (
        lambda p: p["w"].masked_fill(torch.ones(4, 4).tril() == 0, -1.0).exp(),
        lambda p: p["w"].masked_fill(torch.ones(4, 4).triu() == 0, -1.0).exp(),
    ),
    "constant": (lambda p: (p["x"] + 1).exp(), lambda p: (p["x"] + 2).exp()),
    "scale": (lambda p: p["x"] / 2, lambda p: p["x"] / 3),
    "sign": (lambda p: p["x"] - p["y"], lambda p: p["y"] - p["x"]),
    "swapped": (lambda p: p["w"] @ p["v"], lambda p: p["v"] @ p["w"]),
    "axis": (lambda p: p["x"].sum(1), lambda p: p["x"].sum(2)),
    "causal": (
        lambda p: F.scaled_dot_product_attention(p["x"], p["y"], p["x"]),
        lambda p: F.scaled_dot_product_attention(p["x"], p["y"], p["x"], is_causal=True),
    ),
    "bytes that wrap": (
        lambda p: p["x"] * (levels(p["y"]) + levels(p["y"])),
        lambda p: p["x"] * (levels(p["y"]) * 1.0 + levels(p["y"]) * 1.0),
    ),
    "truths that are added": (
        lambda p: p["x"] * ((p["y"] > 0) + (p["y"] < 1)),
        lambda p: p["x"] * ((p["y"] > 0) * 1 + (p["y"] < 1) * 1),
    ),
    "whole numbers": (
        lambda p: p["x"] * (torch.arange(4) * 2654435761 % 16),
        lambda p: p["x"] * (torch.arange(4) * 2654435762 % 16),
    ),
    "out of range": (lambda p: p["x"] * 1.0, lambda p: p["x"] * 1e200 * 1e200 * 1e-200 * 1e-200),
    "slices in an index": (
        lambda p: (p["w"] @ p["v"])[torch.arange(4) % 3],
        lambda p: (p["w"] @ p["v"])[:, torch.arange(4) % 3],
    ),
    "what is normalized": (lambda p: F.layer_norm(p["x"], (4,)), lambda p: F.layer_norm(p["x"], (4, 4))),
    "in place": (lambda p: p["x"].exp() * p["y"], lambda p: (t := p["x"].exp()).mul_(p["y"]).add(t) / 2 + 1),
}


@pytest.mark.parametrize("name", SAME)
def test_another_spelling_computes_the_same(name: str) -> None:
    assert largest_difference(*SAME[name]) < 1e-9
    assert verdict(*SAME[name])


@pytest.mark.parametrize("name", OTHER)
def test_graphs_that_compute_something_else_are_not_reported_as_the_same(name: str) -> None:
    assert largest_difference(*OTHER[name]) > 1e-6
    assert not verdict(*OTHER[name])


def test_two_draws_are_not_one() -> None:
    def once(p: dict[str, Tensor]) -> Tensor:
        t = F.dropout(p["x"])
        return t + t

    assert not verdict(once, lambda p: F.dropout(p["x"]) + F.dropout(p["x"]))


@pytest.mark.parametrize("draw", [torch.poisson, torch.bernoulli])
def test_the_order_of_draws_counts(draw: Callable[[Tensor], Tensor]) -> None:
    def drawn(p: dict[str, Tensor], *, first: bool) -> Tensor:
        chances = p["y"].detach().sigmoid()
        made = [draw(chances), torch.rand(2, 4, 4)] if first else [torch.rand(2, 4, 4), draw(chances)][::-1]
        return p["x"].transpose(1, 2).transpose(1, 2) * made[0] + made[1]

    one, other = (lambda p, first=first: drawn(p, first=first) for first in (True, False))
    assert not any(each.kind == "same-result" for each in compared(one, other).findings)


def test_a_norm_that_writes_what_another_reads_counts_in_its_order() -> None:
    def normed(p: dict[str, Tensor], *, first: bool) -> Tensor:
        mean, var = torch.zeros(4), torch.ones(4)
        there = {}
        for training in (first, not first):
            there[training] = F.batch_norm(p["x"].reshape(8, 4), mean, var, training=training, momentum=0.9)
        return there[True] * there[False]

    one, other = (lambda p, first=first: normed(p, first=first) for first in (True, False))
    assert not any(each.kind == "same-result" for each in compared(one, other).findings)


def test_constants_have_to_be_equal_too() -> None:
    one, other = (lambda p, n=n: p["x"].transpose(1, 2).transpose(1, 2) * torch.tensor(n) for n in (0.5, 3.0))
    for number, same in ((0.5, True), (3.0, False)):
        kinds = [each.kind for each in compared(one, lambda p, n=number: p["x"] * torch.tensor(n)).findings]
        assert ("same-result" in kinds) is same
    assert compared(one, other), "an edit of a number that was written out"


def test_constants_that_are_too_long_for_a_graph_have_their_condition_reported() -> None:
    one, other = (lambda p, n=n: p["b"].unsqueeze(0).squeeze(0) * torch.tensor([n] * 17).sum() for n in (0.5, 3.0))
    found = compared(one, lambda p: p["b"] * torch.tensor([3.0] * 17).sum())
    assert found.findings[0].text == "computes the same result in other operations, if its 1 constant is equal too"
    assert not compared(one, other), "no graph has their values"


def test_other_lines_alone_are_no_other_operations() -> None:
    graph = gradir.capture(Model(lambda p: p["x"] @ p["w"]), torch.zeros(()), graph="forward", sources=True)
    lines = {key: replace(node, source=gradir.Source("moved.py", 1)) for key, node in graph.nodes.items()}
    found = gradir.diff(graph, replace(graph, nodes=lines))
    assert found
    assert not any(each.kind == "same-result" for each in found.findings)


STEPS: dict[str, Callable[[Tensor, dict[str, Tensor]], Tensor]] = {
    "flip": lambda t, _: t.transpose(-1, -2),
    "front": lambda t, _: t.transpose(0, -1),
    "rows": lambda t, _: t.reshape(-1, 4),
    "cube": lambda t, _: t.reshape(4, 2, 4) if t.numel() == 32 else t,
    "halves": lambda t, _: t.reshape(2, 2, -1),
    "times": lambda t, p: t @ p["w"] if t.shape[-1] == 4 else t,
    "behind": lambda t, p: p["v"] @ t if t.dim() > 1 and t.shape[-2] == 4 else t,
    "turned": lambda t, p: (p["w"].T @ t.transpose(-1, -2)).transpose(-1, -2) if t.shape[-1] == 4 else t,
    "itself": lambda t, _: t @ t.transpose(-1, -2),
    "bias": lambda t, p: t + p["b"] if t.shape[-1] == 4 else t,
    "more": lambda t, p: p["b"] + t if t.shape[-1] == 4 else t,
    "half": lambda t, _: t / 2,
    "by half": lambda t, _: t * 0.5,
    "minus": lambda t, _: -t,
    "soft": lambda t, _: t.softmax(-1),
    "over": lambda t, _: t.transpose(-1, -2).softmax(-2).transpose(-1, -2),
    "tanh": lambda t, _: t.tanh(),
    "sum": lambda t, _: t.sum(-1, keepdim=True).expand_as(t),
    "mean": lambda t, _: t.mean(-1, keepdim=True).expand(t.shape),
    "twice": lambda t, _: t + t,
    "square": lambda t, _: t * t,
    "merge": lambda t, _: t.flatten(-2),
}


def program(steps: list[str]) -> Function:
    def run(p: dict[str, Tensor]) -> Tensor:
        t = p["x"]
        for step in steps:
            t = STEPS[step](t, p)
        return t

    return run


@many
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=7), st.data())
def test_programs_that_are_reported_as_the_same_are(steps: list[str], data: st.DataObject) -> None:
    other = list(steps)
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(other)))
        other[at : at + data.draw(st.integers(0, 1))] = data.draw(st.lists(st.sampled_from(sorted(STEPS)), max_size=2))
    one, another = program(steps), program(other)
    try:
        apart = largest_difference(one, another)
        same = verdict(one, another)
    except (IndexError, RuntimeError, GradirError):
        return
    if same:
        assert apart < 1e-9 * max(1.0, float(Model(one).double()().detach().abs().max()))
