"""A composition that became one operation of the same input is one line, and nothing else is called so."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import list_diff_changes

import gradir
from gradir.ir import Builder, Graph, Producer, Scope, TensorMeta
from gradir.ir.build import Value

X = TensorMeta("float32", (2, 4))
PLAIN = ("exp", "relu", "tanh", "sin", "cos", "log", "abs", "erf")
# The single operation of each composition.
SINGLE = {"written gelu": "gelu", "written silu": "silu"}
NAMES = {"written gelu": "tanh-GELU", "written silu": "SiLU"}


def chain(*blocks: str) -> Graph:
    """A layer for each block: a composition, or an operation."""
    b = Builder()
    value = b.tensor("x", X, role="parameter")
    for number, block in enumerate(blocks):

        def add(op: str, *inputs: Value | None, number: int = number, **attrs: Any) -> Value:
            return b.function(op, inputs, [X], scope=f"h.{number}", attrs=attrs)

        x = value
        if block == "written gelu":
            inner = add("add", x, add("mul", add("pow", x, exponent=3), None))
            value = add("mul", add("mul", x, None), add("add", add("tanh", add("mul", inner, None)), None))
        elif block == "written silu":
            value = add("mul", x, add("sigmoid", x))
        else:
            value = add(block, x)
    b.output(value)
    scopes = [Scope("", "Net"), *(Scope(f"h.{number}", "Layer") for number in range(len(blocks)))]
    return b.build(scopes=scopes, producer=Producer(framework="torch"))


def rewritten(a: Graph, b: Graph) -> list[str]:
    return [each.text for each in gradir.diff(a, b).findings if each.kind == "rewritten"]


blocks = st.lists(st.sampled_from([*PLAIN, *SINGLE]), min_size=1, max_size=6, unique=True)


@given(blocks, st.data())
def test_each_composition_that_became_an_operation_is_reported_in_both_directions(
    before: list[str], data: st.DataObject
) -> None:
    after = [SINGLE.get(each, each) if data.draw(st.booleans()) else each for each in before]
    joined = {
        f"a written-out {NAMES[was]} became {now} in h.{place}"
        for place, (was, now) in enumerate(zip(before, after, strict=True))
        if was != now
    }
    split = {
        f"{now} became a written-out {NAMES[was]} in h.{place}"
        for place, (was, now) in enumerate(zip(before, after, strict=True))
        if was != now
    }
    assert {*rewritten(chain(*before), chain(*after))} == joined
    assert {*rewritten(chain(*after), chain(*before))} == split


@given(blocks.filter(lambda found: not SINGLE.keys().isdisjoint(found)), st.data())
def test_an_operation_with_another_input_did_not_come_from_a_composition(
    before: list[str], data: st.DataObject
) -> None:
    composition = data.draw(st.sampled_from([each for each in before if each in SINGLE]))
    at = before.index(composition)
    after = [each for each in before if each != composition]
    place = data.draw(st.integers(0, len(after)).filter(lambda place: place != at))
    after.insert(place, SINGLE[composition])
    assert not rewritten(chain(*before), chain(*after))
    other = data.draw(st.sampled_from([each for each in (*PLAIN, *SINGLE.values()) if each != SINGLE[composition]]))
    assert not rewritten(chain(*before), chain(*(other if each == composition else each for each in before)))


def test_equal_rewrites_are_one_line_of_every_report() -> None:
    a, b = (chain("exp", gelu, "sin", gelu, "cos", gelu) for gelu in ("written gelu", "gelu"))
    diff = gradir.diff(a, b)
    text = "3 written-out tanh-GELUs became gelu in h.{1,3,5}"
    assert str(diff).splitlines()[0] == f"{text}; nothing else."
    assert len(str(diff).splitlines()) == 2
    assert f"  ~ {text}" in diff.to("text", details=True).splitlines()
    assert f"**Rewritten:** `~ {text}`" in diff.to("markdown")
    (found,) = (each for each in json.loads(diff.to("json"))["findings"] if each["kind"] == "rewritten")
    assert (found["before"], found["after"], found["count"]) == ("tanh-GELU", "gelu", 3)
    assert ("changed", text) in [(each.kind, each.text) for each in list_diff_changes(diff)]
    assert "gelu" in diff.to("mermaid")


def test_other_edits_are_not_part_of_a_rewrite() -> None:
    lines = str(gradir.diff(chain("exp", "written silu", "sin"), chain("exp", "silu", "cos"))).splitlines()
    assert lines[0] == "a written-out SiLU became silu in h.1; sin became cos in h.2; nothing else."


def heads(t: Any) -> Any:
    return t.view(2, 4, 2, 4).transpose(1, 2)


torch: Any = pytest.importorskip("torch")
Function = Callable[[Any, Any], Any]
F: Any = torch.nn.functional
PAIRS: dict[str, tuple[Function, Function]] = {
    "tanh-GELU": (
        lambda _, x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))),
        lambda _, x: F.gelu(x),
    ),
    "erf-GELU": (lambda _, x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))), lambda _, x: F.gelu(x)),
    "SiLU": (lambda _, x: x * torch.sigmoid(x), lambda _, x: F.silu(x)),
    "softmax": (
        lambda _, x: (e := (x - x.amax(-1, keepdim=True)).exp()) / e.sum(-1, keepdim=True),
        lambda _, x: x.softmax(-1),
    ),
    "log-softmax": (lambda _, x: x - x.logsumexp(-1, keepdim=True), lambda _, x: x.log_softmax(-1)),
    "layer norm": (
        lambda p, x: (
            p.w * (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5) + p.b
        ),
        lambda p, x: F.layer_norm(x, (8,), p.w, p.b),
    ),
    "attention": (
        lambda _, x: ((q := heads(x)) @ q.transpose(-2, -1) / 2).softmax(-1).matmul(q).transpose(1, 2).reshape(2, 4, 8),
        lambda _, x: F.scaled_dot_product_attention(q := heads(x), q, q).transpose(1, 2).reshape(2, 4, 8),
    ),
    "linear layer": (lambda p, x: x @ p.up.weight.T + p.b, lambda p, x: F.linear(x, p.up.weight, p.b)),
    "cross entropy": (
        lambda _, x: (x.logsumexp(-1) - x.gather(2, torch.ones(2, 4, 1).long()).squeeze(2)).mean(),
        lambda _, x: F.cross_entropy(x.view(8, 8), torch.ones(8).long()),
    ),
    "negative log likelihood": (
        lambda _, x: -x.view(8, 8).log_softmax(1).gather(1, torch.ones(8, 1).long()).mean(),
        lambda _, x: F.cross_entropy(x.view(8, 8), torch.ones(8).long()),
    ),
}


def captured(function: Function, graph: str) -> Graph:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(8, 8)
            self.w, self.b = (torch.nn.Parameter(torch.ones(8)) for _ in range(2))

        def forward(self, x: Any) -> Any:
            found = function(self, self.up(x))
            return found.sum() if found.dim() else found

    return gradir.capture(Model(), torch.ones(2, 4, 8), graph=graph)


@pytest.mark.parametrize("graph", ["autograd", "forward"])
@pytest.mark.parametrize("name", PAIRS)
def test_compositions_of_torch_are_recognized(name: str, graph: str) -> None:
    a, b = (captured(function, graph) for function in PAIRS[name])
    for first, second in ((a, b), (b, a)):
        (text,) = rewritten(first, second)
        assert f"written-out {name}" in text
        assert not [each for each in gradir.diff(first, second).findings if each.kind.startswith("module")]


@pytest.mark.parametrize(
    ("scores", "scale", "told"),
    [
        (lambda q, k: q @ k, None, ", with scale 1 → 0.5"),
        (lambda q, k: q @ k, 1.0, ""),
        (lambda q, k: (q * 0.25) @ k, None, ", with scale 0.25 → 0.5"),
        (lambda q, k: (q / 2) @ k, None, ""),
        (lambda q, k: (q * 2**-0.5) @ (k * 2**-0.5), None, ""),
    ],
)
@pytest.mark.parametrize("graph", ["autograd", "forward"])
def test_another_scale_of_an_attention_is_told(scores: Function, scale: float | None, told: str, graph: str) -> None:
    def written(_: Any, x: Any) -> Any:
        return scores(q := heads(x), q.transpose(-2, -1)).softmax(-1) @ q

    def single(_: Any, x: Any) -> Any:
        return F.scaled_dot_product_attention(q := heads(x), q, q, scale=scale)

    (text,) = rewritten(captured(written, graph), captured(single, graph))
    assert text.partition(" in (top level)")[2] == told


def written_attention(_: Any, x: Any) -> Any:
    return F.dropout(((q := heads(x)) @ q.transpose(-2, -1) / 2).softmax(-1), 0.5).matmul(q)


@pytest.mark.parametrize(
    ("p", "text"), [(0.5, "other operations"), (0.0, "scaled_dot_product_flash_attention_for_cpu")]
)
def test_attention_with_dropout_is_recognized_in_other_operations(p: float, text: str) -> None:
    def single(_: Any, x: Any) -> Any:
        return F.scaled_dot_product_attention(q := heads(x), q, q, dropout_p=p)

    a, b = captured(written_attention, "autograd"), captured(single, "autograd")
    assert rewritten(a, b) == [f"a written-out attention with masked weights became {text} in (top level)"]
    assert rewritten(a, a) == rewritten(b, b) == []


def test_attention_that_lost_its_mask_is_another_computation() -> None:
    def masked(_: Any, x: Any) -> Any:
        scores = (q := heads(x)) @ q.transpose(-2, -1) / 2
        return F.dropout(scores.masked_fill(torch.ones(4, 4).triu(1).bool(), -1e4).softmax(-1), 0.5) @ q

    for is_causal, count in ((True, 1), (False, 0)):

        def single(_: Any, x: Any, is_causal: bool = is_causal) -> Any:
            return F.scaled_dot_product_attention(q := heads(x), q, q, dropout_p=0.5, is_causal=is_causal)

        assert len(rewritten(captured(masked, "autograd"), captured(single, "autograd"))) == count


class Scaled(torch.nn.Module):
    def __init__(self, norm: Any = None, width: int = 8) -> None:
        super().__init__()
        self.up, self.scale = torch.nn.Linear(8, 8), None if norm else torch.nn.Parameter(torch.ones(width))
        self.norm = norm

    def forward(self, x: Any) -> Any:
        x = self.up(x)
        return self.norm(x) if self.norm else x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


def test_a_module_of_the_operations_of_a_composition_is_recognized() -> None:
    a, b = (gradir.capture(Scaled(norm), torch.ones(2, 8)) for norm in (None, torch.nn.RMSNorm(8, eps=1e-6)))
    assert rewritten(a, b) == ["a written-out RMS norm became RMSNorm((8,), eps=1e-06) as norm"]
    assert rewritten(b, a) == ["RMSNorm((8,), eps=1e-06) became a written-out RMS norm in (top level)"]


def test_another_composition_or_size_in_its_place_is_not() -> None:
    a = gradir.capture(Scaled(), torch.ones(2, 8))
    assert not rewritten(a, gradir.capture(Scaled(torch.nn.LayerNorm(8)), torch.ones(2, 8)))
    assert not rewritten(a, gradir.capture(Scaled(width=1), torch.ones(2, 8)))


def test_a_module_in_place_of_a_composition_has_its_settings() -> None:
    gelu = torch.nn.GELU()

    class Model(torch.nn.Module):
        def __init__(self, *act: Any) -> None:
            super().__init__()
            self.up, self.act = torch.nn.Linear(8, 8), torch.nn.Sequential(*act)

        def forward(self, x: Any) -> Any:
            x = self.up(x)
            return self.act(x) if len(self.act) else PAIRS["tanh-GELU"][0](self, x)

    a, b = (gradir.capture(Model(*act), torch.ones(2, 8)) for act in ((), (gelu,)))
    assert "a written-out tanh-GELU became GELU(approximate='none') as act.0" in str(gradir.diff(a, b)).splitlines()[0]
