"""Exchanges that some ranks leave out, or that no rank completes: gradients that nobody reduces, modules that wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gradir.distributed.model import Finding
from gradir.distributed.reading import RankFile, graph_in
from gradir.distributed.simulation import POINT_TO_POINT, Key
from gradir.distributed.windows import NO_SYNC, UNFINISHED
from gradir.distributed.words import span
from gradir.ir import Graph, Node
from gradir.ir.text import counted

_HOOK: Final = "hook:"
_UNCALLED: Final = "uncalled"
_SILENT: Final = frozenset({NO_SYNC, _UNCALLED})
_STATES: Final[Mapping[str, str]] = {
    NO_SYNC: "no gradient is reduced in this backward (no_sync)",
    "static": "the order of the gradients is that of the first step",
    _UNCALLED: "no gradient is reduced, since its own forward was not called, only that of a module in it",
    "unused": "the ranks exchange which gradients are to come",
}
_State = tuple[str, ...] | None
_MOST: Final = 4


def missing(ranks: Sequence[RankFile], *, is_aligned: bool = True) -> Iterator[Finding]:
    """Find left-out exchanges in the states of wrappers and, of steps that begin alike, in the collectives."""
    graphs = _Graphs(ranks)
    known: set[int] = set()
    for finding in (*_unfinished(ranks, graphs), *_states(ranks, graphs)):
        known.update(finding.ranks)
        yield finding
    yield from _nowhere(ranks, graphs)
    # A rank whose reason is known does not reduce what it would have to, and one that goes on may do so yet.
    some = (one for one in ranks if one.rank.rank not in known and not one.rank.accumulates)
    yield from _left_out(some if is_aligned else (), ranks, graphs)


class _Graphs:
    def __init__(self, ranks: Sequence[RankFile]) -> None:
        self._known: dict[bytes, Graph] = {}
        # The same graph is asked for in the same words.
        self.firsts = {one.digest: one for one in reversed(ranks)}

    def __call__(self, one: RankFile) -> Graph:
        if one.digest not in self._known:
            self._known[one.digest] = graph_in(self.firsts[one.digest])
        return self._known[one.digest]

    @property
    def all(self) -> Iterator[Graph]:
        return map(self, self.firsts.values())

    def said_of(self, module: str, own: Graph) -> str:
        """Say whether some rank runs a module whose parameters get no gradient here, and where."""
        place = next(filter(None, (place_in(graph, module) for graph in (own, *self.all))), "")
        shown = f"{module}{place and f' ({place})'}"
        if any(_inside(own, module)):
            return f"the loss depends on {shown}, and not on these"
        runs = any(each for graph in self.all for each in _inside(graph, module))
        return f"other ranks run {shown}" if runs else f"no loss depends on {module}"


def place_in(graph: Graph, path: str) -> str:
    """The line that runs a module, where the graph has it; else empty."""
    first = next((node.source for node in _inside(graph, path) if node.source is not None), None)
    return "" if first is None else f"{first.file}:{first.line}"


def _inside(graph: Graph, path: str) -> Iterator[Node]:
    functions = (node for node in graph.nodes.values() if node.role == "function")
    return (node for node in functions if not path or f"{node.scope}.".startswith(f"{path}."))


def _unfinished(ranks: Sequence[RankFile], graphs: _Graphs) -> Iterator[Finding]:
    waiting: defaultdict[tuple[str, ...], list[RankFile]] = defaultdict(list)
    for one in ranks:
        paths = [path for path, state in one.rank.wrappers.items() if UNFINISHED in state]
        if paths:
            own = graphs(one)
            names = [cut.names[0] for cut in own.cuts if cut.names and not cut.is_place]
            # Frozen behind the wrapper's back, a parameter is in the graphs of the others alone.
            there = (node.id for graph in graphs.all for node in graph.nodes.values() if node.role == "parameter")
            names = names or [name for name in dict.fromkeys(there) if name not in own.nodes]
            waiting[
                tuple(name for name in names if any(not path or name.startswith(f"{path}.") for path in paths))
            ].append(one)
    for lacking, members in waiting.items():
        those = listed(lacking) if lacking else "parameters that were frozen or replaced after it was made"
        lines = [f"waits for the gradients of {those}, and reduces no bucket that lacks one"]
        modules = dict.fromkeys(filter(None, (name.rpartition(".")[0] for name in lacking)))
        lines += [graphs.said_of(module, graphs(members[0])) for module in [*modules][:_MOST]]
        lines.append("the next forward raises that the reduction of this backward has not finished")
        yield Finding("missing", tuple(one.rank.rank for one in members), tuple(lines))


def _nowhere(ranks: Sequence[RankFile], graphs: _Graphs) -> Iterator[Finding]:
    by_name: defaultdict[str, list[RankFile]] = defaultdict(list)
    for one in ranks:
        for name in one.rank.unreduced:
            by_name[name].append(one)
    alike: defaultdict[tuple[tuple[int, ...], bool], list[str]] = defaultdict(list)
    for name, members in by_name.items():
        is_inside = any(not path or name.startswith(f"{path}.") for path in members[0].rank.wrappers)
        # What one rank alone has is its own.
        if len(members) > 1:
            alike[tuple(one.rank.rank for one in members), is_inside].append(name)
    for (numbers, is_inside), names in alike.items():
        graph = graphs(by_name[names[0]][0])
        modules = dict.fromkeys(name.rpartition(".")[0] for name in names)
        places = [f"{path} ({place})" for path in modules if path and (place := place_in(graph, path))]
        lacks = "the wrapper does not reduce" if is_inside else "no wrapper holds"
        lines = [f"{lacks} {listed(names)}, and nothing exchanges the gradients before the optimizer's step"]
        lines += [f"used in {listed(places)}"] if places else []
        added = "they were put there, replaced or unfrozen after it was made: wrap the model behind that"
        wrapped = "wrap the module that holds them, or reduce their gradients"
        lines.append(f"these copies part: {added if is_inside else wrapped}")
        yield Finding("missing", numbers, tuple(lines))


def _states(ranks: Sequence[RankFile], graphs: _Graphs) -> Iterator[Finding]:
    """Find wrappers that differ in their state or are missing where the module is not, and those not called."""
    by_stage: defaultdict[int | None, list[RankFile]] = defaultdict(list)
    for one in ranks:
        by_stage[one.rank.stage].append(one)
    for members in by_stage.values():
        alike: defaultdict[tuple[tuple[_State, tuple[int, ...]], ...], list[str]] = defaultdict(list)
        for path in dict.fromkeys(path for one in members for path in one.rank.wrappers):
            by_state: defaultdict[_State, list[int]] = defaultdict(list)
            for one in members:
                state = one.rank.wrappers.get(path)
                if state is None and path and path not in graphs(one).scopes:
                    continue
                # A step over several backwards may have more of them on one rank.
                if state and NO_SYNC in state and one.rank.accumulates:
                    continue
                known = state and tuple(word for word in state if word != UNFINISHED)
                by_state[known].append(one.rank.rank)
            if len(by_state) > 1 or any(state and _UNCALLED in state for state in by_state):
                alike[tuple((state, tuple(numbers)) for state, numbers in by_state.items())].append(path or "the model")
        for states, paths in alike.items():
            yield _differing(paths, dict(states))


def _differing(paths: Sequence[str], by_state: Mapping[_State, Sequence[int]]) -> Finding:
    silent = [
        rank for state, some in by_state.items() if state is None or not _SILENT.isdisjoint(state) for rank in some
    ]
    usual = max(by_state, key=lambda state: (len(by_state[state]), not state))
    others = [rank for state, some in by_state.items() if state != usual for rank in some]
    lines = [f"{listed(paths)} on {span(some)}: {_said(state)}" for state, some in by_state.items()]
    return Finding("missing", tuple(sorted(silent or others)), tuple(lines))


def _said(state: _State) -> str:
    if state is None:
        return "no wrapper reduces gradients"
    words = (word.replace(_HOOK, "gradients are reduced by ", 1) for word in state)
    return ", ".join(_STATES.get(word, word) for word in words) or "gradients are reduced"


def _left_out(some: Iterable[RankFile], ranks: Iterable[RankFile], graphs: _Graphs) -> Iterator[Finding]:
    lists = {id(one.collectives): _by_group(one) for one in ranks}
    in_group: defaultdict[Key, list[RankFile]] = defaultdict(list)
    for one in ranks:
        for label in one.rank.groups:
            in_group[label, one.rank.groups[label]].append(one)
    lacking: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    chosen = {one.rank.rank for one in some}
    for (label, _), members in in_group.items():
        kinds = {id(one.collectives): one for one in members}
        if len(kinds) == 1:
            continue
        every = [lists[kind].get(label, _NOTHING) for kind in kinds]
        scopes = dict.fromkeys(scope for forward, _, _ in every for scope in forward)
        names = dict.fromkeys(name for _, reduced, _ in every for name in reduced)
        most = max(count for _, _, count in every)
        for one in members:
            if one.rank.rank in chosen:
                forward, reduced, count = lists[id(one.collectives)].get(label, _NOTHING)
                lines = [*_silent(one, [scope for scope in scopes if scope not in forward], graphs)]
                without = [name for name in names if name not in reduced] if count < most else []
                lines += _unreduced(graphs(one), without) if without else []
                if lines:
                    lacking[tuple(lines)].append(one.rank.rank)
    for lines_of, numbers in lacking.items():
        yield Finding("missing", tuple(numbers), lines_of)


_Exchanged = tuple[Collection[str], Collection[str], int]
_NOTHING: Final[_Exchanged] = ((), (), 0)


def _by_group(one: RankFile) -> Mapping[str, _Exchanged]:
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


def _silent(one: RankFile, scopes: Iterable[str], graphs: _Graphs) -> Iterator[str]:
    for path in scopes:
        scope = graphs(one).scopes.get(path)
        if scope is not None and scope.calls:
            classes = {known.class_name for each in graphs.all if (known := each.scopes.get(path)) is not None}
            others = sorted(classes - {scope.class_name})
            what = f" (it is {scope.class_name} here and {', '.join(others)} there)" if others else ""
            yield f"exchanges nothing in the forward of {path}, and others do{what}"


def _unreduced(graph: Graph, names: Sequence[str]) -> Iterator[str]:
    unreached = {cut.names[0] for cut in graph.cuts if cut.names and not cut.is_place}
    whys = {name: "without gradient here" if name in unreached else "" for name in names}
    whys |= {name: "frozen here, or not there" for name in names if name not in unreached | graph.nodes.keys()}
    for why in dict.fromkeys(whys.values()):
        those = [name for name in names if whys[name] == why]
        yield f"does not reduce {listed(those)}, and others do{why and f': they are {why}'}"


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _MOST
    shown = ", ".join(names[:_MOST])
    return f"{shown} and {counted(more, 'other')}" if more > 0 else shown
