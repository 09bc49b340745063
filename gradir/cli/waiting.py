"""End a rank that waits too long for the others, so that gradir can report it before a timeout."""

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
# Seconds for a process to run Python code again after it was asked to end; torchrun kills it after 30.
_LONGEST_END: Final = 20.0


class Watchdog:
    """Inside the context, call ``stop`` from a thread if the program waits for others and makes no progress.

    ``waiting`` returns the number of finished operations if the program waits, else None. The thread also calls
    ``stop`` when a launcher ends this rank, since Python's handlers do not run while the main thread waits in C++. If
    C++ aborts the process, ``write`` runs before the end.
    """

    def __init__(
        self,
        patience: float,
        waiting: Callable[[], int | None],
        stop: Callable[[str], bool],
        write: Callable[[str], object],
    ) -> None:
        self._patience, self._waiting, self._stop, self._write = patience, waiting, stop, write
        self._receiver, self._sender = socket.socketpair()
        self._thread = threading.Thread(target=self._watch, name="gradir-watchdog", daemon=True)

    @staticmethod
    def is_possible() -> bool:
        """Return whether signals reach a socket: only in the main thread of a POSIX system."""
        return os.name == "posix" and threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Watchdog:
        self._sender.setblocking(False)
        self._before = signal.getsignal(signal.SIGTERM)
        # The launcher's signal reaches the thread through the socket, even if the main thread waits.
        self._fd = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        if self._before == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._leave)
        # In an abort only C handlers run: Python's handlers need the main thread, which never runs again.
        self._libc = ctypes.CDLL(None)
        self._libc.signal.argtypes, self._libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
        self._on_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(self._handle_abort)
        self._before_abort = self._libc.signal(signal.SIGABRT, ctypes.cast(self._on_abort, ctypes.c_void_p))
        # A forked process shares the socket, but receives its own signals.
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._forget)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._sender.fileno() != _CLOSED:
            # Closing alone does not end the connection while a forked process has the socket.
            self._sender.shutdown(socket.SHUT_WR)
        self._forget()
        self._thread.join()
        self._receiver.close()

    def _forget(self) -> None:
        if self._sender.fileno() != _CLOSED:
            self._libc.signal(signal.SIGABRT, self._before_abort)
            signal.set_wakeup_fd(self._fd)
            if signal.getsignal(signal.SIGTERM) == self._leave:
                signal.signal(signal.SIGTERM, self._before)
            self._sender.close()

    def _leave(self, number: int, frame: object) -> None:  # noqa: ARG002 (as Python calls it)
        if not self._stop("fails"):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _handle_abort(self, number: int) -> None:
        """Write the file, since gloo and NCCL abort a process from a thread that runs no Python handler."""
        # The aborting thread may own a lock that the write needs, so the alarm ends the process then.
        if sys.platform != "win32":
            self._libc.signal(signal.SIGALRM, None)
            self._libc.alarm(_LONGEST_ABORT)
        self._write("fails")
        self._libc.signal(number, self._before_abort)
        # The signal is blocked until this handler returns.
        getattr(self._libc, "raise")(number)

    def _watch(self) -> None:
        # The times of the last progress and of the launcher's signal; the latter is infinite before it comes.
        moved, before, ended, is_leaving = time.monotonic(), None, math.inf, False
        while True:
            has_data = bool(select.select([self._receiver], [], [], _CHECKED_EACH)[0])
            signals = self._receiver.recv(64) if has_data else b""
            if has_data and not signals:
                return
            count = self._waiting()
            if count is None or count != before:
                moved, before = time.monotonic(), count
            if signal.SIGTERM in signals and signal.getsignal(signal.SIGTERM) == self._leave:
                ended = min(ended, time.monotonic())
            since_end, waited = time.monotonic() - ended, time.monotonic() - moved
            is_due = waited >= self._patience > 0 or since_end >= 0
            if count is not None and is_due and waited >= 0:
                is_leaving = self._stop("waits")
                # Do not stop again before the next progress.
                moved = math.inf
            if since_end >= (_LONGEST_END if count is None or is_leaving else 0):
                # The main thread waits in C++, and runs no handler.
                os._exit(-signal.SIGTERM % 256)
