"""Explain a graph from its cuts alone, without its program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from gradir.errors import GraphError
from gradir.explanations.model import LOOKS_OF_LEVELS, Cause, Examined, Explanation, Level
from gradir.explanations.uniting import united
from gradir.explanations.verdict import gravest, place_text, sentence_of
from gradir.ir import Cut, Graph
from gradir.ir.cuts import FLOW
from gradir.ir.excerpt import shortened
from gradir.ir.marks import ELIDED, FOCUS, LEFT_OUT, STATUS, VERDICT, failure, overlay_verdict, stands_for_several
from gradir.ir.text import printable
from gradir.overlays import MOST_OF_A_VERDICT
from gradir.vocabulary.causes import ADVICE
from gradir.vocabulary.patterns import EXCUSING, LOST, OTHER_MODEL

# Kinds of cuts that a graph has whose forward was not recorded.
_OF_ANY_GRAPH: Final = frozenset({"hidden", "unreached"})
# Kinds of cuts that say of a parameter that nothing took its gradient away, with its status.
_ITS_OWN: Final = {"integer": "frozen", "unused": "unused"}
_LOSING_NOTHING: Final = frozenset({*_ITS_OWN, "exchanged"})
# Patterns that a capture gives a place with lost parameters only where these are lost elsewhere, or may be.
_OF_TARGETS: Final = EXCUSING | {"stop-gradient"}
# Marks of nodes in a part of a graph, or in two graphs as one, which are not all that there is to explain.
_OF_PARTS: Final = frozenset({ELIDED, FOCUS, LEFT_OUT, STATUS})
# How many names of one tensor are told at a place: a file may have any number of both.
_MOST_TIED: Final = 64


def explained(graph: Graph) -> Explanation:
    """Return which parameters of a graph get a gradient, and at which of its cuts the others lose it."""
    if graph.producer.options.get("graph") == "forward":
        raise GraphError(
            "a forward graph does not say where gradients flow; explain the program itself, or a graph captured with "
            "--flow or --graph joint"
        )
    # In a joint graph they are also what the forward takes.
    lost = {name for cut in graph.cuts if cut.kind == "unreached" for name in cut.names}
    leaves = [node.names for node in graph.nodes.values() if node.role in {"leaf", "parameter"}]
    leaves = [names for names in leaves if lost.isdisjoint(names)]
    statuses = dict.fromkeys((name for names in leaves for name in names), "reached")
    owned = [cut.names for cut in graph.cuts if cut.kind in _OF_ANY_GRAPH]
    tied = tuple(names for names in (*leaves, *owned) if len(names) > 1)
    # A place has the first name of each.
    same = {names[0]: names[:_MOST_TIED] for names in tied}
    flow = [
        replace(cut, names=tuple(chain.from_iterable(same.get(name, (name,)) for name in dict.fromkeys(cut.names))))
        for cut in graph.cuts
        if cut.kind not in _OF_ANY_GRAPH
    ]
    is_known = graph.producer.options.get(FLOW, bool(flow)) is True
    for cut in (*(cut for cut in graph.cuts if cut.kind in _OF_ANY_GRAPH), *flow):
        status = "unused" if is_known else "unreached"
        status = "hidden" if cut.kind == "hidden" else _ITS_OWN.get(cut.kind, status)
        statuses.update((name, status) for name in cut.names if name not in statuses)
    for cut in flow:
        if cut.kind not in _LOSING_NOTHING:
            status = "unreached" if cut.kind == "opaque" else "cut"
            statuses.update((name, status) for name in cut.names if statuses[name] in {"unused", "unreached"})
    examined = Examined(reason="a file has none", advice="explain the program")
    framework = graph.producer.framework if graph.producer.framework in ADVICE else ""
    causes = united(_causes(statuses, flow, framework), statuses)
    return Explanation(statuses, causes, tied=tied, examined=examined)


class Verdict(NamedTuple):
    """The look and the sentence of a graph, and the cut or the id of the node that the sentence is about."""

    look: str
    sentence: str
    place: Cut | str | None = None


def verdict(graph: Graph) -> Verdict | None:
    """Return the first sentence of `explained`, or the one of an overlay; a part of a graph has none.

    A forward graph has one only if it raised.
    """
    nodes = graph.nodes.values()
    said = overlay_verdict(nodes)
    if graph.producer.options.get("graph") == "forward":
        node = next((node for node in nodes if node.ext and failure(node)), None)
        if node is None:
            return None if said is None else Verdict(*said)
        where = f" ({place_text(node.source)})" if node.source else ""
        error = printable(shortened(failure(node), MOST_OF_A_VERDICT))
        return Verdict("alarm", f"The forward ended at {printable(node.op or node.id)}: {error}{where}.", node.id)
    if said is None and any(stands_for_several(node) or not _OF_PARTS.isdisjoint(node.ext) for node in nodes):
        return None
    found = explained(graph)
    if said is None and not (found.statuses or found.causes):
        return None
    look = LOOKS_OF_LEVELS[found.level] if found.causes else "good"
    cause, place = gravest(found), None
    if cause is not None:
        about, names = (cause.kind, cause.op, cause.source, cause.pattern), {*cause.names}
        same = (cut for cut in graph.cuts if (cut.kind, cut.op, cut.source, cut.meant) == about)
        place = next(chain(same, (cut for cut in graph.cuts if not names.isdisjoint(cut.names))), None)
    return Verdict(*(said or (look, sentence_of(found))), place)


def with_verdict(graph: Graph) -> Graph:
    """Return the graph with its sentence on its outputs."""
    found = None if overlay_verdict(graph.nodes.values()) else verdict(graph)
    nodes = graph.outputs or [*graph.nodes.values()][-1:]
    if found is None:
        return graph
    marked = {node.id: replace(node, ext={**node.ext, VERDICT: found[:2]}) for node in nodes}
    return replace(graph, nodes={**graph.nodes, **marked})


def _causes(statuses: dict[str, str], flow: list[Cut], framework: str) -> Iterator[Cause]:
    # The unused parameters are told together below.
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
