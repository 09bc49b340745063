"""What a grad_fn keeps for its backward, read without unpacking, recomputing or copying anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch

from gradir.capture.pytorch.anatomy import Anatomy
from gradir.capture.pytorch.metadata import MetadataReader
from gradir.capture.pytorch.tensors import Owned, TensorNodes
from gradir.capture.pytorch.walk import GradFn
from gradir.ir import Ref, Saved, TensorMeta

__all__ = ["SavedReader"]

_RESULT: Final = re.compile(r"result(\d*)")


class SavedReader:
    """Reads saved slots and remembers which storage was met where."""

    def __init__(
        self,
        ids: Mapping[GradFn, str],
        tensors: TensorNodes,
        metadata: MetadataReader,
        place: Callable[[Owned], str],
    ) -> None:
        """``ids`` gives the id of a grad_fn; ``place`` makes a node of a module's tensor and returns its id."""
        self._ids = ids
        self._tensors = tensors
        self._metadata = metadata
        self._place = place
        self._seen: dict[int, tuple[int, str]] = {}

    def read(self, fn: GradFn, shape: Anatomy, outputs: tuple[TensorMeta, ...]) -> tuple[Saved, ...]:
        """Every saved slot of a grad_fn."""
        node_id = self._ids[fn]
        slots: list[Saved | None] = []
        for name, attribute, unpacked in shape.tensors:
            try:
                raw = getattr(fn, attribute)
            except RuntimeError:
                slots.append(Saved(name, state="freed"))
                continue
            unpack = partial(getattr, fn, unpacked)
            if raw.__class__ is tuple:
                slots += [self._slot(node_id, f"{name}[{nr}]", entry, outputs, unpack) for nr, entry in enumerate(raw)]
            else:
                slots.append(self._slot(node_id, name, raw, outputs, unpack))
        return tuple([slot for slot in slots if slot is not None])

    def _slot(
        self, node_id: str, slot: str, raw: Any, outputs: tuple[TensorMeta, ...], unpack: Callable[[], object]
    ) -> Saved | None:
        try:
            hook = raw.unpack_hook
        except AttributeError:
            return Saved(slot, state="unread")
        if hook is not None:
            return Saved(slot, state="hooked")
        tensor = raw.data
        if tensor is None:
            return Saved(slot, state="freed") if _raises(raw.unpack) else None
        meta = self._metadata.of_tensor(tensor)
        size, storage = self._storage(tensor, node_id, slot)
        if _is_stale(raw, tensor, unpack):
            return Saved(slot, meta.dtype, meta.shape, size, None, storage, "stale")
        origin = self._origin(node_id, slot, tensor, meta, outputs)
        return Saved(slot, meta.dtype, meta.shape, size, origin, storage)

    def _origin(
        self, node_id: str, slot: str, tensor: torch.Tensor, meta: TensorMeta, outputs: tuple[TensorMeta, ...]
    ) -> Ref | None:
        known = self._tensors.id_of(tensor)
        if known is not None:
            return Ref(known, 0)
        if tensor.requires_grad:
            producer = self._ids.get(tensor.grad_fn)
            return None if producer is None else Ref(producer, tensor.output_nr)
        match = _RESULT.fullmatch(slot)
        if match is None:
            return None
        # torch saves an output without its grad_fn, in a slot named after the output's number.
        number = int(match[1] or 0)
        matches = number < len(outputs) and outputs[number].shape == meta.shape
        return Ref(node_id, number) if matches else None

    def _storage(self, tensor: torch.Tensor, node_id: str, slot: str) -> tuple[int | None, str]:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None, ""
        handle = storage._cdata
        known = self._seen.get(handle)
        if known is not None:
            return known
        size = storage.nbytes()
        owner = self._tensors.owner_of(handle)
        if owner is None:
            unplaced = self._tensors.unplaced_owner_of(handle)
            owner = None if unplaced is None else self._place(unplaced)
        self._seen[handle] = (size, f"{node_id}.{slot}" if owner is None else owner)
        return size, owner or ""


def _is_stale(raw: Any, tensor: torch.Tensor, unpack: Callable[[], object]) -> bool:
    # torch hides the version it saved; unpacking compares it, and with no hook set does nothing else. A tensor that
    # was never written to in place needs no comparison, and an inference tensor, which has no version, cannot be.
    try:
        if tensor._version == 0:
            return False
    except RuntimeError:
        return False
    # A function's own output that was made in place refuses to be unpacked by itself: only the function, through
    # ``unpack``, can give it back its grad_fn.
    return _raises(raw.unpack) and _raises(unpack)


def _raises(unpack: Callable[[], object]) -> bool:
    try:
        unpack()
    except RuntimeError:
        return True
    return False
