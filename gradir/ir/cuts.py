"""Write cuts as text, and find their places in a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gradir.ir.graph import Graph
from gradir.ir.marks import is_focus, left_out
from gradir.ir.model import NO_GRADIENT_ROLES, Cut
from gradir.ir.module_tree import common_path, module_of, walk_up
from gradir.ir.text import escape_unprintable, pluralize, shorten

# An option of the producer: the forward pass was recorded.
FLOW: Final = "flow"
_MOST_NAMES: Final = 2
# A file may have any number of kinds.
_MOST_KINDS: Final = 12
# A longer name or path is shortened.
_LONGEST: Final = 60


class Stub(NamedTuple):
    """A cut to draw: its reason, and the node and slot without a gradient, if known."""

    reason: str
    into: str = ""
    slot: int | None = None
    is_place: bool = False


class CutCounts(NamedTuple):
    """Numbers of cut places, of parameters without a gradient, and of hidden parameters."""

    places: int
    unreached: int
    hidden: int


def cut_counts(graph: Graph) -> CutCounts:
    """Count the cuts of a graph, each parameter once."""
    places = sum(cut.is_place for cut in graph.cuts)
    hidden = sum(cut.kind == "hidden" for cut in graph.cuts)
    return CutCounts(places, len(graph.cuts) - places - hidden, hidden)


def cut_text(cut: Cut, *, count: bool = False) -> str:
    """Return a cut on one printable line; ``count`` replaces its names by their number."""
    text = _short(cut.kind)
    if cut.op and cut.op != cut.kind:
        text += f" ({_short(cut.op)})"
    if cut.source is not None:
        text += f" at {_short(cut.source.file)}:{cut.source.line}"
    if cut.meant:
        text += f", meant: {_short(cut.meant)}"
    if not cut.names:
        return text
    return f"{text} ({pluralize(len(cut.names), 'parameter')})" if count else f"{text}: {_join_names(cut.names)}"


def stubs(graph: Graph, most: int | None = None) -> list[Stub]:
    """Return the cuts to draw: each place, and the parameters of each kind together.

    If there are more than ``most``, the last one counts the omitted ones. A part of a graph has only its own cuts.
    """
    cuts = [*filter(_is_in_part(graph), graph.cuts)] if graph.cuts else []
    found: list[Stub] = []
    names: dict[str, list[str]] = {}
    has_flow = graph.producer.options.get(FLOW) is True
    for cut in cuts:
        if cut.is_place:
            into = graph.nodes.get(cut.into)
            has_end = into is not None and into.role not in NO_GRADIENT_ROLES
            found.append(Stub(cut_text(cut), *((cut.into, cut.slot) if has_end else ("", None)), is_place=True))
        elif cut.names and (has_flow or cut.kind == "unreached"):
            names.setdefault(cut.kind, []).append(cut.names[0])
    found += [Stub(f"{_short(kind)}: {_join_names(own)}") for kind, own in names.items()]
    if most is not None and len(found) > most:
        is_place = any(stub.is_place for stub in found[most - 1 :])
        found[most - 1 :] = [Stub(f"{len(found) - most + 1:,} more cuts", is_place=is_place)]
    return found


def counts_text(graph: Graph) -> str:
    """Return the number of cuts of each kind, or an empty text without a recorded forward pass and places."""
    if graph.producer.options.get(FLOW) is not True and not any(cut.is_place for cut in graph.cuts):
        return ""
    kinds = Counter(cut.kind for cut in graph.cuts)
    meant = Counter(cut.kind for cut in graph.cuts if cut.meant)
    texts = [
        f"{count:,} {_short(kind)}{f' ({meant[kind]:,} of them meant)' if meant[kind] else ''}"
        for kind, count in kinds.most_common(_MOST_KINDS)
    ]
    return ", ".join(texts + ["…"] * (len(kinds) > _MOST_KINDS))


def find_graph_without_flow(a: Graph, b: Graph) -> Graph | None:
    """Return the graph without a recorded forward pass, if the other one has it."""
    lacking = [graph for graph in (a, b) if graph.producer.options.get(FLOW) is not True]
    return lacking[0] if len(lacking) == 1 and not any(cut.is_place for cut in lacking[0].cuts) else None


def _is_in_part(graph: Graph) -> Callable[[Cut], bool]:
    """Return a test for cuts that belong to a part of a graph, as marked by `gradir.passes.focus`."""
    nodes = graph.nodes
    if not any(node.ext and (is_focus(node) or any(left_out(node))) for node in nodes.values()):
        return lambda _: True
    modules = {module_of(node) for node in nodes.values()}
    wanted = common_path(module_of(node) for node in nodes.values() if is_focus(node))
    whole = {wanted, *(module_of(node) for node in nodes.values() if node.role == "module")}
    return lambda cut: (
        cut.at in nodes
        or cut.into in nodes
        or (cut.scope != "" and (cut.scope in modules or not whole.isdisjoint(walk_up(cut.scope))))
    )


def _join_names(names: Sequence[str]) -> str:
    text = ", ".join(map(_short, names[:_MOST_NAMES]))
    return text if len(names) <= _MOST_NAMES else f"{text} and {len(names) - _MOST_NAMES:,} more"


def _short(text: str) -> str:
    return escape_unprintable(shorten(text, _LONGEST))
