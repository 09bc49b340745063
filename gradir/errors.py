"""The errors of gradir. Each message is one line with the problem and, if possible, advice."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

__all__ = [
    "CaptureError",
    "ExportError",
    "FileError",
    "FormatError",
    "FrontendError",
    "GradirError",
    "GradirWarning",
    "GraphError",
    "NewerFormatError",
    "PassError",
    "PatchError",
    "SpecError",
    "failing",
    "warn",
]

# A warning names no line of these packages.
_OURS = ("gradir", "gradir_exporters")


class GradirError(Exception):
    """Base class of gradir's errors."""


class GraphError(GradirError):
    """A graph that breaks a rule of the IR: an unknown input, a repeated id, a wrong order."""


class FileError(GradirError, OSError):
    """A file that cannot be read or written. It is an `OSError` too.

    Attributes:
        filename: the file.
        task: the failed task: "read" or "written".
        strerror: the reason.
        errno: the number of the system's error, if there is one.

    >>> error = FileError("a.gir", "read", "No such file or directory", 2)
    >>> str(error), error.filename, error.errno
    ('a.gir: cannot be read: No such file or directory', 'a.gir', 2)
    """

    def __init__(self, filename: str, task: str, strerror: str | None, errno: int | None = None) -> None:
        self.task = task
        super().__init__(f"{filename}: cannot be {task}: {strerror}")
        # OSError sets these only if it gets two arguments or more.
        self.filename, self.strerror, self.errno = filename, strerror, errno

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[type[FileError], tuple[str, str, str | None, int | None]]:
        # By default pickle calls the class with the message alone.
        return type(self), (self.filename, self.task, self.strerror, self.errno)


class FormatError(GradirError):
    """A file that is not a readable GIR document.

    Attributes:
        problem: the problem.
        file: the file, if known.
        place: its place in the file: a byte, a line or a path in the document.
        advice: how to solve it.

    >>> str(FormatError("it was truncated", file="a.gir", place="byte 7", advice="fetch it again"))
    'a.gir: byte 7: it was truncated; fetch it again'
    """

    def __init__(self, problem: str, *, file: str = "", place: str = "", advice: str = "") -> None:
        self.problem, self.file, self.place, self.advice = problem, file, place, advice
        super().__init__("; ".join(filter(None, [": ".join(filter(None, [file, place, problem])), advice])))

    def replace(self, *, file: str | None = None, place: str | None = None, advice: str | None = None) -> FormatError:
        """Return the same error with another file, place or advice."""
        return type(self)(
            self.problem,
            file=self.file if file is None else file,
            place=self.place if place is None else place,
            advice=self.advice if advice is None else advice,
        )


class NewerFormatError(FormatError):
    """A GIR document that only a newer gradir can read."""


class CaptureError(GradirError):
    """Something that cannot be captured, such as a tensor without a graph."""


class SpecError(CaptureError):
    """A ``gradir capture`` program that cannot be found, imported or called.

    Attributes:
        has_place: whether the message names the line of the user's program, so that no traceback has to.
    """

    has_place = False


class ExportError(GradirError):
    """An unknown exporter, an unknown option, or a graph the target format cannot hold."""


class FrontendError(GradirError):
    """A front-end that there is not, that cannot be loaded, or that fails."""


class PatchError(GradirError):
    """A diff that was not made for the graph it is applied to."""


class PassError(GradirError):
    """A pass with an impossible option: a pattern that names no node, or a negative number of hops or depth."""


class GradirWarning(UserWarning):
    """A result that you may not expect."""


def warn(message: str) -> None:
    """Give a `GradirWarning` at the line outside gradir that led to it."""
    frame, level = sys._getframe(), 1  # noqa: SLF001 (as inspect does, without its import)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, GradirWarning, stacklevel=level)


@contextmanager
def failing(problem: str, error: type[GradirError]) -> Iterator[None]:
    """Convert anything that a plug-in raises inside, also SystemExit, to an error that begins with the ``problem``."""
    try:
        yield
    except (GradirError, KeyboardInterrupt):
        raise
    except BaseException as raised:
        # The text of a syntax error has the line; the traceback only has the line of the import.
        has_line = isinstance(raised, SyntaxError) and not (raised.filename or "<").startswith("<")
        text = ": ".join(filter(None, (problem, type(raised).__name__, " ".join(str(raised).split()))))
        raise error(f"{text}{'' if has_line else _find_place(raised)}") from raised


def _find_place(error: BaseException) -> str:
    """Return the last line that ran in the package that gradir called, such as ``at edges.py:8``."""
    from pathlib import Path
    from traceback import walk_tb

    ran = [
        (str(frame.f_globals.get("__name__")).partition(".")[0], frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
    ]
    # importlib appears in the traceback between gradir and a module that it loads.
    others = [each for each in ran if each[0] not in (__name__.partition(".")[0], "importlib")]
    places = [(file, line) for package, file, line in others if package == others[0][0]]
    return f" at {Path(places[-1][0]).name}:{places[-1][1]}" if places else ""


# Comparing a pattern with every name of a graph of a million nodes would take a minute.
_MOST_COMPARED: Final = 20_000


def did_you_mean(wanted: str, known: Iterable[str], most: int = 1) -> str:
    """Return a suggestion of similar names for the end of an error, or an empty text.

    >>> did_you_mean("bufer", ["buffer", "output"]), did_you_mean("x", ["buffer"])
    (" (did you mean 'buffer'?)", '')
    """
    # Importing it compiles patterns.
    import difflib

    close = difflib.get_close_matches(wanted, list(islice(dict.fromkeys(known), _MOST_COMPARED)), n=most)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
