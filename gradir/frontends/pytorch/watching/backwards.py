"""The calls of backward that a program makes itself."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from types import FrameType
from typing import Any, Protocol

import torch
from torch.autograd.graph import GradientEdge

from gradir.frontends.pytorch import private
from gradir.frontends.substitution import replace_function


class Listener(Protocol):
    """Gets each call."""

    def before_backward(self, tensors: object, frame: FrameType) -> bool | None:
        """Look at the tensors of a call before it runs; what this raises goes through the program.

        The call does not run if this returns true.
        """
        ...

    def before_failing(self, tensors: object, frame: FrameType) -> None:
        """Look at the tensors of a call that is going to raise, since they have no graph."""
        ...

    def after_backward(self, tensors: object) -> None:
        """Note that a call has ended, by an error too."""
        ...


class Backwards:
    """Tells a listener of the calls of ``Tensor.backward`` and ``torch.autograd.backward``.

    Calls inside another one, as by a checkpoint, and calls in a forked process do not count.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._process = os.getpid()
        self._of_thread = threading.local()
        self._patches = ExitStack()

    def __enter__(self) -> Backwards:
        for place in (torch.Tensor, torch.autograd):
            replace_function(self._patches, place, "backward", self._telling(place.backward))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Put torch's own functions back."""
        self._patches.close()

    def _telling(self, backward: Callable[..., None]) -> Callable[..., None]:
        @wraps(backward)
        def told(*args: Any, **kwargs: Any) -> None:
            given = args[0] if args else kwargs.pop("tensors", None)
            # It may be something that can be gone through once.
            tensors = given if isinstance(given, (torch.Tensor, GradientEdge, type(None))) else tuple(given)
            if not self._is_call():
                return backward(tensors, *args[1:], **kwargs)
            self._of_thread.is_inside = True
            looked = self._listener.before_backward if _has_graph(tensors) else self._listener.before_failing
            try:
                if looked(tensors, sys._getframe(1)):
                    return None
                return backward(tensors, *args[1:], **kwargs)
            finally:
                self._of_thread.is_inside = False
                self._listener.after_backward(tensors)

        return told

    def _is_call(self) -> bool:
        return (
            not getattr(self._of_thread, "is_inside", False)
            and not torch.compiler.is_compiling()
            and private.current_backward() == -1
            and os.getpid() == self._process
        )


def _has_graph(tensors: object) -> bool:
    several = tensors if type(tensors) is tuple else (tensors,)
    return all(getattr(each, "requires_grad", each is not None) for each in several)
