"""A field that is added in `gradir.ir.model`, and nowhere else, is kept, checked, compared and shown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from new_fields import ROOT, copy, run

__all__ = ["copy"]

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
from gradir.codecs import document
for name, value in VALUES.items():
    assert str(document.lowest_for(graph(of="scope", **{name: value}))) == "1.1"
assert str(document.lowest_for(graph(of="scope"))) == "1.0"
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
from gradir.codecs.codec import check_known
for form in ("json", "msgpack"):
    data = gradir.dumps(graph(**VALUES), format=form)
    check_canonical(data), check_keys(data), check_known(data)
""",
}


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
