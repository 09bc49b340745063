"""What is somebody else's with something other in its place for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_NONE: Final = object()


@contextmanager
def substituted(owner: Any, name: str, value: object) -> Iterator[None]:
    """Give an attribute, if there is one, another value meanwhile."""
    old = getattr(owner, name, _NONE)
    if old is _NONE:
        yield
        return
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)
