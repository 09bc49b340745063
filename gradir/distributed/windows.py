"""Find the ranks that continue after their files, since a file has only one step of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Final

from gradir.distributed.reading import RankFile, group_members
from gradir.distributed.simulation import POINT_TO_POINT, Outcome, Stuck
from gradir.ir import Collective
from gradir.ir.ids import remove_ordinal

UNFINISHED: Final = "unfinished"
NO_SYNC: Final = "no_sync"
CUT_OFF: Final = "cut off"
WAITING: Final = ("starts", "waits")
STOPPED: Final = (*WAITING, "fails", "left")


def find_unaligned(ranks: Iterable[RankFile]) -> tuple[str, ...]:
    """Return the groups in which the steps of ranks begin at different collectives, so may be different steps."""
    groups = group_members(ranks).items()
    found = (label for (label, _), members in groups if len({one.rank.offsets.get(label, 0) for one in members}) > 1)
    return tuple(dict.fromkeys(found))


def find_open_ranks(ranks: Sequence[RankFile], outcome: Outcome) -> Mapping[int, str]:
    """Return the ranks that may communicate again in this step, with the reasons."""
    problem = outcome.problem
    waiting = problem.waiting if isinstance(problem, Stuck) else {} if problem is None else None
    # Only a pipeline's schedule continues unchanged.
    captured = {one.rank.rank for one in ranks if not one.rank.stopped and one.rank.stage is None}
    found: dict[int, str] = {}
    awaited = _find_awaited(ranks, problem, outcome.places) if isinstance(problem, Stuck) else set()
    for one in ranks:
        rank, states = one.rank, {word for words in one.rank.wrappers.values() for word in words}
        if rank.stopped in STOPPED and one.collectives and waiting is not None and rank.rank not in waiting:
            members = rank.groups.get(one.collectives[-1].group, ())
            # The others issued the collective that this rank waited for, but a captured backward sends nothing.
            if not (outcome.mixed or captured.isdisjoint(members)):
                found[rank.rank] = CUT_OFF
        elif rank.stopped or UNFINISHED in states:
            continue
        elif rank.accumulates:
            found[rank.rank] = "continues without a step of the optimizer, and may still run it"
        elif NO_SYNC in states:
            found[rank.rank] = "reduces in a later backward (no_sync), and may run it there"
        elif rank.stage is None and rank.rank not in awaited:
            found[rank.rank] = "may run it after its captured step: capture the next step to find out"
    return found


def _find_awaited(ranks: Iterable[RankFile], stuck: Stuck, places: Mapping[int, int]) -> Set[int]:
    """Return the ranks that others wait for in a collective of the step, or would wait for next."""
    labels: dict[tuple[int, int], set[str]] = {}
    programs = {one.rank.rank: id(one.collectives) for one in ranks}
    by_list = {id(one.collectives): one.collectives for one in ranks}
    lines = {key: Counter(issued.source for issued in program) for key, program in by_list.items()}
    found: set[int] = set()
    for one in ranks:
        if one.rank.rank in stuck.first:
            place, issued = places[one.rank.rank], stuck.waiting[one.rank.rank]
            rest = islice(one.collectives, place, None)
            key = id(one.collectives), place
            if key not in labels:
                labels[key] = {each.group for each in rest if not _may_follow(each)}
            found.update(member for label in labels[key] for member in one.rank.groups[label])
            # A rank that ran this line as often, on another group, does not run it again in this step.
            if issued.source is not None and issued.op not in POINT_TO_POINT:
                often = lines[key[0]][issued.source]
                awaited = stuck.first[one.rank.rank]
                found.update(other for other in awaited if lines[programs[other]][issued.source] >= often)
    return found


def _may_follow(issued: Collective) -> bool:
    """Return whether the program may also issue a collective after a step, such as one of a metric."""
    is_outside = issued.phase == "forward" and not issued.scope and issued.microbatch is None
    # The id of a parameter, which also means its gradient, has no number.
    return is_outside and all(remove_ordinal(name) != name for name in issued.operands)


def find_late_ranks(ranks: Iterable[RankFile]) -> set[int]:
    """Return the ranks that wait for communication after the captured steps of the others.

    The last message of a rank without a graph belongs to the rest of the step or to the next step. In a schedule, the
    files of all ranks have that step, and so has that of a rank that sends in its step by hand.
    """
    found = {one.rank.rank for one in ranks if one.rank.stopped == "joins"}
    last = {one.rank.rank: one.collectives[-1] for one in ranks if one.rank.stopped and one.collectives}
    by_hand = {one.rank.rank: one.rank.groups for one in ranks if one.rank.stage is None}
    whole = {one.rank.rank for one in ranks if one.sends_by_hand and not one.rank.stopped}
    for rank, issued in last.items():
        if issued.op in POINT_TO_POINT and rank in by_hand:
            peer = by_hand[rank][issued.group][issued.peer or 0]
            found.update({rank} if issued.op == "send" or peer not in whole else ())
    return found
