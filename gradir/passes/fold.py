"""Fold modules into single nodes; see `gradir.passes.contraction`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec.structs import replace

from gradir.errors import PassError, did_you_mean
from gradir.gcpause import pause_gc
from gradir.ir import Graph, Node
from gradir.ir.memo import Memo
from gradir.ir.module_tree import walk_up
from gradir.options import Options
from gradir.passes.contraction import contract_modules, find_class_name, find_containers

_CLASS: Final = "class:"
_MOST_NAMED: Final = 3

# These nodes belong to the whole graph, whichever module computed their values.
_UNFOLDED_ROLES: Final = frozenset({"output", "view_base"})


class FoldOptions(Options, frozen=True, kw_only=True):
    """How far to fold."""

    depth: Annotated[int, msgspec.Meta(ge=0, title="N", description="fold every module below this depth into one node")]


class FoldPass:
    """One node for each module below a depth."""

    order: ClassVar[int] = 80
    options: ClassVar[type[Options]] = FoldOptions

    def run(self, graph: Graph, options: FoldOptions) -> Graph:
        """See `fold`."""
        return fold(graph, options.depth)


class FoldModulesOptions(Options, frozen=True, kw_only=True):
    """Which modules to fold."""

    fold: Annotated[
        tuple[Annotated[str, msgspec.Meta(title="PATTERN")], ...],
        msgspec.Meta(description="fold modules by path, or by class:PATTERN; repeatable"),
    ]


class FoldModulesPass:
    """One node for each module that a pattern names."""

    order: ClassVar[int] = 78
    options: ClassVar[type[Options]] = FoldModulesOptions

    def run(self, graph: Graph, options: FoldModulesOptions) -> Graph:
        """See `fold_modules`."""
        return fold_modules(graph, options.fold)


def fold_modules(graph: Graph, patterns: Iterable[str]) -> Graph:
    """Make one node of every module that a pattern names, with everything inside it, as `fold` does.

    A pattern is a module path, or ``class:`` and the name of a class, each a glob. Outer modules win.

    Raises:
        PassError: a pattern names no module; the message names near misses.

    >>> from gradir.ir import Node, Scope
    >>> nodes = [Node(f"{scope}/mm:1", scope=scope) for scope in ("h.0.attn", "h.0.mlp", "h.1.attn")]
    >>> graph = Graph.of(nodes, [Scope("h.0.attn", "Attention"), Scope("h.1.attn", "Attention")])
    >>> list(fold_modules(graph, ["h.0"]).nodes), list(fold_modules(graph, ["class:Att*"]).nodes)
    (['h.0', 'h.1.attn/mm:1'], ['h.0.attn', 'h.0.mlp/mm:1', 'h.1.attn'])
    """
    paths = {*graph.scopes, *(path for node in graph.nodes.values() for path in walk_up(node.scope))}
    chosen = set[str]()
    for pattern in patterns:
        is_class = pattern.startswith(_CLASS)
        fits = re.compile(translate(pattern.removeprefix(_CLASS))).match
        found = {path for path in paths if fits(find_class_name(graph, path) if is_class else path)}
        if not found:
            known = {f"{_CLASS}{find_class_name(graph, path)}" for path in graph.scopes} if is_class else paths - {""}
            raise PassError(f"fold {pattern!r}: no module matches{did_you_mean(pattern, sorted(known), _MOST_NAMED)}")
        chosen |= found

    def find_outermost(scope: str) -> str | None:
        inside = [path for path in walk_up(scope) if path in chosen]
        return "" if "" in chosen else inside[-1] if inside else None

    return _fold_by(graph, find_outermost)


def destinations(graph: Graph, depth: int) -> Callable[[Node], str | None]:
    """Return a function to the module that `fold` puts a node into, or ``None`` to keep the node.

    >>> from gradir.ir import Graph, Node, Scope
    >>> module = destinations(Graph.of([], [Scope("layers"), Scope("layers.3", calls=1)]), 1)
    >>> module(Node("a", scope="layers.3.attn")), module(Node("b", scope="layers")), module(Node("c", scope="fc.act"))
    ('layers.3', None, 'fc')
    """
    return _destinations(_find_module_at(graph, depth))


def _destinations(module: Callable[[str], str | None]) -> Callable[[Node], str | None]:
    modules = Memo(module)
    return lambda node: None if node.role in _UNFOLDED_ROLES else modules[node.scope]


def _find_module_at(graph: Graph, depth: int) -> Callable[[str], str | None]:
    is_container = find_containers(graph.scopes)

    def find_module(scope: str) -> str | None:
        parts = scope.split(".") if scope else []
        paths = (".".join(parts[:stop]) for stop in range(depth, len(parts) + 1))
        return next((path for path in paths if not is_container(path)), None)

    return find_module


def fold(graph: Graph, depth: int) -> Graph:
    """Make one node of every module ``depth`` components down, with everything inside it.

    Outputs and view bases stay, and at depth 0 the root takes all the rest. A container that was never called, such
    as a ``ModuleList``, is no node.

    A folded node has the role ``module``, its path as name, its class as native name, and its caller as scope. Its
    attributes count everything inside: ``nodes``, ``parameters`` and ``saved_bytes``. Saved slots inside are counted
    in ``ext["merged"]``, so totals stay the same.

    If contraction would close a cycle, the module is split in the order of the flow: ``h.0``, ``h.0#2``. A later part
    counts parameters that it uses too in ``shared_parameters``.

    Raises:
        PassError: ``depth`` is negative.

    >>> from gradir.ir import Builder, TensorMeta
    >>> b = Builder()
    >>> w = b.tensor("fc.w", TensorMeta("float32", (3,)), role="parameter", scope="fc")
    >>> h = b.function("exp", [w], [TensorMeta("float32", (3,))], scope="fc")
    >>> b.output(b.function("sum", [h], [TensorMeta("float32", ())]))
    >>> folded = fold(b.build(), 1)
    >>> list(folded.nodes), dict(folded.nodes["fc"].attrs)
    (['fc', 'sum:1', 'output'], {'nodes': 2, 'parameters': 3, 'saved_bytes': 0})
    """
    if depth < 0:
        raise PassError(f"fold: depth {depth} is not possible: a depth is 0 or more")
    return _fold_by(graph, _find_module_at(graph, depth))


def _fold_by(graph: Graph, module: Callable[[str], str | None]) -> Graph:
    scopes = [scope for scope in graph.scopes.values() if module(scope.path) in {None, scope.path}]
    # Making many nodes would start collections that find nothing, since records form no cycles.
    with pause_gc():
        places = [*map(_destinations(module), graph.nodes.values())]
        if any(place is not None for place in places):
            graph, _ = contract_modules(graph, places)
        elif len(scopes) == len(graph.scopes):
            return graph
        return replace(graph, scopes={scope.path: scope for scope in scopes})
