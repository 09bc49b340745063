"""Compare the files of ranks, and collect the findings."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final

from msgspec.structs import replace

from gradir.diffs.changes import Change
from gradir.diffs.compare import compare
from gradir.diffs.ignoring import ignore_fields
from gradir.distributed.missing import find_missing, join_names, module_line
from gradir.distributed.model import Finding, Group, Kind, Ranks
from gradir.distributed.operands import find_swapped
from gradir.distributed.reading import RankFile, graph_in, group_members, read_ranks
from gradir.distributed.simulation import Mismatch, Outcome, Stuck, simulate
from gradir.distributed.windows import CUT_OFF, STOPPED, WAITING, find_late_ranks, find_open_ranks, find_unaligned
from gradir.distributed.words import describe_collective, span
from gradir.ir import Collective, Graph
from gradir.ir.frozen import NOTHING
from gradir.ir.head import find_summed_parameters
from gradir.ir.memo import group_by_key
from gradir.ir.model import clamp_size
from gradir.ir.module_tree import walk_up
from gradir.ir.text import pluralize
from gradir.ir.totals import totals

_SIZES: Final = (
    *("out[*].shape", "saved.*.shape", "saved.*.bytes", "total", "own", "trainable", "detail", "indices"),
    *map("attrs.{}".format, ("*size", "*sizes", "*stride", "*strides", "*numel", "end", "length", "pad")),
)
"""The changes that only follow from the sizes of a rank's shards."""
_OFFSETS: Final = ("attrs.index", "attrs.start")

_NUMBERS: Final = re.compile(r"[-0-9, ()]*")
_Stage = int | bytes | None
_FEW: Final = 4
_MOST_NODES: Final = 60_000
"""The nodes of distinct graphs to read, which takes a second and some tens of megabytes."""

_MOST: Final = 5
_MOST_OPERANDS: Final = 2
_COPIES = (
    "give all ranks equal values before the first step, and run equal steps: equal gradients do not remove a difference"
)
_SHARDS = "these are shards: reduce over the ranks that have the same one, with equal values"


def compare_ranks(sources: Iterable[object]) -> Ranks:
    """Compare the ranks of a run, from their files or graphs.

    Raises:
        GradirError: they are not the files of ranks of one run.
    """
    ranks = read_ranks(sources)
    world = ranks[0].rank.world
    groups: list[Group] = []
    firsts: list[RankFile] = []
    different: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    # The largest group of each stage, and its graph, since the stages of a pipeline always differ.
    usual: dict[_Stage, tuple[int, Graph]] = {}
    unreached: dict[_Stage, dict[int, tuple[str, ...]]] = defaultdict(dict)
    compared: list[RankFile] = []
    skipped: list[list[RankFile]] = []
    read_nodes = 0
    by_graph = group_by_key(((one.rank.stage, one.digest), one) for one in ranks if not one.rank.stopped)
    is_even = len({*map(len, by_graph.values())}) == 1
    for members in sorted(by_graph.values(), key=lambda members: (-len(members), members[0].rank.rank)):
        # A program that sends by hand may have other stages too.
        stage = members[0].digest if members[0].sends_by_hand else members[0].rank.stage
        if stage in usual and len(groups) >= _FEW and read_nodes > _MOST_NODES:
            skipped.append(members)
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
        lines, sizes = _differences(largest, graph, is_even=is_even)
        if lines:
            groups.append(group)
            firsts.append(members[0])
            different[lines] += group.ranks
        else:
            joined = tuple(sorted({*groups[place].ranks, *group.ranks}))
            groups[place] = replace(groups[place], ranks=joined, uneven=groups[place].uneven or sizes)
    if skipped:
        more = (f"{pluralize(len(skipped), 'graph')} more, not compared in detail, since there are so many",)
        different[more] = [one.rank.rank for members in skipped for one in members]
    findings = [Finding("graphs", tuple(sorted(numbers)), lines) for lines, numbers in different.items()]
    compared.sort(key=lambda one: one.rank.rank)
    unaligned = find_unaligned(ranks)
    outcome, problems, cut_off = _check_collectives(
        ranks, compared, is_sample=len(ranks) < world, is_aligned=not unaligned
    )
    on_all, on_some = _compare_unreached(unreached.values())
    # A process that recorded its collectives names its backend, even if it exchanged nothing.
    recorded = any(one.rank.backend or one.collectives for one in ranks)
    stops = ((CUT_OFF if one.rank.rank in cut_off else one.rank.stopped, one.rank.rank) for one in ranks)
    stopped = {why: tuple(each) for why, each in group_by_key(stops).items() if why}
    numbers, every = tuple(one.rank.rank for one in ranks), (*problems, *findings, *on_some)
    found = Ranks(world, numbers, tuple(groups), every, outcome.done, on_all, recorded, stopped, unaligned)
    return found.with_files(lambda: tuple(map(graph_in, firsts)), (ranks, outcome))


def _group(members: Sequence[RankFile], graph: Graph) -> Group:
    counts = totals(graph)
    local = sum(math.prod(size for size in shape if isinstance(size, int)) for shape in members[0].rank.local.values())
    return Group(
        tuple(one.rank.rank for one in members),
        counts.nodes,
        counts.edges,
        counts.saved_bytes,
        clamp_size(local) or counts.parameters,
        len(members[0].collectives),
        stage=members[0].rank.stage,
    )


def _compare_unreached(unreached: Iterable[Mapping[int, Sequence[str]]]) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    on_all: list[str] = []
    names_of: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    for by_rank in unreached:
        for name, ranks in group_by_key((name, rank) for rank, names in by_rank.items() for name in names).items():
            if len(ranks) == len(by_rank):
                on_all.append(name)
            else:
                names_of[tuple(sorted(ranks))].append(name)
    found = [
        Finding("cuts", ranks, (f"no gradient for {', '.join(names)}",)) for ranks, names in sorted(names_of.items())
    ]
    return tuple(on_all), tuple(found)


def _check_collectives(
    ranks: Sequence[RankFile], compared: Sequence[RankFile], *, is_sample: bool, is_aligned: bool
) -> tuple[Outcome, list[Finding], Container[int]]:
    """Return how the collectives end, their findings, and the ranks that a captured step cut off."""
    if not is_aligned:
        return Outcome(0, None), [*find_missing(compared, is_aligned=False)], ()
    files = {one.rank.rank: one for one in ranks}
    joined = {one.rank.rank for one in ranks if one.rank.stopped == "joins"}
    programs = {rank: one.collectives for rank, one in files.items()}
    outcome = simulate(programs, {rank: one.rank.groups for rank, one in files.items()}, joined)
    open_ranks, late = find_open_ranks(ranks, outcome), find_late_ranks(ranks)
    own = [each for each in outcome.mixed if _are_of_own_modules(each, files)]
    if own and outcome.problem is None:
        # The places may be of collectives that are not reported.
        outcome = outcome._replace(places={})
    mixed = _report_mixed([each for each in outcome.mixed if each not in own], 0 if own else outcome.mixed_count)
    cut_off = {rank for rank, why in open_ranks.items() if why == CUT_OFF}
    unreceived = {
        rank: sent
        for rank, sent in outcome.unreceived.items()
        if files[rank].rank.groups[sent.group][sent.peer or 0] not in cut_off | late
    }
    outcome = outcome._replace(unreceived=unreceived)
    problem = outcome.problem
    if isinstance(problem, Stuck) and problem.first:
        first = {rank: awaited for rank, awaited in problem.first.items() if rank not in late}
        if all(cut_off.issuperset(awaited) for awaited in first.values()):
            outcome = outcome._replace(problem=None, places={})
        else:
            outcome = outcome._replace(problem=problem._replace(first=first))
    if not mixed and outcome.problem is None:
        swapped = [*find_swapped(compared)]
        mixed = _report_mixed(
            [each.issued for each in swapped[:1]], len(swapped), swapped[0].made_by if swapped else {}
        )
    waiting = {one.rank.rank for one in ranks if one.rank.stopped in WAITING}
    # If no rank continues, no later step sends a message that a rank waits for.
    continues = is_sample or any(one.rank.stopped not in (*WAITING, "fails", "ends") for one in ranks)
    stopped = {one.rank.rank for one in ranks if one.rank.stopped in STOPPED} - cut_off - (late if continues else set())
    hangs = [*_report_hangs(outcome, waiting, stopped, open_ranks, is_sample=is_sample)]
    if not hangs and not mixed:
        hangs = [*_report_stopped([files[rank] for rank in sorted(stopped)])]
    return outcome, [*hangs, *mixed, *find_missing(compared), *_find_differing_values(compared)], cut_off


def _report_stopped(ranks: Sequence[RankFile]) -> Iterator[Finding]:
    last = {one.rank.rank: one.collectives[-1] for one in ranks if one.collectives}
    if last:
        advice = "another rank may have crashed without a file; --dry captures the step without sending data"
        yield Finding("hang", tuple(last), (*(f"stopped: {line}" for line in _describe_issued(last)), advice))


def _are_of_own_modules(issued: Mapping[int, Collective], files: Mapping[int, RankFile]) -> bool:
    """Return whether ranks communicate in modules that others lack, such as their own experts."""
    by_scope = {each.scope: rank for rank, each in issued.items() if each.phase == "forward"}
    graphs = {rank: graph_in(files[rank]) for rank in by_scope.values()} if len(by_scope) > 1 else {}
    return any(
        issued[rank].scope in graph.scopes
        and not by_scope.keys() <= graph.scopes.keys()
        and not any(name in graph.nodes and graph.nodes[name].role == "parameter" for name in issued[rank].operands)
        for rank, graph in graphs.items()
    )


def _report_mixed(
    several: Sequence[Mapping[int, Collective]], count: int, made: Mapping[int, str] = NOTHING
) -> list[Finding]:
    if not several:
        return []
    lines = ["the sizes fit, the tensors do not:"]
    for number, issued in enumerate(several):
        details = {rank: f"of {_join_operands(each)}" for rank, each in issued.items() if each.operands}
        if len({each.reduce for each in issued.values()}) > 1:
            details = {rank: f"reduced by {each.reduce or 'an unknown operation'}" for rank, each in issued.items()}
        lines += ["and:"] * (number > 0) + [*_describe_issued(issued, {**details, **made})]
    more = count - len(several)
    lines += [f"and {pluralize(more, 'collective')} more"] if more > 0 else []
    return [Finding("mixed", tuple(sorted({rank for issued in several for rank in issued})), tuple(lines))]


def _report_hangs(
    outcome: Outcome, waiting: Set[int], stopped: Set[int], open_ranks: Mapping[int, str], *, is_sample: bool
) -> Iterator[Finding]:
    problem, unreceived = outcome.problem, outcome.unreceived
    if isinstance(problem, Mismatch):
        (label, _), issued = problem.group, problem.issued
        yield Finding("hang", tuple(sorted(issued)), (f"{problem.reason} on {label}", *_describe_issued(issued)))
    elif isinstance(problem, Stuck) and not is_sample:
        awaited = {rank for ranks in problem.first.values() for rank in ranks}
        # Ranks that wait for none that ended wait in a circle. If it is real, they were waiting when they stopped.
        is_sure = bool(awaited - open_ranks.keys() if problem.first else waiting & problem.waiting.keys())
        kind: Kind = "hang" if is_sure else "may hang"
        lines = _describe_hang(problem) if problem.first and is_sure else [*_describe_issued(problem.waiting)]
        if not is_sure:
            lines += [f"{span([rank])} {why}" for rank, why in open_ranks.items() if rank in awaited]
        yield Finding(kind, tuple(sorted(problem.waiting)), tuple(lines))
    elif unreceived and not is_sample:
        # A sender may wait for its receiver or not. In a schedule, the others ran to its end.
        lines = [f"never received: {line}" for line in _describe_issued(unreceived)]
        yield Finding("may hang" if stopped.isdisjoint(unreceived) else "hang", tuple(sorted(unreceived)), tuple(lines))


def _describe_hang(stuck: Stuck) -> list[str]:
    lines = [f"wait for ever: {line}" for line in _describe_issued({rank: stuck.waiting[rank] for rank in stuck.first})]
    for count, ended in sorted(group_by_key((count, rank) for rank, count in stuck.ended.items()).items()):
        lines.append(
            f"{span(ended)} {'has' if len(ended) == 1 else 'have'} ended after {pluralize(count, 'collective')}"
        )
    others = stuck.waiting.keys() - {*stuck.first}
    if others:
        lines.append(f"{span(others)} {'waits' if len(others) == 1 else 'wait'} for these")
    return lines


def _describe_issued(issued: Mapping[int, Collective], made: Mapping[int, str] = NOTHING) -> Iterator[str]:
    texts = {rank: describe_collective(issued[rank]) + (f", {made[rank]}" if rank in made else "") for rank in issued}
    for text, ranks in group_by_key((texts[rank], rank) for rank in sorted(issued)).items():
        yield f"{span(ranks)} in {text}"


def _find_differing_values(ranks: Sequence[RankFile]) -> Iterator[Finding]:
    # Groups of one label mostly do the same, so collect by label and names the ranks that differ and those that agree.
    found: defaultdict[tuple[str, tuple[str, ...]], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for (label, _), members in group_members(one for one in ranks if one.rank.values).items():
        names = _find_summed(label, members)
        rows = {one.rank.rank: tuple(map(one.rank.values.get, names)) for one in members}
        usual = Counter(rows.values()).most_common(1)[0][0]
        differing: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for rank, row in rows.items():
            pairs = zip(names, row, usual, strict=True)
            differing[tuple([name for name, own, other in pairs if own != other and None not in (own, other)])].append(
                rank
            )
        agreeing = differing.pop((), [])
        for changed, others in differing.items():
            found[label, changed][0].extend(others)
            found[label, changed][1].extend(agreeing)
    for (label, changed), (others, agreeing) in found.items():
        line = f"{join_names(changed)}: other values than on {span(agreeing)}, and gradients are summed on {label}"
        is_shard = any(changed[0] in one.rank.local for one in ranks)
        yield Finding("values", tuple(sorted(others)), (line, _SHARDS if is_shard else _COPIES))


def _find_summed(label: str, ranks: Sequence[RankFile]) -> Sequence[str]:
    if all(one.rank.values == ranks[0].rank.values for one in ranks):
        return ()
    programs = {id(one.collectives): one for one in ranks}.values()
    every = ((issued, one.rank.wrappers) for one in programs for issued, _ in one.collectives.kinds())
    names = (
        name for issued, wrappers in every if issued.group == label for name in find_summed_parameters(issued, wrappers)
    )
    return tuple(dict.fromkeys(names))


def _join_operands(issued: Collective) -> str:
    shown, more = issued.operands[:_MOST_OPERANDS], len(issued.operands) - _MOST_OPERANDS
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _differences(usual: Graph, other: Graph, *, is_even: bool) -> tuple[tuple[str, ...], bool]:
    """Return a line for each difference of a graph from the usual one, and whether they differ in sizes only."""
    found = compare(usual, other)
    every = ignore_fields(found, _SIZES).changes
    changes = [each for each in every if not _follows_from_rank(each, usual, is_even=is_even)]
    made = [_framework(usual), _framework(other)]
    by = [f"is made by {made[1] or 'no known framework'}, not by {made[0] or 'one'}"] if made[0] != made[1] else []
    if not changes and not by:
        return (), bool(found.changes)
    counts, others = _functions(usual), _functions(other)
    order = {path: place for place, path in enumerate({**usual.scopes, **other.scopes})}
    lines = [(path, f"lacks {path} {_size(usual, path, counts)}") for path in _find_absent(counts, others)]
    lines += [(path, f"has {path} beside {_size(other, path, others)}") for path in _find_absent(others, counts)]
    texts = [text for _, text in sorted(lines, key=lambda line: order.get(line[0], len(order)))]
    texts = by + (texts or list(_first_changes(changes, order)))
    more = len(texts) - _MOST
    rest = [f"and {pluralize(more, 'difference')} more"] if more > 0 else []
    return (*texts[:_MOST], *rest), False


def _follows_from_rank(change: Change, graph: Graph, *, is_even: bool) -> bool:
    """Return whether a change may follow from the number of a rank, if ``is_even`` also the part that it takes."""
    node = graph.nodes.get(change.old_id or change.id)
    is_custom = node is not None and "needs_input_grad" in node.attrs
    return change.kind == "changed" and all(
        (is_custom and field.path[0] == "attrs" and _NUMBERS.fullmatch(repr((field.before, field.after))))
        or (is_even and (field.name in _OFFSETS or getattr(field.before, "id", 0) == getattr(field.after, "id", 1)))
        for field in change.fields
    )


def _framework(graph: Graph) -> str:
    return f"{graph.producer.framework} {graph.producer.framework_version}".strip()


def _functions(graph: Graph) -> Counter[str]:
    found: Counter[str] = Counter()
    for scope, count in Counter(node.scope for node in graph.nodes.values() if node.role == "function").items():
        for path in walk_up(scope):
            found[path] += count
    return found


def _size(graph: Graph, path: str, counts: Mapping[str, int]) -> str:
    line = module_line(graph, path)
    return f"({pluralize(counts[path], 'node')}{line and f', {line}'})"


def _find_absent(usual: Mapping[str, int], other: Mapping[str, int]) -> Iterator[str]:
    for path, count in usual.items():
        above = path.rpartition(".")[0]
        if path and count and not other.get(path) and (not above or other.get(above)):
            yield path


def _first_changes(changes: Sequence[Change], order: Mapping[str, int]) -> Iterator[str]:
    by_module: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for change in changes:
        path = change.id if change.subject == "scope" else change.scope
        by_module[path][f"{change.kind} {change.label or change.subject}"] += 1
    for path in sorted(by_module, key=lambda path: (order.get(path, len(order)), path)):
        texts = [f"{count} × {text}" if count > 1 else text for text, count in by_module[path].items()]
        yield f"differs in {path or 'the model itself'}: {', '.join(texts)}"
