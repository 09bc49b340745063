"""Which ranks go on behind their files: a file has one step of a run, and the next one is not known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Final

from gradir.distributed.reading import RankFile
from gradir.distributed.simulation import POINT_TO_POINT, Key, Outcome, Stuck
from gradir.ir import Collective
from gradir.ir.ids import without_ordinal

UNFINISHED: Final = "unfinished"
NO_SYNC: Final = "no_sync"
CUT_OFF: Final = "cut off"
WAITING: Final = ("starts", "waits")
STOPPED: Final = (*WAITING, "fails", "left")


def unaligned(ranks: Iterable[RankFile]) -> tuple[str, ...]:
    """Return the groups in which the steps of ranks begin at other collectives, which can be those of other steps."""
    found: defaultdict[Key, set[int]] = defaultdict(set)
    for one in ranks:
        for key in one.rank.groups.items():
            found[key].add(one.rank.offsets.get(key[0], 0))
    return tuple(dict.fromkeys(label for (label, _), offsets in found.items() if len(offsets) > 1))


def going_on(ranks: Sequence[RankFile], outcome: Outcome) -> Mapping[int, str]:
    """Return the ranks that may exchange more in this step, and why that is so."""
    problem = outcome.problem
    waiting = problem.waiting if isinstance(problem, Stuck) else {} if problem is None else None
    # Only a pipeline's schedule runs on as it is.
    captured = {one.rank.rank for one in ranks if not one.rank.stopped and one.rank.stage is None}
    found: dict[int, str] = {}
    due = _due(ranks, problem, outcome.places) if isinstance(problem, Stuck) else set()
    for one in ranks:
        rank, states = one.rank, {word for words in one.rank.wrappers.values() for word in words}
        if rank.stopped in STOPPED and one.collectives and waiting is not None and rank.rank not in waiting:
            members = rank.groups.get(one.collectives[-1].group, ())
            # A rank that has what it waited for was not sent it: nothing is sent in a captured backward.
            if not (outcome.mixed or captured.isdisjoint(members)):
                found[rank.rank] = CUT_OFF
        elif rank.stopped or UNFINISHED in states:
            continue
        elif rank.accumulates:
            found[rank.rank] = "goes on without a step of the optimizer, and may still come to it"
        elif NO_SYNC in states:
            found[rank.rank] = "reduces in a later backward (no_sync), and may come to it there"
        elif rank.stage is None and rank.rank not in due:
            found[rank.rank] = "may come to it after its captured step: capture the next step to know"
    return found


def _due(ranks: Iterable[RankFile], stuck: Stuck, places: Mapping[int, int]) -> Set[int]:
    """Return the ranks for which others wait in what belongs to a step, or would do next."""
    labels: dict[tuple[int, int], set[str]] = {}
    found: set[int] = set()
    for one in ranks:
        if one.rank.rank in stuck.first:
            place = places[one.rank.rank]
            rest = islice(one.collectives, place, None)
            key = id(one.collectives), place
            if key not in labels:
                labels[key] = {issued.group for issued in rest if not _may_follow(issued)}
            found.update(member for label in labels[key] for member in one.rank.groups[label])
    return found


def _may_follow(issued: Collective) -> bool:
    """Return whether the program may exchange this after a step too, as it does a metric or a message."""
    is_outside = issued.phase == "forward" and not issued.scope and issued.microbatch is None
    # The id of a parameter, which stands for its gradient too, has no number.
    return is_outside and all(without_ordinal(name) != name for name in issued.operands)


def later(ranks: Iterable[RankFile]) -> set[int]:
    """Return the ranks that wait for what the others do behind their captured steps.

    The last message of a rank without a graph is for the rest of the step, or for the next one, which all ranks of a
    schedule have in their files.
    """
    found = {one.rank.rank for one in ranks if one.rank.stopped == "joins"}
    last = {one.rank.rank: one.collectives[-1] for one in ranks if one.rank.stopped and one.collectives}
    by_hand = {one.rank.rank for one in ranks if one.rank.stage is None}
    return found | {rank for rank, issued in last.items() if issued.op in POINT_TO_POINT and rank in by_hand}
