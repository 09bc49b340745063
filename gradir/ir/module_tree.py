"""Arrange the modules of a scope table as a tree."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from itertools import pairwise
from math import prod
from typing import Final, TypeVar

from gradir.ir.graph import Graph
from gradir.ir.ids import split_index, whole_name
from gradir.ir.model import Node, Scope, clamp_size

_Number = TypeVar("_Number", int, float)

# The number of the missing parent of a topmost module, and of the module of a node outside all modules.
OUTSIDE: Final = -1
_STEPS: Final = re.compile(r"(?:^|\.)×(\d{1,18})(?: \(\d+\))?(?=\.|$)")
# A component that `gradir.passes.once` or `gradir.passes.rollup` made of equal steps or layers.
_REPEATED: Final = re.compile(r"(?:^|\.)(?:×(\d{1,18})(?: \(\d+\))?|(?:[^.]*_)?(\d{1,18})-(\d{1,18}))(?=\.|$)")
# Deeper levels of a path count as one, so that a hostile path takes no quadratic time. Models have one or two dozen.
DEEPEST: Final = 64


def split_path(path: str) -> tuple[str, str]:
    """Split a path into the path of the parent module and the rest.

    Components below `DEEPEST` levels form one, so that a path has few parents.

    >>> split_path("layers.3.attn"), split_path("layers"), split_path(".".join("a" * 100))[1].count(".")
    (('layers.3', 'attn'), ('', 'layers'), 36)
    """
    if path.count(".") < DEEPEST:
        parent, _, name = path.rpartition(".")
        return parent, name
    *components, name = path.split(".", DEEPEST - 1)
    return ".".join(components), name


def walk_up(path: str) -> Iterator[str]:
    """Yield a path and its parents, without the root."""
    while path:
        yield path
        path = split_path(path)[0]


def common_path(paths: Iterable[str]) -> str:
    """Return the innermost module around all paths.

    >>> common_path(["layers.3.attn", "layers.3.mlp", "layers.3"]), common_path(["layers.3", "layers.30"])
    ('layers.3', 'layers')
    """
    first, *others = {*paths} or {""}
    for path in others:
        while first and not (path == first or path.startswith(f"{first}.")):
            first = split_path(first)[0]
    return first


class Ancestors:
    """Test whether a path is equal to, or a parent of, one of several paths.

    >>> above = Ancestors(["layers.3.attn"])
    >>> "layers.3" in above, "layers.3.attn" in above, "layers.3.att" in above, "" in above
    (True, True, False, True)
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = sorted(set(paths))

    def __contains__(self, path: str) -> bool:
        if not path:
            return True
        # A name such as h-1 sorts between h and h.0, so this searches for both.
        for first in (path, f"{path}."):
            at = bisect_left(self._paths, first)
            if at < len(self._paths) and (self._paths[at] == path or self._paths[at].startswith(f"{path}.")):
                return True
        return False


def remove_steps(scopes: Iterable[Scope]) -> tuple[list[Scope], Callable[[str], str]]:
    """Return the modules without those of steps, and a function that removes steps from a path.

    >>> modules, path = remove_steps([Scope("cell", "LSTMCell"), Scope("cell.×49"), Scope("×3.fc")])
    >>> [scope.path for scope in modules], path("cell.×49.fc"), path("×3")
    (['cell'], 'cell.fc', '')
    """
    table = list(scopes)
    if not any(not scope.class_name and _STEPS.search(scope.path) for scope in table):
        return table, str

    def strip_steps(path: str) -> str:
        found = _STEPS.sub("", path)
        return found if found == path else found.removeprefix(".")

    return [scope for scope in table if not _STEPS.search(scope.path)], strip_steps


def step_around(path: str) -> tuple[str, int]:
    """Return the innermost module of equal steps around a path and their number, or an empty path and 1.

    >>> step_around("cell.×49.fc"), step_around("cell")
    (('cell.×49', 49), ('', 1))
    """
    found = [*_STEPS.finditer(path)]
    return (path[: found[-1].end()], int(found[-1][1])) if found else ("", 1)


def module_of(node: Node) -> str:
    """Return the module that a node is in or represents."""
    return whole_name(node.label) if node.role == "module" else node.scope


def class_text(scope: Scope) -> str:
    """Return the class of a module, and the number of rounds of its loop."""
    return f"{scope.class_name} ×{scope.rounds:,}".lstrip() if scope.rounds else scope.class_name


def rounds_around(scopes: Mapping[str, Scope]) -> Callable[[str], int]:
    """Return a function that returns the rounds of a module in loops whose body is in the graph once.

    >>> around = rounds_around({"scan": Scope("scan", rounds=5), "scan.scan": Scope("scan.scan", rounds=3)})
    >>> around("scan.scan.fc"), around("scan"), around("")
    (15, 5, 1)
    """
    loops = {path: scope.rounds for path, scope in scopes.items() if scope.rounds}
    if not loops:
        return lambda _: 1
    return cache(lambda path: clamp_size(prod(loops.get(module, 1) for module in walk_up(path))))


def rounds_of(path: str) -> int:
    """Return the number of equal steps or layers that a module represents.

    >>> rounds_of("h.0-11.mlp"), rounds_of("cell.×49"), rounds_of("h_0-1.×3"), rounds_of("h.0")
    (12, 49, 6, 1)
    """
    rounds = 1
    for number, first, last in _REPEATED.findall(path):
        rounds = clamp_size(rounds * (int(number) if number else max(1, int(last) - int(first) + 1)))
    return rounds


def scope_depth(path: str) -> int:
    """Return the number of components of a module path, which is 0 for the root.

    >>> scope_depth(""), scope_depth("layers.3.attn")
    (0, 3)
    """
    return path.count(".") + 1 if path else 0


class ModuleTree:
    """The modules of a scope table by number, each with the nearest module around it as parent.

    A parent comes before its children. The number is the index of ``scopes``, ``parents``, ``children``, ``names`` and
    ``levels``.

    >>> tree = ModuleTree([Scope("", "Model"), Scope("layers.0", "Block"), Scope("layers.0.fc", "Linear")])
    >>> tree.names, tree.parents, tree.place("layers.0.fc.hook"), tree.place("layers")
    (['', 'layers.0', 'fc'], [-1, 0, 1], 2, 0)
    >>> ModuleTree(map(Scope, ["fc", "h_0", "h_10", "h_2"])).names
    ['fc', 'h_0', 'h_2', 'h_10']
    """

    def __init__(self, scopes: Iterable[Scope]) -> None:
        table = list(scopes)
        rows = {scope.path: row for row, scope in enumerate(table)}
        self._prefixes = _Prefixes(rows)
        parents = [self._prefixes.find_row(scope.path) for scope in table]
        children: list[list[int]] = [[] for _ in table]
        tops: list[int] = []
        for row, parent in enumerate(parents):
            (tops if parent == OUTSIDE else children[parent]).append(row)
        for siblings in (tops, *children):
            if len(siblings) > 1:
                _sort_entries(siblings, table)
        order: list[int] = []
        stack = tops[::-1]
        while stack:
            order.append(row := stack.pop())
            stack.extend(reversed(children[row]))
        number = {row: place for place, row in enumerate(order)}
        self._number = number
        self._places = {path: number[row] for path, row in rows.items()}
        self.scopes = [table[row] for row in order]
        self.parents = [number.get(parents[row], OUTSIDE) for row in order]
        self.children = [[number[child] for child in children[row]] for row in order]
        self.tops = [number[row] for row in tops]
        self.names: list[str] = []
        self.levels: list[int] = []
        for scope, parent in zip(self.scopes, self.parents, strict=True):
            around = "" if parent == OUTSIDE else self.scopes[parent].path
            self.names.append(scope.path[len(around) + 1 :] if around else scope.path)
            self.levels.append(0 if parent == OUTSIDE else self.levels[parent] + 1)

    def of(self, table: Mapping[str, Scope]) -> ModuleTree:
        """Return the tree of another table, faster if it has the same paths in the same order."""
        if [*table] != [*self._prefixes.rows]:
            return ModuleTree(table.values())
        tree = copy(self)
        tree.scopes = [table[scope.path] for scope in self.scopes]
        return tree

    def place(self, path: str) -> int:
        """Return the number of the module at a path or nearest around it, or `OUTSIDE`."""
        found = self._places.get(path)
        if found is None:
            found = self._places[path] = self._number.get(self._prefixes.find_row(path), OUTSIDE)
        return found

    def with_below(self, own: Sequence[_Number]) -> list[_Number]:
        """Return for each module the sum of its own number and those of all its submodules."""
        sums = list(own)
        # A parent comes before its children, so each sum is complete before it is added.
        for place in range(len(sums) - 1, -1, -1):
            if self.parents[place] != OUTSIDE:
                sums[self.parents[place]] += sums[place]
        return sums

    def and_above(self, place: int) -> Iterator[int]:
        """Yield a module and its parents, from the inside out."""
        while place != OUTSIDE:
            yield place
            place = self.parents[place]

    def with_above(self, places: Iterable[int], known: Collection[int] = ()) -> set[int]:
        """Return modules and their parents, each up to the first one in ``known``."""
        found: set[int] = set()
        for inner in places:
            for place in self.and_above(inner):
                if place in found or place in known:
                    break
                found.add(place)
        return found


class _Prefixes:
    """Find the row of a table with the nearest parent of a path, in linear time."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self.rows = rows
        self._steps: dict[tuple[int, str], int] = {}
        self._ends: dict[int, int] = {}

    def find_row(self, path: str) -> int:
        if not path:
            return OUTSIDE
        # Most tables have the direct parent, so the trie is built only if one is missing.
        row = self.rows.get(path.rpartition(".")[0])
        if row is not None:
            return row
        if not self._ends:
            for known, row in self.rows.items():
                vertex = 0
                for component in known.split(".") if known else ():
                    vertex = self._steps.setdefault((vertex, component), len(self._steps) + 1)
                self._ends[vertex] = row
        vertex, found = 0, self._ends.get(0, OUTSIDE)
        for component in path.split(".")[:-1]:
            step = self._steps.get((vertex, component))
            if step is None:
                return found
            vertex = step
            found = self._ends.get(vertex, found)
        return found


def _sort_entries(rows: list[int], table: Sequence[Scope]) -> None:
    """Sort the entries of each list by their numbers, within the places of that list."""
    lists: dict[str, list[tuple[int, int, str]]] = {}
    for at, row in enumerate(rows):
        name = split_path(table[row].path)[1]
        found = split_index(name)
        if found is not None:
            lists.setdefault(found[0], []).append((found[1], at, name))
    for entries in lists.values():
        by_number = sorted(entries)
        # A front-end may sort the keys of a dict as text, h_10 before h_2. Any other order comes from the program.
        if by_number == entries or any(one[2] > other[2] for one, other in pairwise(entries)):
            continue
        moved = [rows[at] for _, at, _ in by_number]
        for (_, at, _), row in zip(entries, moved, strict=True):
            rows[at] = row


def whole_tree(graph: Graph, *, like: ModuleTree | None = None) -> ModuleTree:
    """Return the modules, the root first, each after its parent.

    ``like`` is the tree of a graph that probably has the same paths.

    >>> tree = whole_tree(Graph.of([Node("f:1", scope="a.b")], [Scope("c")]))
    >>> tree.names, tree.parents
    (['', 'c', 'a', 'b'], [-1, 0, 0, 2])
    """
    scopes = {"": graph.scopes.get("", Scope("")), **graph.scopes}
    named = [*[node.scope for node in graph.nodes.values()], *[cut.scope for cut in graph.cuts]]
    for path in dict.fromkeys([*graph.scopes, *named]):
        scopes.setdefault(path, Scope(path))
        parent = path
        while (parent := split_path(parent)[0]) not in scopes:
            scopes[parent] = Scope(parent)
    return ModuleTree(scopes.values()) if like is None else like.of(scopes)
