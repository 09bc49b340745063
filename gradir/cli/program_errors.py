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

# The names of gradir's files, and of Python's importing code, begin so.
_OWN: Final = (f"{Path(__file__).parents[1]}{os.sep}", "<frozen ")
_STANDARD: Final = tuple(filter(None, map(sysconfig.get_paths().get, ("stdlib", "platstdlib"))))
# A program or a plug-in may have caused these errors.
_RAISED: Final = (CaptureError, ExportError, FrontendError, PassError)
_INSTALLED: Final = frozenset(("site-packages", "dist-packages"))


def show_cause(error: GradirError, *, whole: bool) -> None:
    """Print the traceback of the user's exception that caused an error, and with ``whole`` all frames."""
    chain = [error]
    while isinstance(chain[-1].__cause__, GradirError):
        chain.append(chain[-1].__cause__)
    cause = chain[-1].__cause__
    spec_errors = [each for each in chain if isinstance(each, SpecError)]
    if cause is None or not isinstance(error, _RAISED) or sys.stderr is None:
        return
    if whole:
        _print(traceback.format_exception(error))
        return
    has_place = any(each.has_place for each in spec_errors)
    # SystemExit is no failure, and the program has printed the reason.
    if isinstance(error, CaptureError) and not isinstance(cause, SystemExit) and not has_place:
        has_frames = trim_tracebacks(cause, with_libraries=bool(spec_errors)).__traceback__ is not None
        if has_frames or (isinstance(cause, SyntaxError) and cause.filename):
            _print(traceback.format_exception(cause) if has_frames else traceback.format_exception_only(cause))


def trim_tracebacks(error: BaseException, *, with_libraries: bool = True) -> BaseException:
    """Remove gradir's frames from the tracebacks of an exception and its causes."""
    for each in _walk_causes(error):
        each.__traceback__ = _trim(each.__traceback__, with_libraries=with_libraries)
    return error


def _walk_causes(error: BaseException) -> Iterator[BaseException]:
    seen: dict[int, BaseException] = {}
    stack: list[BaseException | None] = [error]
    while stack:
        each = stack.pop()
        if each is not None and id(each) not in seen:
            seen[id(each)] = each
            yield each
            stack += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


def _trim(trace: TracebackType | None, *, with_libraries: bool) -> TracebackType | None:
    frames = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OWN):
            frames.append(trace)
        trace = trace.tb_next
    names = [each.tb_frame.f_code.co_filename for each in frames]
    starts = [place for place, name in enumerate(names) if not (name.startswith(_STANDARD) or _is_installed(name))]
    # If only library code ran, no frame remains without `with_libraries`.
    if not starts and with_libraries:
        starts = [place for place, name in enumerate(names) if _is_installed(name)]
    trimmed: TracebackType | None = None
    # A new traceback takes its next frame, so the last one is made first.
    for each in reversed(frames[starts[0] :] if starts else []):
        trimmed = TracebackType(trimmed, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return trimmed


def _is_installed(name: str) -> bool:
    return not _INSTALLED.isdisjoint(Path(name).parts)


def _print(lines: list[str]) -> None:
    for line in "".join(lines).removesuffix("\n").split("\n"):
        print(one_line(line), file=sys.stderr)
