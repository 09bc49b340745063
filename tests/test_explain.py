"""What is told of a gradient that does not arrive: kind, line, names and level of each cause, and every status."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import jsonschema
import pytest

torch = pytest.importorskip("torch")

import explained_programs  # noqa: E402
from explained_programs import PROGRAMS, Program, detach, inplace, rebuilt, told_of, zero  # noqa: E402
from marked_lines import marked  # noqa: E402
from tensors import leaf_of as leaf  # noqa: E402
from torch.overrides import _get_current_function_mode_stack  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import STATUSES  # noqa: E402

SCHEMA = Path(__file__).parents[1] / "schemas" / "gir-explanation-1.0.schema.json"


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


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
        assert (Path(cause.source.file).name, cause.source.line) == (Path(explained_programs.__file__).name, line)
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


def test_values_are_looked_at_only_where_asked_and_the_verdict_says_so() -> None:
    found = told_of(zero, values=False)
    assert found.statuses == {"a": "reached", "c": "reached"}
    assert (found.examined.values, found.examined.reason) == ("none", "values=False")
    assert found.verdict.startswith("Both parameters are in the graph. Values were not examined: values=False;")
    assert "examined" not in told_of(zero).verdict


def test_a_backward_that_raises_is_told_without_running_it() -> None:
    found = told_of(inplace, values=False)
    assert set(found.statuses.values()) == {"error"}
    assert found.causes == told_of(inplace).causes


def test_the_text_says_where_and_what_to_do() -> None:
    line = marked(detach)
    place = f"tests/support/explained_programs.py:{line} in detach"
    *texts, below, advice = str(told_of(detach)).splitlines()
    assert texts == [
        f"1 of 2 parameters gets no gradient: detach() cuts a ({place}).",
        "",
        "error[detach]: detach() cuts a",
        f"  --> {place}",
        f"{line} |     loss = (d.detach().relu() + c).sum()  # HERE",
    ]
    # Python 3.10 does not know columns.
    assert below.strip(" |^") == ""
    assert advice == "  help: take detach() out of this line if a should learn from what is computed with its result"


def test_json_is_what_the_schema_says() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    for program in {row[0] for row in PROGRAMS}:
        document = json.loads(told_of(program).to("json"))
        validator.validate(document)
        assert (document["format"], document["version"]) == ("gir-explanation", "1.0")
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**document, "level": "loud"})


def test_the_published_schema_is_what_the_records_say() -> None:
    from report_schemas import schemas

    assert SCHEMA.read_text(encoding="utf-8") == schemas()[SCHEMA.name]


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
