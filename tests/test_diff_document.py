"""A diff as a file: its schema, what is refused in it, and patches."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from diff_pairs import edit_sample, pairs, valid_pairs
from hypothesis import given
from samples import everything

import gradir
from gradir.diffs.compare import compare
from gradir.diffs.diff_json import decode, encode
from gradir.errors import FormatError, GradirWarning, GraphError
from gradir.ir import Graph, Node

ROOT = Path(__file__).parents[1]


SCHEMA = json.loads((ROOT / "schemas" / "gir-diff-1.0.schema.json").read_text(encoding="utf-8"))


@given(valid_pairs)
def test_a_diff_patches_both_ways(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    found = decode(encode(gradir.diff(a, b)))
    assert found == gradir.diff(a, b)
    assert gradir.dumps(gradir.patch(a, found)) == gradir.dumps(b)
    assert gradir.dumps(gradir.unpatch(b, found)) == gradir.dumps(a)


@given(pairs())
def test_the_schema_of_diffs_accepts_what_is_written(pair: tuple[Graph, Graph]) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(encode(compare(*pair))))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "broken JSON"),
        (b"[]", "not a diff"),
        (b'{"format":"gir"}', "gradir diff --format json writes one"),
        (b'{"format":"gir-diff","version":"2.0"}', "version '2.0'; this gradir reads 1.0"),
        (b'{"format":"gir-diff","version":"1.9999999"}', "version '1.9999999'; this gradir reads 1.0"),
        (b'{"format":"gir-diff","version":"1.0"}', "missing required field `before`"),
        (b'{"format":"gir-diff","version":"1.0","before":{},"after":{},"changes":[{}]}', r"changes\[0\]"),
        (
            b'{"format":"gir-diff","version":"1.0","before":{},"after":{},"changes":[{"kind":"changed","subject":"scope",'
            b'"id":"m","fields":[{"path":["own"],"before":"many"}]}]}',
            "broken diff: Expected `int`, got `str`",
        ),
        (b'{"a":' * 10_000, "broken JSON"),
        (b'{"format":"gir-diff","version":"1.0","before":{},"after":{},"changes":' + b"[" * 10_000, "broken JSON"),
    ],
)
def test_a_broken_diff_is_one_clear_error(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode(data)


@pytest.mark.parametrize(
    "version",
    ['"1.' + "9" * 5000 + '"', '"' + "\u202e" * 5000 + '"', "[" + "1," * 5000 + "1]", '{"a":"' + "b" * 5000 + '"}'],
)
def test_a_wrong_version_of_a_diff_is_cut_short(version: str) -> None:
    with pytest.raises(FormatError, match="the diff has version") as caught:
        decode(b'{"format":"gir-diff","version":%b}' % version.encode())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_diff_of_a_newer_minor_version_is_read_with_a_warning() -> None:
    found = gradir.diff(everything(), edit_sample())
    document = json.loads(encode(found)) | {"version": "1.7", "later": [1]}
    document["script"]["nodes"][0]["after"][0]["later"] = {"a": 1}
    with pytest.warns(
        GradirWarning, match=r"the diff has version 1\.7, newer than 1\.0; gradir ignores fields"
    ) as caught:
        assert decode(json.dumps(document).encode()) == found
    assert len(caught) == 1


@pytest.mark.parametrize("key", ["later", "later\x1b[2J"])
@pytest.mark.parametrize(
    "path", [[], ["before"], ["changes", 0], ["script"], ["script", "nodes", 0], ["script", "nodes", 0, "after", 0]]
)
def test_a_diff_reports_ignored_changes(path: list[str | int], key: str) -> None:
    found = gradir.diff(everything(), edit_sample())
    document = holder = json.loads(encode(found))
    for part in path:
        holder = holder[part]
    holder[key] = 1
    with pytest.warns(GradirWarning, match="does not know and ignores: Object contains unknown field `later") as caught:
        assert decode(json.dumps(document).encode()) == found
    assert str(caught[0].message).isprintable()


def test_the_text_of_a_diff_is_cut_short_where_it_breaks_a_rule() -> None:
    node = json.loads(gradir.dumps(Graph.of([Node("x" * 5000), Node("y")])))["nodes"][0]
    hunk = {"start": 0, "new_start": 0, "after": [node, node]}
    document = {"format": "gir-diff", "version": "1.0", "before": {}, "after": {}, "script": {"nodes": [hunk]}}
    with pytest.raises(GraphError, match="occurs twice") as caught:
        gradir.patch(Graph.of([]), decode(json.dumps(document).encode()))
    assert len(str(caught.value)) < 200


def test_the_published_schema_is_that_of_the_records() -> None:
    from report_schemas import schemas

    name = "gir-diff-1.0.schema.json"
    message = "run 'make schema' and review the change"
    assert (ROOT / "schemas" / name).read_text(encoding="utf-8") == schemas()[name], message
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_findings_of_a_file_are_text_and_no_more() -> None:
    found = gradir.diff(Graph.of([Node("x")]), Graph.of([Node("y", op="exp")]))
    (kept, *others) = found.findings
    strange = msgspec.structs.replace(kept, kind="of a later release", text="a\nb")
    for findings in ((strange, *others), (msgspec.structs.replace(kept, text="\x1b[31m\n::error::"), *others)):
        text = str(decode(encode(msgspec.structs.replace(found, findings=findings))))
        assert text.splitlines()[0].startswith("+1 -1 ~0 nodes")
        assert "\x1b" not in text
        assert not any(line.startswith("::") for line in text.splitlines())


def test_a_diff_that_was_edited_has_no_findings() -> None:
    found = gradir.diff(Graph.of([Node("x")]), Graph.of([Node("y", op="exp"), Node("z", op="exp")]))
    fewer = msgspec.structs.replace(found, changes=found.changes[:1])
    assert str(fewer).splitlines() == ["+0 -1 ~0 nodes", "", "(top level)", "  - x  function"]
