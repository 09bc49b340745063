"""Names of many modules: the notation for ranges, and names as a module sees them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from brief_text import expand_names
from diff_pairs import pairs
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from samples import HOSTILE_LABELS

from gradir.diffs.changes import Change, FieldChange
from gradir.diffs.compare import compare
from gradir.ir import Graph, Ref
from gradir.ir.ids import split_index
from gradir.ir.name_ranges import ranges
from gradir.review.relative_changes import RelativeChanges, RelativeName, make_relative, names_a_record, relative_name

components = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "3",
        "10",
        "007",
        "9" * 10,
        "a",
        "b",
        "é",
        "٣",
        "a b",
        "",
        "{",
        "}",
        ",",
        "..",
        '"',
        "\\",
        "a/b",
        "\n",
    ]
)
dotted = st.lists(components, min_size=1, max_size=4).map(".".join)
hostile = st.one_of(
    dotted, st.text(st.sampled_from('{},."\\ 0123é\n٣a'), max_size=8), st.sampled_from(HOSTILE_LABELS[:-1])
)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["h"], "h"),
        (["h.0.attn"], "h.0.attn"),
        (["h.0", "h.1"], "h.{0,1}"),
        ([f"h.{number}" for number in range(12)], "h.{0..11}"),
        (["h.0", "h.1", "h.2", "h.3", "h.5"], "h.{0..3,5}"),
        (["h.5", "h.3", "h.4", "h.x", "h.0"], "h.{0,3..5,x}"),
        (["0", "1", "2"], "{0..2}"),
        (["h.00", "h.01", "h.02"], "h.{00,01,02}"),
        ([f"h.{n}.{part}" for n, part in product(range(3), ("q", "k"))], "h.{0..2}.{q,k}"),
        (["h.0.q", "h.1.q", "h.1.k"], "h.{0.q,1.{q,k}}"),
        (["h", "h.0", "h.1"], "h{,.{0,1}}"),
        (["", "a"], '{"",a}'),
        (["a b.{0}", "a b.{1}"], '"a b".{"{0}","{1}"}'),
        (["h.0..3", "h.x"], 'h.{0."".3,x}'),
        (["é.1", "é.2", "é.3"], '"é".{1..3}'),
        (["n.w", "n.b", "a.p.w", "a.p.b"], "{n,a.p}.{w,b}"),
        (["n.w", "n.b", "a.p.w"], "{n.{w,b},a.p.w}"),
        (["a", "a"], "a"),
    ],
)
def test_ranges(names: list[str], text: str) -> None:
    assert ranges(names) == text


@given(st.lists(hostile, min_size=1, max_size=12))
def test_a_range_holds_exactly_its_names(names: list[str]) -> None:
    text = ranges(names)
    found, rest = expand_names(text)
    assert rest == ""
    assert sorted(found) == sorted(set(names))
    assert text.isprintable()


@given(st.lists(dotted, min_size=1, max_size=6), st.lists(components, min_size=1, max_size=6))
def test_a_range_of_a_product_holds_exactly_its_names(before: list[str], last: list[str]) -> None:
    names = [f"{path}.{component}" for path, component in product(before, last)]
    assert sorted(expand_names(ranges(names))[0]) == sorted(set(names))


def test_a_range_of_many_names_is_short() -> None:
    names = [f"h.{n}.{part}.{leaf}" for n in range(500) for part in ("attn.q", "attn.k", "mlp") for leaf in "wb"]
    assert ranges(names) == "h.{0..499}.{attn.{q,k},mlp}.{w,b}"
    deep = [f"{'.'.join('a' * 3_000)}.{leaf}" for leaf in "wb"]
    assert ranges(deep).endswith(".a.{w,b}")


def test_a_range_of_deep_names_is_read_a_few_times_only() -> None:
    names = [".".join([start, *"a" * 2_000]) for start in ("x", "y.z")]
    text = ranges(names)
    assert sorted(expand_names(text)[0]) == sorted(names)
    assert text.endswith("}.a.a.a.a"), "what the names end with is compared to a depth that no model has"


def absolute_name(name: RelativeName, path: str) -> str:
    """The name as it is, for the module at ``path``: ``absolute_name(relative_name(path, name), path) == name``."""
    if name.above == -1:
        return name.rest
    if not name.above:
        return f"{path}{name.rest}"
    parts = path.rsplit(".", name.above)
    common = f"{parts[0]}." if len(parts) > name.above else ""
    if not name.step:
        return f"{common[:-1]}{name.rest}"
    list_, index = split_index(parts[-name.above]) or ("", 0)
    return f"{common}{list_}{index + name.step}{name.rest}"


def made_absolute(changes: RelativeChanges, path: str) -> tuple[Change, ...]:
    """The changes that the module at ``path`` sees so."""
    return tuple(
        replace(
            change.rest,
            id=absolute_name(change.id, path),
            scope=absolute_name(change.scope, path),
            old_id=absolute_name(change.old_id, path),
            fields=tuple(
                FieldChange(at, _value_in(before, path), _value_in(after, path)) for at, before, after in change.fields
            ),
        )
        for change in changes
    )


def _value_in(seen: Any, path: str) -> Any:
    if seen.name is None:
        return seen.value
    name = absolute_name(seen.name, path)
    return name if seen.value is None else Ref(name, seen.value)


@pytest.mark.parametrize(
    ("path", "name"),
    [("h_3.fc", "h_2/add:1"), ("h_3.fc", "h_3.fc/a:1"), ("h_3.fc", "g_2/a:1"), ("a.h_10", "a.h_9.b"), ("h_3", "3/a:1")],
)
def test_a_name_is_the_same_after_it_was_relative(path: str, name: str) -> None:
    assert absolute_name(relative_name(path, name), path) == name


tails = st.sampled_from(["", "/exp:1", "[1]", ".0", ".w/t:2", "x"])


@given(dotted, st.one_of(hostile, st.tuples(dotted, tails).map("".join)), tails)
def test_a_name_seen_from_a_module_is_that_name(path: str, name: str, tail: str) -> None:
    beside = f"{path.rpartition('.')[0]}.1{tail}"
    for text in (name, path, path + tail, beside, path.rpartition(".")[0], path.partition(".")[0] + tail):
        assert absolute_name(relative_name(path, text), path) == text


@given(dotted, st.tuples(dotted, tails).map("".join))
def test_a_quoted_name_seen_from_a_module_is_that_name(path: str, name: str) -> None:
    for ref in (Ref(name, 0), Ref(path, 0), Ref(f"{path}/f:1", 2)):
        change = Change("changed", "node", path, fields=(FieldChange(("in", 0), ref),))
        assert made_absolute(make_relative([change], path), path) == (change,)


@pytest.mark.parametrize(
    ("path", "name", "seen"),
    [
        ("h.1.fc", "h.1.fc/exp:1", RelativeName(0, "/exp:1")),
        ("h.1.fc", "h.1.fc.weight", RelativeName(0, ".weight")),
        ("h.1.fc", "h.1.fc2/exp:1", RelativeName(1, ".fc2/exp:1")),
        ("h.1.fc", "h.1/add:2", RelativeName(1, "/add:2")),
        ("h.1.fc", "h.0/add:2", RelativeName(2, "/add:2", -1)),
        ("h.1", "h.10.fc", RelativeName(1, ".fc", 9)),
        ("h.10", "h.1", RelativeName(1, "", -9)),
        ("1", "0/add:2", RelativeName(1, "/add:2", -1)),
        ("h.1.fc", "norm/add:1", RelativeName(-1, "norm/add:1")),
        ("h.01", "h.1", RelativeName(1, ".1")),
    ],
)
def test_a_name_is_seen_from_a_module(path: str, name: str, seen: RelativeName) -> None:
    assert relative_name(path, name) == seen


def told(path: str, fields: Mapping[tuple[str | int, ...], tuple[object, object]]) -> Change:
    return Change(
        "changed", "node", f"{path}/f:1", path, "f", tuple(FieldChange(at, *value) for at, value in fields.items())
    )


def test_only_names_of_records_are_seen_from_a_module() -> None:
    one, other = (make_relative([told(path, {("in", 0): (Ref(f"{path}/a", 0), Ref("y", 0))})], path) for path in "xz")
    assert one == other
    for words in ("scope", "base", "saved x storage"):
        field = tuple(words.split())
        one, other = (make_relative([told(path, {field: (f"{path}/a", "q")})], path) for path in "xz")
        assert one == other, f"{field} names a record of the module"
    fields = ("class", "detail", "native", "names", "role", "attrs mode", "saved x bytes")
    for field in (tuple(words.split()) for words in fields):
        one, other = (make_relative([told(path, {field: (path, "q")})], path) for path in "xz")
        assert one != other, f"the value of {field} is its own, and no name of the module"


def test_strings_as_hostile_as_names_are_distinguished() -> None:
    values = [Ref(label, 0) for label in HOSTILE_LABELS]
    forms = {make_relative([told("x", {("in", 0): (value, Ref("y", 0))})], "x") for value in values}
    assert len(forms) == len(values)


def test_values_of_other_types_are_distinguished() -> None:
    values = [1, 1.0, True, "1", None, (1,), (1.0,), (True,)]
    forms = {make_relative([told("x", {("attrs", "v"): (value, 0)})], "x") for value in values}
    assert len(forms) == len(values)


@given(pairs(), dotted)
def test_changes_seen_from_a_module_are_those_changes(pair: tuple[Graph, Graph], path: str) -> None:
    changes = compare(*pair).changes
    for scope in {path, *(change.scope for change in changes)}:
        assert made_absolute(make_relative(changes, scope), scope) == changes


def test_a_slot_may_be_called_like_a_field_that_names_a_node() -> None:
    assert names_a_record(("saved", "self", "origin"))
    assert not names_a_record(("saved", "origin"))
