"""Where gradient ends in a recorded forward: in files, passes and pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from dot_pictures import run_dot
from flow_graphs import DETACH, META, NO_GRAD, UNUSED, small
from hostile_texts import HOSTILE_TEXTS
from msgspec.structs import replace

import gradir
from gradir import pictures
from gradir.ir import Cut, Graph, Node, Producer, Ref, Source
from gradir.ir.cuts import cut_text, stubs
from gradir.passes import ancestors, drop, focus, fold, hide_shape_ops, rollup

WHOLE = small(*UNUSED, DETACH, NO_GRAD)


# Files.


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_both_forms_keep_all_of_a_cut(form: str) -> None:
    meant = replace(DETACH, via=Source("torch.py", 2**63 - 1), meant="straight-through")
    graph = small(meant, NO_GRAD, *UNUSED)
    assert gradir.loads(gradir.dumps(graph, format=form)) == graph


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize(
    "cut",
    [
        replace(DETACH, slot=-1),
        replace(DETACH, slot=2**63),
        replace(DETACH, source=Source("net.py", 2**63)),
        replace(DETACH, at=3),
        replace(DETACH, into=None),
        replace(DETACH, meant=["a"]),
        replace(DETACH, names="ab"),
    ],
)
def test_an_invalid_cut_is_not_saved(form: str, cut: Cut) -> None:
    with pytest.raises(gradir.FormatError, match="cut 0: "):
        gradir.dumps(small(cut), format=form)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"slot":0', '"slot":-1'),
        ('"slot":0', '"slot":9223372036854775808'),
        ('"line":41', '"line":9223372036854775808'),
    ],
)
def test_a_broken_cut_in_a_file_is_refused(right: str, wrong: str) -> None:
    text = gradir.dumps(small(DETACH)).decode()
    assert right in text
    with pytest.raises(gradir.FormatError):
        gradir.loads(text.replace(right, wrong).encode())


EXPORTERS = ["dot", "mermaid", "tree", "plain", "modules", "summary", "nodelink", "cytoscape", "graphml"]


@pytest.mark.parametrize("exporter", [*EXPORTERS, "model-explorer"])
def test_a_cut_of_nodes_that_are_not_there_is_shown(exporter: str) -> None:
    cut = replace(DETACH, at="nobody", into="nowhere", slot=2**63 - 1)
    assert small(cut).to(exporter)
    buffers = [*small().nodes.values(), Node("running", "buffer")]
    assert Graph.of(buffers, cuts=[replace(DETACH, into="running")]).to(exporter)


@pytest.mark.parametrize("exporter", ["dot", "mermaid", "tree", "modules", "summary"])
def test_hostile_cuts_are_shown_on_one_line_and_short(exporter: str) -> None:
    bare = small().to(exporter)
    for text in [*HOSTILE_TEXTS.values(), "x" * 1_000_000, '"]:::evil\nend', "</script><b>", "\x1b[31m"]:
        cut = Cut(text, (text, text, text), text, None, text or "op", Source(text, 2**63 - 1, text), meant=text)
        shown = small(replace(cut, into="head/mul:1", slot=0)).to(exporter)
        assert len(shown) < len(bare) + 3000
        assert all(char.isprintable() or char == "\n" or char == "\t" for char in shown)
        if exporter == "mermaid":
            assert '"]:::evil' not in shown
        else:
            assert shown.count("\n") <= bare.count("\n") + 3


def test_a_line_of_a_cut_is_printable_and_short() -> None:
    for text in [*HOSTILE_TEXTS.values(), "x" * 1_000_000]:
        line = cut_text(Cut(text, (text,) * 5, op=text, source=Source(text, 3), meant=text))
        assert line.isprintable()
        assert len(line) < 2500


def test_of_very_many_cuts_a_picture_draws_some() -> None:
    graph = small(*(replace(DETACH, source=Source("net.py", line)) for line in range(5000)))
    assert graph.to("dot").count('[label="detach at') == 99
    assert "4,901 more cuts" in graph.to("dot")
    assert "4,951 more cuts" in graph.to("mermaid")
    assert graph.to("tree").count("\ncut detach at") == 5000


# Pictures and texts.


@pytest.mark.parametrize("name", ["dot", "mermaid", "tree", "plain", "modules", "summary", "model-explorer"])
def test_a_small_graph_has_a_golden(name: str, golden: Callable[[str, str], None]) -> None:
    suffix = {"dot": "dot", "mermaid": "mmd", "model-explorer": "json"}.get(name, "txt")
    golden(f"cuts/{name}.{suffix}", WHOLE.to(name))


@pytest.mark.parametrize("exporter", ["dot", "mermaid", "tree"])
def test_unreached_parameters_are_drawn_without_a_recorded_flow(exporter: str) -> None:
    nodes = [gradir.Node("x", role="leaf")]
    cuts = [Cut("unreached", (f"head.{number}.weight",)) for number in range(2000)]
    text = gradir.Graph.of(nodes, cuts=cuts).to(exporter)
    assert text.count("unreached") <= 2, "they are one stub, and in dot its tooltip"
    assert "head.0.weight, head.1.weight and 1,998 more" in text.replace("\n", " ")
    assert "unreached" not in gradir.Graph.of(nodes, cuts=[Cut("hidden", ("w",))]).to(exporter)


def test_the_legend_has_a_golden(golden: Callable[[str, str], None]) -> None:
    golden("cuts/legend-dark.dot", WHOLE.to("dot", legend=True, theme="dark"))


def test_dot_draws_it(dot_program: str) -> None:
    hostile = small(
        *(replace(DETACH, kind=text, op=text, names=(text,), meant="no") for text in HOSTILE_TEXTS.values())
    )
    assert len(re.findall(rb"<a xlink:title=\"[^\"]*meant: no", pictures.render(hostile.to("dot"), "svg"))) == len(
        HOSTILE_TEXTS
    )
    text = pictures.render(WHOLE.to("dot"), "svg").decode()
    assert re.search(">detach at net.py:41: fc.weight,</text>\n<text [^>]*>fc.bias</text>", text)
    assert re.search(">unreached: unused.weight,</text>\n<text [^>]*>unused.bias</text>", text)


@pytest.mark.parametrize("exporter", ["dot", "mermaid"])
@pytest.mark.parametrize("flow", [False, True])
def test_no_box_of_a_cut_is_wider_than_its_neighbours(exporter: str, flow: bool) -> None:
    names = tuple(f"{'encoder.layers.' * n}attention.query_key_value_projection_{'x' * 9 * n}.weight" for n in range(9))
    place = Source("a/package/with/long/names/in/its/folders/modeling_transformer.py", 1234)
    graph = small(replace(DETACH, names=names, source=place), *(Cut(f"kind{n}", (n * name,)) for n, name in
                  enumerate(names)))  # fmt: skip
    graph = graph if flow else replace(graph, producer=Producer(), cuts=tuple(Cut("unreached", (n,)) for n in names))
    lines = [line for box in _cut_labels(graph.to(exporter)) for line in box]
    assert 30 < max(map(len, lines)) <= 36
    whole = "".join(lines).replace(" ", "")
    for stub in stubs(graph):
        assert stub.reason.replace(" ", "") in whole, "nothing of it is lost"


def _cut_labels(text: str) -> list[list[str]]:
    dot = [found.split("\\n") for found in re.findall(r'cut\d+ \[label="(.*?)" tooltip', text)]
    chart = [found.split("\n") for found in re.findall(r'^c\d+\["(.*?)"\]:::cut', text, re.MULTILINE | re.DOTALL)]
    return [[re.sub(r"#(\d+);", lambda code: chr(int(code[1])), line) for line in label] for label in dot or chart]


def test_a_cause_without_a_place_is_below_the_output(dot_program: str) -> None:
    graph = replace(WHOLE, cuts=tuple(Cut(f"kind{number}", (f"w{number}",)) for number in range(7)))
    drawn = json.loads(run_dot(dot_program, graph.to("dot"), "json"))
    places = {node["name"]: tuple(map(float, node["pos"].split(","))) for node in drawn["objects"] if "pos" in node}
    cuts = [places[f"cut{number}"] for number in range(7)]
    last = min(height for name, (_, height) in places.items() if not name.startswith("cut"))
    assert all(height < last for _, height in cuts)
    assert len({height for _, height in cuts}) == 3
    assert re.findall(r"^(\w+) ~~~ (\w+)$", graph.to("mermaid"), re.MULTILINE) == [
        *(("n5", f"c{n}") for n in range(3)), *((f"c{n}", f"c{n + 3}") for n in range(4))
    ]  # fmt: skip


def test_pydot_has_the_same_boxes() -> None:
    from gradir_exporters.dot import to_pydot

    assert {"cut0", "cut1", "cut2"} <= {node.get_name() for node in to_pydot(WHOLE).get_nodes()}


def test_only_a_recorded_forward_draws_more_than_the_unreached_parameters() -> None:
    cuts = (*UNUSED, Cut("hidden", ("secret.weight",)), Cut("unused", ("idle.weight",)))
    noted, bare = replace(WHOLE, cuts=cuts), replace(WHOLE, producer=Producer(), cuts=cuts)
    for name in ("dot", "mermaid", "tree"):
        assert "unreached" in bare.to(name)
        assert bare.to(name) == replace(bare, cuts=tuple(UNUSED)).to(name)
        assert all(kind in noted.to(name) for kind in ("unreached", "hidden", "unused"))
    for name in ("modules", "summary"):
        assert bare.to(name) == replace(bare, cuts=()).to(name)


# Passes.


def test_a_fold_keeps_the_place_of_a_cut() -> None:
    (*_, cut, _) = fold(WHOLE, 1).cuts
    assert (cut.at, cut.into, cut.slot) == ("fc", "head", None)
    (*_, cut, _) = fold(WHOLE, 2).cuts
    assert (cut.at, cut.into, cut.slot) == ("fc/addmm:1", "head/mul:1", 0)


def test_passes_remove_dropped_nodes_from_cuts() -> None:
    def at_into(graph: Graph) -> tuple[str, str, int | None]:
        gradir.dumps(graph)
        (cut,) = graph.cuts
        return cut.at, cut.into, cut.slot

    graph = small(DETACH)
    assert at_into(ancestors(graph, "fc/addmm:1")) == ("fc/addmm:1", "", None)
    assert at_into(focus(graph, "head/mul:1", 0)) == ("", "head/mul:1", 0)
    assert at_into(focus(graph, "head.weight", 0)) == ("", "", None)
    assert at_into(drop(graph, ["function"])) == ("", "", None)
    assert at_into(hide_shape_ops(graph)) == ("fc/addmm:1", "head/mul:1", 0)


def test_a_rollup_renames_them() -> None:
    nodes = [Node("x", "leaf", outputs=(META,))]
    for number in range(3):
        scope, behind = f"h.{number}", nodes[-1].id
        nodes.append(Node(f"{scope}/mul:1", op="mul", scope=scope, inputs=(None, Ref(behind, 0)), outputs=(META,)))
    nodes.append(Node("output", "output", inputs=(Ref(nodes[-1].id, 0),)))
    cuts = [Cut("detach", op="detach", into=f"h.{number}/mul:1", at="x", slot=0) for number in range(3)]
    rolled = rollup(Graph.of(nodes, cuts=cuts))
    assert [cut.into for cut in rolled.cuts] == ["h.0-2/mul:1", "", "h.0-2/mul:1"]
    assert {cut.at for cut in rolled.cuts} == {"x"}
