"""Which module of one graph is which of another, as their matched nodes show it, and which of them were renamed."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.matching.renames import Naming, Rename, pattern, rename
from gradir.diffs.sequences import cheapest_alignment
from gradir.ir.ids import split_id
from gradir.ir.module_tree import Above, split_path, upwards

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gradir.ir import Graph, Node, Scope

_SAME_CLASS: Final = 8
_SAME_NAME: Final = 2
# What it counts that two modules are one; more of them count more than none.
_ONE: Final = 1
_ANY: Final = "*"

# Where modules are nested deeper than that in other ones, they are taken from the innermost outward.
_MOST_LEVELS: Final = 16


def paired_scopes(a: Graph, b: Graph, pairs: Iterable[tuple[Node, Node]]) -> dict[str, str]:
    """Return paths of the second graph by those of the first, as most of their nodes say, then by parents and kinds."""
    # A module that was wrapped, and has no nodes, is the one in its wrapper that is as it was.
    pairs = list(pairs)
    if _keep_their_places(a, b, pairs):
        return {path: path for path in b.scopes}
    return _Pairing(a, b).pairs(_scope_votes(a, b, pairs))


def _keep_their_places(a: Graph, b: Graph, pairs: Collection[tuple[Node, Node]]) -> bool:
    """Return whether each module surely is the one of its path; a module of another kind has nodes and wraps none."""
    if a.scopes.keys() != b.scopes.keys() or any(old.scope != new.scope for old, new in pairs):
        return False
    others = {path for path, scope in a.scopes.items() if _kind(scope) != _kind(b.scopes[path])}
    wrapping = {split_path(path)[0] for path in a.scopes if path} if others else ()
    return others.isdisjoint(wrapping) and others <= {old.scope for old, _ in pairs}


class _Pairing:
    def __init__(self, a: Graph, b: Graph) -> None:
        self._a, self._b = a.scopes, b.scopes
        self._inside = _inside(a.scopes), _inside(b.scopes)
        self._found: dict[str, str] = {}
        self._free = set(b.scopes)
        # By module of the second graph those in it by their kinds, as far as they may be free.
        self._waiting: dict[str, defaultdict[tuple[str, str, int], deque[str]]] = {}

    def pairs(self, votes: Mapping[tuple[str, str], int]) -> dict[str, str]:
        """Return the paths that are one, those with the most votes first."""
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
        """Add modules of equal names in matched parents, of the same kind or of any."""
        for path in paths:
            parent, name = split_path(path)
            if path not in self._found and parent in self._found:
                new = self._inside[1][self._found[parent]].get(name)
                if new is not None and (not are_alike or _kind(new) == _kind(self._a[path])):
                    self._add_alike(path, new.path)

    def _add_in_order(self, paths: Iterable[str]) -> None:
        """Add modules without nodes that have another name or index, in their order in the parent."""
        for path in paths:
            above = self._found.get(split_path(path)[0])
            if path in self._found or above is None or not self._a[path].class_name:
                continue
            if above not in self._waiting:
                self._waiting[above] = defaultdict(deque)
                for new in self._inside[1][above].values():
                    self._waiting[above][_kind(new)].append(new.path)
            same = self._waiting[above][_kind(self._a[path])]
            while same and same[0] not in self._free:
                same.popleft()
            if same:
                self._add(path, same[0])

    def _add_alike(self, old: str, new: str) -> None:
        """Add a module with the one that has its name, or with the one that this wraps."""
        self._add(self._unwrapped(old, new) or old, self._wrapped(old, new) or new)

    def _add(self, old: str, new: str) -> None:
        if new in self._free and old in self._a and old not in self._found:
            # Of equal paths always one object: to look it up again is not to compare it.
            self._found[old] = self._b[new].path
            self._free.remove(new)

    def _wrapped(self, old: str, wrapper: str) -> str:
        """Return the only module in a wrapper that is as the former one of its name was; nothing if it is none."""
        return _held(self._a.get(old), self._b.get(wrapper), self._inside[1])

    def _unwrapped(self, wrapper: str, new: str) -> str:
        return _held(self._b.get(new), self._a.get(wrapper), self._inside[0])


def _held(module: Scope | None, wrapper: Scope | None, inside: Mapping[str, Mapping[str, Scope]]) -> str:
    if module is None or wrapper is None or module.class_name == wrapper.class_name:
        return ""
    same = [scope.path for scope in inside[wrapper.path].values() if _kind(scope) == _kind(module)]
    return same[0] if len(same) == 1 else ""


def _inside(scopes: Mapping[str, Scope]) -> Mapping[str, Mapping[str, Scope]]:
    """Return for each path of a table the modules right in it, by their names there."""
    found: dict[str, dict[str, Scope]] = {path: {} for path in scopes}
    for path, scope in scopes.items():
        parent, name = split_path(path)
        if path and parent in scopes:
            found[parent][name] = scope
    return found


def _kind(scope: Scope) -> tuple[str, str, int]:
    return scope.class_name, scope.detail, scope.own


def _scope_votes(a: Graph, b: Graph, pairs: Iterable[tuple[Node, Node]]) -> Counter[tuple[str, str]]:
    """Count by pair of paths the matched nodes below two modules that are one, as far as these nodes show."""
    # A node in a module that was wrapped is no vote for the wrapper, nor for other modules in it.
    votes: Counter[tuple[str, str]] = Counter()
    for (old, new), count in Counter([(old.scope, new.scope) for old, new in pairs]).items():
        for before, after in _levels(a.scopes, b.scopes, old, new):
            if before in a.scopes and after in b.scopes:
                votes[a.scopes[before].path, b.scopes[after].path] += count
    return votes


def _levels(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield the modules around a node before and after that are one, the innermost first."""
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
    return known + _SAME_NAME * (split_path(old)[1] == split_path(new)[1]) + _ONE


def _classes(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str) -> int:
    """Return the weight of two modules being of one class or of others; 0 if one is not known."""
    one, other = (table[path].class_name if path in table else "" for table, path in ((a, old), (b, new)))
    return (_SAME_CLASS if one == other else -_SAME_CLASS) if one and other else 0


class _Shown(NamedTuple):
    """A rename that two nodes show, and the modules or paths that it is about in both graphs."""

    rename: Rename
    old: str
    new: str


class RenamedModules:
    """The renames that hold for whole modules.

    The old prefix is gone, or the new one is new, and where both graphs know the module it is the same one in both.
    ``nodes`` counts the nodes that each renames. It names modules with ``*`` for any index where that holds for each of
    them, and else one by one; ``tensors`` has the roles of those that are about a tensor.
    """

    def __init__(self, a: Graph, b: Graph, pairs: Iterable[tuple[Node, Node]], paths: Mapping[str, str]) -> None:
        self._tables = a.scopes, b.scopes
        self._paths, self._news = paths, {*paths.values()}
        shown = Counter(
            found
            for old, new in pairs
            if (old.id, old.scope) != (new.id, new.scope)
            # Not in a set: its order would differ from run to run.
            for found in dict.fromkeys(map(self._lowest, _shown(old, new)))
        )
        counts = Counter({found: count for found, count in shown.items() if self._is_one(found)})
        scopes = [dict.fromkeys(node.scope for node in graph.nodes.values()) for graph in (a, b)] if counts else []
        before, after = (Above(map(pattern, there)) for there in scopes or ((), ()))
        self._renames = {
            found.rename
            for found in counts
            if found.rename.before not in after or found.rename.after not in before or self._is_around_new(found)
        }
        self.nodes: Counter[Rename] = Counter()
        self.tensors: dict[tuple[str, str], str] = {}
        single = set(self._single(counts, scopes)) if self._renames else set()
        whole = [(self._outermost(found), count) for found, count in counts.items() if found.rename in self._renames]
        names = _with_fixed_indices(found for found, _ in whole)
        for found, count in whole:
            name = Rename(found.old, found.new) if found.rename in single else names[found.rename]
            self.nodes[name] += count
            if found.old in a.nodes and found.new in b.nodes:
                self.tensors[name] = b.nodes[found.new].role

    def _is_around_new(self, found: _Shown) -> bool:
        """Return whether the module that has a former name now, or had the new name before, is in one graph only."""
        before, after = self._tables
        came = found.old in after and found.old not in self._news
        return came or (found.new in before and found.new not in self._paths)

    def _outermost(self, found: _Shown) -> _Shown:
        """Return the rename that explains this one: with `fn` as `fn.g`, its module `fn.g` is `fn.g.g`."""
        before, after = found.rename
        (around, name), (around_after, name_after) = split_path(before), split_path(after)
        if after == f"{before}.{name}" and Rename(around, before) in self._renames:
            return _Shown(Rename(around, before), split_path(found.old)[0], found.old)
        if before == f"{after}.{name_after}" and Rename(after, around_after) in self._renames:
            return _Shown(Rename(after, around_after), found.new, split_path(found.new)[0])
        return found

    def explain(self, old: Node, new: Node) -> bool:
        """Return whether two nodes of different names differ in these renames alone."""
        if not self._renames:
            return False
        shown = list(_shown(old, new))
        others = set(Naming.of(old).renames(Naming.of(new))) - {each.rename for each in shown}
        lowest = [self._lowest(each) for each in shown]
        return others <= self._renames and all(each.rename in self._renames and self._is_one(each) for each in lowest)

    def explain_scope(self, old: str, new: str) -> bool:
        """Return whether two paths of one module differ in such a rename alone."""
        return self._lowest(_Shown(rename(pattern(old), pattern(new)), old, new)).rename in self._renames

    def _lowest(self, shown: _Shown) -> _Shown:
        """Return the modules that two paths show to have the names, or those right in them where these are not one."""
        both = shown.old, shown.new
        found = _Shown(shown.rename, *map(_start, both, shown.rename))
        prefixes = (f"{prefix}.*" if prefix else _ANY for prefix in shown.rename)
        inner = [*map(_start, both, prefixes)]
        below = _Shown(Rename(*map(pattern, inner)), *inner)
        return found if self._is_one(found) or not self._are_known(below) else below

    def _is_one(self, found: _Shown) -> bool:
        """Return whether two modules are one, as far as the tables of modules know them."""
        return not self._are_known(found) or self._paths.get(found.old) == found.new

    def _are_known(self, found: _Shown) -> bool:
        before, after = self._tables
        return found.old in before and found.new in after

    def _single(self, counts: Iterable[_Shown], scopes: Collection[Iterable[str]]) -> Iterator[Rename]:
        """Yield renames that some of their modules have not followed."""
        before, after = scopes
        instances = tuple(
            _instances({each[side] for each in self._renames}, there) for side, there in enumerate(scopes)
        )
        still, already = Above(after), Above(before)
        followed: dict[Rename, tuple[set[str], set[str]]] = {}
        for found in counts:
            olds, news = followed.setdefault(found.rename, (set(), set()))
            olds.add(found.old)
            news.add(found.new)
        for each in self._renames:
            own, own_after = followed[each]
            kept = instances[0].get(each.before, set()) - own
            kept_after = instances[1].get(each.after, set()) - own_after
            if any(path in still for path in kept) or any(path in already for path in kept_after):
                yield each


def _with_fixed_indices(shown: Iterable[_Shown]) -> dict[Rename, Rename]:
    """Return by rename what is reported: an index of one name alone is itself if all modules have it."""
    names: dict[Rename, tuple[list[list[str]], list[list[str]]]] = {}
    for found in shown:
        olds, news = names.setdefault(found.rename, ([], []))
        olds.append(found.old.split("."))
        news.append(found.new.split("."))
    return {each: Rename(*_fixed(each, *both)) for each, both in names.items()}


def _fixed(each: Rename, *both: list[list[str]]) -> Iterator[str]:
    marks = [name.split(".") for name in each]
    counts = [parts.count(_ANY) for parts in marks]
    for parts, paths, count in zip(marks, both, counts, strict=True):
        if count == max(counts) != min(counts):
            columns = zip(parts, zip(*paths, strict=False), strict=False)
            same = [column[0] if part == _ANY and len({*column}) == 1 else part for part, column in columns]
            # Where that leaves one name without the index of a layer that the other has, it says too much.
            parts = same if same.count(_ANY) == min(counts) else parts  # noqa: PLW2901
        yield ".".join(parts)


def _instances(patterns: Collection[str], scopes: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {each: set() for each in patterns if _ANY in each}
    for scope in scopes if found else ():
        for path in upwards(scope):
            each = found.get(pattern(path))
            if each is not None:
                each.add(path)
    return found


def _shown(old: Node, new: Node) -> Iterator[_Shown]:
    """Yield the renames of modules that two nodes show with both paths, without that of a tensor's own name."""
    before, after = Naming.of(old), Naming.of(new)
    if before.path != after.path:
        found = before.rename(after)
        if old.op or found.before != before.path:
            yield _Shown(found, _path(old), _path(new))
    if before.scope != after.scope:
        yield _Shown(rename(before.scope, after.scope), old.scope, new.scope)


def _path(node: Node) -> str:
    path, rest = split_id(node.id)
    return path if path or node.op else rest


def _start(path: str, prefix: str) -> str:
    """Return as much of a path as a prefix with ``*`` in it stands for."""
    return ".".join(path.split(".")[: prefix.count(".") + 1]) if prefix else ""
