"""Where a program switched gradients off, and which of its lines runs in the block."""

from __future__ import annotations

from types import FrameType
from typing import Final, NamedTuple

import torch

from gradir.frontends.pytorch.recording.places import Place, Places

__all__ = ["Switches"]

_DECORATORS: Final = frozenset({"decorate_context", "generator_context"})
"""What the functions of torch are called that run a decorated one."""

_OPENING: Final = "__enter__"
_CLOSING: Final = "__exit__"


class _Block(NamedTuple):
    """The frame below which gradients are off, by its id() while it runs, or the line that switched them off."""

    frame: int
    place: Place | None = None


class Switches:
    """Remembers the block of a thread in which gradients are off."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._block: _Block | None = None
        self._around: list[_Block | None] = []

    def note(self, frame: FrameType | None, *, is_on: bool) -> None:
        """Note that a call from a frame of torch's switches gradients on or off."""
        if _passes(frame, _CLOSING):
            # What was inside a block that is left goes on with what was before it.
            before = self._around.pop() if self._around else None
            self._block = None if is_on else before
            return
        if _passes(frame, _OPENING):
            self._around.append(self._block)
        if is_on:
            self._block = None
        elif torch.is_grad_enabled() or (self._block is not None and self._block.place is not None):
            # A block inside another one changes nothing.
            self._open(frame)

    def _open(self, frame: FrameType | None) -> None:
        decorator, is_opened = None, False
        while frame is not None and self._places.is_inside(frame):
            is_opened = is_opened or frame.f_code.co_name == _OPENING
            decorator = frame if frame.f_code.co_name in _DECORATORS else decorator
            # A block of torch's own, such as that of a distribution, is none of the program's.
            if decorator is None and not _is_of_modes(frame):
                return
            frame = frame.f_back
        place = self._places(frame)
        if frame is None or place is None or place.caller is not None:
            self._block = None
        elif decorator is not None:
            self._block = _Block(id(decorator))
        elif is_opened or self._block is None:
            self._block = _Block(id(frame)) if is_opened else _Block(0, place)

    def outer(self, frame: FrameType | None) -> Place | None:
        """Return the line of the block's own function that runs, or that switched gradients off; nothing if unknown."""
        if self._block is None or self._block.place is not None:
            return None if self._block is None else self._block.place
        inner: FrameType | None = None
        while frame is not None and id(frame) != self._block.frame:
            inner = frame if not self._places.is_inside(frame) else inner
            frame = frame.f_back
        if frame is None:
            return None
        return self._places(inner if self._places.is_inside(frame) else frame)


def _is_of_modes(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith(("grad_mode.py", "_contextlib.py"))


def _passes(frame: FrameType | None, name: str) -> bool:
    """Return whether a function of this name, of torch's modes, leads to a frame."""
    while frame is not None and _is_of_modes(frame):
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False
