"""What is found of the files of ranks, put together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from gradir.distributed.grouping import alike, differences
from gradir.distributed.model import Finding, Group, Kind, Ranks
from gradir.distributed.reading import RankFile, graph_in, read
from gradir.distributed.simulation import Mismatch, Stuck, simulated
from gradir.distributed.words import span
from gradir.ir import Collective, Graph
from gradir.ir.model import bounded
from gradir.ir.text import counted, tensor_text
from gradir.ir.totals import totals

__all__ = ["examined"]


def examined(sources: Iterable[object]) -> Ranks:
    """What the ranks of a run do alike and where they part, from their files or graphs.

    Raises:
        GradirError: they are not the files of ranks of one run.
    """
    ranks = read(sources)
    world = ranks[0].rank.world
    groups: list[Group] = []
    firsts: list[RankFile] = []
    findings: list[Finding] = []
    # The largest group of each stage, and its graph: stages of a pipeline are different by themselves.
    usual: dict[int | None, tuple[int, Graph]] = {}
    unreached: dict[int | None, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for members in alike(ranks):
        graph, stage = graph_in(members[0]), members[0].rank.stage
        group = _group(members, graph)
        unreached[stage].update(dict.fromkeys(group.ranks, _unreached(graph)))
        if stage not in usual:
            usual[stage] = len(groups), graph
            groups.append(group)
            firsts.append(members[0])
            continue
        place, largest = usual[stage]
        lines, sizes = differences(largest, graph)
        if lines:
            groups.append(group)
            firsts.append(members[0])
            findings.append(Finding("graphs", group.ranks, lines))
        else:
            joined = tuple(sorted({*groups[place].ranks, *group.ranks}))
            groups[place] = replace(groups[place], ranks=joined, uneven=groups[place].uneven or sizes)
    done, problems = _exchanged(ranks, is_sample=len(ranks) < world)
    nowhere, some = _without_gradient(unreached.values())
    ranks_there = tuple(one.rank.rank for one in ranks)
    found = Ranks(world, ranks_there, tuple(groups), (*problems, *findings, *some), done, nowhere)
    return found.with_graphs(lambda: tuple(map(graph_in, firsts)))


def _group(members: Sequence[RankFile], graph: Graph) -> Group:
    counts = totals(graph)
    held = sum(math.prod(size for size in shape if isinstance(size, int)) for shape in members[0].rank.local.values())
    return Group(
        tuple(one.rank.rank for one in members),
        counts.nodes,
        counts.edges,
        counts.saved_bytes,
        bounded(held) or counts.parameters,
        len(members[0].collectives),
        stage=members[0].rank.stage,
    )


def _unreached(graph: Graph) -> tuple[str, ...]:
    return tuple(cut.names[0] for cut in graph.cuts if cut.names and not cut.is_place)


def _without_gradient(
    unreached: Iterable[Mapping[int, Sequence[str]]],
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """The parameters without gradient on all ranks of a stage, and those on some of them, the same ones together."""
    nowhere: list[str] = []
    names_of: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    for by_rank in unreached:
        ranks_of: defaultdict[str, list[int]] = defaultdict(list)
        for rank, names in by_rank.items():
            for name in names:
                ranks_of[name].append(rank)
        for name, ranks in ranks_of.items():
            if len(ranks) == len(by_rank):
                nowhere.append(name)
            else:
                names_of[tuple(sorted(ranks))].append(name)
    found = [
        Finding("cuts", ranks, (f"no gradient for {', '.join(names)}",)) for ranks, names in sorted(names_of.items())
    ]
    return tuple(nowhere), tuple(found)


def _exchanged(ranks: Sequence[RankFile], *, is_sample: bool) -> tuple[int, list[Finding]]:
    programs = {one.rank.rank: one.collectives for one in ranks}
    done, problem, unreceived = simulated(programs, {one.rank.rank: one.rank.groups for one in ranks})
    if isinstance(problem, Mismatch):
        (label, _), issued = problem.group, problem.issued
        lines = [f"{problem.reason} on {label}", *_said_by(issued)]
        return done, [Finding("hang", tuple(sorted(issued)), tuple(lines))]
    if isinstance(problem, Stuck) and not is_sample:
        kind: Kind = "hang" if problem.first else "may hang"
        lines = _hanging(problem) if problem.first else list(_said_by(problem.waiting))
        return done, [Finding(kind, tuple(sorted(problem.waiting)), tuple(lines))]
    if unreceived and not is_sample:
        # Who sends need not wait for the other, and may.
        lines = [f"never received: {line}" for line in _said_by(unreceived)]
        return done, [Finding("may hang", tuple(sorted(unreceived)), tuple(lines))]
    return done, []


def _hanging(stuck: Stuck) -> list[str]:
    """Which ranks wait for which that have ended."""
    lines = [f"wait for ever: {line}" for line in _said_by({rank: stuck.waiting[rank] for rank in stuck.first})]
    by_count: defaultdict[int, list[int]] = defaultdict(list)
    for rank, count in stuck.ended.items():
        by_count[count].append(rank)
    for count, ended in sorted(by_count.items()):
        lines.append(f"{span(ended)} {'has' if len(ended) == 1 else 'have'} ended after {counted(count, 'collective')}")
    others = stuck.waiting.keys() - {*stuck.first}
    if others:
        lines.append(f"{span(others)} {'waits' if len(others) == 1 else 'wait'} for these")
    return lines


def _said_by(issued: Mapping[int, Collective]) -> Iterator[str]:
    """Each collective with the ranks that issued it."""
    by_text: defaultdict[str, list[int]] = defaultdict(list)
    for rank, collective in sorted(issued.items()):
        by_text[_said(collective)].append(rank)
    for text, ranks in by_text.items():
        yield f"{span(ranks)} in {text}"


def _said(issued: Collective) -> str:
    """A collective in a few words: what it is, of what, on which group, and who issued it."""
    parts = [issued.phase, issued.op, ", ".join(map(tensor_text, issued.tensors)), f"on {issued.group}"]
    if issued.peer is not None:
        parts.append(f"with {issued.peer}")
    if issued.node or issued.scope:
        parts.append(f"at {issued.node or issued.scope}")
    if issued.source is not None:
        parts.append(f"({issued.source.file}:{issued.source.line})")
    return " ".join(filter(None, parts))
