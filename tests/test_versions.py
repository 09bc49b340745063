"""The format over time: every version that there was is read, and none that there will be is misread."""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgpack
import pytest
from gir_schemas import PUBLISHED, json_schema, schema_text, trouble
from hypothesis import given
from samples import everything, hostile
from schema_change import breaking_changes
from strategies import graphs

import gradir
from gradir import codecs
from gradir.codecs import document
from gradir.codecs.document import NEWEST, RELEASED, Version
from gradir.errors import FormatError, GradirWarning
from gradir.ir import Graph, Node, Scope

ROOT = Path(__file__).parents[1]
OLD_FILES = Path(__file__).parent / "versions"
EVERY_FILE = sorted(OLD_FILES.glob("*/*.gir"))


def version_of(path: Path) -> Version:
    version = Version.parse(path.parent.name)
    assert version is not None
    return version


def plain(data: bytes) -> Any:
    """A document as plain data."""
    return json.loads(data) if data.startswith(b"{") else msgpack.unpackb(data)


def test_there_are_files_of_every_version_in_both_encodings() -> None:
    assert len(EVERY_FILE) == 4 * len(RELEASED)
    for version in RELEASED:
        found = [path.name for path in EVERY_FILE if version_of(path) == version]
        assert found == ["everything.json.gir", "everything.msgpack.gir", "hostile.json.gir", "hostile.msgpack.gir"]


def test_no_file_of_a_version_was_edited() -> None:
    sums = dict(line.split("  ")[::-1] for line in (OLD_FILES / "SHA256SUMS").read_text().splitlines())
    assert sums == {
        path.relative_to(OLD_FILES).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in EVERY_FILE
    }


@pytest.mark.parametrize("path", EVERY_FILE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_version_is_read_and_rewritten_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    graph = gradir.load(path)
    assert gradir.dumps(graph, format=path.name.split(".")[1]) == data
    assert graph == {"everything": everything, "hostile": hostile}[path.name.split(".")[0]]()


@pytest.mark.parametrize("path", EVERY_FILE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_version_fits_its_schema_and_the_newest(path: Path) -> None:
    document = plain(path.read_bytes())
    # Nothing in a document of a version is newer than the version says.
    for version in RELEASED:
        schema = json.loads((ROOT / f"schemas/gir-{version}.schema.json").read_text())
        jsonschema.validate(document, schema)
        if version == version_of(path):
            closed = _closed(schema)
            jsonschema.validate(document, closed)


def _closed(schema: Any) -> Any:
    """The schema with no room for properties that it does not name."""
    closed = copy.deepcopy(schema)
    for definition in (closed, *closed["$defs"].values()):
        if "properties" in definition:
            definition["additionalProperties"] = False
    return closed


@given(graphs())
def test_the_lowest_version_that_can_express_a_graph_is_stamped(graph: Graph) -> None:
    stamped = json.loads(gradir.dumps(graph))["version"]
    schema = _closed(json.loads((ROOT / f"schemas/gir-{stamped}.schema.json").read_text()))
    jsonschema.validate(json.loads(gradir.dumps(graph)), schema)


def future(version: str) -> dict[str, bytes]:
    """A document from the future in each encoding, with something new in every place."""
    new = {"new": 1}
    text = json.loads(gradir.dumps(Graph.of([Node("a")], [Scope("m")]))) | new | {"version": version}
    text["nodes"][0] |= new
    text["scopes"][0] |= new
    return {"json": json.dumps(text).encode(), "msgpack": msgpack.packb(text)}


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_newer_minor_version_loads_and_is_not_rewritten_unasked(encoding: str, tmp_path: Path) -> None:
    data = future("1.99")[encoding]
    with pytest.warns(GradirWarning, match=r"1\.99 is newer than 1\.0"):
        graph = gradir.loads(data)
    assert (list(graph.nodes), list(graph.scopes), graph.read_from) == (["a"], ["m"], "1.99")
    path = tmp_path / "kept.gir"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"read from GIR 1\.99, newer than 1\.0: .* lossy"):
        gradir.save(graph, path)
    assert path.read_bytes() == data
    gradir.save(graph, path, lossy=True)
    assert gradir.load(path) == Graph.of([Node("a")], [Scope("m")])


@pytest.mark.parametrize("read", [gradir.loads, codecs.survey])
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_newer_minor_version_is_warned_of_once(encoding: str, read: Callable[[bytes], object]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(future("1.99")[encoding])
    assert len(caught) == 1


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_newer_major_version_is_refused_with_both_versions_named(encoding: str) -> None:
    with pytest.raises(FormatError, match=r"GIR version 7\.2 is newer than 1\.0.*upgrade gradir"):
        gradir.loads(future("7.2")[encoding])


@pytest.mark.parametrize("version", ["0.9", "1.00", "01.0", "1", "1.1.1", "", " 1.0", None, 1.0])
def test_a_malformed_version_is_refused(version: object) -> None:
    with pytest.raises(FormatError, match=r"unknown GIR version|expected MAJOR\.MINOR"):
        gradir.loads(json.dumps({"format": "gir", "version": version, "nodes": []}).encode())


@pytest.fixture
def version_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version 0.9 in which an id is called title."""

    def rename(document: dict[str, Any]) -> dict[str, Any]:
        nodes = [{"id" if key == "title" else key: value for key, value in n.items()} for n in document["nodes"]]
        return {**document, "nodes": nodes}

    older = Version(0, 9)
    monkeypatch.setattr(document, "RELEASED", (older, *RELEASED))
    monkeypatch.setattr(document, "STEPS", {older: rename})


OLD_TEXT = {"format": "gir", "version": "0.9", "nodes": [{"title": "a"}, {"title": "b", "in": [["a", 0]]}]}


OLD = [json.dumps(OLD_TEXT).encode(), msgpack.packb(OLD_TEXT)]


@pytest.mark.usefixtures("version_before")
@pytest.mark.parametrize("data", OLD, ids=["json", "msgpack"])
def test_documents_of_an_older_version_are_upgraded_and_written_as_new_ones(data: bytes) -> None:
    graph = gradir.loads(data)
    assert list(graph.nodes) == ["a", "b"]
    assert codecs.survey(data).version == "0.9"
    assert codecs.survey(data).totals == codecs.survey(gradir.dumps(graph)).totals
    for form in ("json", "msgpack"):
        assert codecs.survey(gradir.dumps(graph, format=form)).version == "1.0"


@pytest.mark.parametrize("data", OLD, ids=["json", "msgpack"])
def test_an_unregistered_version_is_not_upgraded(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"unknown GIR version 0\.9; expected one of 1\.0"):
        gradir.loads(data)


@pytest.mark.usefixtures("version_before")
def test_a_failed_upgrade_is_one_clear_error() -> None:
    text = {"format": "gir", "version": "0.9", "nodes": [{"title": 1}]}
    with pytest.raises(FormatError, match=r"nodes\[0\].*after its upgrade from GIR 0\.9: expected `str`, got `int`"):
        gradir.loads(json.dumps(text).encode())


def test_the_published_schemas_are_the_models() -> None:
    assert list(trouble(ROOT)) == []


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A copy of what is published."""
    (tmp_path / "schemas").mkdir()
    for path in filter(Path.is_file, (ROOT / "schemas").iterdir()):
        (tmp_path / "schemas" / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_an_edit_of_a_published_schema_is_trouble(published: Path) -> None:
    edited = published / PUBLISHED
    edited.write_text(edited.read_text().replace("One vertex", "A vertex"))
    assert list(trouble(published)) == [
        f"{PUBLISHED} is published and must not change; a change needs a new version",
        f"{PUBLISHED} is not what the model says: run 'make schema' and review the change",
    ]


def test_a_changed_model_is_trouble(published: Path) -> None:
    path = published / PUBLISHED
    path.write_text(path.read_text().replace('"native"', '"own"'))
    assert list(trouble(published))[1:] == [
        f"{PUBLISHED} is not what the model says: run 'make schema' and review the change",
        f"Node: native is new after {NEWEST}: declare since which version it is there",
    ]


def test_a_change_that_the_version_does_not_allow_is_trouble(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = published / PUBLISHED.replace(str(NEWEST), "1.0-before")
    older.write_text((published / PUBLISHED).read_text().replace('"native": {', '"own": {'))
    before = type("Before", (Version,), {"__str__": lambda _: "1.0-before"})(1, 0)
    monkeypatch.setattr("gir_schemas.RELEASED", (before, NEWEST))
    change = "Node: property own was removed since 1.0-before, which needs version 2.0"
    assert list(trouble(published)) == [f"{PUBLISHED}: {change}"]


def node(schema: dict[str, Any]) -> dict[str, Any]:
    definition: dict[str, Any] = schema["$defs"]["Node"]
    return definition


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda s: node(s)["properties"].update(new={"type": "string", "default": ""}), []),
        (lambda s: node(s)["properties"]["op"].update(description="a word"), []),
        (lambda s: s["$defs"].update(New={"type": "object"}), []),
        (lambda s: node(s)["properties"].update(new={}), ["Node: property new was added without a default"]),
        (lambda s: node(s)["properties"].pop("op"), ["Node: property op was removed"]),
        (lambda s: node(s)["properties"]["op"].update(type="integer"), ["Node: property op changed"]),
        (lambda s: node(s)["properties"]["op"].update(default="?"), ["Node: property op changed"]),
        (lambda s: node(s).update(required=["id", "op"]), ["Node: the required properties changed"]),
        (lambda s: s.update(required=[]), ["the document: the required properties changed"]),
        (lambda s: s["$defs"].pop("Cut"), ["Cut was removed"]),
        (lambda s: s["$defs"]["Ref"].update(maxItems=3), ["Ref: its type changed"]),
    ],
)
def test_a_minor_version_may_make_only_these_changes(edit: Any, found: list[str]) -> None:
    old = json.loads(schema_text(json_schema()))
    new = copy.deepcopy(old)
    edit(new)
    assert breaking_changes(old, new) == found


def test_the_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(json_schema())))


def test_the_newest_version_is_the_last_one() -> None:
    assert max(RELEASED) == NEWEST == RELEASED[-1]
