"""What is told with an optimizer: what it lacks, what was replaced, and what it moves in vain."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from explained_models import Model, named  # noqa: E402

import gradir  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


HEAD = ("head.weight", "head.bias")


def test_what_the_optimizer_lacks_is_noted_and_excuses_a_cut() -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.head.parameters(), 0.1)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 3)).sum()
        cut = model.head(model.stem(torch.ones(1, 3)).detach()).sum()
    (cause,) = rec.explain(loss, optimizer=optimizer).causes
    assert (cause.kind, cause.level, cause.names) == ("not_in_optimizer", "note", ("stem.weight", "stem.bias"))
    assert [(c.kind, c.level) for c in rec.explain(cut, optimizer=optimizer).causes] == [("detach", "info")]
    assert [(c.kind, c.level) for c in rec.explain(cut).causes] == [("detach", "error")]


def test_a_loss_without_a_graph_is_an_error_whatever_the_optimizer_has() -> None:
    model, other = Model(), nn.Linear(1, 1)
    optimizer = torch.optim.SGD(other.parameters(), 0.1)

    def off(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return model(x).sum()

    for run, kinds, status in (
        (off, {("no_grad", "error")}, "cut"),
        (lambda x: model(x).sum().detach(), {("detach", "error")}, "cut"),
        (lambda x: (model(x), x.sum())[1], {("no_graph", "error")}, "unused"),
    ):
        with gradir.record(model, flow=True) as rec:
            loss = run(torch.ones(1, 3))
        with pytest.raises(RuntimeError, match="does not require grad"):
            loss.backward()
        found = rec.explain(loss, optimizer=optimizer)
        assert {(cause.kind, cause.level) for cause in found.causes} == kinds
        assert all(cause.source is not None for cause in found.causes)
        assert set(found.statuses.values()) == {status}


def test_parameters_that_were_replaced_after_the_optimizer_was_made_are_named() -> None:
    for head in (nn.Linear(3, 2), nn.Linear(3, 7)):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model.head = head
        with gradir.record(model, flow=True) as rec:
            loss = model(torch.ones(1, 3)).sum()
        loss.backward(retain_graph=True)
        before = head.weight.clone()
        assert named(rec.explain(loss, optimizer=optimizer)) == [("replaced", "error", HEAD)]
        optimizer.step()
        assert torch.equal(head.weight, before)


def test_a_model_that_was_made_anew_after_its_optimizer_is_named() -> None:
    optimizer = torch.optim.SGD(Model().parameters(), 0.1)
    model = Model()
    with gradir.record(model, flow=True) as rec:
        loss = model.head(model.stem(torch.ones(1, 3)).detach()).sum()
    stem = ("stem.weight", "stem.bias")
    assert named(rec.explain(loss, optimizer=optimizer)) == [("detach", "error", stem), ("replaced", "error", HEAD)]


def test_an_optimizer_of_something_else_has_replaced_nothing() -> None:
    model, other = Model(), Model()
    frozen = Model()
    frozen.stem.requires_grad_(requires_grad=False)
    x = torch.ones(1, 3)
    with gradir.record(model, flow=True) as rec:
        loss = model(x).sum() + other(x).sum() + frozen(x).sum()
    for optimizer in (
        # Of another model that is part of the loss, of the whole and more, and of a part.
        torch.optim.SGD(other.parameters(), 0.1),
        torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1),
        torch.optim.SGD(model.stem.parameters(), 0.1),
        torch.optim.SGD([*model.stem.parameters(), *other.head.parameters()], 0.1),
    ):
        assert rec.explain(loss, optimizer=optimizer).level == "none"
    optimizer = torch.optim.SGD([p for p in frozen.parameters() if p.requires_grad], 0.1)
    assert rec.explain(loss, model=frozen, optimizer=optimizer).level == "info"
    frozen.head = nn.Linear(3, 2)
    with gradir.record(frozen, flow=True) as rec:
        loss = frozen(x).sum()
    assert named(rec.explain(loss, optimizer=optimizer))[-1] == ("replaced", "error", HEAD)
    # Of two heads of the same shape the one that another task trains.
    with gradir.record({"stem": model.stem, "head": model.head}, flow=True) as rec:
        loss = model(x).sum()
    optimizer = torch.optim.SGD([*model.stem.parameters(), *other.head.parameters()], 0.1)
    assert rec.explain(loss, optimizer=optimizer).level == "none"


def test_parameters_in_groups_of_their_own_may_have_been_replaced_too() -> None:
    model = Model()
    weights, biases = [model.stem.weight, model.head.weight], [model.stem.bias, model.head.bias]
    optimizer = torch.optim.SGD([{"params": weights}, {"params": biases, "weight_decay": 0.0}], 0.1)
    del weights, biases
    model.head = nn.Linear(3, 2)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 3)).sum()
    assert named(rec.explain(loss, optimizer=optimizer)) == [("replaced", "error", HEAD)]


def test_an_optimizer_of_nothing_that_the_loss_is_computed_of_is_an_error() -> None:
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    with gradir.record({"model": model, "other": other}, flow=True) as rec:
        loss = other(torch.ones(1, 2)).sum()
    mistaken = rec.explain(loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert named(mistaken)[0] == ("unused", "error", ("model.weight", "model.bias"))
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    assert rec.explain(loss, optimizer=both).level == "info"
    loss.backward()
    assert all(parameter.grad is None for parameter in model.parameters())
