"""JSON text in lines that every reader takes."""

from __future__ import annotations

import json

import msgspec
import pytest
from hostile_texts import HOSTILE_TEXTS, any_text
from hypothesis import given
from hypothesis import strategies as st

from gradir.ir import Ref, Saved
from gradir.ir.jsontext import json_lines, json_text, json_texts

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), any_text),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(any_text, inner, max_size=3)),
    max_leaves=8,
)


@given(values)
def test_every_value_survives_safe_text(value: object) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert text.isprintable()
    assert "<" not in text


@given(st.lists(values, max_size=5))
def test_many_values_are_written_as_each_alone(many: list[object]) -> None:
    alone = [json_text(value) for value in many]
    assert list(json_texts(many)) == alone
    assert "".join(json_lines(many)) == "".join(
        ["\n", ",\n".join(alone), "\n"] if alone else [],
    )


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS.keys())
def test_records_are_written_whatever_text_they_hold(text: str) -> None:
    saved = Saved("slot", "float32", (1, text), origin=Ref(text, 1))
    expected = {"slot": "slot", "dtype": "float32", "shape": [1, text], "origin": [text, 1]}
    assert json.loads(json_text(saved)) == expected


def test_keys_are_sorted_in_every_case() -> None:
    keys = ["b", "a\ud800", "a", "c"]
    assert [list(json.loads(json_text(dict.fromkeys(found)))) for found in (keys, keys[2:], keys[:2])] == [
        ["a", "a\ud800", "b", "c"],
        ["a", "c"],
        ["a\ud800", "b"],
    ]


def test_a_lone_surrogate_changes_nothing_else() -> None:
    plain = [{"b": 1e-05, "a": [msgspec.UNSET, None][1:]}] * 600
    assert list(json_texts([*plain, {"x": "\ud800"}]))[:-1] == list(json_texts(plain))
