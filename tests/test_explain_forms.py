"""The record of what ends a gradient, and the forms in which it is told."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from steps import steps

from gradir.errors import ExportError
from gradir.explanations.formats import Layout, format_explanation
from gradir.explanations.model import Cause, Explanation, Term
from gradir.ir import Source
from gradir.vocabulary.causes import CAUSE_TEXTS


def test_every_kind_has_a_sentence_and_advice_for_one_name_and_for_two() -> None:
    for kind in CAUSE_TEXTS:
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
    assert len(found.to("text").splitlines()) == 8
    (row,) = [line for line in found.to("markdown").splitlines() if line.startswith("| `")]
    assert row.count("|") - row.count("\\|") == 3
    assert json.loads(found.to("json"))["causes"][0]["names"] == [name]


def test_norms_of_modules_count_a_gradient_of_zero_and_of_none_as_nothing() -> None:
    gradients = {"a.weight": 3.0, "a.bias": 4.0, "b.weight": 0.5, "b.bias": "zero", "c.w": "none", "d.w": "nonfinite"}
    text = format_explanation(
        Explanation(dict.fromkeys(gradients, "reached"), gradients=gradients), "text", Layout(norms=True)
    )
    shown = text.partition("gradient norms by module:\n")[2].splitlines()
    assert shown == ["  a  5", "  b  0.5", "  c  0", "  d  nonfinite"]


def test_a_format_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ExportError, match="there are text, markdown, json"):
        Explanation({}).to("html")
    with pytest.raises(ExportError, match="cannot represent"):
        Explanation({"\ud800": "cut"}).to("json")


def test_a_notebook_shows_a_bounded_list_with_the_gravest_cause() -> None:
    names = [f"layers.{number}.{'x' * 300}" for number in range(60)]
    levels = ("note", "info", "error")
    causes = [Cause("detach", levels[number * 3 // 1000], "detach", tuple(names)) for number in range(1000)]
    found = Explanation(dict.fromkeys(names, "cut"), tuple(causes)).allow(f"{'y' * 500}{n}" for n in range(100))
    shown = found._repr_mimebundle_()
    assert max(map(len, shown.values())) < 100_000
    for text in shown.values():
        assert "and 636 more causes: --format json has them all" in text
        assert "334 notes" in text
        assert "and 80 more" in text
    assert shown["text/plain"].count("\nerror[detach]") == 30
    assert shown["text/markdown"].count("- **error**") == 30
    assert len(json.loads(found.to("json"))["causes"]) == 1000


def test_a_notebook_escapes_names() -> None:
    hostile = ["<img src=x onerror=alert(1)>", "a|b", "`c`", "**d**\n# e", "[f](javascript:g)", "&lt;h&gt;", "~~i~~"]
    causes = [
        Cause(kind, "error", name, (name,), Source(name, 3, name), None, name)
        for kind, name in zip(["detach", *hostile], [*hostile, "w"], strict=True)
    ]
    found = Explanation(dict.fromkeys(hostile, "cut"), tuple(causes)).allow(hostile, "<b>pyproject.toml</b>")
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(found.to("markdown"))
    # Every cause is allowed, which makes it a note; the notes are counted in one item.
    items = 1 + len(hostile)
    tags = Counter(re.findall("<([a-z0-9]+)[ >]", html))
    tags.pop("code")
    once = {"p": 1, "table": 1, "thead": 1, "tbody": 1, "ul": 1}
    assert tags == {**once, "tr": 2, "th": 2, "td": 2, "li": items, "strong": 1}
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(found.to("markdown", all=True))
    tags = Counter(re.findall("<([a-z0-9]+)[ >]", html))
    tags.pop("code")
    assert tags == {**once, "tr": 2, "th": 2, "td": 2, "li": items + len(causes) - 1, "strong": 1 + len(causes)}


def test_names_of_one_tensor_count_once_and_are_listed_together() -> None:
    names = ("embed.weight", "head.weight")
    cause = Cause("frozen", "info", "", (*names, "head.bias"))
    found = Explanation(
        {"embed.weight": "frozen", "head.weight": "frozen", "head.bias": "frozen", "free": "reached"},
        (cause, Cause("unused", "info", "", ("head.weight",))),
        (Term(names, "one"), Term(("free", *names), "two")),
        (names,),
    )
    text = found.to("text")
    assert text.startswith("1 of 3 parameters is in the graph; 2 are frozen")
    assert "embed.weight = head.weight, head.bias have requires_grad=False" in text
    assert "does not depend on head.weight\n" in text
    assert "one: reaches 1 parameter\n" in text
    assert "two: reaches 2 parameters\n" in text
    assert "`embed.weight = head.weight`" in found.to("markdown")
    assert json.loads(found.to("json"))["causes"][0]["names"] == [*cause.names]


class Counted(tuple):
    """A tuple that counts how often it is gone through."""

    times = 0

    def __iter__(self):
        Counted.times += 1
        return super().__iter__()


def test_many_causes_do_not_go_through_all_ties_each() -> None:
    names = [f"w{number}" for number in range(200)]
    tied = Counted((name, f"{name}.copy") for name in names)
    causes = tuple(Cause("detach", "error", "detach", (name, f"{name}.copy")) for name in names)
    terms = tuple(Term((name,), name) for name in names)
    found = Explanation(dict.fromkeys(names, "cut"), causes, terms, tied)
    for form in ("text", "markdown", "json"):
        found.to(form)
    assert Counted.times < 10
    assert "detach() cuts w7 = w7.copy" in found.to("json")
    assert found.join_tied(["w1.copy", "w2", "w1"]) == ("w1 = w1.copy", "w2")


@given(st.text("ab*[?.\n", max_size=8), st.text("ab[?.\n", max_size=8))
def test_a_star_in_what_is_allowed_is_any_text_and_nothing_else_is_special(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
    found = Explanation({name: "cut"}, (Cause("#", "error", "", (name,)),))
    assert (found.allow([pattern]).level == "none") is expected


@pytest.mark.parametrize("pattern", ["w" * 400_000, "*" * 400_000, "*w" * 200_000, "w*" * 200_000])
def test_a_huge_pattern_is_gone_through_once(pattern: str) -> None:
    found = Explanation({"w.w": "cut"}, (Cause("detach", "error", "detach", ("w.w",)),))
    assert steps(lambda: found.allow([pattern])) < 2 * len(pattern)
    assert found.allow([pattern]).level == ("none" if pattern.strip("*") == "" else "error")
