"""What a function saved, where torch shows that only as unpacked: before 2.12, and of what hooks pack before 2.11."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final, NamedTuple

import torch

from gradir.frontends.pytorch.private import FREED, STALE
from gradir.frontends.pytorch.reading.reach import class_of
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.ir import Saved

__all__ = ["Shown", "as_shown", "clears_what_is_read"]

_DISPATCH: Final = "__torch_dispatch__"
"""What a subclass of tensors runs when it is unpacked, be there a hook or not."""


_SHAPE: Final = re.compile(r"\[torch\.[\w.]+ \[([\d, ]*)\]\]")
"""Where torch says the shape of what is stale."""

_HOOKED: Final = Saved("", state="hooked")
_UNREAD: Final = Saved("", state="unread")


class Shown(NamedTuple):
    """What is saved and neither freed nor packed by a hook, by the names under which torch 2.12 shows it."""

    data: torch.Tensor | None
    unpack: Callable[[], object]
    unpack_hook: None = None


class _Stopped(BaseException):
    """Python code was about to run, of this name."""


def as_shown(fn: GradFn, name: str, raw: Any) -> Any:
    """What torch 2.12 has as ``raw``, where this torch unpacks it as the attribute ``name``.

    Of what cannot be shown its state comes instead, in a slot without a name, and of a tuple a tuple. No hook is run
    that is written in Python.
    """
    if raw is None or isinstance(raw, Saved):
        return raw
    entries = raw if isinstance(raw, tuple) else (raw,)
    shown: list[Any] = [_HOOKED if getattr(entry, "unpack_hook", None) is not None else _UNREAD for entry in entries]
    if _HOOKED not in shown:
        try:
            unpacked = _unpacked(fn, name)
            shown = [Shown(one, partial(_unpacked, fn, name)) for one in (unpacked if entries is raw else [unpacked])]
        except (_Stopped, RuntimeError) as error:
            # Of several, which of them it was is not known.
            if len(entries) == 1:
                shown = [_refused(fn, name, entries[0], error)]
    return tuple(shown) if entries is raw else shown[0]


def clears_what_is_read(fn: GradFn) -> bool:
    """Whether a custom Function frees what it saved when that is read."""
    return getattr(class_of(fn), "clear_saved_tensors_on_access", False) is True


def _refused(fn: GradFn, name: str, raw: Any, error: BaseException) -> Shown | Saved:
    """What is known of what cannot be unpacked."""
    told = str(error)
    if isinstance(error, _Stopped):
        return _UNREAD if told == _DISPATCH else _HOOKED
    if STALE not in told:
        return Saved("", state="freed") if FREED in told else _UNREAD
    data = getattr(raw, "data", None)
    if data is not None:
        return Shown(data, partial(_unpacked, fn, name))
    said = _SHAPE.search(told)
    return Saved("", shape=tuple(map(int, said[1].split(", "))) if said and said[1] else None, state="stale")


def _unpacked(fn: GradFn, name: str) -> Any:
    """An attribute of a function; what is written in Python is stopped before it runs.

    Raises:
        _Stopped: something was.
        RuntimeError: it cannot be unpacked.
    """
    if clears_what_is_read(fn):
        raise _Stopped(_DISPATCH)
    # A profiler or a debugger of the program's is left alone.
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
