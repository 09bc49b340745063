"""Explanations where a part of the program runs outside the recording, or has run already."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import gradir  # noqa: E402


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def test_a_loss_that_is_finished_outside_the_recording_reaches_what_backward_reaches() -> None:
    m = model()
    with gradir.record(m, flow=True) as rec:
        out = m(torch.randn(3, 4))
    for values in (True, False):
        found = rec.explain(out.square().mean(), values=values)
        assert set(found.statuses.values()) == {"reached"}
        assert found.level == "none", str(found)


def test_a_part_that_ran_before_the_recording_is_reached() -> None:
    m = model()
    hidden = m[0](torch.randn(3, 4))
    with gradir.record(m, flow=True) as rec:
        loss = m[2](hidden.tanh()).mean()
    found = rec.explain(loss)
    assert set(found.statuses.values()) == {"reached"}
    assert found.level == "none", str(found)


def test_of_what_is_cut_outside_the_recording_nothing_is_claimed() -> None:
    m = model()
    with gradir.record(m, flow=True) as rec:
        out = m(torch.randn(3, 4))
    found = rec.explain(out.detach().mean())
    assert set(found.statuses.values()) == {"unreached"}
    # A backward from it raises, whatever it was computed from.
    assert [cause.kind for cause in found.causes] == ["unrecorded", "no_graph"]


def test_after_its_own_backward_a_loss_is_explained_without_another() -> None:
    m = model()
    with gradir.record(m, flow=True) as rec:
        loss = m(torch.randn(3, 4)).mean()
    loss.backward()
    found = rec.explain(loss)
    assert set(found.statuses.values()) == {"reached"}
    assert found.level == "none", str(found)
    assert [cause.kind for cause in rec.explain(loss, values=True).causes] == ["freed"]


def test_gradients_that_cancel_exactly_are_no_alarm() -> None:
    critic = nn.Linear(4, 1)
    with gradir.record(critic, flow=True) as rec:
        loss = critic(torch.randn(5, 4)).mean() - critic(torch.randn(5, 4)).mean()
    found = rec.explain(loss)
    assert found.statuses == {"weight": "reached", "bias": "zero"}
    assert found.level == "none", str(found)


@pytest.mark.parametrize("optimizer", [[], 3, nn.Linear(1, 1).parameters()])
def test_what_is_no_optimizer_is_refused_in_one_line(optimizer: object) -> None:
    m = model()
    with gradir.record(m, flow=True) as rec:
        loss = m(torch.randn(3, 4)).mean()
    with pytest.raises(gradir.CaptureError, match=r"optimizer is no optimizer of torch\.optim but \w+"):
        rec.explain(loss, optimizer=optimizer)


class Withholding(torch.autograd.Function):
    """Gives back no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return None


def test_a_backward_that_returns_none_cuts_what_is_behind_it() -> None:
    m = model()
    with gradir.record(m, flow=True) as rec:
        loss = m[2](Withholding.apply(m[0](torch.randn(3, 4)))).mean()
    found = rec.explain(loss)
    assert found.statuses == {"0.weight": "cut", "0.bias": "cut", "2.weight": "reached", "2.bias": "reached"}
    assert [(cause.kind, cause.level, cause.names) for cause in found.causes] == [
        ("withheld", "error", ("0.weight", "0.bias"))
    ]


def test_a_factor_that_starts_at_zero_and_learns_is_no_alarm() -> None:
    torch.manual_seed(0)
    a, b = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(4, 2))
    with gradir.record(flow=True) as rec:
        loss = (torch.randn(3, 4) @ a.T @ b.T + 1).square().mean()
    found = rec.explain(loss, params={"a": a, "b": b})
    assert found.statuses == {"a": "zero", "b": "reached"}
    assert [(cause.kind, cause.level) for cause in found.causes] == [("starting", "note")]
    with torch.no_grad():
        a.zero_()
    with gradir.record(flow=True) as rec:
        loss = (torch.randn(3, 4) @ a.T @ b.T + 1).square().mean()
    assert rec.explain(loss, params={"a": a, "b": b}).level == "error"


@pytest.mark.parametrize("subject", [3, "loss", [], nn.Linear(2, 2), ValueError])
def test_what_is_no_loss_is_refused_in_one_line(subject: object) -> None:
    with gradir.record(flow=True) as rec:
        torch.ones(3)
    said = f"of type {type(subject).__name__}; give the loss, or the error that the forward raised"
    with pytest.raises(gradir.CaptureError, match=said):
        rec.explain(subject)


@pytest.mark.parametrize("with_graph", [True, False])
def test_names_of_tensors_are_checked_and_made_plain_with_a_graph_and_without(with_graph: bool) -> None:
    w = torch.ones(3, requires_grad=True)
    with gradir.record(flow=True) as rec:
        loss = (w if with_graph else w.detach()).sum()
    found = rec.explain(loss, params={3: w, "a\ud800": w})  # type: ignore[dict-item]
    assert [*found.statuses] == ["3", "a\\ud800"]
    found.to("json")
    with pytest.raises(KeyError, match=r"no parameter or tensor '33' .did you mean '3'"):
        found.status("33")
    for params, said in (([w], "not a mapping of names"), ({"w": 3}, "is not a tensor but int"), ({"": w}, "empty")):
        with pytest.raises(gradir.CaptureError, match=said):
            rec.explain(loss, params=params)  # type: ignore[arg-type]


def test_a_network_that_was_not_recorded_is_said_to_be_one() -> None:
    online, target = nn.Linear(3, 2), nn.Linear(3, 2)
    with gradir.record(online, flow=True) as rec:
        with torch.no_grad():
            wanted = target(torch.ones(4, 3)).amax(1)
        loss = (online(torch.ones(4, 3))[:, 0] - wanted).square().mean()
    del target
    found = rec.explain(loss)
    assert (found.level, set(found.statuses.values())) == ("none", {"reached"})
    (cause,) = found.causes
    assert (cause.kind, cause.level, cause.names) == ("no_grad", "note", ())
    assert cause.text.endswith(
        "which cuts a tensor that has no name: 2 parameters that the recorded model does not have"
    )


def test_what_a_model_keeps_in_a_list_is_its_own() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    model.kept = [nn.Linear(3, 3)]
    with gradir.record(model, flow=True) as rec:
        hidden = model.kept[0](torch.ones(4, 3)).detach()
        loss = model(hidden).square().mean()
    assert rec.explain(loss).level == "info"
