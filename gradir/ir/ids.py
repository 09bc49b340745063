"""Readable node ids that survive edits elsewhere in the program.

=====================  ============================  ==================================
node                   id                            example
=====================  ============================  ==================================
function               ``scope/op:ordinal``          ``layers.3.attn/addmm:2``
named tensor           its name                      ``layers.3.attn.weight``
gradient accumulator   ``tensor/accumulate_grad:1``  ``fc.bias/accumulate_grad:1``
unnamed leaf           ``leaf:ordinal``              ``leaf:1``
captured output        ``output`` or ``output:path`` ``output:loss``, ``output:0``
view base              ``output/base``               ``output:0/base``
=====================  ============================  ==================================

An ordinal counts from 1 within its scope and op, in canonical order, so a node added to one module renumbers no other
module. ``/`` and ``:`` in a user's own names, control characters, spaces and other text that could be misread are
percent-encoded as
in RFC 3986, which keeps the kinds apart (``~`` too, so that the suffix ``~2`` of a name met again stays free).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import count

__all__ = ["IdAllocator", "encode_component"]

_PLAIN = re.compile(r"[A-Za-z0-9_.-]*")
_RESERVED = frozenset("/:%~\"'`<>\\|{}")


def encode_component(text: str) -> str:
    """Percent-encode what an id may not contain.

    >>> encode_component("layers.0.weight"), encode_component("a/b c")
    ('layers.0.weight', 'a%2Fb%20c')
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(char if _is_plain(char) else _percent(char) for char in text)


def _is_plain(char: str) -> bool:
    return char.isprintable() and char != " " and char not in _RESERVED


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


_encoded = lru_cache(maxsize=4096)(encode_component)
"""For modules and operations, which come again and again."""


class IdAllocator:
    """Hands out the ids of one graph; call it in canonical order.

    ``functions`` gives by scope and operation what makes the next id; `function` is the same for one call.

    >>> ids = IdAllocator()
    >>> ids.function("fc", "addmm"), ids.function("fc", "addmm"), ids.tensor("fc.weight")
    ('fc/addmm:1', 'fc/addmm:2', 'fc.weight')
    """

    def __init__(self) -> None:
        self.functions: Mapping[tuple[str, str], Callable[[], str]] = _Numbered()
        self._claims: dict[str, int] = {}

    def function(self, scope: str, op: str) -> str:
        """The id of the next ``op`` within ``scope``."""
        return self.functions[scope, op]()

    def accumulator(self, tensor_id: str) -> str:
        """The id of the node that accumulates the gradient of a leaf."""
        return self._claim(f"{tensor_id}/accumulate_grad:1")

    def tensor(self, name: str) -> str:
        """The id of a tensor with a name; of the next unnamed leaf when the name is empty."""
        return self._claim(encode_component(name)) if name else self.function("", "leaf")

    def output(self, path: str) -> str:
        """The id of a captured output; ``path`` is its place in what was captured, empty for a lone tensor."""
        return self._claim(self._output(path))

    def base(self, path: str) -> str:
        """The id of the tensor that the output at ``path`` is a view of."""
        return self._claim(f"{self._output(path)}/base")

    @staticmethod
    def _output(path: str) -> str:
        return f"output:{encode_component(path)}" if path else "output"

    def _claim(self, wanted: str) -> str:
        times = self._claims[wanted] = self._claims.get(wanted, 0) + 1
        return wanted if times == 1 else f"{wanted}~{times}"


class _Numbered(dict[tuple[str, str], Callable[[], str]]):
    """What gives the next id, by scope and operation."""

    def __missing__(self, key: tuple[str, str]) -> Callable[[], str]:
        scope, op = key
        prefix = f"{_encoded(scope)}/{_encoded(op)}:" if scope else f"{_encoded(op)}:"
        # Ids are made a million at a time, so the loop over the ordinals runs in C.
        following = self[key] = map(prefix.__add__, map(str, count(1))).__next__
        return following
