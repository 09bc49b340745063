"""Exchange attributes of objects that belong to somebody else, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


def replace_function(entered: ExitStack, owner: Any, name: str, function: object) -> None:
    """Replace a function of a module or a class until a stack is left, unless the program replaces it meanwhile."""
    old = vars(owner).get(name, _NONE)
    setattr(owner, name, function)

    def put_back() -> None:
        # A program may have put something of its own in front.
        if vars(owner).get(name) is function and old is _NONE:
            delattr(owner, name)
        elif vars(owner).get(name) is function:
            setattr(owner, name, old)

    entered.callback(put_back)
