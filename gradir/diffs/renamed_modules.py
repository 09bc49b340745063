"""The modules that a diff says were renamed, with all that is in them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.matching.renames import Naming, Rename, pattern, rename
from gradir.ir.ids import split_id
from gradir.ir.module_tree import Above, upwards

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gradir.ir import Graph, Node

_ANY: Final = "*"


class _Shown(NamedTuple):
    """A rename that two nodes show, and the modules that it is about in both graphs."""

    rename: Rename
    old: str
    new: str


class RenamedModules:
    """The renames that hold for whole modules, and the number of nodes that each renames.

    The old prefix is gone, or the new one is new, and where both graphs know the module it is the same one in both:
    ``paths`` has those of the first graph by the paths of the second. ``told`` names modules with ``*`` for any index
    where that holds for each of them, and else one by one; ``tensors`` has the roles of those that are about a tensor.
    """

    def __init__(self, a: Graph, b: Graph, pairs: Iterable[tuple[Node, Node]], paths: Mapping[str, str]) -> None:
        self._tables = a.scopes, b.scopes
        self._paths = paths
        shown = Counter(
            found for old, new in pairs if (old.id, old.scope) != (new.id, new.scope) for found in set(_shown(old, new))
        )
        counts = Counter({found: count for found, count in shown.items() if self._is_one(found)})
        scopes = [dict.fromkeys(node.scope for node in graph.nodes.values()) for graph in (a, b)] if counts else []
        before, after = (Above(map(pattern, there)) for there in scopes or ((), ()))
        self._renames = {
            found.rename for found in counts if found.rename.before not in after or found.rename.after not in before
        }
        self.told: Counter[Rename] = Counter()
        self.tensors: dict[tuple[str, str], str] = {}
        single = set(self._single(counts, scopes)) if self._renames else set()
        told = _with_fixed_indices(found for found in counts if found.rename in self._renames)
        for found, count in counts.items():
            if found.rename in self._renames:
                name = Rename(found.old, found.new) if found.rename in single else told[found.rename]
                self.told[name] += count
                if found.old in a.nodes and found.new in b.nodes:
                    self.tensors[name] = b.nodes[found.new].role

    def explain(self, old: Node, new: Node) -> bool:
        """Whether such renames are all that two nodes of different names show."""
        if not self._renames:
            return False
        renames = set(Naming.of(old).renames(Naming.of(new)))
        return renames <= self._renames and all(map(self._is_one, _shown(old, new)))

    def explain_scope(self, old: str, new: str) -> bool:
        """Whether such a rename is all that two paths of one module show."""
        return rename(pattern(old), pattern(new)) in self._renames

    def _is_one(self, found: _Shown) -> bool:
        """Whether two modules are one, as far as the tables of modules know them."""
        before, after = self._tables
        known = found.old and found.new and found.old in before and found.new in after
        return not known or self._paths.get(found.old) == found.new

    def _single(self, counts: Iterable[_Shown], scopes: Collection[Iterable[str]]) -> Iterator[Rename]:
        """The renames of which some modules that they would be about have the name that they had."""
        before, after = scopes
        instances = tuple(
            _instances({each[side] for each in self._renames}, there) for side, there in enumerate(scopes)
        )
        still, already = Above(after), Above(before)
        olds: dict[Rename, set[str]] = {}
        news: dict[Rename, set[str]] = {}
        for found in counts:
            olds.setdefault(found.rename, set()).add(found.old)
            news.setdefault(found.rename, set()).add(found.new)
        for each in self._renames:
            kept = instances[0].get(each.before, set()) - olds[each]
            kept_after = instances[1].get(each.after, set()) - news[each]
            if any(path in still for path in kept) or any(path in already for path in kept_after):
                yield each


def _with_fixed_indices(shown: Iterable[_Shown]) -> dict[Rename, Rename]:
    """By rename what is told of it: an index that only one of the names has is itself, where it is the same for all.

    >>> up = [_Shown(Rename("h.*.up", "h.*.up.*"), f"h.{n}.up", f"h.{n}.up.0") for n in range(2)]
    >>> _with_fixed_indices(up)[up[0].rename]
    Rename(before='h.*.up', after='h.*.up.0')
    """
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
    """The modules that each of these patterns is about."""
    found: dict[str, set[str]] = {each: set() for each in patterns if _ANY in each}
    for scope in scopes if found else ():
        for path in upwards(scope):
            each = found.get(pattern(path))
            if each is not None:
                each.add(path)
    return found


def _shown(old: Node, new: Node) -> Iterator[_Shown]:
    """The renames of modules that two nodes show; that of a tensor's own name is none."""
    before, after = Naming.of(old), Naming.of(new)
    if before.path != after.path:
        found = before.rename(after)
        if old.op or found.before != before.path:
            yield _Shown(found, _start(_path(old), found.before), _start(_path(new), found.after))
    if before.scope != after.scope:
        found = rename(before.scope, after.scope)
        yield _Shown(found, _start(old.scope, found.before), _start(new.scope, found.after))


def _path(node: Node) -> str:
    """The path that an id starts with; all of a tensor's id is one."""
    path, rest = split_id(node.id)
    return path if path or node.op else rest


def _start(path: str, prefix: str) -> str:
    """As much of a path as a prefix with ``*`` in it stands for."""
    return ".".join(path.split(".")[: prefix.count(".") + 1]) if prefix else ""
