"""A field that is added in `gradir.ir.model`, and nowhere else, is kept, checked, compared and shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gradir

ROOT = Path(__file__).parents[1]
SUPPORT = ROOT / "tests" / "support"

FIELDS = """    stream: str = ""
    lane: Count = 0
    pinned: bool = False
    tags: tuple[str, ...] = ()
    fused: Source | None = None
    spots: tuple[int, ...] = ()
"""
"""A text, a number, a flag, a list, a record, and a list of numbers."""

REFERENCES = """    alias: Annotated[Ref | None, About("structure", refers=True)] = None
    twin: Annotated[str | None, About("structure", refers=True)] = None
    others: Annotated[tuple[Ref, ...], About("structure", refers=True)] = ()
"""

FIELDS_OF_SCOPES = "".join(
    f"    {name}: Annotated[{kind}, About(since=(1, 1))] = {default}\n"
    for name, kind, default in (line.strip().replace(": ", " = ").split(" = ") for line in FIELDS.splitlines())
)
"""The same, as they are declared after a release."""

MARK = """class Mark(Record, frozen=True):
    node: Annotated[str, About(refers=True)] = ""
    size: int = 0


"""
HEAD = """    stream: Annotated[str, About(since=(1, 1))] = ""
    stamp: Annotated[str, About("free", since=(1, 1), merged="either")] = ""
    lane: Annotated[int, About("free", since=(1, 1), merged="neither")] = 0
    pinned: Annotated[bool, About(since=(1, 1))] = False
    marks: Annotated[tuple[Mark, ...], About(since=(1, 1))] = ()
    settings: Annotated[Mapping[str, AttrValue], About(since=(1, 1))] = NOTHING
    failure: Annotated[Mark | None, About(since=(1, 1))] = None
"""
"""Fields of the head: four values of which a diff compares two, a list of records, a mapping and a record."""

RELEASED = "RELEASED: Final = (Version(1, 0),)"
"""What a second version is added to."""

VALUES = """
import json, sys
import gradir
from gradir.ir import Cut, Graph, Node, Ref, Saved, Scope, Source, TensorMeta
from msgspec.structs import replace
from gradir import registry

VALUES = {"stream": "side", "lane": 7, "pinned": True, "tags": ("hot", "a b"), "spots": (1, 7)}
VALUES["fused"] = Source("m.py", 3)
FINITE = {"fused": gradir.ir.NonFinite("nan")}, {"fused": gradir.ir.NonFinite("inf")}
OTHERS = {"stream": "main", "lane": 8, "pinned": False, "tags": ("hot",), "fused": Source("m.py", 4), "spots": (7,)}
SHOWN = {"stream": "side", "lane": "7", "pinned": "true", "tags": "a b", "fused": "m.py", "spots": "7"}
WRONG = {"stream": 3, "lane": "3", "pinned": 1, "tags": ["hot"], "fused": "m.py", "spots": [7]}
BARE = Node("exp:1", op="exp", inputs=(Ref("x", 0),), outputs=(TensorMeta("float32", (2,)),))
ALONE = replace(BARE, inputs=())


def graph(*, of="node", **values):
    if of == "scope":
        return Graph.of([ALONE], [Scope("a"), Scope("b", **values), Scope("c")])
    if of == "cut":
        return Graph.of([ALONE], cuts=[Cut("unreached", ("w",)), Cut("unreached", ("v",), **values)])
    if of == "tensor":
        return Graph.of([replace(ALONE, outputs=(TensorMeta("int8"), TensorMeta("float32", (2,), **values)))])
    if of == "source":
        return Graph.of([replace(ALONE, source=Source("b.py", 1, **values))])
    if of == "slot":
        return Graph.of([replace(ALONE, saved=(Saved("self"), Saved("result", "float32", **values)))])
    return Graph.of([Node("x", role="leaf"), replace(BARE, **values), replace(BARE, id="exp:2")])
"""

CHECKS = {
    "both forms keep references": """
for name, value in {"alias": Ref("x", 0), "twin": "x", "others": (Ref("x", 0), Ref("x", 0))}.items():
    whole = graph(**{name: value})
    for form in ("json", "msgpack"):
        assert gradir.loads(gradir.dumps(whole, format=form)) == whole != graph(), (name, form)
    assert gradir.diff(graph(), whole).changes[0].id == "exp:1", name
    for exporter in registry.exporter_names():
        assert whole.to(exporter)
""",
    "both forms keep it in every record": """
for of in ("scope", "cut", "slot", "tensor", "source"):
    for name, value in {**VALUES, **(FINITE[0] if of == "source" else {})}.items():
        for form in ("json", "msgpack"):
            whole = graph(of=of, **{name: value})
            assert gradir.loads(gradir.dumps(whole, format=form)) == whole != graph(of=of), (of, name, form)
""",
    "a diff, plain and the formats for programs tell it of every record": """
for of in ("scope", "cut", "slot", "tensor", "source"):
    values, others = ({**VALUES, **FINITE[0]}, {**OTHERS, **FINITE[1]}) if of == "source" else (VALUES, OTHERS)
    for name, value in values.items():
        a, b = graph(of=of, **{name: value}), graph(of=of, **{name: others[name]})
        (change,) = gradir.diff(a, b).changes
        assert name in change.fields[0].name or of == "source", change
        for exporter in ("plain", "nodelink", "cytoscape", "graphml", "model-explorer"):
            texts = {a.to(exporter), b.to(exporter), graph(of=of).to(exporter)}
            assert len(texts) == (2 if others[name] is False else 3), (of, name, exporter)
""",
    "the version that it came with is asked for": """
from gradir.codecs import versions
for name, value in VALUES.items():
    assert str(versions.lowest_for(graph(of="scope", **{name: value}))) == "1.1"
assert str(versions.lowest_for(graph(of="scope"))) == "1.0"
from gradir.codecs.strict import check_canonical
for form in ("json", "msgpack"):
    stated = gradir.dumps(graph(of="scope", **VALUES), format=form)
    assert b"1.1" in stated and check_canonical(stated) == graph(of="scope", **VALUES)
    for whole, other, needed in ((VALUES, b"1.0", "1.1"), ({}, b"1.1", "1.0")):
        data = gradir.dumps(graph(of="scope", **whole), format=form).replace(needed.encode(), other, 1)
        assert gradir.loads(data) == graph(of="scope", **whole)
        try:
            check_canonical(data)
        except gradir.FormatError as error:
            assert f"not in canonical form, in which its version is {needed}" in str(error), error
        else:
            raise AssertionError(form)
""",
    "both forms keep it": """
for name, value in VALUES.items():
    for form in ("json", "msgpack"):
        kept = gradir.loads(gradir.dumps(graph(**{name: value}), format=form))
        assert kept == graph(**{name: value}), (name, form, kept)
        assert getattr(kept.nodes["exp:1"], name) == value
        assert getattr(kept.nodes["exp:2"], name) == getattr(BARE, name)
""",
    "a wrong type is refused": """
for name, value in WRONG.items():
    for form in ("json", "msgpack"):
        try:
            gradir.dumps(graph(**{name: value}), format=form)
        except gradir.FormatError as error:
            assert f"node 'exp:1': {name} is " in str(error), error
        else:
            raise AssertionError(name)
""",
    "a diff shows it, and can leave it out": """
for name, value in VALUES.items():
    found = gradir.diff(graph(**{name: value}), graph(**{name: OTHERS[name]}))
    (change,) = found.changes
    assert change.id == "exp:1" and change.fields[0].name.partition(".")[0] == name, change
    assert not gradir.diff(graph(**{name: value}), graph(**{name: OTHERS[name]}), ignore=[name])
    assert gradir.patch(graph(**{name: value}), found) == graph(**{name: OTHERS[name]})
""",
    "plain differs": """
for name, value in VALUES.items():
    text, bare = graph(**{name: value}).to("plain"), graph().to("plain")
    assert text != bare and name in text and SHOWN[name] in text, text
    assert graph(**{name: OTHERS[name]}).to("plain") != text
""",
    "every format for programs has it": """
for name, value in VALUES.items():
    for exporter in ("nodelink", "cytoscape", "graphml", "model-explorer"):
        text = graph(**{name: value}).to(exporter)
        assert text != graph().to(exporter) and name in text and SHOWN[name] in text, (exporter, text)
""",
    "every exporter takes it": """
for exporter in registry.exporter_names():
    assert graph(**VALUES).to(exporter)
""",
    "a strict reader knows it": """
from gradir.codecs.strict import check_canonical, check_keys
from gradir.codecs.unknown import check_known
for form in ("json", "msgpack"):
    data = gradir.dumps(graph(**VALUES), format=form)
    check_canonical(data), check_keys(data), check_known(data)
""",
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with the fields in one file."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("gradir", "exporters", "schemas"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    model = tree / "gradir" / "ir" / "model.py"
    text = model.read_text(encoding="utf-8")
    for record, behind, fields in (
        ("Node", "\n\n    def __post_init__", FIELDS + REFERENCES),
        ("Scope", "\n\n\nclass Cut", FIELDS_OF_SCOPES),
        ("Cut", "\n\n    def __post_init__", FIELDS),
        ("Saved", "\n\n    def __post_init__", FIELDS),
        ("TensorMeta", "\n\n    def __post_init__", FIELDS),
        ("Source", "\n\n\nclass Saved", FIELDS.replace("Source | None", "NonFinite | None")),
    ):
        end = text.index(behind, text.index(f"class {record}(Record"))
        text = f"{text[:end]}\n{fields.rstrip()}{text[end:]}"
    model.write_text(text, encoding="utf-8")
    head = tree / "gradir" / "ir" / "head.py"
    text = head.read_text(encoding="utf-8").replace("import Callable\n", "import Callable, Mapping\n")
    text = text.replace("import About, Cut", "import About, AttrValue, Cut")
    text = text.replace("\nfrom gradir.ir.model", "\nfrom gradir.ir.frozen import NOTHING\nfrom gradir.ir.model")
    text = text.replace("class Head", f"{MARK}class Head").replace(
        "\n\n\ndef renamed_head", f"\n{HEAD}\n\ndef renamed_head"
    )
    head.write_text(text, encoding="utf-8")
    versions = tree / "gradir" / "codecs" / "versions.py"
    text = versions.read_text(encoding="utf-8")
    assert text.count(RELEASED) == 1
    versions.write_text(text.replace(RELEASED, RELEASED.replace(",)", ", Version(1, 1))")), encoding="utf-8")
    # Published before the fields came.
    shutil.copy(tree / "schemas/gir-1.0.schema.json", tree / "schemas/gir-1.1.schema.json")
    return tree


EDGES = """
from gradir.passes.fold import fold
from gradir.passes.drop import drop
from gradir.passes.rollup import rollup
from gradir.passes.focus import ancestors

def chain(*, scope="layers"):
    nodes = [Node("x", role="leaf", names=("x",), outputs=(TensorMeta("float32", (2,)),))]
    for number in range(3):
        nodes.append(
            Node(f"{scope}.{number}/exp:1", op="exp", scope=f"{scope}.{number}", inputs=(Ref(nodes[-1].id, 0),),
                others=(Ref("x", 0),), twin=nodes[-1].id)
        )
    return Graph.of([*nodes, Node("output", role="output", inputs=(Ref(nodes[-1].id, 0),))])

whole = chain()
kinds = [edge.kind for edge in whole.edges]
assert kinds == [*["data", "shadowed", "twinned"] * 3, "data"], kinds
assert len(whole.edges) == 10 and all(edge in whole.edges for edge in whole.edges)
for form in ("json", "msgpack"):
    assert gradir.codecs.survey(gradir.dumps(whole)).totals.edges == 10
for exporter in registry.exporter_names():
    assert whole.to(exporter), exporter
for exporter in ("tree", "nodelink", "cytoscape", "graphml", "model-explorer"):
    text = whole.to(exporter)
    assert "shadowed" in text and "twinned" in text, exporter
assert whole.to("dot").count("->") == 10
assert "shadowed" in whole.to("dot", legend=True)
folded, rolled = fold(whole, 2), rollup(whole)
assert [edge.kind for edge in folded.edges if edge.dst == "layers.1"] == ["data"] * 2, [*folded.edges]
assert {edge.kind for edge in rolled.edges} == {"data", "shadowed", "twinned"}
for made in (folded, rolled, drop(whole, ["leaf"]), ancestors(whole, "output"), fold(drop(whole, ["output"]), 1)):
    gradir.dumps(made)
for wrong in (replace(BARE, others=(Ref("y", 0),)), replace(BARE, twin="y")):
    try:
        gradir.dumps(Graph.of([Node("x"), wrong]))
    except gradir.FormatError as error:
        assert "names 'y', which is not a node" in str(error)
    else:
        raise AssertionError(wrong)
"""

DIFFERENT_EDGES = """
from gradir.diffs.matching import edit_cost, match
from gradir.review.relative_changes import names_a_record

names = {name: name for name in whole.nodes}
first = Ref("layers.0/exp:1", 0)
for field, value, path in (
    ("twin", "x", "twin"), ("others", (Ref("x", 0), first), "others[1]"), ("others", (), "others[0]")
):
    nodes = [replace(node, **{field: value}) if node.id == "layers.1/exp:1" else node for node in whole.nodes.values()]
    diff = gradir.diff(whole, Graph.of(nodes))
    (change,) = diff.changes
    assert change.id == "layers.1/exp:1" and [each.name for each in change.fields] == [path], change
    assert path in diff.to("text") and names_a_record(change.fields[0].path), diff.to("text")
    assert edit_cost(whole, Graph.of(nodes), names) == 1, field


def alike(field, *tensors):
    values = [name if field == "twin" else (Ref(name, 0),) for name in tensors]
    function = Node("", op="exp", inputs=(Ref("x", 0),))
    functions = [replace(function, id=f"exp:{at}", **{field: value}) for at, value in enumerate(values, 1)]
    return Graph.of([*(Node(name, role="leaf", names=(name,)) for name in "xyz"), *functions])


for field in ("twin", "others"):
    found = match(alike(field, "x", "y"), alike(field, "z", "x", "y")).nodes
    assert found["exp:1"] == "exp:2" and found["exp:2"] == "exp:3", (field, found)
"""


def test_a_new_kind_of_edge_is_one_line(copy: Path, tmp_path: Path) -> None:
    tree = shutil.copytree(copy, tmp_path / "tree")
    edges = tree / "gradir" / "ir" / "edges.py"
    text = edges.read_text(encoding="utf-8")
    line = '    "base": "view",\n'
    assert line in text
    edges.write_text(text.replace(line, line + '    "others": "shadowed",\n    "twin": "twinned",\n'), encoding="utf-8")
    done = run(tree, "-c", f"{VALUES}\nimport gradir.codecs\n{EDGES}{DIFFERENT_EDGES}")
    assert done.returncode == 0, done.stderr


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(tree), *(str(tree / name) for name in ("exporters", "schemas")), str(SUPPORT)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_new_field(copy: Path, check: str) -> None:
    done = run(copy, "-c", f"{VALUES}\nassert gradir.__file__.startswith({str(copy)!r})\n{check}")
    assert done.returncode == 0, done.stderr


def test_the_check_of_schemas_asks_for_a_version(copy: Path) -> None:
    done = run(copy, "schemas/gir_schemas.py", "--check")
    assert done.returncode == 1
    assert "schemas/gir-1.1.schema.json is not what the model says: run 'make schema'" in done.stderr
    assert "which needs version" not in done.stderr
    for name in ("stream", "lane", "pinned", "tags", "fused", "spots", "alias", "twin", "others"):
        assert f"Node: {name} is new after 1.1: declare since which version it is there" in done.stderr
    for name in ("Head: stream", "Head: marks", "Mark: node"):
        assert f"{name} is new after 1.1: declare since which version it is there" in done.stderr


HEADS = """
import json, sys, warnings
import gradir
from gradir import codecs
from gradir.cli import main
from gradir.codecs import versions
from gradir.codecs.strict import check_canonical, check_keys
from gradir.codecs.unknown import check_known
from gradir.diffs.merging.three_way import merged
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
assert str(versions.lowest_for(WHOLE)) == "1.1" and str(versions.lowest_for(BARE)) == "1.0"
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
import diff_schema, jsonschema

for name in VALUES:
    for a, b in ((WHOLE, replace(WHOLE, **{name: OTHERS[name]})), (BARE, replace(BARE, **{name: VALUES[name]}))):
        found = gradir.diff(a, b)
        assert [change.id for change in found.changes] == ([name] if name in COMPARED else []), (name, found)
        for diff in (found, diff_json.decode(diff_json.encode(found))):
            assert diff == found
            assert gradir.patch(a, diff) == b != a and gradir.unpatch(b, diff) == a
        jsonschema.validate(json.loads(diff_json.encode(found)), diff_schema.diff_schema())
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
        found = merged(WHOLE, *sides)
        if name == "lane":
            (conflict,) = found.conflicts
            assert conflict.reason == "a side changed its lane: capture the merged program again"
        else:
            assert found.graph == edited({"v": 1}, **{name: OTHERS[name]}), (name, found)
third = {"stream": "third", "stamp": "third", "marks": (Mark("exp:1", 6),), "failure": Mark("x", 9)}
for name, value in third.items():
    found = merged(WHOLE, edited({}, **{name: OTHERS[name]}), edited({"v": 1}, **{name: value}))
    if name == "stamp":
        assert found.graph.stamp in (OTHERS[name], value)
    elif name == "failure":
        assert found.graph.failure == Mark("x", 9)
    else:
        assert [each.reason.partition(":")[0] for each in found.conflicts] == [name], (name, found)
both = merged(WHOLE, edited({}, settings={"a": 5, "b": 2}), edited({}, settings={"a": 1, "b": 6}))
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
from kept_fields import lost_fields, operations, named_nodes, whole
from gradir.ir.head import Head

graph = whole()
assert graph.marks == (Mark("layers.1/exp:1", 3),) and graph.stream
for name, operation in operations(graph).items():
    assert not lost_fields(graph, operation), name
    head = operation.run(graph)
    named = {node for field in Head.__struct_fields__ for node in named_nodes(getattr(head, field))}
    assert named <= {"", *head.nodes}, name
""",
}


@pytest.mark.parametrize("check", CHECKS_OF_HEADS.values(), ids=CHECKS_OF_HEADS)
def test_a_new_field_of_the_head(copy: Path, check: str) -> None:
    done = run(copy, "-c", f"{HEADS}\nassert gradir.__file__.startswith({str(copy)!r})\n{check}")
    assert done.returncode == 0, done.stderr


def test_an_older_reader_tells_of_a_new_field_of_the_head(copy: Path, tmp_path: Path) -> None:
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


NEW_WORDS = """
import gradir
from gradir.ir import Cut, Edge, Graph, Node, Ref, TensorMeta
from gradir.ir.graph import Edges
from gradir import registry

plain = Edges.__iter__
def with_shadowed(self):
    for edge in plain(self):
        yield edge._replace(kind="shadowed") if edge.src == "y" else edge
Edges.__iter__ = with_shadowed
graph = Graph.of(
    [Node("x", role="input"), Node("y", role="wormhole", inputs=(Ref("x", 0),)), Node("z", inputs=(Ref("y", 0),))],
    cuts=[Cut("evaporated", ("w",), "fc", TensorMeta("float32", (3,)))],
)
assert [edge.kind for edge in graph.edges] == ["data", "shadowed"]
for name in registry.exporter_names():
    assert graph.to(name), name
other = Graph.of(list(graph.nodes.values())[:1], cuts=[Cut("sublimed", ("w",))])
for a, b in ((graph, other), (other, graph)):
    assert gradir.diff(a, b).to("text") and gradir.diff(a, b).to("text", full=True)
"""


def test_a_new_role_edge_and_cut_pass_through_every_exporter(copy: Path) -> None:
    done = run(ROOT, "-c", NEW_WORDS)
    assert done.returncode == 0, done.stderr
