"""How far values were looked at, as the verdict says it: nothing gets a clean bill unseen."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402
from gradir.frontends.pytorch.explaining import explain  # noqa: E402

nn = torch.nn


def after_backward(loss_of: str) -> Explanation:
    model = nn.Linear(2, 2)
    with gradir.record(model, flow=True) as rec:
        out = model(torch.ones(1, 2))
        loss = {"nan": (out * 0).sqrt(), "zero": out * 0.0, "fine": out}[loss_of].sum()
    loss.backward()
    return rec.explain(loss)


def test_gradients_in_grad_count_once_the_backward_has_run() -> None:
    found = after_backward("nan")
    assert {*found.statuses.values()} == {"nonfinite"}
    assert (found.level, found.examined.values) == ("error", "grad")
    assert {cause.kind for cause in found.causes} == {"nonfinite_grad"}
    assert "the backward has already run" in found.verdict
    assert json.loads(found.to("json"))["examined"]["values"] == "grad"


def test_zeros_in_grad_prove_nothing_where_all_is_zero_as_after_zero_grad() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(4, 2)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    for found in (rec.explain(loss, optimizer=optimizer), after_backward("zero")):
        assert (found.level, found.examined.values) == ("none", "none")
        assert "`.grad` is zero throughout" in found.verdict


def test_a_zero_beside_other_gradients_in_grad_is_one() -> None:
    model = nn.Linear(2, 1)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.zeros(4, 2)).square().sum()
    loss.backward()
    found = rec.explain(loss)
    assert found.statuses == {"weight": "zero", "bias": "reached"}
    assert [(cause.kind, cause.level) for cause in found.causes] == [("zero_grad", "info")]


@pytest.mark.parametrize("way", ["backward", "given gradient", "grad", "three times"])
def test_an_earlier_backward_that_frees_nothing_of_a_loss_is_no_reason(way: str) -> None:
    """As in the two steps of a GAN."""
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 1)
    with gradir.record({"g": generator, "d": critic}, flow=True) as rec:
        fake = generator(torch.ones(4, 2))
        for _ in range(3 if way == "three times" else 1):
            judged = critic(fake.detach())
            if way == "grad":
                torch.autograd.grad(judged.mean(), list(critic.parameters()))
            elif way == "given gradient":
                judged.backward(torch.ones_like(judged))
            else:
                judged.mean().backward()
        loss = critic(fake).mean()
        loss.backward()
    found = rec.explain(loss)
    assert (found.level, {*found.statuses.values()}) == ("none", {"reached"})
    assert "the backward has already run" in found.verdict


def test_good_gradients_in_grad_are_reported_as_read_there() -> None:
    found = after_backward("fine")
    assert found.level == "none"
    assert found.verdict.startswith("Both parameters get a gradient. Values are those of `.grad`:")
    assert all(isinstance(norm, float) and math.isfinite(norm) for norm in found.gradients.values())


def test_nothing_is_known_once_grad_is_gone_too() -> None:
    model = nn.Linear(2, 1)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    model.zero_grad()
    found = rec.explain(loss)
    assert found.examined.values == "none"
    assert found.verdict.startswith("Both parameters are in the graph. Values were not examined:")


def test_a_large_graph_says_which_option_examines_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # The real limit takes a minute to pass.
    assert explain._SMALL == 20_000
    monkeypatch.setattr(explain, "_SMALL", 5)
    model = nn.Linear(2, 2)
    with gradir.record(model, flow=True) as rec:
        loss = (model(torch.ones(1, 2)) * 0).sqrt().sum()
    found = rec.explain(loss)
    assert "more than 5; pass values=True (--values)" in found.verdict
    assert rec.explain(loss, values=True).status("weight") == "nonfinite"


def test_a_backward_that_gradir_may_not_run_is_reported() -> None:
    model = nn.Linear(2, 2, device="meta")
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 2, device="meta")).sum()
    verdict = rec.explain(loss).verdict
    assert verdict == (
        "Both parameters are in the graph. Values were not examined: tensors on the meta device have no numbers."
    )


def test_a_gradient_that_is_scaled_to_zero_after_the_step_was_used() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(4, 2)).square().mean()
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad.mul_(0)
    assert rec.explain(loss, optimizer=optimizer).level == "none"


def test_a_gradient_that_is_scaled_to_something_is_no_alarm() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(4, 2)).square().mean()
        loss.backward()
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)
        optimizer.step()
    assert rec.explain(loss, optimizer=optimizer).causes == ()


@pytest.mark.parametrize("on", [torch.enable_grad, lambda: torch.set_grad_enabled(True)])
def test_gradients_switched_on_in_inference_mode_change_nothing(on: Any) -> None:
    model = nn.Linear(2, 1)
    with gradir.record(model, flow=True) as rec:
        with torch.inference_mode(), on():
            out = model(torch.ones(4, 2))
        loss = out.sum()
    assert [(cause.kind, cause.level) for cause in rec.explain(loss).causes] == [("inference_mode", "error")]


@pytest.fixture
def group() -> object:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class Passed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        return grad


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("communicates", [False, True])
def test_values_overwritten_in_a_group_are_found_or_said_to_be_unknown(*, communicates: bool) -> None:
    weight = nn.Parameter(torch.tensor([0.5, -0.3]))
    with gradir.record(flow=True) as rec:
        out = torch.exp(weight)
        # What a function of the user's does in its backward is not known.
        loss = ((Passed.apply(out) if communicates else out) * 2).sum()
        out.data.clamp_(max=1.0)
    found = rec.explain(loss, params={"weight": weight})
    assert found.status("weight") == ("reached" if communicates else "wrong")
    assert found.examined.overwritten is not communicates
    assert ("Unseen writes to saved tensors were not examined" in found.verdict) is communicates


def test_a_cell_of_a_notebook_has_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    shells = pytest.importorskip("IPython.core.interactiveshell")
    shell = shells.InteractiveShell.instance()
    try:
        shell.run_cell(
            "import torch, gradir\nenc, dec = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)", store_history=True
        )
        number = shell.execution_count
        shell.run_cell(
            "with gradir.record(flow=True) as rec:\n    h = enc(torch.ones(1, 2)).detach()\n    loss = dec(h).sum()",
            store_history=True,
        )
        shell.run_cell("print(rec.explain(loss))")
    finally:
        shells.InteractiveShell.clear_instance()
    out = capsys.readouterr().out
    assert f"detach() cuts all of enc (cell {number}, line 2)." in out
    assert "2 |     h = enc(torch.ones(1, 2)).detach()" in out
