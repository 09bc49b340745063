"""What is told of gradients in whole models, losses and recordings: frozen, untied, left out, hidden, shared."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from explained_models import Model, name_causes  # noqa: E402
from tensors import leaf_of as leaf  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.explanations.from_cuts import explain_cuts  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_a_frozen_model_is_an_error_where_nothing_learns_and_else_none() -> None:
    model = Model()
    model.stem.requires_grad_(requires_grad=False)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 3)).sum()
    (cause,) = rec.explain(loss).causes
    assert (cause.kind, cause.level, cause.names) == ("frozen", "info", ("stem.weight", "stem.bias"))
    assert rec.explain(loss).status("stem.weight") == "frozen"
    model.requires_grad_(requires_grad=False)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 3)).sum()
    (cause,) = rec.explain(loss).causes
    assert (cause.kind, cause.level, len(cause.names)) == ("frozen", "error", 4)


def test_a_model_that_is_frozen_throughout_is_named_as_such() -> None:
    model = Model().requires_grad_(requires_grad=False)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 3)).sum()
    (cause,) = rec.explain(loss).causes
    assert cause.text == (
        "{stem,head}.{weight,bias} have requires_grad=False: the loss depends on nothing that requires grad"
    )


def test_causes_of_one_line_and_kind_are_one_with_all_names() -> None:
    model = nn.ModuleDict({name: nn.Linear(2, 2, bias=False) for name in ("text", "head", "image", "tail")})
    with gradir.record(model, flow=True) as rec:
        with torch.no_grad():
            hidden = model["head"](model["text"](torch.ones(1, 2)))
        loss = (model["tail"](model["image"](torch.ones(1, 2)).detach()) + hidden.detach()).sum()
    found = rec.explain(loss)
    assert [(cause.kind, cause.level, cause.names) for cause in found.causes] == [
        ("no_grad", "error", ("text.weight", "head.weight")),
        ("detach", "error", ("image.weight",)),
    ]
    stored = explain_cuts(rec.capture(loss))
    assert [(cause.kind, cause.names) for cause in stored.causes] == [
        ("no_grad", ("text.weight", "head.weight")),
        ("detach", ("image.weight",)),
    ]


def test_two_cuts_on_one_line_have_separate_levels() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with gradir.record(flow=True) as rec:
        loss = (a.detach() * b.detach() + b).sum()
    assert [(cause.level, cause.names) for cause in rec.explain(loss, params={"a": a, "b": b}).causes] == [
        ("error", ("a",)),
        ("info", ("b",)),
    ]


def test_a_copy_of_a_model_is_no_cut_that_anybody_has_to_look_at() -> None:
    student = nn.Linear(3, 1)
    with gradir.record(student, flow=True) as rec:
        teacher = copy.deepcopy(student).requires_grad_(requires_grad=False)
        loss = (student(torch.ones(2, 3)) - teacher(torch.ones(2, 3)) + 1).square().sum()
    found = rec.explain(loss)
    assert [(cause.kind, cause.level) for cause in found.causes] == [("data", "note")]
    with gradir.record(student, flow=True) as rec:
        loss = (student(torch.ones(2, 3)) * student.weight.data.clone()).sum()
    assert [(cause.kind, cause.level) for cause in rec.explain(loss).causes] == [("data", "info")]


def test_a_number_that_is_only_printed_cuts_nothing() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 1), "watched": nn.Linear(3, 1)})
    x, watched = torch.ones(2, 3), ("watched.weight", "watched.bias")

    def before(look: Any) -> torch.Tensor:
        look(model["watched"](x))
        return model["used"](x).sum()

    def after(look: Any) -> torch.Tensor:
        loss = model["used"](x).sum()
        look(model["watched"](x))
        return loss

    for run in (before, after):
        for look in (lambda out: out.sum().item(), lambda out: out.tolist(), lambda out: bool(out.sum() > 0)):
            with gradir.record(model, flow=True) as rec:
                loss = run(look)
            assert name_causes(rec.explain(loss)) == [("unused", "info", watched)]
    with gradir.record(model, flow=True) as rec:
        factor = model["watched"](x).sum().item()
        loss = model["used"](x).sum() * factor
    assert name_causes(rec.explain(loss)) == [("exit", "error", watched)]
    with gradir.record(model, flow=True) as rec:
        loss = model["used"](x).sum() * torch.tensor(model["watched"](x).tolist()).sum()
    assert name_causes(rec.explain(loss)) == [("exit", "error", watched)]


def test_a_gradient_penalty_without_create_graph_cuts_all_that_one_with_it_reaches() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def penalty(*, create_graph: bool) -> torch.Tensor:
        x = torch.randn(3, 4, requires_grad=True)
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=create_graph)
        return (slope.norm(2, 1) - 1).square().mean()

    with gradir.record(model, flow=True) as rec:
        loss = penalty(create_graph=True)
    found = rec.explain(loss)
    loss.backward()
    reached = tuple(name for name, parameter in model.named_parameters() if parameter.grad is not None)
    assert reached == ("0.weight", "0.bias", "2.weight")
    assert name_causes(found) == [("unused", "info", ("2.bias",))]
    with gradir.record(model, flow=True) as rec:
        loss = penalty(create_graph=False)
    first, second = rec.explain(loss).causes
    assert (first.kind, first.level, sorted(first.names)) == ("no_create_graph", "error", sorted(reached))
    # A bias that is added last moves no slope.
    assert (second.kind, second.level, second.names) == ("unused", "info", ("2.bias",))


def test_an_unnamed_leaf_is_called_by_its_variable() -> None:
    model, outer = nn.Linear(3, 1), torch.ones(2, 3, requires_grad=True)
    with gradir.record(model, flow=True) as rec:
        x = torch.randn(2, 3, requires_grad=True)
        loss = model(x.exp().detach()).sum()
    (cause,) = rec.explain(loss).causes
    assert (cause.level, cause.names, cause.text) == ("info", ("x",), "detach() cuts x")
    with gradir.record(model, flow=True) as rec:
        loss = model(outer.exp().detach()).sum()
    (cause,) = rec.explain(loss).causes
    assert (cause.level, cause.names, cause.text) == ("info", (), "detach() cuts a tensor that has no name")


def test_layers_in_a_list_are_not_registered() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.others = nn.Linear(3, 3), [nn.Linear(3, 3)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.others[0](self.first(x))

    model = Listed()
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 3)).sum()
    (cause,) = rec.explain(loss).causes
    assert (cause.kind, cause.level) == ("not_registered", "error")
    assert cause.names == ("others[0].weight", "others[0].bias")


def test_a_tie_that_was_broken_is_reported_and_one_that_holds_is_not() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(x)).logsumexp(-1)

    model = Tied()
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.tensor([0, 1, 2, 3, 4])).sum()
    assert (rec.explain(loss).causes, rec.explain(loss).status("head.weight")) == ((), "reached")
    assert str(rec.explain(loss)) == "embed.weight = head.weight gets a gradient."
    told = str(rec.explain(loss.detach()))
    assert told.startswith("embed.weight = head.weight gets no gradient: ")
    assert "embed.weight = head.weight" in told
    model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.tensor([0, 1, 2, 3, 4])).sum()
    (cause,) = rec.explain(loss).causes
    assert (cause.kind, cause.level, cause.names) == ("untied", "error", ("embed.weight", "head.weight"))


@pytest.mark.parametrize("way", ["shared memory", "frozen"])
def test_weights_that_stay_equal_are_not_reported_to_be_untied(way: str) -> None:
    embed, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight.data = embed.weight.data if way == "shared memory" else embed.weight.data.clone()
    embed.requires_grad_(way != "frozen")
    head.requires_grad_(way != "frozen")
    scale = nn.Linear(1, 1)
    model = nn.ModuleDict({"embed": embed, "head": head, "scale": scale})
    with gradir.record(model, flow=True) as rec:
        loss = (scale(torch.ones(1)) * head(embed(torch.tensor([1, 2]))).logsumexp(-1)).sum()
    assert "untied" not in {cause.kind for cause in rec.explain(loss).causes}
    loss.backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    assert torch.equal(embed.weight, head.weight)


def test_parameters_behind_a_reentrant_checkpoint_are_hidden() -> None:
    from torch.utils.checkpoint import checkpoint

    model = Model()
    with gradir.record(model, flow=True) as rec:
        loss = checkpoint(model, torch.ones(1, 3, requires_grad=True), use_reentrant=True).sum()
    found = rec.explain(loss)
    assert set(found.statuses.values()) == {"hidden"}
    assert found.level == "none"


def test_ddp_of_one_process_names_parameters_outside_the_loss(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:

        class Heads(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.one, self.other = nn.Linear(3, 2), nn.Linear(3, 2)

            def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                return self.one(x), self.other(x)

        model = nn.parallel.DistributedDataParallel(Heads(), find_unused_parameters=True)
        with gradir.record(model, flow=True) as rec:
            one, other = model(torch.ones(1, 3))
            loss, whole = one.sum(), one.sum() + other.sum()
        assert rec.explain(whole).level == "none"
        (cause,) = rec.explain(loss).causes
        assert (cause.kind, cause.level) == ("unused", "error")
        assert cause.names == ("module.other.weight", "module.other.bias")
    finally:
        torch.distributed.destroy_process_group()


def test_a_module_made_inside_the_recording_is_known_by_its_names() -> None:
    with gradir.record(flow=True) as rec:
        model = Model()
        loss = model(torch.ones(1, 3)).sum()
    assert rec.explain(loss).statuses == dict.fromkeys(dict(model.named_parameters()), "reached")


def test_a_metric_without_a_graph_may_be_beside_the_loss() -> None:
    a = leaf()
    with gradir.record(flow=True) as rec:
        loss = a.exp().sum()
        metric = (a > 0).sum()
    assert rec.explain({"loss": loss, "metric": metric}, params={"a": a}).status("a") == "reached"


def test_each_term_names_reached_parameters() -> None:
    a, c = leaf(), leaf()
    with gradir.record(flow=True) as rec:
        fit = a.exp().sum()
        penalty = c.detach().pow(2).sum()
        loss = fit + 0.1 * penalty
    found = rec.explain(loss, params={"a": a, "c": c})
    assert [(term.variable, term.names) for term in found.terms] == [("fit", ("a",)), ("penalty", ())]
    assert "  penalty at " in str(found)


def test_a_derivative_that_keeps_its_graph_is_no_cut() -> None:
    a, c = leaf(), leaf()
    with gradir.record(flow=True) as rec:
        (slope,) = torch.autograd.grad((a.exp().tanh() * c).sum(), a, create_graph=True)
        loss = slope.pow(2).sum()
    found = rec.explain(loss, params={"a": a, "c": c})
    assert (found.statuses, found.causes) == ({"a": "reached", "c": "reached"}, ())


def test_an_object_that_cannot_be_explained_is_reported_in_one_line() -> None:
    a = leaf()
    with gradir.record() as rec:
        loss = a.sum()
    with pytest.raises(CaptureError, match=r"use gradir.record\(model, flow=True\)"):
        rec.explain(loss)
    with pytest.raises(CaptureError, match="the recorder is empty"):
        gradir.record(flow=True).explain(loss)
    with gradir.record(flow=True) as rec:
        pass
    with pytest.raises(CaptureError, match="it has no tensor"):
        rec.explain({"loss": 3.0})


def test_a_buffer_that_learns_is_not_registered_as_a_parameter() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.register_buffer("scale", torch.ones(2, requires_grad=True))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * self.scale

    model = Scaled()
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 2)).sum()
    assert name_causes(rec.explain(loss)) == [("not_registered", "error", ("scale",))]


def test_a_derivative_without_its_graph_is_reported_where_another_term_reaches_all() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    with gradir.record(model, flow=True) as rec:
        x = torch.ones(3, 2, requires_grad=True)
        out = model(x).sum()
        (slope,) = torch.autograd.grad(out, x, retain_graph=True)
        loss = out + slope.square().sum()
    found = rec.explain(loss)
    assert [(cause.kind, cause.level) for cause in found.causes] == [("no_create_graph", "info")]
    assert set(found.statuses.values()) == {"reached"}


def test_a_cut_names_first_the_parameters_without_gradient() -> None:
    model = nn.ModuleDict({name: nn.Linear(3, 3) for name in ("stem", "body", "spare")})
    with gradir.record(model, flow=True) as rec:
        h = model["body"](model["stem"](torch.ones(1, 3)))
        loss = h.sum() + model["spare"](h).argmax(-1).float().mean()
    found = rec.explain(loss)
    (cause,) = found.causes
    assert (cause.kind, cause.level) == ("nondifferentiable", "error")
    assert cause.names[:2] == ("spare.weight", "spare.bias")
    assert set(cause.names[2:]) == {"stem.weight", "stem.bias", "body.weight", "body.bias"}
    assert found.allow(["spare.*"]).level == "none"
    assert found.allow(["body.*", "stem.*"]).level == "error"


def test_cuts_inside_functions_of_torch_are_no_alarm() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), nn.Linear(3, 2))

    def loss_of(cut: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return model[1](cut(nn.functional.gumbel_softmax(model[0](torch.randn(5, 4)), hard=True))).square().mean()

    for cut, level in ((lambda x: x, "none"), (lambda x: x + x.detach(), "info"), (torch.detach, "error")):
        with gradir.record(model, flow=True) as rec:
            loss = loss_of(cut)
        assert rec.explain(loss).level == level


def test_a_module_without_a_hash_is_explained_as_any_other() -> None:
    class Ordered(nn.Linear):
        __hash__ = None

    model = nn.ModuleDict({"used": Ordered(2, 1), "idle": Ordered(2, 1)})
    with gradir.record(model, flow=True) as rec:
        loss = model["used"](torch.ones(3, 2)).sum()
    assert [cause.names for cause in rec.explain(loss).causes] == [("idle.weight", "idle.bias")]


@pytest.mark.parametrize(
    "convert",
    [lambda p: p.double().float(), lambda p: p * 0.1, lambda p: p.unsqueeze(0).clone(), lambda p: [p]],
    ids=["cast", "scaled", "viewed", "listed"],
)
def test_what_was_made_of_a_parameter_when_a_module_was_built_is_not_registered(convert: Any) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.scale = convert(nn.Parameter(torch.rand(2)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = self.scale[0] if isinstance(self.scale, list) else self.scale
            self.last, self.weights = scale * 2, self.inner.weight * 2
            return self.inner(x) * scale

    model = Scaled()
    for held, level in (([], "error"), ([scale_leaf(model)], "note")):
        optimizer = torch.optim.SGD([*model.parameters(), *held], 0.1)
        with gradir.record(model, flow=True) as rec:
            loss = model(torch.ones(1, 2)).sum()
        (cause,) = rec.explain(loss, optimizer=optimizer).causes
        is_built = level == "error" and not isinstance(model.scale, list)
        assert (cause.kind, cause.level) == ("nonleaf" if is_built else "not_registered", level)
        assert cause.names == (("scale[0]",) if isinstance(model.scale, list) else ("scale",))


def scale_leaf(model: Any) -> torch.Tensor:
    tensor = model.scale[0] if isinstance(model.scale, list) else model.scale
    fn = tensor.grad_fn
    while fn is not None and not hasattr(fn, "variable"):
        fn = fn.next_functions[0][0]
    return tensor if fn is None else fn.variable
