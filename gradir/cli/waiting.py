"""End a rank that waits for the others for too long, so that there is an answer and not a timeout."""

from __future__ import annotations

import ctypes
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

_CHECKED_EACH: Final = 0.5
_CLOSED: Final = -1
_LONGEST_ABORT: Final = 10
# Seconds in which a process that is to end runs Python code again; torchrun kills it after 30.
_LONGEST_END: Final = 20.0


class Watchdog:
    """While entered, calls ``stop`` from a thread if the program waits for others, and nothing moves for some seconds.

    ``waiting`` returns how many operations ran if the program waits, else None. A launcher that ends this rank because
    another one has ended is the same: Python's own handlers do not run in a thread that waits in C++. If C++ aborts
    the process, ``write`` is called before it ends.
    """

    def __init__(
        self,
        patience: float,
        waiting: Callable[[], int | None],
        stop: Callable[[str], bool],
        write: Callable[[str], object],
    ) -> None:
        self._patience, self._waiting, self._stop, self._write = patience, waiting, stop, write
        self._ended, self._told = socket.socketpair()
        self._thread = threading.Thread(target=self._watch, name="gradir-watchdog", daemon=True)

    @staticmethod
    def is_possible() -> bool:
        """Return whether signals reach a socket here, as they do in the main thread of a POSIX system."""
        return os.name == "posix" and threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Watchdog:
        self._told.setblocking(False)
        self._before = signal.getsignal(signal.SIGTERM)
        # The launcher's signal reaches the thread by the socket, whatever the main thread does.
        self._fd = signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
        if self._before == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._leave)
        # Only C's own handler runs in an abort: Python's wait for the main thread, which never runs again.
        self._libc = ctypes.CDLL(None)
        self._libc.signal.argtypes, self._libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
        self._on_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(self._aborted)
        self._before_abort = self._libc.signal(signal.SIGABRT, ctypes.cast(self._on_abort, ctypes.c_void_p))
        # A forked process has the same socket, and its signals are its own.
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._forget)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._told.fileno() != _CLOSED:
            # To close it ends nothing while a forked process has it too.
            self._told.shutdown(socket.SHUT_WR)
        self._forget()
        self._thread.join()
        self._ended.close()

    def _forget(self) -> None:
        if self._told.fileno() != _CLOSED:
            self._libc.signal(signal.SIGABRT, self._before_abort)
            signal.set_wakeup_fd(self._fd)
            if signal.getsignal(signal.SIGTERM) == self._leave:
                signal.signal(signal.SIGTERM, self._before)
            self._told.close()

    def _leave(self, number: int, frame: object) -> None:  # noqa: ARG002 (as Python calls it)
        if not self._stop("fails"):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _aborted(self, number: int) -> None:
        """Write what there is: gloo and NCCL end a process from a thread of theirs, where Python runs no handler."""
        # The abort may come with a lock held for which this waits.
        if sys.platform != "win32":
            self._libc.signal(signal.SIGALRM, None)
            self._libc.alarm(_LONGEST_ABORT)
        self._write("fails")
        self._libc.signal(number, self._before_abort)
        # It is blocked until this returns.
        getattr(self._libc, "raise")(number)

    def _watch(self) -> None:
        # When something moved last and when the launcher ended this rank; neither has a time before it happened.
        moved, before, ended, is_leaving = time.monotonic(), None, math.inf, False
        while True:
            is_told = bool(select.select([self._ended], [], [], _CHECKED_EACH)[0])
            signals = self._ended.recv(64) if is_told else b""
            if is_told and not signals:
                return
            now = self._waiting()
            if now is None or now != before:
                moved, before = time.monotonic(), now
            if signal.SIGTERM in signals and signal.getsignal(signal.SIGTERM) == self._leave:
                ended = min(ended, time.monotonic())
            since_end, waited = time.monotonic() - ended, time.monotonic() - moved
            is_due = waited >= self._patience > 0 or since_end >= 0
            if now is not None and is_due and waited >= 0:
                is_leaving = self._stop("waits")
                # Once is enough, until something moves again.
                moved = math.inf
            if since_end >= (_LONGEST_END if now is None or is_leaving else 0):
                # The main thread waits in C++, and runs no handler.
                os._exit(-signal.SIGTERM % 256)
