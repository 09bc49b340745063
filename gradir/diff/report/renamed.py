"""What a module was called before a module that it lies in was renamed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradir.diff.model import Change

__all__ = ["Renamed"]

_INDEX: Final = re.compile(r"[0-9]+")
_ANY: Final = "*"


class Renamed:
    """Looks up paths of the second graph among the modules that a diff says were renamed.

    >>> from gradir.diff.model import Change
    >>> renamed = Renamed([Change("renamed", "module", "layers.*.ffn", was="h.*.mlp")])
    >>> renamed.before("layers.3.ffn.act"), renamed.before("layers.3.attn")
    ('h.3.mlp.act', 'layers.3.attn')
    """

    def __init__(self, changes: Iterable[Change]) -> None:
        self._before: dict[tuple[str, ...], tuple[str, ...]] = {}
        for change in changes:
            if change.subject == "module" and change.kind == "renamed":
                was, now = _components(change.was), _components(change.id)
                # Of two modules that became one, none is what all were called.
                if was.count(_ANY) == now.count(_ANY) and now not in self._before:
                    self._before[now] = was
        self._longest = max(map(len, self._before), default=-1)

    def before(self, path: str) -> str:
        """The path that the names of a module had, or the path itself."""
        parts = _components(path)
        patterns = tuple(_ANY if _INDEX.fullmatch(part) else part for part in parts)
        for length in range(min(self._longest, len(parts)), -1, -1):
            was = self._before.get(patterns[:length])
            if was is not None:
                indices = iter(part for part, pattern in zip(parts, patterns[:length], strict=False) if pattern == _ANY)
                return ".".join([next(indices) if part == _ANY else part for part in was] + list(parts[length:]))
        return path


def _components(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()
