"""What a function saved, where torch shows that only as unpacked: before 2.12, and of what hooks pack before 2.11."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FrameType
from typing import Any, Final, NamedTuple

import torch

from gradir.frontends.pytorch.private import FREED, STALE
from gradir.frontends.pytorch.reading.reach import class_of
from gradir.frontends.pytorch.reading.walk import GradFn

__all__ = ["Shown", "as_shown"]

_DISPATCH: Final = "__torch_dispatch__"
"""What a subclass of tensors runs when it is unpacked, be there a hook or not."""


class Shown(NamedTuple):
    """What is saved and neither freed nor packed by a hook, by the names under which torch 2.12 shows it."""

    data: torch.Tensor | None
    unpack: Callable[[], object]
    unpack_hook: None = None


class _Stopped(BaseException):
    """Python code was about to run, of this name."""


def as_shown(fn: GradFn, name: str, raw: Any) -> Any:
    """What torch 2.12 has as ``raw``, where this torch unpacks it as the attribute ``name``.

    Of what cannot be shown its state comes instead, and of a tuple a tuple. No hook is run that is written in Python.
    """
    if raw is None or isinstance(raw, str):
        return raw
    entries = raw if isinstance(raw, tuple) else (raw,)
    states = ["unread" if getattr(entry, "unpack_hook", None) is None else "hooked" for entry in entries]
    if "hooked" in states:
        return _like(raw, states)
    try:
        unpacked = _unpacked(fn, name)
    except _Stopped as stopped:
        state = "unread" if stopped.args == (_DISPATCH,) else "hooked"
    except RuntimeError as error:
        state = "freed" if FREED in str(error) else "stale" if STALE in str(error) else "unread"
    else:
        return _like(raw, [Shown(tensor, partial(_unpacked, fn, name)) for tensor in _listed(raw, unpacked)])
    data = getattr(entries[0], "data", None)
    if len(entries) > 1:
        # Which of them it was is not known.
        return _like(raw, states)
    return _like(raw, [state if state != "stale" or data is None else Shown(data, partial(_unpacked, fn, name))])


def _listed(raw: Any, unpacked: Any) -> Iterable[Any]:
    return unpacked if isinstance(raw, tuple) else (unpacked,)


def _like(raw: Any, shown: Sequence[Any]) -> Any:
    return tuple(shown) if isinstance(raw, tuple) else shown[0]


def _unpacked(fn: GradFn, name: str) -> Any:
    """An attribute of a function; what is written in Python is stopped before it runs.

    Raises:
        _Stopped: something was.
        RuntimeError: it cannot be unpacked.
    """
    if getattr(class_of(fn), "clear_saved_tensors_on_access", False) is True:
        raise _Stopped(_DISPATCH)
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
