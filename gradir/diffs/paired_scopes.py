"""Which module of one graph is which of another, as their matched nodes show it."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from gradir.diffs.sequences import cheapest_alignment
from gradir.ir.module_tree import split_path, upwards

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gradir.ir import Graph, Node, Scope

_SAME_CLASS: Final = 8
_SAME_NAME: Final = 2
_ANY: Final = 1
"""What it counts that two modules are one; more of them count more than none."""

_MOST_LEVELS: Final = 16
"""Where modules are nested deeper than that in other ones, they are taken from the innermost outward."""


def paired_scopes(a: Graph, b: Graph, pairs: Iterable[tuple[Node, Node]]) -> dict[str, str]:
    """Paths of the first graph to paths of the second: as most of their nodes say, then as their parents and kinds are.

    A module that was wrapped, and of which no node tells, is the one in its wrapper that is as it was.
    """
    return _Pairing(a, b).pairs(_scope_votes(a, b, pairs))


class _Pairing:
    def __init__(self, a: Graph, b: Graph) -> None:
        self._a, self._b = a.scopes, b.scopes
        self._inside = _inside(a.scopes), _inside(b.scopes)
        self._found: dict[str, str] = {}
        self._free = dict.fromkeys(b.scopes)
        self._waiting: dict[str, dict[tuple[str, str, int], deque[str]]] = {}
        """By module of the second graph those in it by their kinds, as far as they may be free."""

    def pairs(self, votes: Mapping[tuple[str, str], int]) -> dict[str, str]:
        """The paths that are one, those with the most votes first."""
        for old, new in sorted(votes, key=lambda pair: (-votes[pair], pair[0] != pair[1], sorted(pair))):
            # What shares a wrapper with a module is not that module, however alike it is.
            if self._wrapped(old, old) in {"", new} and self._unwrapped(new, new) in {"", old}:
                self._add(old, new)
        by_depth: dict[int, list[str]] = {}
        for path in self._a:
            by_depth.setdefault(path.count(".") + bool(path), []).append(path)
        for _, paths in sorted(by_depth.items()):
            self._add_by_name(paths, are_alike=True)
            self._add_in_order(paths)
            self._add_by_name(paths, are_alike=False)
            for path in paths:
                self._add_alike(path, path)
        return self._found

    def _add_by_name(self, paths: Iterable[str], *, are_alike: bool) -> None:
        """Add modules with those of their names in what their parents are, of the same kind or of any."""
        for path in paths:
            parent, name = split_path(path)
            if path not in self._found and parent in self._found:
                new = self._inside[1][self._found[parent]].get(name)
                if new is not None and (not are_alike or _kind(new) == _kind(self._a[path])):
                    self._add_alike(path, new.path)

    def _add_in_order(self, paths: Iterable[str]) -> None:
        """Add modules that no node tells apart, and that have another name or index, in their order in the parent."""
        for path in paths:
            parent = split_path(path)[0]
            if path not in self._found and parent in self._found and self._a[path].class_name:
                kind, there = _kind(self._a[path]), self._waiting.get(self._found[parent])
                if there is None:
                    there = self._waiting[self._found[parent]] = {}
                    for new in self._inside[1][self._found[parent]].values():
                        there.setdefault(_kind(new), deque()).append(new.path)
                same = there.get(kind, ())
                while same and same[0] not in self._free:
                    same.popleft()
                if same:
                    self._add(path, same[0])

    def _add_alike(self, old: str, new: str | None) -> None:
        """Add a module with the one that has its name, or with what is in there: a wrapper is not what it wraps."""
        if new is not None:
            self._add(self._unwrapped(old, new) or old, self._wrapped(old, new) or new)

    def _add(self, old: str, new: str | None) -> None:
        if new is not None and new in self._free and old in self._a and old not in self._found:
            # Of equal paths always one object: to look it up again is not to compare it.
            self._found[old] = self._b[new].path
            del self._free[new]

    def _wrapped(self, old: str, wrapper: str) -> str:
        """The only module in one of another class that is as the former one of its name was; nothing if it is none."""
        return _held(self._a.get(old), self._b.get(wrapper), self._inside[1])

    def _unwrapped(self, wrapper: str, new: str) -> str:
        """The same with a wrapper that is there no more."""
        return _held(self._b.get(new), self._a.get(wrapper), self._inside[0])


def _held(module: Scope | None, wrapper: Scope | None, inside: Mapping[str, Mapping[str, Scope]]) -> str:
    if module is None or wrapper is None or module.class_name == wrapper.class_name:
        return ""
    same = [scope.path for scope in inside[wrapper.path].values() if _kind(scope) == _kind(module)]
    return same[0] if len(same) == 1 else ""


def _inside(scopes: Mapping[str, Scope]) -> Mapping[str, Mapping[str, Scope]]:
    """For each path of a table the modules right in it, by their names in there."""
    found: dict[str, dict[str, Scope]] = {path: {} for path in scopes}
    for path, scope in scopes.items():
        parent, name = split_path(path)
        if path and parent in scopes:
            found[parent][name] = scope
    return found


def _kind(scope: Scope) -> tuple[str, str, int]:
    return scope.class_name, scope.detail, scope.own


def _scope_votes(a: Graph, b: Graph, pairs: Iterable[tuple[Node, Node]]) -> Counter[tuple[str, str]]:
    """How many matched nodes stand below the paths of both tables that are one module, as far as those nodes show.

    What was wrapped is no vote for its wrapper, nor for what else is in there.
    """
    votes: Counter[tuple[str, str]] = Counter()
    for (old, new), count in Counter([(old.scope, new.scope) for old, new in pairs]).items():
        for before, after in _levels(a.scopes, b.scopes, old, new):
            if before in a.scopes and after in b.scopes:
                votes[a.scopes[before].path, b.scopes[after].path] += count
    return votes


def _levels(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str) -> Iterator[tuple[str, str]]:
    """The modules around a node before and after that are one, the innermost first.

    >>> from gradir.ir import Scope
    >>> a = {path: Scope(path, kind) for path, kind in {"": "Net", "h": "Block", "h.up": "Linear"}.items()}
    >>> b = {**a, "h.up": Scope("h.up", "Lora"), "h.up.base": Scope("h.up.base", "Linear")}
    >>> list(_levels(a, b, "h.up", "h.up.base"))
    [('h.up', 'h.up.base'), ('h', 'h'), ('', '')]
    """
    before, after = [*upwards(old), ""], [*upwards(new), ""]
    if len(before) == len(after):
        yield from zip(before, after, strict=True)
        return
    outer: list[tuple[str, str]] = []
    while before and after and before[-1] == after[-1] and _classes(a, b, before[-1], after[-1]) == _SAME_CLASS:
        outer.append((before.pop(), after.pop()))
    if max(len(before), len(after)) > _MOST_LEVELS:
        yield from zip(before, after, strict=False)
    else:
        free = [0] * len(before), [0] * len(after)
        pairs = cheapest_alignment(*free, lambda x, y: -_worth(a, b, before[x], after[y], x + y == 0)) or ()
        yield from ((before[x], after[y]) for x, y in pairs)
    yield from reversed(outer)


def _worth(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str, is_innermost: bool) -> int:
    # Of modules without a class the nodes in them tell most.
    known = _classes(a, b, old, new) or (_SAME_CLASS if is_innermost else 0)
    return known + _SAME_NAME * (split_path(old)[1] == split_path(new)[1]) + _ANY


def _classes(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str) -> int:
    """What it counts that two modules are of one class, or of others; nothing where one is not known."""
    one, other = (table[path].class_name if path in table else "" for table, path in ((a, old), (b, new)))
    if not (one and other):
        return 0
    return _SAME_CLASS if one == other else -_SAME_CLASS
