"""End a rank that waits for the others for too long, so that there is an answer and not a timeout."""

from __future__ import annotations

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


class Watchdog:
    """While entered, calls ``stop`` from a thread if the program waits for others, and nothing moves for some seconds.

    ``waiting`` returns how many operations ran if the program waits, else None. A launcher that ends this rank because
    another one has ended is the same: Python's own handlers do not run in a thread that waits in C++.
    """

    def __init__(self, patience: float, waiting: Callable[[], int | None], stop: Callable[[str], bool]) -> None:
        self._patience, self._waiting, self._stop = patience, waiting, stop
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
            signal.set_wakeup_fd(self._fd)
            if signal.getsignal(signal.SIGTERM) == self._leave:
                signal.signal(signal.SIGTERM, self._before)
            self._told.close()

    def _leave(self, number: int, frame: object) -> None:  # noqa: ARG002 (as Python calls it)
        if not self._stop("fails"):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _watch(self) -> None:
        moved, before = time.monotonic(), None
        while True:
            is_told = bool(select.select([self._ended], [], [], _CHECKED_EACH)[0])
            signals = self._ended.recv(64) if is_told else b""
            if is_told and not signals:
                return
            now = self._waiting()
            if now is None or now != before:
                moved, before = time.monotonic(), now
            is_ended = signal.SIGTERM in signals and signal.getsignal(signal.SIGTERM) == self._leave
            if now is not None and (is_ended or 0 < self._patience <= time.monotonic() - moved):
                self._stop("waits")
