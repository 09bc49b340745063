"""Where gradient ends in a recorded forward: in files, passes, pictures and diffs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dot_pictures import run_dot
from hostile_texts import HOSTILE_TEXTS
from msgspec.structs import replace
from reports import findings

import gradir
from gradir import pictures
from gradir.cli import main
from gradir.diffs import diff_json
from gradir.diffs.compare import compare
from gradir.ir import Cut, Graph, Node, Producer, Ref, Scope, Source, TensorMeta
from gradir.ir.cuts import FLOW, cut_text, stubs
from gradir.passes import ancestors, drop, focus, fold, hide_shape_ops, rollup
from gradir.review.comparison import Comparison
from gradir.review.conditions import parsed
from gradir.review.headline import headline

META = (TensorMeta("float32", (3,)),)
DETACH = Cut(
    "detach",
    ("fc.weight", "fc.bias"),
    "fc",
    META[0],
    "detach",
    Source("net.py", 41, "Net.forward"),
    at="fc/addmm:1",
    into="head/mul:1",
    slot=0,
)
NO_GRAD = Cut("no_grad", ("teacher.weight",), "teacher", META[0], "mul", Source("net.py", 45), Source("lib.py", 7))
UNUSED = [Cut("unreached", (f"unused.{name}",), "unused", META[0]) for name in ("weight", "bias")]


def small(*cuts: Cut) -> Graph:
    """A detach beside an undetached branch, a branch under no_grad and an unused module."""
    nodes = [
        Node("fc.weight", "parameter", names=("fc.weight",), scope="fc", outputs=META),
        Node(
            "fc/addmm:1", op="addmm", native="AddmmBackward0", scope="fc", inputs=(Ref("fc.weight", 0),), outputs=META
        ),
        Node("head.weight", "parameter", names=("head.weight",), scope="head", outputs=META),
        Node(
            "head/mul:1",
            op="mul",
            native="MulBackward0",
            scope="head",
            inputs=(None, Ref("head.weight", 0)),
            outputs=META,
        ),
        Node(
            "add:1",
            op="add",
            native="AddBackward0",
            inputs=(Ref("fc/addmm:1", 0), Ref("head/mul:1", 0)),
            outputs=META,
        ),
        Node("output", "output", inputs=(Ref("add:1", 0),), outputs=META),
    ]
    scopes = [Scope("", "Net"), *(Scope(path, "Linear") for path in ("fc", "head", "teacher", "unused"))]
    return Graph.of(nodes, scopes, cuts, Producer(options={FLOW: True}))


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
def test_what_is_no_cut_is_not_saved(form: str, cut: Cut) -> None:
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


def test_what_has_no_place_stands_below_the_output(dot_program: str) -> None:
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


def test_a_fold_keeps_where_a_cut_is() -> None:
    (*_, cut, _) = fold(WHOLE, 1).cuts
    assert (cut.at, cut.into, cut.slot) == ("fc", "head", None)
    (*_, cut, _) = fold(WHOLE, 2).cuts
    assert (cut.at, cut.into, cut.slot) == ("fc/addmm:1", "head/mul:1", 0)


def test_what_leaves_nodes_out_leaves_them_out_of_cuts() -> None:
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
    nodes = [Node("x", "leaf", outputs=META)]
    for number in range(3):
        scope, behind = f"h.{number}", nodes[-1].id
        nodes.append(Node(f"{scope}/mul:1", op="mul", scope=scope, inputs=(None, Ref(behind, 0)), outputs=META))
    nodes.append(Node("output", "output", inputs=(Ref(nodes[-1].id, 0),)))
    cuts = [Cut("detach", op="detach", into=f"h.{number}/mul:1", at="x", slot=0) for number in range(3)]
    rolled = rollup(Graph.of(nodes, cuts=cuts))
    assert [cut.into for cut in rolled.cuts] == ["h.0-2/mul:1", "", "h.0-2/mul:1"]
    assert {cut.at for cut in rolled.cuts} == {"x"}


# Diffs.


def moved(cut: Cut, line: int, **fields: Any) -> Cut:
    return replace(cut, source=Source("net.py", line, "Net.forward"), **fields)


def said(before: Graph, after: Graph) -> str:
    return headline(Comparison(before, after))


def test_a_new_detach_is_the_first_that_is_said() -> None:
    before, after = small(NO_GRAD), small(DETACH, NO_GRAD)
    assert said(before, after) == "a new cut: detach at net.py:41 (2 parameters); +1 -0 ~0 cuts; +0 -0 ~0 nodes"
    text = gradir.diff(before, after).to("text")
    assert "+ cut detach at net.py:41: fc.weight, fc.bias\n" in text
    report = gradir.diff(before, after).to("markdown")
    assert "**Cuts:** a new cut: `detach at net.py:41 (2 parameters)`  \n" in report
    assert "**Cuts:** a cut less: `detach at net.py:41 (2 parameters)`" in gradir.diff(after, before).to("markdown")
    assert "new cut" not in said(after, before)


@pytest.mark.parametrize(("first", "nth"), [(True, "second"), (False, "first")])
def test_places_that_were_noted_of_one_side_alone_are_no_news(first: bool, nth: str) -> None:
    noted, bare = small(DETACH, NO_GRAD), replace(small(), producer=Producer())
    sides = (noted, bare) if first else (bare, noted)
    diff = gradir.diff(*sides)
    assert [(change.subject, change.id) for change in diff.changes] == [("graph", "flow")]
    text = diff.to("text").splitlines()
    assert text[:2] == [
        "+0 -0 ~0 nodes",
        f"without flow: the {nth} graph (no --flow), so no place where gradient ends is known to be new or gone",
    ]
    assert f"**Without flow:** `the {nth} graph (no --flow)" in diff.to("markdown")
    assert "a new cut" not in diff.to("markdown")
    assert list(findings(gradir.diff(*sides), sides, parsed("cuts,cuts>0,nodes"))) == []
    assert not gradir.diff(*sides, ignore=["cuts"])
    assert gradir.patch(sides[0], diff).cuts == sides[1].cuts
    # A diff without its graphs has the change alone.
    assert "~ flow" in diff_json.decode(diff_json.encode(diff)).to("text")


def test_a_parameter_that_lost_its_gradient_is_news_without_the_flow_of_the_other_side_too() -> None:
    noted, bare = small(DETACH, Cut("unreached", ("fc.bias",))), replace(small(), producer=Producer())
    assert said(bare, noted) == "+1 -0 ~0 cuts; +0 -0 ~0 nodes"
    assert [finding.text for finding in findings(compare(bare, noted), (bare, noted), parsed("cuts"))] == [
        "cuts: 0 -> 1, 1 parameter now gets no gradient"
    ]
    # Whoever made a graph with places knows them, whatever made it.
    assert "a new cut: detach" in said(replace(small(NO_GRAD), producer=Producer()), noted)


def test_a_line_that_moves_is_no_change() -> None:
    before = small(DETACH, NO_GRAD)
    after = small(moved(DETACH, 97), replace(NO_GRAD, via=Source("lib.py", 9), into="add:1"))
    assert not gradir.diff(before, after)
    assert gradir.patch(before, gradir.diff(before, after)) == after


def test_of_equal_detaches_the_new_one_is_new() -> None:
    before = small(moved(DETACH, 10), moved(DETACH, 30))
    after = small(moved(DETACH, 10), moved(DETACH, 20), moved(DETACH, 30))
    (change,) = gradir.diff(before, after).changes
    assert (change.kind, change.cut) == ("added", moved(DETACH, 20))
    (change,) = gradir.diff(after, before).changes
    assert (change.kind, change.cut) == ("removed", moved(DETACH, 20))


def test_a_detach_of_other_parameters_is_another() -> None:
    before, after = small(DETACH), small(replace(DETACH, names=("fc.weight", "fc.bias", "stem.weight")))
    assert [change.kind for change in gradir.diff(before, after).changes] == ["removed", "added"]
    assert said(before, after).startswith("a new cut: detach at net.py:41 (3 parameters)")


def test_a_module_with_another_name_is_no_new_cut() -> None:
    before = small(DETACH)
    renamed = gradir.dumps(before).replace(b'"fc', b'"linear').replace(b'"in":[["fc', b'"in":[["linear')
    after = gradir.loads(renamed)
    assert after.cuts[0].names == ("linear.weight", "linear.bias")
    found = gradir.diff(before, after)
    assert [change for change in found.changes if change.subject == "cut"] == []


def test_a_parameter_called_as_a_kind_is_no_place() -> None:
    before, after = small(Cut("unreached", ("detach",))), small(replace(DETACH, names=()))
    found = [change for change in gradir.diff(before, after).changes if change.subject == "cut"]
    assert [(change.kind, change.what) for change in found] == [("removed", "unreached"), ("added", "detach")]


@pytest.mark.parametrize(
    ("before", "after", "condition", "texts", "fails"),
    [
        ([], [DETACH], "cuts", ["cuts: 0 -> 1, a new cut: detach at net.py:41 (2 parameters)"], True),
        ([], [DETACH, NO_GRAD], "cuts>1", [
            "cuts>1: 0 -> 2, 2 new cuts: detach at net.py:41 (2 parameters), and 1 more"
        ], True),
        ([], [DETACH], "cuts>1", [], False),
        ([], [DETACH], "nodes>0", [
            "a new cut: detach at net.py:41 (2 parameters); --fail-on cuts fails on that"
        ], False),
        ([], [replace(DETACH, meant="straight-through")], "cuts", [], False),
        ([], [replace(DETACH, meant="straight-through")], "cuts>0,nodes>0", [], False),
        ([replace(DETACH, meant="straight-through")], [DETACH], "cuts>0", [
            "cuts>0: 0 -> 1, a new cut: detach at net.py:41 (2 parameters)"
        ], True),
        ([DETACH], [moved(DETACH, 7)], "cuts,nodes", [], False),
        ([DETACH], [NO_GRAD], "cuts>0", ["cuts>0: 1 -> 1, a new cut: no_grad (mul) at net.py:45 (1 parameter)"], True),
    ],
)  # fmt: skip
def test_a_condition_on_cuts_counts_what_nothing_means(
    before: list[Cut], after: list[Cut], condition: str, texts: list[str], fails: bool
) -> None:
    sides = small(*before), small(*after)
    found = list(findings(compare(*sides), sides, parsed(condition)))
    assert [finding.text for finding in found] == texts
    assert any(finding.fails for finding in found) == fails


def test_a_diff_in_a_file_has_the_cut() -> None:
    found = gradir.diff(small(), small(DETACH))
    assert diff_json.decode(diff_json.encode(found)) == found
    broken = diff_json.encode(found).replace(b'"line": 41', b'"line": -41')
    with pytest.raises(gradir.FormatError):
        diff_json.decode(broken)


def test_hostile_cuts_in_a_diff_act_on_no_terminal() -> None:
    for text in [*HOSTILE_TEXTS.values(), "x" * 1_000_000]:
        hostile = Cut(text or "detach", (text, text), text, None, text or "op", Source(text, 1, text), meant="")
        for shown in (said(small(), small(hostile)), gradir.diff(small(), small(hostile)).to("text")):
            assert all(char.isprintable() or char == "\n" for char in shown)
            assert len(shown) < 3000


def test_the_command_line_fails_on_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("a.gir", "b.gir")]
    for path, graph in zip(files, (small(NO_GRAD), small(NO_GRAD, DETACH)), strict=True):
        gradir.save(graph, path)
    assert main(["diff", *files, "--fail-on", "cuts"]) == 1
    captured = capfd.readouterr()
    assert captured.out.startswith("a new cut: detach at net.py:41 (2 parameters); ")
    assert captured.err == "gradir: cuts: 1 -> 2, a new cut: detach at net.py:41 (2 parameters)\n"
    assert main(["info", files[1]]) == 0
    assert "detach at net.py:41: fc.weight, fc.bias" in capfd.readouterr().out
