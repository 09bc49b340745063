"""What a reader is told of a diff: what matters most first, each thing once.

An outline says less than the list of changes only in places: modules with the same changes are one entry, a module that
came or went is one entry with all that is in it, and so is what gradient reaches no more. Every change belongs to
exactly one entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Union

from msgspec.structs import replace

from gradir.gcpause import paused_gc
from gradir.ir.edges import sources
from gradir.ir.ids import accumulated, numbered
from gradir.ir.module_tree import upwards
from gradir.review.changed_modules import readers
from gradir.review.frozen_parameters import consequences
from gradir.review.relative_changes import alike, made_relative
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change
    from gradir.ir import Graph
    from gradir.review.changed_modules import ChangedModule, Contents, ModuleOrder, WholeModule, WholeModules
    from gradir.review.comparison import Comparison
    from gradir.review.relative_changes import RelativeChanges

__all__ = ["Cuts", "Entry", "Group", "Modules", "Outline", "entering", "folds", "outline", "stands_last"]

_LAST: Final = frozenset({"order", "indices"})
_IN_MODULES: Final = ("node", "scope")


class Cuts(NamedTuple):
    """Cuts of one kind that came or went, and the nodes of their parameters, which went or came with that."""

    changes: tuple[Change, ...]
    nodes: tuple[Change, ...]


_Changes = tuple[tuple["Change", ...], ...]
"""The changes of each of some modules, which are as many and of the same kinds."""


class Group(NamedTuple):
    """Modules with the same changes; ``gone`` where only the first graph has them."""

    paths: tuple[str, ...]
    changes: _Changes
    gone: bool


class Modules(NamedTuple):
    """Equal modules that came or went as a whole; ``contents`` are those of the first, and of each but for saved bytes.

    Of modules that keep the same tensor the first one counts it: ``saved`` are the fewest and the most bytes of one.
    ``readers`` are nodes that changed only in that they read from one of these modules now, or did before: the paths of
    modules that see them alike, with the changes that each sees.
    """

    paths: tuple[str, ...]
    changes: _Changes
    added: bool
    itself: bool
    class_name: str
    contents: Contents
    readers: tuple[tuple[tuple[str, ...], _Changes], ...]
    saved: tuple[int, int]


Entry = Union[Group, Modules]


class Outline(NamedTuple):
    """``cuts`` and ``facts`` are about the whole graph; ``entries`` stand in the order of the model.

    ``explained`` is what the line on frozen parameters says already, ``following`` what follows from a change of nearly
    all operations.
    """

    cuts: tuple[Cuts, ...]
    facts: tuple[Change, ...]
    entries: tuple[Entry, ...]
    explained: tuple[Change, ...] = ()
    following: tuple[Change, ...] = ()


def outline(comparison: Comparison) -> Outline:
    """Arrange the changes between two graphs.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> a, b = (Graph.of([Node(f"{n}/f:1", op=op, scope=f"{n}") for n in range(3)]) for op in ("exp", "sin"))
    >>> [entry.paths for entry in outline(Comparison(a, b)).entries]
    [('0', '1', '2')]
    """
    with paused_gc():
        return _outline(comparison)


def stands_last(change: Change) -> bool:
    """Whether a change says no more than that records have another place or number."""
    return change.subject == "graph" and change.id in _LAST


def folds(outline: Outline) -> bool:
    """Whether an outline tells anything together, so that some changes are not named by themselves."""
    if outline.explained or outline.following or any(len(cuts.changes) + len(cuts.nodes) > 1 for cuts in outline.cuts):
        return True
    return any(
        len(entry.paths) > 1 or (isinstance(entry, Modules) and len(entry.changes[0]) > 1) for entry in outline.entries
    )


def _outline(comparison: Comparison) -> Outline:
    order, wholes, changes = comparison.module_order, comparison.whole_modules, comparison.changes
    frozen = consequences(comparison)
    following = comparison.whole_change.follow - frozen
    explained = frozen | following
    inside = {
        at: whole
        for at, change in enumerate(changes)
        if at not in explained and (whole := wholes.of(change)) is not None
    }
    reading = {at: whole for at, whole in readers(changes, inside).items() if at not in explained}
    cuts = list(_cuts(comparison, {*inside, *explained}))
    elsewhere = {*inside, *reading, *explained, *(at for both in cuts for these in both for at in these)}
    left = [change for at, change in enumerate(changes) if at not in elsewhere]
    entries: list[tuple[int, Entry]] = [
        *_modules(_by_module(changes, inside), _by_module(changes, reading), wholes, order),
        *_groups([change for change in left if change.subject in _IN_MODULES], comparison),
    ]
    return Outline(
        tuple(Cuts(*(tuple(changes[at] for at in these) for these in both)) for both in cuts),
        tuple(change for change in left if change.subject not in _IN_MODULES),
        tuple(entry for _, entry in sorted(entries, key=lambda entry: entry[0])),
        *(tuple(changes[at] for at in sorted(these)) for these in (frozen, following)),
    )


def _cuts(comparison: Comparison, taken: Collection[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The places of cuts of each kind, and of what went with them: the parameters, and what accumulates in them.

    Cuts that came are parameters that have no gradient any more, so they stand first.
    """
    changes = comparison.diff.changes
    groups: dict[tuple[str, str | int], list[int]] = {}
    for at, change in enumerate(changes):
        if change.subject == "cut" and change.kind in {"added", "removed"}:
            # A place is a line of its own.
            groups.setdefault((change.kind, change.what if change.cut is None else at), []).append(at)
    if not groups:
        return
    accumulators = vocabulary_of(*comparison.graphs).accumulators
    nodes: dict[tuple[str, str], list[int]] = {}
    for at, change in enumerate(changes):
        if change.subject == "node" and change.kind in {"added", "removed"} and at not in taken:
            nodes.setdefault((change.kind, accumulated(change.id, accumulators)), []).append(at)
    for key in sorted(groups, key=lambda key: key[0]):
        other = "removed" if key[0] == "added" else "added"
        parameters = [changes[at].id for at in groups[key] if changes[at].cut is None]
        yield groups[key], [node for name in parameters for node in nodes.pop((other, name), ())]


def _by_module(changes: Sequence[Change], owners: Mapping[int, WholeModule]) -> dict[WholeModule, list[Change]]:
    found: dict[WholeModule, list[Change]] = {}
    for at, whole in owners.items():
        found.setdefault(whole, []).append(changes[at])
    return found


def _modules(
    inside: Mapping[WholeModule, list[Change]],
    reading: Mapping[WholeModule, list[Change]],
    wholes: WholeModules,
    order: ModuleOrder,
) -> Iterator[tuple[int, Modules]]:
    """Modules that came or went, equal ones together, each with its position in the order of the model."""
    together: dict[Hashable, dict[WholeModule, Contents]] = {}
    for whole in sorted(inside, key=order.position):
        # Of what lies in it, no settings are told.
        own = [change if change.id == whole.path else replace(change, fields=()) for change in inside[whole]]
        relative = made_relative(own, whole.path)
        contents = wholes.contents(whole, inside[whole])
        but_for_bytes = contents._replace(saved_bytes=0)
        key = whole.added, whole.itself, wholes.class_name(whole), but_for_bytes, relative
        together.setdefault(key, {})[whole] = contents
    for members in together.values():
        readers_of: dict[RelativeChanges, list[WholeModule]] = {}
        for whole in members:
            if whole in reading:
                readers_of.setdefault(made_relative(reading[whole], whole.path), []).append(whole)
        seen = tuple(_with_changes(by, reading) for by in readers_of.values())
        first, *_ = members
        sizes = [contents.saved_bytes for contents in members.values()]
        yield (
            order.position(first),
            Modules(
                *_with_changes(members, inside),
                first.added,
                first.itself,
                wholes.class_name(first),
                members[first],
                seen,
                (min(sizes), max(sizes)),
            ),
        )


def _with_changes(
    wholes: Iterable[WholeModule], changes: Mapping[WholeModule, Sequence[Change]]
) -> tuple[tuple[str, ...], _Changes]:
    return tuple(whole.path for whole in wholes), tuple(tuple(changes[whole]) for whole in wholes)


def _groups(changes: Iterable[Change], comparison: Comparison) -> Iterator[tuple[int, Group]]:
    """Modules with changes, those with the same together, each with its position in the order of the model."""
    order, renamed, feeds = comparison.module_order, comparison.renamed, comparison.entering
    together: dict[tuple[RelativeChanges, bool], dict[ChangedModule, tuple[Change, ...]]] = {}
    for module, found in order.sections(changes):
        before = module.path if module.gone else renamed.before(module.path)
        fed = feeds[0].get(entry(before), ""), feeds[1].get(entry(module.path), "")
        same = alike(found, module.path, before, fed), module.gone
        together.setdefault(same, {})[module] = tuple(found)
    for (_, gone), members in together.items():
        paths = tuple(module.path for module in members)
        yield order.position(next(iter(members))), Group(paths, tuple(members.values()), gone)


def entering(graph: Graph) -> dict[str, str]:
    """For each entry of a list the node that it reads from outside, where that is one alone.

    >>> from gradir.ir import Graph, Node, Ref
    >>> nodes = [Node(f"h.{n}/f:1", scope=f"h.{n}", inputs=(Ref(f"h.{n - 1}/f:1", 0),) if n else ()) for n in range(3)]
    >>> entering(Graph.of(nodes))
    {'h.1': 'h.0/f:1', 'h.2': 'h.1/f:1'}
    """
    entries: dict[str, str] = {}
    found: dict[str, str] = {}
    for node in graph.nodes.values():
        if node.scope not in entries:
            entries[node.scope] = entry(node.scope)
        here = entries[node.scope]
        for source in sources(node) if here else ():
            there = graph.nodes[source].scope if source in graph.nodes else ""
            if there != here and not there.startswith(f"{here}."):
                found[here] = source if found.get(here, source) == source else ""
    return {path: source for path, source in found.items() if source}


def entry(path: str) -> str:
    """The innermost entry of a list that a module lies in, or is; nothing where it lies in none.

    >>> entry("h.3.mlp.up"), entry("h_3.experts.1"), entry("norm")
    ('h.3', 'h_3.experts.1', '')
    """
    return next((above for above in upwards(path) if numbered(above.rpartition(".")[2])), "")
