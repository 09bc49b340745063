"""What is noted of a recorded forward: values, the steps that make them, and where they leave torch."""

from __future__ import annotations

import weakref
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.timelines import Frame
from gradir.ir import TensorMeta

__all__ = ["FROM_OUTSIDE", "Exit", "Outside", "Read", "Step", "Value", "Within"]

FROM_OUTSIDE: Final = -1


class Value(NamedTuple):
    """What a tensor holds: output ``number`` of the step ``maker``.

    Of a tensor that no step made the maker is `FROM_OUTSIDE`, and ``number`` its place among `Flow.outside`.
    """

    maker: int
    number: int


class Read(NamedTuple):
    """A value as an operation takes it: whether it requires grad then, and whether it is a leaf of the graph."""

    value: Value
    carries: bool
    is_leaf: bool


class Within(NamedTuple):
    """The call of a custom Function that runs an operation, the outermost one: its class and the place."""

    called: str
    place: Place | None


class Step(NamedTuple):
    """One operation, in the order in which they ran.

    ``kinds`` tells of each input whether it is only read (``data``), lends an output its memory (``view``) or is
    written to (``inplace``); it is empty where all are only read. ``constants`` are the other arguments. ``mode`` is
    ``grad``, ``no_grad`` or ``inference_mode``, ``inside`` tells which custom Function ran it, and ``failed`` what
    it raised. ``number`` is the autograd sequence number that came next, ``call`` the running module and
    ``called`` what the program called; what an optimizer writes is called ``step``, where its step was called.
    ``block`` is the line of the function that switched gradients off which led here, where that is known.
    """

    func: Any
    inputs: tuple[Read, ...]
    kinds: tuple[str, ...]
    constants: tuple[tuple[str, object], ...]
    outputs: tuple[TensorMeta, ...]
    mode: str
    inside: Within | None
    number: int
    call: Frame | None
    called: str = ""
    place: Place | None = None
    failed: str = ""
    block: Place | None = None

    def of_kind(self, *kinds: str) -> list[Read]:
        """The inputs that are of these kinds."""
        return [read for kind, read in zip(self.kinds, self.inputs, strict=False) if kind in kinds]

    def lenders(self) -> list[Value]:
        """The inputs whose memory an output has."""
        return [read.value for read in self.of_kind("view", "inplace")]


class Exit(NamedTuple):
    """A function that read the numbers of tensors, when ``before`` steps had run.

    ``failed`` is what it raised, and ``call`` the module that was running then.
    """

    called: str
    reads: tuple[Read, ...]
    place: Place | None
    before: int
    failed: str = ""
    call: Frame | None = None


class Outside(NamedTuple):
    """A tensor that no step made, as it was when it was first taken.

    ``role`` is ``parameter``, ``leaf`` or ``input``. ``copied`` are the tensors whose numbers the running function had
    read, and ``shared`` is the value of a tensor that has the same memory. ``owner`` is the module that had it as the
    parameter of this name while it ran, and not when it was called.
    """

    tensor: weakref.ref[torch.Tensor]
    meta: TensorMeta
    role: str
    copied: tuple[Read, ...] = ()
    shared: Value | None = None
    owner: tuple[nn.Module, str] | None = None
