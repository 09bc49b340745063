"""What a module was called before a module that it lies in was renamed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradir.diffs.model import Change

__all__ = ["Renamed"]

_INDEX: Final = re.compile(r"[0-9]+")
_ANY: Final = "*"


class Renamed:
    """Looks up paths of the second graph among the modules that a diff says were renamed.

    >>> from gradir.diffs.model import Change
    >>> renamed = Renamed([Change("renamed", "module", "layers.*.ffn", was="h.*.mlp")])
    >>> renamed.before("layers.3.ffn.act"), renamed.before("layers.3.attn")
    ('h.3.mlp.act', 'layers.3.attn')
    """

    def __init__(self, changes: Iterable[Change]) -> None:
        # A trie of components: to look every beginning of a path up would take the square of its depth.
        self._steps: dict[tuple[int, str], int] = {}
        self._before: dict[int, tuple[str, ...]] = {}
        for change in changes:
            if change.subject == "module" and change.kind == "renamed":
                was, now = _components(change.was), _components(change.id)
                # Of two modules that became one, none is what all were called.
                if was.count(_ANY) == now.count(_ANY):
                    self._before.setdefault(self._vertex(now), was)

    def before(self, path: str) -> str:
        """The path that the names of a module had, or the path itself."""
        parts = _components(path)
        vertex, was, length = 0, self._before.get(0), 0
        for depth, part in enumerate(parts, 1):
            step = self._steps.get((vertex, _ANY if _INDEX.fullmatch(part) else part))
            if step is None:
                break
            vertex = step
            if vertex in self._before:
                was, length = self._before[vertex], depth
        if was is None:
            return path
        indices = (part for part in parts[:length] if part == _ANY or _INDEX.fullmatch(part))
        return ".".join([*(next(indices) if part == _ANY else part for part in was), *parts[length:]])

    def _vertex(self, components: Iterable[str]) -> int:
        vertex = 0
        for component in components:
            vertex = self._steps.setdefault((vertex, component), len(self._steps) + 1)
        return vertex


def _components(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()
