"""Programs that lose a gradient each in one way: kind, line, names and level of the cause, and every status."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jsonschema
import pytest

torch = pytest.importorskip("torch")

from marked_lines import find_marked_line  # noqa: E402
from tensors import leaf_of  # noqa: E402
from torch.overrides import _get_current_function_mode_stack  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import STATUSES, Explanation  # noqa: E402

SCHEMA = Path(__file__).parents[1] / "schemas" / "gir-explanation-1.0.schema.json"
F = torch.nn.functional
Tensor = torch.Tensor


class Program(NamedTuple):
    """A function of leaves, the one cause that is told of its loss, and the status of each leaf."""

    fn: Callable[..., Any]
    kind: str
    names: tuple[str, ...]
    level: str
    statuses: dict[str, str]
    values: Mapping[str, tuple[float, ...]]

    def run(self) -> tuple[gradir.Recorder, Any, dict[str, Tensor]]:
        """Record the program, and call what it returns for later. Return the loss or the error, and the parameters."""
        params = {name: leaf_of(*self.values.get(name, ())) for name in inspect.signature(self.fn).parameters}
        recorder = gradir.record(flow=True)
        try:
            with recorder:
                subject = self.fn(**params)
            if callable(subject):
                subject()
        except RuntimeError as error:
            return recorder, error, params
        return recorder, *(subject if isinstance(subject, tuple) else (subject, params))


PROGRAMS: dict[str, Program] = {}
TWO = {"a": (0.0, 4.0), "c": (1.0, 1.0)}


def told(
    kind: str,
    *names: str,
    level: str = "error",
    a: str = "cut",
    c: str = "reached",
    values: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
) -> Any:
    """Add a program, with the one cause that is told of it and the statuses of its leaves."""

    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        statuses = {"a": a, "c": c} if "c" in inspect.signature(fn).parameters else {"a": a}
        PROGRAMS[fn.__name__] = Program(fn, kind, names, level, statuses, values)
        return fn

    return add


def explained(name: str, **options: Any) -> Explanation:
    recorder, subject, params = PROGRAMS[name].run()
    return recorder.explain(subject, params=params, **options)


@told("detach", "a")
def detach(a: Tensor, c: Tensor) -> Tensor:
    d = a.exp()
    return (d.detach().relu() + c).sum()  # HERE


@told("data", "a")
def data(a: Tensor, c: Tensor) -> Tensor:
    return (a.exp().data * c).sum()  # HERE


@told("data", "a")
def written_through_data(a: Tensor, c: Tensor) -> Tensor:
    hidden = torch.zeros(3)
    hidden.data[:] = a.exp()  # HERE
    return (hidden * c).sum()


@told("detach", "a")
def written_through_detach(a: Tensor, c: Tensor) -> Tensor:
    hidden = torch.zeros(3)
    hidden.detach().view(3, 1)[:, 0].copy_(a.exp())  # HERE
    return (hidden * c).sum()


@told("nondifferentiable", "a")
def indices(a: Tensor, c: Tensor) -> Tensor:
    order = a.sort().indices  # HERE
    return (order * c).sum()


@told("no_grad", "a")
def no_grad(a: Tensor, c: Tensor) -> Tensor:
    with torch.no_grad():
        hidden = F.relu(a)  # HERE
    return (hidden * c).sum()


@told("inference_mode", "a")
def inference_mode(a: Tensor, c: Tensor) -> Tensor:
    with torch.inference_mode():
        hidden = a.exp()  # HERE
    return (hidden + c).sum()


@told("inference_mode", "a", a="error", c="error")
def inference_mode_saved(a: Tensor, c: Tensor) -> Tensor:
    with torch.inference_mode():
        hidden = a.exp()  # HERE
    return (hidden * c).sum()


@told("nondifferentiable", "a")
def nondifferentiable(a: Tensor) -> Tensor:
    return a.exp().argmax().float()  # HERE


@told("sample", "a")
def sample(a: Tensor, c: Tensor) -> Tensor:
    action = torch.multinomial(a.softmax(0), 1)  # HERE
    return (action.float() * c).sum()


@told("rebuilt", "a", "c")
def rebuilt(a: Tensor, c: Tensor) -> Tensor:
    joined = torch.tensor([a.sum(), a.exp().sum(), c.sum()])  # HERE
    return (joined * c).sum()


@told("rebuilt", "a")
def constructed(a: Tensor, c: Tensor) -> Tensor:
    float(c.sum())
    joined = torch.Tensor([a.sum(), a.exp().sum(), c.argmax()])  # HERE
    return (joined * c).sum()


@told("rebuilt", "a")
def made_like(a: Tensor, c: Tensor) -> Tensor:
    joined = c.new_tensor([a.sum(), a.exp().sum(), 1.0])  # HERE
    return (joined * c).sum()


@told("rebuilt", "a")
def copied_like(a: Tensor, c: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hidden = a.exp()
        return (c.new_tensor(hidden) * c).sum()  # HERE


@told("sample", "a")
def chosen(a: Tensor, c: Tensor) -> Tensor:
    drawn = torch.multinomial(a.softmax(0), 1)  # HERE
    return c[drawn[0]]


@told("nondifferentiable", "a")
def chosen_twice(a: Tensor, c: Tensor) -> Tensor:
    table = c.expand(3, 3)
    best = a.exp().argmax()  # HERE
    return table[best, : best + 1].sum()


@told("new_leaf", "a")
def new_leaf(a: Tensor, c: Tensor) -> Any:
    weight = (a * 2).unsqueeze(0)
    new = torch.nn.Parameter(weight)  # HERE
    return F.linear(torch.ones(1, 3), new).sum(), {"a": a, "c": new}


@told("no_create_graph", "c", "a", a="reached", c="cut")
def no_create_graph(a: Tensor, c: Tensor) -> Tensor:
    (slope,) = torch.autograd.grad((a.exp() * c).sum(), a, retain_graph=True)  # HERE
    return (slope.pow(2) + a).sum()


@told("exit", "a")
def leaves_torch(a: Tensor, c: Tensor) -> Tensor:
    factor = a.sum().item()  # HERE
    return (c * factor).sum()


@told("exchanged", "a", level="info", a="reached")
def exchanged(a: Tensor) -> Tensor:
    loss = a.exp().sum()
    a.data = torch.zeros(3)  # HERE
    return loss


@told("unused", "c", level="info", a="reached", c="unused")
def unused(a: Tensor, c: Tensor) -> Tensor:
    c.exp()
    return a.sum()


@told("nonleaf", "a", a="nonleaf")
def nonleaf() -> Any:
    a = torch.ones(3, requires_grad=True) * 0.1  # HERE
    return a.sum(), {"a": a}


@told("one_entry", "a", a="zero")
def zero(a: Tensor, c: Tensor) -> Tensor:
    only = a.sum().unsqueeze(0)
    return (F.softmax(only, dim=0) * c).sum()  # HERE


@told("rounding", "a", level="none", a="zero", values={"a": (0.3,)})
def rounding(a: Tensor) -> Tensor:
    return (torch.softmax(torch.tensor([0.1, 0.7, 0.4]) + a, dim=0) * torch.tensor([0.3, 1.7, 2.3])).sum()


@told("nonfinite", "a", a="nonfinite", values=TWO)
def nonfinite(a: Tensor, c: Tensor) -> Tensor:
    root = torch.sqrt(a)  # HERE
    return (root + c).sum()


@told("where_trap", "a", a="nonfinite", values=TWO)
def where_trap(a: Tensor, c: Tensor) -> Tensor:
    root = torch.sqrt(a)  # HERE
    return torch.where(a > 0, root, c).sum()


@told("raised", a="error")
def raised(a: Tensor) -> None:
    a.reshape(2, 2)  # HERE


@told("backward", a="error")
def backward(a: Tensor) -> Callable[[], object]:
    loss = a.exp().sum()
    return lambda: (loss.backward(), loss.backward())


@told("freed", "hidden", a="error")
def freed(a: Tensor) -> Tensor:
    hidden = a.exp()  # HERE
    hidden.sum().backward()
    return hidden.sum()


@told("inplace", "hidden", a="error")
def inplace(a: Tensor) -> Tensor:
    hidden = a.exp()
    hidden += 1  # HERE
    return hidden.sum()


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


each_program = pytest.mark.parametrize("name", PROGRAMS)


@each_program
def test_a_cause_has_its_kind_line_names_and_level(name: str) -> None:
    program, found = PROGRAMS[name], explained(name)
    assert found.statuses == program.statuses
    assert found.level == program.level
    assert bool(found) is (program.level != "none")
    assert [(cause.kind, cause.names) for cause in found.causes] == [(program.kind, program.names)]
    (cause,) = found.causes
    line = find_marked_line(program.fn)
    if line is not None:
        assert cause.source is not None
        assert (Path(cause.source.file).name, cause.source.line) == ("test_explain.py", line)
        assert cause.source.function == name


@each_program
def test_explaining_leaves_no_trace(name: str) -> None:
    recorder, subject, params = PROGRAMS[name].run()
    before = {name: None if not t.is_leaf or t.grad is None else t.grad.clone() for name, t in params.items()}
    random, modes = torch.get_rng_state(), len(_get_current_function_mode_stack())
    recorder.explain(subject, params=params)
    for name, tensor in params.items():
        after = tensor.grad if tensor.is_leaf else None
        assert (after is None) == (before[name] is None)
        assert after is None or torch.equal(after, before[name])
        assert not tensor._backward_hooks
    assert torch.equal(torch.get_rng_state(), random)
    assert len(_get_current_function_mode_stack()) == modes


def test_values_are_looked_at_only_where_asked_and_the_verdict_says_so() -> None:
    found = explained("zero", values=False)
    assert found.statuses == {"a": "reached", "c": "reached"}
    assert (found.examined.values, found.examined.reason) == ("none", "values=False")
    assert found.verdict.startswith("Both parameters are in the graph. Values were not examined: values=False;")
    assert "examined" not in explained("zero").verdict


def test_a_backward_that_raises_is_reported_without_running_it() -> None:
    found = explained("inplace", values=False)
    assert set(found.statuses.values()) == {"error"}
    assert found.causes == explained("inplace").causes


def test_the_text_has_a_place_and_advice() -> None:
    line = find_marked_line(PROGRAMS["detach"].fn)
    place = f"tests/test_explain.py:{line} in detach"
    *texts, below, advice = str(explained("detach")).splitlines()
    assert texts == [
        f"1 of 2 parameters gets no gradient: detach() cuts a ({place}).",
        "",
        "error[detach]: detach() cuts a",
        f"  --> {place}",
        f"{line} |     return (d.detach().relu() + c).sum()  # HERE",
    ]
    # Python 3.10 does not know columns.
    assert below.strip(" |^") == ""
    assert advice == "  help: take detach() out of this line if a should learn from what is computed with its result"


def test_json_matches_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    for name in PROGRAMS:
        document = json.loads(explained(name).to("json"))
        validator.validate(document)
        assert (document["format"], document["version"]) == ("gir-explanation", "1.0")
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**document, "level": "loud"})


def test_the_published_schema_matches_the_records() -> None:
    from report_schemas import schemas

    assert SCHEMA.read_text(encoding="utf-8") == schemas()[SCHEMA.name]


def test_a_notebook_shows_text_and_markdown() -> None:
    found = explained("detach")
    assert found._repr_mimebundle_() == {"text/plain": str(found), "text/markdown": found.to("markdown")}


def test_an_allowed_cut_is_no_alarm() -> None:
    found = explained("detach")
    assert [found.allow([pattern]).level for pattern in ("a", "det*", "c", "x.*")] == [
        "none",
        "none",
        "error",
        "error",
    ]
    assert found.allow(["a"]).statuses == found.statuses
    both = explained("rebuilt")
    assert both.statuses == {"a": "cut", "c": "reached"}
    assert (both.allow(["a"]).level, both.allow(["c"]).level) == ("none", "error")


def test_every_status_is_reported_somewhere() -> None:
    seen = set(chain.from_iterable(program.statuses.values() for program in PROGRAMS.values())) | {
        "frozen",
        "hidden",
        "unreached",
    }
    assert set(STATUSES) - seen == {"cleared", "wrong"}


def test_an_inference_tensor_without_a_parameter_is_named() -> None:
    c = leaf_of()
    with gradir.record(flow=True) as rec:
        with torch.inference_mode():
            features = torch.ones(3).exp()
        with pytest.raises(RuntimeError, match="Inference tensors") as raised:
            (features * c).sum()
    (cause,) = rec.explain(raised.value, params={"c": c}).causes
    assert cause.names == ("features",)
    assert cause.text.startswith("exp ran in inference mode, which cuts features: RuntimeError: ")
