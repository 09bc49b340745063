"""Print tracebacks of a user's program without gradir's frames."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

from gradir.cli.report import one_line
from gradir.errors import CaptureError, ExportError, FrontendError, GradirError, PassError, SpecError

# How the names of gradir's files begin, and of what imports a module.
_OWN: Final = (f"{Path(__file__).parents[1]}{os.sep}", "<frozen ")
_STANDARD: Final = tuple(filter(None, map(sysconfig.get_paths().get, ("stdlib", "platstdlib"))))
# Errors behind which a program or a plug-in may have raised.
_RAISED: Final = (CaptureError, ExportError, FrontendError, PassError)
_INSTALLED: Final = frozenset(("site-packages", "dist-packages"))


def show_cause(error: GradirError, *, whole: bool) -> None:
    """Print the traceback of the user's exception behind an error; ``whole`` adds frames of gradir and plug-ins."""
    chain = [error]
    while isinstance(chain[-1].__cause__, GradirError):
        chain.append(chain[-1].__cause__)
    cause = chain[-1].__cause__
    told = [each for each in chain if isinstance(each, SpecError)]
    if cause is None or not isinstance(error, _RAISED) or sys.stderr is None:
        return
    if whole:
        _print(traceback.format_exception(error))
    # To leave is no failure, and what asks for it has said why.
    elif (
        isinstance(error, CaptureError)
        and not isinstance(cause, SystemExit)
        and not any(each.has_place for each in told)
    ):
        shown = trimmed(cause, of_library=bool(told)).__traceback__ is not None
        if shown or (isinstance(cause, SyntaxError) and cause.filename):
            _print(traceback.format_exception(cause) if shown else traceback.format_exception_only(cause))


def trimmed(error: BaseException, *, of_library: bool = True) -> BaseException:
    """Cut gradir's frames from the tracebacks of an exception and its causes."""
    for each in _with_context(error):
        each.__traceback__ = _trimmed(each.__traceback__, of_library=of_library)
    return error


def _with_context(error: BaseException) -> Iterator[BaseException]:
    seen: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen[id(each)] = each
            yield each
            left += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


def _trimmed(trace: TracebackType | None, *, of_library: bool) -> TracebackType | None:
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OWN):
            kept.append(trace)
        trace = trace.tb_next
    names = [each.tb_frame.f_code.co_filename for each in kept]
    starts = [place for place, name in enumerate(names) if not (name.startswith(_STANDARD) or _is_installed(name))]
    # If only a library's code ran, nothing is left without `of_library`.
    if not starts and of_library:
        starts = [place for place, name in enumerate(names) if _is_installed(name)]
    found: TracebackType | None = None
    # A traceback links to its next frame when it is made, so the last one comes first.
    for each in reversed(kept[starts[0] :] if starts else []):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found


def _is_installed(name: str) -> bool:
    return not _INSTALLED.isdisjoint(Path(name).parts)


def _print(lines: list[str]) -> None:
    for line in "".join(lines).removesuffix("\n").split("\n"):
        print(one_line(line), file=sys.stderr)
