"""The record of what ends a gradient, and the forms in which it is told."""

from __future__ import annotations

import json

import pytest

from gradir.errors import ExportError
from gradir.explanations.model import Cause, Explanation, Term
from gradir.vocabulary.causes import WORDS


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


def test_a_format_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ExportError, match="there are text, markdown, json"):
        Explanation({}).to("html")
    with pytest.raises(ExportError, match="cannot spell"):
        Explanation({"\ud800": "cut"}).to("json")


def test_names_of_one_tensor_count_once_and_stand_together() -> None:
    names = ("embed.weight", "head.weight")
    cause = Cause("frozen", "info", "", (*names, "head.bias"))
    found = Explanation(
        {"embed.weight": "frozen", "head.weight": "frozen", "head.bias": "frozen", "free": "reached"},
        (cause, Cause("unused", "info", "", ("head.weight",))),
        (Term(names, "one"), Term(("free", *names), "two")),
        (names,),
    )
    text = found.to("text")
    assert text.startswith("1 of 3 parameters reached, 2 frozen\n")
    assert "embed.weight = head.weight, head.bias have requires_grad=False" in text
    assert "computed of head.weight\n" in text
    assert "one: reaches 1 parameter\n" in text
    assert "two: reaches 2 parameters\n" in text
    assert "`embed.weight = head.weight`" in found.to("markdown")
    assert json.loads(found.to("json"))["causes"][0]["names"] == [*cause.names]
