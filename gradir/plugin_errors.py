"""Report what a plug-in raises as its failure, in one line with the line of its code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gradir.errors import GradirError


class FrontendError(GradirError):
    """A front-end that there is not, that cannot be loaded, or that fails."""


@contextmanager
def failing(what: str, error: type[GradirError]) -> Iterator[None]:
    """Report anything that a plug-in raises inside, also SystemExit, as an error that begins with ``what`` failed."""
    try:
        yield
    except (GradirError, KeyboardInterrupt):
        raise
    except BaseException as raised:
        # Of a file that is no Python the text says the line, and the last line that ran is one that imported it.
        is_told = isinstance(raised, SyntaxError) and not (raised.filename or "<").startswith("<")
        text = " ".join(str(raised).split())
        said = ": ".join(filter(None, (what, type(raised).__name__, text)))
        raise error(f"{said}{'' if is_told else _place(raised)}") from raised


def _place(error: BaseException) -> str:
    """Return the last line that ran in the package that gradir called, such as ``at edges.py:8``."""
    from pathlib import Path
    from traceback import walk_tb

    ran = [
        (str(frame.f_globals.get("__name__")).partition(".")[0], frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
    ]
    # What imports a module stands between gradir and the module.
    others = [each for each in ran if each[0] not in (__name__.partition(".")[0], "importlib")]
    own = [(file, line) for package, file, line in others if package == others[0][0]]
    return f" at {Path(own[-1][0]).name}:{own[-1][1]}" if own else ""
