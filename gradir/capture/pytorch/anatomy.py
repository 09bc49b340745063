"""What the grad_fns of each type are called and have."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch

from gradir.capture.pytorch.attributes import plain_value
from gradir.capture.pytorch.opnames import native_name, neutral_name
from gradir.capture.pytorch.walk import GradFn
from gradir.ir import AttrValue

__all__ = ["Anatomies", "Anatomy", "read_attributes"]

_SAVED: Final = "_saved_"
_RAW: Final = "_raw_saved_"

_OPAQUE: Final = frozenset({"CheckpointFunctionBackward", "CompiledFunctionBackward", "DifferentiableGraphBackward"})
"""Functions that stand for a graph of their own, which autograd does not show."""


class Anatomy(NamedTuple):
    """What the grad_fns of one type are called and have.

    ``scalars`` pair a name in the IR with an attribute of the grad_fn; ``tensors`` have two attributes, one for the
    packed and one for the unpacked tensor. The node that adds to a leaf's
    ``.grad`` ``accumulates``; a custom Function is ``python``; ``opaque`` stands for nodes that autograd hides.
    """

    native: str
    op: str
    scalars: tuple[tuple[str, str], ...]
    tensors: tuple[tuple[str, str, str], ...]
    accumulates: bool
    python: bool
    opaque: bool


class Anatomies:
    """Inspects each type of grad_fn once."""

    def __init__(self) -> None:
        self._known: dict[object, Anatomy] = {}

    def of(self, fn: GradFn) -> Anatomy:
        """The anatomy of a grad_fn."""
        kind = type(fn)
        # C++ nodes without a Python type of their own share one, and differ by name only.
        key = fn.name() if kind.__name__ == "CppFunction" else kind
        found = self._known.get(key)
        if found is None:
            native = kind.__name__ if key is kind else native_name(str(key))
            found = self._known[key] = _inspect(kind, native)
        return found


def _inspect(kind: type, native: str) -> Anatomy:
    attributes = set(dir(kind))
    tensors = sorted(name for name in attributes if name.startswith(_RAW))
    raw = {_unpacked_name(name) for name in tensors}
    scalars = sorted(name for name in attributes if name.startswith(_SAVED) and name not in raw)
    return Anatomy(
        native,
        neutral_name(native),
        tuple((name.removeprefix(_SAVED), name) for name in scalars),
        tuple((name.removeprefix(_RAW), name, _unpacked_name(name)) for name in tensors),
        accumulates=native == "AccumulateGrad",
        python="needs_input_grad" in attributes,
        opaque=native in _OPAQUE,
    )


def _unpacked_name(packed: str) -> str:
    name = packed.removeprefix(_RAW)
    # A custom Function has its saved tensors under a name of their own.
    return "saved_tensors" if name == "tensors" else _SAVED + name


def read_attributes(fn: GradFn, shape: Anatomy) -> dict[str, AttrValue]:
    """The non-tensor attributes of a grad_fn, sorted by name."""
    values = {name: plain_value(getattr(fn, attribute)) for name, attribute in shape.scalars}
    if shape.python:
        own = {name: value for name, value in vars(fn).items() if not isinstance(value, torch.Tensor)}
        values.update((str(name), plain_value(value)) for name, value in own.items() if not name.startswith("_"))
        values["needs_input_grad"] = plain_value(fn.needs_input_grad)
        return dict(sorted(values.items()))
    return values
