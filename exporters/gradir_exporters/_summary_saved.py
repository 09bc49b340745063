"""What is saved for backward, module by module: every storage once, at the first node in order that saved it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from gradir.ir.module_tree import OUTSIDE
from gradir.ir.totals import OWNERS, sized_slots

if TYPE_CHECKING:
    from gradir.ir import Graph, Node
    from gradir.ir.module_tree import ModuleTree

__all__ = ["Savings", "State", "place_of"]

_PART: Final = re.compile(r" \(\d+\)\Z")
_FOLDED_ROOT: Final = "/"


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
    say of themselves.
    """

    def __init__(self, graph: Graph, tree: ModuleTree) -> None:
        self.bytes: defaultdict[int, int] = defaultdict(int)
        self.unsized: defaultdict[int, int] = defaultdict(int)
        self.owned = 0
        self.folded = 0
        self._states = {"held": State(), "freed": State(), "hooked": State()}
        self._storages: dict[str, tuple[int, int, str]] = {}
        for node in graph.nodes.values():
            if node.saved:
                self._add(node, place_of(node, tree))
            if node.role == "module":
                self._add_folded(node, place_of(node, tree))
        for key, (size, place, state) in self._storages.items():
            owner = graph.nodes.get(key)
            if owner is not None and owner.role in OWNERS:
                self.owned += size
            else:
                self._count(size, place, state)
        self.states = dict(sorted(self._states.items(), key=lambda item: item[0] not in {"held", "freed", "hooked"}))

    def _add(self, node: Node, place: int) -> None:
        for saved in node.saved:
            state = self._states.setdefault(saved.state, State())
            state.slots += 1
            if saved.bytes is None:
                state.unsized += 1
                self.unsized[place] += 1
        for key, size, word in sized_slots(node):
            if key is None:
                self._count(size, place, word)
                continue
            known = self._storages.get(key)
            if known is None:
                self._storages[key] = size, place, word
            elif known[0] < size:
                self._storages[key] = size, *known[1:]

    def _add_folded(self, node: Node, place: int) -> None:
        size = node.attrs.get("saved_bytes")
        if isinstance(size, int):
            self.folded += size
            self.bytes[place] += size

    def _count(self, size: int, place: int, state: str) -> None:
        self.bytes[place] += size
        self._states[state].bytes += size


def place_of(node: Node, tree: ModuleTree) -> int:
    """The module that a node belongs to; a folded module belongs to itself, an output to none."""
    if node.role == "output":
        return OUTSIDE
    if node.role != "module":
        return tree.place(node.scope)
    if node.id.startswith(_FOLDED_ROOT):
        return tree.place("")
    name = node.names[0] if node.names else node.id
    place = tree.place(name)
    is_exact = place != OUTSIDE and tree.scopes[place].path == name
    # The second and further parts of a folded module have their numbers in the name.
    return place if is_exact else tree.place(_PART.sub("", name))
