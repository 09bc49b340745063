"""Which cuts are meant: one name and one level for a program and its file, and advice that keeps the gradient."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.explanations.from_cuts import explain_cuts  # noqa: E402

nn, functional, distributions = torch.nn, torch.nn.functional, torch.distributions
Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Told(NamedTuple):
    """What is said of a loss, and of the file of its graph."""

    report: gradir.Explanation
    of_file: gradir.Explanation

    def patterns(self, kinds: tuple[str, ...] = ("detach", "data", "no_grad")) -> set[str]:
        """The patterns of the cuts that a program asks for."""
        return {cause.pattern for cause in self.report.causes if cause.kind in kinds}

    @property
    def said(self) -> tuple[str, str, set[str]]:
        """Both levels, and the patterns."""
        return self.report.level, self.of_file.level, self.patterns()


def told(model: Any, forward: Callable[[], Tensor], **options: Any) -> Told:
    with gradir.record(model, flow=True) as recorder:
        loss = forward()
    report = recorder.explain(loss, **options)
    names = {"params": options["params"]} if "params" in options else {}
    found = Told(report, explain_cuts(recorder.capture(loss, **names)))
    loss.backward()
    for name, tensor in {**dict(model.named_parameters()), **options.get("params", {})}.items():
        # A backward is what decides.
        assert (tensor.grad is None) == (report.status(name) in {"cut", "frozen", "unused"}), name
    return found


def layer(*sizes: int) -> Any:
    return nn.Linear(*(sizes or (4, 3)))


def small(a: int = 4, b: int = 3) -> Any:
    return nn.Sequential(nn.Linear(a, 8), nn.ReLU(), nn.Linear(8, b))


x = torch.linspace(-1, 1, 20).reshape(5, 4)


def taken_out(w: Tensor) -> Tensor:
    return w.round() - w.detach() + w


def difference_under_no_grad(w: Tensor) -> Tensor:
    with torch.no_grad():
        difference = w.round() - w
    return w + difference


@pytest.mark.parametrize(
    "quantised",
    [
        lambda w: w + (w.round() - w).detach(),
        lambda w: (w.sign() - w).detach() + w,
        lambda w: w - (w - w.round()).detach(),
        lambda w: w.sign().detach() + w - w.detach(),
        lambda w: w.round().detach() - w.detach() + w,
        # What is computed twice has equal numbers.
        lambda w: (w.sign() - w.clamp(-1, 1)).detach() + w.clamp(-1, 1),
        lambda w: (w > 0).float() - w.sigmoid().detach() + w.sigmoid(),
        lambda w: w + (w.round() - w).data,
        taken_out,
        difference_under_no_grad,
    ],
)
def test_a_straight_through_estimator_is_named_in_every_order_of_its_terms(
    quantised: Callable[[Tensor], Tensor],
) -> None:
    model = layer()
    found = told(model, lambda: functional.linear(x, quantised(model.weight), model.bias).pow(2).mean())
    assert found.said == ("info", "info", {"straight-through"})
    (cause, *_) = (cause for cause in found.report.causes if cause.pattern)
    assert cause.advice.startswith("keep this cut: without it")
    assert {each.pattern for each in found.of_file.causes} == {"straight-through"}


def test_without_the_detach_of_an_estimator_the_gradient_would_be_zero() -> None:
    weight = nn.Parameter(torch.tensor([0.3, -0.2]))
    (weight + (weight.round() - weight)).sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


@pytest.mark.parametrize(
    "other",
    [
        lambda w: w + w.round().detach(),
        lambda w: w + (w.round() - 2 * w).detach(),
        lambda w: w * (w.round() / w).detach(),
        lambda w: w + (w.round() - w.abs()).detach(),
    ],
)
def test_what_does_not_cancel_is_no_estimator(other: Callable[[Tensor], Tensor]) -> None:
    model = layer()
    found = told(model, lambda: functional.linear(x, other(model.weight), model.bias).pow(2).mean())
    assert "straight-through" not in found.patterns()


def test_a_learned_step_that_the_estimator_passes_by_is_lost() -> None:
    model, step = layer(), nn.Parameter(torch.tensor(0.1))

    def forward() -> Tensor:
        w = model.weight
        return functional.linear(x, w + ((w / step).round() * step - w).detach(), model.bias).pow(2).mean()

    found = told(model, forward, params={"step": step})
    assert found.report.level == found.of_file.level == "error"
    (cause,) = (cause for cause in found.report.causes if cause.level == "error")
    assert (cause.kind, cause.pattern, cause.names) == ("detach", "straight-through", ("step",))
    assert "add a loss of the value inside" in cause.advice


class Quantised(nn.Module):
    """A VQ-VAE, with the loss of its codebook or without."""

    def __init__(self, *, has_loss: bool, by_product: bool) -> None:
        super().__init__()
        self.encoder, self.decoder, self.book = nn.Linear(4, 3), nn.Linear(3, 4), nn.Embedding(8, 3)
        self.has_loss, self.by_product = has_loss, by_product

    def forward(self, x: Tensor) -> Tensor:
        z = self.encoder(x)
        nearest = torch.cdist(z, self.book.weight).argmin(1)
        q = nn.functional.one_hot(nearest, 8).float() @ self.book.weight if self.by_product else self.book(nearest)
        losses = functional.mse_loss(q, z.detach()) + 0.25 * (z - q.detach()).pow(2).mean() if self.has_loss else 0
        return functional.mse_loss(self.decoder(z + (q - z).detach()), x) + losses


@pytest.mark.parametrize("by_product", [True, False])
def test_a_codebook_learns_by_its_loss_alone(*, by_product: bool) -> None:
    model = Quantised(has_loss=True, by_product=by_product)
    found = told(model, lambda: model(x), optimizer=torch.optim.Adam(model.parameters()))
    assert found.said == ("info", "info", {"codebook", "straight-through"})
    model = Quantised(has_loss=False, by_product=by_product)
    found = told(model, lambda: model(x), optimizer=torch.optim.Adam(model.parameters()))
    assert found.report.level == found.of_file.level == "error"
    (cause,) = (cause for cause in found.report.causes if cause.kind == "detach")
    assert (cause.names, cause.level, cause.pattern) == (("book.weight",), "error", "straight-through")
    assert "F.mse_loss(q, z.detach()) for a codebook" in cause.advice


def test_gumbel_softmax_that_is_hard_and_one_that_is_written_out() -> None:
    model = nn.ModuleDict({"a": layer(), "b": layer(3, 1)})

    def by_hand() -> Tensor:
        soft = functional.softmax(model["a"](x), -1)
        hard = functional.one_hot(soft.argmax(-1), 3).float()
        return model["b"](hard - soft.detach() + soft).pow(2).mean()

    of_torch = told(model, lambda: model["b"](functional.gumbel_softmax(model["a"](x), hard=True)).pow(2).mean())
    assert (of_torch.report.level, of_torch.patterns()) == ("none", {"straight-through"})
    found = told(model, by_hand)
    assert (found.report.level, found.patterns()) == ("info", {"straight-through"})


def test_a_surrogate_gradient_of_a_custom_function_is_no_cut() -> None:
    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return (x > 0).float()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad / (1 + 10 * ctx.saved_tensors[0].abs()) ** 2

    model = nn.Sequential(layer(), layer(3, 1))
    assert told(model, lambda: model[1](Spike.apply(model[0](x))).pow(2).mean()).report.level == "none"


@pytest.mark.parametrize(
    "distance",
    [
        lambda p, z: -functional.cosine_similarity(p, z.detach(), dim=-1).mean(),
        lambda p, z: -(functional.normalize(p, dim=1) * functional.normalize(z.detach(), dim=1)).sum(1).mean(),
        lambda p, z: (p - z.detach()).pow(2).mean(),
    ],
)
def test_simsiam_stops_the_gradient_of_one_side(distance: Callable[[Tensor, Tensor], Tensor]) -> None:
    model = nn.ModuleDict({"encoder": layer(), "predictor": layer(3, 3)})

    def forward() -> Tensor:
        z, other = model["encoder"](x), model["encoder"](x + 1)
        return distance(model["predictor"](z), other) + distance(model["predictor"](other), z)

    found = told(model, forward)
    assert found.said == ("info", "info", {"stop-gradient"})


def no_grad_of(network: Any, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        result: Tensor = network(inputs)
    return result


def detached(network: Any, inputs: Tensor) -> Tensor:
    result: Tensor = network(inputs).detach()
    return result


@pytest.mark.parametrize("stopped", [no_grad_of, detached])
@pytest.mark.parametrize("has_optimizer", [True, False])
def test_a_copy_is_a_target_network_as_in_byol_and_dqn(
    stopped: Callable[[Any, Tensor], Tensor], *, has_optimizer: bool
) -> None:
    online, predictor = small(), layer(3, 3)
    model = nn.ModuleDict({"online": online, "other": copy.deepcopy(online), "predictor": predictor})
    trained = torch.optim.Adam([*online.parameters(), *predictor.parameters()]) if has_optimizer else None
    byol = told(
        model,
        lambda: 2 - 2 * functional.cosine_similarity(predictor(online(x)), stopped(model["other"], x)).mean(),
        optimizer=trained,
    )
    actions, rewards = torch.tensor([[0], [1], [2], [0], [1]]), torch.ones(5, 1)
    model = nn.ModuleDict({"online": online, "other": copy.deepcopy(online)})
    online.zero_grad()
    dqn = told(
        model,
        lambda: functional.smooth_l1_loss(
            online(x).gather(1, actions), rewards + 0.9 * stopped(model["other"], x + 1).max(1, keepdim=True).values
        ),
        optimizer=torch.optim.Adam(online.parameters()) if has_optimizer else None,
    )
    for found in (byol, dqn):
        assert found.patterns() == {"target network"}
        assert found.report.level == found.of_file.level == "info"


def test_all_that_a_line_runs_shows_whether_it_is_a_copy() -> None:
    # The scale and the bias of a normalisation are as any other's.
    online = nn.Sequential(layer(), nn.BatchNorm1d(3), layer(3, 3))
    model = nn.ModuleDict({"online": online, "other": copy.deepcopy(online), "predictor": layer(3, 3)})

    def forward() -> Tensor:
        return 2 - 2 * functional.cosine_similarity(model["predictor"](online(x)), no_grad_of(model["other"], x)).mean()

    found = told(model, forward, optimizer=torch.optim.Adam([*online.parameters(), *model["predictor"].parameters()]))
    assert found.said == ("info", "info", {"target network"})


@pytest.mark.parametrize("name", ["slow", "old", "ref", "shadow", "teacher", "other"])
def test_what_the_optimizer_has_is_to_learn_whatever_it_looks_like(name: str) -> None:
    online = small()
    model = nn.ModuleDict({name: copy.deepcopy(online), "online": online})

    def forward() -> Tensor:
        online.zero_grad()
        return functional.mse_loss(online(x), no_grad_of(model[name], x + 1))

    of_online, of_all = torch.optim.Adam(online.parameters()), torch.optim.Adam(model.parameters())
    assert told(model, forward, optimizer=of_online).report.level == "info"
    report = told(model, forward, optimizer=of_all).report
    (cause,) = report.causes
    assert (report.level, cause.kind) == ("error", "no_grad")
    assert cause.names == tuple(f"{name}.{own}" for own, _ in online.named_parameters())
    assert cause.text.endswith("and the optimizer has them")
    assert cause.advice.startswith("take them out of the optimizer")


@pytest.mark.parametrize("names", [("policy", "target"), ("q", "old"), ("online", "other")])
def test_an_optimizer_of_the_target_alone_should_have_what_follows_it(names: tuple[str, str]) -> None:
    online = small()
    model = nn.ModuleDict(dict(zip(names, (online, copy.deepcopy(online)), strict=True)))

    def forward() -> Tensor:
        online.zero_grad()
        return functional.mse_loss(online(x), 1 + 0.9 * no_grad_of(model[names[1]], x))

    of_target = torch.optim.Adam(model[names[1]].parameters())
    report = told(model, forward, optimizer=of_target).report
    (error,) = (cause for cause in report.causes if cause.level == "error")
    assert (error.kind, error.names) == (
        "not_in_optimizer",
        tuple(f"{names[0]}.{own}" for own, _ in online.named_parameters()),
    )
    assert f": it has only {names[1]}.0.weight, {names[1]}.0.bias" in error.text
    (cut,) = (cause for cause in report.causes if cause.kind == "no_grad")
    assert (cut.level, cut.pattern in {"target network", "reference model"}) == ("info", True)
    # The other network has an optimizer of its own, so this one is to move what it has.
    of_online = torch.optim.Adam(online.parameters())
    report = told(model, forward, optimizer=of_target).report
    assert [cause.kind for cause in report.causes if cause.level == "error"] == ["no_grad"]
    del of_online


def test_an_average_is_one_although_the_optimizer_has_it() -> None:
    model = nn.ModuleDict({"query": layer(), "key": layer()})

    def forward() -> Tensor:
        moved_under_no_grad(model["query"], model["key"])
        return functional.mse_loss(model["query"](x), no_grad_of(model["key"], x))

    found = told(model, forward, optimizer=torch.optim.Adam(model.parameters()))
    assert (found.report.level, found.patterns()) == ("info", {"target network"})


def test_members_of_an_ensemble_are_no_target_although_they_are_copies() -> None:
    one = small()
    model = nn.ModuleList([one, copy.deepcopy(one)])
    for optimizer in (None, torch.optim.Adam(model.parameters())):
        one.zero_grad()
        found = told(
            model,
            lambda: functional.mse_loss((one(x) + no_grad_of(model[1], x)) / 2, torch.ones(5, 3)),
            optimizer=optimizer,
        )
        assert (found.report.level, found.patterns()) == ("error", {""})


@pytest.mark.parametrize("stopped", [no_grad_of, detached])
@pytest.mark.parametrize(
    "compared",
    [
        lambda p, z: 2 - 2 * functional.cosine_similarity(p, z).mean(),
        functional.mse_loss,
        lambda p, z: (p - z).pow(2).mean(),
    ],
)
def test_of_two_sides_without_a_gradient_the_target_is_not_the_error(
    stopped: Callable[[Any, Tensor], Tensor], compared: Callable[[Tensor, Tensor], Tensor]
) -> None:
    model = nn.ModuleDict({"online": layer(), "predictor": layer(3, 3)})

    def forward() -> Tensor:
        prediction = model["predictor"](model["online"](x).detach())
        return compared(prediction, stopped(model["online"], x + 1))

    found = told(model, forward, optimizer=torch.optim.Adam(model.parameters())).report
    assert [(cause.level, cause.pattern) for cause in found.causes] == [("error", ""), ("info", "stop-gradient")]
    assert found.causes[0].excerpt is not None
    assert "prediction = " in found.causes[0].excerpt.text


def test_an_estimator_the_wrong_way_round_is_reported_before_what_it_replaces() -> None:
    model = nn.ModuleDict({"encoder": layer(), "book": nn.Embedding(6, 3), "decoder": layer(3, 4)})

    def forward() -> Tensor:
        z = model["encoder"](x)
        codes = model["book"](torch.cdist(z, model["book"].weight).argmin(1))
        return functional.mse_loss(model["decoder"](codes + (z - codes).detach()), x)

    found = told(model, forward, optimizer=torch.optim.Adam(model.parameters())).report
    errors = [cause for cause in found.causes if cause.level == "error"]
    assert [(cause.kind, cause.pattern) for cause in errors] == [
        ("detach", "straight-through"),
        ("nondifferentiable", ""),
    ]
    assert "swap the two values" in errors[0].advice


@pytest.mark.parametrize("has_optimizer", [True, False])
def test_a_line_that_both_networks_run_names_the_target_alone(*, has_optimizer: bool) -> None:
    def evaluated(network: Any, inputs: Tensor) -> Tensor:
        return network(inputs)

    online = layer()
    model = nn.ModuleDict({"online": online, "other": copy.deepcopy(online)})

    def forward() -> Tensor:
        with torch.no_grad():
            best = evaluated(online, x + 1).argmax(1, keepdim=True)
            goal = 1 + 0.9 * evaluated(model["other"], x + 1).gather(1, best)
        return functional.smooth_l1_loss(evaluated(online, x)[:, :1], goal)

    found = told(model, forward, optimizer=torch.optim.Adam(online.parameters()) if has_optimizer else None)
    for report in found:
        assert report.level == "info"
        assert [(cause.pattern, cause.names) for cause in report.causes] == [
            ("pseudo labels", ("online.weight", "online.bias")),
            ("target network", ("other.weight", "other.bias")),
        ]


def test_an_average_of_the_step_before_is_one_of_this_step() -> None:
    model = nn.ModuleDict({"online": layer(), "other": layer()})
    optimizer = torch.optim.SGD(model["online"].parameters(), 0.1)
    with gradir.record(model, flow=True) as recorder:
        for _ in range(2):
            loss = functional.mse_loss(model["online"](x), no_grad_of(model["other"], x))
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()
            with torch.no_grad():
                for new, old in zip(model["online"].parameters(), model["other"].parameters(), strict=True):
                    old.copy_(0.9 * old + 0.1 * new)
    report = recorder.explain(loss)
    assert (report.level, [cause.pattern for cause in report.causes]) == ("info", ["target network"])


def test_a_sample_that_torch_draws_without_a_gradient_is_reported_as_one() -> None:
    model = nn.ModuleDict({"mean": layer(), "head": layer(3, 1)})

    def forward() -> Tensor:
        drawn = torch.distributions.Normal(model["mean"](x), 1.0).sample()
        return model["head"](drawn).pow(2).mean()

    (cause,) = told(model, forward).report.causes
    assert (cause.kind, cause.level, cause.op, cause.names) == (
        "sample",
        "error",
        "normal",
        ("mean.weight", "mean.bias"),
    )
    assert cause.advice.startswith("use rsample()")


def moved_by_data(query: Any, key: Any) -> None:
    for new, old in zip(query.parameters(), key.parameters(), strict=True):
        old.data = old.data * 0.9 + new.data * 0.1


def moved_in_place(query: Any, key: Any) -> None:
    for new, old in zip(query.parameters(), key.parameters(), strict=True):
        old.data.mul_(0.9).add_(new.data, alpha=0.1)


def moved_under_no_grad(query: Any, key: Any) -> None:
    with torch.no_grad():
        for new, old in zip(query.parameters(), key.parameters(), strict=True):
            old.lerp_(new, 0.1)


@pytest.mark.parametrize("moved", [moved_by_data, moved_in_place, moved_under_no_grad])
def test_moco_moves_its_keys_in_the_forward(moved: Callable[[Any, Any], None]) -> None:
    model = nn.ModuleDict({"query": layer(), "key": layer()})
    queue = torch.ones(3, 2)

    def forward() -> Tensor:
        q = functional.normalize(model["query"](x), dim=1)
        moved(model["query"], model["key"])
        with torch.no_grad():
            k = functional.normalize(model["key"](x), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue], 1)
        return functional.cross_entropy(logits / 0.1, torch.zeros(5, dtype=torch.long))

    found = told(model, forward)
    assert found.said == ("info", "info", {"target network"})


@pytest.mark.parametrize("stopped", [no_grad_of, detached])
def test_a_teacher_is_called_so_or_runs_in_evaluation_mode(stopped: Callable[[Any, Tensor], Tensor]) -> None:
    for name, evaluates, level in (("teacher", False, "info"), ("big", True, "info"), ("big", False, "error")):
        model = nn.ModuleDict({name: small(), "student": layer()})
        model[name].train(not evaluates)

        def distilled(model: Any = model, name: str = name) -> Tensor:
            logits = stopped(model[name], x)
            return functional.kl_div(model["student"](x).log_softmax(1), logits.softmax(1), reduction="batchmean")

        found = told(model, distilled)
        assert found.report.level == found.of_file.level == level
        assert found.patterns() == {"teacher" if level == "info" else ""}


def test_dpo_and_grpo_with_a_reference() -> None:
    policy, tokens = layer(4, 5), torch.tensor([[0], [1], [2], [3], [4]])
    model = nn.ModuleDict({"policy": policy, "ref": copy.deepcopy(policy)})

    def log_probability(network: Any) -> Tensor:
        return network(x).log_softmax(-1).gather(1, tokens).squeeze(1)

    def grpo() -> Tensor:
        new = log_probability(policy)
        with torch.no_grad():
            reference = log_probability(model["ref"])
        ratio, kl = torch.exp(new - new.detach()), torch.exp(reference - new) - (reference - new) - 1
        return -(ratio * torch.tensor([1.0, -1.0, 0.5, -0.5, 0.0]) - 0.04 * kl).mean()

    found = told(model, grpo, optimizer=torch.optim.Adam(policy.parameters()))
    assert found.said == ("info", "info", {"policy ratio", "reference model"})

    def dpo() -> Tensor:
        policy.zero_grad()
        with torch.no_grad():
            reference = log_probability(model["ref"])
        return -functional.logsigmoid(0.1 * (log_probability(policy) - reference)).mean()

    def dpo_of_pairs() -> Tensor:
        policy.zero_grad()
        chosen, rejected, *_ = log_probability(policy).split(2)
        with torch.no_grad():
            other_chosen, other_rejected, *_ = log_probability(model["ref"]).split(2)
        return -functional.logsigmoid(chosen - rejected - (other_chosen - other_rejected)).mean()

    for loss in (dpo, dpo_of_pairs):
        found = told(model, loss)
        assert (found.report.level, found.patterns()) == ("info", {"reference model"})
    model["ref"].requires_grad_(requires_grad=False)
    assert told(model, dpo).report.level == "info"


def test_ppo_and_an_actor_with_its_critic() -> None:
    model = nn.ModuleDict({"actor": layer(), "critic": layer(4, 1)})
    returns, optimizer = torch.linspace(-1, 1, 5), torch.optim.Adam(model.parameters())

    def policy() -> Any:
        return torch.distributions.Categorical(logits=model["actor"](x))

    def ppo() -> Tensor:
        with torch.no_grad():
            actions = policy().sample()
            old = policy().log_prob(actions)
            value = model["critic"](x).squeeze(1)
        advantage = returns - value
        ratio = (policy().log_prob(actions) - old).exp()
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return (model["critic"](x).squeeze(1) - returns).pow(2).mean() - surrogate

    def a2c() -> Tensor:
        actions, value = policy().sample(), model["critic"](x).squeeze(1)
        advantage = returns - value.detach()
        return functional.mse_loss(value, returns) - (policy().log_prob(actions) * advantage).mean()

    found = told(model, ppo, optimizer=optimizer)
    assert (found.report.level, found.patterns()) == ("info", {"policy ratio", "advantage"})
    optimizer.zero_grad()
    found = told(model, a2c, optimizer=optimizer)
    assert (found.report.level, found.patterns()) == ("info", {"advantage"})


def test_labels_that_the_model_predicts_itself() -> None:
    model = layer()

    def argmax() -> Tensor:
        with torch.no_grad():
            labels = model(x).argmax(1)
        return functional.cross_entropy(model(x + 1), labels)

    def soft() -> Tensor:
        labels = model(x).softmax(1).detach()
        return -(labels * model(x + 1).log_softmax(1)).sum(1).mean()

    def fixmatch() -> Tensor:
        sure, labels = model(x).detach().softmax(-1).max(-1)
        return (functional.cross_entropy(model(x + 1), labels, reduction="none") * (sure > 0.3).float()).mean()

    for forward in (argmax, soft, fixmatch):
        model.zero_grad()
        found = told(model, forward)
        assert found.said == ("info", "info", {"pseudo labels"})


def test_a_target_of_the_network_itself_is_bootstrapped() -> None:
    model, actions = small(), torch.tensor([[0], [1], [2], [0], [1]])
    rewards = torch.ones(5, 1)
    found = told(
        model,
        lambda: functional.mse_loss(
            model(x).gather(1, actions), rewards + 0.9 * model(x + 1).max(1, keepdim=True).values.detach()
        ),
    )
    assert found.said == ("info", "info", {"bootstrapped target"})


@pytest.mark.parametrize("is_turned", [True, False])
def test_a_return_of_an_advantage_and_the_value_is_no_straight_through(*, is_turned: bool) -> None:
    model, advantage = small(4, 1), torch.linspace(-1, 1, 5)

    def forward() -> Tensor:
        value = model(x).squeeze(1)
        goal = advantage + value.detach()
        return (goal - value if is_turned else value - goal).pow(2).mean()

    found = told(model, forward, optimizer=torch.optim.Adam(model.parameters()))
    assert (found.report.level, found.patterns()) == ("info", {"bootstrapped target"})


@pytest.mark.parametrize("stopped", [no_grad_of, detached])
def test_the_other_network_of_a_gan_has_another_optimizer(stopped: Callable[[Any, Tensor], Tensor]) -> None:
    model = nn.ModuleDict({"g": layer(), "d": layer(3, 1)})
    real = torch.ones(5, 3)

    def critic() -> Tensor:
        fake = stopped(model["g"], x)
        mixed = (0.5 * real + 0.5 * fake).requires_grad_()
        (slope,) = torch.autograd.grad(model["d"](mixed).sum(), mixed, create_graph=True)
        return model["d"](fake).mean() - model["d"](real).mean() + 10 * (slope.norm(2, 1) - 1).pow(2).mean()

    report = told(model, critic, optimizer=torch.optim.Adam(model["d"].parameters())).report
    assert (report.level, {cause.pattern for cause in report.causes if cause.level == "info"}) == (
        "info",
        {"other optimizer"},
    )
    model.zero_grad()
    with gradir.record(model, flow=True) as recorder:
        loss = -model["d"](stopped(model["g"], x)).mean()
    assert recorder.explain(loss, optimizer=torch.optim.Adam(model["g"].parameters())).level == "error"


@pytest.mark.parametrize("stopped", [no_grad_of, detached])
def test_a_tower_that_should_learn_is_no_teacher(stopped: Callable[[Any, Tensor], Tensor]) -> None:
    model = nn.ModuleDict({"image": layer(), "text": layer(), "target_encoder": layer(), "head": layer(3, 2)})
    labels = torch.tensor([0, 1, 0, 1, 0])
    contrastive = told(
        model, lambda: functional.cross_entropy(model["image"](x) @ stopped(model["text"], x).t(), labels)
    )
    model.zero_grad()
    translated = told(
        model, lambda: functional.cross_entropy(model["head"](stopped(model["target_encoder"], x)), labels)
    )
    for found in (contrastive, translated):
        assert found.said == ("error", "error", {""})


def test_a_state_that_is_carried_over_is_no_comparison() -> None:
    model = nn.GRUCell(4, 3)

    def forward() -> Tensor:
        state = torch.zeros(5, 3)
        for step in range(4):
            state = model(x, state.detach() if step == 2 else state)
        return state.pow(2).mean()

    found = told(model, forward)
    assert (found.report.level, found.patterns()) == ("info", {"another path"})
    assert {cause.pattern for cause in found.of_file.causes} == {"another path"}
    (cause,) = (cause for cause in found.report.causes if cause.pattern)
    assert cause.text.endswith(", and another path gives them a gradient")
    assert cause.advice.startswith("keep this cut if it is intended, or take detach() out of this line if ")


def test_the_sample_of_a_score_function_is_kept() -> None:
    model = nn.ModuleDict({"mean": layer(), "value": layer(4, 1)})

    def forward() -> Tensor:
        policy = torch.distributions.Normal(model["mean"](x), 0.5)
        action = policy.sample()
        value = model["value"](x).squeeze(1)
        return -(policy.log_prob(action).sum(1) * (1 - value).detach()).mean() + value.pow(2).mean()

    found = told(model, forward, optimizer=torch.optim.Adam(model.parameters()))
    told_of = {cause.kind: cause for cause in found.report.causes}
    assert (found.report.level, told_of["sample"].pattern) == ("info", "score function")
    assert told_of["sample"].text == (
        "normal draws a sample, which passes no gradient back to mean.{weight,bias}, and another path "
        "gives them a gradient"
    )
    assert told_of["sample"].advice.startswith("keep this if the loss takes log_prob() of the sample")


@pytest.mark.parametrize(
    "draws", [lambda scores: distributions.Categorical(logits=scores), lambda scores: distributions.Normal(scores, 1.0)]
)
@pytest.mark.parametrize(("cut", "kind"), [(Tensor.detach, "detach"), (lambda each: torch.tensor([*each]), "rebuilt")])
def test_a_sample_is_no_fault_if_its_log_prob_is_cut(draws: Any, cut: Any, kind: str) -> None:
    actor, critic = layer(4, 3), layer(4, 1)
    model = nn.ModuleDict({"actor": actor, "critic": critic})

    def forward() -> Tensor:
        x = torch.ones(2, 4)
        distribution = draws(actor(x))
        scores = cut(distribution.log_prob(distribution.sample()).flatten()[:2])
        return (scores * critic(x).squeeze(1).detach()).sum() + critic(x).sum()

    found = told(model, forward, optimizer=torch.optim.Adam(model.parameters()))
    of_actor = [(each.kind, each.level) for each in found.report.causes if "actor.weight" in each.names]
    assert sorted(of_actor) == sorted([(kind, "error"), ("sample", "info")])


def test_a_solver_under_no_grad_with_one_step_outside_is_kept() -> None:
    model = nn.ModuleDict({"step": layer(4, 4), "out": layer()})

    def forward() -> Tensor:
        with torch.no_grad():
            state = torch.zeros(5, 4)
            for _ in range(3):
                state = torch.tanh(model["step"](state) + x)
        return model["out"](torch.tanh(model["step"](state) + x)).pow(2).mean()

    found = told(model, forward, optimizer=torch.optim.Adam(model.parameters()))
    assert (found.report.level, found.patterns()) == ("info", {"another path"})


def test_recipes_without_a_cut_stay_silent() -> None:
    model = small(4, 1)

    def maml() -> Tensor:
        names, weights = zip(*model.named_parameters(), strict=True)
        inner = torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (x,)).pow(2).mean()
        slopes = torch.autograd.grad(inner, weights, create_graph=True)
        fast = {name: w - 0.1 * g for name, w, g in zip(names, weights, slopes, strict=True)}
        return (torch.func.functional_call(model, fast, (x,)) - 1).pow(2).mean()

    assert told(model, maml, optimizer=torch.optim.Adam(model.parameters())).report.level == "none"


def test_the_json_names_the_pattern() -> None:
    model = layer()
    with gradir.record(model, flow=True) as recorder:
        w = model.weight
        loss = functional.linear(x, w + (w.round() - w).detach()).sum()
    (cause, *_) = json.loads(recorder.explain(loss).to("json"))["causes"]
    assert cause["pattern"] == "straight-through"
