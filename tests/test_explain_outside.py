"""Explanations where a part of the program runs outside the recording, or has run already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from threads import call_in_thread  # noqa: E402
from torch import nn  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.from_cuts import explain_cuts  # noqa: E402


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


def viewed(rec: gradir.Recorder, w: torch.Tensor) -> torch.Tensor:
    """View a recorded tensor outside: a step made what is in its memory."""
    with rec:
        out = w * torch.ones(2)
    view = out.view(-1)
    with rec:
        return view.sum()


def is_a_leaf(rec: gradir.Recorder, w: torch.Tensor) -> torch.Tensor:
    with rec:
        torch.ones(2).exp()
    return w


def added_to(rec: gradir.Recorder, w: torch.Tensor) -> torch.Tensor:
    """Add outside, in place, to what the last step made."""
    with rec:
        loss = w * 2.0
    loss += 1.0
    return loss


@pytest.mark.parametrize(("made", "status"), [(viewed, "unused"), (is_a_leaf, "unused"), (added_to, "unreached")])
def test_what_the_loss_does_not_use_is_claimed_only_when_all_of_it_was_seen(
    made: Callable[[gradir.Recorder, torch.Tensor], torch.Tensor], status: str
) -> None:
    w, other = torch.ones((), requires_grad=True), torch.ones((), requires_grad=True)
    rec = gradir.record(flow=True)
    found = rec.explain(made(rec, w), params={"w": w, "other": other})
    assert found.statuses == {"w": "reached", "other": status}


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


@pytest.mark.parametrize("optimizer", [[3], 3, nn.Linear(1, 1).parameters()])
def test_what_is_no_optimizer_is_refused_in_one_line(optimizer: object) -> None:
    m = model()
    with gradir.record(m, flow=True) as rec:
        loss = m(torch.randn(3, 4)).mean()
    with pytest.raises(gradir.CaptureError, match=r"optimizer is not an optimizer of torch\.optim but \w+"):
        rec.explain(loss, optimizer=optimizer)
    for empty in ([], ()):
        with pytest.raises(gradir.CaptureError, match="optimizer is an empty list: give the optimizers of the step"):
            rec.explain(loss, optimizer=empty)


class Withholding(torch.autograd.Function):
    """Gives back no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return None


def test_a_backward_that_returns_none_cuts_its_inputs() -> None:
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
    said = f"cannot explain {type(subject).__name__}: it has no tensor; pass the loss, or the error that the forward"
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


def test_a_network_that_was_not_recorded_is_named_as_such() -> None:
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
        "which cuts a tensor that has no name: 2 parameters of Linear that the recorded model does not have"
    )


def test_what_a_model_keeps_in_a_list_is_its_own() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    model.kept = [nn.Linear(3, 3)]
    with gradir.record(model, flow=True) as rec:
        hidden = model.kept[0](torch.ones(4, 3)).detach()
        loss = model(hidden).square().mean()
    assert rec.explain(loss).level == "info"


class Three(nn.Module):
    """Three layers, of which the loss takes two."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)


Recorded = tuple[Any, Any]
x = torch.ones(4, 3)


def finished_outside(model: Three) -> Recorded:
    with gradir.record(model, flow=True) as rec:
        hidden = model.a(x)
    return rec, model.b(hidden).sum() * model.c(x).detach().sum()


def begun_before(model: Three) -> Recorded:
    hidden = model.a(x) + model.c(x).detach()
    with gradir.record(model, flow=True) as rec:
        loss = model.b(hidden).sum()
    return rec, loss


def in_another_thread(model: Three) -> Recorded:
    with gradir.record(model, flow=True) as rec:
        hidden = call_in_thread(lambda: model.a(x) + model.c(x).detach())
        loss = model.b(hidden).sum()
    return rec, loss


def in_two_recordings(model: Three) -> Recorded:
    with gradir.record(model, flow=True):
        hidden = model.a(x) + model.c(x).detach()
    with gradir.record(model, flow=True) as rec:
        loss = model.b(hidden).sum()
    return rec, loss


def by_two_threads_one_after_the_other(model: Three) -> Recorded:
    rec = gradir.record(model, flow=True)

    def first() -> torch.Tensor:
        with rec:
            return model.a(x) + model.c(x).detach()

    hidden = call_in_thread(first)
    with rec:
        loss = model.b(hidden).sum()
    return rec, loss


def written_to_afterwards(model: Three) -> Recorded:
    with gradir.record(model, flow=True) as rec:
        loss = model.b(model.a(x)).sum()
    loss += model.c(x).detach().sum()
    return rec, loss


def carried_over(model: Three) -> Recorded:
    state = model.b(x) + model.c(x).detach()
    for _ in range(2):
        # Each step is a recording of its own.
        with gradir.record(model, flow=True) as rec:
            state = model.a(state).tanh()
            loss = state.sum()
    return rec, loss


@pytest.mark.parametrize(
    "run",
    [
        finished_outside,
        begun_before,
        in_another_thread,
        in_two_recordings,
        by_two_threads_one_after_the_other,
        written_to_afterwards,
        carried_over,
    ],
)
@pytest.mark.parametrize("values", [None, False])
def test_what_ran_outside_is_unknown_and_not_unused(run: Callable[[Three], Recorded], *, values: bool | None) -> None:
    net = Three()
    rec, loss = run(net)
    found, of_file = rec.explain(loss, values=values), explain_cuts(rec.capture(loss))
    assert found.statuses == of_file.statuses
    assert {found.status(f"{name}.weight") for name in "ab"} == {"reached"}
    assert found.status("c.weight") == "unreached"
    assert (found.level, of_file.level) == ("info", "info")
    assert [cause.kind for cause in found.causes] == ["unrecorded"]
    assert [cause.kind for cause in of_file.causes] == ["unreached"]


def test_the_line_at_which_an_unseen_part_enters_is_named() -> None:
    net = Three()
    rec, loss = begun_before(net)
    (cause,) = rec.explain(loss).causes
    assert cause.source is not None
    assert cause.source.function == "begun_before"
    assert "loss = model.b(hidden).sum()" in str(rec.explain(loss))


def test_a_cut_that_was_recorded_is_reported_beside_a_part_that_was_not() -> None:
    net = Three()
    hidden = net.a(x)
    with gradir.record(net, flow=True) as rec:
        loss = (hidden * net.c(x).detach()).sum()
    found, of_file = rec.explain(loss), explain_cuts(rec.capture(loss))
    assert found.statuses == of_file.statuses
    assert [found.status(f"{name}.weight") for name in "abc"] == ["reached", "unreached", "cut"]
    assert (found.level, of_file.level) == ("error", "error")
    assert [(cause.kind, cause.level) for cause in found.causes] == [("detach", "error"), ("unrecorded", "info")]


class Passing(torch.autograd.Function):
    """Gives what it got, which is another tensor in the same memory."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        return tensor

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def hooked(net: Three) -> Any:
    net.a.register_full_backward_hook(lambda *_: None)
    return net.b(net.a(x))


def written_in_place(net: Three) -> Any:
    both = torch.zeros(2, 4, 3)
    both[0], both[1] = net.a(x), net.b(x)
    both *= 2
    return both[0] + both[1]


def with_data(net: Three) -> Any:
    mask, bias, target = torch.ones(4, 1), torch.ones(3, requires_grad=True), TARGET
    return net.b(net.a(x) * mask + bias) - target


TARGET = nn.Linear(3, 3)(x).detach()


@pytest.mark.parametrize(
    "output",
    [
        with_data,
        hooked,
        written_in_place,
        lambda net: Passing.apply(net.b(net.a(x))),
        lambda net: torch.utils.checkpoint.checkpoint(net.b, net.a(x), use_reentrant=False),
        lambda net: torch.func.vmap(lambda row: net.b(net.a(row)))(x),
        lambda net: net.b(net.a(x)).chunk(2)[1],
        lambda net: (net.b(net.a(x)), x, TARGET),
    ],
)
def test_data_and_leaves_from_outside_make_nothing_unknown(output: Callable[[Three], Any]) -> None:
    net = Three()
    with gradir.record(net, flow=True) as rec:
        loss = output(net)
    found = rec.explain(loss, values=False)
    of_file = explain_cuts(rec.capture(loss[0] if isinstance(loss, tuple) else loss))
    assert found.statuses == of_file.statuses
    assert [found.status(f"{name}.weight") for name in "abc"] == ["reached", "reached", "unused"]
    assert [cause.kind for cause in found.causes] == ["unused"]


@pytest.mark.parametrize("recorded", ["nothing", "a part"])
def test_what_a_checkpoint_hides_has_one_status_by_every_name(recorded: str) -> None:
    net = Three()
    names = {f"net.{name}": parameter for name, parameter in net.named_parameters()}
    with gradir.record(net.a if recorded == "a part" else None, flow=True) as rec:
        loss = torch.utils.checkpoint.checkpoint(net.b, net.a(x), use_reentrant=True).sum()
    found = rec.explain(loss, params=names)
    assert {found.status(f"net.b.{kind}") for kind in ("weight", "bias")} == {"hidden"}
    assert {found.status(f"net.a.{kind}") for kind in ("weight", "bias")} == {"reached"}
    assert [(cause.kind, cause.names) for cause in found.causes] == [("unused", ("net.c.weight", "net.c.bias"))]


def test_a_checkpoint_without_a_gradient_hides_nothing() -> None:
    net = Three()
    names = {f"net.{name}": parameter for name, parameter in net.named_parameters()}
    with gradir.record(net.a, flow=True) as rec:
        # No input of it requires grad.
        loss = net.a(torch.utils.checkpoint.checkpoint(net.b, x, use_reentrant=True)).sum()
    found = rec.explain(loss, params=names)
    assert (found.level, found.status("net.b.weight")) == ("error", "cut")
