"""The stages of a pipeline as one graph, of ranks made by hand."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from msgspec.structs import replace

import gradir
from gradir.cli import main
from gradir.distributed.linking import link_pipeline
from gradir.ir import Builder, Collective, Cut, Graph, Rank, Ref, Saved, Scope, TensorMeta
from gradir.ir.validate import check_all

META = TensorMeta("float32", (2, 4))


def stage(*, receives: int = 0, sends: int = 1, meta: TensorMeta = META, names: str = "") -> Graph:
    """A module that adds what it receives to its parameter, with so many leaves and outputs."""
    b = Builder()
    value = b.tensor("fc.w", meta, role="parameter", scope="fc")
    for number in range(receives):
        leaf = b.tensor(f"{names or 'x'}{number}", meta)
        value = b.function("add", [value, leaf], [meta], scope="fc")
    for number in range(sends):
        b.output(b.function("mul", [value], [meta]), f"{names or 'y'}{number}")
    return b.build(scopes=[Scope("", "Net", total=8), Scope("fc", "Linear", total=8)])


def message(op: str, peer: int, meta: TensorMeta = META, group: str = "world", phase: str = "forward") -> Collective:
    return Collective(phase, op, group, peer, tensors=(meta,))


def pipeline(graphs: list[Graph], *, microbatches: int = 2, staged: bool = True) -> list[Graph]:
    """Ranks that each hand on to the next, forward and back, as often as there are microbatches."""
    world = len(graphs)
    made = []
    for rank, graph in enumerate(graphs):
        issued: list[Collective] = []
        for _ in range(microbatches):
            issued += [message("recv", rank - 1)] if rank else []
            issued += [message("send", rank + 1)] if rank + 1 < world else []
        for _ in range(microbatches):
            issued += [message("recv", rank + 1)] if rank + 1 < world else []
            issued += [message("send", rank - 1)] if rank else []
        more = {"stage": rank, "stages": world, "microbatches": microbatches} if staged else {}
        record = Rank(rank, world, groups={"world": tuple(range(world))}, **more)
        made.append(replace(graph, rank=record, collectives=tuple(issued)))
    return made


def usual(world: int = 3) -> list[Graph]:
    return [stage(receives=min(rank, 1)) for rank in range(world)]


def links(graph: Graph) -> list[tuple[str, str]]:
    return [(edge.src, edge.dst) for edge in graph.edges if graph.nodes[edge.dst].op == "recv"]


@pytest.mark.parametrize(("staged", "name"), [(True, "stage"), (False, "rank")])
def test_each_stage_is_a_module_that_hands_on_to_the_next(staged: bool, name: str) -> None:
    graph, count, troubles = link_pipeline(pipeline(usual(), staged=staged))
    check_all(graph)
    assert (count, troubles) == (2, ())
    assert links(graph) == [(f"{name}{rank}/send:1", f"{name}{rank + 1}/recv:1") for rank in range(2)]
    assert dict(graph.nodes[f"{name}1/send:1"].attrs) == {"dst": 2, "group": "world", "messages": 2}
    assert dict(graph.nodes[f"{name}1/recv:1"].attrs) == {"group": "world", "messages": 2, "src": 0}
    assert [node.id for node in graph.outputs] == [f"{name}2/output:y0"]
    assert [node.id for node in graph.nodes.values() if node.role == "leaf"] == []
    assert {path: scope.total for path, scope in graph.scopes.items()} == {
        "": 24,
        **{f"{name}{rank}{below}": 8 for rank in range(3) for below in ("", ".fc")},
    }
    assert graph.nodes[f"{name}1.fc.w"].names == (f"{name}1.fc.w",)
    assert (graph.rank, graph.collectives) == (None, ())
    # The order in which files are given makes no difference.
    assert gradir.dumps(gradir.link(reversed(pipeline(usual(), staged=staged)))) == gradir.dumps(graph)


def test_cuts_storages_and_origins_are_those_of_their_stage() -> None:
    plain = pipeline(usual(2))
    nodes = []
    for node in plain[1].nodes.values():
        if node.op == "add":
            leaf = next(id_ for id_, each in plain[1].nodes.items() if each.role == "leaf")
            slots = (Saved("self", "float32", (2, 4), 32, Ref(leaf, 0), leaf), Saved("own", storage=f"{node.id}.own"))
            nodes.append(replace(node, saved=slots))
        else:
            nodes.append(node)
    cut = Cut("detach", ("fc.w",), "fc", op="detach", at="fc.w", into="fc/add:1")
    second = Graph.of(nodes, plain[1].scopes.values(), [cut], rank=plain[1].rank, collectives=plain[1].collectives)
    graph = gradir.link([plain[0], second])
    first, own = graph.nodes["stage1.fc/add:1"].saved
    assert (first.origin, first.storage) == (Ref("stage1/recv:1", 0), "stage1/recv:1")
    assert own.storage == "stage1.fc/add:1.own"
    (found,) = graph.cuts
    assert (found.names, found.scope) == (("stage1.fc.w",), "stage1.fc")
    assert (found.at, found.into) == ("stage1.fc.w", "stage1.fc/add:1")


def test_a_function_that_has_the_name_of_a_link_keeps_it() -> None:
    graphs = pipeline(usual(2))
    nodes = [replace(node, id="send:1") if node.id == "mul:1" else node for node in graphs[0].nodes.values()]
    nodes = [
        replace(
            node, inputs=tuple(replace(ref, id="send:1") if ref and ref.id == "mul:1" else ref for ref in node.inputs)
        )
        for node in nodes
    ]
    graph = gradir.link([replace(graphs[0], nodes={node.id: node for node in nodes}), graphs[1]])
    assert links(graph) == [("stage0/send:1~2", "stage1/recv:1")]
    assert graph.nodes["stage0/send:1"].op == "mul"


def told(graphs: list[Graph]) -> tuple[str, ...]:
    return link_pipeline(graphs).troubles


def test_unmatched_messages_are_reported_and_not_linked() -> None:
    whole = pipeline(usual(4))
    assert told(whole[:3]) == (
        "2 messages from rank 2 to rank 3 on world cannot be matched: rank 3 has no file",
        "2 messages from rank 3 to rank 2 on world cannot be matched: rank 3 has no file",
        "stage 3 is not linked, and not drawn",
    )
    one = replace(whole[1], collectives=whole[1].collectives[1:])
    found = told([whole[0], one, *whole[2:]])
    assert found[0] == (
        "2 messages sent and 1 received from rank 0 to rank 1 on world: those that have no other side are not linked"
    )
    other = [message("send", 1, TensorMeta("float32", (9,))), *whole[0].collectives[1:]]
    found = told([replace(whole[0], collectives=tuple(other)), *whole[1:]])
    assert found[0] == (
        "message 1 from rank 0 to rank 1 on world is sent as float32[9] in forward and received as float32[2, 4] in "
        "forward: gradir links no later message"
    )
    assert found[-1] == "stage 0 is not linked, and not drawn"


def test_an_input_without_gradient_is_reported() -> None:
    with pytest.raises(
        gradir.GradirError, match="the graph of rank 1 has no such leaf: capture it with an input of one"
    ):
        gradir.link(pipeline([stage(), stage()]))
    with pytest.raises(gradir.GradirError, match="the graph of rank 0 has no such output"):
        gradir.link(pipeline([stage(meta=TensorMeta("float32", (7,))), stage(receives=1)]))


def test_tensors_that_are_alike_are_linked_by_name_or_not_at_all() -> None:
    def twice(graphs: list[Graph]) -> list[Graph]:
        return [
            replace(graph, collectives=tuple(each for each in graph.collectives for _ in range(2)))
            for graph in pipeline(graphs)
        ]

    named = twice([stage(sends=2, names="h"), stage(receives=2, names="h")])
    graph, count, troubles = link_pipeline(named)
    assert (count, troubles) == (2, ())
    assert [dict(node.attrs)["messages"] for node in graph.nodes.values() if node.op == "send"] == [2, 2]
    with pytest.raises(gradir.GradirError, match="2 outputs and 2 leaves are alike: give both sides the same names"):
        link_pipeline(twice([stage(sends=2, names="h"), stage(receives=2, names="other")]))
    with pytest.raises(
        gradir.GradirError, match="is sent 2 times from rank 0 to rank 1 on world, which is not 2 for each"
    ):
        link_pipeline(pipeline([stage(sends=2, names="h"), stage(receives=2, names="h")]))


def test_of_ranks_that_send_to_each_other_at_once_nothing_is_guessed() -> None:
    record = [Rank(rank, 2, groups={"world": (0, 1)}) for rank in (0, 1)]
    both = [
        replace(
            stage(receives=1), rank=record[rank], collectives=(message("send", 1 - rank), message("recv", 1 - rank))
        )
        for rank in (0, 1)
    ]
    with pytest.raises(gradir.GradirError, match="gradir cannot recognize the gradients"):
        gradir.link(both)


def test_several_pipelines_several_stages_and_none_are_reported() -> None:
    first, second = pipeline(usual(2)), pipeline(usual(2))
    both = []
    for number, graphs in enumerate((first, second)):
        for graph in graphs:
            assert graph.rank is not None
            members = (2 * number, 2 * number + 1)
            record = replace(graph.rank, rank=members[graph.rank.rank], world=4, groups={"world": members})
            both.append(replace(graph, rank=record))
    graph, count, troubles = link_pipeline(both)
    assert (count, troubles) == (1, ("ranks 2-3 are other pipelines, which are not drawn",))
    assert links(graph) == [("stage0/send:1", "stage1/recv:1")]
    several = [replace(graph, rank=replace(graph.rank, stages=4)) for graph in first if graph.rank is not None]
    with pytest.raises(gradir.GradirError, match=r"several stages \(4 stages on 2 places\)"):
        gradir.link(several)
    with pytest.raises(gradir.GradirError, match="no tensor that one rank sends"):
        gradir.link([replace(graph, collectives=()) for graph in first])


def test_the_command_writes_the_graph_beside_what_it_says(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], dot_program: str
) -> None:
    paths = [str(tmp_path / f"{rank}.gir") for rank in range(3)]
    for graph, path in zip(pipeline(usual()), paths, strict=True):
        graph.save(path)
    together = str(tmp_path / "pipeline.gir")
    assert main(["ranks", *paths, "--link", together]) == 0
    said = capfd.readouterr()
    assert said.err == ""
    assert said.out.startswith("3 of 3 ranks, 3 graphs\n")
    graph = gradir.load(together)
    assert len(links(graph)) == 2
    exporters = ("dot", "mermaid", "html", "tree", "plain", "modules", "summary", "nodelink", "cytoscape", "graphml")
    for name in (*exporters, "model-explorer"):
        assert graph.to(name), name
    svg = subprocess.run(
        [dot_program, "-Tsvg"], input=graph.to("dot"), capture_output=True, text=True, check=True
    ).stdout
    titles = [each.text or "" for each in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]
    # Each stage has a frame, and so has the module in it.
    assert sum(title.startswith("cluster_") for title in titles) == 2 * 3
    assert sum("->" in title for title in titles) == len(graph.edges) == 12
    assert main(["ranks", *paths, "--link", paths[0]]) == 2
    assert "is the input file" in capfd.readouterr().err
    assert main(["ranks", *paths[:2], "--link", together]) == 0
    assert "warning: 2 messages from rank 1 to rank 2" in capfd.readouterr().err
