"""Count the bytes of saved storages, each once, also for nodes that a pass removed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import add
from types import NoneType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from gradir.ir.ids import storage_key
from gradir.ir.model import AttrValue, Node, Saved, clamp_size

K = TypeVar("K")

_RECOMPUTED: Final = "recomputed"
# The storages of nodes with these roles exist with or without a backward pass.
OWNERS = frozenset({"leaf", "parameter", "buffer", "input"})


def owner(key: str, nodes: Mapping[str, Node]) -> Node | None:
    """Return the node that owns a storage, or ``None`` if it exists only for the backward pass."""
    node = nodes.get(key)
    return node if node is not None and node.role in OWNERS else None


def unknown_slots(nodes: Iterable[Node]) -> int:
    """Count the saved slots of unknown size."""
    return sum(is_unsized(saved) for node in nodes for saved in node.saved)


def is_unsized(saved: Saved) -> bool:
    """Return whether the size of a slot is unknown; recomputed slots have no bytes."""
    return saved.bytes is None and saved.state != _RECOMPUTED


def whole_number(attrs: Mapping[str, object], name: str) -> int:
    """Return an attribute, or 0 if it is not an integer."""
    value = attrs.get(name)
    return value if isinstance(value, int) else 0


class SavedBytes(Generic[K]):
    """The bytes that nodes save, by account and by state of the slot.

    Each storage counts for the account that saved it first, with the largest size of its slots. ``owned`` are the bytes
    of storages that have an `owner`.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.bytes: defaultdict[tuple[K, str], int] = defaultdict(int)
        self.owned: defaultdict[K, int] = defaultdict(int)
        self._nodes = nodes
        self._sizes: dict[str, int] = {}
        self._first: dict[str, tuple[K, str]] = {}

    def add(self, node: Node, account: K) -> None:
        """Add the slots of a node."""
        own: set[str] = set()
        for saved in node.saved:
            size, key = saved.bytes, saved.storage
            if size is None:
                continue
            if not key:
                key = storage_key(node.id, saved.slot)
                # Slots of one name are different storages.
                if key in own:
                    self.bytes[account, saved.state] += size
                    continue
                own.add(key)
            known = self._sizes.get(key)
            if known is not None and size <= known:
                continue
            self._sizes[key] = size
            growth = size - (known or 0)
            if owner(key, self._nodes):
                self.owned[account] += growth
            else:
                self.bytes[self._first.setdefault(key, (account, saved.state))] += growth

    def total_by_account(self) -> dict[K, int]:
        """Return the bytes of slots of any state."""
        found: dict[K, int] = {}
        for (account, _), size in self.bytes.items():
            found[account] = found.get(account, 0) + size
        return found


# The key of ``ext`` for the saved slots of the omitted nodes that a node represents, a `Merged` each.
MERGED: Final = "merged"
_TYPES: Final = tuple((path, str, int, int, int) for path in (str, NoneType))


class Merged(NamedTuple):
    """Saved slots of one state, with their bytes.

    ``path`` is the module of the omitted nodes, or ``None`` for that of the node that represents them. A number can
    be negative, since storages that now count elsewhere are subtracted.
    """

    path: str | None
    state: str
    slots: int
    unsized: int
    bytes: int


def read_merged(node: Node) -> list[Merged]:
    """Return the saved slots of the omitted nodes that a node represents."""
    found: Any = node.ext.get(MERGED) if node.ext else None
    # A file may have any value there.
    return [
        Merged._make(entry)
        for entry in (found if isinstance(found, tuple) else ())
        if isinstance(entry, tuple) and tuple(map(type, entry)) in _TYPES
    ]


def bytes_beyond_slots(node: Node) -> int:
    """Return a node's saved bytes besides those of its own slots."""
    if node.role == "module":
        return whole_number(node.attrs, "saved_bytes")
    return bytes_of_omitted(node)


def bytes_of_omitted(node: Node) -> int:
    """Return the saved bytes of the omitted nodes that a node represents."""
    # Most nodes have no marks, and the test saves two calls for each.
    return sum(each.bytes for each in read_merged(node) if each.state) if node.ext else 0


class _Sums(dict["tuple[str | None, str]", "list[int]"]):
    """Count slots, slots of unknown size and bytes, by module and state."""

    def add(self, path: str | None, state: str, *numbers: int) -> None:
        known = self.get((path, state))
        self[path, state] = [*numbers] if known is None else [*map(add, known, numbers)]

    def make_ext(self) -> dict[str, AttrValue]:
        rows = tuple(
            (path, state, *map(clamp_size, numbers))
            for (path, state), numbers in self.items()
            if any(numbers) or (path and not state)
        )
        return {MERGED: rows} if rows else {}


def sum_merged(entries: Iterable[Merged]) -> dict[str, AttrValue]:
    """Return the entry of ``ext`` for slots, with sums by module and state."""
    sums = _Sums()
    for each in entries:
        sums.add(*each)
    return sums.make_ext()


def keep_only_modules(node: Node) -> dict[str, AttrValue]:
    """Return ``ext`` of a node without saved slots, but with the modules that it represents."""
    return _replace_merged(node, sum_merged(Merged(each.path, "", 0, 0, 0) for each in read_merged(node) if each.path))


def mark_omitted_slots(
    before: Mapping[str, Node],
    after: Mapping[str, Node],
    merged_into: Mapping[str, str],
    ids: Mapping[str, str],
    module_of: Callable[[Node], str] | None,
) -> dict[str, Node]:
    """Mark the nodes ``after`` with the slots of omitted nodes whose bytes count nowhere else.

    ``merged_into`` has for each omitted node the node ``before`` that represents it, and ``ids`` has new ids.
    """
    # The mark has the slots of all nodes before, minus those that still count after.
    sums: defaultdict[str, _Sums] = defaultdict(_Sums)
    _add_slots(sums, after, {}, -1)
    listed: set[tuple[str, str]] = set()
    places: dict[str, tuple[str, str | None]] = {}
    for key, node in before.items():
        first, path = merged_into.get(key, key), None
        new = ids.get(first, first)
        if module_of is not None and first != key:
            own, other = module_of(before[first]), module_of(node)
            path = None if other == own else other
            if path is not None and (own, path) not in listed:
                listed.add((own, path))
                sums[new].add(path, "", 0, 0, 0)
        if new != key or path is not None:
            places[key] = new, path
        for each in read_merged(node):
            sums[new].add((each.path or path) if module_of else None, *each[1:])
    _add_slots(sums, before, places, 1)
    found = {key: entries.make_ext() for key, entries in sums.items()}
    return {
        key: replace(node, ext=_replace_merged(node, found.get(key, {})))
        if found.get(key) or MERGED in node.ext
        else node
        for key, node in after.items()
    }


def _replace_merged(node: Node, entry: Mapping[str, AttrValue]) -> dict[str, AttrValue]:
    return {**{key: value for key, value in node.ext.items() if key != MERGED}, **entry}


def _add_slots(
    sums: defaultdict[str, _Sums], nodes: Mapping[str, Node], places: Mapping[str, tuple[str, str | None]], sign: int
) -> None:
    saved: SavedBytes[tuple[str, str | None]] = SavedBytes(nodes)
    for node in nodes.values():
        if node.saved:
            key, path = place = places.get(node.id) or (node.id, None)
            saved.add(node, place)
            for slot in node.saved:
                sums[key].add(path, slot.state, sign, sign * is_unsized(slot), 0)
    for ((key, path), state), size in saved.bytes.items():
        sums[key].add(path, state, 0, 0, sign * size)
    for (key, path), size in saved.owned.items():
        sums[key].add(path, "", 0, 0, sign * size)
