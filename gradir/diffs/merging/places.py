"""The modules of three graphs: their names after both edits, and equal layers that an edit cannot tell apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from gradir.diffs.matching import Matching
from gradir.diffs.merging.values import merge_orders, pick
from gradir.diffs.modules import Outline
from gradir.ir import Graph, Scope
from gradir.ir.module_tree import split_path, walk_up

if TYPE_CHECKING:
    from collections.abc import Sequence

# The first character of a key: for records of the base, and for those of only one side.
BASE: Final = "0"
OURS: Final = "1"
THEIRS: Final = "2"
_NOWHERE: Final = ""


class _Place(NamedTuple):
    """The key of the parent, empty for the root, and the name in it."""

    above: str
    name: str


class Places:
    """The paths in the result of the modules of all three graphs.

    A module has a key, from the base or from the side that added it. Modules that both sides added with the same name
    and parent are one. ``paths`` has for each graph the paths by key, and ``clashes`` the reasons by key of a conflict.
    """

    def __init__(self, graphs: Sequence[Graph], matchings: Sequence[Matching]) -> None:
        base = graphs[0]
        self._keys: list[dict[str, str]] = []
        for mark, side, matching in zip((OURS, THEIRS), graphs[1:], matchings, strict=True):
            nodes = matching.nodes.items()
            outline = Outline.from_pairs(base, side, [(base.nodes[old], side.nodes[new]) for old, new in nodes])
            known, modules = (tree.scopes for tree in outline.trees)
            self._keys = self._keys or [{scope.path: BASE + scope.path for scope in known}]
            former = ((scope.path, outline.was(scope.path)) for scope in modules)
            self._keys.append({path: mark + path if old is None else BASE + old for path, old in former})
        # A module that both sides added has the key of ours.
        added = {_place_of(path, self._keys[1]): key for path, key in self._keys[1].items() if key[0] == OURS}
        keys = self._keys[2]
        for path in sorted(keys, key=len):
            if keys[path][0] == THEIRS:
                keys[path] = added.get(_place_of(path, keys), keys[path])
        self._places = [{key: _place_of(path, keys) for path, key in keys.items()} for keys in self._keys]
        self.paths = [{key: path for path, key in keys.items()} for keys in self._keys]
        self._chosen: dict[str, _Place] = {}
        self.clashes: dict[str, str] = {}
        self._choose()
        self._number_lists()
        seen: dict[_Place, str] = {}
        for key, place in self._chosen.items():
            if self._is_left(key) and seen.setdefault(place, key) != key:
                self.clashes.setdefault(key, "both sides have another module of this name")
        self._merged_paths: dict[str, str] = {}
        for key in self._chosen:
            self._find_path(key)

    def key(self, side: int, path: str) -> str:
        """Return the key of a module of one graph."""
        return self._keys[side][path]

    def path(self, side: int, path: str) -> str:
        """Return the path in the result of a module of one graph."""
        return self._merged_paths[self._keys[side][path]]

    def path_of(self, key: str) -> str:
        """Return the path in the result of the module with a key."""
        return self._merged_paths[key]

    def name(self, side: int, name: str) -> str:
        """Return the name in the result of a tensor of one graph, with the new path of its module."""
        keys = self._keys[side]
        for module in walk_up(name.rpartition(".")[0]):
            if module in keys:
                path = self.path(side, module)
                rest = name[len(module) + 1 :]
                return f"{path}.{rest}" if path else rest
        return name

    def _choose(self) -> None:
        base, ours, theirs = self._places
        for key in {**base, **ours, **theirs}:
            old, first, second = base.get(key), ours.get(key), theirs.get(key)
            if first is None or second is None or first == second:
                self._chosen[key] = first or second or old or _Place(_NOWHERE, "")
                continue
            old = old or first
            moved, renamed = (
                one != other and before not in (one, other)
                for before, one, other in zip(old, first, second, strict=True)
            )
            self._chosen[key] = _Place(*map(pick, old, first, second))
            # `_number_lists` renumbers entries of lists.
            if moved or (renamed and not (first.name.isdecimal() and second.name.isdecimal())):
                self.clashes[key] = "both sides gave the module another name or place"
                # The result must not depend on which side is ours.
                self._chosen[key] = old

    def _number_lists(self) -> None:
        """Renumber the lists that both sides changed: each entry follows its former predecessor."""
        lists: list[defaultdict[str, dict[str, int]]] = []
        for places in self._places:
            found: defaultdict[str, dict[str, int]] = defaultdict(dict)
            for key, place in places.items():
                above = self._chosen[key].above
                if place.above == above and place.name.isdecimal() and len(place.name) < 10:
                    found[above][key] = int(place.name)
            lists.append(found)
        base, ours, theirs = lists
        for above in ours.keys() & theirs.keys():
            sides = base[above], ours[above], theirs[above]
            if sides[1] in (sides[0], sides[2]) or sides[2] == sides[0]:
                continue
            if any(sorted(side.values()) != list(range(len(side))) for side in sides):
                continue
            orders = [sorted(filter(self._is_left, side), key=side.__getitem__) for side in sides]
            order, tied = merge_orders(orders)
            if tied:
                self.clashes[above] = "both sides insert modules at one place of a list"
            for number, key in enumerate(order):
                self._chosen[key] = self._chosen[key]._replace(name=str(number))

    def _is_left(self, key: str) -> bool:
        return key[0] != BASE or all(key in places for places in self._places[1:])

    def _find_path(self, key: str) -> None:
        """Join the names of a module and its parents; a cycle of parents is a clash and ends at the root."""
        chain: dict[str, None] = {}
        while key and key not in self._merged_paths:
            if key in chain:
                self.clashes.setdefault(key, "both sides move modules into each other")
                break
            chain[key] = None
            key = self._chosen[key].above
        path = self._merged_paths.get(key, "")
        for each in reversed(chain):
            name = self._chosen[each].name
            path = self._merged_paths[each] = f"{path}.{name}" if path else name


def _place_of(path: str, keys: Mapping[str, str]) -> _Place:
    if not path:
        return _Place(_NOWHERE, "")
    above, name = split_path(path)
    return _Place(keys[above], name)


# The modules of an entry of a list and the contents of its nodes, without the path of the entry.
_Layer: TypeAlias = "tuple[list[Scope], list[Any]]"


def find_open_layers(graphs: Sequence[Graph], tables: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the keys of layers that one side changed while the other side added or removed an equal layer."""
    # `tables` has the path of each module by its key, in the base and on both sides.
    for editor, changer in ((1, 2), (2, 1)):
        edits = {
            number: [path for key, path in tables[number].items() if key not in tables[other] and _is_entry(path)]
            for number, other in ((0, editor), (editor, 0))
        }
        if not any(edits.values()):
            continue
        layers = [_layers(graph) for graph in graphs]
        old, edited, changed = (
            {key: layers[number].get(path) for key, path in tables[number].items()} for number in (0, editor, changer)
        )
        common = old.keys() & edited.keys() & changed.keys()
        suspects = {key for key in common if changed[key] not in (old[key], edited[key])}
        found: set[str] = set()
        for number, paths in edits.items():
            runs: set[str] = set()
            for path in paths:
                if path not in runs:
                    runs.update(_find_equal_neighbours(path, layers[number]))
            found |= {key for key in suspects if tables[number].get(key) in runs}
        yield from sorted(found)


def _is_entry(path: str) -> bool:
    name = split_path(path)[1]
    return name.isdecimal() and len(name) < 10


def _layers(graph: Graph) -> dict[str, _Layer]:
    found: defaultdict[str, _Layer] = defaultdict(lambda: ([], []))
    for scope in graph.scopes.values():
        for path in filter(_is_entry, walk_up(scope.path)):
            found[path][0].append(replace(scope, path=scope.path[len(path) :]))
    for node in graph.nodes.values():
        slots = [(slot.slot, slot.tensor) for slot in node.saved]
        for path in filter(_is_entry, walk_up(node.scope)):
            found[path][1].append((node.op, node.role, node.scope[len(path) :], node.outputs, node.attrs, slots))
    return found


def _find_equal_neighbours(path: str, layers: Mapping[str, _Layer]) -> Iterator[str]:
    """Yield an entry of a list, and its neighbours on either side while they are equal."""
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
    """Return whether the same module may make both, though a first layer has fewer operations with a gradient."""
    ops, others = ({op for op, *_ in nodes} for _, nodes in (one, other))
    return one[0] == other[0] and (ops <= others or others <= ops)
