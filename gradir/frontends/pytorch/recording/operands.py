"""What an operation takes: its arguments by name, the tensors among them, and what it does with their memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch

from gradir.frontends.pytorch.private import Operator, schema_of

__all__ = [
    "DATA",
    "INPLACE",
    "SCALES",
    "SUMS",
    "VIEW",
    "Signature",
    "named",
    "plain_name",
    "signature_of",
    "tensors_in",
]

DATA: Final = "data"
VIEW: Final = "view"
INPLACE: Final = "inplace"

SUMS: Final = frozenset({"add", "sub"})
SCALES: Final = frozenset({"div", "mul", "neg", "view", "squeeze", "unsqueeze", "to_copy"})
"""Operations of one tensor that leave a sum a sum."""


class Signature(NamedTuple):
    """The names of an operation's arguments, and by name whether one is written to or lends an output its memory.

    ``is_of_sums`` is whether a sum goes on in it.
    """

    names: tuple[str, ...]
    kinds: Mapping[str, str]
    is_of_sums: bool = False


@lru_cache(maxsize=4096)
def signature_of(func: Any) -> Signature:
    """What an operator's schema says; of what has none, nothing."""
    if not isinstance(func, Operator):
        # It takes functions, and has no schema.
        return Signature((), {})
    schema = schema_of(func)
    kinds = {
        entry.name: INPLACE if entry.alias_info.is_write else VIEW
        for entry in schema.arguments
        if entry.alias_info is not None
    }
    return Signature(tuple(entry.name for entry in schema.arguments), kinds, plain_name(func) in SUMS | SCALES)


def plain_name(func: Any) -> str:
    """The name of an operation without the signs of what works in place and of what is torch's own."""
    return str(func.__name__).partition(".")[0].strip("_")


def named(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments of a call with their names; those beyond the names have their number."""
    for place, value in enumerate(args):
        yield names[place] if place < len(names) else str(place), value
    yield from kwargs.items()


def tensors_in(value: object) -> tuple[torch.Tensor, ...]:
    """The tensors of lists, tuples and dicts in each other, in order."""
    if isinstance(value, torch.Tensor):
        return (value,)
    if not isinstance(value, (list, tuple, dict)):
        return ()
    found = []
    waiting = [_entries(value)]
    while waiting:
        entry = next(waiting[-1], waiting)
        if entry is waiting:
            waiting.pop()
        elif isinstance(entry, torch.Tensor):
            found.append(entry)
        elif isinstance(entry, (list, tuple, dict)):
            waiting.append(_entries(entry))
    return tuple(found)


def _entries(value: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> Iterator[Any]:
    """What a container has, also where a class made of it iterates otherwise."""
    if isinstance(value, dict):
        return iter(dict.values(value))
    return list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)
