"""Keeps what the user's program prints out of what gradir writes to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Final

from gradir.errors import FileError

__all__ = ["OwnOutput", "program_output"]

_STDOUT: Final = 1
_STDERR: Final = 2


class OwnOutput:
    """Standard output as it was before the program ran."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            FileError: it cannot be written.
        """
        try:
            with open(self._descriptor, "wb", closefd=False) as file:
                file.write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise FileError("standard output", "written", error.strerror, error.errno) from error


@contextmanager
def program_output(*, for_good: bool) -> Iterator[OwnOutput]:
    """Send what is printed inside to standard error, whoever prints it: Python, C or a process of its own.

    With ``for_good`` it stays so, for what threads and exit handlers of the program print later.
    """
    with redirect_stdout(sys.stderr):
        try:
            _flush()
            own = os.dup(_STDOUT)
        except OSError:
            # There is no standard output to keep clean.
            yield OwnOutput(_STDOUT)
            return
        with suppress(OSError):
            os.dup2(_STDERR, _STDOUT)
        try:
            yield OwnOutput(own)
        finally:
            _flush()
            if not for_good:
                os.dup2(own, _STDOUT)
                os.close(own)


def _flush() -> None:
    with suppress(OSError, ValueError):
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
