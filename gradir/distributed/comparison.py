"""What is found of the files of ranks, put together."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from msgspec.structs import replace

from gradir.diffs.changes import Change
from gradir.diffs.compare import compare
from gradir.diffs.ignoring import ignoring
from gradir.distributed.copies import differing_values
from gradir.distributed.missing import missing, place_in
from gradir.distributed.model import Finding, Group, Kind, Ranks
from gradir.distributed.operands import swapped
from gradir.distributed.reading import RankFile, graph_in, read
from gradir.distributed.simulation import Mismatch, Outcome, Stuck, simulated
from gradir.distributed.timeline import pictured
from gradir.distributed.windows import CUT_OFF, STOPPED, WAITING, going_on, later, unaligned
from gradir.distributed.words import said, span
from gradir.ir import Collective, Graph
from gradir.ir.frozen import NOTHING
from gradir.ir.model import bounded
from gradir.ir.module_tree import upwards
from gradir.ir.text import counted
from gradir.ir.totals import totals

_SIZES: Final = (
    *("out[*].shape", "saved.*.shape", "saved.*.bytes", "total", "own", "trainable", "detail", "indices"),
    *map("attrs.{}".format, ("*size", "*sizes", "*stride", "*strides", "*numel", "end", "length", "pad")),
)
"""What follows from the sizes of a rank's parts."""

_FEW: Final = 4
_MOST_NODES: Final = 60_000
"""So many nodes of distinct graphs are read and held, which takes a second and some tens of megabytes."""

_MOST: Final = 5
_MOST_OPERANDS: Final = 2


def examined(sources: Iterable[object]) -> Ranks:
    """Compare the ranks of a run, from their files or graphs, and find where they differ.

    Raises:
        GradirError: they are not the files of ranks of one run.
    """
    ranks = read(sources)
    world = ranks[0].rank.world
    groups: list[Group] = []
    firsts: list[RankFile] = []
    unlike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    # The largest group of each stage, and its graph: stages of a pipeline are different by themselves.
    usual: dict[int | None, tuple[int, Graph]] = {}
    unreached: dict[int | None, dict[int, tuple[str, ...]]] = defaultdict(dict)
    compared: list[RankFile] = []
    left: list[list[RankFile]] = []
    read_nodes = 0
    for members in _alike([one for one in ranks if not one.rank.stopped]):
        stage = members[0].rank.stage
        if stage in usual and len(groups) >= _FEW and read_nodes > _MOST_NODES:
            left.append(members)
            continue
        graph = graph_in(members[0])
        read_nodes += len(graph.nodes)
        compared += members
        group = _group(members, graph)
        names = tuple(cut.names[0] for cut in graph.cuts if cut.names and not cut.is_place)
        unreached[stage].update(dict.fromkeys(group.ranks, names))
        if stage not in usual:
            usual[stage] = len(groups), graph
            groups.append(group)
            firsts.append(members[0])
            continue
        place, largest = usual[stage]
        lines, sizes = _differences(largest, graph)
        if lines:
            groups.append(group)
            firsts.append(members[0])
            unlike[lines] += group.ranks
        else:
            joined = tuple(sorted({*groups[place].ranks, *group.ranks}))
            groups[place] = replace(groups[place], ranks=joined, uneven=groups[place].uneven or sizes)
    if left:
        line = f"{counted(len(left), 'graph')} more, not compared in detail, since there are so many"
        unlike[line,] = [one.rank.rank for members in left for one in members]
    findings = [Finding("graphs", tuple(sorted(numbers)), lines) for lines, numbers in unlike.items()]
    compared.sort(key=lambda one: one.rank.rank)
    apart = unaligned(ranks)
    outcome, problems, cut_off = _exchanged(ranks, compared, is_sample=len(ranks) < world, is_aligned=not apart)
    nowhere, some = _without_gradient(unreached.values())
    ranks_there = tuple(one.rank.rank for one in ranks)
    # A process that recorded what it exchanges names what carries its messages, even if it exchanged nothing.
    recorded = any(one.rank.backend or one.collectives for one in ranks)
    stopped = _stopped(ranks, cut_off)
    every = (*problems, *findings, *some)
    found = Ranks(world, ranks_there, tuple(groups), every, outcome.done, nowhere, recorded, stopped, apart)
    return found.with_files(lambda: tuple(map(graph_in, firsts)), lambda: pictured(ranks, outcome))


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


def _without_gradient(unreached: Iterable[Mapping[int, Sequence[str]]]) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
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


def _exchanged(
    ranks: Sequence[RankFile], compared: Sequence[RankFile], *, is_sample: bool, is_aligned: bool
) -> tuple[Outcome, list[Finding], Container[int]]:
    """Return how the collectives end, what is found of them, and the ranks that a captured step cut off."""
    if not is_aligned:
        return Outcome(0, None), [*missing(compared, is_aligned=False)], ()
    files = {one.rank.rank: one for one in ranks}
    joined = {one.rank.rank for one in ranks if one.rank.stopped == "joins"}
    programs = {rank: one.collectives for rank, one in files.items()}
    outcome = simulated(programs, {rank: one.rank.groups for rank, one in files.items()}, joined)
    open_ranks, behind = going_on(ranks, outcome), later(ranks)
    own = [each for each in outcome.mixed if _are_of_own_modules(each, files)]
    if own and outcome.problem is None:
        # The places may be those of what is no finding.
        outcome = outcome._replace(places={})
    mixed = _mixed([each for each in outcome.mixed if each not in own], 0 if own else outcome.mixed_count)
    cut_off = {rank for rank, why in open_ranks.items() if why == CUT_OFF}
    left = {
        rank: sent
        for rank, sent in outcome.unreceived.items()
        if files[rank].rank.groups[sent.group][sent.peer or 0] not in cut_off | behind
    }
    outcome = outcome._replace(unreceived=left)
    problem = outcome.problem
    if isinstance(problem, Stuck) and problem.first:
        first = {rank: those for rank, those in problem.first.items() if rank not in behind}
        if all(cut_off.issuperset(those) for those in first.values()):
            outcome = outcome._replace(problem=None, places={})
        else:
            outcome = outcome._replace(problem=problem._replace(first=first))
    if not mixed and outcome.problem is None:
        found = [*swapped(compared)]
        mixed = _mixed([each.issued for each in found[:1]], len(found), found[0].made_by if found else {})
    waiting = {one.rank.rank for one in ranks if one.rank.stopped in WAITING}
    # If none goes on, a message that a rank waits for is in no later step.
    goes_on = is_sample or any(one.rank.stopped not in (*WAITING, "fails", "ends") for one in ranks)
    stopped = {one.rank.rank for one in ranks if one.rank.stopped in STOPPED} - cut_off - (behind if goes_on else set())
    hangs = [*_hangs(outcome, waiting, stopped, open_ranks, is_sample=is_sample)]
    if not hangs and not mixed:
        hangs = [*_stopped_in([files[rank] for rank in sorted(stopped)])]
    return outcome, [*hangs, *mixed, *missing(compared), *differing_values(compared)], cut_off


def _stopped(ranks: Iterable[RankFile], cut_off: Container[int]) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for one in ranks:
        if why := CUT_OFF if one.rank.rank in cut_off else one.rank.stopped:
            found[why] = (*found.get(why, ()), one.rank.rank)
    return found


def _stopped_in(ranks: Sequence[RankFile]) -> Iterator[Finding]:
    last = {one.rank.rank: one.collectives[-1] for one in ranks if one.collectives}
    if last:
        advice = "another rank may have crashed without a file; --dry captures the step and sends nothing"
        yield Finding("hang", tuple(last), (*(f"stopped: {line}" for line in _said_by(last)), advice))


def _are_of_own_modules(issued: Mapping[int, Collective], files: Mapping[int, RankFile]) -> bool:
    """Return whether ranks exchange in modules that others do not have, such as their own experts."""
    by_scope = {each.scope: rank for rank, each in issued.items() if each.phase == "forward"}
    graphs = {rank: graph_in(files[rank]) for rank in by_scope.values()} if len(by_scope) > 1 else {}
    return any(
        issued[rank].scope in graph.scopes
        and not by_scope.keys() <= graph.scopes.keys()
        and not any(name in graph.nodes and graph.nodes[name].role == "parameter" for name in issued[rank].operands)
        for rank, graph in graphs.items()
    )


def _mixed(several: Sequence[Mapping[int, Collective]], count: int, made: Mapping[int, str] = NOTHING) -> list[Finding]:
    if not several:
        return []
    lines = ["the sizes fit, the tensors do not:"]
    for number, issued in enumerate(several):
        of = {rank: f"of {_operands(each)}" for rank, each in issued.items() if each.operands}
        if len({each.reduce for each in issued.values()}) > 1:
            of = {rank: f"reduced by {each.reduce or 'what is not known'}" for rank, each in issued.items()}
        lines += ["and:"] * (number > 0) + [*_said_by(issued, {**of, **made})]
    more = count - len(several)
    lines += [f"and {counted(more, 'collective')} more"] if more > 0 else []
    return [Finding("mixed", tuple(sorted({rank for issued in several for rank in issued})), tuple(lines))]


def _hangs(
    outcome: Outcome, waiting: Container[int], stopped: Set[int], open_ranks: Mapping[int, str], *, is_sample: bool
) -> Iterator[Finding]:
    problem, unreceived = outcome.problem, outcome.unreceived
    if isinstance(problem, Mismatch):
        (label, _), issued = problem.group, problem.issued
        yield Finding("hang", tuple(sorted(issued)), (f"{problem.reason} on {label}", *_said_by(issued)))
    elif isinstance(problem, Stuck) and not is_sample:
        # Ranks in a circle that really waited did not survive it.
        is_sure = any(rank in waiting for rank in problem.waiting)
        if problem.first:
            is_sure = any(rank not in open_ranks for those in problem.first.values() for rank in those)
        kind: Kind = "hang" if is_sure else "may hang"
        lines = _hanging(problem) if problem.first and is_sure else [*_said_by(problem.waiting)]
        if not is_sure:
            those = {rank for each in problem.first.values() for rank in each}
            lines += [f"{span([rank])} {why}" for rank, why in open_ranks.items() if rank in those]
        yield Finding(kind, tuple(sorted(problem.waiting)), tuple(lines))
    elif unreceived and not is_sample:
        # Who sends need not wait for the other, and may. In a schedule, the others ran on to its end.
        lines = [f"never received: {line}" for line in _said_by(unreceived)]
        yield Finding("may hang" if stopped.isdisjoint(unreceived) else "hang", tuple(sorted(unreceived)), tuple(lines))


def _hanging(stuck: Stuck) -> list[str]:
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


def _said_by(issued: Mapping[int, Collective], made: Mapping[int, str] = NOTHING) -> Iterator[str]:
    by_text: defaultdict[str, list[int]] = defaultdict(list)
    for rank, collective in sorted(issued.items()):
        by_text[said(collective) + (f", {made[rank]}" if rank in made else "")].append(rank)
    for text, ranks in by_text.items():
        yield f"{span(ranks)} in {text}"


def _operands(issued: Collective) -> str:
    shown, more = issued.operands[:_MOST_OPERANDS], len(issued.operands) - _MOST_OPERANDS
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _alike(ranks: Sequence[RankFile]) -> list[list[RankFile]]:
    found: dict[tuple[int | None, bytes], list[RankFile]] = defaultdict(list)
    for one in ranks:
        found[one.rank.stage, one.digest].append(one)
    return sorted(found.values(), key=lambda members: (-len(members), members[0].rank.rank))


class _Differing(NamedTuple):
    """A line for each difference of two graphs; ``sizes`` is set if they differ in sizes alone."""

    lines: tuple[str, ...]
    sizes: bool


def _differences(usual: Graph, other: Graph) -> _Differing:
    """Return how another graph differs from the usual one, in the order of the model."""
    found = compare(usual, other)
    changes = ignoring(found, _SIZES).changes
    made = [_framework(usual), _framework(other)]
    by = [f"is made by {made[1] or 'no known framework'}, not by {made[0] or 'one'}"] if made[0] != made[1] else []
    if not changes and not by:
        return _Differing((), bool(found.changes))
    has, lacks = _functions(usual), _functions(other)
    order = {path: place for place, path in enumerate({**usual.scopes, **other.scopes})}
    lines = [(path, f"lacks {path} ({counted(has[path], 'node')}{_place(usual, path)})") for path in _whole(has, lacks)]
    lines += [
        (path, f"has {path} beside ({counted(lacks[path], 'node')}{_place(other, path)})")
        for path in _whole(lacks, has)
    ]
    told = [text for _, text in sorted(lines, key=lambda line: order.get(line[0], len(order)))]
    told = by + (told or list(_first_changes(changes, order)))
    more = len(told) - _MOST
    rest = [f"and {counted(more, 'difference')} more"] if more > 0 else []
    return _Differing((*told[:_MOST], *rest), sizes=False)


def _framework(graph: Graph) -> str:
    return f"{graph.producer.framework} {graph.producer.framework_version}".strip()


def _functions(graph: Graph) -> Counter[str]:
    found: Counter[str] = Counter()
    for scope, count in Counter(node.scope for node in graph.nodes.values() if node.role == "function").items():
        for path in upwards(scope):
            found[path] += count
    return found


def _place(graph: Graph, path: str) -> str:
    place = place_in(graph, path)
    return place and f", {place}"


def _whole(has: Mapping[str, int], lacks: Mapping[str, int]) -> Iterator[str]:
    for path, count in has.items():
        above = path.rpartition(".")[0]
        if path and count and not lacks.get(path) and (not above or lacks.get(above)):
            yield path


def _first_changes(changes: Sequence[Change], order: Mapping[str, int]) -> Iterator[str]:
    by_module: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for change in changes:
        path = change.id if change.subject == "scope" else change.scope
        by_module[path][f"{change.kind} {change.what or change.subject}"] += 1
    for path in sorted(by_module, key=lambda path: (order.get(path, len(order)), path)):
        what = ", ".join(f"{count} × {text}" if count > 1 else text for text, count in by_module[path].items())
        yield f"differs in {path or 'the model itself'}: {what}"
