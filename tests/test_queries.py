"""What one asks of a graph in Python: its neighbours, modules, patterns, saved bytes, and networkx."""

from __future__ import annotations

import io
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable

import msgspec
import networkx as nx
import pytest
import tools
from hypothesis import given
from strategies import graphs

from gradir.errors import GraphError, PassError
from gradir.ir import Graph, Node, Ref, Saved, Scope
from gradir.ir.model import clamp_size
from gradir.ir.totals import sizes, totals
from gradir.passes.fold import fold

CHAIN = Graph.of(
    [
        Node("x", role="leaf"),
        Node(
            "h.0.fc/mul:1",
            op="mul",
            inputs=(Ref("x", 0), None, Ref("x", 0)),
            scope="h.0.fc",
            saved=(Saved("a", bytes=8),),
        ),
        Node("h.10.fc/mul:1", op="mul", inputs=(Ref("h.0.fc/mul:1", 0),), scope="h.10.fc", base="x", names=("wide",)),
        Node("output", role="output", inputs=(Ref("h.10.fc/mul:1", 0),)),
    ],
    [Scope("h.0.fc"), Scope("h.10.fc"), Scope("h.2.drop")],
)


def ids(nodes: tuple[Node, ...]) -> list[str]:
    return [node.id for node in nodes]


def test_each_neighbour_is_listed_once_in_order() -> None:
    assert ids(CHAIN.producers("h.10.fc/mul:1")) == ["h.0.fc/mul:1", "x"]
    assert ids(CHAIN.consumers("x")) == ["h.0.fc/mul:1", "h.10.fc/mul:1"]
    assert ids(CHAIN.producers("x")) == ids(CHAIN.consumers("output")) == []


@pytest.mark.parametrize("asked", [CHAIN.producers, CHAIN.consumers])
def test_an_id_that_no_node_has_is_reported_with_one_like_it(asked: Callable[[str], object]) -> None:
    with pytest.raises(GraphError, match=r"^no node 'h.0.fc/mul:2' \(did you mean 'h.0.fc/mul:1'\?\)$"):
        asked("h.0.fc/mul:2")


@given(graphs())
def test_neighbours_are_those_of_the_edges(graph: Graph) -> None:
    for node_id in graph.nodes:
        assert ids(graph.producers(node_id)) == [*dict.fromkeys(e.src for e in graph.edges if e.dst == node_id)]
        assert ids(graph.consumers(node_id)) == [*dict.fromkeys(e.dst for e in graph.edges if e.src == node_id)]


def test_cached_queries_are_no_part_of_the_graph() -> None:
    asked = Graph.of(CHAIN.nodes.values(), CHAIN.scopes.values())
    assert asked.consumers("x")
    assert asked == CHAIN
    assert ids(msgspec.structs.replace(asked, nodes={"x": CHAIN.nodes["x"]}).consumers("x")) == []


def test_a_module_is_asked_for_with_those_below_it() -> None:
    assert ids(CHAIN.in_scope("h")) == ["h.0.fc/mul:1", "h.10.fc/mul:1"]
    assert ids(CHAIN.in_scope("h.0")) == ["h.0.fc/mul:1"]
    assert ids(CHAIN.in_scope("")) == [*CHAIN.nodes]
    assert CHAIN.in_scope("h.2") == CHAIN.in_scope("h.2.drop") == ()


@pytest.mark.parametrize("path", ["h.1", "h.0.fx", "x"])
def test_a_module_that_is_not_there_is_refused(path: str) -> None:
    with pytest.raises(GraphError, match=f"^no module '{path}'"):
        CHAIN.in_scope(path)


def test_a_pattern_is_that_of_the_passes_and_a_function_is_asked_node_by_node() -> None:
    assert ids(CHAIN.select("*/mul:1")) == ["h.0.fc/mul:1", "h.10.fc/mul:1"]
    assert ids(CHAIN.select("wide")) == ["h.10.fc/mul:1"]
    assert ids(CHAIN.select(lambda node: node.role == "leaf")) == ["x"]
    assert CHAIN.select(lambda node: node.op == "no such") == ()
    with pytest.raises(PassError, match="no node, name or module with nodes matches"):
        CHAIN.select("no such")


@given(graphs())
def test_saved_bytes_add_up_to_the_total(graph: Graph) -> None:
    for by in ("scope", "op", "node"):
        assert clamp_size(sum(graph.saved_bytes(by).values())) == totals(graph).saved_bytes


@given(graphs())
def test_saved_bytes_of_a_module_are_those_of_the_diff(graph: Graph) -> None:
    assert graph.saved_bytes() == {
        path: size.saved_bytes for path, size in sizes(graph.nodes.values()).items() if size.saved_bytes
    }


def test_a_folded_module_has_its_bytes() -> None:
    assert fold(CHAIN, 2).saved_bytes("node") == {"h.0": 8}


def test_other_accounts_are_refused() -> None:
    with pytest.raises(ValueError, match="saved bytes are counted by scope, op, node, not by 'dtype'"):
        CHAIN.saved_bytes("dtype")  # type: ignore[arg-type]


@given(graphs())
def test_networkx_has_all_nodes_and_edges(graph: Graph) -> None:
    linked = graph.to_networkx()
    assert list(linked) == [*graph.nodes]
    ends = [(e.src, e.dst, e.input_nr, e.output_nr, e.kind) for e in graph.edges]
    found = [(src, dst, of["input_nr"], of["output_nr"], of["kind"]) for src, dst, of in linked.edges(data=True)]
    assert sorted(found) == sorted(ends)


@given(graphs())
def test_networkx_takes_the_usual_next_steps(graph: Graph) -> None:
    linked = graph.to_networkx()
    edges = [*linked.edges(keys=True)]
    forms = [(nx.write_gml, nx.read_gml)]
    if not re.search(r"\\u(00|d|ff)", graph.to("nodelink")):
        # XML cannot hold control characters.
        forms += [(nx.write_graphml, nx.read_graphml), (nx.write_gexf, nx.read_gexf)]
    for write, read in forms:
        written = io.BytesIO()
        write(linked, written)
        again = read(io.BytesIO(written.getvalue()))
        assert {str(each).strip('"') for each in again} == {*graph.nodes}
        assert again.number_of_edges() == len(edges)
    drawn = nx.nx_pydot.to_pydot(linked)
    assert len({node.get_name() for node in drawn.get_nodes()}) == len(linked)
    assert len(drawn.get_edges()) == len(edges)
    again = nx.node_link_graph(json.loads(json.dumps(nx.node_link_data(linked, edges="edges"))), edges="edges")
    assert [*again] == [*linked]
    assert [*again.edges(keys=True)] == edges
    assert pickle.loads(pickle.dumps(linked)).nodes == linked.nodes


def test_networkx_has_the_ids_and_plain_values() -> None:
    linked = CHAIN.to_networkx()
    for node_id, node in CHAIN.nodes.items():
        assert linked.nodes[node_id]["role"] == node.role
        assert str(next(each for each in linked if each == node_id)).strip('"') == node_id
    for _, of in linked.nodes(data=True):
        assert {type(value) for value in of.values()} <= {str, int, float, bool}
        assert type(json.loads(of.get("outputs", "[]"))) is list


def test_graphviz_lays_out_the_graph_of_networkx() -> None:
    tools.require("dot")
    graph = Graph.of(
        [Node("x"), Node("mul:1", inputs=(Ref("x", 0), Ref("x", 0))), Node("mul:2", inputs=(Ref("x", 0),))]
    )
    places = nx.nx_pydot.graphviz_layout(graph.to_networkx(), prog="dot")
    assert [*places] == ["x", "mul:1", "mul:2"]
    assert len({*places.values()}) == 3


def test_without_networkx_it_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['networkx'] = None; import gradir\n"
        "try: gradir.Graph.of([]).to_networkx()\n"
        "except gradir.GradirError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout == "networkx is not installed: pip install 'gradir[networkx]'\n"


def test_a_graph_of_many_nodes_is_asked_in_linear_time() -> None:
    count = 100_000
    graph = Graph.of([Node("n0"), *(Node(f"n{i}", inputs=(Ref(f"n{i - 1}", 0),)) for i in range(1, count))])
    assert all(ids(graph.consumers(f"n{i}")) == [f"n{i + 1}"] for i in range(count - 1))
    assert json.dumps(graph.saved_bytes()) == "{}"
