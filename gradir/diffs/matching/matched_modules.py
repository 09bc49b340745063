"""Match the modules of two graphs by name, or else by contents."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from gradir.diffs.matching.renames import pattern
from gradir.diffs.sequences import Gap, align, cheapest_alignment, count_equal_ends, pair_unique
from gradir.ir.memo import group_by_key
from gradir.ir.module_tree import scope_depth, split_path

if TYPE_CHECKING:
    from gradir.diffs.matching.numbered import NumberedGraph

# The labels of modules, from exact to vague.
_LEVELS: Final = ("tight", "loose", "shape", "class")
# The search for similar modules is quadratic, so it stops above this number.
_SIBLINGS: Final = 16


def match_modules(before: NumberedGraph, after: NumberedGraph, wrapped: Mapping[str, str]) -> dict[str, str]:
    """Return paths of modules in the second graph by those in the first, starting from the ``wrapped`` ones."""
    return _Modules(_Tree(before), _Tree(after)).match(wrapped)


def pair_by_name(
    before: NumberedGraph, after: NumberedGraph, modules: Mapping[str, str], *, of_any_role: bool = False
) -> list[tuple[int, int]]:
    """Return pairs of nodes with the same name in matched modules; functions only if both have equally many."""
    # With `of_any_role`, a parameter can match a buffer.
    counts, other_counts = (Counter(zip(graph.modules, graph.loose, strict=True)) for graph in (before, after))
    # Keys of module and local name avoid joining the path of another module for each node.
    index = {(path, *_local_name(after, node)): node for node, path in enumerate(after.modules)}
    pairs = []
    for node, path in enumerate(before.modules):
        new = modules.get(path)
        if new is None:
            continue
        name, is_tensor = _local_name(before, node)
        other, label = index.get((new, name, is_tensor)), before.loose[node]
        if other is None:
            continue
        are_tensors = not (before.nodes[node].op or after.nodes[other].op)
        if label != after.loose[other] and not (of_any_role and are_tensors):
            continue
        if is_tensor or counts[path, label] == other_counts[new, label]:
            pairs.append((node, other))
    return pairs


def _local_name(graph: NumberedGraph, node: int) -> tuple[str, bool]:
    """Return the name of a node in its module, and whether the node belongs to a tensor."""
    node_id, module = graph.ids[node], graph.modules[node]
    return node_id[len(module) + 1 :] if module else node_id, bool(graph.homes[node][1])


class _Tree:
    """The modules of one graph with their children, and labels of their contents from exact to vague."""

    def __init__(self, graph: NumberedGraph) -> None:
        self.classes = graph.classes
        self.children: dict[str, list[str]] = {"": []}
        for path in dict.fromkeys((*graph.classes, *graph.modules)):
            self._add(path)
        for children in self.children.values():
            children.sort(key=_index)
        self._graph = graph
        self._own = group_by_key((module, node) for node, module in enumerate(graph.modules))
        self.labels: dict[str, dict[str, int]] = {level: {} for level in _LEVELS}
        for path in sorted(self.children, key=scope_depth, reverse=True):
            self._label(path)

    def skip_wrappers(self, path: str) -> str:
        """Return the end of a chain of modules that contain only the next one."""
        while len(self.children[path]) == 1 and not _last(self.children[path][0]).isdecimal():
            path = self.children[path][0]
        return path

    def count_labels(self, path: str) -> tuple[Counter[int], Counter[int]]:
        """Count the loose and the tight labels of the nodes in a module and its submodules."""
        nodes: list[int] = []
        stack = [path]
        while stack:
            module = stack.pop()
            nodes += self._own.get(module, ())
            stack += self.children[module]
        loose, tight = self._graph.loose, self._graph.tight
        return Counter([loose[node] for node in nodes]), Counter([tight[node] for node in nodes])

    def contents(self, path: str) -> frozenset[tuple[str, int]]:
        """Return the names and shapes of the children of a module."""
        return frozenset((pattern(_last(child)), self.labels["shape"][child]) for child in self.children[path])

    def _add(self, path: str) -> None:
        missing = []
        while path not in self.children:
            self.children[path] = []
            missing.append(path)
            path = split_path(path)[0]
        for path in reversed(missing):
            self.children[split_path(path)[0]].append(path)

    def _label(self, path: str) -> None:
        labels, nodes = self._graph.labels, self._own.get(path, ())
        name = self.classes.get(path, "")
        children = [(pattern(_last(child)), child) for child in self.children[path]]
        for level, node_labels in (("tight", self._graph.tight), ("loose", self._graph.loose)):
            by_path = self.labels[level]
            below = tuple([(last, by_path[child]) for last, child in children])
            by_path[path] = labels[name, tuple(sorted([node_labels[node] for node in nodes])), below]
        shape = self.labels["shape"][path] = labels[name, self.contents(path)]
        self.labels["class"][path] = labels["class", name, None if name else shape]


class _Modules:
    def __init__(self, before: _Tree, after: _Tree) -> None:
        self._before, self._after = before, after
        self._found: dict[str, str] = {}
        self._taken: set[str] = set()
        self._queue: deque[tuple[str, str]] = deque()

    def match(self, wrapped: Mapping[str, str]) -> dict[str, str]:
        for old, new in {**wrapped, "": ""}.items():
            self._add(old, new)
        self._descend()
        self._add_moved()
        return self._found

    def _descend(self) -> None:
        while self._queue:
            self._add_children(*self._queue.popleft())

    def _add(self, old: str, new: str) -> None:
        if old not in self._found and new not in self._taken:
            self._found[old] = new
            self._taken.add(new)
            self._queue.append((old, new))

    def _add_children(self, old: str, new: str) -> None:
        children, others = self._before.children[old], self._after.children[new]
        if not children or not others:
            return
        by_name = {_last(child): child for child in others}
        for child in children:
            name = _last(child)
            if name in by_name and not name.isdecimal():
                self._add(child, by_name[name])
        self._add_entries(*([path for path in paths if _last(path).isdecimal()] for paths in (children, others)))
        before, after = self._before, self._after
        is_same_class = before.labels["class"][old] == after.labels["class"][new]
        # Submodules with other names match only in similar modules.
        if not old or is_same_class or _overlap(before.contents(old), after.contents(new)):
            self._add_aligned(children, others, _LEVELS[:-1])
            self._add_similar(children, others)

    def _add_entries(self, children: Sequence[str], others: Sequence[str]) -> None:
        if not children or not others:
            return
        labels, other_labels = self._before.labels["tight"], self._after.labels["tight"]
        start, end = count_equal_ends([labels[path] for path in children], [other_labels[path] for path in others])
        for old, new in (
            *zip(children[:start], others[:start], strict=True),
            *zip(children[len(children) - end :], others[len(others) - end :], strict=True),
        ):
            self._add(old, new)
        olds, news = self._free(children, others)
        before = {labels[path]: self._before.count_labels(path) for path in olds}
        after = {other_labels[path]: self._after.count_labels(path) for path in news}

        @cache
        def distance(one: int, other: int) -> int:
            """Return by how many nodes modules with these labels differ, as far as the labels of the nodes tell."""
            if one == other:
                return 0
            (loose, tight), (other_loose, other_tight) = before[one], after[other]
            unmatched = (loose - other_loose).total() + (other_loose - loose).total()
            return unmatched + (tight - other_tight).total() + 1

        pairs = cheapest_alignment(
            [before[labels[path]][0].total() + 1 for path in olds],
            [after[other_labels[path]][0].total() + 1 for path in news],
            lambda x, y: distance(labels[olds[x]], other_labels[news[y]]),
        )
        if pairs is None:
            self._add_aligned(children, others, _LEVELS)
            return
        for x, y in pairs:
            self._add(olds[x], news[y])

    def _add_aligned(self, children: Sequence[str], others: Sequence[str], levels: Iterable[str]) -> None:
        olds, news = self._free(children, others)
        gaps = [Gap(0, len(olds), 0, len(news))]
        for level in levels:
            labels, other_labels = self._before.labels[level], self._after.labels[level]
            pairs, gaps = align([labels[path] for path in olds], [other_labels[path] for path in news], gaps)
            for x, y in pairs:
                self._add(olds[x], news[y])

    def _add_similar(self, children: Sequence[str], others: Sequence[str]) -> None:
        """Match modules with other names and at least half of their contents in common."""
        olds, news = self._free(children, others)
        olds, news = [*map(self._before.skip_wrappers, olds)], [*map(self._after.skip_wrappers, news)]
        if max(len(olds), len(news)) > _SIBLINGS:
            return
        for old in olds:
            contents = self._before.contents(old)
            shared = {new: _overlap(contents, self._after.contents(new)) for new in news if new not in self._taken}
            best = max(shared, key=shared.__getitem__, default="")
            if best and shared[best]:
                self._add(old, best)

    def _add_moved(self) -> None:
        """Match free modules elsewhere in the tree with a unique name and shape."""
        free = self._free(self._before.children, self._after.children)
        for old, new in pair_unique(
            *(
                [((_last(path), tree.labels["shape"][path]), path) for path in sorted(paths, key=scope_depth)]
                for paths, tree in zip(free, (self._before, self._after), strict=True)
            )
        ):
            self._add(old, new)
            self._descend()

    def _free(self, olds: Iterable[str], news: Iterable[str]) -> tuple[list[str], list[str]]:
        return [path for path in olds if path not in self._found], [path for path in news if path not in self._taken]


def _overlap(one: frozenset[tuple[str, int]], two: frozenset[tuple[str, int]]) -> int:
    """Count the common contents of two modules, or return 0 if they are less than half of either."""
    both = len(one & two)
    return both if 2 * both >= max(len(one), len(two)) else 0


def _last(path: str) -> str:
    return split_path(path)[1]


def _index(path: str) -> int:
    """Return a key that sorts entries of a list by index, before all names."""
    name = _last(path)
    return int(name) if name.isdecimal() and len(name) < 20 else 10**20
