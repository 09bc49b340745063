"""What a grad_fn keeps for its backward, read without unpacking, recomputing or copying anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from gradir.capture.pytorch.attributes import plain_value
from gradir.capture.pytorch.metadata import dtype_name, shape_of
from gradir.capture.pytorch.opnames import native_name, neutral_name
from gradir.capture.pytorch.tensors import Owned, TensorNodes
from gradir.capture.pytorch.walk import GradFn
from gradir.ir import AttrValue, Ref, Saved, TensorMeta

__all__ = ["Anatomies", "Anatomy", "SavedReader", "read_attributes"]

_RESULT = re.compile(r"result(\d*)")
_SAVED, _RAW = "_saved_", "_raw_saved_"


class Anatomy(NamedTuple):
    """What the grad_fns of one type are called and have.

    ``scalars`` and ``tensors`` pair a name in the IR with an attribute of the grad_fn.
    """

    native: str
    op: str
    scalars: tuple[tuple[str, str], ...]
    tensors: tuple[tuple[str, str], ...]
    python: bool

    @property
    def accumulates(self) -> bool:
        """Whether this is the node that adds to a leaf's ``.grad``."""
        return self.native == "AccumulateGrad"


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
    raw = {_SAVED + name.removeprefix(_RAW) for name in tensors}
    scalars = sorted(name for name in attributes if name.startswith(_SAVED) and name not in raw)
    return Anatomy(
        native,
        neutral_name(native),
        tuple((name.removeprefix(_SAVED), name) for name in scalars),
        tuple((name.removeprefix(_RAW), name) for name in tensors),
        "needs_input_grad" in attributes,
    )


def read_attributes(fn: Any, shape: Anatomy) -> dict[str, AttrValue]:
    """The non-tensor attributes of a grad_fn, sorted by name."""
    values = {name: plain_value(getattr(fn, attribute)) for name, attribute in shape.scalars}
    if shape.python:
        own = {name: value for name, value in vars(fn).items() if not isinstance(value, torch.Tensor)}
        values.update((str(name), plain_value(value)) for name, value in own.items() if not name.startswith("_"))
        values["needs_input_grad"] = plain_value(fn.needs_input_grad)
        return dict(sorted(values.items()))
    return values


class SavedReader:
    """Reads saved slots and remembers which storage was met where."""

    def __init__(self, ids: Mapping[Any, str], tensors: TensorNodes, place: Callable[[Owned], str]) -> None:
        """``ids`` gives the id of a grad_fn; ``place`` makes a node of a module's tensor and returns its id."""
        self._ids = ids
        self._tensors = tensors
        self._place = place
        self._first_slots: dict[int, str] = {}

    def read(self, fn: GradFn, shape: Anatomy, outputs: tuple[TensorMeta, ...]) -> tuple[Saved, ...]:
        """Every saved slot of a grad_fn."""
        node_id = self._ids[fn]
        slots: list[Saved] = []
        for name, attribute in shape.tensors:
            try:
                raw = getattr(fn, attribute)
            except RuntimeError:
                slots.append(Saved(name, state="freed"))
                continue
            if isinstance(raw, (tuple, list)):
                entries = [(f"{name}[{index}]", entry) for index, entry in enumerate(raw)]
            else:
                entries = [(name, raw)]
            for slot, entry in entries:
                saved = self._slot(node_id, slot, entry, outputs)
                if saved is not None:
                    slots.append(saved)
        return tuple(slots)

    def _slot(self, node_id: str, slot: str, raw: Any, outputs: tuple[TensorMeta, ...]) -> Saved | None:
        if not hasattr(raw, "unpack_hook"):
            return Saved(slot, state="unread")
        if raw.unpack_hook is not None:
            return Saved(slot, state="hooked")
        tensor = raw.data
        if tensor is None:
            return Saved(slot, state="freed") if _raises(raw.unpack) else None
        dtype, shape = dtype_name(tensor.dtype), shape_of(tensor)
        size, storage = self._storage(tensor, f"{node_id}.{slot}")
        if _is_stale(raw, tensor):
            return Saved(slot, dtype, shape, size, None, storage, "stale")
        return Saved(slot, dtype, shape, size, self._origin(node_id, slot, tensor, outputs), storage)

    def _origin(self, node_id: str, slot: str, tensor: torch.Tensor, outputs: tuple[TensorMeta, ...]) -> Ref | None:
        known = self._tensors.id_of(tensor)
        if known is not None:
            return Ref(known, 0)
        if tensor.requires_grad:
            producer = tensor.grad_fn
            return Ref(self._ids[producer], tensor.output_nr) if producer in self._ids else None
        match = _RESULT.fullmatch(slot)
        if match is None:
            return None
        # torch saves an output without its grad_fn, in a slot named after the output's number.
        number = int(match[1] or 0)
        matches = number < len(outputs) and outputs[number].shape == shape_of(tensor)
        return Ref(node_id, number) if matches else None

    def _storage(self, tensor: torch.Tensor, own_key: str) -> tuple[int | None, str]:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None, ""
        handle = storage._cdata
        owner = self._tensors.owner_of(handle)
        if owner is None:
            unplaced = self._tensors.unplaced_owner_of(handle)
            owner = self._first_slots.setdefault(handle, own_key) if unplaced is None else self._place(unplaced)
        return storage.nbytes(), "" if owner == own_key else owner


def _is_stale(raw: Any, tensor: torch.Tensor) -> bool:
    # torch hides the version it saved; unpacking compares it, and with no hook set does nothing else. A tensor that
    # was never written to in place needs no comparison. Inference tensors have no version.
    return not tensor.is_inference() and tensor._version > 0 and _raises(raw.unpack)


def _raises(unpack: Callable[[], object]) -> bool:
    try:
        unpack()
    except RuntimeError:
        return True
    return False
