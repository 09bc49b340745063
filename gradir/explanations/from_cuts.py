"""Explain a graph from its cuts alone, without its program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from gradir.errors import GraphError
from gradir.explanations.model import LOOKS_OF_LEVELS, Cause, Examined, Explanation, Level
from gradir.explanations.verdict import find_gravest, place_text, sentence_of
from gradir.ir import Cut, Graph
from gradir.ir.cuts import FLOW
from gradir.ir.marks import ELIDED, FOCUS, LEFT_OUT, STATUS, failure, overlay_verdict, stands_for_several
from gradir.ir.text import escape_unprintable, shorten
from gradir.overlays import MOST_OF_A_VERDICT, mark_verdict
from gradir.vocabulary.causes import ADVICE
from gradir.vocabulary.patterns import EXCUSING, LOST, OF_REACHED, OTHER_MODEL, WITHOUT_GRADIENT

# The kinds of cuts that exist even without a recorded forward pass.
_OF_ANY_GRAPH: Final = frozenset({"hidden", "unreached"})
# The kinds of cuts of a parameter that no operation cuts off, with its status.
_STATUSES: Final = {"integer": "frozen", "unused": "unused", "hidden": "hidden"}
_LOSING_NOTHING: Final = frozenset({*_STATUSES, "exchanged"})
# Patterns of cuts whose parameters lose their gradient elsewhere, or may do so.
_OF_TARGETS: Final = EXCUSING | {"scored", "stop-gradient"}
# Marks of nodes in a part of a graph, or in the union of two graphs, which have no verdict of their own.
_OF_PARTS: Final = frozenset({ELIDED, FOCUS, LEFT_OUT, STATUS})
# The most names of one tensor at a cut, since a file may have any number of both.
_MOST_TIED: Final = 64


def explain_cuts(graph: Graph) -> Explanation:
    """Return which parameters of a graph get a gradient, and at which of its cuts the others lose it."""
    if graph.producer.options.get("graph") == "forward":
        raise GraphError(
            "a forward graph does not say where gradients flow; explain the program itself, or a graph captured with "
            "--flow or --graph joint"
        )
    # In a joint graph, unreached parameters are also leaves, as inputs of the forward pass.
    lost = {name for cut in graph.cuts if cut.kind == "unreached" for name in cut.names}
    leaves = [node.names for node in graph.nodes.values() if node.role in {"leaf", "parameter"}]
    leaves = [names for names in leaves if lost.isdisjoint(names)]
    statuses = dict.fromkeys((name for names in leaves for name in names), "reached")
    basic_cuts = [cut for cut in graph.cuts if cut.kind in _OF_ANY_GRAPH]
    tied = tuple(names for names in (*leaves, *(cut.names for cut in basic_cuts)) if len(names) > 1)
    # A cut has the first name of each tensor.
    same = {names[0]: names[:_MOST_TIED] for names in tied}
    flow = [
        replace(cut, names=tuple(chain.from_iterable(same.get(name, (name,)) for name in dict.fromkeys(cut.names))))
        for cut in graph.cuts
        if cut.kind not in _OF_ANY_GRAPH
    ]
    default = "unused" if graph.producer.options.get(FLOW, bool(flow)) is True else "unreached"
    for cut in (*basic_cuts, *flow):
        status = _STATUSES.get(cut.kind, default)
        statuses.update((name, status) for name in cut.names if name not in statuses)
    for cut in flow:
        if cut.kind not in _LOSING_NOTHING:
            status = "unreached" if cut.kind == "opaque" else "cut"
            statuses.update((name, status) for name in cut.names if statuses[name] in {"unused", "unreached"})
    examined = Examined(reason="a file has none", advice="explain the program")
    framework = graph.producer.framework if graph.producer.framework in ADVICE else ""
    causes = unite_causes(_find_causes(statuses, flow, framework), statuses)
    return Explanation(statuses, causes, tied=tied, examined=examined)


class Verdict(NamedTuple):
    """The look and the sentence of a graph, and the cut or the id of the node that the sentence is about."""

    look: str
    sentence: str
    place: Cut | str | None = None


def find_verdict(graph: Graph) -> Verdict | None:
    """Return the verdict of the overlay, else of the cuts; a part of a graph has none.

    A forward graph has one only if it raised.
    """
    nodes = graph.nodes.values()
    given = overlay_verdict(nodes)
    if graph.producer.options.get("graph") == "forward":
        node = next((node for node in nodes if node.ext and failure(node)), None)
        if node is None:
            return None if given is None else Verdict(*given)
        where = f" ({place_text(node.source)})" if node.source else ""
        error = escape_unprintable(shorten(failure(node), MOST_OF_A_VERDICT))
        return Verdict(
            "alarm", f"The forward ended at {escape_unprintable(node.op or node.id)}: {error}{where}.", node.id
        )
    if given is None and any(stands_for_several(node) or not _OF_PARTS.isdisjoint(node.ext) for node in nodes):
        return None
    found = explain_cuts(graph)
    if given is None and not (found.statuses or found.causes):
        return None
    look = LOOKS_OF_LEVELS[found.level] if found.causes else "good"
    cause, place = find_gravest(found), None
    if cause is not None:
        about, names = (cause.kind, cause.op, cause.source, cause.pattern), {*cause.names}
        same = (cut for cut in graph.cuts if (cut.kind, cut.op, cut.source, cut.meant) == about)
        place = next(chain(same, (cut for cut in graph.cuts if not names.isdisjoint(cut.names))), None)
    return Verdict(*(given or (look, sentence_of(found))), place)


def add_verdict(graph: Graph) -> Graph:
    """Return the graph with its verdict as a mark of its outputs."""
    found = None if overlay_verdict(graph.nodes.values()) else find_verdict(graph)
    return graph if found is None else mark_verdict(graph, found.look, found.sentence)


def _find_causes(statuses: dict[str, str], flow: list[Cut], framework: str) -> Iterator[Cause]:
    # All unused parameters share one cause below.
    for cut in (cut for cut in flow if cut.kind != "unused"):
        lost = tuple(name for name in cut.names if statuses[name] == "cut")
        is_lost = bool(lost) and cut.meant not in _OF_TARGETS and cut.kind not in _LOSING_NOTHING
        names = lost if is_lost and cut.meant in LOST else cut.names
        level: Level = "error" if is_lost else "note" if cut.meant == OTHER_MODEL else "info"
        yield Cause(cut.kind, level, cut.op, names, cut.source, cut.via, pattern=cut.meant, framework=framework)
    opaque = {name for cut in flow if cut.kind == "opaque" for name in cut.names}
    for status in ("unused", "unreached"):
        names = tuple(name for name, found in statuses.items() if found == status and name not in opaque)
        if names:
            yield Cause(status, "info", names=names, framework=framework)


# Kinds of cuts from a `with` or a decorator, which cuts all operations inside.
_OF_BLOCKS: Final = frozenset({"no_grad", "inference_mode"})
# So many causes become one block; fewer keep their lines.
_FEWEST: Final = 3
_MOST_LINES: Final = 3
_AT: Final = " at "


class _Named(NamedTuple):
    """A cause with all its names in order, and the places at the end of its details."""

    cause: Cause
    names: dict[str, None]
    places: dict[str, None]


def unite_causes(causes: Iterable[Cause], statuses: Mapping[str, str]) -> tuple[Cause, ...]:
    """Merge the causes of one line, and those of one block without gradients.

    Causes of one line differ in names and in the place at the end of their details. Causes of a block, which follow
    each other in one function or module, differ in the operation too. Names with another gradient come last.
    """
    by_key: dict[Cause, _Named] = {}
    for number, cause in enumerate(causes):
        # Causes without a line have reasons of their own, such as a pair of weights.
        key = replace(cause, names=() if cause.source else (str(number),), excerpt=None)
        before, at, place = cause.detail.rpartition(_AT)
        is_place = cause.source is not None and bool(at) and " " not in place
        if is_place:
            key = replace(key, detail=before)
        if cause.kind in _OF_BLOCKS and cause.source:
            key = replace(key, op="", via=None)
        each = by_key.setdefault(key, _Named(cause, {}, {}))
        each.names.update(dict.fromkeys(cause.names))
        each.places.update(dict.fromkeys([place] if is_place else []))
    blocks: list[list[_Named]] = []
    for each in by_key.values():
        if blocks and _continues_block(each, blocks[-1][-1]):
            blocks[-1].append(each)
        else:
            blocks.append([each])
    joined = chain.from_iterable([_join_block(block)] if len(block) >= _FEWEST else block for block in blocks)
    merged = [_merge_names(each, statuses) for each in joined]
    # A straight-through estimator that bypasses parameters is the first to repair.
    return tuple(sorted(merged, key=lambda cause: (cause.level, cause.pattern) != ("error", "straight-through")))


def _merge_names(each: _Named, statuses: Mapping[str, str]) -> Cause:
    cause = each.cause
    if len(each.places) > 1:
        before = cause.detail.rpartition(_AT)[0]
        cause = replace(cause, detail=f"{before}{_AT}{_list_places([*each.places])}")
    reached = [name for name in each.names if statuses.get(name) == "reached"]
    cut = [name for name in each.names if statuses.get(name) != "reached"]
    if cut and cause.pattern in WITHOUT_GRADIENT:
        # The line also runs for other parameters, which get their gradient.
        reached = []
    is_harmless = bool(reached) and not cut and cause.level == "info"
    pattern = OF_REACHED.get(cause.kind, "") if is_harmless and not cause.pattern else cause.pattern
    return replace(cause, names=(*cut, *reached), pattern=pattern)


def _list_places(places: Sequence[str]) -> str:
    return ", ".join(places[:_MOST_LINES]) + (" and others" if len(places) > _MOST_LINES else "")


def _continues_block(each: _Named, before: _Named) -> bool:
    one, other = before.cause, each.cause
    if one.kind not in _OF_BLOCKS or one.source is None or other.source is None:
        return False
    if (one.kind, one.level, one.detail, one.pattern) != (other.kind, other.level, other.detail, other.pattern):
        return False
    modules = {name.partition(".")[0] for name in (*before.names, *each.names)}
    is_near = (one.source.file, one.source.function) == (other.source.file, other.source.function)
    return is_near or len(modules) == 1


def _join_block(causes: Sequence[_Named]) -> _Named:
    first, *others = (each.cause for each in causes)
    further = [*dict.fromkeys(f"{cause.source.file}:{cause.source.line}" for cause in others if cause.source)]
    names = dict.fromkeys(chain(*(each.names for each in causes)))
    return _Named(replace(first, detail=f"so did the operations at {_list_places(further)}"), names, {})
