"""Which module of one graph is which of another: by name first, by what is in it where the name is gone."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gradir.diffs.matching.renames import pattern
from gradir.diffs.sequences import Gap, align, cheapest_alignment
from gradir.ir.module_tree import scope_depth, split_path

if TYPE_CHECKING:
    from gradir.diffs.matching.numbered import Labels, Side

__all__ = ["matched_modules", "same_names"]

_LEVELS: Final = ("tight", "loose", "shape", "class")
"""What two modules may have in common, most first."""


_SIBLINGS: Final = 16
"""Among more modules than this no similar one is looked for: that would be quadratic."""


def matched_modules(before: Side, after: Side, labels: Labels) -> dict[str, str]:
    """Paths of modules in the first graph to paths in the second."""
    return _Modules(_Tree(before, labels), _Tree(after, labels)).matched()


def same_names(before: Side, after: Side, modules: Mapping[str, str]) -> list[tuple[int, int]]:
    """Pairs of nodes with one name in matched modules; functions only where both modules have as many of the kind."""
    counts, other_counts = (Counter(zip(side.modules, side.loose, strict=True)) for side in (before, after))
    pairs = []
    # To spell what a node is called in another module would take the length of that module's path for each node.
    index = {(path, *_called(after, place)): place for place, path in enumerate(after.modules)}
    for place, (module, tensor) in enumerate(before.standing):
        path = modules.get(before.modules[place])
        if path is None:
            continue
        other = index.get((path, *_called(before, place)))
        label = before.loose[place]
        if other is None or label != after.loose[other]:
            continue
        if tensor or counts[module, label] == other_counts[path, label]:
            pairs.append((place, other))
    return pairs


def _called(side: Side, place: int) -> tuple[str, bool]:
    """What a node is called in its module, and whether that is a tensor's name."""
    node_id, module = side.ids[place], side.modules[place]
    return node_id[len(module) + 1 :] if module else node_id, bool(side.standing[place][1])


class _Tree:
    """The modules of one graph: what each contains, and labels of that from exact to vague."""

    def __init__(self, side: Side, labels: Labels) -> None:
        self.classes = side.classes
        self.children: dict[str, list[str]] = {"": []}
        for path in dict.fromkeys((*side.classes, *side.modules)):
            self._add(path)
        for children in self.children.values():
            children.sort(key=_index)
        self._side = side
        own = self._own = dict[str, list[int]]()
        for place, module in enumerate(side.modules):
            own.setdefault(module, []).append(place)
        self.labels: dict[str, dict[str, int]] = {level: {} for level in _LEVELS}
        for path in sorted(self.children, key=scope_depth, reverse=True):
            self._label(path, side, own.get(path, ()), labels)

    def wrapped(self, path: str, label: int) -> str:
        """The only child that has the shape which another module had by itself; nothing if there is none."""
        found = [child for child in self.children[path] if self.labels["shape"][child] == label]
        return found[0] if len(found) == 1 else ""

    def unwrapped(self, path: str) -> str:
        """What a chain of modules that contain only the next one ends in."""
        while len(self.children[path]) == 1 and not _last(self.children[path][0]).isdecimal():
            path = self.children[path][0]
        return path

    def saying(self, path: str) -> tuple[Counter[int], Counter[int]]:
        """How often which label is in a module: the loose ones, and the tight ones."""
        places: list[int] = []
        stack = [path]
        while stack:
            module = stack.pop()
            places += self._own.get(module, ())
            stack += self.children[module]
        side = self._side
        return Counter([side.loose[place] for place in places]), Counter([side.tight[place] for place in places])

    def contents(self, path: str) -> frozenset[tuple[str, int]]:
        """What kinds of modules stand in one, each with its name."""
        return frozenset((pattern(_last(child)), self.labels["shape"][child]) for child in self.children[path])

    def _add(self, path: str) -> None:
        missing = []
        while path not in self.children:
            self.children[path] = []
            missing.append(path)
            path = split_path(path)[0]
        for path in reversed(missing):
            self.children[split_path(path)[0]].append(path)

    def _label(self, path: str, side: Side, places: Iterable[int], labels: Labels) -> None:
        name = self.classes.get(path, "")
        children = [(pattern(_last(child)), child) for child in self.children[path]]
        for level, of in (("tight", side.tight), ("loose", side.loose)):
            known = self.labels[level]
            below = tuple([(last, known[child]) for last, child in children])
            known[path] = labels[name, tuple(sorted([of[place] for place in places])), below]
        known = self.labels["shape"]
        known[path] = labels[name, frozenset((last, known[child]) for last, child in children)]
        self.labels["class"][path] = labels["class", name, None if name else known[path]]


class _Modules:
    """Matches the modules of two trees from the root down."""

    def __init__(self, before: _Tree, after: _Tree) -> None:
        self._before, self._after = before, after
        self._found: dict[str, str] = {}
        self._taken: set[str] = set()
        self._queue: deque[tuple[str, str]] = deque()

    def matched(self) -> dict[str, str]:
        """Paths of the first graph to paths of the second."""
        self._add_replaced("", "")
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

    def _add_replaced(self, old: str, new: str) -> None:
        """Match modules of one name, or one of them with what the other wraps."""
        before, after = self._before, self._after
        if before.classes.get(old) != after.classes.get(new):
            inner = after.wrapped(new, before.labels["shape"][old])
            outer = before.wrapped(old, after.labels["shape"][new])
            if inner:
                return self._add(old, inner)
            if outer:
                return self._add(outer, new)
        return self._add(old, new)

    def _add_children(self, old: str, new: str) -> None:
        children, others = self._before.children[old], self._after.children[new]
        if not children or not others:
            return
        by_name = {_last(child): child for child in others}
        for child in children:
            name = _last(child)
            if name in by_name and not name.isdecimal():
                self._add_replaced(child, by_name[name])
        self._add_entries(*([path for path in paths if _last(path).isdecimal()] for paths in (children, others)))
        for child in self._free(children):
            if _last(child) in by_name:
                self._add(child, by_name[_last(child)])
        if self._alike(old, new):
            self._add_aligned(children, others, _LEVELS[:-1])
            self._add_similar(children, others)

    def _add_entries(self, children: Sequence[str], others: Sequence[str]) -> None:
        """Match the entries of two lists."""
        if not children or not others:
            return
        here, there = self._before.labels["tight"], self._after.labels["tight"]
        start, end = _equal_ends([here[path] for path in children], [there[path] for path in others])
        for old, new in (
            *zip(children[:start], others[:start], strict=True),
            *zip(children[len(children) - end :], others[len(others) - end :], strict=True),
        ):
            self._add(old, new)
        olds, news = self._free(children), [path for path in others if path not in self._taken]
        difference = _Difference(self._before, self._after, olds, news)
        pairs = cheapest_alignment(difference.weights, difference.other_weights, difference.between)
        if pairs is None:
            self._add_aligned(children, others, _LEVELS)
            return
        for x, y in pairs:
            self._add(olds[x], news[y])

    def _add_aligned(self, children: Sequence[str], others: Sequence[str], levels: Iterable[str]) -> None:
        olds = self._free(children)
        news = [path for path in others if path not in self._taken]
        gaps = [Gap(0, len(olds), 0, len(news))]
        for level in levels:
            of, other_of = self._before.labels[level], self._after.labels[level]
            pairs, gaps = align([of[path] for path in olds], [other_of[path] for path in news], gaps)
            for x, y in pairs:
                self._add(olds[x], news[y])

    def _alike(self, old: str, new: str) -> bool:
        """Whether what has another name in these may still be the same."""
        before, after = self._before, self._after
        of, other_of = before.labels["class"][old], after.labels["class"][new]
        return not old or of == other_of or _overlap(before.contents(old), after.contents(new)) > 0

    def _add_similar(self, children: Sequence[str], others: Sequence[str]) -> None:
        """Match modules with other names that have half of their contents in common, the chains around them apart."""
        olds = [self._before.unwrapped(path) for path in self._free(children)]
        news = [self._after.unwrapped(path) for path in others if path not in self._taken]
        if max(len(olds), len(news)) > _SIBLINGS:
            return
        for old in olds:
            contents = self._before.contents(old)
            shared = {new: _overlap(contents, self._after.contents(new)) for new in news if new not in self._taken}
            best = max(shared, key=shared.__getitem__, default="")
            if best and shared[best]:
                self._add(old, best)

    def _add_moved(self) -> None:
        """Match what stands elsewhere in the tree, if only one on each side is called so and has this shape."""
        free = [path for path in self._before.children if path not in self._found]
        other_free = [path for path in self._after.children if path not in self._taken]
        here, there = _once(free, self._before), _once(other_free, self._after)
        for key, path in here.items():
            if key in there:
                self._add(path, there[key])
                self._descend()

    def _free(self, paths: Iterable[str]) -> list[str]:
        return [path for path in paths if path not in self._found]


class _Difference:
    """By how many nodes modules differ, as far as their labels tell; it remembers what comparing two gave."""

    def __init__(self, before: _Tree, after: _Tree, olds: Sequence[str], news: Sequence[str]) -> None:
        self._keys = [before.labels["tight"][path] for path in olds]
        self._other_keys = [after.labels["tight"][path] for path in news]
        self._saying = {key: before.saying(path) for key, path in zip(self._keys, olds, strict=True)}
        self._other_saying = {key: after.saying(path) for key, path in zip(self._other_keys, news, strict=True)}
        self.weights = [self._saying[key][0].total() + 1 for key in self._keys]
        self.other_weights = [self._other_saying[key][0].total() + 1 for key in self._other_keys]
        self._known: dict[tuple[int, int], int] = {}

    def between(self, x: int, y: int) -> int:
        """What changing one module into another costs."""
        keys = self._keys[x], self._other_keys[y]
        if keys[0] == keys[1]:
            return 0
        known = self._known.get(keys)
        if known is None:
            (loose, tight), (other_loose, other_tight) = self._saying[keys[0]], self._other_saying[keys[1]]
            apart = (loose - other_loose).total() + (other_loose - loose).total()
            known = self._known[keys] = apart + (tight - other_tight).total() + 1
        return known


def _equal_ends(labels: Sequence[int], others: Sequence[int]) -> tuple[int, int]:
    """How many labels are equal from the start, and of the others how many from the end."""
    most = min(len(labels), len(others))
    start = next((at for at in range(most) if labels[at] != others[at]), most)
    most -= start
    return start, next((at for at in range(most) if labels[-1 - at] != others[-1 - at]), most)


def _overlap(one: frozenset[tuple[str, int]], two: frozenset[tuple[str, int]]) -> int:
    """What two modules have in common, if that is at least half of what is in each."""
    both = len(one & two)
    return both if 2 * both >= max(len(one), len(two)) else 0


def _once(paths: Iterable[str], tree: _Tree) -> dict[tuple[str, int], str]:
    keys = {path: (_last(path), tree.labels["shape"][path]) for path in sorted(paths, key=scope_depth)}
    counts = Counter(keys.values())
    return {key: path for path, key in keys.items() if counts[key] == 1}


def _last(path: str) -> str:
    return split_path(path)[1]


def _index(path: str) -> int:
    """Sorts the entries of a list by index, and leaves names in order behind them."""
    name = _last(path)
    return int(name) if name.isdecimal() and len(name) < 20 else 10**20
