"""Keep nodes near some nodes, their ancestors or descendants, or the paths between nodes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from fnmatch import translate
from itertools import chain
from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from gradir.errors import PassError, did_you_mean
from gradir.ir import Graph
from gradir.ir.edges import sources
from gradir.options import Options
from gradir.passes.wiring import mark_focus, within

# An option that selects nodes, see `matching`.
Pattern: TypeAlias = Annotated[str, msgspec.Meta(title="PATTERN")]
_MOST_NAMED: Final = 3


class BetweenOptions(Options, frozen=True, kw_only=True):
    """Options of the paths to keep."""

    between: Annotated[tuple[Pattern, Pattern], msgspec.Meta(description="only the nodes on paths that join these")]


class BetweenPass:
    """The paths that join some nodes and others."""

    order: ClassVar[int] = 50
    options: ClassVar[type[Options]] = BetweenOptions

    def run(self, graph: Graph, options: BetweenOptions) -> Graph:
        """See `between`."""
        return between(graph, *options.between)


class FocusOptions(Options, frozen=True, kw_only=True):
    """Options of the nodes to keep, and how many hops around them."""

    focus: Annotated[Pattern, msgspec.Meta(description="only these nodes and those near them")]
    hops: Annotated[int, msgspec.Meta(ge=0, title="K", description="how many edges away is near, for focus")] = 1


class FocusPass:
    """Some nodes and what is near."""

    order: ClassVar[int] = 60
    options: ClassVar[type[Options]] = FocusOptions

    def run(self, graph: Graph, options: FocusOptions) -> Graph:
        """See `focus`."""
        return focus(graph, options.focus, options.hops)


def focus(graph: Graph, pattern: str, hops: int | None = 1) -> Graph:
    """Keep the nodes that match a pattern and those at most ``hops`` edges away.

    With ``hops=None`` everything connected stays. ``ext["focus"]`` marks the matching nodes, and ``ext["left_out"]``
    counts removed producers and consumers.

    Raises:
        PassError: the pattern matches no node, or ``hops`` is negative.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> value = b.tensor("x", TensorMeta())
    >>> for op in ("exp", "sin", "cos"):
    ...     value = b.function(op, [value], [TensorMeta()])
    >>> b.output(value)
    >>> list(focus(b.build(), "sin:1").nodes), list(focus(b.build(), "x", hops=0).nodes)
    (['exp:1', 'sin:1', 'cos:1'], ['x'])
    """
    if hops is not None and hops < 0:
        raise PassError(f"focus: {hops} hops are not possible: a number of hops is 0 or more")
    named = matching(graph, pattern, "focus")
    return mark_focus(graph, around(graph, named, hops), named)


def around(graph: Graph, ids: Iterable[str], hops: int | None = 1) -> Graph:
    """Keep the nodes with these ids and those at most ``hops`` edges away, as `focus` does.

    >>> from gradir.ir import Graph, Node, Ref
    >>> chain = [Node("a"), *(Node(new, inputs=(Ref(old, 0),)) for old, new in zip("abc", "bcd"))]
    >>> list(around(Graph.of(chain), ["b"]).nodes)
    ['a', 'b', 'c']
    """
    return within(graph, find_near(graph, ids, hops))


def find_near(graph: Graph, ids: Iterable[str], hops: int | None = 1, barred: Collection[str] = ()) -> set[str]:
    """Return these ids and those at most ``hops`` edges away, on paths without ``barred`` ids."""
    neighbours: dict[str, list[str]] = {}
    for node in graph.nodes.values():
        for src in sources(node):
            neighbours.setdefault(src, []).append(node.id)
            neighbours.setdefault(node.id, []).append(src)
    found = set(ids)
    # Breadth first, so that each node is visited once.
    frontier = set(found)
    while frontier and hops != 0:
        frontier = {key for start in frontier for key in neighbours.get(start, ()) if key not in barred} - found
        found |= frontier
        hops = None if hops is None else hops - 1
    return found


def between(graph: Graph, one: str, other: str) -> Graph:
    """Keep the nodes on paths between two patterns, in either direction, with the marks of `focus`.

    Raises:
        PassError: a pattern matches no node, or no path joins them.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> x, y = b.tensor("x", TensorMeta()), b.tensor("y", TensorMeta())
    >>> b.output(b.function("mul", [b.function("exp", [x], [TensorMeta()]), y], [TensorMeta()]))
    >>> list(between(b.build(), "x", "output").nodes)
    ['x', 'exp:1', 'mul:1', 'output']
    """
    first, second = matching(graph, one, "between"), matching(graph, other, "between")
    found = find_descendants(graph, first) & find_ancestors(graph, second)
    found |= find_descendants(graph, second) & find_ancestors(graph, first)
    if not found:
        raise PassError(f"between {one!r} and {other!r}: no path along the edges joins them")
    return mark_focus(graph, within(graph, found), first | second)


class AncestorsOptions(Options, frozen=True, kw_only=True):
    """Whose ancestors stay."""

    ancestors: Annotated[Pattern, msgspec.Meta(description="only these nodes and their ancestors")]


class AncestorsPass:
    """Some nodes and all they depend on."""

    order: ClassVar[int] = 30
    options: ClassVar[type[Options]] = AncestorsOptions

    def run(self, graph: Graph, options: AncestorsOptions) -> Graph:
        """See `ancestors`."""
        return ancestors(graph, options.ancestors)


class DescendantsOptions(Options, frozen=True, kw_only=True):
    """Whose descendants stay."""

    descendants: Annotated[Pattern, msgspec.Meta(description="only these nodes and their descendants")]


class DescendantsPass:
    """Some nodes and all that depends on them."""

    order: ClassVar[int] = 40
    options: ClassVar[type[Options]] = DescendantsOptions

    def run(self, graph: Graph, options: DescendantsOptions) -> Graph:
        """See `descendants`."""
        return descendants(graph, options.descendants)


def ancestors(graph: Graph, pattern: str) -> Graph:
    """Keep the nodes that match a pattern and all they depend on, with the marks of `focus`.

    Raises:
        PassError: the pattern matches no node.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> value = b.function("exp", [b.tensor("x", TensorMeta())], [TensorMeta()])
    >>> b.output(b.function("sum", [value], [TensorMeta()]))
    >>> list(ancestors(b.build(), "exp:1").nodes), list(descendants(b.build(), "exp:1").nodes)
    (['x', 'exp:1'], ['exp:1', 'sum:1', 'output'])
    """
    named = matching(graph, pattern, "ancestors")
    return mark_focus(graph, within(graph, find_ancestors(graph, named)), named)


def descendants(graph: Graph, pattern: str) -> Graph:
    """Keep the nodes that match a pattern and all that depends on them, with the marks of `focus`.

    Raises:
        PassError: the pattern matches no node.
    """
    named = matching(graph, pattern, "descendants")
    return mark_focus(graph, within(graph, find_descendants(graph, named)), named)


def find_ancestors(graph: Graph, ends: AbstractSet[str]) -> set[str]:
    """Return the ids of these nodes and their ancestors."""
    found = set(ends)
    # Inputs come before their consumers, so one walk in reverse order finds all.
    for node in reversed([*graph.nodes.values()]):
        if node.id in found:
            found.update(sources(node))
    return found


def find_descendants(graph: Graph, starts: AbstractSet[str]) -> set[str]:
    """Return the ids of these nodes and their descendants."""
    found = set(starts)
    for node in graph.nodes.values():
        if not found.isdisjoint(sources(node)):
            found.add(node.id)
    return found


def matching(graph: Graph, pattern: str, what: str = "pattern") -> set[str]:
    """Return the ids of the nodes that match a pattern.

    A pattern is a node id, a name, or a module path, which matches all nodes in the module. Otherwise it is a
    case-sensitive glob over all three: ``*`` is any text, ``?`` any character, ``[ab]`` one of these.

    Raises:
        PassError: the pattern is empty or matches no node; the message begins with ``what``.

    >>> from gradir.ir import Graph, Node
    >>> graph = Graph.of([Node("h.0.fc/mm:1", scope="h.0.fc"), Node("h.1.fc/mm:1", scope="h.1.fc"), Node("x")])
    >>> sorted(matching(graph, "h.0")), sorted(matching(graph, "*/mm:1"))
    (['h.0.fc/mm:1'], ['h.0.fc/mm:1', 'h.1.fc/mm:1'])
    """
    if not pattern:
        raise PassError(f"{what}: the pattern is empty; give the id or name of a node, a module's path, or a glob")
    nodes, below = graph.nodes.values(), f"{pattern}."
    found = {
        node.id
        for node in nodes
        if node.id == pattern or pattern in node.names or node.scope == pattern or node.scope.startswith(below)
    }
    # A literal match comes first, since a name may contain the characters of a glob.
    found = found or _match_glob(graph, pattern)
    if not found:
        names = (name for node in nodes for name in node.names)
        known = chain(graph.scopes, (node.scope for node in nodes), names, graph.nodes)
        hint = did_you_mean(pattern, known, _MOST_NAMED)
        advice = hint or "; 'gradir summary' lists the modules"
        raise PassError(f"{what} {pattern!r}: no node, name or module with nodes matches{advice}")
    return found


def _match_glob(graph: Graph, pattern: str) -> set[str]:
    if not re.search(r"[*?[]", pattern):
        return set()
    named = re.compile(translate(pattern)).match
    # A module's pattern covers the modules below it too.
    below = re.compile(translate(f"{pattern}.*")).match
    scopes = {node.scope for node in graph.nodes.values()}
    matched = {scope for scope in scopes if scope and (named(scope) or below(scope))}
    return {
        node.id
        for node in graph.nodes.values()
        if node.scope in matched or named(node.id) or any(named(name) for name in node.names)
    }
