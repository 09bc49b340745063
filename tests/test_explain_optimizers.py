"""What is told with an optimizer: what it lacks, what was replaced, and what it moves in vain."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from explained_models import Model, name_causes  # noqa: E402

import gradir  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


HEAD = ("head.weight", "head.bias")


def test_what_the_optimizer_lacks_is_recorded_and_excuses_a_cut() -> None:
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
        assert name_causes(rec.explain(loss, optimizer=optimizer)) == [("replaced", "error", HEAD)]
        optimizer.step()
        assert torch.equal(head.weight, before)


def with_weight_norm(model: Any) -> None:
    nn.utils.parametrizations.weight_norm(model.head)


def with_old_weight_norm(model: Any) -> None:
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(model.head)


def without_bias(model: Any) -> None:
    model.stem = nn.Linear(3, 3, bias=False)


def with_a_deeper_head(model: Any) -> None:
    model.head = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


@pytest.mark.parametrize("change", [with_weight_norm, with_old_weight_norm, without_bias, with_a_deeper_head])
def test_the_optimizer_has_a_tensor_that_the_model_does_not_have_any_more(change: Callable[[Any], None]) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = dict(model.named_parameters())
    change(model)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 3)).sum()
    new = tuple(name for name, p in model.named_parameters() if all(p is not old for old in before.values()))
    kept = {id(p) for p in model.parameters()}
    shapes = [str(tuple(old.shape)) for old in before.values() if id(old) not in kept]
    del before
    (cause,) = rec.explain(loss, optimizer=optimizer).causes
    assert (cause.kind, cause.level, cause.names) == ("replaced", "error", new)
    assert cause.text.endswith(f"before it was changed: of shape {', '.join(shapes)}")


def test_a_tensor_beside_the_model_that_this_loss_leaves_out_is_nothing_that_was_replaced() -> None:
    actor, critic, log_alpha = Model(), nn.Linear(2, 1, bias=False), nn.Parameter(torch.zeros(1))
    model = nn.ModuleDict({"actor": actor, "critic": critic})
    optimizer = torch.optim.SGD([*actor.parameters(), log_alpha], 0.1)
    with gradir.record(model, flow=True) as rec:
        loss = -critic(actor(torch.ones(1, 3))).mean()
    assert [cause.level for cause in rec.explain(loss, optimizer=optimizer).causes] == ["note"]


def test_a_model_that_was_made_anew_after_its_optimizer_is_named() -> None:
    optimizer = torch.optim.SGD(Model().parameters(), 0.1)
    model = Model()
    with gradir.record(model, flow=True) as rec:
        loss = model.head(model.stem(torch.ones(1, 3)).detach()).sum()
    stem = ("stem.weight", "stem.bias")
    assert name_causes(rec.explain(loss, optimizer=optimizer)) == [
        ("detach", "error", stem),
        ("replaced", "error", HEAD),
    ]


def test_an_optimizer_of_something_else_has_replaced_nothing() -> None:
    model, other = Model(), Model()
    frozen = Model()
    frozen.stem.requires_grad_(requires_grad=False)
    x = torch.ones(1, 3)
    with gradir.record(model, flow=True) as rec:
        loss = model(x).sum() + other(x).sum() + frozen(x).sum()
    for optimizer in (
        # Of another model that is part of the loss, of the whole and more, and of a new head.
        torch.optim.SGD(other.parameters(), 0.1),
        torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1),
        torch.optim.SGD(model.head.parameters(), 0.1),
    ):
        assert rec.explain(loss, optimizer=optimizer).level == "none"
    for optimizer in (
        torch.optim.SGD(model.stem.parameters(), 0.1),
        torch.optim.SGD([*model.stem.parameters(), *other.head.parameters()], 0.1),
    ):
        # The head is lacking, and was not replaced.
        assert name_causes(rec.explain(loss, optimizer=optimizer)) == [("not_in_optimizer", "error", HEAD)]
    optimizer = torch.optim.SGD([p for p in frozen.parameters() if p.requires_grad], 0.1)
    assert rec.explain(loss, model=frozen, optimizer=optimizer).level == "info"
    frozen.head = nn.Linear(3, 2)
    with gradir.record(frozen, flow=True) as rec:
        loss = frozen(x).sum()
    assert name_causes(rec.explain(loss, optimizer=optimizer))[-1] == ("replaced", "error", HEAD)
    # Of two heads of the same shape the one that another task trains.
    with gradir.record({"stem": model.stem, "head": model.head}, flow=True) as rec:
        loss = model(x).sum()
    optimizer = torch.optim.SGD([*model.stem.parameters(), *other.head.parameters()], 0.1)
    assert all(cause.kind != "replaced" for cause in rec.explain(loss, optimizer=optimizer).causes)


def test_parameters_in_groups_of_their_own_may_have_been_replaced_too() -> None:
    model = Model()
    weights, biases = [model.stem.weight, model.head.weight], [model.stem.bias, model.head.bias]
    optimizer = torch.optim.SGD([{"params": weights}, {"params": biases, "weight_decay": 0.0}], 0.1)
    del weights, biases
    model.head = nn.Linear(3, 2)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 3)).sum()
    assert name_causes(rec.explain(loss, optimizer=optimizer)) == [("replaced", "error", HEAD)]


def test_an_optimizer_of_nothing_that_the_loss_is_computed_of_is_an_error() -> None:
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    with gradir.record({"model": model, "other": other}, flow=True) as rec:
        loss = other(torch.ones(1, 2)).sum()
    mistaken = rec.explain(loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert name_causes(mistaken)[0] == ("unused", "error", ("model.weight", "model.bias"))
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    assert rec.explain(loss, optimizer=both).level == "info"
    loss.backward()
    assert all(parameter.grad is None for parameter in model.parameters())


def explained(model: Any, run: Callable[[], Any], optimizer: Any, **options: Any) -> gradir.Explanation:
    """What is said of a loss, if a step of the optimizer moves as much as it says."""
    with gradir.record(model, flow=True) as rec:
        loss = run()
    report = rec.explain(loss, optimizer=optimizer, **options)
    tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    slopes = torch.autograd.grad(loss, wanted, allow_unused=True) if wanted else ()
    moves = any(slope is not None and bool(slope.any()) for slope in slopes)
    assert moves or report.level == "error"
    return report


SGD = torch.optim.SGD


def two() -> Any:
    return nn.ModuleDict({"g": nn.Linear(3, 4), "d": nn.Linear(4, 1)})


@pytest.mark.parametrize("recorded", ["both", "g", "d", "none"])
def test_an_optimizer_of_which_nothing_moves_is_an_error_whatever_was_recorded(recorded: str) -> None:
    for run, kind in (
        (lambda m: nn.functional.softplus(-m["d"](m["g"](torch.ones(2, 3)).detach())).mean(), "detach"),
        (lambda m: (m["g"].weight.data.sum() * m["d"](torch.ones(2, 4))).mean(), "data"),
        (lambda m: m["d"](torch.ones(2, 4)).mean(), "moves_nothing"),
    ):
        model = two()
        what = {"both": model, "none": None, "g": model["g"], "d": model["d"]}[recorded]
        report = explained(what, lambda model=model, run=run: run(model), SGD(model["g"].parameters(), 0.1))
        first, *others = (cause for cause in report.causes if cause.level == "error")
        assert first.kind == ("unused" if kind == "moves_nothing" and first.names else kind)
        assert (first.source is None) == (kind == "moves_nothing")
        assert {cause.kind for cause in others} <= {"unused"}


def test_an_optimizer_of_a_copy_moves_nothing_but_one_of_master_weights_may() -> None:
    model = two()
    for tensors in (
        copy.deepcopy(model).parameters(),
        [p.detach().clone().requires_grad_() for p in model.parameters()],
    ):
        optimizer = SGD([*tensors], 0.1)
        report = explained(model, lambda: model["d"](model["g"](torch.ones(2, 3))).sum(), optimizer)
        assert report.level == "error"
    half = two().bfloat16()
    optimizer = SGD([p.detach().float().requires_grad_() for p in half.parameters()], 0.1)
    with gradir.record(half, flow=True) as rec:
        loss = half["d"](half["g"](torch.ones(2, 3).bfloat16())).sum()
    assert rec.explain(loss, optimizer=optimizer).level == "none"


def adapt_copy(model: Any, x: torch.Tensor) -> Any:
    adapted = copy.deepcopy(model)
    grads = torch.autograd.grad(adapted(x).square().sum(), [*adapted.parameters()], create_graph=True)
    for parameter, grad in zip(adapted.parameters(), grads, strict=True):
        parameter.data -= 0.1 * grad
    return adapted


def test_a_copy_that_the_program_trains_in_an_inner_loop_is_reported_where_it_is_made() -> None:
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    # Nothing is recorded as the model, as in a script that runs only the copy.
    report = explained(None, lambda: adapt_copy(model, x)(x).sum(), SGD(model.parameters(), 0.1))
    found = [(cause.kind, cause.level) for cause in report.causes if cause.level != "note"]
    assert found == [("copied", "error"), ("put", "error")]
    source = report.causes[0].source
    assert source is not None
    assert "deepcopy" in Path(__file__).read_text().splitlines()[source.line - 1]


def test_weights_that_a_program_computes_and_assigns_to_a_module_are_cut_there() -> None:
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    start, rate = torch.randn(8, requires_grad=True), torch.tensor(0.1, requires_grad=True)

    def run() -> torch.Tensor:
        nn.utils.vector_to_parameters(start * rate, model.parameters())
        return model(x).sum()

    report = explained(model, run, SGD([start, rate], 0.1))
    assert [cause.kind for cause in report.causes if cause.level == "error"] == ["put"]
    # Another optimizer trains the module, so the program may assign the weights on purpose.
    report = explained(model, run, SGD([rate, *model.parameters()], 0.1))
    assert report.level != "error"


def test_a_larger_embedding_that_gets_the_old_rows_has_replaced_it() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2))
    optimizer = SGD(model.parameters(), 0.1)

    def run() -> torch.Tensor:
        old, model[0] = model[0], nn.Embedding(7, 3)
        model[0].weight.data[:5] = old.weight.data
        return model(torch.tensor([0, 6])).sum()

    assert name_causes(explained(model, run, optimizer)) == [("replaced", "error", ("0.weight",))]


def test_layers_of_other_sizes_have_replaced_all_that_an_optimizer_has() -> None:
    model = Model()
    optimizer = SGD(model.parameters(), 0.1)
    model.stem, model.head = nn.Linear(3, 5), nn.Linear(5, 1)
    names = ("stem.weight", "stem.bias", *HEAD)
    assert name_causes(explained(model, lambda: model(torch.ones(1, 3)).sum(), optimizer)) == [
        ("replaced", "error", names)
    ]


@pytest.mark.parametrize("recorded", [True, False])
def test_an_optimizer_whose_gradients_are_all_zero_is_an_error(*, recorded: bool) -> None:
    for run, kind in (
        (lambda m: m["d"](m["g"](torch.ones(2, 3)) * 0).sum(), "weighed_out"),
        (lambda m: m["d"](torch.relu(m["g"](torch.ones(2, 3)) - 99)).sum(), "dead"),
        (lambda m: m["d"](m["g"](torch.ones(2, 3)).sign()).sum(), "flat"),
    ):
        model = two()
        what = model if recorded else model["d"]
        report = explained(what, lambda model=model, run=run: run(model), SGD(model["g"].parameters(), 0.1))
        assert [cause.kind for cause in report.causes if cause.level == "error"] == [
            kind if recorded else "moves_nothing"
        ]


def test_a_loss_at_its_minimum_is_no_alarm() -> None:
    student = nn.Linear(3, 4)
    teacher = copy.deepcopy(student).requires_grad_(requires_grad=False)
    x = torch.ones(2, 3)
    with gradir.record(student, flow=True) as rec:
        loss = nn.functional.mse_loss(student(x), teacher(x))
    assert rec.explain(loss, optimizer=SGD(student.parameters(), 0.1)).level == "info"


def test_what_is_frozen_is_reported_first_and_is_an_error_of_its_optimizer() -> None:
    model, x = two(), torch.ones(2, 3)
    model["g"].requires_grad_(requires_grad=False)
    with gradir.record(model, flow=True) as rec:
        loss = model["g"](x).sum()
    report = rec.explain(loss, optimizer=SGD(model["d"].parameters(), 0.1))
    assert [(cause.kind, cause.level) for cause in report.causes] == [("frozen", "error"), ("unused", "error")]
    # The picture learns, and the optimizer has the weights.
    picture = x.clone().requires_grad_()
    for what in (model, None):
        report = explained(what, lambda: model["g"](picture).sum(), SGD(model["g"].parameters(), 0.1))
        assert report.level == "error"
    report = explained(model, lambda: model["g"](picture).sum(), SGD([picture], 0.1))
    assert [(cause.kind, cause.level) for cause in report.causes] == [("frozen", "info")]


def test_tensors_without_a_name_are_compared_with_the_graph_too() -> None:
    w, v = (torch.ones(3, requires_grad=True) for _ in range(2))
    for run, trained, level in (
        (lambda: w.detach() @ v, w, "error"),
        (lambda: w.data @ v, w, "error"),
        (lambda: w @ v, w, "none"),
        (lambda: w.detach() @ v, v, "info"),
    ):
        assert explained(None, run, SGD([trained], 0.1)).level == level
    assert explained(None, lambda: w.data @ v, SGD([w], 0.1), params={"v": v}).level == "error"


class Whole(nn.Module):
    """A body, a neck and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.neck, self.head = nn.Sequential(nn.Linear(3, 4)), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for extra in (name for name in ("before", "after") if hasattr(self, name)):
            x = getattr(self, extra)(x)
        return nn.functional.cross_entropy(self.head(self.neck(self.body(x))), torch.tensor([0, 1]))


def test_what_was_forgotten_or_came_later_is_an_error_and_a_new_head_alone_is_not() -> None:
    x = torch.randn(2, 3)

    def without(model: Any, *lacking: str) -> Any:
        return SGD([p for name, p in model.named_parameters() if not name.endswith(lacking)], 0.1)

    def names(model: Any, optimizer: Any) -> list[tuple[str, str]]:
        report = explained(model, lambda: model(x), optimizer)
        return [(name, c.level) for c in report.causes if c.kind == "not_in_optimizer" for name in c.names]

    model = Whole()
    assert names(model, without(model, "head.weight", "head.bias")) == [
        ("head.weight", "error"),
        ("head.bias", "error"),
    ]
    assert {level for _, level in names(model, without(model, ".bias"))} == {"error"}
    model = Whole()
    optimizer = SGD(model.parameters(), 0.1)
    model.before = nn.Linear(3, 3)
    assert names(model, optimizer) == [("before.weight", "error"), ("before.bias", "error")]
    model = Whole()
    model.head.requires_grad_(requires_grad=False)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    model.head.requires_grad_(requires_grad=True)
    assert {level for _, level in names(model, optimizer)} == {"error"}
    model = Whole()
    optimizer = SGD(model.parameters(), 0.1)
    model.body.requires_grad_(requires_grad=False)
    model.neck = nn.Sequential(model.neck.requires_grad_(requires_grad=False), nn.Linear(4, 4))
    assert names(model, optimizer) == [("neck.1.weight", "error"), ("neck.1.bias", "error")]
    model = Whole()
    head = SGD(model.head.parameters(), 0.1)
    assert {level for _, level in names(model, head)} == {"note"}
    # Another optimizer has the rest, such as Muon beside AdamW.
    rest = without(model, "head.weight", "head.bias")
    assert {level for _, level in names(model, rest)} == {"note"}


def test_a_model_with_its_own_loss_term_is_forgotten() -> None:
    model, x = two(), torch.randn(2, 3)

    def loss() -> Any:
        made = model["g"](x)
        return model["d"](made).square().mean() + made.abs().mean()

    report = explained(model, loss, SGD(model["d"].parameters(), 0.1))
    assert [(c.kind, c.names[0]) for c in report.causes if c.level == "error"] == [("not_in_optimizer", "g.weight")]


def test_a_loss_without_a_graph_is_the_fault_of_what_the_optimizer_has() -> None:
    model, x = two(), torch.randn(2, 3)

    with gradir.record(model, flow=True) as rec:
        with torch.no_grad():
            target = model["d"](torch.ones(2, 4))
        loss = (model["g"](x).max(1, keepdim=True)[1].float() - target).square().mean()
    report = rec.explain(loss, optimizer=SGD(model["g"].parameters(), 0.1))
    assert [(c.kind, c.op) for c in report.causes if c.level == "error"] == [("nondifferentiable", "max")]


def test_a_prompt_of_a_whole_model_is_trained_by_itself() -> None:
    model = Whole()
    model.prompt = nn.Parameter(torch.ones(3))
    assert explained(model, lambda: model(torch.randn(2, 3) + model.prompt), SGD([model.prompt], 0.1)).level == "none"


@pytest.mark.parametrize(
    "judged",
    [
        lambda score: -score.mean(),
        lambda score: nn.functional.softplus(-score).mean(),
        lambda score: -nn.functional.logsigmoid(score).mean(),
        lambda score: -torch.log(score.sigmoid()).mean(),
        lambda score: nn.functional.binary_cross_entropy_with_logits(score, torch.ones_like(score)),
        lambda score: nn.functional.mse_loss(score, torch.ones(2, 1)) * 0.5,
        lambda score: (0.2 * score.detach() - torch.min(score, score + 1)).mean(),
    ],
)
def test_the_judge_of_a_gan_or_an_actor_is_trained_elsewhere(judged: Callable[[Any], Any]) -> None:
    model, x = two(), torch.randn(2, 3)
    generator = SGD(model["g"].parameters(), 0.1)
    assert explained(model, lambda: judged(model["d"](model["g"](x))), generator).level in {"none", "info"}


def test_two_optimizers_of_one_model_are_no_alarm() -> None:
    model, x = two(), torch.randn(2, 3)
    judge, generator = SGD(model["d"].parameters(), 0.1), SGD(model["g"].parameters(), 0.1)
    for optimizer in (judge, generator):
        assert explained(model, lambda: (model["d"](model["g"](x)) - 1).pow(2).mean(), optimizer).level == "none"
    del judge, optimizer
    model["d"].eval()
    assert explained(model, lambda: (model["d"](model["g"](x)) - 1).pow(2).mean(), generator).level == "none"


def test_an_embedding_that_keeps_to_a_norm_is_the_parameter_that_it_is() -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(5, 3, max_norm=0.5), "head": nn.Linear(3, 1)})
    first, second = torch.tensor([0, 1]), torch.tensor([[2, 3]])
    for run in (
        lambda: model["head"](model["embed"](first)).sum(),
        lambda: (model["embed"](first) * model["embed"](first + 2)).sum(0).sum(),
        lambda: nn.functional.embedding_bag(second, model["embed"].weight, max_norm=0.5).sum(),
    ):
        with gradir.record(model, flow=True) as rec:
            loss = run()
        assert [cause for cause in rec.explain(loss).causes if cause.kind != "unused"] == []
        assert rec.explain(loss).status("embed.weight") == "reached"


@pytest.mark.parametrize("several", [list, tuple])
def test_several_optimizers_have_their_parameters_together(several: Callable[..., Any]) -> None:
    model = Model()
    head, stem = torch.optim.SGD(model.head.parameters(), 0.1), torch.optim.Adam(model.stem.parameters(), 0.1)
    with gradir.record(model, flow=True) as rec:
        cut = model.head(model.stem(torch.ones(1, 3)).detach()).sum()
    found = rec.explain(cut, optimizer=several([head, stem]))
    assert name_causes(found) == [("detach", "error", ("stem.weight", "stem.bias"))]
    assert rec.explain(cut, optimizer=several([head])).level == "info"
    with pytest.raises(gradir.CaptureError, match=r"optimizer is not an optimizer of torch\.optim but Linear"):
        rec.explain(cut, optimizer=several([head, model.head]))
