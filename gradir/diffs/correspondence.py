"""The names in the second graph of nodes, scopes and cuts of the first, and the renames that explain them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from gradir.diffs.matching.renames import Naming, Rename, pattern
from gradir.diffs.matching.search import reference_ids
from gradir.diffs.modules import Outline, RenamedModules
from gradir.ir.edges import move_edges
from gradir.ir.ids import FreeIds, mark_as_removed, split_last, storage_key
from gradir.ir.memo import group_by_key
from gradir.ir.module_tree import split_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gradir.diffs.matching import Matching
    from gradir.ir import Cut, Graph, Node, Ref, Saved, Scope

_REMOVED: Final = " (removed)"

# The change of a name, empty if it is the same or another change reports it.
Verdict = Literal["", "renumbered", "renamed", "moved"]


class Correspondence:
    """Translates the names in records of the first graph to those of the second.

    ``matched`` has new ids of nodes, ``paths`` new paths of modules and ``storages`` new names of storages, each by the
    name in the first graph. ``modules`` has the renames of whole modules with the number of nodes that each renames.
    """

    def __init__(self, a: Graph, b: Graph, matching: Matching) -> None:
        self.matched: Mapping[str, str] = matching.nodes
        self._taken = b.nodes
        self._known, self._scopes = a.nodes, a.scopes
        others = {key for key, new in self.matched.items() if new != key}
        self._others = others.union(b.nodes.keys() & (a.nodes.keys() - self.matched.keys()))
        self._renames = frozenset(matching.renames)
        pairs = [(a.nodes[before], b.nodes[after]) for before, after in self.matched.items()]
        self.outline = Outline.from_pairs(a, b, pairs)
        self.paths: Mapping[str, str] = self.outline.paths
        self._modules = RenamedModules(a, b, pairs if self._renames else (), self.outline)
        self.modules: Mapping[Rename, int] = self._modules.nodes
        self.tensors: Mapping[tuple[str, str], str] = self._modules.tensors
        self.storages: Mapping[str, str] = find_renamed_storages(a, b, self._id)
        # Whether equal names in both graphs are those of one node or storage.
        self.keeps_ids = not self.storages and self._others.isdisjoint(b.nodes)

    @cached_property
    def union_ids(self) -> Mapping[str, str]:
        """The ids in the union of both graphs, by those of the first."""
        ids = FreeIds(self._taken)
        return {**self.matched, **{key: ids.free(key) for key in self._known if key not in self.matched}}

    @cached_property
    def union_paths(self) -> Mapping[str, str]:
        """The paths in the union of both graphs, by those of the first; a removed module has a path of its own."""
        found: dict[str, str] = {}
        every = dict.fromkeys((*self._scopes, *(node.scope for node in self._known.values())))
        for path in sorted(every, key=lambda path: path.count(".")):
            if path in self.paths or not path:
                found[path] = self.paths.get(path, path)
                continue
            parent, dot, name = path.rpartition(".")
            above = found.get(parent, parent)
            # The path below a removed module is unique already.
            is_unique = path not in self._scopes or above.endswith(_REMOVED) or f"{_REMOVED}." in above
            found[path] = f"{above}{dot}{name}" + ("" if is_unique else _REMOVED)
        return found

    def nodes(self, nodes: Mapping[str, Node]) -> Mapping[str, Node]:
        """Return nodes of the first graph by the ids of the second."""
        return {self._id(key): node for key, node in nodes.items()} if self._others else nodes

    def scopes(self, scopes: Mapping[str, Scope]) -> Mapping[str, Scope]:
        """Return scopes of the first graph by the paths of the second."""
        return {self.paths.get(path, mark_as_removed(path)): scope for path, scope in scopes.items()}

    def node(self, old: Node, new: Node) -> Node:
        """Return a node of the first graph with the names of the second, as far as renames explain them."""
        has_same_names = (old.id, old.scope, old.names) == (new.id, new.scope, new.names)
        if has_same_names and not (self.storages and old.saved) and self._others.isdisjoint(reference_ids(old)):
            return old
        names = new.names if self._are_renamed(old, new) else old.names
        saved = tuple([self._slot(slot, old.id, new.id) for slot in old.saved])
        edges = move_edges(old, lambda ref, _: self._ref(ref))
        return msgspec.structs.replace(old, id=new.id, scope=new.scope, names=names, saved=saved, **edges)

    def cut(self, cut: Cut) -> Cut:
        """Return a cut of the first graph, with paths of the second in its scope and names."""
        path = self.paths.get(cut.scope, cut.scope)

        def rename(name: str) -> str:
            module, dot, own = name.rpartition(".")
            if cut.is_place:
                # A place may have names of any modules.
                return f"{self.paths.get(module, module)}{dot}{own}" if dot else name
            if cut.scope and not name.startswith(f"{cut.scope}."):
                return name
            rest = name[len(cut.scope) + 1 :] if cut.scope else name
            return f"{path}.{rest}" if path else rest

        return msgspec.structs.replace(cut, scope=path, names=tuple(map(rename, cut.names)))

    def verdict(self, old: Node, new: Node) -> Verdict:
        """Return the change of a node's name, unless another change reports it."""
        if old.id == new.id and old.scope == new.scope:
            return ""
        before, after = Naming.of(old), Naming.of(new)
        renames = set(before.renames(after))
        if not renames:
            return "renumbered" if old.op == new.op else ""
        if self._modules.explain(old, new):
            return ""
        is_moved = old.scope != new.scope and not self._modules.explain_scope(old.scope)
        return "moved" if is_moved and before.scope != after.scope else "renamed"

    def scope_verdict(self, old: Scope, new: Scope) -> Verdict:
        """Return the change of a scope's path, unless another change reports it."""
        if old.path == new.path:
            return ""
        if pattern(old.path) == pattern(new.path):
            return "renumbered"
        (parent, name), (other_parent, other_name) = split_path(old.path), split_path(new.path)
        if name == other_name and parent != other_parent and self.paths.get(parent) == other_parent:
            return ""
        return "" if self._modules.explain_scope(old.path) else "renamed"

    def _id(self, node_id: str) -> str:
        found = self.matched.get(node_id)
        if found is not None:
            return found
        return mark_as_removed(node_id) if node_id in self._known and node_id in self._taken else node_id

    def _ref(self, ref: Ref | None) -> Ref | None:
        if ref is None:
            return None
        node_id = self._id(ref.id)
        return ref if node_id == ref.id else msgspec.structs.replace(ref, id=node_id)

    def _slot(self, slot: Saved, old_id: str, new_id: str) -> Saved:
        storage = slot.storage
        renamed = self.storages.get(storage or storage_key(old_id, slot.slot)) if self.storages else None
        if renamed is not None:
            storage = "" if renamed == storage_key(new_id, slot.slot) else renamed
        elif storage in self._known:
            storage = self._id(storage)
        elif storage:
            owner, name = split_last(storage)
            storage = storage_key(self._id(owner), name) if owner else storage
        return msgspec.structs.replace(slot, origin=self._ref(slot.origin), storage=storage)

    def _are_renamed(self, old: Node, new: Node) -> bool:
        """Return whether the renames, or another index in the id, explain the new names of a node."""
        both = zip(old.names, new.names, strict=False)
        follows_id = old.id != new.id or all(one == two or pattern(one) != pattern(two) for one, two in both)
        return follows_id and Naming.of(old).is_explained(Naming.of(new), self._renames)


def find_renamed_storages(a: Graph, b: Graph, translate: Callable[[str], str]) -> dict[str, str]:
    """Return new names of storages that the same slots share under another name, by the old ones."""
    # `translate` returns the id in the second graph of a node of the first. Only shared storages without a tensor that
    # owns them can have another name.
    before, after = _find_shared_slots(a.nodes.values()), _find_shared_slots(b.nodes.values())
    names = {frozenset(slots): name for name, slots in after.items()}
    found = {}
    for name, slots in before.items():
        translated = [(translate(node_id), slot) for node_id, slot in slots]
        new = names.get(frozenset(translated))
        if new is not None and new != storage_key(*translated[0]):
            found[name] = new
    return found


def _find_shared_slots(nodes: Collection[Node]) -> dict[str, list[tuple[str, str]]]:
    """Return the slots that share a storage, the one with its name first."""
    found = group_by_key((slot.storage, (node.id, slot.slot)) for node in nodes for slot in node.saved if slot.storage)
    if not found:
        return {}
    own = {
        name: (node.id, slot.slot)
        for node in nodes
        for slot in node.saved
        if not slot.storage and (name := storage_key(node.id, slot.slot)) in found
    }
    return {name: [own[name], *slots] for name, slots in found.items() if name in own}
