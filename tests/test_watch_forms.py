"""A watch as text, Markdown and lines of JSON, which the published schema describes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hostile_texts import HOSTILE_TEXTS
from hypothesis import given
from msgspec.structs import replace
from strategies import texts
from watches import NAN, training, transformer, watch_of, watches

from gradir.errors import ExportError
from gradir.explanations.formats import Layout
from gradir.explanations.model import Cause
from gradir.ir import Source
from gradir.watches.model import Finding, Modules, Step, Watch
from gradir.watches.watch_formats import Line, format_watch, jsonl, markdown, text

SCHEMA = Path(__file__).parents[1] / "schemas" / "gir-watch-1.0.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def lines(watch: Watch) -> list[dict[str, Any]]:
    """The lines of JSON, each of which the schema describes."""
    made = [json.loads(line) for line in jsonl(watch).splitlines()]
    for line in made:
        VALIDATOR.validate(line)
    return made


def test_the_published_schema_matches_the_records() -> None:
    from report_schemas import schemas

    written = schemas()[SCHEMA.name]
    jsonschema.Draft202012Validator.check_schema(json.loads(written))
    assert SCHEMA.read_text(encoding="utf-8") == written


def test_lines_are_in_the_order_in_which_they_happened() -> None:
    watch = replace(training(3, ("fc",), broken=2), findings=(replace(NAN, step=2),), ended="the program raised")
    made = lines(watch)
    assert [line["type"] for line in made] == ["head", "modules", "step", "step", "finding", "step", "end"]
    assert made[0] == {"type": "head", "format": "gir-watch", "version": "1.0"}
    assert made[3]["loss"] == "nan"
    assert made[4]["text"] == "the loss is NaN or infinite"
    assert made[4]["source"]["line"] == 42
    assert (made[-1]["verdict"], made[-1]["ended"]) == (watch.verdict, "the program raised")


@given(watches(texts))
def test_any_watch_is_read_back_from_its_lines(watch: Watch) -> None:
    lines(watch)
    decoder = msgspec.json.Decoder(Line)
    read = [decoder.decode(line) for line in jsonl(watch).splitlines()]
    assert [each for each in read if isinstance(each, Modules)] == [Modules(watch.modules)]
    assert [each for each in read if isinstance(each, Step)] == sorted(watch.steps, key=lambda step: step.number)


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (0, {"format": "gir-diff"}),
        (0, {"version": "2.0"}),
        (1, {"paths": "fc"}),
        (2, {"type": "stride"}),
        (2, {"number": "first"}),
        (2, {"loss": "NaN"}),
        (2, {"norms": [True]}),
        (-2, {"level": "fatal"}),
        (-2, {"step": None}),
        (-2, {"loops": {"epoch": "two"}}),
        (-1, {"verdict": 3}),
    ],
)
def test_a_wrong_line_is_refused(at: int, wrong: dict[str, object]) -> None:
    line = lines(replace(training(1, ("fc",)), findings=(NAN,)))[at]
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**line, **wrong})


@pytest.mark.parametrize("field", ["format", "version"])
def test_a_head_without_its_format_is_refused(field: str) -> None:
    head = lines(Watch())[0]
    del head[field]
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(head)


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_every_form_is_printable(name: str) -> None:
    watch = watch_of(HOSTILE_TEXTS[name])
    assert text(watch).replace("\n", "").isprintable()
    assert markdown(watch).replace("\n", "").isprintable()
    if name == "lone surrogates":
        with pytest.raises(ExportError):
            jsonl(watch)
        return
    made = jsonl(watch)
    assert made.replace("\n", "").isprintable()
    assert json.loads(made.splitlines()[1])["paths"] == [*watch.modules]


def test_text_has_the_gravest_first_and_counts_what_it_leaves_out() -> None:
    quiet = [Finding(1, Cause("lr_zero", "note", names=("a",))), Finding(2, Cause("lr_zero", "info", names=("b",)))]
    watch = replace(training(3, ("fc",)), findings=(*quiet, *[NAN] * 40))
    shown = format_watch(watch, "text")
    assert shown.index("error[loss_not_finite]: step 357 (epoch = 2, batch = 116)") < shown.index(
        "and 11 more: -o watch.jsonl has them all"
    )
    assert "info[" not in shown
    assert "1 note: --all shows it" in shown
    assert len(format_watch(watch, "text", Layout(width=60)).splitlines()) > len(shown.splitlines())


def test_markdown_has_a_table_of_some_steps() -> None:
    rows = [line for line in markdown(training(500, transformer(1))).splitlines() if line.startswith("| ")]
    assert [row.split(" ")[1] for row in rows] == ["step", "1", "72", "143", "214", "286", "357", "428", "500"]


def test_there_is_no_other_form() -> None:
    with pytest.raises(ExportError, match="no format 'csv' of a watch"):
        format_watch(Watch(), "csv")


def test_markdown_keeps_each_name_of_the_verdict_in_code() -> None:
    cause = Cause("lr_zero", "error", names=("<b>@you", "#1"), source=Source("<i>.py", 3, "f<u>"), detail="<s>")
    shown = markdown(Watch((), (), (Finding(1, cause, loops={"<em>": 1}),), 1))
    outside = re.sub(r"`[^`]*`", "", shown)
    assert not set("<@#") & set(outside)
    assert shown.splitlines()[0].startswith("**Step 1 (`<em> = 1`): ")
