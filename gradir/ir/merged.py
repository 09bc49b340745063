"""What nodes saved that are gone since another stands for them, as a mark of that node, so that totals stay true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gradir.ir.saved import SavedBytes
from gradir.ir.totals import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gradir.ir.model import AttrValue, Node

__all__ = ["MERGED", "Merged", "counted", "merged", "merged_ext", "modules_alone"]

MERGED: Final = "merged"
"""The key of ``ext`` for what the nodes saved that a node stands for and that are gone, a `Merged` each."""

_NUMBERS: Final = [str, int, int, int]


class Merged(NamedTuple):
    """Slots of one state, with the bytes that count there.

    ``path`` is the module that the nodes were in, ``None`` for that of the node which stands for them. ``unsized`` are
    the slots of unknown size. What leaves, parameters and buffers own has no ``state``. A storage that counts elsewhere
    now is taken off here, so a number may be negative.
    """

    path: str | None
    state: str
    slots: int
    unsized: int
    bytes: int


def merged(node: Node) -> list[Merged]:
    """What the nodes saved that a node stands for and that are gone.

    >>> from gradir.ir.model import Node
    >>> merged(Node("x", ext={"merged": ((None, "held", 11, 0, 88), "held")}))
    [Merged(path=None, state='held', slots=11, unsized=0, bytes=88)]
    """
    found = node.ext.get(MERGED) if node.ext else None
    return [_entry(entry) for entry in found if _is_entry(entry)] if isinstance(found, tuple) else []


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, tuple)
        and [*map(type, entry[1:])] == _NUMBERS
        and (entry[0] is None or isinstance(entry[0], str))
    )


def _entry(entry: AttrValue) -> Merged:
    return Merged._make(entry)  # type: ignore[arg-type]


def merged_ext(entries: Iterable[Merged]) -> dict[str, AttrValue]:
    """The entry of ``ext`` for these, added up by module and state.

    What says nothing but a module's path is left, since it tells which modules one stands for.
    """
    sums: dict[tuple[str | None, str], tuple[int, ...]] = {}
    for path, state, *numbers in entries:
        known = sums.get((path, state), (0, 0, 0))
        sums[path, state] = tuple(bounded(one + other) for one, other in zip(known, numbers, strict=True))
    left = tuple(
        (path, state, *numbers) for (path, state), numbers in sums.items() if any(numbers) or (path and not state)
    )
    return {MERGED: left} if left else {}


def modules_alone(node: Node) -> dict[str, AttrValue]:
    """``ext`` of a node without what is said of saved slots, but with the modules that it stands for."""
    paths = (each.path for each in merged(node) if each.path)
    return {
        **{key: value for key, value in node.ext.items() if key != MERGED},
        **merged_ext(Merged(path, "", 0, 0, 0) for path in paths),
    }


def counted(
    before: Mapping[str, Node],
    after: Mapping[str, Node],
    gone: Mapping[str, str],
    ids: Mapping[str, str],
    module_of: Callable[[Node], str] | None,
) -> dict[str, Node]:
    """The nodes ``after`` some became one, with what those saved that are gone, as far as it counts nowhere else.

    ``gone`` has the node ``before`` that stands for each, and ``ids`` new ids. Where the modules of those that are gone
    stay, ``module_of`` tells that of a node.
    """
    entries: dict[str, list[Merged]] = {
        key: [Merged(None, each.state, -each.slots, -each.unsized, -each.bytes) for each in found]
        for key, found in _kept(after).items()
    }
    kept = _kept(before)
    told: set[tuple[str, str | None]] = set()
    for key, node in before.items():
        first, path = gone.get(key, key), None
        found = [*kept.get(key, ()), *merged(node)]
        if module_of is not None and first != key:
            path = module_of(node)
            path = None if path == module_of(before[first]) else path
            if path is not None and (module_of(before[first]), path) not in told:
                told.add((module_of(before[first]), path))
                found.append(Merged(path, "", 0, 0, 0))
        if found:
            of = entries.setdefault(ids.get(first, first), [])
            of += [each._replace(path=(each.path or path) if module_of else None) for each in found]
    return {key: _with(node, entries.get(key, ())) for key, node in after.items()}


def _with(node: Node, entries: Iterable[Merged]) -> Node:
    found = merged_ext(entries)
    if not found and MERGED not in node.ext:
        return node
    ext = {key: value for key, value in node.ext.items() if key != MERGED}
    return msgspec.structs.replace(node, ext={**ext, **found})


def _kept(nodes: Mapping[str, Node]) -> dict[str, list[Merged]]:
    """By node what its own slots keep, each storage where it was saved first."""
    kept: SavedBytes[str] = SavedBytes(nodes)
    found: dict[str, list[Merged]] = {}
    for node in nodes.values():
        if node.saved:
            kept.add(node, node.id)
            found[node.id] = [Merged(None, slot.state, 1, int(slot.bytes is None), 0) for slot in node.saved]
    for (key, state), size in kept.bytes.items():
        found[key].append(Merged(None, state, 0, 0, size))
    for key, size in kept.owned.items():
        found[key].append(Merged(None, "", 0, 0, size))
    return found
