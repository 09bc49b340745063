"""Trees as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from gradir_exporters.tree import TreeExporter, TreeOptions
from hypothesis import given
from hypothesis import strategies as st
from samples import HOSTILE_LABELS, chain, everything, hostile
from strategies import graphs

import gradir
from gradir.ir import Builder, Graph, Node, Ref, TensorMeta

META = (TensorMeta("float32", (1,)),)


def tree(graph: Graph, **options: Any) -> str:
    return TreeExporter().export(graph, TreeOptions(**options))


class Row(NamedTuple):
    depth: int
    prefix: str
    branch: str
    is_base: bool
    id: str | None
    output_nr: int
    rest: str
    is_relative: bool


class Child(NamedTuple):
    id: str | None
    output_nr: int = 0
    is_base: bool = False


LINE = re.compile(
    r"(?P<prefix>(?:│  |   )*)(?P<branch>[├└]─ )?(?P<view>view of )?"
    r'(?P<name>"(?:[^"\\]|\\.)*"|[A-Za-z0-9_.:/%~+*@-]+)(?:\[(?P<nr>\d+)\])?(?P<rest>.*)'
)


def rows_of(text: str) -> list[Row]:
    lines = text.split("\n")
    assert lines.pop() == ""
    rows = []
    for line in lines:
        match = LINE.fullmatch(line)
        assert match is not None, line
        name = match["name"]
        node_id = None if name == "None" else json.loads(name) if name.startswith('"') else name
        depth = len(match["prefix"]) // 3 + (match["branch"] is not None)
        branch, is_base = match["branch"] or "", match["view"] is not None
        is_relative = name.startswith(".")
        rows.append(
            Row(depth, match["prefix"], branch, is_base, node_id, int(match["nr"] or 0), match["rest"], is_relative)
        )
    return rows


def resolved(relative: str | None, above: str) -> str:
    """The whole id of what stands under another, written from there."""
    assert relative is not None
    rest = relative.lstrip(".")
    path, slash, _ = above.partition("/")
    parts = path.split(".") if slash else path.split(".")[:-1]
    up = len(relative) - len(rest) - 1
    kept = ".".join(parts[: len(parts) - up])
    assert kept
    return kept + ("" if rest.startswith("/") else ".") + rest


def check_connectors(rows: list[Row]) -> None:
    """Each branch says whether a sibling follows, and each level to its left whether that ancestor has one."""
    above: list[Row] = []
    for number, row in enumerate(rows):
        del above[row.depth :]
        assert len(above) == row.depth
        rest = [later.depth for later in rows[number + 1 :]]
        ended = next((place for place, depth in enumerate(rest) if depth < row.depth), len(rest))
        has_sibling = row.depth > 0 and row.depth in rest[:ended]
        assert row.branch == ("" if row.depth == 0 else "├─ " if has_sibling else "└─ ")
        assert row.prefix == "".join("│  " if ancestor.branch == "├─ " else "   " for ancestor in above[1:])
        above.append(row)


class Reading:
    """What a tree says: its roots, the children of each node, and the label that each node has where it is drawn."""

    def __init__(self, text: str) -> None:
        rows = rows_of(text)
        check_connectors(rows)
        self.depth = max((row.depth for row in rows), default=0)
        self.roots: list[str] = []
        self.labels: dict[str, str] = {}
        self.children: dict[str, list[Child]] = {}
        self._promised: set[str] = set()
        open_ids: list[str | None] = []
        for written in rows:
            row = written
            del open_ids[row.depth :]
            if row.depth:
                parent = open_ids[-1]
                assert parent is not None
                if row.is_relative:
                    row = row._replace(id=resolved(row.id, parent))
                self.children[parent].append(Child(row.id, row.output_nr, row.is_base))
            is_expanded = row.id is not None and self._is_expanded(row.id, row)
            if is_expanded:
                assert row.id is not None
                assert row.id not in self.children
                self.children[row.id] = []
            open_ids.append(row.id if is_expanded else None)
        assert not self._promised

    def _is_expanded(self, node_id: str, row: Row) -> bool:
        if row.rest == " (see above)":
            assert node_id in self.children
            return False
        if row.rest == " (see below)":
            assert node_id in self._promised
            return False
        if row.rest == " (continued)":
            assert row.depth == 0
            self._promised.remove(node_id)
            return True
        assert node_id not in self.labels
        self.labels[node_id] = row.rest
        if row.rest.endswith(" (continued below)"):
            self._promised.add(node_id)
            return False
        self.roots += [node_id] * (row.depth == 0)
        return True


def children_of(node: Node) -> list[Child]:
    found = [Child(None) if ref is None else Child(ref.id, ref.output_nr) for ref in node.inputs]
    return found if node.base is None else [*found, Child(node.base, 0, True)]


def roots_of(graph: Graph) -> list[str]:
    drawn = [node for node in graph.nodes.values() if node.role != "buffer"]
    used = {child.id for node in drawn for child in children_of(node)}
    outputs = [node.id for node in drawn if node.role == "output"]
    return outputs + [node.id for node in drawn if node.id not in used and node.role != "output"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("everything", {}),
        ("everything-ascii-native", {"style": "ascii", "native": True}),
        ("everything-bold", {"style": "bold", "shapes": False}),
        ("everything-depth-2", {"style": "rounded", "max_depth": 2}),
    ],
)
def test_everything_has_a_golden(golden: Callable[[str, str], None], name: str, options: dict[str, Any]) -> None:
    golden(f"tree/{name}.txt", tree(everything(), **options))


def test_it_is_registered_with_its_options() -> None:
    assert gradir.export(everything(), "tree") == tree(everything())
    assert gradir.export(everything(), "tree", style="ascii", max_depth="3") == tree(
        everything(), style="ascii", max_depth=3
    )
    for options in ({"style": "curly"}, {"max_depth": 0}, {"max_depth": 1001}, {"deep": 1}):
        with pytest.raises(gradir.ExportError):
            gradir.export(everything(), "tree", **options)


@given(graphs(), st.integers(1, 8))
def test_every_graph_reads_back_from_its_tree(graph: Graph, max_depth: int) -> None:
    reading = Reading(tree(graph, max_depth=max_depth))
    drawn = {node.id: children_of(node) for node in graph.nodes.values() if node.role != "buffer"}
    assert reading.children == drawn
    assert reading.roots == roots_of(graph)
    assert reading.depth <= max_depth


@given(graphs(), st.integers(1, 8))
def test_one_line_per_node_per_edge_and_per_section(graph: Graph, max_depth: int) -> None:
    lines = tree(graph, max_depth=max_depth).splitlines()
    drawn = [node for node in graph.nodes.values() if node.role != "buffer"]
    sections = sum(line.endswith(" (continued)") for line in lines)
    assert len(lines) == len(roots_of(graph)) + sum(len(children_of(node)) for node in drawn) + sections


@given(graphs())
def test_styles_differ_in_the_branches_only(graph: Graph) -> None:
    unicode = tree(graph)
    drawn = {
        "ascii": str.maketrans({"├": "|", "└": "`", "─": "-", "│": "|"}),
        "rounded": str.maketrans({"└": "╰"}),
        "bold": str.maketrans({"├": "┣", "└": "┗", "─": "━", "│": "┃"}),
    }
    for style, table in drawn.items():
        branches = [re.match("[├└─│ ]*", line) for line in unicode.splitlines()]
        styled = tree(graph, style=style).splitlines()
        for match, line in zip(branches, styled, strict=True):
            assert match is not None
            assert line == match[0].translate(table) + match.string[match.end() :]


def test_a_label_says_what_the_options_ask_for() -> None:
    b = Builder()
    weight = b.tensor("fc.weight", TensorMeta("float32", (4, 3)), role="parameter")
    halves = b.function("split", [weight], [TensorMeta("f", (2,)), TensorMeta("g", None)], native="SplitBackward0")
    b.output(b.function("mul", [halves, halves.output(1)], META, native="MulBackward0", names=["y z", "w"]))
    graph = b.build()
    assert tree(graph) == (
        "output float32[1]\n"
        '└─ mul:1 float32[1] named "y z", w\n'
        "   ├─ split:1 f[2]\n"
        "   │  └─ fc.weight parameter float32[4, 3]\n"
        "   └─ split:1[1] (see above)\n"
    )
    assert tree(graph, shapes=False, native=True) == (
        "output\n"
        '└─ mul:1 MulBackward0 named "y z", w\n'
        "   ├─ split:1 SplitBackward0\n"
        "   │  └─ fc.weight parameter\n"
        "   └─ split:1[1] (see above)\n"
    )


def test_ids_are_written_from_the_node_they_are_under() -> None:
    nodes = [Node(id_, role="parameter") for id_ in ("h.0.fc.weight", "h.0.fc.bias", "h.1.gain", "..fc", "other.w")]
    nodes.append(Node("h.0.fc/mm:1", inputs=tuple(Ref(node.id, 0) for node in nodes[:2])))
    nodes.append(Node("h.0/add:1", inputs=(Ref("h.0.fc/mm:1", 0), *(Ref(node.id, 0) for node in nodes[1:5]))))
    text = tree(Graph.of([*nodes, Node("h.0/tanh:1", inputs=(Ref("h.0/add:1", 0),))]), shapes=False)
    assert text == (
        "h.0/tanh:1\n"
        "└─ ./add:1\n"
        "   ├─ .fc/mm:1\n"
        "   │  ├─ .weight parameter\n"
        "   │  └─ .bias parameter\n"
        "   ├─ h.0.fc.bias (see above)\n"
        "   ├─ ..1.gain parameter\n"
        '   ├─ "..fc" parameter\n'
        "   └─ other.w parameter\n"
    )
    assert set(Reading(text).children) == {node.id for node in nodes} | {"h.0/tanh:1"}


@given(st.integers(1, 3), st.data())
def test_every_relative_id_leads_back_to_the_whole_one(max_depth: int, data: st.DataObject) -> None:
    ids = st.lists(st.text(st.sampled_from("ab./"), min_size=1, max_size=8), min_size=1, max_size=6, unique=True)
    nodes: list[Node] = []
    for id_ in data.draw(ids):
        nodes.append(Node(id_, inputs=tuple(Ref(node.id, 0) for node in nodes[-2:])))
    graph = Graph.of(nodes)
    drawn = {node.id: children_of(node) for node in nodes}
    assert Reading(tree(graph, max_depth=max_depth)).children == drawn
    assert Reading(tree(graph, max_depth=max_depth, paths="whole")).children == drawn


def test_a_node_waiting_for_its_section_is_seen_below() -> None:
    nodes = [Node("x", role="leaf"), Node("a:1", inputs=(Ref("x", 0),)), Node("b:1", inputs=(Ref("a:1", 0),))]
    nodes.append(Node("output", role="output", inputs=(Ref("b:1", 0), Ref("a:1", 0))))
    assert tree(Graph.of(nodes), max_depth=2) == (
        "output\n├─ b:1\n│  └─ a:1 (continued below)\n└─ a:1 (see below)\na:1 (continued)\n└─ x leaf\n"
    )


def test_unreached_nodes_are_roots_of_the_tree_except_buffers() -> None:
    nodes = [Node("mean", role="buffer"), Node("x", role="leaf"), Node("a:1", inputs=(Ref("x", 0),)), Node("y")]
    assert tree(Graph.of(nodes)) == "a:1\n└─ x leaf\ny\n"
    assert tree(Graph.of([])) == tree(Graph.of(nodes[:1])) == "(no nodes to show)\n"


def test_hostile_text_stays_on_its_line_and_cannot_pose_as_a_mark() -> None:
    for graph in (hostile(), _spoof()):
        for options in ({}, {"native": True, "max_depth": 3}):
            text = tree(graph, **options)
            assert text.splitlines() == text.split("\n")[:-1]
            assert all(line.isprintable() for line in text.splitlines())
            assert set(Reading(text).children) == set(graph.nodes)
    assert any(not label.isprintable() for label in HOSTILE_LABELS)


def _spoof() -> Graph:
    ids = ["None", "x (see above)", "y (continued)", "└─ z", 'q"[1]', "back\\slash", "leaf parameter"]
    refs = tuple(Ref(node_id, 0) for node_id in ids)
    return Graph.of([*(Node(node_id, role="leaf") for node_id in ids), Node("f:1", inputs=(*refs, None))])


def test_a_deep_chain_is_neither_recursive_nor_quadratic() -> None:
    sizes = [len(tree(chain(length))) for length in (10_000, 20_000)]
    assert 1.9 < sizes[1] / sizes[0] < 2.1


def test_shared_nodes_are_drawn_once() -> None:
    nodes = [Node("x", role="leaf")]
    for number in range(1, 5_001):
        before = Ref(nodes[-1].id, 0)
        nodes.append(Node(f"add:{number}", op="add", inputs=(before, before)))
    assert tree(Graph.of(nodes)).count("(see ") == 5_000


def test_it_shows_what_a_recursive_print_of_next_functions_shows() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
    x = torch.ones(2, 3)
    loss = (model(x) * model(model(x))).split(1)[1].sum()

    def walk(function: Any, depth: int) -> list[tuple[int, str | None]]:
        found: list[tuple[int, str | None]] = [(depth, None if function is None else type(function).__name__)]
        for child, _ in () if function is None else function.next_functions:
            found += walk(child, depth + 1)
        return found

    graph = gradir.capture(loss, model=model)
    reading = Reading(tree(graph, native=True, shapes=False, max_depth=3))

    def expand(child: Child, depth: int) -> list[tuple[int, str | None]]:
        if child.id is None:
            return [(depth, None)]
        if graph.nodes[child.id].role != "function":
            return []
        found: list[tuple[int, str | None]] = [(depth, reading.labels[child.id].split()[0])]
        for under in reading.children[child.id]:
            found += expand(under, depth + 1)
        return found

    assert reading.roots == ["output"]
    assert expand(reading.children["output"][0], 0) == walk(loss.grad_fn, 0)


def test_the_tree_runs_from_leaves_to_their_readers() -> None:
    b = Builder()
    x = b.tensor("x", TensorMeta())
    split = b.function("split", [x], [TensorMeta(), TensorMeta()])
    b.output(b.function("mul", [split, split.output(1)], [TensorMeta()]), base=x)
    assert tree(b.build(), shapes=False, start="leaves") == (
        "x leaf\n├─ split:1\n│  ├─ mul:1\n│  │  └─ output\n│  └─ [1] mul:1 (see above)\n└─ base of output (see above)\n"
    )


@given(graphs())
def test_from_the_leaves_every_node_is_shown_once(graph: Graph) -> None:
    text = tree(graph, start="leaves", shapes=False)
    shown = [line for line in text.splitlines() if not line.endswith((" (see above)", " (see below)", " (continued)"))]
    idle = {node.id for node in graph.nodes.values() if node.role == "buffer"} - {edge.src for edge in graph.edges}
    assert len(shown) == max(len(graph.nodes) - len(idle), 1)


def test_an_input_that_a_pass_left_out_is_no_missing_gradient() -> None:
    graph = Graph.of([Node("f:1", op="f", inputs=(None, None), ext={"elided_inputs": (1,)})])
    assert tree(graph) == "f:1\n├─ None\n└─ …\n"


def test_long_chains_from_the_leaves() -> None:
    assert tree(chain(50_000), start="leaves").count("\n") >= 50_000
