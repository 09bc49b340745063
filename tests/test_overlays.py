"""Overlays: their document, what is refused in it, and what exporters make of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from dot_pictures import Picture, read_drawn_text, run_dot
from gradir_exporters._palette import FILLS
from gradir_exporters.dot import to_pydot
from hypothesis import given
from hypothesis import strategies as st
from mermaid_pictures import parse_mermaid
from page_reader import page_data
from plugins import BUILT_IN
from samples import HOSTILE_LABELS, chain, hostile
from strategies import graphs

import gradir
from gradir.cli.main import main
from gradir.errors import ExportError, FormatError
from gradir.ir import Builder, Graph, Scope, TensorMeta
from gradir.ir.marks import STEPS, overlay_mark, overlay_verdict
from gradir.overlays import Channel, Overlay, apply_overlay, decode, encode
from gradir.passes.blocks import number_nodes

SCHEMA = json.loads((Path(__file__).parents[1] / "schemas" / "gir-overlay-1.0.schema.json").read_text(encoding="utf-8"))
META = [TensorMeta("float32", (3,))]


def network(layers: int = 2) -> Graph:
    b = Builder()
    value = b.tensor("x", META[0])
    for number in range(layers):
        weight = b.tensor(f"h.{number}.w", META[0], role="parameter", scope=f"h.{number}")
        value = b.function("mul", [value, weight], META, native="MulBackward0", scope=f"h.{number}")
    b.output(value)
    return b.build(scopes=[Scope("h", "Stack"), *(Scope(f"h.{number}", "Layer") for number in range(layers))])


OVERLAY = Overlay(
    (
        Channel(
            "gradient",
            {"x": "none", "h.0.w": "zero", "h.0/mul:1": 1e-8, "h.1.w": "nonfinite", "h.1/mul:1": 12.3456},
            "norm",
            "log",
            {"none": "quiet", "zero": "caution", "nonfinite": "alarm"},
        ),
        Channel("status", {"h.0.w": "zero", "h.1.w": "reached"}, looks={"zero": "alarm", "reached": "good"}),
    )
)

JUDGED = Overlay(OVERLAY.channels, "2 of 2 parameters get no gradient: detach() cuts both.", "alarm")

values = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["zero", "none", "odd <b>"]))


@st.composite
def drawn_over(draw: st.DrawFn) -> tuple[Graph, Overlay]:
    graph = draw(graphs())
    channels = tuple(
        Channel(name, draw(st.dictionaries(st.sampled_from([*graph.nodes]), values, max_size=5)), "norm")
        for name in ("one", "two")
    )
    looks: Any = st.sampled_from(["alarm", "caution", "good", "quiet"])
    return graph, Overlay(channels, draw(st.text(max_size=2000)), draw(looks))


@given(drawn_over())
def test_an_overlay_survives_its_document_and_marks_its_nodes(pair: tuple[Graph, Overlay]) -> None:
    graph, overlay = pair
    document = encode(overlay)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(document))
    assert decode(document) == overlay
    for channel in overlay.channels:
        marked = apply_overlay(graph, overlay, channel.name)
        found = {id_: mark for id_, node in marked.nodes.items() if (mark := overlay_mark(node))}
        assert {id_: mark.value for id_, mark in found.items()} == dict(channel.values)
        numbers = sorted((mark.value, STEPS.index(mark.look)) for mark in found.values() if mark.look in STEPS)
        assert [step for _, step in numbers] == sorted(step for _, step in numbers)
        told = {id_ for id_, node in marked.nodes.items() if overlay_verdict([node])}
        last = [node.id for node in graph.outputs or [*graph.nodes.values()][-1:]]
        assert told == (set(last) if overlay.verdict else set())
        # Nothing else is touched.
        assert [[*node.inputs, node.role, *node.outputs] for node in marked.nodes.values()] == [
            [*node.inputs, node.role, *node.outputs] for node in graph.nodes.values()
        ]


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        ((), "length >= 1"),
        ((Channel("a", {"x": math.nan}),), "NaN and infinity are words"),
        ((Channel("a", {"x": -math.inf}),), "NaN and infinity are words"),
        ((Channel("a", {"x": 0.0, "y": 1.0}, scale="log"),), "takes numbers above 0"),
        ((Channel("a", {}), Channel("a", {})), "the same name"),
        ((Channel("a", {"x": None}),), "got `null`"),
        ((Channel("a", {"x": object()}),), "object is unsupported"),
        ((Channel("a", {"x": "w"}, looks={"w": "pink"}),), "Invalid enum value 'pink'"),
    ],
)
def test_an_overlay_that_could_not_be_read_is_neither_written_nor_drawn(channels: Any, message: str) -> None:
    graph = Graph.of([gradir.Node("x"), gradir.Node("y")])
    with pytest.raises(FormatError, match=re.escape(message)):
        encode(Overlay(channels))
    with pytest.raises(FormatError, match=re.escape(message)):
        gradir.export(graph, "tree", overlay=Overlay(channels))


@pytest.mark.parametrize("verdict", ["a" * 2001, None, ["alarm"]])
def test_a_verdict_that_could_not_be_read_is_neither_written_nor_drawn(verdict: Any) -> None:
    for use in (encode, partial(apply_overlay, network())):
        with pytest.raises(FormatError, match=r"broken overlay: Expected `str`.* - at `\$\.verdict`"):
            use(Overlay(OVERLAY.channels, verdict))


def test_an_overlay_without_a_verdict_is_written_as_it_was() -> None:
    assert [*json.loads(encode(OVERLAY))] == ["format", "version", "channels"]
    assert [*json.loads(encode(JUDGED))] == ["format", "version", "channels", "verdict", "look"]


def test_every_pass_leaves_the_verdict_where_it_can_be_read() -> None:
    marked = apply_overlay(network(4), JUDGED)
    made: dict[str, dict[str, object]] = {
        "one box": {"depth": 0},
        "no output": {"drop": "output"},
        "a part behind which more is": {"focus": "h.0.w", "hops": 1},
        "its inputs": {"ancestors": "h.1/mul:1"},
        "equal layers once": {"rollup": True, "drop": "output"},
    }
    for name, passes in made.items():
        found = json.loads(gradir.export(marked, "nodelink", **passes))["nodes"]
        told = [node["ext"]["verdict"] for node in found if "verdict" in node.get("ext", {})]
        assert told == [["alarm", JUDGED.verdict]], name
    assert overlay_verdict(apply_overlay(Graph.of([]), Overlay((Channel("a", {}),), "no node")).nodes.values()) is None


def test_a_mark_that_no_overlay_makes_is_no_verdict() -> None:
    for mark in ("alarm", ("pink", "red"), ("alarm", 1), ("alarm", "a", "b"), (), 7):
        assert overlay_verdict([gradir.Node("x", ext={"verdict": mark})]) is None


def test_a_diff_takes_the_verdict_as_it_takes_other_marks() -> None:
    graph = network()
    only_marks, with_verdict = (apply_overlay(graph, overlay) for overlay in (OVERLAY, JUDGED))
    for options in ({"normalize": True}, {"ignore": ["ext"]}):
        assert not gradir.diff(graph, only_marks, **options).changes
        assert not gradir.diff(graph, with_verdict, **options).changes
    # Equal steps stay equal: a verdict says nothing of the node that has it.
    assert number_nodes(with_verdict).kinds == number_nodes(graph).kinds


def test_pictures_and_texts_leave_the_verdict_to_the_page() -> None:
    for exporter in ("dot", "mermaid", "tree"):
        with_verdict = gradir.export(network(), exporter, overlay=JUDGED)
        assert with_verdict == gradir.export(network(), exporter, overlay=OVERLAY)


def test_whole_numbers_of_a_program_are_numbers() -> None:
    whole: Any = 1
    drawn = gradir.export(Graph.of([gradir.Node("x")]), "tree", overlay=Overlay((Channel("a", {"x": whole}),)))
    assert drawn == "x [a: 1]\n"


def test_a_legend_of_many_words_says_how_many_it_leaves_out() -> None:
    nodes = [gradir.Node(f"n{number:02}") for number in range(40)]
    over = Overlay((Channel("a", {node.id: f"word {node.id}" for node in nodes}),))
    for exporter in ("dot", "mermaid"):
        text = gradir.export(Graph.of(nodes), exporter, overlay=over)
        assert "word n06, word n07, 32 more" in text
        assert "word n07, word n08" not in text


def test_a_wrong_channel_of_many_is_a_short_line() -> None:
    over = Overlay(tuple(Channel(f"channel {number}", {}) for number in range(3000)))
    with pytest.raises(ExportError, match=r"no channel 'loss': it has channel 0, .*….*channel 2999") as caught:
        gradir.export(Graph.of([]), "tree", overlay=over, channel="loss")
    assert len(str(caught.value)) < 600


def test_an_overlay_of_another_graph_says_how_much_of_it_is_there() -> None:
    with pytest.raises(ExportError, match="of the 5 nodes that it names, this one has 3; make both of the same"):
        gradir.export(network(1), "dot", overlay=OVERLAY)
    with pytest.raises(ExportError, match="of the 5 nodes that it names, this one has 1"):
        apply_overlay(chain(3), OVERLAY)
    with pytest.raises(ExportError, match=r"no channel 'staus' \(did you mean 'status'\?\): it has gradient, status"):
        apply_overlay(network(), OVERLAY, "staus")
    with pytest.raises(TypeError, match=r"overlay is a gradir\.Overlay, not str"):
        gradir.export(network(), "dot", overlay="o.json")


def test_the_marks_are_no_part_of_the_graph() -> None:
    graph = network()
    before = gradir.dumps(graph)
    gradir.export(graph, "dot", overlay=OVERLAY)
    assert gradir.dumps(graph) == before
    assert b"overlay" not in before


def test_exports_are_as_reviewed(golden: Callable[[str, str], None]) -> None:
    for name, exporter, options in (
        ("dot/overlay.dot", "dot", {}),
        ("dot/overlay-status-dark.dot", "dot", {"channel": "status", "theme": "dark"}),
        ("mermaid/overlay.mmd", "mermaid", {}),
        ("tree/overlay.txt", "tree", {}),
        ("plain/overlay.txt", "plain", {}),
    ):
        golden(name, gradir.export(network(), exporter, overlay=OVERLAY, **options))


def test_graphviz_draws_the_colours_and_the_legend(dot_program: str) -> None:
    source = gradir.export(network(), "dot", overlay=OVERLAY)
    assert "<svg" in run_dot(dot_program, source, "svg")
    picture = Picture(run_dot(dot_program, source, "json"))
    shown = {node["label"].split("\\n")[-1]: node["fillcolor"] for key, node in picture.nodes.items() if key[0] == "n"}
    assert shown == {
        "none": FILLS["quiet"][0],
        "! zero": FILLS["caution"][0],
        "1e-08": FILLS["step 1"][0],
        "x nonfinite": FILLS["alarm"][0],
        "12.3": FILLS["step 5"][0],
        "float32[3]": "#ffffff",
    }
    legend = ["none", "1e-08 to 6.58e-07", "0.188 to 12.3", "! zero", "x nonfinite", "nothing said"]
    assert read_drawn_text(picture.document) == ["gradient (norm)", *legend]
    (box,) = to_pydot(apply_overlay(network(), OVERLAY)).get_node("n0")
    assert box.get_fillcolor() == f'"{FILLS["quiet"][0]}"'


def test_mermaid_reads_what_is_drawn_over_a_graph(mermaid_node: str) -> None:
    hostile_graph = hostile()
    names = Overlay((Channel(HOSTILE_LABELS[0][:40] or "a", dict.fromkeys(hostile_graph.nodes, '"] <b>'), "`u`"),))
    sources = [
        gradir.export(network(), "mermaid", overlay=OVERLAY),
        gradir.export(network(), "mermaid", overlay=OVERLAY, depth=1),
        gradir.export(hostile_graph, "mermaid", overlay=names),
    ]
    for result in parse_mermaid(mermaid_node, sources):
        assert "error" not in result, result


def test_hostile_words_stay_on_their_line(dot_program: str) -> None:
    graph = hostile()
    for word in ('a\n"\\N <b>&amp;', "\x1b[31m", "\u202e"):
        over = Overlay((Channel(word, dict.fromkeys(graph.nodes, word), word, looks={word: "alarm"}),))
        run_dot(dot_program, gradir.export(graph, "dot", overlay=over), "canon")
        tree = gradir.export(graph, "tree", overlay=over)
        assert all(char.isprintable() or char == "\n" for char in tree)
        assert len(tree.splitlines()) == len(gradir.export(graph, "tree").splitlines())


def test_a_node_for_several_has_their_most_urgent_mark() -> None:
    marked = apply_overlay(network(), OVERLAY)
    folded = {id_: overlay_mark(node) for id_, node in gradir_fold(marked).nodes.items()}
    assert [mark and (mark.look, mark.value, mark.is_mixed) for mark in folded.values()] == [
        ("quiet", "none", False),
        ("alarm", "nonfinite", True),
        None,
    ]
    assert "at most 12.3" in gradir.export(
        network(), "tree", depth=1, overlay=Overlay((Channel("n", {"h.0.w": 1.0, "h.1/mul:1": 12.3456}),))
    )


def gradir_fold(graph: Graph) -> Graph:
    from gradir.passes import fold

    return fold(graph, 1)


def test_layers_with_other_gradients_are_still_one_stack() -> None:
    over = Overlay((Channel("norm", {f"h.{number}.w": float(number) for number in range(4)}),))
    text = gradir.export(network(4), "tree", rollup=True, overlay=over, paths="whole")
    assert "h.0-3.w parameter float32[3] [norm: at most 3]" in text
    assert text.count("parameter") == 1


def test_numbers_of_any_size_have_a_step() -> None:
    for numbers in ([1.0], [2.0, 2.0], [-1.7e308, 1.7e308], [5e-324, 1.7e308], [0.0, 1.0]):
        scale: Any = "log" if min(numbers) > 0 else "linear"
        ids = [f"n{number}" for number in range(len(numbers))]
        graph = Graph.of([gradir.Node(id_) for id_ in ids])
        marked = apply_overlay(graph, Overlay((Channel("a", dict(zip(ids, numbers, strict=True)), scale=scale),)))
        looks = [mark.look for node in marked.nodes.values() if (mark := overlay_mark(node))]
        assert looks == (["step 3"] * len(ids) if len(set(numbers)) == 1 else ["step 1", "step 5"])
        assert all(math.isfinite(number) for number in numbers)


def test_the_command_line_shows_an_overlay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, over = tmp_path / "a.gir", tmp_path / "o.json"
    network().save(graph)
    over.write_text(OVERLAY.to_json(), encoding="utf-8")
    assert main(["export", str(graph), "--to", "tree", "--overlay", str(over)]) == 0
    assert capsys.readouterr().out == gradir.export(network(), "tree", overlay=OVERLAY)
    assert main(["export", str(graph), "--to", "dot", "--overlay", str(over), "--channel", "status"]) == 0
    assert capsys.readouterr().out == gradir.export(network(), "dot", overlay=OVERLAY, channel="status")
    other = tmp_path / "p.json"
    other.write_text(Overlay((Channel("status", {"x": "more"}),)).to_json(), encoding="utf-8")
    assert main(["export", str(graph), "--to", "tree", "--overlay", str(over), "--overlay", str(other)]) == 0
    assert capsys.readouterr().out == gradir.export(network(), "tree", overlay=OVERLAY)
    for number, verdict in enumerate(("", "the first", "another")):
        told = tmp_path / f"verdict-{number}.json"
        told.write_text(Overlay((Channel(f"c{number}", {"x": 1.0}),), verdict, "caution").to_json(), encoding="utf-8")
    paths = [str(tmp_path / f"verdict-{number}.json") for number in range(3)]
    several = [word for path in paths for word in ("--overlay", path)]
    assert main(["export", str(graph), "--to", "nodelink", *several]) == 0
    (*_, output) = json.loads(capsys.readouterr().out)["nodes"]
    assert output["ext"]["verdict"] == ["caution", "the first"]
    both = ["export", str(graph), "--to", "tree", "--overlay", str(over), "--overlay", str(other)]
    name = f"status, {str(other)[-72:]}"
    assert main([*both, "--overlay", str(other), "--channel", name]) == 0
    assert f"[{name}: more]" in capsys.readouterr().out
    chain(2).save(tmp_path / "b.gir")
    for arguments, message in (
        (
            [str(graph), "--channel", "status"],
            "the graph has no costs to show: capture it with --cost, or give --overlay FILE",
        ),
        ([str(graph), "--overlay", str(over), "--channel", "no"], f"{over}: the overlay has no channel 'no'"),
        ([str(tmp_path / "b.gir"), "--overlay", str(over)], f"{over}: the overlay is of another graph"),
        (
            [*both[1:2], "--overlay", "-", "--overlay", "-"],
            "cannot read both the graph and the overlay from standard input",
        ),
        (["-", "--overlay", "-"], "cannot read both the graph and the overlay from standard input"),
        ([str(graph), "--overlay", str(tmp_path / "none")], "cannot be read"),
        ([str(graph), "--overlay", str(over), "-o", str(over)], "is the input file"),
    ):
        assert main(["export", "--to", "tree", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line


@pytest.mark.parametrize("exporter", BUILT_IN)
def test_every_exporter_shows_an_overlay_or_refuses_it(
    exporter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # These two are tables of modules, which show no single node.
    if exporter not in {"modules", "summary"}:
        text = gradir.export(network(), exporter, overlay=OVERLAY)
        assert "nonfinite" in (page_data(text) if exporter == "html" else text)
        return
    message = f"{exporter} shows modules and no nodes, so it cannot show an overlay: use tree, dot or mermaid"
    with pytest.raises(ExportError, match=message):
        gradir.export(network(), exporter, overlay=OVERLAY)
    assert gradir.export(network(), exporter, overlay=None) == gradir.export(network(), exporter)
    graph, over = tmp_path / "a.gir", tmp_path / "over.json"
    gradir.save(network(), graph)
    over.write_text(OVERLAY.to_json())
    assert main(["export", str(graph), "--to", exporter, "--overlay", str(over)]) == 2
    assert capsys.readouterr().err == f"gradir: {message}\n"
