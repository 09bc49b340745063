"""What is told of a gradient that does not arrive: kind, line, names and level of each cause, and every status."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

torch = pytest.importorskip("torch")

from tensors import leaf_of as leaf  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.overrides import _get_current_function_mode_stack  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import STATUSES, Explanation  # noqa: E402

nn = torch.nn

SCHEMA = Path(__file__).parents[1] / "schemas" / "gir-explanation-1.0.schema.json"


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


def constructed(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        float(c.sum())
        joined = torch.Tensor([a.sum(), a.exp().sum(), c.argmax()])  # HERE
        loss = (joined * c).sum()
    return Asked(loss, {"a": a, "c": c})


def made_like(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        joined = c.new_tensor([a.sum(), a.exp().sum(), 1.0])  # HERE
        loss = (joined * c).sum()
    return Asked(loss, {"a": a, "c": c})


def copied_like(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hidden = a.exp()
        loss = (c.new_tensor(hidden) * c).sum()  # HERE
    return Asked(loss, {"a": a, "c": c})


def chosen(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        drawn = torch.multinomial(a.softmax(0), 1)  # HERE
        loss = c[drawn[0]]
    return Asked(loss, {"a": a, "c": c})


def chosen_twice(rec: gradir.Recorder) -> Asked:
    a, c = leaf(), leaf()
    with rec:
        table = c.expand(3, 3)
        best = a.exp().argmax()  # HERE
        loss = table[best, : best + 1].sum()
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
        loss = (root + c).sum()
    return Asked(loss, {"a": a, "c": c})


def where_trap(rec: gradir.Recorder) -> Asked:
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
    (inference_mode_saved, "inference_mode", ("a",), "error", {"a": "error", "c": "error"}),
    (nondifferentiable, "nondifferentiable", ("a",), "error", {"a": "cut"}),
    (sample, "sample", ("a",), *LOST),
    (rebuilt, "rebuilt", ("a", "c"), *LOST),
    (constructed, "rebuilt", ("a",), *LOST),
    (made_like, "rebuilt", ("a",), *LOST),
    (copied_like, "rebuilt", ("a",), *LOST),
    (chosen, "sample", ("a",), *LOST),
    (chosen_twice, "nondifferentiable", ("a",), *LOST),
    (new_leaf, "new_leaf", ("a",), *LOST),
    (no_create_graph, "no_create_graph", ("c", "a"), "error", {"a": "reached", "c": "cut"}),
    (leaves_torch, "exit", ("a",), *LOST),
    (exchanged, "exchanged", ("a",), "info", {"a": "reached"}),
    (unused, "unused", ("c",), "info", {"a": "reached", "c": "unused"}),
    (nonleaf, "nonleaf", ("a",), "error", {"a": "nonleaf"}),
    (zero, "one_entry", ("a",), "error", {"a": "zero", "c": "reached"}),
    (rounding, "rounding", ("a",), "none", {"a": "zero"}),
    (nonfinite, "nonfinite", ("a",), "error", {"a": "nonfinite", "c": "reached"}),
    (where_trap, "where_trap", ("a",), "error", {"a": "nonfinite", "c": "reached"}),
    (raised, "raised", (), "error", {"a": "error"}),
    (backward, "backward", (), "error", {"a": "error"}),
    (freed, "freed", ("hidden",), "error", {"a": "error"}),
    (inplace, "inplace", ("hidden",), "error", {"a": "error"}),
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


def test_values_are_looked_at_only_where_asked() -> None:
    assert told_of(zero, values=False).statuses == {"a": "reached", "c": "reached"}
    assert told_of(inplace, values=False).causes == ()


def test_the_text_says_where_and_what_to_do() -> None:
    line = marked(detach)
    assert str(told_of(detach)).splitlines() == [
        "1 of 2 parameters reached, 1 cut",
        "",
        f"x detach at tests/test_explain.py:{line} in detach",
        "  detach() cuts a",
        "  -> take detach() out of this line if a should learn from what is computed with its result",
    ]


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
    assert both.statuses == {"a": "cut", "c": "reached"}
    assert (both.allowing(["a"]).level, both.allowing(["c"]).level) == ("none", "error")


def test_every_status_is_told_somewhere() -> None:
    seen = set(chain.from_iterable(row[4].values() for row in PROGRAMS)) | {"frozen", "hidden", "unreached"}
    assert set(STATUSES) - seen == {"cleared", "wrong"}


def test_what_inference_mode_gave_is_named_where_no_parameter_is_behind_it() -> None:
    c = leaf()
    with gradir.record(flow=True) as rec:
        with torch.inference_mode():
            features = torch.ones(3).exp()
        with pytest.raises(RuntimeError, match="Inference tensors") as raised:
            (features * c).sum()
    (cause,) = rec.explain(raised.value, params={"c": c}).causes
    assert cause.names == ("features",)
    assert cause.text.startswith("exp ran in inference mode, which cuts features: RuntimeError: ")
