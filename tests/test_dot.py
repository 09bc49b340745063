"""The dot exporter: golden files, what Graphviz itself makes of the output, properties, and hostile text."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphviz
import msgspec
import pydot
import pytest
from dot_pictures import Picture, assert_same_graph, expect_text, export, read_drawn_text, run_dot
from gradir_exporters._dot_labels import display_text
from gradir_exporters.dot import DotExporter, DotOptions, to_graphviz, to_pydot
from graphviz import quoting
from hypothesis import given
from hypothesis import strategies as st
from samples import HOSTILE_LABELS, chain, everything, hostile
from strategies import graphs

from gradir.errors import ExportError
from gradir.ir import Builder, Graph, Node, Ref, Saved, TensorMeta

META = TensorMeta("float32", (2,))
printable = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=20)
anything = st.text(max_size=20)
tricky = st.text(st.sampled_from(list('\\"<>&;nNlGTr#{}|/ \n\r\t\x00\x7f\u2028\ud800é🔥')), max_size=12)
option_sets = st.builds(DotOptions, show_attrs=st.booleans(), show_saved=st.booleans(), clusters=st.booleans())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("everything", {}),
        ("everything-full", {"show_attrs": True, "show_saved": True}),
        ("everything-narrow", {"show_attrs": True, "max_attr_chars": 8}),
        ("everything-flat", {"clusters": False, "direction": "LR"}),
    ],
)
def test_golden(name: str, options: dict[str, Any], golden: Callable[[str, str], None]) -> None:
    golden(f"dot/{name}.dot", export(everything(), **options))


def test_golden_hostile(golden: Callable[[str, str], None]) -> None:
    golden("dot/hostile.dot", export(hostile(), show_attrs=True, show_saved=True))


@pytest.mark.parametrize("form", ["canon", "dot_json", "svg"])
@pytest.mark.parametrize("sample", [everything, hostile])
def test_dot_accepts_it(sample: Callable[[], Graph], form: str, dot_program: str) -> None:
    assert run_dot(dot_program, export(sample(), show_attrs=True, show_saved=True), form)


@pytest.mark.parametrize("sample", [everything, hostile])
@pytest.mark.parametrize("options", [DotOptions(), DotOptions(show_saved=True), DotOptions(clusters=False)])
def test_dot_sees_the_graph(sample: Callable[[], Graph], options: DotOptions, dot_program: str) -> None:
    picture = Picture(run_dot(dot_program, DotExporter().export(sample(), options), "dot_json"))
    assert_same_graph(picture, sample(), options)


@given(graph=graphs(), options=option_sets)
def test_dot_sees_any_graph(graph: Graph, options: DotOptions, dot_program: str) -> None:
    picture = Picture(run_dot(dot_program, DotExporter().export(graph, options), "dot_json"))
    assert_same_graph(picture, graph, options)
    for name, node in zip((f"n{number}" for number in range(len(graph.nodes))), graph.nodes.values(), strict=True):
        paths = [html.unescape(picture.clusters[cluster]["tooltip"]) for cluster in picture.frames(name)]
        parts = node.scope.split(".") if node.scope and options.clusters else []
        assert paths == [".".join(parts[: end + 1]) for end in range(len(parts))]


@given(graph=graphs(max_functions=5), options=option_sets)
def test_pydot_reads_it_back(graph: Graph, options: DotOptions) -> None:
    parsed = pydot.graph_from_dot_data(DotExporter().export(graph, options))
    assert parsed is not None
    built = to_pydot(graph, **msgspec.structs.asdict(options))
    assert statements(parsed[0]) == statements(built)


def statements(dot: pydot.Dot) -> list[tuple[object, ...]]:
    """Every node, edge and cluster of a pydot graph with its attributes, quotes removed."""
    found: list[tuple[object, ...]] = []
    open_graphs: list[tuple[str, Any]] = [("", dot)]
    while open_graphs:
        where, graph = open_graphs.pop()
        kinds = [("node", n.get_name(), n) for n in graph.get_nodes()]
        kinds += [("edge", (e.get_source(), e.get_destination()), e) for e in graph.get_edges()]
        for kind, name, item in kinds:
            attributes = {key: str(value).strip('"') for key, value in item.get_attributes().items()}
            found.append((where, kind, name, sorted(attributes.items())))
        open_graphs += [(f"{where}/{child.get_name()}", child) for child in graph.get_subgraphs()]
    return sorted((statement for statement in found if statement[2] not in {"graph", "node", "edge"}), key=repr)


@pytest.mark.parametrize("sample", [everything, hostile])
def test_pydot_object_draws_the_same(sample: Callable[[], Graph], dot_program: str) -> None:
    options = DotOptions(show_attrs=True, show_saved=True)
    built = to_pydot(sample(), show_attrs=True, show_saved=True)
    picture = Picture(run_dot(dot_program, built.to_string(), "dot_json"))
    expected = Picture(run_dot(dot_program, DotExporter().export(sample(), options), "dot_json"))
    assert_same_graph(picture, sample(), options)
    assert {n: o["label"] for n, o in picture.nodes.items()} == {n: o["label"] for n, o in expected.nodes.items()}
    assert {n: o["label"] for n, o in picture.clusters.items()} == {n: o["label"] for n, o in expected.clusters.items()}


@given(text=st.one_of(printable, tricky))
def test_escaping_agrees_with_graphviz(text: str) -> None:
    safe = graphviz.escape(expect_text(text).replace("&", "&amp;"))
    quoted = quoting.quote(safe)
    assert f'"{display_text(text)}"' == (quoted if quoted.startswith('"') else f'"{quoted}"')


@given(texts=st.lists(st.one_of(tricky, anything), min_size=1, max_size=15))
def test_dot_draws_any_text(texts: list[str], dot_program: str) -> None:
    nodes = [Node(f"x{n}", native=text, names=("name",)) for n, text in enumerate(texts)]
    picture = Picture(run_dot(dot_program, export(Graph.of(nodes)), "json"))
    for number, text in enumerate(texts):
        assert read_drawn_text(picture.nodes[f"n{number}"]) == ["name", *([expect_text(text)] if text else [])]


def test_hostile_labels_are_drawn_literally(dot_program: str) -> None:
    graph = hostile()
    picture = Picture(run_dot(dot_program, export(graph, show_saved=True), "json"))
    labels = {
        node.names[0]: f"n{number}" for number, node in enumerate(graph.nodes.values()) if node.role == "function"
    }
    assert set(labels) == set(HOSTILE_LABELS)
    for label, name in labels.items():
        node = graph.nodes[list(graph.nodes)[int(name[1:])]]
        shown = [
            *([expect_text(label)] if label else []),
            expect_text(f"{node.op}(·, None)"),
            expect_text(f"{label}[{label}, 1]"),
        ]
        assert read_drawn_text(picture.nodes[name]) == shown
        saved = read_drawn_text(picture.nodes[f"{name}s0"])
        assert [line for line in saved if line] == [
            line for line in map(expect_text, (f"{label} ({label})", f"{label}[{label}]")) if line
        ]
    frames = {"".join(read_drawn_text(cluster)) for cluster in picture.clusters.values()}
    assert {
        expect_text(f"{label} ({label})")
        for label in HOSTILE_LABELS
        if label and "." not in label and "\0" not in label
    } <= frames


def test_tooltips_are_shown_literally(dot_program: str) -> None:
    ids = [r"a\Nb\Gc\Td\\", r'e\"f\\"g', "&amp; &lt;", 'x"y<z>', "\\\\N"]
    svg = run_dot(dot_program, export(Graph.of(Node(id_) for id_ in ids)), "svg")
    titles = [html.unescape(title) for title in re.findall(r'xlink:title="([^"]*)"', svg)]
    assert titles == [id_.replace("\\", "%5C") for id_ in ids]


def test_shared_input_keeps_both_edges(dot_program: str) -> None:
    b = Builder()
    x = b.tensor("x", META)
    b.output(b.function("mul", [x, x], [META]))
    picture = Picture(run_dot(dot_program, export(b.build()), "dot_json"))
    assert picture.lines()["n0", "n1", "", ""] == 2


def test_buffers_are_drawn_with_saved_tensors_only() -> None:
    b = Builder()
    x = b.tensor("x", META)
    mean = b.tensor("mean", META, role="buffer")
    b.output(b.function("norm", [x], [META], saved=[(Saved("running_mean"), mean)]))
    graph = b.build()
    key = f"n{list(graph.nodes).index('mean')}"
    assert f"\t{key} [" not in export(graph)
    assert f"\t{key} [" in export(graph, show_saved=True)
    assert f'{key} -> n2s0 [dir="none" style="dashed"]' in export(graph, show_saved=True)


def test_a_buffer_with_an_edge_is_always_drawn() -> None:
    b = Builder()
    b.output(b.function("exp", [b.tensor("mean", META, role="buffer")], [META]))
    assert 'n0 [label="mean\\nfloat32[2]"' in export(b.build())


def test_unknown_roles_are_drawn() -> None:
    text = export(Graph.of([Node("t", role='token"]; x', native="Token")]))
    assert 'n0 [label="Token" tooltip="t" class="token-x" fillcolor="#ecd3e3"]' in text


def test_unknown_shape_and_state_are_reported() -> None:
    b = Builder()
    b.output(b.function("exp", [b.tensor("x", TensorMeta())], [META], saved=[(Saved("self", state="freed"), None)]))
    text = export(b.build(), show_saved=True)
    assert '[label="x\\n?[?]"' in text
    assert '[label="self (freed)\\n?[?]"' in text


def test_attribute_table() -> None:
    node = Node("f", native="F", attrs={"b": "y" * 60, "a": (1, (2.5, None)), "c": (True,)}, saved=(Saved("self"),))
    label = export(Graph.of([node]), show_attrs=True, max_attr_chars=16).split('label="')[1].split('"')[0]
    assert label.split("\\n") == [
        "F",
        "----------------------",
        "a   : (1, (2.5, None))",
        "b   : yyyyyyyyyyyyy...",
        "c   :          (True,)",
        "self:   [saved tensor]",
    ]


def test_a_wide_title_widens_the_table() -> None:
    label = export(Graph.of([Node("f", native="F" * 20, attrs={"a": 1})]), show_attrs=True).split('label="')[1]
    assert label.split('"')[0].split("\\n") == ["F" * 20, "-" * 20, "a:" + " " * 17 + "1"]


def test_texts_too_long_for_dot_are_cut(dot_program: str) -> None:
    attrs = {f"key{n}" + "&" * 3000: "&" * 3000 for n in range(300)}
    node = Node("i" * 20_000, native="\\" * 20_000, names=("&" * 20_000,), scope="s" * 20_000, attrs=attrs)
    picture = Picture(run_dot(dot_program, export(Graph.of([node]), show_attrs=True, max_attr_chars=2000), "json"))
    lines = read_drawn_text(picture.nodes["n0"])
    assert lines[:2] == ["&" * 197 + "...", "\\" * 197 + "..."]
    assert lines[3] == f"{'key0':&<57}...: {'&' * 1997}..."
    assert lines[-1].rstrip() == "... and 200 more"


def test_a_long_chain_is_linear_and_unlimited() -> None:
    graph = chain(100_000)
    text = export(graph, all=True)
    assert text.count(" -> ") == 100_001
    assert text.count("\n") == 4 + 100_002 + 100_001 + 1


def test_the_same_text_whatever_the_order_of_mappings() -> None:
    graph = everything()
    shuffled = Graph.of(
        (msgspec.structs.replace(n, attrs=dict(reversed(n.attrs.items()))) for n in graph.nodes.values()),
        reversed(graph.scopes.values()),
        graph.cuts,
    )
    assert export(shuffled, show_attrs=True) == export(graph, show_attrs=True)


def test_the_same_text_in_every_process() -> None:
    support = str(Path(__file__).parent / "support")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from samples import hostile\n"
        "from gradir_exporters.dot import DotExporter, DotOptions\n"
        "text = DotExporter().export(hostile(), DotOptions(show_attrs=True, show_saved=True))\n"
        "sys.stdout.buffer.write(text.encode())"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", code, support],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            timeout=60,
            check=True,
        ).stdout.decode()
        for seed in ("1", "2")
    ]
    assert texts == [export(hostile(), show_attrs=True, show_saved=True)] * 2


def test_graphviz_object_is_the_same_source() -> None:
    assert to_graphviz(everything(), show_saved=True).source == export(everything(), show_saved=True)


def test_found_by_name() -> None:
    assert everything().to("dot", direction="LR") == export(everything(), direction="LR")


@pytest.mark.parametrize("function", [to_graphviz, to_pydot])
@pytest.mark.parametrize("options", [{"colour": "red"}, {"direction": "XY"}, {"max_attr_chars": 2}])
def test_bad_options(function: Callable[..., object], options: dict[str, Any]) -> None:
    with pytest.raises(ExportError, match=next(iter(options))):
        function(everything(), **options)


def test_an_edge_from_nowhere_is_an_error() -> None:
    with pytest.raises(ExportError, match=r"node 'f' has an edge from 'gone', which is not in the graph"):
        export(Graph.of([Node("f", scope="s", inputs=(Ref("gone", 0),))]))


def legend_of(source: str) -> dict[str, str]:
    """The attributes of the cells of the legend in a DOT source, by their words."""
    (table,) = re.findall(r"^\tlabel=<(.*)>$", source, re.MULTILINE)
    cells = re.findall(r"<td([^>]*)>(?:<font[^>]*>)?([^<]*)", table)
    return {html.unescape(words): attributes for attributes, words in cells}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_legend_names_the_colours_that_are_there(theme: str, dot_program: str) -> None:
    source = everything().to("dot", theme=theme, legend=True, show_saved=True)
    drawn = json.loads(run_dot(dot_program, source, "json"))
    boxes = ["parameter", "leaf", "function", "buffer", "saved tensor", "output", "parameters not in the graph"]
    lines = ["──► data", "· · ► to its view", "─── to a tensor it saved", "- - - to where it is saved"]
    assert read_drawn_text(drawn) == ["legend", *boxes, *lines, "None: an input that nothing flows through"]
    small = Graph.of([Node("x", role="leaf")]).to("dot", theme=theme, legend=True)
    assert list(legend_of(small)) == ["legend", "leaf"]
    assert "legend" not in Graph.of([]).to("dot", theme=theme, legend=True)
    looks = {
        words.split()[0]: (re.findall(r'bgcolor="([^"]*)"', cell), re.findall(r'border="([^"]*)"', cell))
        for words, cell in legend_of(source).items()
        if words in boxes
    }
    for box in drawn["objects"]:
        if box.get("class", "cut") != "cut":
            # The border of a cell is a whole number.
            width = max(1, round(float(box.get("penwidth", "1"))))
            assert ([box["fillcolor"]], [str(width)]) == looks[box["class"]]
    assert len(set(map(repr, looks.values()))) == len(looks)
    assert looks["parameter"][0] == looks["leaf"][0], "both have the same light blue"


@pytest.mark.parametrize("direction", ["TB", "LR", "BT", "RL"])
def test_a_legend_lies_below_and_moves_nothing(direction: str, dot_program: str) -> None:
    def drawn(legend: bool) -> tuple[dict[str, Any], list[float]]:
        source = chain(60).to("dot", direction=direction, legend=legend, caption="a < b")
        document = json.loads(run_dot(dot_program, source, "json"))
        places = [tuple(map(float, box["pos"].split(","))) for box in document["objects"]]
        return document, [place for x, y in places for place in (x - places[0][0], y - places[0][1])]

    (document, places), (_, without) = drawn(True), drawn(False)
    assert places == pytest.approx(without)
    assert read_drawn_text(document) == ["a < b", "legend", "leaf", "function", "output"]
    lowest = min(float(box["pos"].split(",")[1]) for box in document["objects"])
    texts = [operation for operation in document["_ldraw_"] if operation["op"] == "T"]
    assert all(operation["pt"][1] < lowest for operation in texts)
    assert texts[0]["pt"][1] - texts[-1]["pt"][1] < 100, "its size does not follow the picture"


def test_a_legend_names_roles_that_gradir_does_not_know(dot_program: str) -> None:
    graph = Graph.of([Node("x", role='re"mark\\N<b>&amp;'), Node("y", role="note"), Node("z", role="leaf")])
    source = graph.to("dot", legend=True)
    drawn = json.loads(run_dot(dot_program, source, "json"))
    assert read_drawn_text(drawn) == ["legend", "leaf", 'note, re"mark\\N<b>&amp;']
    assert 'bgcolor="#ecd3e3"' in legend_of(source)['note, re"mark\\N<b>&amp;']
    assert {box["name"]: box for box in drawn["objects"]}["n0"]["fillcolor"] == "#ecd3e3"


def test_a_legend_of_a_comparison_names_drawn_kinds() -> None:
    nodes = [
        Node("a", role="leaf", ext={"diff": "removed"}),
        Node("b", inputs=(Ref("a", 0),)),
        Node("c", inputs=(Ref("b", 0),)),
    ]
    source = Graph.of(nodes).to("dot", legend=True)
    assert list(legend_of(source)) == ["legend", "- removed", "as before", "──► data", "- - ► data no more"]


def test_without_a_legend_there_is_none() -> None:
    assert "legend" not in everything().to("dot", show_saved=True)


def test_pydot_has_the_theme_and_the_legend_too() -> None:
    dot = to_pydot(everything(), theme="dark", legend=True)
    assert dot.get_bgcolor().strip('"') == "#0d1117"
    assert f"\tlabel={dot.get_label()}\n" in export(everything(), theme="dark", legend=True)
    assert "to its view" in dot.get_label()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"theme": "red"}, "exporter 'dot': option theme: expected classic|dark|light|paper, not 'red'"),
        ({"max_attr_chars": 1}, "exporter 'dot': option max_attr_chars: expected integer, 3 to 2,000, not 1"),
        ({"thme": "dark"}, "exporter 'dot' has no option 'thme' (did you mean 'theme'?): its options are "),
    ],
)
def test_wrong_options_of_an_object_are_reported_as_everywhere(options: dict[str, object], said: str) -> None:
    for make in (to_pydot, to_graphviz):
        with pytest.raises(ExportError) as caught:
            make(everything(), **options)
        assert str(caught.value).startswith(said)


def test_paper_is_black_on_white_in_thin_lines(dot_program: str) -> None:
    drawn = Picture(run_dot(dot_program, everything().to("dot", theme="paper"), "json"))
    assert drawn.clusters
    for box in (box for name, box in drawn.nodes.items() if not name.startswith("cut")):
        assert (box.get("fillcolor"), box.get("color", "black"), box["fontname"]) == ("white", "black", "Helvetica")
    for frame in drawn.clusters.values():
        assert (frame["style"], frame["fontcolor"], float(frame["penwidth"])) == ("rounded", "black", 0.3)
    assert {line.get("color", "black") for line in drawn.edges} == {"black"}
    assert max(float(line["penwidth"]) for line in drawn.edges) < 1


def test_paper_keeps_the_colours_that_say_something() -> None:
    graph = Graph.of([Node("a", ext={"diff": "added"}), Node("b", inputs=(Ref("a", 0),))])
    assert 'fillcolor="#aceebb"' in graph.to("dot", theme="paper")
    marked = Node("w", ext={"overlay": ("alarm", "zero", "gradient", "zero", False)})
    assert 'fillcolor="#f58a5b"' in Graph.of([marked]).to("dot", theme="paper")


@pytest.mark.parametrize("theme", ["light", "paper", "dark"])
def test_the_rows_of_a_table_line_up_in_every_theme(theme: str) -> None:
    assert "fontname=Courier" in everything().to("dot", theme=theme, show_attrs=True).split("edge [")[0]
    assert "Courier" not in everything().to("dot", theme=theme)
