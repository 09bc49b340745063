"""What is saved for backward, module by module: every storage once, at the first node in order that saved it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from gradir.ir.module_tree import OUTSIDE
from gradir.ir.totals import OWNERS, bounded, sized_slots

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradir.ir import Graph, Node
    from gradir.ir.module_tree import ModuleTree

__all__ = ["Savings", "State", "places_of"]

_USUAL: Final = ("held", "freed", "hooked")
_PART: Final = re.compile(r" \(\d+\)\Z")
_FOLDED_ROOT: Final = "/"
_PLACED_APART: Final = frozenset({"output", "module"})


class State(msgspec.Struct, gc=False):
    """The saved slots of one state; ``unsized`` are those of unknown size, which freed and hooked ones mostly are."""

    slots: int = 0
    unsized: int = 0
    bytes: int = 0


class _Account(msgspec.Struct, gc=False):
    """The bytes of the storages that slots of one state kept first in one module."""

    bytes: int = 0


class Savings:
    """What the operations of each module keep, those of the modules below it left out.

    ``bytes`` and ``unsized`` (slots of unknown size) are by module number, with `OUTSIDE` for what runs in none;
    ``states`` are by state, ``held`` ``freed`` and ``hooked`` first; ``owned`` is the size of the parameters, buffers
    and leaves that slots keep, whose storages live anyway and count nowhere else; ``folded`` is what folded modules
    say of themselves.
    """

    def __init__(self, graph: Graph, places: Mapping[str, int]) -> None:
        """``places`` has the module of each node by id."""
        self.unsized: defaultdict[int, int] = defaultdict(int)
        self.owned = 0
        self.folded = 0
        self._nodes = graph.nodes
        self._states = {word: State() for word in _USUAL}
        self._sizes: dict[str, int] = {}
        self._accounts: dict[tuple[int, str], _Account] = {}
        self._account_of: dict[str, _Account] = {}
        self._owners = _Account()
        folded: defaultdict[int, int] = defaultdict(int)
        for node in graph.nodes.values():
            if node.saved:
                self._add(node, places[node.id])
            if node.role == "module":
                folded[places[node.id]] += _folded_bytes(node)
        self.bytes = folded
        self.folded = sum(folded.values())
        self.owned = self._owners.bytes
        for (place, word), account in self._accounts.items():
            self.bytes[place] += account.bytes
            self._states[word].bytes = bounded(self._states[word].bytes + account.bytes)
        self.states = dict(sorted(self._states.items(), key=lambda item: item[0] not in _USUAL))

    def _add(self, node: Node, place: int) -> None:
        for saved in node.saved:
            state = self._states.get(saved.state)
            if state is None:
                state = self._states[saved.state] = State()
            state.slots += 1
            if saved.bytes is None:
                state.unsized += 1
                self.unsized[place] += 1
        for key, size, word in sized_slots(node):
            if key is None:
                self._account(place, word).bytes += size
                continue
            known = self._sizes.get(key)
            if known is None:
                account = self._account_of[key] = self._owners if self._is_owned(key) else self._account(place, word)
                self._sizes[key] = size
                account.bytes += size
            elif known < size:
                self._sizes[key] = size
                self._account_of[key].bytes += size - known

    def _account(self, place: int, word: str) -> _Account:
        account = self._accounts.get((place, word))
        if account is None:
            account = self._accounts[place, word] = _Account()
        return account

    def _is_owned(self, key: str) -> bool:
        owner = self._nodes.get(key)
        return owner is not None and owner.role in OWNERS


def _folded_bytes(node: Node) -> int:
    size = node.attrs.get("saved_bytes")
    return size if isinstance(size, int) else 0


def places_of(graph: Graph, tree: ModuleTree) -> dict[str, int]:
    """The module that each node belongs to; a folded module belongs to itself, an output to none."""
    place = tree.place
    return {
        node.id: place(node.scope) if node.role not in _PLACED_APART else _place_apart(node, tree)
        for node in graph.nodes.values()
    }


def _place_apart(node: Node, tree: ModuleTree) -> int:
    if node.role == "output":
        return OUTSIDE
    if node.id.startswith(_FOLDED_ROOT):
        return tree.place("")
    name = node.names[0] if node.names else node.id
    place = tree.place(name)
    is_exact = place != OUTSIDE and tree.scopes[place].path == name
    # The second and further parts of a folded module have their numbers in the name.
    return place if is_exact else tree.place(_PART.sub("", name))
