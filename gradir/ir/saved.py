"""Count storages that saved slots keep, each once, with their bytes and owners."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from gradir.ir.ids import storage_key
from gradir.ir.model import Node, Saved

K = TypeVar("K")

_RECOMPUTED: Final = "recomputed"
# The storages of nodes with these roles exist with or without a backward pass.
OWNERS = frozenset({"leaf", "parameter", "buffer", "input"})


def owner(key: str, nodes: Mapping[str, Node]) -> Node | None:
    """Return the node that owns a storage and keeps it alive, or ``None`` if only backward does."""
    node = nodes.get(key)
    return node if node is not None and node.role in OWNERS else None


def unknown_slots(nodes: Iterable[Node]) -> int:
    """Return the saved slots of unknown size."""
    return sum(is_unsized(saved) for node in nodes for saved in node.saved)


def is_unsized(saved: Saved) -> bool:
    """Return whether a slot keeps an unknown number of bytes; recomputed slots keep none."""
    return saved.bytes is None and saved.state != _RECOMPUTED


def whole_number(attrs: Mapping[str, object], name: str) -> int:
    """Return an attribute as an integer, or 0 if it is none."""
    value = attrs.get(name)
    return value if isinstance(value, int) else 0


class Storages:
    """The storages of slots in node order; the largest size recorded for a storage counts."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def add(self, node: Node) -> Iterator[tuple[str, int, str]]:
        """Add a node: the storages that it is the first to keep, each with its bytes and the slot's state.

        A slot that says more of a storage than those before adds the difference.
        """
        own: set[str] = set()
        for saved in node.saved:
            size, key = saved.bytes, saved.storage
            if size is None:
                continue
            if not key:
                key = storage_key(node.id, saved.slot)
                # Two slots of a node may share a name, and are two storages all the same.
                if key in own:
                    yield "", size, saved.state
                    continue
                own.add(key)
            known = self._sizes.get(key)
            if known is None or size > known:
                self._sizes[key] = size
                yield key, size - (known or 0), saved.state

    def bytes_of(self, keys: Iterable[str]) -> int:
        """Return the bytes of storages, as far as slots keep them."""
        return sum(self._sizes.get(key, 0) for key in keys)


class SavedBytes(Generic[K]):
    """The bytes that nodes keep alive, by account and by state of the slot.

    Each storage counts where it was saved first. ``owned`` are the bytes of those that have an `owner`.

    >>> from gradir.ir.model import Saved
    >>> a, b = (Node(f"{op}:1", saved=(Saved("self", bytes=8, storage="exp:1.result"),)) for op in ("mul", "sin"))
    >>> saved = SavedBytes({"mul:1": a, "sin:1": b})
    >>> saved.add(a, "fc"), saved.add(b, "head"), saved.by_account()
    (None, None, {'fc': 8})
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.bytes: defaultdict[tuple[K, str], int] = defaultdict(int)
        self.owned: defaultdict[K, int] = defaultdict(int)
        self._nodes = nodes
        self._storages = Storages()
        self._first: dict[str, tuple[K, str]] = {}

    def add(self, node: Node, account: K) -> None:
        """Add the slots of a node."""
        for key, size, state in self._storages.add(node):
            if owner(key, self._nodes):
                self.owned[account] += size
            else:
                here = account, state
                self.bytes[self._first.setdefault(key, here) if key else here] += size

    def by_account(self) -> dict[K, int]:
        """Return the bytes of slots of any state."""
        found: dict[K, int] = {}
        for (account, _), size in self.bytes.items():
            found[account] = found.get(account, 0) + size
        return found
