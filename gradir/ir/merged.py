"""Record saved tensors of omitted nodes in a mark, so that totals stay correct."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import add
from types import NoneType
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gradir.ir.model import AttrValue, Node, bounded
from gradir.ir.saved import SavedBytes, is_unsized, whole_number

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


def merged(node: Node) -> list[Merged]:
    """Return the saved slots of the omitted nodes that a node represents.

    >>> from gradir.ir.model import Node
    >>> merged(Node("x", ext={"merged": ((None, "held", 11, 0, 88), "held")}))
    [Merged(path=None, state='held', slots=11, unsized=0, bytes=88)]
    """
    found: Any = node.ext.get(MERGED) if node.ext else None
    # A file may hold anything there.
    return [
        Merged._make(entry)
        for entry in (found if isinstance(found, tuple) else ())
        if isinstance(entry, tuple) and tuple(map(type, entry)) in _TYPES
    ]


def bytes_told(node: Node) -> int:
    """Return a node's bytes besides its own slots.

    >>> from gradir.ir.model import Node
    >>> bytes_told(Node("fc", role="module", attrs={"saved_bytes": 96}))
    96
    >>> bytes_told(Node("x", ext={"merged": ((None, "held", 11, 0, 88), (None, "", 0, 0, 4))}))
    88
    """
    if node.role == "module":
        return whole_number(node.attrs, "saved_bytes")
    return bytes_gone(node)


def bytes_gone(node: Node) -> int:
    """Return the bytes in a node's mark."""
    return sum(gone.bytes for gone in merged(node) if gone.state) if node.ext else 0


class _Sums(dict["tuple[str | None, str]", "list[int]"]):
    """Count slots, slots of unknown size and bytes, by module and state."""

    def add(self, path: str | None, state: str, *numbers: int) -> None:
        known = self.get((path, state))
        self[path, state] = [*numbers] if known is None else [*map(add, known, numbers)]

    def ext(self) -> dict[str, AttrValue]:
        left = tuple(
            (path, state, *map(bounded, numbers))
            for (path, state), numbers in self.items()
            if any(numbers) or (path and not state)
        )
        return {MERGED: left} if left else {}


def merged_ext(entries: Iterable[Merged]) -> dict[str, AttrValue]:
    """Return the entry of ``ext`` for slots, summed by module and state."""
    sums = _Sums()
    for each in entries:
        sums.add(*each)
    return sums.ext()


def modules_alone(node: Node) -> dict[str, AttrValue]:
    """Return ``ext`` of a node without its saved slots, but with the modules that it represents."""
    return _with(node, merged_ext(Merged(each.path, "", 0, 0, 0) for each in merged(node) if each.path))


def counted(
    before: Mapping[str, Node],
    after: Mapping[str, Node],
    gone: Mapping[str, str],
    ids: Mapping[str, str],
    module_of: Callable[[Node], str] | None,
) -> dict[str, Node]:
    """Mark the nodes ``after`` with the slots of omitted nodes whose bytes count nowhere else.

    ``gone`` has the node ``before`` that represents each, and ``ids`` new ids.
    """
    # The mark has the slots of all nodes before, less those that still count after.
    sums: defaultdict[str, _Sums] = defaultdict(_Sums)
    _add_slots(sums, after, {}, -1)
    told: set[tuple[str, str]] = set()
    places: dict[str, tuple[str, str | None]] = {}
    for key, node in before.items():
        first, path = gone.get(key, key), None
        new = ids.get(first, first)
        if module_of is not None and first != key:
            own, other = module_of(before[first]), module_of(node)
            path = None if other == own else other
            if path is not None and (own, path) not in told:
                told.add((own, path))
                sums[new].add(path, "", 0, 0, 0)
        if new != key or path is not None:
            places[key] = new, path
        for each in merged(node):
            sums[new].add((each.path or path) if module_of else None, *each[1:])
    _add_slots(sums, before, places, 1)
    found = {key: entries.ext() for key, entries in sums.items()}
    return {
        key: replace(node, ext=_with(node, found.get(key, {}))) if found.get(key) or MERGED in node.ext else node
        for key, node in after.items()
    }


def _with(node: Node, entry: Mapping[str, AttrValue]) -> dict[str, AttrValue]:
    return {**{key: value for key, value in node.ext.items() if key != MERGED}, **entry}


def _add_slots(
    sums: defaultdict[str, _Sums], nodes: Mapping[str, Node], places: Mapping[str, tuple[str, str | None]], sign: int
) -> None:
    kept: SavedBytes[tuple[str, str | None]] = SavedBytes(nodes)
    for node in nodes.values():
        if node.saved:
            key, path = place = places.get(node.id) or (node.id, None)
            kept.add(node, place)
            for slot in node.saved:
                sums[key].add(path, slot.state, sign, sign * is_unsized(slot), 0)
    for ((key, path), state), size in kept.bytes.items():
        sums[key].add(path, state, 0, 0, sign * size)
    for (key, path), size in kept.owned.items():
        sums[key].add(path, "", 0, 0, sign * size)
