"""Mermaid flowcharts: goldens, Mermaid's own parser, limits, hostile labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from gradir_exporters._mermaid_picture import Picture, escape_label, shorten_text
from gradir_exporters.mermaid import MermaidOptions
from hypothesis import given, settings
from hypothesis import strategies as st
from mermaid_pictures import META, PLAIN, boxes_in, export, groups_in, parse_mermaid
from msgspec.structs import replace
from samples import HOSTILE_LABELS, chain, everything, hostile
from strategies import graphs

from gradir import codecs
from gradir.errors import ExportError, GradirWarning, PassError
from gradir.ir import Builder, Graph, Scope
from gradir.passes import fold

CLASSIC = MermaidOptions(native=True, show_saved=True, accumulators=True)

Parse = Callable[[list[str]], list[dict[str, Any]]]


@pytest.fixture
def parse(mermaid_node: str) -> Parse:
    """What Mermaid's own parser makes of sources, all in one process."""

    return partial(parse_mermaid, mermaid_node)


def samples_of(strategy: st.SearchStrategy[Graph], count: int) -> list[Graph]:
    """Graphs that hypothesis makes, for a tool that is too slow to start for each."""
    found: list[Graph] = []

    @settings(max_examples=count, database=None, deadline=None)
    @given(strategy)
    def collect(graph: Graph) -> None:
        found.append(graph)

    collect()
    return found


def assert_drawn_as_meant(parsed: dict[str, Any], picture: Picture) -> None:
    """Mermaid read the very boxes, frames and arrows of the picture, with their texts."""
    assert parsed["ok"], parsed["error"]
    items = picture.items()
    boxes, groups = boxes_in(items), groups_in(items)
    assert {v["id"]: v["text"] for v in parsed["vertices"]} == {box.key: shorten_text(box.text) for box in boxes}
    assert {s["id"]: s["text"] for s in parsed["subgraphs"]} == {
        group.key: shorten_text(group.text) for group in groups
    }
    assert {s["id"]: set(s["nodes"]) for s in parsed["subgraphs"]} == {
        group.key: {item.key for item in group.items} for group in groups
    }
    assert not any(thing["elements"] for thing in parsed["vertices"] + parsed["subgraphs"])
    assert all(
        len(vertex["classes"]) == 1 and vertex["classes"][0] in parsed["classes"] for vertex in parsed["vertices"]
    )
    assert [(e["start"], e["end"], e["stroke"]) for e in parsed["edges"]] == [
        (arrow.tail, arrow.head, {"data": "normal", "beside": "invisible"}.get(arrow.kind, "dotted"))
        for arrow in picture.arrows
    ]


def layered(layers: int, functions: int) -> Graph:
    """A residual network: in each layer a parameter and a chain of functions in a module of its own."""
    b = Builder()
    value = b.tensor("x", META)
    for layer in range(layers):
        scope = f"layers.{layer}"
        weight = b.tensor(f"{scope}.mlp.weight", META, role="parameter", scope=f"{scope}.mlp")
        inner = value
        for _ in range(functions):
            inner = b.function("mm", [inner, weight], [META], scope=f"{scope}.mlp")
        value = b.function("add", [value, inner], [META], scope=scope)
    b.output(value)
    scopes = [Scope(f"layers.{layer}", "Block") for layer in range(layers)]
    return b.build(scopes=[Scope("", "Net"), Scope("layers", "ModuleList"), *scopes])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("everything", {}),
        ("everything-classic", {"native": True, "show_saved": True, "accumulators": True}),
        ("everything-bare", {"shapes": False, "direction": "LR"}),
        ("everything-depth-1", {"depth": 1}),
        ("everything-depth-0", {"depth": 0}),
    ],
)
def test_golden(golden: Callable[[str, str], None], name: str, options: dict[str, Any]) -> None:
    golden(f"mermaid/{name}.mmd", export(everything(), **options))


def test_golden_of_a_graph_too_large_to_draw_open(golden: Callable[[str, str], None]) -> None:
    golden("mermaid/layered.mmd", export(layered(20, 30)))


def test_golden_of_hostile_names(golden: Callable[[str, str], None]) -> None:
    golden("mermaid/hostile.mmd", export(hostile(), show_saved=True))


def test_mermaid_reads_every_feature(parse: Parse) -> None:
    graph = everything()
    plain, classic, folded = parse(
        [
            export(graph),
            export(graph, native=True, show_saved=True, accumulators=True, direction="RL"),
            export(graph, depth=1, direction="LR"),
        ]
    )
    assert_drawn_as_meant(plain, Picture(graph, PLAIN))
    assert_drawn_as_meant(classic, Picture(graph, CLASSIC))
    assert_drawn_as_meant(folded, Picture(fold(graph, 1), PLAIN))
    assert [result["direction"] for result in (plain, classic, folded)] == ["TB", "RL", "LR"]
    assert plain["layout"] == "dagre"
    assert plain["title"] == "Autograd graph of Model"
    assert (
        plain["description"]
        == "5 functions, 1 parameter, 1 leaf, 2 outputs, 1 box of parameters not in the graph, 10 arrows"
    )
    view, *others = [edge for edge in plain["edges"] if edge["stroke"] == "dotted"]
    assert (view["type"], others) == ("arrow_point", [])
    assert [edge["type"] for edge in classic["edges"][10:]] == ["arrow_open"] * 8


def test_mermaid_reads_hostile_names_as_they_are_intended(parse: Parse) -> None:
    graph = hostile()
    drawn, folded = parse([export(graph, show_saved=True), export(graph, depth=1)])
    assert_drawn_as_meant(drawn, Picture(graph, replace(PLAIN, show_saved=True)))
    assert_drawn_as_meant(folded, Picture(fold(graph, 1), PLAIN))


def test_mermaid_reads_any_graph_as_it_is_intended(parse: Parse) -> None:
    found = samples_of(graphs(), 60)
    sources = [export(graph) for graph in found] + [export(graph, depth=1, show_saved=True) for graph in found]
    results = parse(sources)
    for graph, plain, folded in zip(found, results, results[len(found) :], strict=False):
        assert_drawn_as_meant(plain, Picture(graph, PLAIN))
        assert_drawn_as_meant(folded, Picture(fold(graph, 1), replace(PLAIN, show_saved=True)))


def test_mermaid_reads_any_label_as_it_is_intended(parse: Parse) -> None:
    texts = [
        *HOSTILE_LABELS,
        *("1. item", "1) item", "1.5", "- item", "+ item", "--", "x\n---", "x\n===", "a\n- b", "# head", "> quote"),
        *("[a](b)", "![a](b)", "[a]: b", "www.a.b", "http://a.b", "a@b.c", "a|b\n|-|-|", "*a*", "_a_", "a_b", "`a`"),
        *("~~a~~", "$$a$$", "fa:fa-car", "&lt;", "#lt;", "ﬂ°°34¶ß", "ﬂ°lt¶ß", "a\\nb", "a\\", " a ", "a  b", "<br/>"),
        *("%%{init: {}}%%", "accTitle: x", "a;b", "\ud800", "\u2028", "\n", "👨‍👩‍👧", "é", "]]", '"]:::x', "end\nend"),
    ]
    source = "flowchart TB\n" + "".join(
        f'n{number}["{escape_label(text)}"]\nsubgraph m{number}["{escape_label(text)}"]\nk{number}["k"]\nend\n'
        for number, text in enumerate(texts)
    )
    (parsed,) = parse([source])
    read = {thing["id"]: thing["text"] for thing in parsed["vertices"] + parsed["subgraphs"]}
    assert [read[f"n{number}"] for number in range(len(texts))] == list(map(shorten_text, texts))
    assert [read[f"m{number}"] for number in range(len(texts))] == list(map(shorten_text, texts))


def test_the_largest_picture_is_accepted_and_one_arrow_more_is_not(parse: Parse) -> None:
    largest = export(chain(499), all=True)
    one_more = largest + "n0 --> n1\n"
    accepted, refused = parse([largest, one_more])
    assert_drawn_as_meant(accepted, Picture(chain(499), PLAIN))
    assert len(accepted["edges"]) == 500
    assert "limit is 500" in refused["error"]


def test_a_graph_too_large_for_mermaid_is_folded_as_little_as_fits(parse: Parse) -> None:
    graph = layered(20, 30)
    source = export(graph, depth=9)
    note = (
        "%% 642 nodes and 1,241 edges, more than Mermaid draws (500 arrows, 50,000 characters): "
        "folded by module to depth 3"
    )
    assert source.splitlines()[5] == note
    assert source.replace(f"{note}\n", "") == export(graph, depth=3, all=True)
    (parsed,) = parse([source])
    assert_drawn_as_meant(parsed, Picture(fold(graph, 3), PLAIN))
    assert sum(vertex["classes"] == ["module"] for vertex in parsed["vertices"]) == 20


def test_a_depth_that_does_not_fit_is_folded_further() -> None:
    graph = layered(400, 1)
    with pytest.raises(ExportError, match="1,201 arrows"):
        export(graph, depth=3, all=True)
    source = export(graph, depth=3)
    assert "folded by module to depth 2\n" in source
    assert source.count(":::module") == 400


def test_folding_may_be_refused() -> None:
    with pytest.raises(ExportError) as caught:
        export(layered(20, 30), all=True)
    assert str(caught.value) == (
        "a Mermaid picture has at most 500 arrows and 50,000 characters, and this one needs 1,241 arrows: "
        "fold modules with a depth, or leave all out"
    )


def test_a_graph_without_modules_that_is_too_large_is_refused() -> None:
    b = Builder()
    b.output(b.function("cat", [b.tensor(f"x{number}", META) for number in range(501)], [META]))
    with pytest.raises(ExportError, match=r"needs 502 arrows, and the graph has no modules to fold"):
        export(b.build())
    assert ":::module" in export(chain(500), depth=0)


def busy(inner: str) -> Graph:
    """501 operations of the model itself, between two in the module that has operations of its own."""
    b = Builder()
    value = b.function("f", [b.tensor("x", META)], [META], scope=inner)
    for _ in range(501):
        value = b.function("sin", [value], [META])
    b.output(b.function("f", [value], [META], scope=inner and f"{inner}.b"))
    return b.build(scopes=[Scope("", "Net")])


@pytest.mark.parametrize("inner", ["", "a"])
def test_operations_of_the_model_itself_are_folded_if_too_many(inner: str) -> None:
    graph = busy(inner)
    with pytest.warns(GradirWarning, match="505 nodes as 5 boxes: repeated steps once"):
        assert export(graph).count(":::function") == 3
    for depth in (1, 2):
        with pytest.warns(GradirWarning, match="folded by module to depth 0"):
            assert export(graph, depth=depth).count(":::module") == 1
    assert export(fold(graph, 0)).count(":::module") == 1


def test_a_module_that_is_entered_too_often_is_one_part_in_the_end() -> None:
    b = Builder()
    value = b.tensor("x", META)
    for _ in range(300):
        value = b.function("sin", [b.function("mm", [value], [META], scope="a")], [META])
    b.output(value)
    with pytest.warns(GradirWarning, match="folded by module to depth 0"):
        assert export(b.build(), depth=1).count(":::module") == 1


def test_a_graph_that_no_folding_makes_small_enough_is_refused() -> None:
    b = Builder()
    value = b.function("split", [b.tensor("x", META)], [META] * 501, scope="m")
    for number in range(501):
        b.output(value.output(number), str(number))
    with pytest.raises(ExportError, match="needs 501 arrows even with all modules folded"):
        export(b.build())


def named_chain(names: list[str]) -> Graph:
    b = Builder()
    value = b.tensor("x", META)
    for name in names:
        value = b.function("f", [value], [META], names=[name])
    b.output(value)
    return b.build()


def test_50000_characters_are_accepted_and_one_more_is_not(parse: Parse) -> None:
    names = ["x" * 100] * 300
    missing = 50_000 - len(export(named_chain(names), all=True))
    for number in range(300):
        added = min(missing, 19)
        names[number] += "x" * added
        missing -= added
    source = export(named_chain(names), all=True)
    assert len(source) == 50_000
    (parsed,) = parse([source])
    assert parsed["ok"]
    names[0] += "x"
    with pytest.raises(ExportError, match=r"and 50,001 characters"):
        export(named_chain(names), all=True)


def test_characters_are_counted_as_javascript_does() -> None:
    graph = named_chain(["🔥" * 100] * 300)
    with pytest.raises(ExportError, match="characters"):
        export(graph, all=True)
    assert len(export(named_chain(["é" * 100] * 300), all=True)) < 50_000


@given(graphs())
def test_every_node_and_edge_is_drawn_once(graph: Graph) -> None:
    picture = Picture(graph, replace(CLASSIC, show_saved=False))
    assert len(boxes_in(picture.items())) == len(graph.nodes)
    assert len(picture.arrows) == sum(1 for _ in graph.edges)
    with_saved = Picture(graph, CLASSIC)
    slots = sum(len(node.saved) for node in graph.nodes.values())
    assert len(boxes_in(with_saved.items())) == len(graph.nodes) + slots
    assert len(with_saved.arrows) == len(picture.arrows) + slots


@given(graphs(), st.booleans(), st.booleans())
def test_the_same_graph_read_back_gives_the_same_text(graph: Graph, shapes: bool, saved: bool) -> None:
    read_back = codecs.decode(codecs.encode(graph))
    options = {"shapes": shapes, "show_saved": saved}
    assert export(read_back, **options) == export(graph, **options)


def test_modules_nested_very_deep_are_drawn(parse: Parse) -> None:
    b = Builder()
    value = b.tensor("x", META)
    for depth in (*range(1, 100), 5_000):
        value = b.function("f", [value], [META], scope=".".join("a" * depth))
    b.output(value)
    (parsed,) = parse([export(b.build(), all=True)])
    assert_drawn_as_meant(parsed, Picture(b.build(), PLAIN))


def test_a_large_graph_is_drawn_readable_unless_all_of_it_is_asked_for() -> None:
    b = Builder()
    value = b.tensor("x", META)
    for number in range(200):
        value = b.function(f"f{number}", [value], [META], scope=f"h.{number // 20}.{number}")
    b.output(value)
    graph = b.build()
    with pytest.warns(GradirWarning, match=r"202 nodes as 12 boxes: folded to depth 2; --all, in Python all=True"):
        source = export(graph)
    assert 'title: "202 nodes as 12 boxes: folded to depth 2"' in source
    assert source.count(":::module") == 10
    assert export(graph, caption="GPT").splitlines()[1] == 'title: "GPT; 202 nodes as 12 boxes: folded to depth 2"'
    assert export(graph, all=True).count(":::function") == 200
    # What was asked for is drawn.
    assert export(graph, depth=3).count(":::module") == 200


def test_a_negative_depth_is_refused() -> None:
    with pytest.raises(PassError, match="depth -1"):
        export(everything(), depth=-1)


@given(graphs(), st.integers(0, 3))
def test_the_option_depth_is_the_pass(graph: Graph, depth: int) -> None:
    assert export(graph, depth=depth) == export(fold(graph, depth))


def test_the_option_depth_is_the_pass_where_it_does_not_fit() -> None:
    graph = layered(400, 1)
    with pytest.warns(GradirWarning) as told:
        assert export(graph, depth=3) == export(fold(graph, 3))
    assert len({str(each.message) for each in told}) == 1
    refused = []
    for make in (lambda: export(graph, depth=3, all=True), lambda: export(fold(graph, 3), all=True)):
        with pytest.raises(ExportError) as caught:
            make()
        refused.append(str(caught.value))
    assert refused[0] == refused[1]
    assert "fold modules with a smaller depth, or leave all out" in refused[0]
