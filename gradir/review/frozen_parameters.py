"""Parameters that were frozen: they leave the graph, and yet the model has them as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.module_tree import OUTSIDE
from gradir.ir.text import amount
from gradir.ir.totals import elements
from gradir.review.lines import module_name
from gradir.review.name_ranges import ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gradir.ir import Graph, Scope
    from gradir.ir.module_tree import ModuleTree
    from gradir.review.comparison import Comparison

__all__ = ["Frozen", "freezing", "frozen_modules"]


class _Size(NamedTuple):
    parameters: int
    elements: int


_NONE: Final = _Size(0, 0)


class Frozen(NamedTuple):
    """A module of whose own parameters some require grad on one side alone: how many elements, and whether all.

    ``lost`` are the parameters that one graph has of it and the other has not. ``trained`` is its path in the graph
    where more of it is trained.
    """

    path: str
    elements: int
    whole: bool
    lost: _Size
    trained: str

    @property
    def proven(self) -> bool:
        """Whether what one graph lacks of its parameters is exactly what is not trained."""
        return self.lost.elements == self.elements


def freezing(comparison: Comparison) -> Iterator[str]:
    """One line for the parameters that were frozen, and one for those that were unfrozen.

    The tables of modules have to prove it: a module owns as many elements as before, and fewer of them require grad. Of
    a module with others in it that shows only where all of them did before and none does now, or the other way round.
    How much that is is said where the parameters that one graph has more of each module are exactly these elements.

    >>> from gradir.ir import Graph, Scope
    >>> from gradir.review.comparison import Comparison
    >>> before, after = (Graph.of([], [Scope("fc", "Linear", own=6, total=6, trainable=count)]) for count in (6, 0))
    >>> list(freezing(Comparison(before, after)))
    ['frozen: fc']
    """
    for word, modules in comparison.frozen.items():
        yield f"{word}: {_text(modules, comparison.trees[1])}"


def frozen_modules(comparison: Comparison) -> Iterator[tuple[str, list[Frozen]]]:
    """The modules of whose own parameters some were ``frozen``, and those of whose some were ``unfrozen``."""
    matched = list(_matched_scopes(comparison))
    if not any(old.trainable != new.trainable for old, new in matched):
        return
    before, after = (_parameters(graph) for graph in comparison.graphs)
    for word, found in (
        ("frozen", [_frozen(old, new, before, after, new.path) for old, new in matched]),
        ("unfrozen", [_frozen(new, old, after, before, new.path) for old, new in matched]),
    ):
        modules = [module for module in found if module is not None]
        if modules:
            yield word, modules


def _matched_scopes(comparison: Comparison) -> Iterator[tuple[Scope, Scope]]:
    """Modules of both graphs that the diff says have changed."""
    before, after = (graph.scopes for graph in comparison.graphs)
    for change in comparison.diff.changes:
        if change.subject == "scope" and change.kind not in {"added", "removed"}:
            old, new = before.get(change.was or change.id), after.get(change.id)
            if old is not None and new is not None:
                yield old, new


def _frozen(
    more: Scope, less: Scope, parameters: Mapping[str, _Size], others: Mapping[str, _Size], path: str
) -> Frozen | None:
    """A module in the table where more of it is trained and in the one where less is, with the parameters of both."""
    if (more.own, more.total) != (less.own, less.total) or not more.own:
        return None
    fewer = more.trainable - less.trainable
    everything = more.trainable == more.total and not less.trainable
    if fewer <= 0 or not (everything or more.own == more.total):
        return None
    count, size = parameters.get(more.path, _NONE)
    count_left, size_left = others.get(less.path, _NONE)
    lost = _Size(count - count_left, size - size_left)
    return Frozen(path, more.own if everything else fewer, everything, lost, more.path)


def _text(frozen: Sequence[Frozen], tree: ModuleTree) -> str:
    """The modules, the topmost ones of which all are found, and how much that is."""
    count, size = (sum(sizes) for sizes in zip(*(module.lost for module in frozen), strict=True))
    exact = all(module.proven for module in frozen)
    figure = f" ({count:,} parameter{'s'[: count != 1]}, {amount(size)} element{'s'[: size != 1]})" if exact else ""
    whole = _topmost([module.path for module in frozen if module.whole], tree)
    part = [module.path for module in frozen if not module.whole]
    names = [_names(whole), f"part of {_names(part)}" if part else ""]
    return f"{', '.join(filter(None, names))}{figure}"


def _names(paths: Sequence[str]) -> str:
    return ranges(paths) if len(paths) > 1 and all(paths) else ", ".join(map(module_name, paths))


def _topmost(paths: Sequence[str], tree: ModuleTree) -> list[str]:
    """These modules, or those above them in which no other module owns parameters."""
    listed = set(paths)
    others = [scope.own > 0 and scope.path not in listed for scope in tree.scopes]
    among = [scope.path in listed for scope in tree.scopes]
    # A module stands behind the one that it lies in.
    for row in range(len(tree.scopes) - 1, -1, -1):
        above = tree.parents[row]
        if above != OUTSIDE:
            others[above] = others[above] or others[row]
            among[above] = among[above] or among[row]
    found: list[str] = []
    covered = [False] * len(tree.scopes)
    for row, scope in enumerate(tree.scopes):
        above = tree.parents[row]
        covered[row] = above != OUTSIDE and covered[above]
        if among[row] and not others[row] and not covered[row]:
            covered[row] = True
            found.append(scope.path)
        elif scope.path in listed and not covered[row]:
            # It owns parameters itself, and so does one below it that is not among these.
            found.append(scope.path)
    return found


def _parameters(graph: Graph) -> dict[str, _Size]:
    """The parameters that a graph has of each module itself."""
    found: dict[str, _Size] = {}
    for node in graph.nodes.values():
        if node.role == "parameter":
            size = found.get(node.scope, _NONE)
            found[node.scope] = _Size(size.parameters + 1, size.elements + elements(node))
    return found
