"""Keep what some nodes depend on, or what depends on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from gradir.ir.edges import sources
from gradir.options import Options
from gradir.passes.patterns import Pattern, matching
from gradir.passes.wiring import pointed_out, within

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from gradir.ir import Graph

__all__ = [
    "AncestorsOptions",
    "AncestorsPass",
    "DescendantsOptions",
    "DescendantsPass",
    "ancestors",
    "descendants",
    "lead_to",
    "reached_from",
]


class AncestorsOptions(Options, frozen=True, kw_only=True):
    """Whose ancestors stay."""

    ancestors: Annotated[Pattern, msgspec.Meta(description="only these nodes and all they depend on")]


class AncestorsPass:
    """Some nodes and all they depend on."""

    order: ClassVar[int] = 30
    options: ClassVar[type[Options]] = AncestorsOptions

    def run(self, graph: Graph, options: AncestorsOptions) -> Graph:
        """See `ancestors`."""
        return ancestors(graph, options.ancestors)


class DescendantsOptions(Options, frozen=True, kw_only=True):
    """Whose descendants stay."""

    descendants: Annotated[Pattern, msgspec.Meta(description="only these nodes and all that depends on them")]


class DescendantsPass:
    """Some nodes and all that depends on them."""

    order: ClassVar[int] = 40
    options: ClassVar[type[Options]] = DescendantsOptions

    def run(self, graph: Graph, options: DescendantsOptions) -> Graph:
        """See `descendants`."""
        return descendants(graph, options.descendants)


def ancestors(graph: Graph, pattern: str) -> Graph:
    """Keep the nodes that a pattern names and all they depend on.

    For patterns see `gradir.passes.matching`. No input of a node that stays is left out. Marks are those of
    `gradir.passes.focus`.

    Raises:
        PassError: the pattern names no node.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> value = b.function("exp", [b.tensor("x", TensorMeta())], [TensorMeta()])
    >>> b.output(b.function("sum", [value], [TensorMeta()]))
    >>> list(ancestors(b.build(), "exp:1").nodes), list(descendants(b.build(), "exp:1").nodes)
    (['x', 'exp:1'], ['exp:1', 'sum:1', 'output'])
    """
    named = matching(graph, pattern, "ancestors")
    return pointed_out(graph, within(graph, lead_to(graph, named)), named)


def descendants(graph: Graph, pattern: str) -> Graph:
    """Keep the nodes that a pattern names and all that depends on them.

    For patterns see `gradir.passes.matching`, for what becomes of inputs whose source is left out
    `gradir.passes.within`, and for the marks `gradir.passes.focus`.

    Raises:
        PassError: the pattern names no node.
    """
    named = matching(graph, pattern, "descendants")
    return pointed_out(graph, within(graph, reached_from(graph, named)), named)


def lead_to(graph: Graph, ends: AbstractSet[str]) -> set[str]:
    """The ids of these nodes and of all from which a path leads to one of them."""
    found = set(ends)
    # Inputs stand before their consumers, so one walk against the order finds them all.
    for node in reversed([*graph.nodes.values()]):
        if node.id in found:
            found.update(sources(node))
    return found


def reached_from(graph: Graph, starts: AbstractSet[str]) -> set[str]:
    """The ids of these nodes and of all to which a path leads from one of them."""
    found = set(starts)
    for node in graph.nodes.values():
        if not found.isdisjoint(sources(node)):
            found.add(node.id)
    return found
