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
from gir_schemas import COMPACT, PUBLISHED, compact_schema, json_schema, schema_text, trouble
from hypothesis import given
from samples import everything, hostile
from schema_change import breaking_changes
from strategies import graphs

import gradir
from gradir import codecs
from gradir.codecs import document, versions
from gradir.codecs.compact.columns import unpack
from gradir.codecs.compact.layout import KINDS, TABLES
from gradir.codecs.document import MAGIC
from gradir.codecs.versions import NEWEST, RELEASED, Version
from gradir.errors import FormatError, GradirWarning
from gradir.ir import Graph, Node, Scope

ROOT = Path(__file__).parents[1]
OLD_FILES = Path(__file__).parent / "versions"
EVERY_FILE = sorted(OLD_FILES.glob("*/*.gir"))
COMPACT_VALIDATOR = jsonschema.Draft202012Validator(json.loads((ROOT / COMPACT).read_text()))


def version_of(path: Path) -> Version:
    version = Version.parse(path.parent.name)
    assert version is not None
    return version


def unpacked(data: bytes) -> Any:
    """A compact document as its schema describes it."""
    document = msgpack.unpackb(data[len(MAGIC) :])
    for table in TABLES:
        columns = {name: column for name, column in document[table].items() if name != KINDS}
        document[table] |= {name: list(unpack(column)) for name, column in columns.items()}
    return document


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
    data = path.read_bytes()
    if ".msgpack." in path.name:
        COMPACT_VALIDATOR.validate(unpacked(data))
        return
    # Nothing in a document of a version is newer than the version says.
    for version in RELEASED:
        schema = json.loads((ROOT / f"schemas/gir-{version}.schema.json").read_text())
        jsonschema.validate(json.loads(data), schema)
        if version == version_of(path):
            closed = _closed(schema)
            jsonschema.validate(json.loads(data), closed)


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
    assert stamped == unpacked(gradir.dumps(graph, format="msgpack"))["version"]
    schema = _closed(json.loads((ROOT / f"schemas/gir-{stamped}.schema.json").read_text()))
    jsonschema.validate(json.loads(gradir.dumps(graph)), schema)


@given(graphs())
def test_the_compact_schema_accepts_what_is_written(graph: Graph) -> None:
    COMPACT_VALIDATOR.validate(unpacked(gradir.dumps(graph, format="msgpack")))


@pytest.mark.parametrize(
    "change",
    [
        {"strings": []},
        {"strings": ["x"]},
        {"nodes": {}},
        {"nodes": {"kinds": [{"id": "", "out": 1}], "kind": []}},
        {"nodes": {"kinds": [], "kind": [-1]}},
        {"requires": [1]},
    ],
)
def test_the_compact_schema_refuses_what_cannot_be_read(change: dict[str, object]) -> None:
    document = unpacked(gradir.dumps(everything(), format="msgpack"))
    assert not COMPACT_VALIDATOR.is_valid(document | change)


def future(version: str) -> dict[str, bytes]:
    """A document from the future in each encoding, with something new in every place."""
    new = {"new": 1}
    text = json.loads(gradir.dumps(Graph.of([Node("a")], [Scope("m")]))) | new | {"version": version}
    text["nodes"][0] |= new
    text["scopes"][0] |= new
    packed = msgpack.unpackb(gradir.dumps(Graph.of([Node("a")], [Scope("m")]), format="msgpack")[len(MAGIC) :])
    packed |= new | {"version": version}
    packed["nodes"]["kinds"][0] |= new
    packed["nodes"]["new"] = packed["scopes"]["new"] = b"\x01\x00"
    return {"json": json.dumps(text).encode(), "msgpack": MAGIC + msgpack.packb(packed)}


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
def test_what_is_no_version_is_refused(version: object) -> None:
    with pytest.raises(FormatError, match=r"no GIR version|expected MAJOR\.MINOR"):
        gradir.loads(json.dumps({"format": "gir", "version": version, "nodes": []}).encode())


@pytest.fixture
def version_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version 0.9 in which an id is called title, and in which the column of kinds is called otherwise."""

    def rename(document: dict[str, Any]) -> dict[str, Any]:
        nodes = [{"id" if key == "title" else key: value for key, value in n.items()} for n in document["nodes"]]
        return {**document, "nodes": nodes}

    def rename_column(document: dict[str, Any]) -> dict[str, Any]:
        columns = {"kind" if name == "sort" else name: column for name, column in document["nodes"].items()}
        return {**document, "nodes": columns}

    older = Version(0, 9)
    for module in (versions, document):
        monkeypatch.setattr(module, "RELEASED", (older, *RELEASED))
    monkeypatch.setattr(versions, "STEPS", {"json": {older: rename}, "msgpack": {older: rename_column}})


OLD_TEXT = {"format": "gir", "version": "0.9", "nodes": [{"title": "a"}, {"title": "b", "in": [["a", 0]]}]}


def old_compact() -> bytes:
    packed = msgpack.unpackb(gradir.dumps(everything(), format="msgpack")[len(MAGIC) :])
    packed["nodes"] = {"sort" if name == "kind" else name: column for name, column in packed["nodes"].items()}
    data: bytes = MAGIC + msgpack.packb(packed | {"version": "0.9"})
    return data


@pytest.mark.usefixtures("version_before")
def test_documents_of_an_older_version_are_upgraded_and_written_as_new_ones() -> None:
    graph = gradir.loads(json.dumps(OLD_TEXT).encode())
    assert list(graph.nodes) == ["a", "b"]
    assert gradir.loads(old_compact()) == everything()
    assert codecs.survey(old_compact()).totals == codecs.survey(gradir.dumps(everything())).totals
    for form in ("json", "msgpack"):
        assert codecs.survey(gradir.dumps(graph, format=form)).version == "1.0"


@pytest.mark.parametrize("data", [json.dumps(OLD_TEXT).encode(), old_compact()])
def test_what_no_version_registers_is_not_upgraded(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"there is no GIR version 0\.9; there are 1\.0"):
        gradir.loads(data)


@pytest.mark.usefixtures("version_before")
def test_what_an_upgrade_cannot_mend_is_one_clear_error() -> None:
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


@pytest.mark.parametrize("path", [PUBLISHED, COMPACT])
def test_an_edit_of_a_published_schema_is_trouble(path: str, published: Path) -> None:
    edited = published / path
    edited.write_text(edited.read_text().replace("One vertex", "A vertex"))
    assert list(trouble(published)) == [
        f"{path} is published and must not change; a change needs a new version",
        f"{path} is not what the model says: run 'make schema' and review the change",
    ]


def test_a_changed_model_is_trouble(published: Path) -> None:
    path = published / PUBLISHED
    path.write_text(path.read_text().replace('"native"', '"own"'))
    assert list(trouble(published))[1:] == [
        f"{PUBLISHED} is not what the model says: run 'make schema' and review the change",
        f"Node: native is new after {NEWEST}: declare since which version it is there",
    ]


@pytest.mark.parametrize(
    ("path", "old", "new", "change"),
    [
        (PUBLISHED, '"native": {', '"own": {', "Node: property own was removed"),
        (COMPACT, '"native": {', '"own": {', "Node: property own was removed"),
        (COMPACT, '"ordinal": {', '"number": {', "NodeTable: property number was removed"),
    ],
)
def test_a_change_that_the_version_does_not_allow_is_trouble(
    path: str, old: str, new: str, change: str, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = published / path.replace(str(NEWEST), "1.0-before")
    older.write_text((published / path).read_text().replace(old, new))
    before = type("Before", (Version,), {"__str__": lambda _: "1.0-before"})(1, 0)
    monkeypatch.setattr("gir_schemas.RELEASED", (before, NEWEST))
    assert list(trouble(published)) == [f"{path}: {change} since 1.0-before, which needs version 2.0"]


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
def test_what_a_minor_version_may_change(edit: Any, found: list[str]) -> None:
    old = json.loads(schema_text(json_schema()))
    new = copy.deepcopy(old)
    edit(new)
    assert breaking_changes(old, new) == found


def test_the_schemas_are_valid_schemas() -> None:
    for schema in (json_schema(), compact_schema()):
        jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(schema)))


def test_the_newest_version_is_the_last_one() -> None:
    assert max(RELEASED) == NEWEST == RELEASED[-1]
