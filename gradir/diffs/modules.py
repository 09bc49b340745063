"""Match the modules of two graphs by their matched nodes, and find the renamed ones."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.matching.renames import Naming, Rename, pattern, rename
from gradir.diffs.sequences import cheapest_alignment, pair_by_key
from gradir.ir.ids import encode_component, split_id, split_last
from gradir.ir.memo import group_by_key
from gradir.ir.module_tree import split_path, walk_up, whole_tree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change
    from gradir.ir import Graph, Node, Scope
    from gradir.ir.module_tree import ModuleTree

_SAME_CLASS: Final = 8
_SAME_NAME: Final = 2
# The weight of any pair of modules, so that more pairs weigh more than fewer.
_ONE: Final = 1
_ANY: Final = "*"
_OF_THE_GRAPH: Final = frozenset({"input", "output"})
_OF_MODULES: Final = frozenset({"parameter", "buffer"})


class ChangedModule(NamedTuple):
    """A module: its path in the second graph, or in the first if only that has it."""

    path: str
    gone: bool = False


class OtherName(NamedTuple):
    """The names in both graphs of a module or tensor with another name or place."""

    old: str
    new: str

    @property
    def rename(self) -> Rename:
        """The same for any index."""
        return Rename(pattern(self.old), pattern(self.new))


class Outline:
    """All modules of two graphs, from their tables and the scopes of nodes, and the pairs of equal modules.

    ``paths`` has paths in the second graph by those in the first. The order of modules is that of the model: a removed
    module has its former place, and a module that no graph contains comes last.
    """

    def __init__(self, trees: tuple[ModuleTree, ModuleTree], paths: Mapping[str, str]) -> None:
        self.trees = trees
        self.paths = paths
        self._was = {new: old for old, new in paths.items()}

    @classmethod
    def from_pairs(cls, a: Graph, b: Graph, pairs: Collection[tuple[Node, Node]]) -> Outline:
        """Return the modules as most of their matched nodes pair them, then their parents and kinds."""
        tree = whole_tree(a)
        trees = tree, whole_tree(b, like=tree)
        before, after = ({scope.path: scope for scope in tree.scopes} for tree in trees)
        if _have_same_places(before, after, pairs):
            return cls(trees, {path: path for path in after})
        return cls(trees, _Pairing(before, after).pairs(_count_votes(before, after, pairs)))

    def was(self, path: str) -> str | None:
        """Return the path in the first graph of a module of the second, or ``None`` if it is new."""
        return self._was.get(path)

    def module(self, path: str, *, added: bool) -> ChangedModule:
        """Return the module at a path of the second graph, or of the first."""
        if added:
            return ChangedModule(path)
        new = self.paths.get(path)
        return ChangedModule(path, gone=True) if new is None else ChangedModule(new)

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
        """By path of each module with another path, the module itself or the one around it that was renamed."""
        found: dict[str, OtherName] = {}
        by_rename: dict[Rename, OtherName] = {}
        for old in (scope.path for scope in self.trees[0].scopes if scope.path in self.paths):
            new = self.paths[old]
            (parent, name), (new_parent, new_name) = split_path(old), split_path(new)
            translated = self.paths.get(parent)
            has_same_parent = old and new and translated is not None and pattern(translated) == pattern(new_parent)
            other: OtherName | None = OtherName(old, new)
            if has_same_parent and pattern(name) == pattern(new_name):
                other = found.get(parent)
            elif (short := rename(pattern(old), pattern(new))) != (pattern(old), pattern(new)):
                # The parent was removed, but a module further out may have the same rename.
                other = by_rename.get(short, other)
            if other is not None and pattern(old) != pattern(new):
                found[old] = other
                by_rename.setdefault(other.rename, other)
        return found

    @cached_property
    def _order(self) -> dict[ChangedModule, int]:
        olds, news = (
            {self.module(scope.path, added=added): scope for scope in tree.scopes}
            for tree, added in zip(self.trees, (False, True), strict=True)
        )
        return {module: place for place, (module, _, _) in enumerate(pair_by_key(olds, news))}


def _have_same_places(a: Mapping[str, Scope], b: Mapping[str, Scope], pairs: Collection[tuple[Node, Node]]) -> bool:
    """Return whether every path surely names the same module in both graphs."""
    # A module whose class changed may be a wrapper, unless it has nodes and no submodules.
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
        # By module of the second graph, its children by their kinds, as far as they may be free.
        self._children: dict[str, defaultdict[tuple[str, str, int], deque[str]]] = {}

    def pairs(self, votes: Mapping[tuple[str, str], tuple[int, int]]) -> dict[str, str]:
        """Return the paths of equal modules, the pairs with the most votes first."""
        ordered = sorted(votes, key=lambda pair: (pair[0] != pair[1], sorted(pair)))
        for old, new in sorted(ordered, key=votes.__getitem__, reverse=True):
            # A sibling in a wrapper is another module, even if it is similar.
            if self._find_in_wrapper(old, old) in {"", new} and self._find_former(new, new) in {"", old}:
                self._add(old, new)
        by_depth = group_by_key((path.count(".") + bool(path), path) for path in self._a)
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
            parent = self._found.get(split_path(path)[0])
            if path in self._found or parent is None or not self._a[path].class_name:
                continue
            if parent not in self._children:
                self._children[parent] = defaultdict(deque)
                for child in self._inside[1][parent].values():
                    self._children[parent][_kind(child)].append(child.path)
            same = self._children[parent][_kind(self._a[path])]
            while same and same[0] not in self._free:
                same.popleft()
            if same:
                self._add(path, same[0])

    def _add_alike(self, old: str, new: str) -> None:
        """Add a module with the module of its name, or with the one inside that wrapper."""
        self._add(self._find_former(old, new) or old, self._find_in_wrapper(old, new) or new)

    def _add(self, old: str, new: str) -> None:
        if new in self._free and old in self._a and old not in self._found:
            # The same object for equal paths makes later lookups cheaper than comparing text.
            self._found[old] = self._b[new].path
            self._free.remove(new)

    def _find_in_wrapper(self, old: str, wrapper: str) -> str:
        return _find_only_child(self._a.get(old), self._b.get(wrapper), self._inside[1])

    def _find_former(self, wrapper: str, new: str) -> str:
        return _find_only_child(self._b.get(new), self._a.get(wrapper), self._inside[0])


def _find_only_child(module: Scope | None, wrapper: Scope | None, inside: Mapping[str, Mapping[str, Scope]]) -> str:
    """Return the only child of a wrapper in the other graph with the kind of a module, or an empty text."""
    if module is None or wrapper is None or module.class_name == wrapper.class_name:
        return ""
    same = [scope.path for scope in inside[wrapper.path].values() if _kind(scope) == _kind(module)]
    return same[0] if len(same) == 1 else ""


def _find_children(scopes: Mapping[str, Scope]) -> Mapping[str, Mapping[str, Scope]]:
    """Return the children of each module, by path and name."""
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
    """Count by pair of paths the matched nodes in both modules, which are votes that the modules are equal."""
    # A node in a wrapped module is no vote for the wrapper or its other children. For modules without a class, their
    # own nodes count first, then those further inside.
    votes: Counter[tuple[str, str]] = Counter()
    inside: Counter[tuple[str, str]] = Counter()
    # Inputs and outputs of the graph are at the top level, so they count only if all nodes are in one module.
    inner = Counter((old.scope, new.scope) for old, new in pairs if old.role not in _OF_THE_GRAPH)
    scopes = inner if len(inner) > 1 else Counter((old.scope, new.scope) for old, new in pairs)
    for (old, new), count in scopes.items():
        for before, after in _levels(a, b, old, new):
            if before in a and after in b:
                is_inside = (before, after) != (old, new) and not _compare_classes(a, b, before, after)
                (inside if is_inside else votes)[a[before].path, b[after].path] += count
    return {pair: (votes[pair], inside[pair]) for pair in (*votes, *inside)}


def _levels(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of equal modules around two matched nodes, the innermost first."""
    before, after = [*walk_up(old), ""], [*walk_up(new), ""]
    if len(before) == len(after):
        yield from zip(before, after, strict=True)
        return
    outer: list[tuple[str, str]] = []
    while before and after and before[-1] == after[-1] and _compare_classes(a, b, before[-1], after[-1]) == _SAME_CLASS:
        outer.append((before.pop(), after.pop()))
    free = [0] * len(before), [0] * len(after)
    pairs = cheapest_alignment(*free, lambda x, y: -_pair_weight(a, b, before[x], after[y], x + y == 0)) or ()
    yield from ((before[x], after[y]) for x, y in pairs)
    yield from reversed(outer)


def _pair_weight(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str, is_innermost: bool) -> int:
    # Without classes, the innermost modules are the best pair.
    weight = _compare_classes(a, b, old, new) or (_SAME_CLASS if is_innermost else 0)
    # The top level has no name.
    return weight + _SAME_NAME * (split_path(old)[1] == split_path(new)[1] != "") + _ONE


def _compare_classes(a: Mapping[str, Scope], b: Mapping[str, Scope], old: str, new: str) -> int:
    """Return a positive weight for equal classes, a negative one for others, and 0 if one is unknown."""
    one, other = (table[path].class_name if path in table else "" for table, path in ((a, old), (b, new)))
    return (_SAME_CLASS if one == other else -_SAME_CLASS) if one and other else 0


class RenamedModules:
    """The renames of whole modules.

    ``nodes`` counts the nodes of each rename. A rename has ``*`` for any index if it holds for all these modules, and
    else there is one for each. ``tensors`` has the roles of renamed tensors.
    """

    def __init__(self, a: Graph, b: Graph, pairs: Iterable[tuple[Node, Node]], outline: Outline) -> None:
        self._outline = outline
        self._known = tuple({scope.path for scope in tree.scopes} for tree in outline.trees)
        # If no graph lists modules, the names of the tensors imply their paths.
        self._are_unknown = self._known == ({""}, {""})
        for known, graph in zip(self._known, (a, b), strict=True) if self._are_unknown else ():
            known.update(path for node in graph.nodes.values() if not node.op for path in list(walk_up(node.id))[1:])
        counts: Counter[OtherName] = Counter()
        staying: set[str] = set()
        for old, new in pairs:
            if self._are_unknown and old.role in _OF_MODULES and pattern(old.id) == pattern(new.id):
                staying.update(map(pattern, (*walk_up(old.id), "")))
            if (old.id, old.scope) != (new.id, new.scope):
                # No set, since its order differs from run to run. A single renamed tensor is a separate change.
                other_names = dict.fromkeys(filter(None, self._other_names(old, new)))
                counts.update([other for other in other_names if old.op or other.old != old.id])
        counts = _drop_ambiguous(counts, staying) if self._are_unknown else counts
        before, after = ({*map(pattern, paths if counts else ())} for paths in self._known)
        self._renames = {
            other.rename
            for other in counts
            if other.rename.before not in after or other.rename.after not in before or self._reuses_name(other)
        }
        self.nodes: Counter[Rename] = Counter()
        self.tensors: dict[tuple[str, str], str] = {}
        # A pattern names all its modules if none of them stayed in its place.
        stay = self._known[0] & self._known[1] if counts else set()
        stay_before, stay_after = ({*map(pattern, stay.difference(other[side] for other in counts))} for side in (0, 1))
        whole = [(other, count) for other, count in counts.items() if other.rename in self._renames]
        names = _with_common_indices(other for other, _ in whole)
        for other, count in whole:
            is_single = other.rename.before in stay_before or other.rename.after in stay_after
            name = Rename(*other) if is_single else names[other.rename]
            self.nodes[name] += count
            if other.old in a.nodes and other.new in b.nodes:
                self.tensors[name] = b.nodes[other.new].role

    def explain(self, old: Node, new: Node) -> bool:
        """Return whether these renames explain the different names of two nodes."""
        before, after = Naming.of(old), Naming.of(new)
        is_same = before.tail == after.tail or (before.tail, after.tail) == (before.op, after.op)
        return is_same and all(
            other is not None and other.rename in self._renames for other in self._other_names(old, new)
        )

    def explain_scope(self, path: str) -> bool:
        """Return whether such a rename explains the new path of a module of the first graph."""
        other = self._outline.other_names.get(path)
        return other is not None and other.rename in self._renames

    def _other_names(self, old: Node, new: Node) -> Iterator[OtherName | None]:
        """Yield the renames that explain a node's new id and scope, ``None`` if it moved to another module."""
        for before, after in dict.fromkeys([(_path_of(old), _path_of(new)), (old.scope, new.scope)]):
            if pattern(before) == pattern(after):
                continue
            # A path that is no module is that of a tensor in one.
            (module, tensor), (new_module, new_tensor) = (
                (path, "") if path in known else split_last(path)
                for known, path in zip(self._known, (before, after), strict=True)
            )
            if self._are_unknown:
                yield OtherName(*rename(before, after))
            elif self._outline.paths.get(module) != new_module:
                yield None
            elif pattern(tensor) != pattern(new_tensor):
                yield OtherName(before, after)
            else:
                yield self._outline.other_names.get(module)

    def _reuses_name(self, other: OtherName) -> bool:
        """Return whether the old name now names a new module, or the new name was that of a removed one."""
        before, after = self._known
        is_taken = other.old in after and self._outline.was(other.old) is None
        return is_taken or (other.new in before and other.new not in self._outline.paths)


def _drop_ambiguous(counts: Counter[OtherName], staying: Collection[str]) -> Counter[OtherName]:
    """Return the other names that hold for every tensor of a module; some tensors of modules in ``staying`` stayed."""
    others = Counter(other.rename for other in counts)
    ways = Counter(each.before for each in others)
    clear = {each for each in others if ways[each.before] == 1 and each.before not in staying}
    for other in counts:
        before, after = ([part for part in path.split(".") if pattern(part) != part] for path in other)
        if before != after and (others[other.rename] > 1 or len(before) == len(after)):
            clear.discard(other.rename)
    return Counter({other: count for other, count in counts.items() if other.rename in clear})


def _with_common_indices(others: Iterable[OtherName]) -> dict[Rename, Rename]:
    """Return the renames to report: an index in only one of both names is itself if all modules have it."""
    names = group_by_key((other.rename, other) for other in others)
    return {each: Rename(*_fix_indices(each, found)) for each, found in names.items()}


def _fix_indices(each: Rename, found: Sequence[OtherName]) -> Iterator[str]:
    marks = [name.split(".") for name in each]
    counts = [parts.count(_ANY) for parts in marks]
    for parts, paths, count in zip(marks, zip(*found, strict=True), counts, strict=True):
        if count == max(counts) != min(counts):
            columns = zip(parts, zip(*(path.split(".") for path in paths), strict=False), strict=False)
            same = [column[0] if part == _ANY and len({*column}) == 1 else part for part, column in columns]
            # A name without the index of a layer that the other name has would be wrong.
            parts = same if same.count(_ANY) == min(counts) else parts  # noqa: PLW2901
        yield ".".join(parts)


def _path_of(node: Node) -> str:
    path, rest = split_id(node.id)
    if not node.op:
        return path or rest
    return node.scope if path == encode_component(node.scope) else path
