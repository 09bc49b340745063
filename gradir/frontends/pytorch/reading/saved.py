"""Read the tensors that a grad_fn saved, without unpacking, recomputing or copying anything."""

from __future__ import annotations

import cmath
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import compress
from operator import attrgetter
from types import FrameType
from typing import Any, Final, NamedTuple, TypeAlias

import torch

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.attributes import NodeType, Slot, Symbols, bare_name, plain_value, shape_of
from gradir.frontends.pytorch.reading.reach import class_of
from gradir.frontends.pytorch.reading.tensors import PLAIN, Owned, TensorNodes, unwrap_tensor
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.ir import AttrValue, Ref, Saved
from gradir.ir.ids import storage_key
from gradir.ir.model import Shape

# Unpacking a tensor subclass runs this, with a hook or without.
_DISPATCH: Final = "__torch_dispatch__"
# The shape of a stale tensor in torch's error.
_SHAPE: Final = re.compile(r"\[torch\.[\w.]+ \[([\d, ]*)\]\]")
_HOOKED: Final = Saved("", state="hooked")
_UNREAD: Final = Saved("", state="unread")


class Shown(NamedTuple):
    """A saved tensor that is neither freed nor packed by a hook, with the attributes of torch 2.12."""

    data: torch.Tensor | None
    unpack: Callable[[], object]
    unpack_hook: None = None


class _Stopped(BaseException):
    """Python code of this name was about to run."""


def normalize_packed(fn: GradFn, name: str, raw: Any) -> Any:
    """Return the packed tensor or tensors ``raw`` in the form of torch 2.12; this torch unpacks them as ``name``.

    An unnamed `Saved` has the state of a tensor that cannot be read. No Python hook runs.
    """
    if raw is None or isinstance(raw, Saved):
        return raw
    entries = raw if isinstance(raw, tuple) else (raw,)
    shown: list[Any] = [_HOOKED if getattr(entry, "unpack_hook", None) is not None else _UNREAD for entry in entries]
    if _HOOKED not in shown:
        try:
            unpacked = _unpack(fn, name)
            shown = [Shown(one, partial(_unpack, fn, name)) for one in (unpacked if entries is raw else [unpacked])]
        except (_Stopped, RuntimeError) as error:
            # For several, the error does not show which one failed.
            if len(entries) == 1:
                shown = [_describe_refusal(fn, name, entries[0], error)]
    return tuple(shown) if entries is raw else shown[0]


def clears_on_access(fn: GradFn) -> bool:
    """Return whether reading the saved tensors of a custom Function frees them."""
    return getattr(class_of(fn), "clear_saved_tensors_on_access", False) is True


def _describe_refusal(fn: GradFn, name: str, raw: Any, error: BaseException) -> Shown | Saved:
    text = str(error)
    if isinstance(error, _Stopped):
        return _UNREAD if text == _DISPATCH else _HOOKED
    if private.STALE not in text:
        return Saved("", state="freed") if private.FREED in text else _UNREAD
    data = getattr(raw, "data", None)
    if data is not None:
        return Shown(data, partial(_unpack, fn, name))
    match = _SHAPE.search(text)
    return Saved("", shape=tuple(map(int, match[1].split(", "))) if match and match[1] else None, state="stale")


def _unpack(fn: GradFn, name: str) -> Any:
    """Return an attribute of a function; raise `_Stopped` before any Python code runs."""
    if clears_on_access(fn):
        raise _Stopped(_DISPATCH)
    # A profiler or debugger of the program stays in place.
    for current, watch in ((sys.getprofile, sys.setprofile), (sys.gettrace, sys.settrace)):
        if current() is None:
            watch(_stop)
            try:
                return getattr(fn, name)
            finally:
                watch(None)
    raise _Stopped(_DISPATCH)


def _stop(frame: FrameType, event: str, _: object) -> None:
    if event == "call":
        raise _Stopped(frame.f_code.co_name)


_kind_of: Final = attrgetter("dtype", "shape", "layout")

# For each dtype of a Python number as a tensor, a scalar tensor of the same kind and a smaller dtype.
PROBES: Final = {
    torch.int64: torch.zeros((), dtype=torch.int8),
    torch.float64: torch.zeros((), dtype=torch.float32),
    torch.complex128: torch.zeros((), dtype=torch.complex64),
}
# torch makes a tensor of this number for a symbolic size, and of nan for a symbolic float.
_SYMBOLIC: Final = 7777777


def read_saved_tensor(fn: GradFn, name: str) -> torch.Tensor | None:
    """Return a tensor that a function saved, in its packed form: no unpack hook runs."""
    data = getattr(_read_packed(fn, name), "data", None)
    return data.detach() if isinstance(data, torch.Tensor) else None


def is_stale(fn: GradFn, name: str) -> bool:
    """Return whether the program wrote to a tensor that a function saved, so that its backward fails."""
    shown = _read_packed(fn, name)
    if not hasattr(shown, "unpack") or shown.unpack_hook is not None:
        return False
    try:
        shown.unpack()
    except RuntimeError as error:
        return private.STALE in str(error)
    return False


def _read_packed(fn: GradFn, name: str) -> Any:
    raw = getattr(fn, f"{private.PACKED}{name}", None)
    return raw if private.SHOWS_SAVED else normalize_packed(fn, f"{private.SAVED}{name}", raw)


# The dtype, shape and layout of saved tensors of one kind, and a probe if they may stand for a number.
_Kind: TypeAlias = tuple[str, Shape | None, str | None, torch.Tensor | None]


class SavedReader:
    """Reads saved slots, and remembers the first owner of each storage.

    ``layouts`` collects the layouts of outputs that are not strided, and ``numbers`` the saved numbers of a node.
    """

    def __init__(
        self, ids: Mapping[GradFn, str], tensors: TensorNodes, place: Callable[[Owned], str], symbols: Symbols
    ) -> None:
        """``ids`` maps grad_fns to ids; ``place`` makes a node of a module's tensor and returns its id."""
        self._ids, self._tensors, self._place, self._symbols = ids, tensors, place, symbols
        self._placed = tensors.ids
        self._kinds: dict[tuple[Any, ...], _Kind] = {}
        self._storages: dict[int, tuple[int | None, str]] = {}
        self.layouts: dict[Ref, str] = {}
        self.numbers: dict[str, AttrValue] = {}

    def read(self, fn: GradFn, node_type: NodeType, node_id: str) -> tuple[Saved, ...]:
        """Return every saved slot of a grad_fn."""
        try:
            packed = node_type.packed(fn)
        except RuntimeError:
            # One of them is freed.
            packed = tuple([_read_slot(fn, slot) for slot in node_type.slots])
        if not private.SHOWS_SAVED:
            pairs = zip(node_type.slots, packed, strict=False)
            packed = tuple([normalize_packed(fn, slot.unpacked, raw) for slot, raw in pairs])
        read: list[Saved | None] = []
        for slot, raw in zip(node_type.slots, packed, strict=False):
            if raw.__class__ is tuple:
                slots = [slot._replace(name=f"{slot.name}[{number}]") for number in range(len(raw))]
                read += [self._read(fn, node_id, *each, raw) for each in zip(slots, raw, strict=True)]
            else:
                read.append(self._read(fn, node_id, slot, raw, None))
        return tuple(filter(None, read))

    def _read(self, fn: GradFn, node_id: str, slot: Slot, raw: Any, siblings: tuple[Any, ...] | None) -> Saved | None:
        name, _, unpacked = slot
        try:
            if raw.unpack_hook is not None:
                return Saved(name, state="hooked")
            unpack = raw.unpack
        except AttributeError:
            return Saved(name, shape=getattr(raw, "shape", None), state=getattr(raw, "state", "unread"))
        tensor = raw.data
        if tensor is None:
            return Saved(name, state="freed") if raises(unpack) else None
        try:
            dtype, shape, layout, probe = self._kinds[_kind_of(tensor)]
        except (KeyError, RuntimeError, TypeError):
            dtype, shape, layout, probe = self._new_kind(tensor)
        size, storage = self._storage(tensor, node_id, name)
        # torch hides the saved version. Unpacking compares it, and does nothing else without a hook. An output that the
        # function made in place can only be unpacked through the function, which sets its grad_fn.
        if private.version_of(tensor) and raises(unpack) and raises(getattr, fn, unpacked):
            return Saved(name, dtype, shape, size, None, storage, "stale")
        grad_fn = tensor.grad_fn
        if grad_fn is None:
            number = None if probe is None else number_of(tensor, probe)
            if number is not None:
                self.numbers[name] = number
            known = self._placed.get(id(tensor))
            origin = Ref(known, 0) if known is not None else _own_output(fn, node_id, unpacked, raw, siblings)
        else:
            producer = self._ids.get(grad_fn)
            origin = None if producer is None else Ref(producer, private.output_nr_of(tensor))
        if layout is not None and origin is not None:
            self.layouts[origin] = layout
        return Saved(name, dtype, shape, size, origin, storage)

    def _new_kind(self, tensor: torch.Tensor) -> _Kind:
        layout = None if tensor.layout is torch.strided else bare_name(tensor.layout)
        shape = shape_of(tensor, self._symbols)
        kind = bare_name(tensor.dtype), shape, layout, PROBES.get(tensor.dtype) if shape == () else None
        # A missing or symbolic shape cannot be a key.
        with suppress(RuntimeError, TypeError):
            self._kinds[_kind_of(tensor)] = kind
        return kind

    def _storage(self, tensor: torch.Tensor, node_id: str, name: str) -> tuple[int | None, str]:
        try:
            storage = (tensor if type(tensor) in PLAIN else unwrap_tensor(tensor)).untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None, ""
        handle = private.storage_handle(storage)
        known = self._storages.get(handle)
        if known is not None:
            return known
        nbytes: int | torch.SymInt = storage.nbytes()
        # The size may be symbolic.
        size = nbytes if type(nbytes) is int else None
        owner = self._tensors.owners.get(handle)
        if isinstance(owner, Owned):
            owner = self._place(owner)
        self._storages[handle] = size, owner or storage_key(node_id, name)
        return size, owner or ""


def _own_output(fn: GradFn, node_id: str, name: str, raw: Any, siblings: tuple[Any, ...] | None) -> Ref | None:
    """Return the reference to a function's own output that it saved: torch saves it without its grad_fn."""
    if clears_on_access(fn) or any(getattr(entry, "unpack_hook", raw) is not None for entry in siblings or ()):
        return None
    # Freed or changed tensors raise. No dispatch of a tensor subclass or mode runs.
    with suppress(RuntimeError), private.without_dispatch_modes():
        unpacked: Any = getattr(fn, name)
        tensor = unpacked if siblings is None else next(compress(unpacked, (entry is raw for entry in siblings)))
        return Ref(node_id, private.output_nr_of(tensor)) if tensor.grad_fn is fn else None
    return None


def _read_slot(fn: GradFn, slot: Slot) -> object:
    try:
        return getattr(fn, slot.packed)
    except RuntimeError:
        return Saved("", state="freed")


def raises(call: Callable[..., object], *args: object) -> bool:
    """Return whether a call raises a `RuntimeError`."""
    try:
        call(*args)
    except RuntimeError:
        return True
    return False


def number_of(tensor: torch.Tensor, probe: torch.Tensor) -> AttrValue:
    """Return the number that torch wrapped into ``tensor``, or ``None`` for a tensor of the user.

    Type promotion shows this: a wrapped number takes the dtype of any tensor of its kind, but of two scalar tensors the
    larger dtype wins.

    >>> fn = (torch.ones(2, requires_grad=True) * 0.5).grad_fn
    >>> number_of(fn._raw_saved_other.data, PROBES[torch.float64])
    0.5
    >>> number_of(torch.tensor(0.5, dtype=torch.float64), PROBES[torch.float64])
    """
    if type(tensor) is not torch.Tensor or not tensor.is_cpu:
        return None
    # Modes of the user must not see this.
    with private.without_dispatch_modes(), private.without_overrides():
        if torch.result_type(tensor, probe) is not probe.dtype:
            return None
        number = tensor.item()
    return None if cmath.isnan(number) or number == _SYMBOLIC else plain_value(number)
