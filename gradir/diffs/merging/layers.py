"""Equal layers of a list: a graph does not show which of them one side removed, or before which it added one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from gradir.ir.module_tree import split_path, upwards

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gradir.ir import Graph, Scope

_Layer: TypeAlias = "tuple[list[Scope], list[Any]]"
"""The modules of an entry of a list, and what its nodes are, all without the path of the entry."""


def open_layers(graphs: Sequence[Graph], tables: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The keys of layers that one side changed, among equal ones of which the other side added or removed one.

    ``tables`` have the path of each module by its key, in the base and on both sides.
    """
    for editor, changer in ((1, 2), (2, 1)):
        edits = [
            (number, path)
            for number, there in ((0, tables[editor]), (editor, tables[0]))
            for key, path in tables[number].items()
            if key not in there and _is_entry(path)
        ]
        if not edits:
            continue
        layers = [_layers(graph) for graph in graphs]
        before, there, now = (
            {key: layers[number].get(path) for key, path in tables[number].items()} for number in (0, editor, changer)
        )
        kept = before.keys() & there.keys() & now.keys()
        changed = {key for key in kept if now[key] not in (before[key], there[key])}
        found: set[str] = set()
        for number in (0, editor):
            runs: set[str] = set()
            for of, path in edits:
                if of == number and path not in runs:
                    runs.update(_equal_ones(path, layers[number]))
            found |= {key for key in changed if tables[number].get(key) in runs}
        yield from sorted(found)


def _is_entry(path: str) -> bool:
    name = split_path(path)[1]
    return name.isdecimal() and len(name) < 10


def _layers(graph: Graph) -> dict[str, _Layer]:
    """Each entry of a list by its path."""
    found: defaultdict[str, _Layer] = defaultdict(lambda: ([], []))
    for scope in graph.scopes.values():
        for path in filter(_is_entry, upwards(scope.path)):
            found[path][0].append(replace(scope, path=scope.path[len(path) :]))
    for node in graph.nodes.values():
        slots = [(slot.slot, slot.tensor) for slot in node.saved]
        for path in filter(_is_entry, upwards(node.scope)):
            found[path][1].append((node.op, node.role, node.scope[len(path) :], node.outputs, node.attrs, slots))
    return found


def _equal_ones(path: str, layers: Mapping[str, _Layer]) -> Iterator[str]:
    """The entries next to one in its list, on either side as far as they are equal to it, and it."""
    above, name = split_path(path)
    yield path
    for step in (-1, 1):
        number = int(name) + step
        while (beside := f"{above}.{number}" if above else str(number)) in layers:
            if not _may_be_equal(layers[beside], layers[path]):
                break
            yield beside
            number += step


def _may_be_equal(one: _Layer, other: _Layer) -> bool:
    """Whether one program makes both: the first layer of a model has fewer operations with a gradient."""
    ops, others = ({op for op, *_ in nodes} for _, nodes in (one, other))
    return one[0] == other[0] and (ops <= others or others <= ops)
