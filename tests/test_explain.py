"""What is told of a gradient that does not arrive: kind, line, names and level of each cause, and every status."""

from __future__ import annotations

import gc
import inspect
import json
import weakref
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812
from torch.overrides import _get_current_function_mode_stack  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError, ExportError  # noqa: E402
from gradir.explanations.model import STATUSES, Cause, Explanation, Term  # noqa: E402
from gradir.vocabulary.causes import WORDS  # noqa: E402

nn = torch.nn

SCHEMA = Path(__file__).parents[1] / "schemas" / "gir-explanation-1.0.schema.json"


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


class Asked(NamedTuple):
    """What a program gives to `explain`."""

    subject: object
    params: Mapping[str, torch.Tensor] = {}
    optimizer: Any = None


Program = Callable[[gradir.Recorder], Asked]


def told_of(program: Program, model: object = None, **more: Any) -> Explanation:
    recorder = gradir.record(model, flow=True)
    asked = program(recorder)
    return recorder.explain(asked.subject, params=asked.params, optimizer=asked.optimizer, **more)


def marked(program: Program) -> int | None:
    """The line of a program that ends in ``# HERE``."""
    lines, first = inspect.getsourcelines(program)
    return next((first + number for number, line in enumerate(lines) if line.rstrip().endswith("# HERE")), None)


def detach(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        d = a.exp()
        loss = (d.detach().relu() + c).sum()  # HERE
    return Asked(loss, {"a": a, "c": c})


def data(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        loss = (a.exp().data * c).sum()  # HERE
    return Asked(loss, {"a": a, "c": c})


def no_grad(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        with torch.no_grad():
            hidden = F.relu(a)  # HERE
        loss = (hidden * c).sum()
    return Asked(loss, {"a": a, "c": c})


def inference_mode(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        with torch.inference_mode():
            hidden = a.exp()  # HERE
        loss = (hidden + c).sum()
    return Asked(loss, {"a": a, "c": c})


def inference_mode_saved(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    try:
        with rec:
            with torch.inference_mode():
                hidden = a.exp()  # HERE
            (hidden * c).sum()
    except RuntimeError as error:
        return Asked(error, {"a": a, "c": c})
    raise AssertionError("torch takes it")


def nondifferentiable(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        loss = a.exp().argmax().float()  # HERE
    return Asked(loss, {"a": a})


def sample(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        action = torch.multinomial(a.softmax(0), 1)  # HERE
        loss = (action.float() * c).sum()
    return Asked(loss, {"a": a, "c": c})


def rebuilt(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        joined = torch.tensor([a.sum(), a.exp().sum(), c.sum()])  # HERE
        loss = (joined * c).sum()
    return Asked(loss, {"a": a, "c": c})


def new_leaf(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        weight = (a * 2).unsqueeze(0)
        new = nn.Parameter(weight)
        loss = F.linear(torch.ones(1, 3), new).sum()  # HERE
    return Asked(loss, {"a": a, "c": new})


def no_create_graph(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        (slope,) = torch.autograd.grad((a.exp() * c).sum(), a, retain_graph=True)  # HERE
        loss = (slope.pow(2) + a).sum()
    return Asked(loss, {"a": a, "c": c})


def leaves_torch(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        factor = a.sum().item()  # HERE
        loss = (c * factor).sum()
    return Asked(loss, {"a": a, "c": c})


def exchanged(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        loss = a.exp().sum()
        a.data = torch.zeros(3)  # HERE
    return Asked(loss, {"a": a})


def unused(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        c.exp()
        loss = a.sum()
    return Asked(loss, {"a": a, "c": c})


def nonleaf(rec: gradir.Recorder) -> Asked:
    with rec:
        a = torch.ones(3, requires_grad=True) * 0.1  # HERE
        loss = a.sum()
    return Asked(loss, {"a": a})


def zero(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        only = a.sum().unsqueeze(0)
        loss = (F.softmax(only, dim=0) * c).sum()  # HERE
    return Asked(loss, {"a": a, "c": c})


def rounding(rec: gradir.Recorder) -> Asked:
    a = leaf(0.3)
    weights = torch.tensor([0.1, 0.7, 0.4])
    with rec:
        loss = (torch.softmax(weights + a, dim=0) * torch.tensor([0.3, 1.7, 2.3])).sum()
    return Asked(loss, {"a": a})


def nonfinite(rec: gradir.Recorder) -> Asked:
    a, c = leaf(0.0, 4.0), leaf(1.0, 1.0)
    with rec:
        root = torch.sqrt(a)  # HERE
        loss = torch.where(a > 0, root, c).sum()
    return Asked(loss, {"a": a, "c": c})


def raised(rec: gradir.Recorder) -> Asked:
    a = leaf()
    try:
        with rec:
            a.reshape(2, 2)  # HERE
    except RuntimeError as error:
        return Asked(error, {"a": a})
    raise AssertionError("torch takes it")


def backward(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        loss = a.exp().sum()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        return Asked(error, {"a": a})
    raise AssertionError("torch takes it")


def freed(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        hidden = a.exp()  # HERE
        hidden.sum().backward()
        loss = hidden.sum()
    return Asked(loss, {"a": a})


def inplace(rec: gradir.Recorder) -> Asked:
    a = leaf()
    with rec:
        hidden = a.exp()
        hidden += 1  # HERE
        loss = hidden.sum()
    return Asked(loss, {"a": a})


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


LOST = ("error", {"a": "cut", "c": "reached"})
PROGRAMS: list[tuple[Program, str, tuple[str, ...], str, dict[str, str]]] = [
    (detach, "detach", ("a",), *LOST),
    (data, "data", ("a",), *LOST),
    (no_grad, "no_grad", ("a",), *LOST),
    (inference_mode, "inference_mode", ("a",), *LOST),
    (inference_mode_saved, "inference_mode", (), "error", {"a": "error", "c": "error"}),
    (nondifferentiable, "nondifferentiable", ("a",), "error", {"a": "cut"}),
    (sample, "sample", ("a",), *LOST),
    (rebuilt, "rebuilt", ("a", "c"), *LOST),
    (new_leaf, "new_leaf", ("a",), *LOST),
    (no_create_graph, "no_create_graph", ("c",), "error", {"a": "reached", "c": "cut"}),
    (leaves_torch, "exit", ("a",), *LOST),
    (exchanged, "exchanged", ("a",), "info", {"a": "reached"}),
    (unused, "unused", ("c",), "info", {"a": "reached", "c": "unused"}),
    (nonleaf, "nonleaf", ("a",), "error", {"a": "nonleaf"}),
    (zero, "zero", ("a",), "error", {"a": "zero", "c": "reached"}),
    (rounding, "rounding", ("a",), "none", {"a": "zero"}),
    (nonfinite, "nonfinite", ("a",), "error", {"a": "nonfinite", "c": "reached"}),
    (raised, "raised", (), "error", {"a": "error"}),
    (backward, "backward", (), "error", {"a": "error"}),
    (freed, "freed", (), "error", {"a": "error"}),
    (inplace, "inplace", (), "error", {"a": "error"}),
]
each_program = pytest.mark.parametrize(
    ("program", "kind", "names", "level", "statuses"), PROGRAMS, ids=[row[0].__name__ for row in PROGRAMS]
)


@each_program
def test_a_cause_has_its_kind_line_names_and_level(
    program: Program, kind: str, names: tuple[str, ...], level: str, statuses: dict[str, str]
) -> None:
    found = told_of(program)
    assert found.statuses == statuses
    assert found.level == level
    assert bool(found) is (level != "none")
    assert [(cause.kind, cause.names) for cause in found.causes] == [(kind, names)]
    (cause,) = found.causes
    line = marked(program)
    if line is not None:
        assert cause.source is not None
        assert (Path(cause.source.file).name, cause.source.line) == (Path(__file__).name, line)
        assert cause.source.function == program.__name__


@pytest.mark.parametrize("program", [row[0] for row in PROGRAMS])
def test_explaining_leaves_no_trace(program: Program) -> None:
    recorder = gradir.record(flow=True)
    asked = program(recorder)
    before = {name: None if not t.is_leaf or t.grad is None else t.grad.clone() for name, t in asked.params.items()}
    random, modes = torch.get_rng_state(), len(_get_current_function_mode_stack())
    recorder.explain(asked.subject, params=asked.params)
    for name, tensor in asked.params.items():
        after = tensor.grad if tensor.is_leaf else None
        assert (after is None) == (before[name] is None)
        assert after is None or torch.equal(after, before[name])
        assert not tensor._backward_hooks
    assert torch.equal(torch.get_rng_state(), random)
    assert len(_get_current_function_mode_stack()) == modes


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(x).relu())


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


def test_a_tie_that_was_broken_is_told_and_one_that_holds_is_not() -> None:
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
    model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.tensor([0, 1, 2, 3, 4])).sum()
    (cause,) = rec.explain(loss).causes
    assert (cause.kind, cause.level, cause.names) == ("untied", "error", ("embed.weight", "head.weight"))


def test_parameters_behind_a_reentrant_checkpoint_are_hidden() -> None:
    from torch.utils.checkpoint import checkpoint

    model = Model()
    with gradir.record(model, flow=True) as rec:
        loss = checkpoint(model, torch.ones(1, 3, requires_grad=True), use_reentrant=True).sum()
    found = rec.explain(loss)
    assert set(found.statuses.values()) == {"hidden"}
    assert found.level == "none"


def test_ddp_of_one_process_says_what_the_loss_leaves_out(tmp_path: Path) -> None:
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


def test_a_metric_without_a_graph_may_stand_beside_the_loss() -> None:
    a = leaf()
    with gradir.record(flow=True) as rec:
        loss = a.exp().sum()
        metric = (a > 0).sum()
    assert rec.explain({"loss": loss, "metric": metric}, params={"a": a}).status("a") == "reached"


def test_each_term_says_what_it_reaches() -> None:
    a, c = leaf(), leaf()
    with gradir.record(flow=True) as rec:
        fit = a.exp().sum()
        penalty = c.detach().pow(2).sum()
        loss = fit + 0.1 * penalty
    found = rec.explain(loss, params={"a": a, "c": c})
    assert [(term.variable, term.names) for term in found.terms] == [("fit", ("a",)), ("penalty", ())]
    assert "  penalty at " in str(found)


def test_a_sum_doubled_again_and_again_has_each_term_once() -> None:
    a = leaf()
    with gradir.record(flow=True) as rec:
        total = a.exp().sum()
        for _ in range(64):
            total = total + total
    assert len(rec.explain(total, params={"a": a}).terms) == 1


def test_a_derivative_that_keeps_its_graph_is_no_cut() -> None:
    a, c = leaf(), leaf()
    with gradir.record(flow=True) as rec:
        (slope,) = torch.autograd.grad((a.exp().tanh() * c).sum(), a, create_graph=True)
        loss = slope.pow(2).sum()
    found = rec.explain(loss, params={"a": a, "c": c})
    assert (found.statuses, found.causes) == ({"a": "reached", "c": "reached"}, ())


def test_values_are_looked_at_only_where_asked() -> None:
    assert told_of(zero, values=False).statuses == {"a": "reached", "c": "reached"}
    assert told_of(inplace, values=False).causes == ()


def test_what_cannot_be_explained_is_said_in_one_line() -> None:
    a = leaf()
    with gradir.record() as rec:
        loss = a.sum()
    with pytest.raises(CaptureError, match=r"record it with gradir.record\(model, flow=True\)"):
        rec.explain(loss)
    with pytest.raises(CaptureError, match="nothing was recorded"):
        gradir.record(flow=True).explain(loss)
    with gradir.record(flow=True) as rec:
        pass
    with pytest.raises(CaptureError, match="no tensor among what was given"):
        rec.explain({"loss": 3.0})


def test_nothing_is_kept_alive_by_an_explanation() -> None:
    model = Model()
    rec = gradir.record(model, flow=True)
    with rec:
        hidden = model.stem(torch.ones(1, 3)).exp()
        loss = hidden.sum()
    found = rec.explain(loss)
    gone = [weakref.ref(hidden), weakref.ref(loss), weakref.ref(model), weakref.ref(rec)]
    del model, rec, hidden, loss
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4
    assert found.status("stem.weight") == "reached"


def test_a_long_chain_of_leaves_takes_no_set_for_each_step() -> None:
    # 20,000 sets of 20,000 leaves would be 50 MB for each of the two kinds.
    import tracemalloc

    from gradir.frontends.pytorch.explaining.cuts import Flowing

    length = 20_000
    weights = [torch.ones((), requires_grad=True) for _ in range(length)]
    rec: Any = gradir.record(flow=True)
    with rec:
        total = torch.zeros(())
        for weight in weights:
            total = total * weight
        lost = total.detach()
        loss = lost * weights[0]
    (flow,) = rec._flows.values()
    tracemalloc.start()
    flowing = Flowing(flow, [loss])
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(flowing.members(stop.leaves)) for stop in flowing.stops] == [length]
    assert used < 30_000_000


def test_zeros_of_many_leaves_below_a_long_chain_are_found_once() -> None:
    # One search for each leaf would look at 2,000 times 2,000 functions.
    leaves = {f"w{number}": torch.ones((), requires_grad=True) for number in range(2_000)}
    with gradir.record(flow=True) as rec:
        total = torch.zeros(())
        for weight in leaves.values():
            total = torch.sin(total + weight)
        loss = total * 0.0
    found = rec.explain(loss, params=leaves)
    assert set(found.statuses.values()) == {"zero"}
    assert [(cause.kind, len(cause.names)) for cause in found.causes] == [("zero", len(leaves))]


# The record and its forms.


def test_every_kind_has_a_sentence_and_advice_for_one_name_and_for_two() -> None:
    for kind in WORDS:
        one, two = Cause(kind, "error", "exp", ("a",)), Cause(kind, "error", "exp", ("a", "b"))
        for text in (one.text, one.advice, two.text, two.advice):
            assert text
            assert "{" not in text
            assert not text.endswith(".")
    assert Cause("frozen", "info", "", ("a",)).text == "a has requires_grad=False"
    assert Cause("frozen", "info", "", ("a", "b")).text == "a, b have requires_grad=False"
    assert Cause("invented", "info", "", ("a",)).advice == ""


def test_the_text_says_where_and_what_to_do() -> None:
    line = marked(detach)
    assert str(told_of(detach)).splitlines() == [
        "1 of 2 parameters reached, 1 cut",
        "",
        f"x detach at tests/test_explain.py:{line} in detach",
        "  detach() cuts a",
        "  -> take detach() out of this line if a should learn from what is computed with its result",
    ]


def test_hostile_names_stay_on_their_line_in_each_form() -> None:
    name = "a\x1b[31m\n| `x` | @team <b>"
    found = Explanation(
        {name: "cut"},
        (Cause("detach", "error", "detach\n\x07", (name,), detail="red\x1b[0m"),),
        (Term((name,), name),) * 2,
    )
    for text in (found.to("text"), found.to("markdown"), found.to("json")):
        assert all(char.isprintable() or char == "\n" for char in text)
    assert len(found.to("text").splitlines()) == 9
    (row,) = [line for line in found.to("markdown").splitlines() if line.startswith("| `")]
    assert row.count("|") - row.count("\\|") == 3
    assert json.loads(found.to("json"))["causes"][0]["names"] == [name]


def test_json_is_what_the_schema_says() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    for program in {row[0] for row in PROGRAMS}:
        document = json.loads(told_of(program).to("json"))
        validator.validate(document)
        assert (document["format"], document["version"]) == ("gir-explanation", "1.0")
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**document, "level": "loud"})


def test_the_published_schema_is_what_the_records_say() -> None:
    from explanation_schema import PUBLISHED, schema_text

    assert (SCHEMA.parents[1] / PUBLISHED).read_text(encoding="utf-8") == schema_text()


def test_a_format_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ExportError, match="there are text, markdown, json"):
        Explanation({}).to("html")
    with pytest.raises(ExportError, match="cannot spell"):
        Explanation({"\ud800": "cut"}).to("json")


def test_a_notebook_shows_text_and_markdown() -> None:
    found = told_of(detach)
    assert found._repr_mimebundle_() == {"text/plain": str(found), "text/markdown": found.to("markdown")}


def test_what_is_meant_is_no_alarm() -> None:
    found = told_of(detach)
    assert [found.allowing([pattern]).level for pattern in ("a", "det*", "c", "x.*")] == [
        "none",
        "none",
        "error",
        "error",
    ]
    assert found.allowing(["a"]).statuses == found.statuses
    both = told_of(rebuilt)
    assert (both.allowing(["a"]).level, both.allowing(["a", "c"]).level) == ("error", "none")


def test_every_status_is_told_somewhere() -> None:
    seen = set(chain.from_iterable(row[4].values() for row in PROGRAMS)) | {"frozen", "hidden", "unreached"}
    assert set(STATUSES) - seen == {"cleared", "wrong"}
