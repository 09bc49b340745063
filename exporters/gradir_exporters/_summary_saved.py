"""What is saved for backward, module by module: every storage once, at the first node in order that saved it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from gradir.ir.ids import is_root, whole_name
from gradir.ir.merged import bytes_gone, bytes_told, merged
from gradir.ir.module_tree import OUTSIDE
from gradir.ir.saved import SavedBytes, is_unsized
from gradir.ir.totals import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gradir.ir import Graph, Node
    from gradir.ir.merged import Merged
    from gradir.ir.module_tree import ModuleTree

__all__ = ["Savings", "State", "places_of"]

_USUAL: Final = ("held", "freed", "hooked")
_PLACED_APART: Final = frozenset({"output", "module"})


class State(msgspec.Struct, gc=False):
    """The saved slots of one state; ``unsized`` are those of unknown size, which freed and hooked ones mostly are."""

    slots: int = 0
    unsized: int = 0
    bytes: int = 0


class Savings:
    """What the operations of each module keep, those of the modules below it left out.

    ``bytes`` and ``unsized`` (slots of unknown size) are by module number, with `OUTSIDE` for what runs in none;
    ``states`` are by state, ``held`` ``freed`` and ``hooked`` first; ``owned`` is the size of the parameters, buffers
    and leaves that slots keep, whose storages live anyway and count nowhere else; ``folded`` is what folded modules
    say of themselves. Of what stands for several nodes, those that are gone count too.
    """

    def __init__(self, graph: Graph, places: Mapping[str, int], place_of: Callable[[str], int]) -> None:
        """``places`` has the module of each node by id, and ``place_of`` tells that of a path."""
        self.unsized: defaultdict[int, int] = defaultdict(int)
        self.bytes: defaultdict[int, int] = defaultdict(int)
        self.folded = 0
        states = {word: State() for word in _USUAL}
        kept: SavedBytes[int] = SavedBytes(graph.nodes)
        for node in graph.nodes.values():
            place = places[node.id]
            if node.saved:
                kept.add(node, place)
            for saved in node.saved:
                state = states.get(saved.state) or states.setdefault(saved.state, State())
                state.slots += 1
                if is_unsized(saved):
                    state.unsized += 1
                    self.unsized[place] += 1
            if node.role == "module":
                self.folded += bytes_told(node)
                # What its marks tell of these is added below.
                self.bytes[place] += bytes_told(node) - bytes_gone(node)
        self.owned = sum(kept.owned.values())
        for (place, word), size in kept.bytes.items():
            self.bytes[place] += size
            states[word].bytes = bounded(states[word].bytes + size)
        for node in graph.nodes.values():
            for gone in merged(node):
                self._add(gone, places[node.id] if gone.path is None else place_of(gone.path), states)
        self.states = dict(sorted(states.items(), key=lambda item: item[0] not in _USUAL))

    def _add(self, gone: Merged, place: int, states: dict[str, State]) -> None:
        if not gone.state:
            self.owned += gone.bytes
            return
        state = states.get(gone.state) or states.setdefault(gone.state, State())
        state.slots = bounded(state.slots + gone.slots)
        state.unsized = bounded(state.unsized + gone.unsized)
        state.bytes = bounded(state.bytes + gone.bytes)
        self.unsized[place] += gone.unsized
        self.bytes[place] += gone.bytes


def places_of(graph: Graph, tree: ModuleTree, place_of: Callable[[str], int]) -> dict[str, int]:
    """The module that each node belongs to; a folded module belongs to itself, an output to none.

    ``place_of`` tells the module of a path.
    """
    return {
        node.id: place_of(node.scope) if node.role not in _PLACED_APART else _place_apart(node, tree, place_of)
        for node in graph.nodes.values()
    }


def _place_apart(node: Node, tree: ModuleTree, place_of: Callable[[str], int]) -> int:
    if node.role == "output":
        return OUTSIDE
    if is_root(node.id):
        return place_of("")
    name = node.names[0] if node.names else node.id
    place = place_of(name)
    is_exact = place != OUTSIDE and tree.scopes[place].path == name
    # The second and further parts of a folded module have their numbers in the name.
    return place if is_exact else place_of(whole_name(name))
