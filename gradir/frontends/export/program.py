"""A program as its graphs state it, before it is a graph of gradir: calls on named values, part by part."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gradir.ir import Cut, Scope, TensorMeta
from gradir.ir.frozen import NOTHING

_ROOT: Final = re.compile(r"^(?:L\['(?:self|fn|mod)'\]|L__self__|self|_export_root)(?:\.|(?=\[)|$)")
_ITEM: Final = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]|\['([^']*)'\]|\[(\d+)\]")

_LONGEST: Final = 10
"""More digits number no call of a module."""


class Named(NamedTuple):
    """An argument that is a value of the same part."""

    name: str


class Part(NamedTuple):
    """A graph of a program: the whole one, or a body that an operation runs.

    ``inputs`` and ``outputs`` are arguments: a `Named` value, a constant, or a sequence of them.
    """

    inputs: list[str]
    calls: list[Call]
    outputs: list[Any]


class Body(NamedTuple):
    """An argument that is a part, which the operation runs."""

    name: str
    part: Part


class Module(NamedTuple):
    """A module that a call runs in: its path, the qualified name of its class, and which call of it this is."""

    path: str
    kind: str
    call: int = 0


class Kept(NamedTuple):
    """An output that a backward takes: which, of how many bytes, and whether it is ``held`` or ``recomputed``."""

    output: int
    bytes: int | None
    state: str


class Call(NamedTuple):
    """An operation of a part.

    ``makes`` are the names of its outputs, and ``tensors`` what is known of each. A constant among ``arguments`` is
    what an attribute may hold. ``kinds`` tells of an argument by name whether it is a ``view`` or written ``inplace``.
    ``weights`` are the inputs of the program that a module uses which stands here as one operation. In a joint graph
    a call of the backward has the ``number`` of the call that it differentiates. ``region`` numbers the graph of a call
    from 1 on, where torch made several.
    """

    op: str
    native: str
    arguments: Sequence[tuple[str, Any]]
    makes: Sequence[str]
    tensors: Sequence[TensorMeta]
    kinds: Mapping[str, str]
    modules: Sequence[Module] = ()
    trace: str = ""
    opaque: bool = False
    weights: Sequence[str] = ()
    number: int | None = None
    is_backward: bool = False
    kept: Sequence[Kept] = ()
    region: int = 0


class Input(NamedTuple):
    """A tensor that a program does not compute: its role and its names, empty where it has none."""

    role: str
    names: tuple[str, ...]
    tensor: TensorMeta
    trainable: bool = False


class Program(NamedTuple):
    """A whole program. ``writes`` are pairs of the name of an input and of the value that it holds at the end.

    ``kind`` is ``forward``, ``joint`` or ``compiled``. ``paths`` are the places of outputs that have names, and
    ``scopes`` known modules by their paths. ``savings`` are bytes that a way to train keeps for its backward: its name,
    a module and how many.
    """

    part: Part
    inputs: Mapping[str, Input]
    writes: Sequence[tuple[str, str]] = ()
    version: str = ""
    kind: str = "forward"
    paths: Sequence[str] = ()
    cuts: Sequence[Cut] = ()
    scopes: Mapping[str, Scope] = NOTHING
    savings: Sequence[tuple[str, str, int]] = ()


def modules_of(stack: Mapping[str, Any] | None) -> Iterator[Module]:
    """The modules of a stack, outermost first."""
    for key, (path, kind) in (stack or {}).items():
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        bare = bare_path(_ROOT.sub("", path))
        call = str(key).partition("@")[2]
        is_number = call.isdecimal() and len(call) < _LONGEST
        yield Module(bare.partition("@")[0].strip("."), name, int(call) if is_number else 0)


def bare_path(text: str) -> str:
    """The path that Dynamo spells with items.

    >>> bare_path("G['net'].layers[0]._modules['fc']._parameters['weight']")
    'G.net.layers.0.fc.weight'
    """
    return _ITEM.sub(lambda match: "." + next(filter(None, match.groups()), ""), text)
