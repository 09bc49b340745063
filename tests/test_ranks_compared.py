"""What is said of the ranks of a training, of graphs made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from ranks_by_hand import make_rank, net, reduce

import gradir
from gradir.cli import main
from gradir.distributed.simulation import Mismatch, Stuck, simulate
from gradir.ir import Builder, Collective, Graph, Node, Rank, Source, TensorMeta

WORLD = (0, 1, 2, 3)


def test_ranks_that_do_the_same_are_one_group_and_proved() -> None:
    found = gradir.ranks([make_rank(rank, [reduce(), reduce(2)]) for rank in (2, 0, 3, 1)])
    assert not found
    assert (found.world, found.ranks, found.proved, found.unreached) == (4, WORLD, 2, ("c",))
    assert [(group.ranks, group.nodes, group.collectives, group.uneven) for group in found.groups] == [
        (WORLD, 5, 2, False)
    ]
    assert str(found) == (
        "4 of 4 ranks, 1 graph\n"
        "  ranks 0-3: 5 nodes, 4 edges, 0 bytes saved, 8 parameters, 2 collectives\n"
        "2 collectives, each entered by all of its group in the same order\n"
        "no gradient on any rank for c"
    )


def test_a_rank_that_skips_a_branch_makes_the_others_wait() -> None:
    ranks = [make_rank(rank, [reduce(), reduce(2)]) for rank in range(3)]
    found = gradir.ranks([*ranks, make_rank(3, [reduce()], graph=net(branch=False))])
    assert [(finding.kind, finding.ranks, finding.lines) for finding in found.findings] == [
        (
            "hang",
            (0, 1, 2),
            (
                "wait for ever: ranks 0-2 in backward all_reduce float32[2] on world at mm:1",
                "rank 3 has ended after 1 collective",
            ),
        ),
        ("graphs", (3,), ("lacks b (1 node)",)),
        ("cuts", (3,), ("no gradient for b.w, b.bias",)),
    ]
    assert [group.ranks for group in found.groups] == [(0, 1, 2), (3,)]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (reduce(5), "other tensors on world"),
        (replace(reduce(), op="all_gather"), "other operations on world"),
    ],
)
def test_a_mismatch_of_collectives_names_both_sides(other: Collective, reason: str) -> None:
    other = replace(other, source=Source("train.py", 7))
    found = gradir.ranks([*(make_rank(rank, [reduce()]) for rank in range(3)), make_rank(3, [other])])
    (finding,) = found.findings
    assert (finding.kind, finding.ranks, found.proved) == ("hang", WORLD, 0)
    assert finding.lines[:2] == (reason, "ranks 0-2 in backward all_reduce float32[4] on world at mm:1")
    assert finding.lines[2].startswith(f"rank 3 in backward {other.op} ")
    assert finding.lines[2].endswith("(train.py:7)")


def test_a_rooted_collective_needs_one_root_and_a_gather_no_equal_sizes() -> None:
    groups = {rank: {"world": (0, 1)} for rank in (0, 1)}
    sent = [Collective("forward", "broadcast", "world", root) for root in (0, 1)]
    problem = simulate({0: sent[:1], 1: sent[1:]}, groups).problem
    assert isinstance(problem, Mismatch)
    assert problem.reason == "other roots"
    pieces = [Collective("forward", "gather", "world", 0, tensors=(TensorMeta("int8", (size,)),)) for size in (2, 3)]
    assert simulate({0: pieces[:1], 1: pieces[1:]}, groups)[:3] == (1, None, {})


def test_splits_have_to_fit_in_pairs() -> None:
    groups = {rank: {"tp": (0, 1)} for rank in (0, 1)}
    programs = {
        rank: [Collective("forward", "all_to_all", "tp", splits=splits)]
        for rank, splits in ((0, ((1, 3), (1, 2))), (1, ((2, 2), (3, 2))))
    }
    assert simulate(programs, groups)[:3] == (1, None, {})
    programs[1] = [Collective("forward", "all_to_all", "tp", splits=((2, 2), (4, 2)))]
    problem = simulate(programs, groups).problem
    assert isinstance(problem, Mismatch)
    assert problem.reason == "rank 0 sends 3 to rank 1, which expects 4"


def test_two_groups_in_opposite_order_may_hang() -> None:
    groups = {"dp": (0, 1), "tp": (0, 1)}
    orders = [["dp", "tp"], ["tp", "dp"]]
    found = gradir.ranks(
        [make_rank(rank, [reduce(group=group) for group in orders[rank]], groups=groups, world=2) for rank in (0, 1)]
    )
    assert [(finding.kind, finding.lines) for finding in found.findings] == [
        (
            "may hang",
            (
                "rank 0 in backward all_reduce float32[4] on dp at mm:1",
                "rank 1 in backward all_reduce float32[4] on tp at mm:1",
            ),
        )
    ]


def test_stages_of_a_pipeline_send_and_receive_in_order() -> None:
    groups = {rank: {"world": (0, 1, 2)} for rank in range(3)}
    activation = (TensorMeta("float32", (2,)),)

    def to(peer: int) -> Collective:
        return Collective("forward", "send", "world", peer, tensors=activation)

    def by(peer: int) -> Collective:
        return Collective("forward", "recv", "world", peer, tensors=activation)

    programs = {0: [to(1), to(1), by(1)], 1: [by(0), to(2), by(0), to(2), by(2), to(0)], 2: [by(1), by(1), to(1)]}
    assert simulate(programs, groups)[:3] == (12, None, {})
    stuck = simulate({**programs, 0: [to(1)]}, groups).problem
    assert isinstance(stuck, Stuck)
    assert (sorted(stuck.waiting), stuck.ended, stuck.first) == ([1, 2], {0: 1}, {1: [0]})
    found = gradir.ranks(
        make_rank(rank, program, world=3, stage=rank, stages=3) for rank, program in {**programs, 0: [to(1)]}.items()
    )
    assert found.findings[0].lines == (
        "wait for ever: rank 1 in forward recv float32[2] on world with 0",
        "rank 0 has ended after 1 collective",
        "rank 2 waits for these",
    )
    circle = simulate({0: [by(1)], 1: [by(0)]}, groups).problem
    assert isinstance(circle, Stuck)
    assert circle.first == {}
    other = replace(by(0), tensors=(TensorMeta("float32", (3,)),))
    assert isinstance(simulate({0: [to(1)], 1: [other]}, groups).problem, Mismatch)


def test_of_a_sample_no_hang_is_claimed() -> None:
    found = gradir.ranks([make_rank(0, [reduce(), reduce()]), make_rank(2, [reduce()])])
    assert found.is_sample
    assert not found
    assert "2 of 4 ranks, 1 graph; the others have no file, so this is a sample and no hang is claimed" in str(found)
    # What does not fit shows all the same.
    assert gradir.ranks([make_rank(0, [reduce()]), make_rank(2, [reduce(7)])]).findings[0].kind == "hang"


def stopped(why: str, *issued: Collective) -> Graph:
    there = Rank(1, 2, groups={"world": (0, 1)}, stopped=why)
    return replace(net(), nodes={}, scopes={}, cuts=(), rank=there, collectives=issued)


@pytest.mark.parametrize(
    ("other", "kinds", "line"),
    [
        (stopped("ends"), ["hang"], "rank 1: no graph, ended before the captured step"),
        (stopped("waits", reduce()), [], "rank 1: no graph, waited for a captured step"),
        (stopped("fails", reduce(5)), ["hang"], "other tensors on world"),
        (stopped("joins", replace(reduce(), phase="forward", node=""), reduce()), [], "1 collective, each entered"),
    ],
)
def test_a_rank_without_a_graph_is_compared_by_its_collectives(other: Graph, kinds: list[str], line: str) -> None:
    found = gradir.ranks([make_rank(0, [reduce()], world=2), other])
    assert [finding.kind for finding in found.findings] == kinds
    for form in ("text", "markdown", "html"):
        assert line in found.to(form)


def test_graphs_that_differ_in_sizes_alone_are_one_group(tmp_path: Path) -> None:
    found = gradir.ranks([make_rank(0), make_rank(1), make_rank(2, graph=net(size=3)), make_rank(3)])
    assert [(group.ranks, group.uneven) for group in found.groups] == [(WORLD, True)]
    assert not found
    assert gradir.ranks([make_rank(0), make_rank(1), make_rank(2, graph=net(start=1)), make_rank(3)]).findings
    # Each rank may take a part of its own.
    assert not gradir.ranks([make_rank(rank, graph=net(start=rank % 2)) for rank in range(4)])
    paths = [tmp_path / f"{rank}.gir" for rank in range(4)]
    for rank, path in enumerate(paths):
        form, compress = (("json", None), ("msgpack", None), ("json", "gzip"), ("msgpack", "gzip"))[rank]
        make_rank(rank, [reduce()]).save(path, format=form, compress=compress)
    found = gradir.ranks(paths)
    assert [(group.ranks, group.uneven) for group in found.groups] == [(WORLD, False)]
    assert found.proved == 1


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "^cannot compare"),
        ([make_rank(0), net()], "^graph 1 has no rank, and graph 0 has one: capture all of them with --coll"),
        ([make_rank(1), make_rank(1)], "^graph 0 and graph 1 are both of rank 1: give the files of one run$"),
        (
            [make_rank(0), make_rank(1, stage=0, stages=2)],
            "^graph 1 is of a pipeline of 2 stages, and graph 0 of 0: give the files of one run, captured in one way$",
        ),
        ([make_rank(0), make_rank(1, world=2)], "^graph 1 is rank 1 of 2, and graph 0 rank 0 of 4: "),
        (
            [make_rank(0, groups={"tp": (0, 1)}), make_rank(1, groups={"tp": (1, 2)})],
            "^graph 1 has other ranks in the group tp than others there: ",
        ),
        (
            [make_rank(0, groups={"tp": (0, 2)}), *(make_rank(rank, groups={"tp": (0, 1, 2)}) for rank in (1, 2))],
            "^graph 0 has other ranks in the group tp than others there: ",
        ),
        (
            [make_rank(0, world=2), *(make_rank(rank) for rank in (1, 2))],
            "^graph 0 is rank 0 of 2, and graph 1 rank 1 of 4",
        ),
        ([make_rank(0, groups={"tp": (1, 2)})], "its rank 0 is not in its group tp"),
        ([make_rank(0, [reduce(group="tp")])], "its collective 0 is on 'tp', which is not one of its groups"),
        ([make_rank(0, [replace(reduce(), op="send", peer=9)])], "its collective 0 is with 9, and world has 4 ranks"),
    ],
)
def test_files_of_different_runs_are_an_error(graphs: list[Graph], message: str) -> None:
    with pytest.raises(gradir.GradirError, match=message):
        gradir.ranks(graphs)


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["run.10.gir", "run.9.gir", "run.0.gir"], [(0, 10), (9,)]),
        (["a-1-of-3.gir", "b-2-of-3.gir", "c-3-of-3.gir"], [(0, 2), (1,)]),
        (["20260101.gir", "20260102.gir", "20260103.gir"], [(0, 2), (1,)]),
    ],
)
def test_files_without_ranks_are_compared_by_the_numbers_in_their_names(
    names: list[str], ranks: list[tuple[int, ...]], tmp_path: Path
) -> None:
    for number, name in enumerate(names):
        net(branch=number != 1).save(tmp_path / name)
    found = gradir.ranks([tmp_path / name for name in names])
    assert (found.recorded, found.proved) == (False, 0)
    assert [group.ranks for group in found.groups] == ranks
    assert [finding.kind for finding in found.findings] == ["graphs", "cuts"]
    assert "no collectives recorded, so hangs and mixed tensors are possible" in str(found)


def test_validate_names_the_file_that_is_of_another_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"run.{rank}.gir" for rank in range(3)]
    for rank, path in enumerate(paths):
        make_rank(rank, world=3 if rank else 2).save(path)
    assert main(["validate", *map(str, paths)]) == 0
    assert main(["validate", "--ranks", *map(str, paths)]) == 2
    assert "run.0.gir is rank 0 of 2, and " in capfd.readouterr().err
    make_rank(0, world=3).save(paths[0])
    assert main(["validate", "--ranks", *map(str, paths)]) == 0


def test_the_command_says_it_in_three_forms_and_by_its_status(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / f"{rank}.gir") for rank in range(2)]
    for rank, path in enumerate(paths):
        make_rank(rank, [reduce()] * (2 - rank), world=2).save(path)

    def status(*words: str) -> int:
        return main(["ranks", *paths, *words])

    assert status() == 1
    text = capfd.readouterr().out
    assert text.splitlines()[2:4] == [
        "HANG: rank 0",
        "  wait for ever: rank 0 in backward all_reduce float32[4] on world at mm:1",
    ]
    assert max(map(len, text.splitlines())) <= 80
    assert status("--fail-on", "graphs,cuts") == 0
    assert capfd.readouterr().out == text
    assert status("--format", "json", "-o", str(tmp_path / "found.json")) == 1
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["findings"][0]["kind"] == "hang"
    assert status("--format", "markdown", "--fail-on", "may-hang") == 0
    assert "| rank 0, 1" not in capfd.readouterr().out
    make_rank(0, world=2).save(paths[1])
    assert status() == 2
    assert "are both of rank 0" in capfd.readouterr().err


def test_many_unlike_ranks_are_a_short_report_unless_it_is_full(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = 64
    graphs = [make_rank(rank, [reduce(rank + 1)], graph=net(size=2), world=world) for rank in range(world)]
    for rank, graph in enumerate(graphs):
        # Every second one lacks the same module, the others have an operation of their own.
        other = net(branch=False) if rank % 2 else replace(graph, nodes=dict(renamed(graph, f"f{rank}")))
        replace(other, rank=graph.rank, collectives=graph.collectives).save(tmp_path / f"{rank}.gir")
    paths = [str(tmp_path / f"{rank}.gir") for rank in range(world)]
    assert main(["ranks", *paths]) == 1
    short = capfd.readouterr().out.splitlines()
    assert len(short) <= 40
    assert "  and 25 graphs more" in short
    assert "  ranks 1, 3, 5, 7, 9, 11 and 26 more: 3 nodes," in "\n".join(short)
    assert "(--full lists all)" in short
    assert main(["ranks", "--full", *paths]) == 1
    full = capfd.readouterr().out
    assert len(full.splitlines()) > 100
    assert "more graphs" not in full


def renamed(graph: Graph, op: str) -> Iterator[tuple[str, Node]]:
    return ((node.id, replace(node, op=op) if node.op == "mul" else node) for node in graph.nodes.values())


@pytest.mark.parametrize(
    ("attrs", "differs"),
    [
        ({"needs_input_grad": (True,), "rank": 1, "splits": ((1, 2), (3, 0))}, False),
        ({"needs_input_grad": (True,), "rank": 1, "mode": "ring", "splits": ((1, 1), (1, 1))}, True),
        ({"needs_input_grad": (False,), "rank": 1, "splits": ((1, 1), (1, 1))}, True),
        # An operation of torch has no number of the program.
        ({"dim": 1}, True),
    ],
)
def test_numbers_that_a_custom_function_stores_are_no_other_graph(attrs: dict[str, object], differs: bool) -> None:
    def of(rank: int, attrs: dict[str, object]) -> Graph:
        b = Builder()
        meta = TensorMeta("float32", (4,))
        b.output(b.function("exchange", [b.tensor("w", meta, role="parameter")], [meta], attrs=attrs))
        return make_rank(rank, graph=b.build(), world=2)

    usual = {"needs_input_grad": (True,), "rank": 0, "splits": ((1, 1), (1, 1))} if len(attrs) > 1 else {"dim": 0}
    assert bool(gradir.ranks([of(0, usual), of(1, attrs)]).findings) is differs


def test_ranks_that_send_to_each_other_by_hand_may_have_other_graphs() -> None:
    def of(*issued: Collective) -> gradir.Ranks:
        each = (make_rank(rank, [one], graph=net(branch=not rank), world=2) for rank, one in enumerate(issued))
        return gradir.ranks(each)

    summed = Collective("forward", "all_reduce", "world")
    assert [finding.kind for finding in of(summed, summed).findings] == ["graphs", "cuts"]
    sent = of(Collective("forward", "send", "world", 1), Collective("forward", "recv", "world", 0))
    assert not sent
    assert [group.ranks for group in sent.groups] == [(0,), (1,)]


def test_a_message_to_a_rank_without_a_file_is_not_reported_to_be_lost() -> None:
    sent, groups = Collective("forward", "send", "world", peer=1), {"world": (0, 1)}
    alone = simulate({0: [sent]}, {0: groups})
    assert (alone.problem, alone.unreceived) == (None, {})
    both = simulate({0: [sent], 1: []}, {0: groups, 1: groups})
    assert (both.problem, both.unreceived) == (None, {0: sent})
