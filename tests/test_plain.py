"""The exporter ``plain``: its grammar, what reads back, and what git shows of it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gradir_exporters.plain import PlainExporter, PlainOptions
from hypothesis import given
from hypothesis import strategies as st
from kept_fields import sample
from plain_text import DOCS, follows_the_grammar, read_example
from samples import HOSTILE_LABELS, chain, everything, forward, hostile
from strategies import attrs, graphs, lists, scalars, texts, words
from tools import require

import gradir
from gradir.ir import (
    AttrValue,
    Builder,
    Cut,
    Graph,
    Node,
    NonFinite,
    Producer,
    Ref,
    Saved,
    Scope,
    Source,
    TensorMeta,
)


def plain(graph: Graph) -> str:
    return PlainExporter().export(graph, PlainOptions())


def replaced(graph: Graph, node_id: str, **fields: object) -> Graph:
    nodes = dict(graph.nodes)
    nodes[node_id] = msgspec.structs.replace(nodes[node_id], **fields)
    return msgspec.structs.replace(graph, nodes=nodes)


def test_everything_has_a_golden(golden: Callable[[str, str], None]) -> None:
    golden("plain/everything.txt", plain(everything()))


def test_it_is_registered_with_one_option() -> None:
    assert gradir.export(everything(), "plain") == plain(everything())
    with pytest.raises(gradir.ExportError, match="its options are brief"):
        gradir.export(everything(), "plain", deep=1)


def test_the_example_of_the_docs_is_what_gradir_writes() -> None:
    b = Builder()
    x = b.tensor("x", TensorMeta("float32", (2, 3)))
    weight = b.tensor("fc.weight", TensorMeta("float32", (4, 3)), role="parameter", scope="fc")
    t = b.function("t", [weight], [TensorMeta("float32", (3, 4))], native="TBackward0", scope="fc")
    saved = Saved("mat1", "float32", (2, 3), 24, storage="x")
    addmm = b.function(
        "addmm",
        [None, x, t],
        [TensorMeta("float32", (2, 4))],
        native="AddmmBackward0",
        scope="fc",
        attrs={"alpha": 1},
        saved=[(saved, x)],
        source=Source("model.py", 12, "forward"),
    )
    b.output(addmm, "0")
    graph = b.build(scopes=[Scope("fc", "Linear", "in_features=3, out_features=4", 1, 16, 16, 16, training=True)])
    assert read_example() == plain(graph)
    brief = PlainExporter().export(graph, PlainOptions(brief=True))
    assert "".join(f"    {line}\n" for line in brief.splitlines()) in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "graph", [everything(), forward(), hostile(), Graph.of([])], ids=["everything", "forward", "hostile", "empty"]
)
def test_the_samples_follow_the_grammar(graph: Graph) -> None:
    assert follows_the_grammar(plain(graph))


OUTPUT = st.builds(
    TensorMeta,
    st.one_of(st.none(), texts),
    st.one_of(st.none(), st.lists(st.one_of(st.integers(0, 9), words), max_size=2).map(tuple)),
    st.one_of(st.none(), words),
    words,
    st.lists(texts, max_size=2).map(tuple),
)
NODES = {
    "attrs": st.dictionaries(texts, st.lists(st.one_of(scalars, lists), max_size=3).map(tuple), max_size=2),
    "ext": attrs,
    "kinds": st.lists(st.one_of(st.sampled_from(["data", "view", "inplace"]), texts), max_size=3).map(tuple),
}
SCOPES = dict.fromkeys(("own", "total", "trainable", "rounds"), st.integers(0, 9))
CUTS = {
    **dict.fromkeys(("op", "meant", "at", "into"), texts),
    **dict.fromkeys(("source", "via"), st.one_of(st.none(), st.builds(Source, texts, st.integers(0, 9), texts))),
    "slot": st.one_of(st.none(), st.integers(0, 9)),
}


@st.composite
def with_every_field(draw: st.DrawFn) -> Graph:
    """A graph with what the others lack."""
    graph = draw(graphs(max_functions=5))

    def drawn(record: Any, fields: Mapping[str, st.SearchStrategy[Any]]) -> Any:
        chosen = draw(st.sets(st.sampled_from(sorted(fields)), max_size=3))
        return msgspec.structs.replace(record, **{name: draw(fields[name]) for name in sorted(chosen)})

    return Graph.of(
        # As many outputs as there were, which others name.
        [drawn(node, {**NODES, "outputs": st.tuples(*[OUTPUT] * len(node.outputs))}) for node in graph.nodes.values()],
        [drawn(scope, SCOPES) for scope in graph.scopes.values()],
        [drawn(cut, CUTS) for cut in graph.cuts],
    )


def test_the_grammar_covers_what_is_rare() -> None:
    deep = Node("x", attrs={"a": (((1, 2), (3,)), 4)}, kinds=("inplace", "data"))
    spread = Node("y", outputs=(TensorMeta("f", (1,), None, placements=("dp:Shard(0)", "tp:Replicate")),))
    text = plain(Graph.of([deep, spread], [Scope("scan", rounds=5, training=True)]))
    assert text == (
        "gradir plain 1\nscope scan\n    rounds 5\n    mode train\n"
        'function x\n    attr a = [[[1, 2], [3]], 4]\n    kinds ["inplace","data"]\n'
        'function y\n    out f[1] device ? placements ["dp:Shard(0)","tp:Replicate"]\n'
    )
    assert follows_the_grammar(text)


@given(st.one_of(graphs(), with_every_field()))
def test_every_graph_follows_the_grammar(graph: Graph) -> None:
    text = plain(graph)
    assert follows_the_grammar(text)
    assert text.replace("\n", "").isprintable()


def variants(value: Any) -> Iterator[Any]:
    """The values that differ from one in a single leaf, in a default, or in the number of entries of a list."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, (str, int, float)):
        yield value + type(value)("1")
    elif isinstance(value, Mapping):
        yield from ({key: each} for key, entry in value.items() for each in (*variants(entry), None))
        yield from ({each: entry} for key, entry in value.items() for each in variants(key))
    elif isinstance(value, tuple):
        yield (*value, *value)
        yield from ((*value[:at], each, *value[at + 1 :]) for at, entry in enumerate(value) for each in variants(entry))
    else:
        for field in msgspec.structs.fields(value):
            found = getattr(value, field.name)
            others = [*variants(found)]
            others += [] if field.default in (msgspec.NODEFAULT, found, *others) else [field.default]
            yield from (msgspec.structs.replace(value, **{field.name: each}) for each in others)


def test_graphs_of_equal_text_are_equal() -> None:
    node, scope, cut = (sample(msgspec.inspect.type_info(kind)) for kind in (Node, Scope, Cut))
    graphs = [
        *(Graph.of([each], [scope], [cut]) for each in (node, *variants(node))),
        *(Graph.of([node], [each], [cut]) for each in variants(scope)),
        *(Graph.of([node], [scope], [each]) for each in variants(cut)),
        *(Graph.of([each for each in (node,) if has], [scope], cuts) for has, cuts in ((False, [cut]), (True, []))),
    ]
    assert len({plain(graph) for graph in graphs}) == len(graphs)


@given(graphs(), st.text(max_size=4), st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3))
def test_plain_leaves_out_the_producer(graph: Graph, version: str, options: dict[str, AttrValue]) -> None:
    other = msgspec.structs.replace(graph, producer=Producer(version, version, version, options))
    assert plain(other) == plain(graph)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gradir plain 1",
        "gradir plain 2\n",
        "gradir plain 1\n    native early\n",
        "gradir plain 1\nleaf x\n    opaque\n    native late\n",
        "gradir plain 1\nleaf x y\n",
        "gradir plain 1\nleaf x = f(a,b)\n",
        "gradir plain 1\nleaf x\nscope late\n",
        "gradir plain 1\nleaf x\n    attr a = [[[[1]]]]\n",
        'gradir plain 1\nleaf "\\x"\n',
        'gradir plain 1\nleaf "a\nb"\n',
    ],
)
def test_the_grammar_refuses_other_text(text: str) -> None:
    assert not follows_the_grammar(text)


@pytest.mark.parametrize("role", ["scope", "cut", "scope.x", "", "a b"])
def test_a_role_is_never_taken_for_another_block(role: str) -> None:
    text = plain(Graph.of([Node("x", role=role)]))
    assert follows_the_grammar(text)
    assert not re.search(r"^(scope|cut) ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"attrs": {"a": 1}}, {"attrs": {"a": True}}),
        ({"attrs": {"a": 1}}, {"attrs": {"a": 1.0}}),
        ({"attrs": {"a": 1}}, {"attrs": {"a": "1"}}),
        ({"attrs": {"a": 0.0}}, {"attrs": {"a": -0.0}}),
        ({"attrs": {"a": None}}, {"attrs": {"a": "null"}}),
        ({"attrs": {"a": NonFinite("inf")}}, {"attrs": {"a": "inf"}}),
        ({"attrs": {"a": ()}}, {"attrs": {"a": ((),)}}),
        ({"attrs": {"a": 1}}, {"ext": {"a": 1}}),
        ({"outputs": (TensorMeta("f", (1,)),)}, {"outputs": (TensorMeta("f", ("1",)),)}),
        ({"outputs": (TensorMeta("f", ()),)}, {"outputs": (TensorMeta("f", None),)}),
        ({"outputs": (TensorMeta(None, ()),)}, {"outputs": (TensorMeta("?", ()),)}),
        ({"inputs": (None,)}, {"inputs": (Ref("-", 0),)}),
        ({"inputs": (Ref("a", 2),)}, {"inputs": (Ref("a[2]", 0),)}),
        ({"inputs": (Ref("a, b", 0),)}, {"inputs": (Ref("a", 0), Ref("b", 0))}),
        ({"op": ""}, {"op": "function"}),
        ({"names": ("a b",)}, {"names": ("a", "b")}),
        ({"names": ("x\\n",)}, {"names": ("x\n",)}),
        ({"source": Source("a", 1, "2")}, {"source": Source("a line 1 in 2", 1)}),
        ({"saved": (Saved("s", storage="k state freed"),)}, {"saved": (Saved("s", storage="k", state="freed"),)}),
    ],
)
def test_similar_nodes_have_different_text(one: dict[str, object], other: dict[str, object]) -> None:
    texts = [plain(Graph.of([Node("x", **fields)])) for fields in (one, other)]  # type: ignore[arg-type]
    assert texts[0] != texts[1]


def test_hostile_text_stays_on_its_line() -> None:
    graph = hostile()
    text = plain(graph)
    lines = text.splitlines()
    assert lines == text.split("\n")[:-1]
    assert all(line.isprintable() for line in lines)
    heads = [line for line in lines[1:] if not line.startswith("    ")]
    assert len(heads) == len(graph.nodes) + len(graph.scopes)
    assert len(graph.scopes) == len(HOSTILE_LABELS)


def test_a_lone_surrogate_does_not_break_the_text() -> None:
    text = plain(Graph.of([Node("x", names=("a\ud800b",))]))
    assert text.encode() == b'gradir plain 1\nfunction x\n    name "a\\ud800b"\n'


def test_a_long_chain_takes_three_lines_a_node() -> None:
    assert plain(chain(20_000)).count("\n") == 1 + 3 * 20_002 - 1


def git_diff(folder: Path, before: Graph, after: Graph) -> list[str]:
    """The lines of git's own diff of two plain texts, without its file header."""
    git = require("git")
    paths = [folder / "before.txt", folder / "after.txt"]
    for path, graph in zip(paths, (before, after), strict=True):
        path.write_bytes(plain(graph).encode())
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        [git, "diff", "--no-index", "--no-color", "--no-ext-diff", *[path.name for path in paths]],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.decode().splitlines()[4:]


def changed(lines: list[str]) -> list[str]:
    return [line for line in lines if line[0] in "+-"]


def places(lines: list[str]) -> list[str]:
    return [line.split("@@ ")[-1] for line in lines if line.startswith("@@")]


def test_git_shows_the_changed_fact_and_names_its_node(tmp_path: Path) -> None:
    before = everything()
    after = replaced(before, "fc/addmm:1", attrs={"alpha": 2, "beta": 1, "mat1_sym_sizes": (2, 3)})
    lines = git_diff(tmp_path, before, after)
    assert changed(lines) == ["-    attr alpha = 1", "+    attr alpha = 2"]
    assert places(lines) == ["function fc/addmm:1 = addmm(-, x, fc/t:1)"]


def test_git_shows_an_added_node_as_one_block(tmp_path: Path) -> None:
    before = everything()
    meta = (TensorMeta("float32", (2, 4)),)
    relu = Node(
        "fc/relu:1", op="relu", native="ReluBackward0", scope="fc", inputs=(Ref("fc/addmm:1", 0),), outputs=meta
    )
    nodes: dict[str, Node] = {}
    for node in before.nodes.values():
        nodes[node.id] = node
        if node.id == "fc/addmm:1":
            nodes[relu.id] = relu
    after = msgspec.structs.replace(before, nodes=nodes)
    norm = after.nodes["norm/native_batch_norm:1"]
    after = replaced(after, norm.id, inputs=(Ref(relu.id, 0), None, None))
    lines = git_diff(tmp_path, before, after)
    assert changed(lines) == [
        "+function fc/relu:1 = relu(fc/addmm:1)",
        "+    native ReluBackward0",
        "+    scope fc",
        "+    out float32[2, 4]",
        "-function norm/native_batch_norm:1 = native_batch_norm(fc/addmm:1, -, -)",
        "+function norm/native_batch_norm:1 = native_batch_norm(fc/relu:1, -, -)",
    ]
    assert places(lines)[0] == "function fc/addmm:1 = addmm(-, x, fc/t:1)"


def test_git_sees_no_difference_when_only_the_producer_changed(tmp_path: Path) -> None:
    before = everything()
    after = msgspec.structs.replace(before, producer=Producer("9.9.9", "torch", "9.9.9"))
    assert before != after
    assert git_diff(tmp_path, before, after) == []


@given(graphs())
def test_in_brief_there_is_one_line_for_each_record(graph: Graph) -> None:
    text = PlainExporter().export(graph, PlainOptions(brief=True))
    assert text.count("\n") == 1 + len(graph.scopes) + len(graph.cuts) + len(graph.nodes)
    assert all(line.isprintable() for line in text.splitlines())


def test_in_brief_consequences_are_left_out() -> None:
    def brief(graph: Graph) -> str:
        return PlainExporter().export(graph, PlainOptions(brief=True))

    graph = everything()
    moved = replaced(graph, "mul:1", source=Source("model.py", 99), names=("square",), native="Mul")
    assert brief(moved) == brief(graph)
    for fields in ({"op": "div"}, {"attrs": {"k": 1}}, {"inputs": (None, None)}, {"opaque": True}):
        assert brief(replaced(graph, "mul:1", **fields)) != brief(graph), fields
    scope = msgspec.structs.replace(graph.scopes["fc"], trainable=0)
    frozen = msgspec.structs.replace(graph, scopes={**graph.scopes, "fc": scope})
    assert 'scope fc Linear detail "in_features=3, out_features=4, bias=False" own 12 frozen\n' in brief(frozen)
