"""Find communication that some ranks leave out or that no rank completes, such as unreduced gradients."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gradir.distributed.model import Finding
from gradir.distributed.reading import RankFile, graph_in, group_members
from gradir.distributed.simulation import POINT_TO_POINT, ROOTED
from gradir.distributed.windows import NO_SYNC, UNFINISHED
from gradir.distributed.words import describe_collective, span
from gradir.ir import Graph, Node
from gradir.ir.memo import Memo, group_by_key
from gradir.ir.text import pluralize

_HOOK: Final = "hook:"
_UNCALLED: Final = "uncalled"
_SILENT: Final = frozenset({NO_SYNC, _UNCALLED})
_STATES: Final[Mapping[str, str]] = {
    NO_SYNC: "no gradient is reduced in this backward (no_sync)",
    "static": "the order of the gradients is that of the first step",
    _UNCALLED: "no gradient is reduced, since its own forward was not called, only that of a module in it",
    "unused": "the ranks exchange which gradients are to come",
}
_OUTSIDE, _INSIDE, _SILENT_INSIDE, _BY_HAND = "outside", "inside", "silent", "by hand"
_LACKS: Final[Mapping[str, str]] = {
    _OUTSIDE: "no wrapper has {}, and no collective reduces the gradients before the optimizer's step",
    _INSIDE: "the wrapper does not reduce {}, and no collective reduces the gradients before the optimizer's step",
    _SILENT_INSIDE: "the optimizer steps after a backward in no_sync, which leaves the gradients of {} unreduced",
    _BY_HAND: "the optimizer's step changes {}, and no collective has returned the sum of the gradients",
}
_ADVICE: Final[Mapping[str, str]] = {
    _OUTSIDE: "these copies part: wrap the module that has them, or reduce their gradients",
    _INSIDE: "these copies part: they were added, replaced or unfrozen after it was created: wrap the model after that",
    _SILENT_INSIDE: "run the last forward and backward before each step with synchronization",
    _BY_HAND: "these copies part: reduce the gradients on all ranks before the step",
}
_State = tuple[str, ...] | None
_MOST: Final = 4


def find_missing(ranks: Sequence[RankFile], *, is_aligned: bool = True) -> Iterator[Finding]:
    """Find missing communication in the states of wrappers and, if steps are aligned, in the collectives."""
    graphs = _Graphs(ranks)
    known: set[int] = set()
    for finding in (*_find_unfinished(ranks, graphs), *_find_other_states(ranks, graphs)):
        known.update(finding.ranks)
        yield finding
    yield from _find_unreduced(ranks, graphs, known)
    # A rank with a known reason cannot reduce all gradients, and a rank that accumulates may reduce them later.
    checked = (one for one in ranks if one.rank.rank not in known and not one.rank.accumulates)
    yield from _find_left_out(checked if is_aligned else (), ranks, graphs)


class _Graphs:
    def __init__(self, ranks: Sequence[RankFile]) -> None:
        # The first rank with each graph, so that equal graphs are read once.
        firsts = {one.digest: one for one in reversed(ranks)}
        self._digests = tuple(firsts)
        self._by_digest = Memo[bytes, Graph](lambda digest: graph_in(firsts[digest]))

    def __call__(self, one: RankFile) -> Graph:
        return self._by_digest[one.digest]

    @property
    def all(self) -> Iterator[Graph]:
        return map(self._by_digest.__getitem__, self._digests)

    def describe_use(self, module: str, own: Graph) -> str:
        """Return whether and at which line some rank runs a module whose parameters get no gradient here."""
        place = next(filter(None, (module_line(graph, module) for graph in (own, *self.all))), "")
        shown = f"{module}{place and f' ({place})'}"
        if any(_functions_in(own, module)):
            return f"the loss depends on {shown}, and not on these"
        is_used = any(each for graph in self.all for each in _functions_in(graph, module))
        return f"other ranks run {shown}" if is_used else f"no loss depends on {module}"


def module_line(graph: Graph, path: str) -> str:
    """Return the line that runs a module, or an empty text if the graph does not have it."""
    first = next((node.source for node in _functions_in(graph, path) if node.source is not None), None)
    return "" if first is None else f"{first.file}:{first.line}"


def _is_in_any(name: str, paths: Iterable[str]) -> bool:
    return any(not path or name.startswith(f"{path}.") for path in paths)


def _functions_in(graph: Graph, path: str) -> Iterator[Node]:
    functions = (node for node in graph.nodes.values() if node.role == "function")
    return (node for node in functions if not path or f"{node.scope}.".startswith(f"{path}."))


def _find_unfinished(ranks: Sequence[RankFile], graphs: _Graphs) -> Iterator[Finding]:
    waiting: defaultdict[tuple[str, ...], list[RankFile]] = defaultdict(list)
    for one in ranks:
        paths = [path for path, state in one.rank.wrappers.items() if UNFINISHED in state]
        if paths:
            own = graphs(one)
            names = [cut.names[0] for cut in own.cuts if cut.names and not cut.is_place]
            # Only the graphs of other ranks have a parameter that was frozen after the wrapper was made.
            parameters = (node.id for graph in graphs.all for node in graph.nodes.values() if node.role == "parameter")
            names = names or [name for name in dict.fromkeys(parameters) if name not in own.nodes]
            waiting[tuple(name for name in names if _is_in_any(name, paths))].append(one)
    for lacking, members in waiting.items():
        shown = join_names(lacking) if lacking else "parameters that were frozen or replaced after it was made"
        lines = [f"waits for the gradients of {shown}, and reduces no bucket that lacks one"]
        modules = dict.fromkeys(filter(None, (name.rpartition(".")[0] for name in lacking)))
        lines += [graphs.describe_use(module, graphs(members[0])) for module in [*modules][:_MOST]]
        lines.append("the next forward raises that the reduction of this backward has not finished")
        yield Finding("missing", tuple(one.rank.rank for one in members), tuple(lines))


def _find_unreduced(ranks: Sequence[RankFile], graphs: _Graphs, known: Collection[int]) -> Iterator[Finding]:
    by_name = group_by_key((name, one) for one in ranks for name in one.rank.unreduced)
    names_of: defaultdict[tuple[tuple[int, ...], str], list[str]] = defaultdict(list)
    for name, members in by_name.items():
        wrappers = members[0].rank.wrappers
        states = [words for path, words in wrappers.items() if _is_in_any(name, [path])]
        place = _INSIDE if states else _OUTSIDE if wrappers else _BY_HAND
        place = _SILENT_INSIDE if any(NO_SYNC in words for words in states) else place
        numbers = tuple(one.rank.rank for one in members)
        owners = [one for one in ranks if name in graphs(one).nodes or name in one.rank.unreduced]
        if _are_copies(name, owners, graphs, place) and not (place == _SILENT_INSIDE and {*numbers}.issubset(known)):
            names_of[numbers, place].append(name)
    for (numbers, place), names in names_of.items():
        first = by_name[names[0]][0]
        modules = dict.fromkeys(name.rpartition(".")[0] for name in names)
        places = [f"{path} ({line})" for path in modules if path and (line := module_line(graphs(first), path))]
        lines = [_LACKS[place].format(join_names(names))]
        lines += [f"used in {join_names(places)}"] if places else []
        sums = (each for each in first.collectives if each.phase == "forward" and each.op in ("all_reduce", "reduce"))
        issued = next((each for each in sums if names[0] in each.operands), None)
        if issued is not None:
            only = "gives the sum to one rank only" if issued.op in ROOTED else "sums a copy, which is not copied back"
            lines.append(f"{describe_collective(issued)} {only}")
        yield Finding("missing", numbers, (*lines, _ADVICE[place]))


def _are_copies(name: str, owners: Sequence[RankFile], graphs: _Graphs, place: str) -> bool:
    """Return whether ranks have copies of a parameter, and not parts of it or parameters of their own."""
    if len(owners) == 1 or place in (_SILENT_INSIDE, _INSIDE):
        return len(owners) > 1
    values = Counter(one.rank.values.get(name) for one in owners)
    nodes = (graphs(one).nodes.get(name) for one in owners)
    shapes = {tensor.shape for node in nodes if node is not None for tensor in node.outputs}
    # Nothing but equal values shows which parameters a program without wrappers has on several ranks.
    return len(shapes) <= 1 and (place == _OUTSIDE or (None not in values and min(values.values()) > 1))


def _find_other_states(ranks: Sequence[RankFile], graphs: _Graphs) -> Iterator[Finding]:
    for members in group_by_key((one.rank.stage, one) for one in ranks).values():
        paths_of: defaultdict[tuple[tuple[_State, tuple[int, ...]], ...], list[str]] = defaultdict(list)
        for path in dict.fromkeys(path for one in members for path in one.rank.wrappers):
            by_state: defaultdict[_State, list[int]] = defaultdict(list)
            for one in members:
                state = one.rank.wrappers.get(path)
                if state is None and path and path not in graphs(one).scopes:
                    continue
                # A step with several backward passes may have more of them on one rank.
                if state and NO_SYNC in state and one.rank.accumulates:
                    continue
                known = state and tuple(word for word in state if word != UNFINISHED)
                by_state[known].append(one.rank.rank)
            if len(by_state) > 1 or any(state and _UNCALLED in state for state in by_state):
                states = tuple((state, tuple(numbers)) for state, numbers in by_state.items())
                paths_of[states].append(path or "the model")
        for states, paths in paths_of.items():
            yield _report_states(paths, dict(states))


def _report_states(paths: Sequence[str], by_state: Mapping[_State, Sequence[int]]) -> Finding:
    silent = [
        rank for state, ranks in by_state.items() if state is None or not _SILENT.isdisjoint(state) for rank in ranks
    ]
    usual = max(by_state, key=lambda state: (len(by_state[state]), not state))
    others = [rank for state, ranks in by_state.items() if state != usual for rank in ranks]
    lines = [f"{join_names(paths)} on {span(ranks)}: {_describe_state(state)}" for state, ranks in by_state.items()]
    return Finding("missing", tuple(sorted(silent or others)), tuple(lines))


def _describe_state(state: _State) -> str:
    if state is None:
        return "no wrapper reduces gradients"
    words = (word.replace(_HOOK, "gradients are reduced by ", 1) for word in state)
    return ", ".join(_STATES.get(word, word) for word in words) or "gradients are reduced"


def _find_left_out(checked: Iterable[RankFile], ranks: Iterable[RankFile], graphs: _Graphs) -> Iterator[Finding]:
    lists = {id(one.collectives): _collectives_by_group(one) for one in ranks}
    lacking: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    chosen = {one.rank.rank for one in checked}
    for (label, _), members in group_members(ranks).items():
        kinds = {id(one.collectives): one for one in members}
        if len(kinds) == 1:
            continue
        sums = [lists[kind].get(label, _NOTHING) for kind in kinds]
        scopes = dict.fromkeys(scope for forward, _, _ in sums for scope in forward)
        names = dict.fromkeys(name for _, reduced, _ in sums for name in reduced)
        most = max(count for _, _, count in sums)
        for one in members:
            if one.rank.rank in chosen:
                _, reduced, count = lists[id(one.collectives)].get(label, _NOTHING)
                # It may communicate in another group.
                forward = {scope for each, _, _ in lists[id(one.collectives)].values() for scope in each}
                lines = [*_describe_silent(one, [scope for scope in scopes if scope not in forward], graphs)]
                without = [name for name in names if name not in reduced] if count < most else []
                lines += _describe_unreduced(graphs(one), without) if without else []
                if lines:
                    lacking[tuple(lines)].append(one.rank.rank)
    for lines_of, numbers in lacking.items():
        yield Finding("missing", tuple(numbers), lines_of)


_Summary = tuple[Collection[str], Collection[str], int]
"""Modules that communicate in the forward, tensors that are reduced in the backward, and the number of reductions."""
_NOTHING: Final[_Summary] = ((), (), 0)


def _collectives_by_group(one: RankFile) -> Mapping[str, _Summary]:
    forward: defaultdict[str, dict[str, None]] = defaultdict(dict)
    reduced: defaultdict[str, dict[str, None]] = defaultdict(dict)
    counts: Counter[str] = Counter()
    for each, count in one.collectives.kinds():
        if each.op in POINT_TO_POINT:
            continue
        if each.phase == "forward":
            forward[each.group].update({each.scope: None} if each.scope else {})
        else:
            reduced[each.group].update(dict.fromkeys(each.operands))
            counts[each.group] += count
    return {label: (forward[label], reduced[label], counts[label]) for label in {**forward, **reduced}}


def _describe_silent(one: RankFile, scopes: Iterable[str], graphs: _Graphs) -> Iterator[str]:
    for path in scopes:
        scope = graphs(one).scopes.get(path)
        if scope is not None and scope.calls:
            classes = {known.class_name for each in graphs.all if (known := each.scopes.get(path)) is not None}
            others = sorted(classes - {scope.class_name})
            classes_text = f" (it is {scope.class_name} here and {', '.join(others)} there)" if others else ""
            yield f"runs no collective in the forward of {path}, and others do{classes_text}"


def _describe_unreduced(graph: Graph, names: Sequence[str]) -> Iterator[str]:
    unreached = {cut.names[0] for cut in graph.cuts if cut.names and not cut.is_place}
    reasons = {name: "without gradient here" if name in unreached else "" for name in names}
    known = unreached | graph.nodes.keys()
    reasons |= {name: "frozen here, or not there" for name in names if name not in known}
    for reason in dict.fromkeys(reasons.values()):
        listed = join_names([name for name in names if reasons[name] == reason])
        yield f"does not reduce {listed}, and others do{reason and f': they are {reason}'}"


def join_names(names: Sequence[str]) -> str:
    """Return the first names, and the number of others."""
    more = len(names) - _MOST
    shown = ", ".join(names[:_MOST])
    return f"{shown} and {pluralize(more, 'other')}" if more > 0 else shown
