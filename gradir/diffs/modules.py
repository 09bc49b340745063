"""Which module of one graph is which of another, as their matched nodes show it, and which of them were renamed."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.matching.renames import Naming, Rename, pattern, rename
from gradir.diffs.sequences import cheapest_alignment, matched
from gradir.ir.ids import encode_component, split_id, split_last
from gradir.ir.module_tree import split_path, upwards, whole_tree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change
    from gradir.ir import Graph, Node, Scope
    from gradir.ir.module_tree import ModuleTree

_SAME_CLASS: Final = 8
_SAME_NAME: Final = 2
# What it counts that two modules are one; more of them count more than none.
_ONE: Final = 1
_ANY: Final = "*"
_OF_THE_GRAPH: Final = frozenset({"input", "output"})
_OF_MODULES: Final = frozenset({"parameter", "buffer"})

# Where modules are nested deeper than that in other ones, they are taken from the innermost outward.
_MOST_LEVELS: Final = 16


class ChangedModule(NamedTuple):
    """A module: its path in the second graph, or in the first where only that has it."""

    path: str
    gone: bool = False


class OtherName(NamedTuple):
    """What both graphs call a module or a tensor that has another name or place."""

    old: str
    new: str

    @property
    def rename(self) -> Rename:
        """The same for any index."""
        return Rename(pattern(self.old), pattern(self.new))


class Outline:
    """All modules of two graphs, listed or named by a node, and which one of the first is which of the second.

    ``paths`` are those in the second graph by those in the first. A module that is gone stands where it stood in the
    order of the model, and one that no graph knows comes last.
    """

    def __init__(self, trees: tuple[ModuleTree, ModuleTree], paths: Mapping[str, str]) -> None:
        self.trees = trees
        self.paths = paths
        self._was = {new: old for old, new in paths.items()}

    @classmethod
    def from_pairs(cls, a: Graph, b: Graph, pairs: Collection[tuple[Node, Node]]) -> Outline:
        """Return the modules as most of their matched nodes pair them, then their parents and kinds."""
        # A module that was wrapped, and has no nodes, is the one in its wrapper that is as it was.
        tree = whole_tree(a)
        trees = tree, whole_tree(b, like=tree)
        before, after = ({scope.path: scope for scope in tree.scopes} for tree in trees)
        if _have_same_places(before, after, pairs):
            return cls(trees, {path: path for path in after})
        return cls(trees, _Pairing(before, after).pairs(_count_votes(before, after, pairs)))

    def was(self, path: str) -> str | None:
        """Return what the first graph calls a module of the second; nothing of a new one."""
        return self._was.get(path)

    def module(self, path: str, *, added: bool) -> ChangedModule:
        """Return the module at a path of the second graph, or of the first."""
        if added:
            return ChangedModule(path)
        now = self.paths.get(path)
        return ChangedModule(path, gone=True) if now is None else ChangedModule(now)

    def position(self, module: ChangedModule) -> int:
        """Return a number that grows in the order of the model."""
        return self._order.setdefault(module, len(self._order))

    def sections(self, changes: Sequence[Change], indices: Iterable[int]) -> list[tuple[ChangedModule, list[int]]]:
        """Return the indices of some of the changes by module, in the order of the model."""
        found: dict[ChangedModule, list[int]] = {}
        for at in indices:
            module = self.module(changes[at].scope, added=changes[at].kind != "removed")
            found.setdefault(module, []).append(at)
        return sorted(found.items(), key=lambda section: self.position(section[0]))

    @cached_property
    def other_names(self) -> Mapping[str, OtherName]:
        """By path of each module with another path, the one that it is or lies in that has another name or place."""
        found: dict[str, OtherName] = {}
        shown: dict[Rename, OtherName] = {}
        for old in (scope.path for scope in self.trees[0].scopes if scope.path in self.paths):
            new = self.paths[old]
            (above, name), (above_now, name_now) = split_path(old), split_path(new)
            around = self.paths.get(above)
            is_below = old and new and around is not None and pattern(around) == pattern(above_now)
            other: OtherName | None = OtherName(old, new)
            if is_below and pattern(name) == pattern(name_now):
                other = found.get(above)
            elif (short := rename(pattern(old), pattern(new))) != (pattern(old), pattern(new)):
                # The module around it is gone, but not the one around that.
                other = shown.get(short, other)
            if other is not None and pattern(old) != pattern(new):
                found[old] = other
                shown.setdefault(other.rename, other)
        return found

    @cached_property
    def _order(self) -> dict[ChangedModule, int]:
        before, after = self.trees
        there = (
            {self.module(scope.path, added=False): scope for scope in before.scopes},
            {ChangedModule(scope.path): scope for scope in after.scopes},
        )
        return {module: at for at, (module, _, _) in enumerate(matched(*there))}


def _have_same_places(a: Mapping[str, Scope], b: Mapping[str, Scope], pairs: Collection[tuple[Node, Node]]) -> bool:
    """Return whether each module surely is the one of its path; a module of another kind has nodes and wraps none."""
    if a.keys() != b.keys() or [old.scope for old, _ in pairs] != [new.scope for _, new in pairs]:
        return False
    others = {path for path, scope in a.items() if _kind(scope) != _kind(b[path])}
    wrapping = {split_path(path)[0] for path in a if path} if others else ()
    return others.isdisjoint(wrapping) and others <= {old.scope for old, _ in pairs}


class _Pairing:
    def __init__(self, a: Mapping[str, Scope], b: Mapping[str, Scope]) -> None:
        self._a, self._b = a, b
        self._inside = _find_children(a), _find_children(b)
        self._found: dict[str, str] = {}
        self._free = set(b)
        # By module of the second graph those in it by their kinds, as far as they may be free.
        self._waiting: dict[str, defaultdict[tuple[str, str, int], deque[str]]] = {}

    def pairs(self, votes: Mapping[tuple[str, str], tuple[int, int]]) -> dict[str, str]:
        """Return the paths that are one, those with the most votes first."""
        ordered = sorted(votes, key=lambda pair: (pair[0] != pair[1], sorted(pair)))
        for old, new in sorted(ordered, key=votes.__getitem__, reverse=True):
            # What shares a wrapper with a module is not that module, however alike it is.
            if self._find_in_wrapper(old, old) in {"", new} and self._find_former(new, new) in {"", old}:
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
        self._add(self._find_former(old, new) or old, self._find_in_wrapper(old, new) or new)

    def _add(self, old: str, new: str) -> None:
        if new in self._free and old in self._a and old not in self._found:
            # Of equal paths always one object: to look it up again is not to compare it.
            self._found[old] = self._b[new].path
            self._free.remove(new)

    def _find_in_wrapper(self, old: str, wrapper: str) -> str:
        """Return the only module in a wrapper that is as the former one of its name was; nothing if it is none."""
        return _find_like(self._a.get(old), self._b.get(wrapper), self._inside[1])

    def _find_former(self, wrapper: str, new: str) -> str:
        return _find_like(self._b.get(new), self._a.get(wrapper), self._inside[0])


def _find_like(module: Scope | None, wrapper: Scope | None, inside: Mapping[str, Mapping[str, Scope]]) -> str:
    if module is None or wrapper is None or module.class_name == wrapper.class_name:
        return ""
    same = [scope.path for scope in inside[wrapper.path].values() if _kind(scope) == _kind(module)]
    return same[0] if len(same) == 1 else ""


def _find_children(scopes: Mapping[str, Scope]) -> Mapping[str, Mapping[str, Scope]]:
    """Return for each path of a table the modules right in it, by their names there."""
    found: dict[str, dict[str, Scope]] = {path: {} for path in scopes}
    for path, scope in scopes.items():
        parent, name = split_path(path)
        if path and parent in scopes:
            found[parent][name] = scope
    return found


def _kind(scope: Scope) -> tuple[str, str, int]:
    return scope.class_name, scope.detail, scope.own


def _count_votes(
    a: Mapping[str, Scope], b: Mapping[str, Scope], pairs: Iterable[tuple[Node, Node]]
) -> dict[tuple[str, str], tuple[int, int]]:
    """Count by pair of paths the matched nodes below two modules that are one, as far as these nodes show."""
    # A node in a module that was wrapped is no vote for the wrapper, nor for other modules in it. Of modules without a
    # class, their own nodes tell more than those further inside.
    votes: Counter[tuple[str, str]] = Counter()
    inside: Counter[tuple[str, str]] = Counter()
    # An input or output of the graph stands at the top level, and tells of a single module alone whether it moved.
    inner = Counter((old.scope, new.scope) for old, new in pairs if old.role not in _OF_THE_GRAPH)
    scopes = inner if len(inner) > 1 else Counter((old.scope, new.scope) for old, new in pairs)
    for (old, new), count in scopes.items():
        for before, after in _levels(a, b, old, new):
            if before in a and after in b:
                is_inside = (before, after) != (old, new) and not _compare_classes(a, b, before, after)
                (inside if is_inside else votes)[a[before].path, b[after].path] += count
    return {pair: (votes[pair], inside[pair]) for pair in (*votes, *inside)}


def _levels(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield the modules around a node before and after that are one, the innermost first."""
    before, after = [*upwards(old), ""], [*upwards(new), ""]
    if len(before) == len(after):
        yield from zip(before, after, strict=True)
        return
    outer: list[tuple[str, str]] = []
    while before and after and before[-1] == after[-1] and _compare_classes(a, b, before[-1], after[-1]) == _SAME_CLASS:
        outer.append((before.pop(), after.pop()))
    if max(len(before), len(after)) > _MOST_LEVELS:
        yield from zip(before, after, strict=False)
    else:
        free = [0] * len(before), [0] * len(after)
        pairs = cheapest_alignment(*free, lambda x, y: -_pair_weight(a, b, before[x], after[y], x + y == 0)) or ()
        yield from ((before[x], after[y]) for x, y in pairs)
    yield from reversed(outer)


def _pair_weight(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str, is_innermost: bool) -> int:
    # Of modules without a class the nodes in them tell most.
    known = _compare_classes(a, b, old, new) or (_SAME_CLASS if is_innermost else 0)
    # The top level has no name.
    return known + _SAME_NAME * (split_path(old)[1] == split_path(new)[1] != "") + _ONE


def _compare_classes(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str) -> int:
    """Return the weight of two modules being of one class or of others; 0 if one is not known."""
    one, other = (table[path].class_name if path in table else "" for table, path in ((a, old), (b, new)))
    return (_SAME_CLASS if one == other else -_SAME_CLASS) if one and other else 0


class RenamedModules:
    """The renames that hold for whole modules.

    The old prefix is gone, or the new one is new, and where both graphs know the module it is the same one in both.
    ``nodes`` counts the nodes that each renames. It names modules with ``*`` for any index where that holds for each of
    them, and else one by one; ``tensors`` has the roles of those that are about a tensor.
    """

    def __init__(self, a: Graph, b: Graph, pairs: Iterable[tuple[Node, Node]], outline: Outline) -> None:
        self._outline = outline
        self._known = tuple({scope.path for scope in tree.scopes} for tree in outline.trees)
        # Where no graph knows a module, the names of the tensors tell what the modules are called.
        self._are_unknown = self._known == ({""}, {""})
        for known, graph in zip(self._known, (a, b), strict=True) if self._are_unknown else ():
            known.update(path for node in graph.nodes.values() if not node.op for path in list(upwards(node.id))[1:])
        counts: Counter[OtherName] = Counter()
        staying: set[str] = set()
        for old, new in pairs:
            if self._are_unknown and old.role in _OF_MODULES and pattern(old.id) == pattern(new.id):
                staying.update(map(pattern, (*upwards(old.id), "")))
            if (old.id, old.scope) != (new.id, new.scope):
                # Not in a set: its order would differ from run to run. A tensor by itself is a change of its own.
                other_names = dict.fromkeys(filter(None, self._other_names(old, new)))
                counts.update([other for other in other_names if old.op or other.old != old.id])
        counts = _drop_ambiguous(counts, staying) if self._are_unknown else counts
        before, after = ({*map(pattern, paths if counts else ())} for paths in self._known)
        self._renames = {
            other.rename
            for other in counts
            if other.rename.before not in after or other.rename.after not in before or self._is_around_new(other)
        }
        self.nodes: Counter[Rename] = Counter()
        self.tensors: dict[tuple[str, str], str] = {}
        # A name stands for all its modules, if none of them stayed where it was.
        stay = self._known[0] & self._known[1] if counts else set()
        stay_before, stay_after = ({*map(pattern, stay.difference(other[side] for other in counts))} for side in (0, 1))
        whole = [(other, count) for other, count in counts.items() if other.rename in self._renames]
        names = _report_fixed_indices(other for other, _ in whole)
        for other, count in whole:
            is_single = other.rename.before in stay_before or other.rename.after in stay_after
            name = Rename(*other) if is_single else names[other.rename]
            self.nodes[name] += count
            if other.old in a.nodes and other.new in b.nodes:
                self.tensors[name] = b.nodes[other.new].role

    def explain(self, old: Node, new: Node) -> bool:
        """Return whether two nodes of different names differ in these renames alone."""
        before, after = Naming.of(old), Naming.of(new)
        is_same = before.tail == after.tail or (before.tail, after.tail) == (before.op, after.op)
        return is_same and all(
            other is not None and other.rename in self._renames for other in self._other_names(old, new)
        )

    def explain_scope(self, path: str) -> bool:
        """Return whether a module of the first graph has another path by such a rename alone."""
        other = self._outline.other_names.get(path)
        return other is not None and other.rename in self._renames

    def _other_names(self, old: Node, new: Node) -> Iterator[OtherName | None]:
        """Yield what explains the other id and scope of a node; nothing of one that moved to another module."""
        for before, after in dict.fromkeys([(_path_of(old), _path_of(new)), (old.scope, new.scope)]):
            if pattern(before) == pattern(after):
                continue
            (module, tensor), (module_now, tensor_now) = map(self._split, self._known, (before, after))
            if self._are_unknown:
                yield OtherName(*rename(before, after))
            elif self._outline.paths.get(module) != module_now:
                yield None
            elif pattern(tensor) != pattern(tensor_now):
                yield OtherName(before, after)
            else:
                yield self._outline.other_names.get(module)

    @staticmethod
    def _split(known: Collection[str], path: str) -> tuple[str, str]:
        """Return a module, and the name of the tensor in it that a path is of."""
        return (path, "") if path in known else split_last(path)

    def _is_around_new(self, other: OtherName) -> bool:
        """Return whether the module that has a former name now, or had the new name before, is in one graph only."""
        before, after = self._known
        came = other.old in after and self._outline.was(other.old) is None
        return came or (other.new in before and other.new not in self._outline.paths)


def _drop_ambiguous(counts: Counter[OtherName], staying: Collection[str]) -> Counter[OtherName]:
    """Return the other names that say where every tensor of a module went; of modules ``staying``, some did not."""
    others = Counter(other.rename for other in counts)
    ways = Counter(each.before for each in others)
    told = {each for each in others if ways[each.before] == 1 and each.before not in staying}
    for other in counts:
        before, after = ([part for part in path.split(".") if pattern(part) != part] for path in other)
        if before != after and (others[other.rename] > 1 or len(before) == len(after)):
            told.discard(other.rename)
    return Counter({other: count for other, count in counts.items() if other.rename in told})


def _report_fixed_indices(shown: Iterable[OtherName]) -> dict[Rename, Rename]:
    """Return by rename what is reported: an index of one name alone is itself if all modules have it."""
    names: dict[Rename, tuple[list[list[str]], list[list[str]]]] = {}
    for found in shown:
        olds, news = names.setdefault(found.rename, ([], []))
        olds.append(found.old.split("."))
        news.append(found.new.split("."))
    return {each: Rename(*_fix_indices(each, *both)) for each, both in names.items()}


def _fix_indices(each: Rename, *both: list[list[str]]) -> Iterator[str]:
    marks = [name.split(".") for name in each]
    counts = [parts.count(_ANY) for parts in marks]
    for parts, paths, count in zip(marks, both, counts, strict=True):
        if count == max(counts) != min(counts):
            columns = zip(parts, zip(*paths, strict=False), strict=False)
            same = [column[0] if part == _ANY and len({*column}) == 1 else part for part, column in columns]
            # Where that leaves one name without the index of a layer that the other has, it says too much.
            parts = same if same.count(_ANY) == min(counts) else parts  # noqa: PLW2901
        yield ".".join(parts)


def _path_of(node: Node) -> str:
    path, rest = split_id(node.id)
    if not node.op:
        return path or rest
    return node.scope if path == encode_component(node.scope) else path
