"""A function of somebody else's with another in its place for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["substituted"]


@contextmanager
def substituted(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Put a function in the place of another one meanwhile, if there is one."""
    old = getattr(owner, name, None)
    if old is None:
        yield
        return
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, old)
