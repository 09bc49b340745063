"""Ranks that go on behind their files, of which no hang is claimed, since a file has one step of a run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import ranks_by_hand
from msgspec.structs import replace

import gradir
from gradir.ir import Collective, Graph, Source, TensorMeta

REDUCE = Collective("backward", "all_reduce", "world", tensors=(TensorMeta("float32", (4,)),))
BROADCAST = Collective("forward", "broadcast", "world", 0, tensors=(TensorMeta("float32", (2,)),))
SEND = Collective("forward", "send", "world", 1, tensors=REDUCE.tensors)
METRIC = Collective("forward", "all_reduce", "world", tensors=(TensorMeta("float32", (1,)),), operands=("sum:1",))


def ranked(rank: int, issued: Sequence[Collective], **fields: object) -> Graph:
    return ranks_by_hand.make_rank(rank, issued, graph=Graph({}) if fields.get("stopped") else None, world=2, **fields)


@pytest.mark.parametrize(
    ("issued", "fields", "kinds", "line"),
    [
        ([], {}, ["hang"], "rank 1 has ended after 0 collectives"),
        (
            [],
            {"accumulates": True},
            ["may hang"],
            "rank 1 continues without a step of the optimizer, and may still run it",
        ),
        (
            [],
            {"wrappers": {"": ("no_sync",)}},
            ["may hang", "missing"],
            "rank 1 reduces in a later backward (no_sync), and may run it there",
        ),
        # Its next forward raises.
        ([], {"accumulates": True, "wrappers": {"": ("unfinished",)}}, ["hang", "missing"], "rank 1 has ended after 0"),
        ([], {"accumulates": True, "wrappers": {"": ("no_sync",)}}, ["may hang"], "rank 1 continues without a step"),
        ([BROADCAST], {"accumulates": True}, ["hang"], "other operations on world"),
        ([BROADCAST], {"offsets": {"world": 3}}, [], "the captured steps start at different collectives on"),
        ([], {"stopped": "raises"}, ["hang"], "rank 1: no graph, raised an error itself"),
        # It was there, and was not sent what the other gave in its captured step.
        ([REDUCE], {"stopped": "waits"}, [], "rank 1: no graph, waited for a captured step"),
        ([REDUCE], {"stopped": "fails"}, [], "rank 1: no graph, waited for a captured step"),
        ([BROADCAST], {"stopped": "fails"}, ["hang"], "rank 1 in forward broadcast"),
    ],
)
def test_a_hang_is_claimed_of_a_rank_that_surely_does_not_come(
    issued: Sequence[Collective], fields: dict[str, object], kinds: list[str], line: str
) -> None:
    wrappers = {"": ()} if "wrappers" in fields else {}
    found = gradir.ranks([ranked(0, [REDUCE], wrappers=wrappers), ranked(1, issued, **fields)])
    assert [finding.kind for finding in found.findings] == kinds
    for form in ("text", "markdown", "html"):
        assert line in found.to(form)


def test_nothing_is_claimed_after_a_captured_step() -> None:
    found = gradir.ranks([ranked(0, [REDUCE, REDUCE]), ranked(1, [REDUCE], stopped="fails")])
    assert not found
    assert found.stopped == {"cut off": (1,)}
    # Others have ended too, and one of them before it came.
    found = gradir.ranks([ranked(0, [REDUCE], stopped="waits"), ranked(1, [REDUCE], stopped="fails")])
    assert [finding.lines[0].partition(":")[0] for finding in found.findings] == ["stopped"]
    both = [ranked(rank, [REDUCE], stopped="raises") for rank in range(2)]
    assert not gradir.ranks(both)


@pytest.mark.parametrize(
    ("issued", "fields", "kinds"),
    [
        ([METRIC], {}, ["may hang"]),
        ([METRIC, METRIC], {}, ["may hang"]),
        ([replace(SEND, op="recv")], {}, ["may hang"]),
        ([replace(SEND, op="recv"), METRIC], {}, ["may hang"]),
        ([METRIC], {"stopped": "ends"}, ["hang"]),
        ([METRIC], {"stage": 0, "stages": 1}, ["hang"]),
        # These belong to a step, and so does what leads to one of them.
        ([METRIC, REDUCE], {}, ["hang"]),
        ([replace(METRIC, scope="mlp")], {}, ["hang"]),
        ([replace(SEND, op="recv", phase="backward")], {}, ["hang"]),
        ([replace(METRIC, operands=("w",))], {}, ["hang"]),
    ],
)
def test_a_collective_outside_steps_may_follow_the_capture(
    issued: Sequence[Collective], fields: dict[str, object], kinds: list[str]
) -> None:
    other = {name: fields[name] for name in fields if name != "stopped"}
    found = gradir.ranks([ranked(0, issued, **other), ranked(1, [], **fields)])
    assert [finding.kind for finding in found.findings if "hang" in finding.kind] == kinds


@pytest.mark.parametrize(("lines", "kind"), [((7,), "hang"), ((8,), "may hang"), ((7, 7), "hang"), ((), "may hang")])
def test_a_rank_that_ran_the_line_on_another_group_does_not_run_it_again(lines: Sequence[int], kind: str) -> None:
    def at(line: int, group: str) -> Collective:
        return replace(METRIC, group=group, source=Source("train.py", line))

    waiting = ranked(0, [at(7, "tp")], groups={"tp": (0, 1)})
    found = gradir.ranks([waiting, ranked(1, [at(line, "dp") for line in lines], groups={"tp": (0, 1), "dp": (1,)})])
    assert [finding.kind for finding in found.findings if "hang" in finding.kind] == [kind]


@pytest.mark.parametrize(("stage", "kinds"), [(None, ["may hang"]), (0, ["hang"])])
def test_a_message_that_a_schedule_does_not_receive_hangs_its_sender(stage: int | None, kinds: list[str]) -> None:
    # A step by hand ends at its backward, and a schedule runs on.
    stages = 0 if stage is None else 2
    sender = ranked(0, [SEND], stopped="waits", stage=stage, stages=stages)
    found = gradir.ranks([sender, ranked(1, [], stage=stage, stages=stages)])
    assert [finding.kind for finding in found.findings] == kinds


@pytest.mark.parametrize(
    ("stopped", "kinds"), [("waits", ["hang"]), ("ends", ["hang"]), ("left", []), ("", ["may hang"])]
)
def test_a_message_that_a_rank_waits_for_comes_from_no_rank_that_is_over(stopped: str, kinds: list[str]) -> None:
    # The other is in the message before, which a step by hand may begin with.
    one, two = replace(SEND, op="recv"), replace(SEND, op="recv", peer=0)
    ranks = [ranked(0, [one], stopped=stopped), ranked(1, [replace(SEND, peer=0), two], stopped="waits")]
    found = gradir.ranks(ranks)
    assert [finding.kind for finding in found.findings if "hang" in finding.kind] == kinds
