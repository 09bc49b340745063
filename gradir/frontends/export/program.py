"""Define the records of a program, from which `assemble` makes a graph: calls on named values, in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gradir.ir import Cut, Scope, TensorMeta
from gradir.ir.frozen import NOTHING


class Named(NamedTuple):
    """An argument that names a value of the same part."""

    name: str


class Part(NamedTuple):
    """The outermost graph of a program, or a body that an operation runs.

    ``inputs`` and ``outputs`` are arguments: a `Named` value, a constant, or a sequence of them.
    """

    inputs: list[str]
    calls: list[Call]
    outputs: list[Any]


class Body(NamedTuple):
    """An argument that is a part."""

    name: str
    part: Part


class Module(NamedTuple):
    """A module around a call: its path, the qualified name of its class, and the number of its call."""

    path: str
    kind: str
    call: int = 0


class SavedOutput(NamedTuple):
    """An output that the backward takes: its number, bytes and state, ``held`` or ``recomputed``."""

    output: int
    bytes: int | None
    state: str


class Call(NamedTuple):
    """An operation of a part.

    ``makes`` are the names of its outputs, and ``tensors`` their metadata. ``arguments`` have the values of attributes
    for constants. ``kinds`` says by name whether an argument is a ``view`` or written ``inplace``. ``weights`` are the
    inputs of the program that a whole module uses. In a joint graph, a call of the backward has the ``number`` of the
    call that it differentiates. ``region`` is the number of one of several compiled graphs, from 1.
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
    saved: Sequence[SavedOutput] = ()
    region: int = 0


class Input(NamedTuple):
    """A tensor that a program does not compute, with its role and its names."""

    role: str
    names: tuple[str, ...]
    tensor: TensorMeta
    trainable: bool = False


class Program(NamedTuple):
    """A program. ``writes`` are pairs of the name of an input and of its value at the end.

    ``kind`` is ``forward``, ``joint`` or ``compiled``. ``paths`` are the names of the outputs, if they have names.
    ``scopes`` are known modules by path. ``savings`` are the bytes saved for backward: a partitioner or ``eager``, a
    module, and the number of bytes. ``links`` are other names of values.
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
    links: Mapping[str, str] = NOTHING


def flatten_argument(value: Any) -> Iterator[Any]:
    """Yield an argument, or the entries of its sequences, in order."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if type(each) in (list, tuple, dict):
            waiting.extend([*(each.values() if type(each) is dict else each)][::-1])
        else:
            yield each


def values_in(value: Any) -> Iterator[Named]:
    """Yield the values in an argument."""
    return (each for each in flatten_argument(value) if type(each) is Named)
