"""Captures and verifications in several processes that train together, over the loopback interface."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torchrun import results_of  # noqa: E402

import gradir  # noqa: E402

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("needs a torch built with distributed and gloo", allow_module_level=True)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loopback interface has another name")


def test_a_backward_behind_verify_is_the_same_under_ddp(tmp_path: Path) -> None:
    refused = (
        "cannot verify in a process group: a function of the graph runs another backward, which would send gradients; "
        "use a process without a group"
    )
    for found in results_of("ddp.py", 3, tmp_path):
        assert found.pop("own backward") == [True, [refused]]
        assert found == {name: [True, []] for name in found}
        assert len(found) == 12


def test_a_backward_behind_verify_is_the_same_under_fsdp2_and_every_parameter_has_its_name(tmp_path: Path) -> None:
    for found in results_of("fsdp.py", 2, tmp_path):
        assert found == {name: [True, [], [True, 16, [], []]] for name in found}
        assert len(found) == 7


def test_explanations_under_ddp_and_fsdp2_agree_with_a_backward(tmp_path: Path) -> None:
    def of(prefix: str, *names: str) -> list[str]:
        return [f"{prefix}.{name}.{kind}" for name in names for kind in ("weight", "bias")]

    told = {
        "left out": ("error", [["ddp_unused", "error", of("module", "other")]]),
        # torch waits for what its sink joins to the loss.
        "left out, unused": ("error", [["unused", "error", of("module", "other")]]),
        "left out, static": ("error", [["unused", "error", of("module", "other")]]),
        "left out, fsdp": ("info", [["unused", "info", of("heads", "other")]]),
        # The trunk is reached through the other head, so its names come last.
        "cut, unused": ("error", [["detach", "error", of("module", "other", "trunk")]]),
        "not run, unused": ("info", [["skipped", "info", of("module", "other")]]),
        "not run, static": ("info", [["skipped", "info", of("module", "other")]]),
    }
    for found in results_of("explained.py", 2, tmp_path):
        assert len(found) == 16
        for name, (same, steps) in found.items():
            level, causes = told.get(name, ("none", []))
            assert same, name
            assert steps == [[[], level, causes]] * len(steps), name


def test_ranks_that_do_the_same_have_the_same_bytes_and_count_what_they_hold(tmp_path: Path) -> None:
    results = results_of("symmetric.py", 4, tmp_path)
    assert len(results[0]) == 12
    assert all(found == results[0] for found in results)
    graphs = {name: gradir.loads(text.encode()) for name, (text, _) in results[0].items()}
    for name, (_, (recorded, packed)) in results[0].items():
        assert recorded == packed, name
        assert graphs[name].cuts == ()
        assert [node.id for node in graphs[name].nodes.values() if "<" in str(dict(node.attrs))] == []

    def attributes(name: str, node_id: str) -> dict[str, object]:
        attrs = dict(graphs[name].nodes[node_id].attrs)
        del attrs["needs_input_grad"]
        return attrs

    assert attributes("all_reduce", "all_reduce:1") == {"group_name": "tp", "reduce_op": "sum"}
    assert attributes("all_gather", "all_gather_into_tensor:1") == {"group_name": "group", "group_size": 2}
    scattered = {"group_name": "dp", "group_size": 2, "reduce_op": "avg"}
    assert attributes("reduce_scatter", "reduce_scatter_tensor:1") == scattered
    assert attributes("all_to_all", "all_to_all_single:1")["group_name"] == "tp"
    assert attributes("nn all_reduce", "_all_reduce:1") == {"group": "world", "op": "sum"}
    assert attributes("nn broadcast", "_broadcast:1") == {"group": "group", "src": 0}
    assert attributes("nn reduce", "_reduce:1") == {"group": "group", "src": 0}
    assert attributes("ddp", "_ddp_sink:1") == {}
    assert attributes("fsdp", "h.0/register_post_backward_function:1") == {}
    assert attributes("tp", "h.0.down/_from_torch_tensor:1") == {
        "forward_input_device_mesh": ("tp=2",),
        "forward_input_placements": ("tp:Shard(1)",),
        "grad_placements": None,
    }
    # torch 2.14 keeps the stride of the local part too.
    kept = {"dtensor_spec": ("tp:Shard(1)",), "grad_placements": None}
    assert attributes("tp", "h.0/_to_torch_tensor:1").items() >= kept.items()
    assert attributes("sequence", "redistribute:1")["current_spec"] == ("tp:Partial(sum)",)

    def placements(name: str) -> dict[str, tuple[str, ...]]:
        found = {node.id: node.outputs[0].placements for node in graphs[name].nodes.values() if node.outputs}
        return {node_id: words for node_id, words in found.items() if words}

    assert placements("ddp") == {}
    assert set(placements("fsdp").values()) == {("dp:Shard(0)",)}
    assert set(placements("fsdp")) == {id_ for id_, node in graphs["fsdp"].nodes.items() if node.role == "parameter"}
    assert placements("tp") == {
        f"h.{block}.{name}": (f"tp:{word}",)
        for block in (0, 1)
        for name, word in (
            ("up.weight", "Shard(0)"),
            ("up.bias", "Shard(0)"),
            ("down.weight", "Shard(1)"),
            ("down.bias", "Replicate"),
        )
    }
    assert placements("tp, fsdp")["h.0.up.weight"] == ("dp:StridedShard(0, sf=2)", "tp:Shard(0)")
    assert placements("tp, fsdp")["h.1.down.bias"] == ("dp:Shard(0)", "tp:Replicate")


def test_the_stages_of_a_pipeline_are_one_graph(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    results = results_of("piped.py", 4, tmp_path)
    for name, messages in (("1F1B", 4), ("GPipe", 4), ("by hand", 1)):
        ranks = [gradir.loads(found[name].encode()) for found in results]
        found = gradir.ranks(ranks)
        assert not any(finding.kind in ("hang", "may hang", "mixed") for finding in found.findings), name
        graph = gradir.link(ranks)
        called = "rank" if name == "by hand" else "stage"
        links = [(edge.src, edge.dst) for edge in graph.edges if graph.nodes[edge.dst].op == "recv"]
        assert links == [(f"{called}{rank}/send:1", f"{called}{rank + 1}/recv:1") for rank in range(3)], name
        assert {node.attrs["messages"] for node in graph.nodes.values() if node.op in ("send", "recv")} == {messages}
        # A gradient goes from the only output to the first parameters of all.
        assert [each.id for each in graph.outputs] == [f"{called}3/output"]
        assert len(graph.nodes) == sum(len(each.nodes) for each in ranks)
        assert len(graph.edges) == sum(len(each.edges) for each in ranks) + 3
        assert {scope for scope in graph.scopes if "." not in scope} == {"", *(f"{called}{rank}" for rank in range(4))}
        assert all(group.saved_bytes > 0 for group in found.groups), name
    assert [str(each.message) for each in recwarn] == []
    # What fits in size is of other microbatches, and the losses of these are wrong.
    usual, *swapped = results[3]["losses"]
    if not swapped:
        return
    assert [one == other for one, other in zip(usual, *swapped, strict=True)] == [False, False, True, True]
    found = gradir.ranks([gradir.loads(found["swapped"].encode()) for found in results])
    mixed = next(finding for finding in found.findings if finding.kind == "mixed")
    assert mixed.ranks == (0, 1)
    assert [line.partition(" (")[0] for line in mixed.lines[1:3]] == [
        "rank 0 in forward send float32[2, 4] on world with 1 of microbatch 0",
        "rank 1 in forward recv float32[2, 4] on world with 0 of microbatch 1",
    ]


def test_a_dry_backward_records_the_collectives_of_a_real_one(tmp_path: Path) -> None:
    results = results_of("exchanged.py", 4, tmp_path)
    apart = [gradir.loads(found.pop("apart").encode()) for found in results]
    # A barrier, and what is sent to one process, is none to torch.
    uncounted = {"reduced": 1, "sent": 2}
    piped = gradir.ranks([gradir.loads(found.pop("pipeline").encode()) for found in results])
    assert not piped
    assert [(group.ranks, group.stage) for group in piped.groups] == [((rank,), rank) for rank in range(4)]
    for found in results:
        assert len(found) == 15
        for name, (is_dry_real, is_bare_same, count, told, *_) in found.items():
            assert (is_dry_real, is_bare_same) == (True, True), name
            assert len(told) == count + uncounted.get(name, 0), name
    for name, (_, _, _, told, graph, *_) in results[0].items():
        differs = {"all_to_all": (True, True), "sent": (True, False)}.get(name, (False, False))
        others = [(found[name][3] != told, found[name][4] != graph) for found in results[1:]]
        assert (any(other[0] for other in others), any(other[1] for other in others)) == differs, name

    def told(name: str, rank: int = 0) -> list[list[object]]:
        return results[rank][name][3]

    first = "module.embed.weight/accumulate_grad:1"
    assert told("ddp") == [["backward", "all_reduce", "world", None, "", ["float32[208]"], [], first, None]]
    assert [entry[5] for entry in told("ddp unused")] == [["float32[208]"], ["int32[16]"]]
    assert told("no_sync") == []
    assert [(entry[0], entry[1], entry[2], entry[7]) for entry in told("fsdp")] == [
        ("forward", "all_gather", "dp", ""),
        ("forward", "all_gather", "dp", "h.0"),
        ("forward", "all_gather", "dp", "h.1"),
        ("backward", "all_gather", "dp", "head/addmm:1"),
        ("backward", "all_gather", "dp", "h.1/add:1"),
        ("backward", "reduce_scatter", "dp", "h.1/register_post_backward_function:1"),
        ("backward", "reduce_scatter", "dp", "h.0/register_post_backward_function:1"),
        ("backward", "reduce_scatter", "dp", ""),
    ]
    reduced = [(entry[2], entry[4]) for entry in told("hsdp") if entry[1] == "all_reduce"]
    assert reduced == [("dp", "avg")] * 3
    assert told("tp, fsdp")[2] == ["forward", "all_reduce", "tp", None, "sum", ["float32[4, 4]"], [], "h.0", "rank.py"]
    assert [entry[:2] for entry in told("implicit")] == [["forward", "all_gather"], ["backward", "all_gather"]]
    assert [entry[6] for entry in told("all_to_all")] == [[[1, 3], [1, 2]], [[1, 2], [1, 3]]]
    assert [entry[6] for entry in told("all_to_all", 1)] == [[[2, 2], [3, 2]], [[3, 2], [2, 2]]]
    assert [(entry[1], entry[3], entry[4]) for entry in told("reduced")] == [
        ("all_reduce", None, "max"),
        ("broadcast", 1, ""),
        ("barrier", None, ""),
    ]
    assert [(entry[1], entry[2], entry[3]) for entry in told("sent")] == [("recv", "tp", 1), ("send", "tp", 1)]
    assert [(entry[1], entry[2], entry[3]) for entry in told("sent", 3)] == [("send", "tp", 0), ("recv", "tp", 0)]
    assert [entry[8] for entry in told("coalesced")] == ["exchanged.py"]

    def ranks_of(name: str) -> list[gradir.Graph]:
        return [gradir.loads(found[name][5].encode()) for found in results]

    told_of_ranks = [graph.rank for graph in ranks_of("tp, fsdp")]
    assert [None if rank is None else (rank.rank, rank.coordinates, rank.groups) for rank in told_of_ranks] == [
        (
            2 * data + tensors,
            {"dp": data, "tp": tensors},
            {"dp": (tensors, 2 + tensors), "tp": (2 * data, 2 * data + 1)},
        )
        for data in (0, 1)
        for tensors in (0, 1)
    ]
    for name in results[0]:
        # What really ran is proved not to hang, each collective once for all of its group, each sent and received.
        ranks = ranks_of(name)
        of_groups = sum(
            1 if each.op in ("send", "recv") else 1 / len(graph.rank.groups[each.group])
            for graph in ranks
            if graph.rank is not None
            for each in graph.collectives
        )
        found = gradir.ranks(ranks)
        assert (bool(found), len(found.groups), found.proved) == (False, 1, round(of_groups)), name
        assert found.groups[0].uneven is (name == "all_to_all")
    # The one that skips a branch fills no bucket, and the others would wait for it.
    hang, missing, graphs, cuts = gradir.ranks(apart).findings
    assert (missing.kind, missing.ranks, missing.lines[:2]) == (
        "missing",
        (3,),
        (
            "waits for the gradients of module.b.weight, module.b.bias, and reduces no bucket that lacks one",
            "other ranks run module.b",
        ),
    )
    assert (hang.kind, hang.ranks, hang.lines) == (
        "hang",
        (0, 1, 2),
        (
            "wait for ever: ranks 0-2 in backward all_reduce float32[40] on world at module.a.weight/accumulate_grad:1",
            "rank 3 has ended after 0 collectives",
        ),
    )
    assert (graphs.ranks, graphs.lines) == ((3,), ("lacks module.b (4 nodes)",))
    assert (cuts.ranks, cuts.lines) == ((3,), ("no gradient for module.b.weight, module.b.bias",))


def test_a_rank_that_recomputes_nothing_and_one_that_runs_another_head_make_the_others_wait(tmp_path: Path) -> None:
    results = results_of("parted.py", 4, tmp_path)
    graphs = {name: [gradir.loads(found[name].encode()) for found in results] for name in results[0]}
    # The first block is run again for the second, with its all-reduce, but on one rank.
    assert [len(graph.collectives) for graph in graphs["checkpoint"]] == [5, 4, 5, 5]
    hang, *_ = gradir.ranks(graphs["checkpoint"]).findings
    assert (hang.kind, hang.ranks) == ("hang", (0, 2, 3))
    assert hang.lines[-1] == "rank 1 has ended after 4 collectives"
    hang, *_ = gradir.ranks(graphs["heads"]).findings
    assert (hang.kind, hang.lines) == (
        "hang",
        (
            "other tensors on world",
            "ranks 0, 2-3 in backward reduce_scatter float32[20] on world at small/register_post_backward_function:1",
            "rank 1 in backward reduce_scatter float32[40] on world at large/register_post_backward_function:1",
        ),
    )
    hang, *_ = gradir.ranks(graphs["dry"]).findings
    assert (hang.kind, hang.lines) == (
        "hang",
        (
            "other tensors on world",
            "ranks 0, 2-3 in forward all_gather float32[5] on world at small (parted.py:48)",
            "rank 1 in forward all_gather float32[10] on world at large (parted.py:48)",
        ),
    )
    gathered = [each.operands for each in graphs["dry"][0].collectives if each.scope == "small"]
    assert gathered == [("small.weight", "small.bias")]
    # The values that decide are those of the whole parameter.
    assert {graph.producer.options.get("dry") for graph in graphs["routed"]} == {True}
    assert [bool(graph.in_scope("one")) for graph in graphs["routed"]] == [True] * 4
    assert not gradir.ranks(graphs["routed"])
    hang, *_ = gradir.ranks(graphs["routed, one parts"]).findings
    assert "rank 1 in forward all_gather float32[5] on world at other" in str(hang.lines)
    for name, gathered in (("resharded", ["world"] * 2), ("resharded to 2", ["dim_1:2", "dim_1"]), ("kept", [])):
        assert not gradir.ranks(graphs[name]), name
        again = [each for each in graphs[name][0].collectives if (each.phase, each.op) == ("backward", "all_gather")]
        assert [each.group for each in again] == gathered, name
    # A number gathers from so many alone.
    told = [None if graph.rank is None else graph.rank.groups["dim_1"] for graph in graphs["resharded to 2"]]
    assert told == [(0, 1), (0, 1), (2, 3), (2, 3)]
