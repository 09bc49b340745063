"""Explanations inside training loops: no alarm of a healthy one, and each step what it would have been."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402

import gradir  # noqa: E402

nn = torch.nn
functional = nn.functional
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.drop, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.drop(functional.gelu(self.up(self.norm(x)))))


class Classifier(nn.Module):
    """An embedding, blocks that may be computed once more in backward, and a head."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = nn.Embedding(11, 8), nn.ModuleList([Block(), Block()]), nn.Linear(8, 3)
        self.reentrant = reentrant

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        logits = self.head(x.mean(1))
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def batches(count: int) -> Iterator[dict[str, torch.Tensor]]:
    source = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield {
            "tokens": torch.randint(0, 11, (4, 5), generator=source),
            "labels": torch.randint(0, 3, (4,), generator=source),
        }


class Loop:
    """What a Trainer does: autocast, accumulation, scaling, clipping, a schedule, an average of the weights."""

    def __init__(
        self, *, reentrant: bool | None = None, half: bool = False, scale: float = 1.0, compiled: str = ""
    ) -> None:
        torch.manual_seed(0)
        self.model = Classifier(reentrant)
        self.average = copy.deepcopy(self.model).requires_grad_(requires_grad=False)
        self.run = torch.compile(self.model, backend=compiled) if compiled else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 0.01, weight_decay=0.1)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (step + 1))
        self.half, self.scale = half, scale

    def train(self, around: Callable[[Any, Callable[[], torch.Tensor]], torch.Tensor]) -> list[torch.Tensor]:
        for number, batch in enumerate(batches(4)):

            def forward(batch: dict[str, torch.Tensor] = batch) -> torch.Tensor:
                with torch.autocast("cpu", torch.bfloat16) if self.half else nullcontext():
                    loss = self.run(**batch)["loss"]
                return loss * self.scale / 2

            loss = around(self, forward)
            loss.backward()
            if number % 2:
                for parameter in self.model.parameters():
                    parameter.grad.div_(self.scale)
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad(set_to_none=number % 4 == 1)
                with torch.no_grad():
                    for mean, parameter in zip(self.average.parameters(), self.model.parameters(), strict=True):
                        mean.lerp_(parameter, 0.1)
        return [parameter.detach().clone() for parameter in self.model.parameters()]


LOOPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "autocast, scaled": {"half": True, "scale": 2.0**16},
    "checkpointed": {"reentrant": False},
    "checkpointed, autocast": {"reentrant": False, "half": True},
    "checkpointed, reentrant": {"reentrant": True},
    "compiled": {"compiled": "aot_eager"},
}


@pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning")
@pytest.mark.parametrize(("name", "one_recorder"), [*((name, False) for name in LOOPS), ("plain", True)])
def test_nothing_is_reported_of_a_healthy_loop_and_it_trains_as_before(name: str, one_recorder: bool) -> None:
    torch._dynamo.reset()
    found = []
    kept: list[Any] = []

    def explained(loop: Loop, forward: Callable[[], torch.Tensor]) -> torch.Tensor:
        recorder = kept[0] if kept else gradir.record(loop.model, flow=True)
        kept.extend([recorder] if one_recorder and not kept else [])
        with recorder:
            loss = forward()
        before = [None if p.grad is None else (p.grad, p.grad.clone()) for p in loop.model.parameters()]
        random = torch.random.get_rng_state()
        explanation = recorder.explain(loss, optimizer=loop.optimizer)
        assert torch.equal(random, torch.random.get_rng_state())
        for parameter, gradient in zip(loop.model.parameters(), before, strict=True):
            assert (parameter.grad is None) == (gradient is None)
            assert gradient is None or (parameter.grad is gradient[0] and torch.equal(*gradient))
        found.append((explanation.level, {*explanation.statuses.values()}, str(explanation)))
        return loss

    trained = Loop(**LOOPS[name]).train(explained)
    assert [told for level, _, told in found if level != "none"] == []
    hidden = {"reached", "hidden"} if name == "checkpointed, reentrant" else {"reached"}
    assert {status for _, statuses, _ in found for status in statuses} == hidden
    plain = Loop(**LOOPS[name]).train(lambda _, forward: forward())
    assert all(map(torch.equal, trained, plain))
    torch._dynamo.reset()


def test_a_bias_whose_gradient_cancels_to_the_last_bit_is_no_alarm() -> None:
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]])
    with gradir.record(model, flow=True) as rec:
        # Both logits are equal, so that what the two labels ask of the bias is opposite.
        loss = functional.cross_entropy(model(x), torch.tensor([0, 1]))
    found = rec.explain(loss)
    assert found.statuses == {"weight": "reached", "bias": "zero"}
    assert [(cause.kind, cause.level, cause.op, cause.names) for cause in found.causes] == [
        ("rounding", "note", "linear", ("bias",))
    ]
    loss.backward()
    assert not model.bias.grad.any()
    dead = nn.Sequential(model, nn.ReLU())
    with gradir.record(dead, flow=True) as rec:
        loss = (dead(x) - 1).square().sum()
    assert [(cause.kind, cause.level, len(cause.names)) for cause in rec.explain(loss).causes] == [
        ("closed", "error", 2)
    ]


def test_a_backward_that_can_run_once_is_left_to_the_program() -> None:
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.kept = x.detach()
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            del ctx.kept
            return gradient * 2

    x = leaf(2)
    with gradir.record(flow=True) as rec:
        middle = x.exp()
        middle.retain_grad()
        loss = Once.apply(middle).sum()
    assert rec.explain(loss, params={"x": x, "middle": middle}).statuses == {"x": "reached", "middle": "reached"}
    assert (x.grad, middle.grad) == (None, None)
    loss.backward()
    assert torch.equal(middle.grad, torch.full((2,), 2.0))


@pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning")
def test_compiled_code_that_gives_its_buffers_away_is_explained_without_a_backward() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 1))
    run = torch.compile(model, backend="aot_eager")
    run(torch.rand(4, 3)).sum().backward()
    for values in (None, True):
        with gradir.record(model, flow=True) as rec:
            loss = run(torch.rand(4, 3)).sum()
        found = rec.explain(loss, values=values)
        assert (found.level, {*found.statuses.values()}) == ("none", {"reached"})
        loss.backward()
    torch._dynamo.reset()


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) @ torch.ones(5, 5)


@pytest.mark.parametrize("asked", ["", "explain", "forward", "capture"])
def test_nothing_lives_longer_than_the_recorder(asked: str) -> None:
    model = Classifier()
    rec: Any = gradir.record(model, flow=True, sources=True)
    (batch,) = batches(1)
    with rec:
        hidden = model.embed(batch["tokens"])
        loss = model(**batch)["loss"] + hidden.sum()
    found = rec.explain(loss) if asked == "explain" else rec.forward() if asked == "forward" else None
    if asked == "capture":
        found = rec.capture(loss)
    gone = [weakref.ref(thing) for thing in (hidden, loss, model, model.embed.weight, batch["tokens"], rec)]
    del hidden, loss, model, batch, rec
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)
    assert (found is None) == (not asked)


def test_tensors_die_while_they_are_recorded() -> None:
    a = leaf(3)
    rec = gradir.record(flow=True)
    with rec:
        with torch.no_grad():
            alone = weakref.ref(a.exp())
        loss = a.sin().sum()
        graph = weakref.ref(loss)
        assert alone() is None
        del loss
        assert graph() is None


def test_nothing_lives_on_where_the_forward_raised() -> None:
    model = Failing()
    rec: Any = gradir.record(model, flow=True)
    given = leaf(2, 3)
    try:
        with rec:
            model(given)
    except RuntimeError as error:
        told = rec.explain(error)
        del error
    gone = [weakref.ref(thing) for thing in (model, model.layer.weight, given, rec)]
    del model, rec, given
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)
    assert [cause.kind for cause in told.causes] == ["raised"]


def test_a_model_without_numbers_is_no_alarm() -> None:
    model = nn.Linear(2, 1, device="meta")
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(3, 2, device="meta")).sum()
    found = rec.explain(loss, values=True)
    assert (set(found.statuses.values()), found.causes) == ({"reached"}, ())


def test_an_explanation_inside_a_backward_waits_for_nothing() -> None:
    model, told = nn.Linear(2, 1), list[str]()
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(3, 2)).sum()
    with model.weight.register_hook(lambda _: told.append(rec.explain(loss).level)):
        loss.backward()
    assert told == ["none"]
