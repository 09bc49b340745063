"""A file tells the level, the lines and the patterns that its program tells, whichever side of a recipe is cut."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.explanations.from_cuts import explain_cuts  # noqa: E402

nn, functional = torch.nn, torch.nn.functional
Tensor = torch.Tensor

NOT_IN_A_FILE = frozenset({"frozen", "not_registered", "skipped", "unreached", "unrecorded", "unused"})
"""Kinds of what the file does not hold, or says in one cause without a line."""


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


x = torch.linspace(-1, 1, 20).reshape(5, 4)
y = x.flip(0)
tokens = torch.tensor([[0], [1], [2], [0], [1]])
advantages = torch.linspace(-1, 1, 5)


def layer(*sizes: int) -> Any:
    return nn.Linear(*(sizes or (4, 3)))


def small(a: int = 4, b: int = 3) -> Any:
    return nn.Sequential(nn.Linear(a, 8), nn.ReLU(), nn.Linear(8, b))


def alike(loss: Tensor, recorder: Any) -> gradir.Explanation:
    """The explanation of a program, which that of its file is held against."""
    report, of_file = recorder.explain(loss, values=False), explain_cuts(recorder.capture(loss))
    assert report.level == of_file.level
    assert {name: of_file.status(name) for name in report.statuses} == dict(report.statuses)

    def told(found: gradir.Explanation) -> list[tuple[object, ...]]:
        causes = [cause for cause in found.causes if cause.kind not in NOT_IN_A_FILE and cause.level != "note"]
        return [(cause.level, cause.pattern, cause.source, cause.text, cause.advice) for cause in causes]

    assert told(report) == told(of_file)
    return report


def run(model: Any, forward: Callable[[], Tensor]) -> gradir.Explanation:
    with gradir.record(model, flow=True) as recorder:
        loss = forward()
    return alike(loss, recorder)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return -functional.cosine_similarity(a, b).mean()


def of_unit_vectors(a: Tensor, b: Tensor) -> Tensor:
    return 2 - 2 * (functional.normalize(a, dim=1) * functional.normalize(b, dim=1)).sum(1).mean()


@pytest.mark.parametrize("compare", [cosine, of_unit_vectors, functional.mse_loss])
@pytest.mark.parametrize(
    ("cut", "level"), [("target", "info"), ("", "none"), ("encoder", "error"), ("encoder and target", "error")]
)
def test_byol_with_the_detach_on_either_side(cut: str, level: str, compare: Callable[[Tensor, Tensor], Tensor]) -> None:
    online = small()
    model = nn.ModuleDict({"online": online, "predictor": small(3, 3), "target": copy.deepcopy(online)})

    def forward() -> Tensor:
        hidden, wanted = model["online"](x), model["target"](y)
        hidden = hidden.detach() if "encoder" in cut else hidden
        return compare(model["predictor"](hidden), wanted.detach() if "target" in cut else wanted)

    assert run(model, forward).level == level


@pytest.mark.parametrize("compare", [cosine, of_unit_vectors, functional.mse_loss])
@pytest.mark.parametrize(
    ("cut", "level"), [("target", "info"), ("prediction", "error"), ("encoder", "info"), ("one of both", "info")]
)
def test_simsiam_with_the_detach_on_either_side(
    cut: str, level: str, compare: Callable[[Tensor, Tensor], Tensor]
) -> None:
    model = nn.ModuleDict({"encoder": small(), "predictor": layer(3, 3)})

    def half(a: Tensor, b: Tensor, *, is_cut: bool = True) -> Tensor:
        encoded, wanted = model["encoder"](a), model["encoder"](b)
        if cut == "encoder":
            return compare(model["predictor"](encoded.detach()), wanted)
        guess = model["predictor"](encoded)
        return compare(guess.detach() if cut == "prediction" else guess, wanted.detach() if is_cut else wanted)

    both = {"one of both": (True, False), "prediction": (False, False)}.get(cut, (True, True))
    assert run(model, lambda: half(x, y, is_cut=both[0]) + half(y, x, is_cut=both[1])).level == level


@pytest.mark.parametrize("kind", ["right", "open", "swapped"])
def test_a_target_network_with_and_without_no_grad(kind: str) -> None:
    model = nn.ModuleDict({"q": small(), "target": small()})
    model["target"].load_state_dict(model["q"].state_dict())

    def forward() -> Tensor:
        with torch.set_grad_enabled(kind != "swapped"):
            value = model["q"](x).gather(1, tokens)
        with torch.set_grad_enabled(kind != "right"):
            wanted = 1 + 0.9 * model["target"](y).max(1, keepdim=True).values
        return functional.smooth_l1_loss(value, wanted)

    assert run(model, forward).level == {"right": "info", "open": "none", "swapped": "error"}[kind]


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("cut", ["teacher", "student"])
def test_a_teacher_in_either_mode(cut: str, *, trains: bool) -> None:
    model = nn.ModuleDict({"big": nn.Sequential(layer(4, 8), nn.Dropout(), layer(8, 3)), "student": layer()})
    model["big"].train(trains)

    def forward() -> Tensor:
        guess, wanted = model["student"](x), model["big"](x)
        guess, wanted = (guess, wanted.detach()) if cut == "teacher" else (guess.detach(), wanted)
        return functional.mse_loss(guess.softmax(1), wanted.softmax(1))

    assert run(model, forward).level == ("info" if cut == "teacher" and not trains else "error")


def compared(q: Tensor, z: Tensor) -> Tensor:
    return functional.mse_loss(q, z.detach())


@pytest.mark.parametrize(
    ("terms", "level"),
    [("codebook commitment", "info"), ("commitment", "error"), ("codebook", "info"), ("", "error"), ("wrong", "info")],
)
@pytest.mark.parametrize("looks_up", [lambda codes, i: codes[i], lambda codes, i: functional.embedding(i, codes)])
def test_a_codebook_with_and_without_its_losses(
    terms: str, level: str, looks_up: Callable[[Tensor, Tensor], Tensor]
) -> None:
    model = nn.ModuleDict({"encoder": layer(4, 3), "decoder": layer(3, 4)})
    model.register_parameter("codes", nn.Parameter(torch.randn(7, 3)))

    def forward() -> Tensor:
        z = model["encoder"](x)
        q = looks_up(model.codes, torch.cdist(z, model.codes).argmin(1))
        through = q + (z - q).detach() if terms == "wrong" else z + (q - z).detach()
        loss = functional.mse_loss(model["decoder"](through), x)
        loss = loss + compared(q, z) if "codebook" in terms else loss
        return loss + 0.25 * compared(z, q) if "commitment" in terms or terms == "wrong" else loss

    report = run(model, forward)
    assert report.level == level
    if terms == "commitment":
        # The line that passes the codebook by is mended, and not the target of the commitment.
        assert [cause.pattern for cause in report.causes][:1] == ["straight-through"]
        assert ("info", "stop-gradient") in {(cause.level, cause.pattern) for cause in report.causes}


def log_probability(network: Any) -> Tensor:
    return network(x).log_softmax(-1).gather(1, tokens).squeeze(1)


@pytest.mark.parametrize(("cut", "level"), [("old", "info"), ("", "none"), ("new", "info"), ("old new", "error")])
def test_a_policy_ratio_with_the_detach_on_either_side(cut: str, level: str) -> None:
    model = nn.ModuleDict({"policy": small(), "value": layer(4, 1)})

    def forward() -> Tensor:
        old, new = log_probability(model["policy"]), log_probability(model["policy"])
        old, new = old.detach() if "old" in cut else old, new.detach() if "new" in cut else new
        return model["value"](x).square().mean() - ((new - old).exp() * advantages).mean()

    assert run(model, forward).level == level


@pytest.mark.parametrize(("cut", "level"), [("ref", "info"), ("", "info"), ("policy", "error")])
def test_grpo_with_the_detach_on_either_side(cut: str, level: str) -> None:
    policy = small()
    model = nn.ModuleDict({"policy": policy, "ref": copy.deepcopy(policy)})

    def forward() -> Tensor:
        new, reference = log_probability(model["policy"]), log_probability(model["ref"])
        new, reference = new.detach() if cut == "policy" else new, reference.detach() if cut == "ref" else reference
        divergence = torch.exp(reference - new) - (reference - new) - 1
        return -((new - new.detach()).exp() * advantages - 0.04 * divergence).mean()

    assert run(model, forward).level == level


@pytest.mark.parametrize(("cut", "level"), [("advantage", "info"), ("", "info"), ("policy", "error")])
@pytest.mark.parametrize("kind", ["Categorical", "Normal"])
def test_an_actor_with_its_critic_and_the_detach_on_either_side(cut: str, level: str, kind: str) -> None:
    model = nn.ModuleDict({"actor": layer(), "critic": layer(4, 1)})

    def forward() -> Tensor:
        score, value = model["actor"](x), model["critic"](x).squeeze(1)
        if kind == "Categorical":
            policy = torch.distributions.Categorical(logits=score)
            chosen = policy.log_prob(policy.sample())
        else:
            policy = torch.distributions.Normal(score, 1.0)
            chosen = policy.log_prob(policy.sample()).sum(1)
        better = advantages - (value.detach() if cut == "advantage" else value)
        chosen = chosen.detach() if cut == "policy" else chosen
        return functional.mse_loss(value, advantages) - (chosen * better).mean()

    assert run(model, forward).level == level


def hard(logits: Tensor) -> Tensor:
    scores = logits.softmax(-1)
    return torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)


@pytest.mark.parametrize(
    ("passed", "level"),
    [
        (lambda logits: functional.gumbel_softmax(logits, hard=True), "none"),
        (functional.gumbel_softmax, "none"),
        (lambda logits: hard(logits) - logits.softmax(-1).detach() + logits.softmax(-1), "info"),
        (lambda logits: (hard(logits) - logits.softmax(-1) + logits.softmax(-1)).detach(), "error"),
        (lambda logits: hard(logits) + (hard(logits) - logits.softmax(-1)).detach(), "error"),
        (lambda logits: functional.one_hot(logits.argmax(-1), 3).float(), "error"),
        (lambda z: z + (z.round() - z).detach(), "info"),
        (lambda z: z.round() + (z - z.round()).detach(), "info"),
        (lambda z: (z + (z.round() - z)).detach(), "error"),
        (lambda z: z.detach() + (z.round() - z).detach(), "error"),
        (lambda z: z - (z.round() - z).detach(), "info"),
    ],
)
def test_a_category_or_a_rounding_in_right_and_wrong_orders(passed: Callable[[Tensor], Tensor], level: str) -> None:
    model = nn.ModuleDict({"encoder": layer(4, 3), "decoder": layer(3, 4)})
    forward = lambda: functional.mse_loss(model["decoder"](passed(model["encoder"](x))), x)  # noqa: E731
    assert run(model, forward).level == level


def copied_in_place(model: Any) -> Tensor:
    model["b"].weight.data.copy_(model["a"].weight * 0.5)
    return model["b"](x).sum()


def copied_under_no_grad(model: Any) -> Tensor:
    with torch.no_grad():
        model["b"].weight.copy_(model["a"].weight + model["c"].weight)
    return model["b"](x).sum()


def assigned(model: Any) -> Tensor:
    model["b"].weight.data = model["a"].weight * 0.5
    return model["b"](x).sum()


@pytest.mark.parametrize("forward", [copied_in_place, copied_under_no_grad, assigned])
def test_numbers_that_are_put_into_a_parameter(forward: Callable[[Any], Tensor]) -> None:
    model = nn.ModuleDict({name: layer() for name in "abc"})
    report = run(model, lambda: forward(model))
    assert (report.level, report.status("a.weight")) == ("error", "cut")
    assert "put" in {cause.kind for cause in report.causes}


@pytest.mark.parametrize(("name", "status"), [("b", "unused"), ("a", "reached")])
def test_new_numbers_alone_are_no_loss_even_after_the_old_ones_were_used(name: str, status: str) -> None:
    model = nn.ModuleDict({"a": layer(), "b": layer()})

    def forward() -> Tensor:
        loss = model["a"](x).sum()
        model[name].weight.data = torch.ones(3, 4)
        return loss

    report = run(model, forward)
    assert (report.level, report.status(f"{name}.weight")) == ("info", status)
    assert [cause.kind for cause in report.causes] == ["exchanged", "unused"]


def under_no_grad(network: Any, given: Tensor = x) -> Tensor:
    with torch.no_grad():
        return network(given)


@pytest.mark.parametrize("stopped", [under_no_grad, lambda network: network(x).detach()])
def test_a_network_that_was_not_recorded_is_a_note_in_a_file_too(stopped: Callable[[Any], Tensor]) -> None:
    model, other = layer(), layer()
    with gradir.record(model, flow=True) as recorder:
        loss = functional.mse_loss(model(x), stopped(other))
    report = alike(loss, recorder)
    assert (report.level, [cause.level for cause in report.causes]) == ("none", ["note"])
    (cause,) = explain_cuts(recorder.capture(loss)).causes
    assert (cause.level, cause.pattern) == ("note", "other model")
    assert cause.advice == report.causes[0].advice == "record that model too if it should learn from this loss"


def test_a_variable_is_no_parameter_of_a_file() -> None:
    model = layer()
    with gradir.record(model, flow=True) as recorder:
        scale = torch.ones(3, requires_grad=True)
        loss = (model(x) * (scale * 2).detach()).sum() + scale.sum()
    report, of_file = recorder.explain(loss), explain_cuts(recorder.capture(loss))
    assert (report.level, of_file.level) == ("info", "info")
    assert set(of_file.statuses) == {"weight", "bias"}


def test_inputs_of_compiled_code_are_opaque_in_a_file_too() -> None:
    inside, lost = layer(), layer()
    model = nn.ModuleDict({"inside": inside, "lost": lost, "aside": layer()})

    @torch.compile(backend="eager")
    def part(a: Tensor) -> Tensor:
        return inside(a) + lost(a).detach()

    with gradir.record(model, flow=True) as recorder:
        model["aside"](x)
        loss = part(x).sum()
    report = alike(loss, recorder)
    told = [(cause.kind, cause.names) for cause in explain_cuts(recorder.capture(loss)).causes]
    assert told == [("opaque", ("lost.weight", "lost.bias")), ("unused", ("aside.weight", "aside.bias"))]
    assert report.status("lost.weight") == "unreached"


@pytest.mark.parametrize("is_reached", [True, False])
def test_all_names_of_a_tied_parameter_are_reported(*, is_reached: bool) -> None:
    model = nn.ModuleDict({name: layer() for name in "abc"})
    model["b"].weight = model["a"].weight

    def forward() -> Tensor:
        loss = (model["a"](x).detach() * model["c"](x)).sum()
        return loss + model["b"].weight.sum() if is_reached else loss

    report = run(model, forward)
    assert {report.status(f"{name}.weight") for name in "ab"} == {"reached" if is_reached else "cut"}
    (cause,) = (cause for cause in report.causes if cause.kind == "detach")
    assert {*cause.names} == {"a.weight", "b.weight", "a.bias"}


def by_an_optimizer(learner: Any, loss: Tensor) -> None:
    optimizer = torch.optim.SGD(learner.parameters(), 0.1)
    loss.backward()
    optimizer.step()


def by_hand(learner: Any, loss: Tensor) -> None:
    slopes = torch.autograd.grad(loss, [*learner.parameters()])
    with torch.no_grad():
        for parameter, slope in zip(learner.parameters(), slopes, strict=True):
            parameter.sub_(0.1 * slope)


@pytest.mark.parametrize("update", [by_an_optimizer, by_hand, lambda *_: None])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_learner_that_is_a_copy_cuts_at_the_copy(update: Callable[[Any, Tensor], None], steps: int) -> None:
    model = nn.ModuleDict({"net": small(4, 1), "head": layer(1, 1)})

    def forward() -> Tensor:
        learner = copy.deepcopy(model["net"])
        for _ in range(steps):
            update(learner, learner(x).square().mean())
        return model["head"](learner(y)).square().mean()

    report = run(model, forward)
    (cause, *_) = report.causes
    assert (report.status("net.0.weight"), cause.kind, cause.level) == ("cut", "copied", "error")
    assert cause.source is not None
    assert "copy.deepcopy" in (cause.excerpt.text if cause.excerpt else "")


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_cut_beside_a_target_that_is_a_copy_is_reported_alone(is_frozen: bool) -> None:
    model = nn.ModuleDict({"net": small(4, 2), "head": layer(2, 2)})

    def forward() -> Tensor:
        target = copy.deepcopy(model["net"]).requires_grad_(not is_frozen)
        return functional.mse_loss(model["head"](model["net"](x).detach()), under_no_grad(target, y))

    causes = [cause for cause in run(model, forward).causes if cause.level == "error"]
    assert [(cause.kind, cause.names) for cause in causes] == [
        ("detach", ("net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"))
    ]


def test_a_frozen_copy_of_a_learning_network_is_no_loss() -> None:
    model = nn.ModuleDict({"net": small(4, 1)})

    def forward() -> Tensor:
        return functional.mse_loss(model["net"](x), under_no_grad(copy.deepcopy(model["net"]), y))

    assert run(model, forward).level == "none"
