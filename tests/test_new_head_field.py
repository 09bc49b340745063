"""A field that is added in `gradir.ir.head`, and nowhere else, is kept, checked, compared, merged and told."""

from __future__ import annotations

from pathlib import Path

import pytest
from new_fields import copy, run

import gradir

__all__ = ["copy"]

HEADS = """
import json, sys, warnings
import gradir
from gradir import codecs
from gradir.cli import main
from gradir.codecs import document
from gradir.codecs.strict import check_canonical, check_keys
from gradir.codecs.codec import check_known
from gradir.diffs.merging.three_way import merge_graphs
from gradir.ir import Graph, Node, Ref
from gradir.ir.head import Mark
from msgspec.structs import replace

VALUES = {
    "stream": "side",
    "stamp": "monday",
    "lane": 7,
    "pinned": True,
    "marks": (Mark("exp:1", 1), Mark("x", 2)),
    "settings": {"a": 1, "b": 2},
    "failure": Mark("exp:1", 3),
}
OTHERS = {
    "stream": "main",
    "stamp": "sunday",
    "lane": 8,
    "pinned": False,
    "marks": (Mark("exp:1", 5),),
    "settings": {"a": 1, "c": 2},
    "failure": Mark("x", 3),
}
WRONG = {
    "stream": "?",
    "stamp": "?",
    "lane": 9,
    "pinned": 1,
    "marks": (Mark("?"),),
    "settings": {"?": 1},
    "failure": Mark("?"),
}
COMPARED = [name for name in VALUES if name not in ("stamp", "lane")]
BARE = Graph.of([
    Node("x", role="leaf"),
    Node("exp:1", op="exp", inputs=(Ref("x", 0),)),
    Node("output", role="output", inputs=(Ref("exp:1", 0),)),
])
WHOLE, OTHER = replace(BARE, **VALUES), replace(BARE, **OTHERS)


def edited(attrs, **head):
    exp = replace(BARE.nodes["exp:1"], attrs=attrs)
    return replace(WHOLE, nodes={**BARE.nodes, "exp:1": exp}, **head)
"""

CHECKS_OF_HEADS = {
    "both forms": """
for form in codecs.ENCODINGS:
    for name, value in VALUES.items():
        whole = replace(BARE, **{name: value})
        data = gradir.dumps(whole, format=form)
        assert gradir.loads(data) == whole != BARE and getattr(gradir.loads(data), name) == value, name
        assert check_canonical(data) == whole
        check_keys(data), check_known(data)
        assert b"1.1" in data and name.encode() in data
    assert check_canonical(gradir.dumps(WHOLE, format=form)) == WHOLE
    assert b"1.0" in gradir.dumps(BARE, format=form)
    assert not any(name.encode() in gradir.dumps(BARE, format=form) for name in VALUES)
lines = gradir.dumps(WHOLE).decode().splitlines()
keys = ["format", "version", "requires", "producer", "stream", "stamp", "lane", "pinned", "settings", "failure"]
assert [*json.loads(gradir.dumps(WHOLE))] == [*keys, "scopes", "cuts", "marks", "nodes"]
start = lines.index('"marks":[')
assert lines[start + 1 : start + 4] == ['{"node":"exp:1","size":1},', '{"node":"x","size":2}', '],']
assert str(document.lowest_for(WHOLE)) == "1.1" and str(document.lowest_for(BARE)) == "1.0"
""",
    "what no file can hold": """
for name, value, said in (
    ("stream", 3, "the stream: is 3; expected text"),
    ("marks", [], "the marks of the graph are of type list; expected tuple"),
    ("marks", (Mark("x", "y"),), "mark 0: size is 'y'"),
    ("failure", Mark(3), "the failure: node is 3"),
):
    try:
        gradir.dumps(replace(BARE, **{name: value}))
    except gradir.FormatError as error:
        assert said in str(error), error
    else:
        raise AssertionError(name)
for value in (b'"stream":3', b'"marks":[{"size":"y"}]', b'"marks":3'):
    try:
        gradir.loads(gradir.dumps(BARE).replace(b'"cuts":[]', value))
    except gradir.FormatError as error:
        assert "$." in str(error), error
    else:
        raise AssertionError(value)
""",
    "a schema": """
import gir_schemas
import jsonschema

schema = gir_schemas.json_schema()
assert VALUES.keys() <= schema["properties"].keys() and not VALUES.keys() & set(schema["required"])
jsonschema.validate(json.loads(gradir.dumps(WHOLE)), schema)
for name, value in {"stream": 3, "marks": [{"size": "y"}], "failure": 3, "settings": {"a": {}}}.items():
    try:
        jsonschema.validate({**json.loads(gradir.dumps(WHOLE)), name: value}, schema)
    except jsonschema.ValidationError:
        continue
    raise AssertionError(name)
""",
    "a diff": """
from gradir.diffs import diff_json
import jsonschema, report_schemas

schema = json.loads(report_schemas.schemas()["gir-diff-1.0.schema.json"])
for name in VALUES:
    for a, b in ((WHOLE, replace(WHOLE, **{name: OTHERS[name]})), (BARE, replace(BARE, **{name: VALUES[name]}))):
        found = gradir.diff(a, b)
        assert [change.id for change in found.changes] == ([name] if name in COMPARED else []), (name, found)
        for diff in (found, diff_json.decode(diff_json.encode(found))):
            assert diff == found
            assert gradir.patch(a, diff) == b != a and gradir.unpatch(b, diff) == a
        jsonschema.validate(json.loads(diff_json.encode(found)), schema)
        for form in ("text", "markdown", "json"):
            assert (name in found.to(form)) or name not in COMPARED, (name, form, found.to(form))
        if name in COMPARED:
            assert found.changes[0].fields[0].path[0] == name
            assert not gradir.diff(a, b, ignore=[name])
        try:
            gradir.patch(replace(a, **{name: WRONG[name]}), found)
        except gradir.PatchError as error:
            assert "the diff was not made for this graph: it expects another" in str(error), error
        else:
            assert a is BARE and name == "marks", name
exact = replace(WHOLE, settings={"a": True, "b": 2})
assert gradir.patch(WHOLE, gradir.diff(WHOLE, exact)).settings["a"] is True and gradir.diff(WHOLE, exact)
assert not gradir.diff(WHOLE, WHOLE) and not gradir.diff(WHOLE, WHOLE).script
moved = gradir.loads(gradir.dumps(WHOLE).replace(b"exp:1", b"exp:9"))
assert all(change.subject != "graph" or change.id not in VALUES for change in gradir.diff(WHOLE, moved).changes)
""",
    "a merge": """
for name in VALUES:
    ours, theirs = edited({"v": 1}), edited({}, **{name: OTHERS[name]})
    for sides in ((ours, theirs), (theirs, ours)):
        found = merge_graphs(WHOLE, *sides)
        if name == "lane":
            (conflict,) = found.conflicts
            assert conflict.reason == "a side changed its lane: capture the merged program again"
        else:
            assert found.graph == edited({"v": 1}, **{name: OTHERS[name]}), (name, found)
third = {"stream": "third", "stamp": "third", "marks": (Mark("exp:1", 6),), "failure": Mark("x", 9)}
for name, value in third.items():
    found = merge_graphs(WHOLE, edited({}, **{name: OTHERS[name]}), edited({"v": 1}, **{name: value}))
    if name == "stamp":
        assert found.graph.stamp in (OTHERS[name], value)
    elif name == "failure":
        assert found.graph.failure == Mark("x", 9)
    else:
        assert [each.reason.partition(":")[0] for each in found.conflicts] == [name], (name, found)
both = merge_graphs(WHOLE, edited({}, settings={"a": 5, "b": 2}), edited({}, settings={"a": 1, "b": 6}))
assert both.graph.settings == {"a": 5, "b": 6}
""",
    "info": """
open("whole.gir", "wb").write(gradir.dumps(WHOLE)), open("bare.gir", "wb").write(gradir.dumps(BARE))
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper

def printed(*arguments):
    out = TextIOWrapper(BytesIO(), encoding="utf-8")
    with redirect_stdout(out):
        assert main([*arguments]) == 0
    out.flush()
    return out.buffer.getvalue().decode()

rows = [line.split(None, 1) for line in printed("info", "whole.gir").splitlines()]
for row in (["stream", "side"], ["lane", "7"], ["pinned", "true"], ["marks", "2"], ["settings", '{"a":1,"b":2}']):
    assert row in rows, rows
assert ["failure", '{"node":"exp:1","size":3}'] in rows, rows
assert not VALUES.keys() & {line.split()[0] for line in printed("info", "bare.gir").splitlines()}
told = json.loads(printed("info", "whole.gir", "--json"))
assert (told["stream"], told["marks"], told["failure"]) == ("side", 2, {"node": "exp:1", "size": 3})
assert printed("validate", "whole.gir", "--strict")
""",
    "passes": """
from kept_fields import find_lost_fields, find_named_nodes, operations, whole
from gradir.ir.head import Head

graph = whole()
assert graph.marks == (Mark("layers.1/exp:1", 3),) and graph.stream
for name, operation in operations(graph).items():
    assert not find_lost_fields(graph, operation), name
    head = operation.run(graph)
    named = {node for field in Head.__struct_fields__ for node in find_named_nodes(getattr(head, field))}
    assert named <= {"", *head.nodes}, name
""",
}


@pytest.mark.parametrize("check", CHECKS_OF_HEADS.values(), ids=CHECKS_OF_HEADS)
def test_a_new_field_of_the_head(copy: Path, check: str) -> None:
    done = run(copy, "-c", f"{HEADS}\nassert gradir.__file__.startswith({str(copy)!r})\n{check}")
    assert done.returncode == 0, done.stderr


def test_an_older_reader_names_a_new_field_of_the_head(copy: Path, tmp_path: Path) -> None:
    path = tmp_path / "whole.gir"
    done = run(copy, "-c", f"{HEADS}\nopen({str(path)!r}, 'wb').write(gradir.dumps(WHOLE))")
    assert done.returncode == 0, done.stderr
    with pytest.warns(gradir.GradirWarning, match=r"GIR version 1\.1 is newer than 1\.0"):
        assert gradir.load(path).read_from == "1.1"
    known = gradir.loads(path.read_bytes().replace(b'"1.1"', b'"1.0"', 1))
    assert "stream" in known.unknown
    assert not known.read_from
    with pytest.raises(gradir.FormatError, match="stream"):
        gradir.dumps(known)
