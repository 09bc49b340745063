"""A program as its graphs state it, before it is a graph of gradir: calls on named values, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gradir.ir import TensorMeta


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


class Call(NamedTuple):
    """An operation of a part.

    ``makes`` are the names of its outputs, and ``tensors`` what is known of each. A constant among ``arguments`` is
    what an attribute may hold. ``kinds`` tells of an argument by name whether it is a ``view`` or written ``inplace``.
    ``weights`` are the inputs of the program that a module uses which stands here as one operation.
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


class Input(NamedTuple):
    """A tensor that a program does not compute: its role and its names, empty where it has none."""

    role: str
    names: tuple[str, ...]
    tensor: TensorMeta
    trainable: bool = False


class Program(NamedTuple):
    """A whole program. ``writes`` are pairs of the name of an input and of the value that it holds at the end."""

    part: Part
    inputs: Mapping[str, Input]
    writes: Sequence[tuple[str, str]] = ()
    version: str = ""
    classes: Mapping[str, str] = {}


def bare_class(kind: str) -> str:
    """The name of a class without its module.

    >>> bare_class("torch.nn.modules.linear.Linear")
    'Linear'
    """
    return kind.rpartition(".")[2]
